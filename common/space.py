"""Which space a variant's releases live in: coefficients of a basis (R^k), or the model's parameters (R^d_theta).

Both sides must know it before anything is sent: it decides what a client differentiates, clips and encodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from common.data.catalog import DatasetSpec
from common.model import MODELS
from common.settings import Settings

# Variants that release full-model gradients and need no basis (docs/method.md, section 8).
PARAMETER_SPACE = ("global", "full")


@dataclass(frozen=True)
class Space:
    """The space of a run's releases.

    Attributes:
        basis: kind of basis; "identity" for parameter space.
        dim: k, coordinates of one release.
        tensors: entries of each tensor of the personal model; their sum is d_theta.
    """

    basis: str
    dim: int
    tensors: tuple[int, ...]


def space_of(settings: Settings, spec: DatasetSpec, noise_stddev: float) -> Space:
    """The space of the settings' variant, where releases have the noise σ_g = `noise_stddev`."""
    with torch.device("meta"):  # shapes alone: no memory, no random numbers
        model = MODELS[settings.model](spec.image_shape, spec.num_classes)
    tensors = tuple(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if settings.variant in PARAMETER_SPACE:
        return Space("identity", sum(tensors), tensors)
    k = settings.num_coefficients
    if settings.coefficient_noise and noise_stddev > 0:
        affordable = int(settings.coefficient_noise * settings.clip_norm / noise_stddev)
        k = min(k, max(affordable, len(tensors)))
    return Space(settings.basis, k, tensors)
