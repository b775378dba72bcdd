"""Private context: φ, the statistic behind one release.

Feature groups are a fixed partition of the input coordinates: image channels (the paper), or channels x p x p patches.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from common.data.catalog import DatasetSpec
from common.settings import Settings
from common.validation import number


@dataclass(frozen=True)
class ContextMap:
    """φ of eq. 1, optionally clipped to a ball around a public centre.

    Attributes:
        image_shape: (channels, height, width).
        grid: p; groups are channels x p x p patches, whole channels for p = 1.
        center: public centre (2s,), in units of φ; None: no clipping.
        radius: of the ball, in units of φ.
    """

    image_shape: tuple[int, int, int]
    grid: int = 1
    center: np.ndarray | None = None
    radius: float = 0.0

    @property
    def num_groups(self) -> int:
        """s."""
        return self.image_shape[0] * self.grid**2

    @property
    def dim(self) -> int:
        """2s, the length of a context."""
        return 2 * self.num_groups

    def phi(self, images: np.ndarray) -> np.ndarray:
        """φ(x) (eq. 1): group means and mean squares, scaled so that ‖φ‖ ≤ 1.

        Args:
            images: (n, channels, height, width), coordinates clamped to [0, 1]; records with a NaN or an infinity
                get the centre, a fixed public point.

        Returns:
            (n, 2s) float64.
        """
        x = np.asarray(images, dtype=np.float64)
        usable = np.asarray(np.isfinite(x).all(axis=(1, 2, 3)))
        x = np.clip(np.where(usable[:, None, None, None], x, 0.0), 0.0, 1.0)
        moments = np.concatenate([self._group_means(x), self._group_means(x * x)], axis=1)
        phi: np.ndarray = moments / np.sqrt(self.dim)
        center = self.center if self.center is not None else self.constant(0.5)
        phi[~usable] = center
        if self.center is not None:
            offset = phi - center
            norm = np.linalg.norm(offset, axis=1, keepdims=True)
            phi = center + offset * np.minimum(1.0, self.radius / np.maximum(norm, np.finfo(float).tiny))
        return phi

    def constant(self, value: float) -> np.ndarray:
        """φ of the image whose coordinates all equal `value`: (2s,)."""
        return np.repeat([value, value * value], self.num_groups) / np.sqrt(self.dim)

    def sensitivity(self, records: int, kind: str) -> float:
        """Δ_c of the mean over `records`: 2q/m_c ("paper", q = 1 without a centre), or the diameter of φ's range over
        m_c ("tight": φ lies in [0, 1/√(2s)]^{2s}, so no two values are further apart than 1)."""
        radius = self.radius if self.center is not None else 1.0
        diameter = 2.0 * radius if kind == "paper" else min(2.0 * radius, 1.0)
        return diameter / records

    def _group_means(self, x: np.ndarray) -> np.ndarray:
        """(n, channels, height, width) → (n, s); patches of a side differ by at most one pixel."""
        _, channels, height, width = x.shape
        row_edges = np.linspace(0, height, self.grid + 1).astype(int)
        column_edges = np.linspace(0, width, self.grid + 1).astype(int)
        means = [
            x[:, :, top:bottom, left:right].mean(axis=(2, 3))
            for top, bottom in pairwise(row_edges)
            for left, right in pairwise(column_edges)
        ]
        return np.stack(means, axis=2).reshape(len(x), channels * self.grid**2)


PUBLIC_CENTER = "public"


def make_context_map(settings: Settings, spec: DatasetSpec) -> ContextMap:
    """φ as the settings say, on images as `spec` says.

    Raises:
        ValueError: a centre that cannot be read or has the wrong length, a grid finer than the image.
    """
    side = min(spec.image_shape[1:])
    if settings.context_grid > side:
        raise ValueError(f"context-grid must be at most {side}. Received {settings.context_grid}.")
    plain = ContextMap(spec.image_shape, settings.context_grid)
    if not settings.context_center:
        return plain
    if settings.context_center == PUBLIC_CENTER:
        center = _public_center(spec, settings.context_grid)
    else:
        center = _parse_center(settings.context_center, plain.num_groups)
    return ContextMap(spec.image_shape, settings.context_grid, center / np.sqrt(plain.dim), settings.context_radius)


def _public_center(spec: DatasetSpec, grid: int) -> np.ndarray:
    """Mean and mean square of every channel by the data set's public constants, the same for all of its patches: (2s,)."""
    mean, stddev = np.array(spec.mean), np.array(spec.stddev)
    return np.repeat(np.concatenate([mean, mean**2 + stddev**2]), grid**2)


def _parse_center(text: str, groups: int) -> np.ndarray:
    """'mu,nu' or 2s numbers in [0, 1], in units of (1) before its scaling: (2s,)."""
    allowed = f"'public', 'mu,nu' or {2 * groups} comma-separated numbers in [0, 1]"
    try:
        values = [number("context-center", float(part), at_least=0.0, at_most=1.0) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"context-center must be {allowed}. Received {text!r}.") from None
    if len(values) == 2:
        return np.repeat(values, groups)
    if len(values) != 2 * groups:
        raise ValueError(f"context-center must be {allowed}. Received {len(values)} numbers.")
    return np.array(values)
