"""Probability tables of the coder, computed with exactly rounded operations only: equal bits on every machine.

A model class is a scale mixture of Gaussians with unit variance: class 0 is Gaussian, the others have ever heavier
tails. For each class, three tables in z (see `kernel`): P(Z <= z); the mean shift and the variance loss of Z given
Z > -z was refused, i.e. of a Gaussian-like variable cut off at -z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

# As in `kernel`: value at z = -Z_MAX + i / Z_STEPS. A test holds the two together.
Z_MAX = 9.0
Z_STEPS = 32.0
TABLE_SIZE = 577

# (weight, relative scale) of each component; scales are normalised to unit variance below.
_MIXTURES: tuple[tuple[tuple[float, float], ...], ...] = (
    ((1.0, 1.0),),
    ((0.75, 0.75), (0.25, 1.5)),
    ((0.5, 0.5), (0.375, 1.0), (0.125, 2.25)),
    ((0.625, 0.125), (0.25, 0.75), (0.125, 2.5)),
    ((0.875, 0.03125), (0.09375, 1.0), (0.03125, 4.0)),
)
NUM_CLASSES = len(_MIXTURES)


@dataclass(frozen=True)
class Tables:
    """Tables of one class, each (TABLE_SIZE,) float64, and the score below which a candidate is not visited."""

    cdf: np.ndarray
    hazard: np.ndarray
    shrink: np.ndarray
    z_cut: float


def _exp(x: float) -> float:
    """e^x for x <= 0 with + and * only: squaring of a short series."""
    halvings = 0
    while x < -0.03125:
        x *= 0.5
        halvings += 1
    total = 1.0
    for n in range(12, 0, -1):
        total = 1.0 + total * x / n
    for _ in range(halvings):
        total *= total
    return total


def _density(z: float) -> float:
    return _exp(-0.5 * z * z) * 0.3989422804014327


def _upper_tail(z: float) -> float:
    """P(Z > z) of a standard normal, z >= 0: Taylor series near zero, continued fraction beyond."""
    if z < 3.0:
        term, total, n = z, z, 1
        while term > 1e-17 * total and n < 400:
            term *= z * z / (2 * n + 1)
            total += term
            n += 1
        return 0.5 - _density(z) * total
    fraction = z
    for n in range(60, 0, -1):
        fraction = z + n / fraction
    return _density(z) / fraction


def _cdf(z: float) -> float:
    return _upper_tail(-z) if z < 0 else 1.0 - _upper_tail(z)


@cache
def tables(model_class: int) -> Tables:
    """The tables of a model class."""
    mixture = _MIXTURES[model_class]
    norm = math.sqrt(sum(weight * scale * scale for weight, scale in mixture))
    cdf, hazard, shrink = [], [], []
    for index in range(TABLE_SIZE):
        z = index / Z_STEPS - Z_MAX
        cut = -z  # a "no" leaves Z < -z
        below = mean = square = accept = 0.0
        for weight, relative in mixture:
            scale = relative / norm
            density = _density(cut / scale)
            part = _cdf(cut / scale)
            accept += weight * _cdf(z / scale)
            below += weight * part
            mean += weight * scale * density
            square += weight * (scale * scale * part - cut * scale * density)
        below = max(below, 1e-300)
        shift = mean / below
        cdf.append(accept)
        hazard.append(shift)
        shrink.append(min(max(1.0 - (square / below - shift * shift), 0.0), 0.999))
    z_cut = next(-(i / Z_STEPS - Z_MAX) for i, p in enumerate(cdf) if p > 1.0 / 16384)
    return Tables(np.array(cdf), np.array(hazard), np.array(shrink), min(z_cut, 6.0))
