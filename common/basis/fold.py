"""The signed strided fold: column j of P has random signs on the entries {j, j+k, j+2k, …}, scaled to length one.

The columns have disjoint supports, so they are orthogonal by construction. Strided slices need no gather: both maps
are a loop of ⌈d_theta/k⌉ multiply-adds over contiguous slices (compiled on a CPU).
"""

from pathlib import Path

import numpy as np
import torch

from common.compiled import load_compiled
from common.randomness import Purpose, public_generator


class FoldBasis:
    """P as signs and a stride. Memory: d_theta floats."""

    def __init__(self, dim: int, num_coefficients: int, *, seed: int, device: str = "cpu") -> None:
        self.dim, self.num_coefficients = dim, num_coefficients
        rng = public_generator(seed, Purpose.BASIS)
        signs = 1.0 - 2.0 * rng.integers(0, 2, size=dim)
        column = np.arange(dim) % num_coefficients
        support = np.bincount(column, minlength=num_coefficients)
        # The non-zero entry of each row of P: (d_theta,).
        self.entries = torch.tensor(signs / np.sqrt(support[column]), dtype=torch.float32, device=device)

    def slices(self) -> list[slice]:
        """Rows of P, cut into the stretches in which the column index runs from 0."""
        k = self.num_coefficients
        return [slice(start, min(start + k, self.dim)) for start in range(0, self.dim, k)]

    def expand(self, coefficients: torch.Tensor) -> torch.Tensor:
        """See `Basis.expand`."""
        parameters = torch.empty_like(self.entries)
        for rows in self.slices():
            torch.mul(self.entries[rows], coefficients[: rows.stop - rows.start], out=parameters[rows])
        return parameters

    def project(self, gradients: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """See `Basis.project`."""
        if out is None:
            out = gradients.new_empty(len(gradients), self.num_coefficients)
        if gradients.device.type == "cpu":
            kernel = load_compiled(Path(__file__).with_name("fold_kernel.py"))
            kernel.fold(gradients.contiguous().numpy(), self.entries.numpy(), out.numpy())
            return out
        first, *rest = self.slices()
        torch.mul(gradients[:, first], self.entries[first], out=out)
        for rows in rest:
            out[:, : rows.stop - rows.start].addcmul_(gradients[:, rows], self.entries[rows])
        return out
