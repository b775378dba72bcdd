"""The fixed orthonormal basis P of the adaptation subspace (docs/method.md, eq. 3).

A basis is two maps. `expand(a)`: coefficients (k,) → parameters (d_theta,), P a. `project(G)`: gradients
(n, d_theta) → coefficient gradients (n, k), G P. P never depends on data, and P^T P = I_k to float32 rounding.
P is never stored densely above a small size: on CIFAR-10 it would take 7.9 GB.
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from common.basis.dct import CosineBasis
from common.basis.dense import MAX_ENTRIES, DenseBasis
from common.basis.fold import FoldBasis
from common.basis.identity import IdentityBasis
from common.validation import one_of


class Basis(Protocol):
    """What the rest of the project knows of a basis."""

    dim: int
    num_coefficients: int

    def expand(self, coefficients: torch.Tensor) -> torch.Tensor:
        """P a. `coefficients`: (k,) float32. Returns (d_theta,) float32."""

    def project(self, gradients: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """G P. `gradients`: (n, d_theta) float32. Returns (n, k) float32, written to `out` if given."""


BASES: dict[str, type] = {
    "fold": FoldBasis,
    "layers": FoldBasis,
    "dct": CosineBasis,
    "dense": DenseBasis,
    "identity": IdentityBasis,
}


def check_basis(kind: str, tensors: Sequence[int], num_coefficients: int) -> None:
    """Raises `ValueError` for an unknown kind, k outside its range, or a dense basis that would be too large."""
    one_of("basis", kind, BASES)
    dim = sum(tensors)
    least = len(tensors) if kind == "layers" else 1
    if not least <= num_coefficients <= dim:
        raise ValueError(
            f"num-coefficients must be from {least} to d_theta = {dim} for basis {kind!r}. Received {num_coefficients}."
        )
    if kind == "dense" and dim * num_coefficients > MAX_ENTRIES:
        raise ValueError(
            f"basis 'dense' needs d_theta x num-coefficients <= {MAX_ENTRIES:,}. "
            f"Received {dim:,} x {num_coefficients:,}; use 'fold' or 'dct'."
        )


def make_basis(kind: str, tensors: Sequence[int], num_coefficients: int, *, seed: int, device: str = "cpu") -> Basis:
    """The basis of a run, a function of the public seed.

    Args:
        kind: name in `BASES`.
        tensors: number of entries of each tensor of the model, in order; d_theta is their sum. Only "layers" looks
            at more than the sum.
        num_coefficients: k.

    Raises:
        ValueError: unknown kind, or k outside 1..d_theta (from the number of tensors on for "layers").
    """
    check_basis(kind, tensors, num_coefficients)
    blocks = {"tensors": tensors} if kind == "layers" else {}
    basis: Basis = BASES[kind](sum(tensors), num_coefficients, seed=seed, device=device, **blocks)
    return basis
