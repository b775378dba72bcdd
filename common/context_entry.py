"""How cached contexts enter the generator: free post-processing of released values.

- raw: as released.
- standardized: every coordinate centred and divided by its spread over the participating clients.
- whitened: every principal direction of the participating contexts divided by its spread, so that small differences
  count like large ones, and shrunk by the share of its variance that is not the release's own noise (Wiener's factor).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class ContextEntry:
    """z = scale ⊙ (c − shift), in the coordinates or in principal directions and back.

    Everything is fixed from the cached participating contexts, which never change, so a client that joins later goes
    through the same map. Few clients against 2s leave limits: docs/method.md, section 1.

    Attributes:
        shift: (2s,).
        scale: (2s,), or (m,) with m directions.
        directions: orthonormal rows (m, 2s); None: the coordinates themselves.
    """

    shift: np.ndarray
    scale: np.ndarray
    directions: np.ndarray | None = None

    @classmethod
    def fit(cls, kind: str, gain: float, contexts: np.ndarray, noise_stddev: float) -> ContextEntry:
        """From the cached participating contexts.

        Args:
            kind: setting `context-entry`.
            gain: factor on the result. Over the participating clients, coordinates of "standardized" contexts, and of
                "whitened" ones without noise, have this root mean square.
            contexts: (clients, 2s) float64.
            noise_stddev: σ_c of the releases, for "whitened".
        """
        dim = contexts.shape[1]
        if kind == "raw":
            return cls(np.zeros(dim), np.full(dim, gain))
        shift = contexts.mean(axis=0)
        if kind == "standardized":
            spread = contexts.std(axis=0, ddof=0)
            return cls(shift, gain / np.where(spread > 0, spread, 1.0))
        # torch's decomposition: its threads are pinned, NumPy's cannot be in a worker.
        _, singular, rows = torch.linalg.svd(torch.tensor(contexts - shift), full_matrices=False)
        variance = singular.numpy() ** 2 / len(contexts)
        kept = variance > 1e-12 * variance[0]  # centring takes one direction away, equal contexts more
        variance, directions = variance[kept], rows.numpy()[kept].copy()
        shrinkage = np.maximum(0.0, 1.0 - noise_stddev**2 / variance)
        return cls(shift, gain * np.sqrt(dim / max(1, len(variance)) / variance) * shrinkage, directions)

    def __call__(self, context: np.ndarray) -> np.ndarray:
        """(2s,) → (2s,) float32."""
        entered = context - self.shift
        if self.directions is None:
            entered = entered * self.scale
        else:  # sums, not products: see `fit`
            components = (self.directions * entered).sum(axis=1) * self.scale
            entered = (self.directions * components[:, None]).sum(axis=0)
        result: np.ndarray = entered.astype(np.float32)
        return result

    def tensors(self) -> dict[str, np.ndarray]:
        """By name, for the file that holds the generator."""
        named = {"shift": self.shift, "scale": self.scale, "directions": self.directions}
        return {name: value for name, value in named.items() if value is not None}
