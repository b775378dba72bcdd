"""The signed strided fold: column j of P has random signs on the entries {j, j+k, j+2k, …}, scaled to length one.

The columns have disjoint supports, so they are orthogonal by construction. Strided slices need no gather: both maps
are a loop of ⌈d_theta/k⌉ multiply-adds over contiguous slices (compiled on a CPU). Layer by layer, every tensor of the
model is folded alone, onto its share of the k columns: no column mixes two layers.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import torch

from common.basis.shares import coefficient_shares
from common.compiled import load_compiled
from common.randomness import Purpose, public_generator


class FoldBasis:
    """P as signs and strides. Memory: d_theta floats."""

    def __init__(
        self, dim: int, num_coefficients: int, *, seed: int, device: str = "cpu", tensors: Sequence[int] = ()
    ) -> None:
        """`tensors`: sizes of the model's tensors, to fold each of them alone; none: θ is one."""
        self.dim, self.num_coefficients = dim, num_coefficients
        tensors = tensors or (dim,)
        shares = coefficient_shares(tensors, num_coefficients)
        # Where the blocks of P begin and end.
        self._rows = np.array([0, *accumulate(tensors)])
        self._columns = np.array([0, *accumulate(shares)])
        rng = public_generator(seed, Purpose.BASIS)
        signs = 1.0 - 2.0 * rng.integers(0, 2, size=dim)
        column = np.concatenate(
            [
                start + np.arange(size) % share
                for size, share, start in zip(tensors, shares, self._columns, strict=False)
            ]
        )
        support = np.bincount(column, minlength=num_coefficients)
        # The non-zero entry of each row of P: (d_theta,).
        self.entries = torch.tensor(signs / np.sqrt(support[column]), dtype=torch.float32, device=device)

    def slices(self) -> list[tuple[slice, slice]]:
        """Rows of P, cut into stretches in which the column index runs by one, with the columns of each."""
        blocks = zip(pairwise(self._rows.tolist()), pairwise(self._columns.tolist()), strict=True)
        return [
            (slice(start, min(start + right - left, bottom)), slice(left, left + min(right - left, bottom - start)))
            for (top, bottom), (left, right) in blocks
            for start in range(top, bottom, right - left)
        ]

    def expand(self, coefficients: torch.Tensor) -> torch.Tensor:
        """See `Basis.expand`."""
        parameters = torch.empty_like(self.entries)
        for rows, columns in self.slices():
            torch.mul(self.entries[rows], coefficients[columns], out=parameters[rows])
        return parameters

    def project(self, gradients: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """See `Basis.project`."""
        if out is None:
            out = gradients.new_empty(len(gradients), self.num_coefficients)
        if gradients.device.type == "cpu":
            kernel = load_compiled(Path(__file__).with_name("fold_kernel.py"))
            kernel.fold(gradients.contiguous().numpy(), self.entries.numpy(), self._rows, self._columns, out.numpy())
            return out
        out.zero_()
        for rows, columns in self.slices():
            out[:, columns].addcmul_(gradients[:, rows], self.entries[rows])
        return out
