"""The fixed orthonormal basis P of the adaptation subspace (docs/method.md, eq. 3).

A basis is two maps. `expand(a)`: coefficients (k,) → parameters (d_theta,), P a. `project(G)`: gradients
(n, d_theta) → coefficient gradients (n, k), G P. P never depends on data, and P^T P = I_k to float32 rounding.
P is never stored densely above a small size: on CIFAR-10 it would take 7.9 GB.
"""

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


BASES: dict[str, type] = {"fold": FoldBasis, "dct": CosineBasis, "dense": DenseBasis, "identity": IdentityBasis}


def check_basis(kind: str, dim: int, num_coefficients: int) -> None:
    """Raises `ValueError` for an unknown kind, k outside 1..d_theta, or a dense basis that would be too large."""
    one_of("basis", kind, BASES)
    if not 1 <= num_coefficients <= dim:
        raise ValueError(f"num-coefficients must be from 1 to d_theta = {dim}. Received {num_coefficients}.")
    if kind == "dense" and dim * num_coefficients > MAX_ENTRIES:
        raise ValueError(
            f"basis 'dense' needs d_theta x num-coefficients <= {MAX_ENTRIES:,}. "
            f"Received {dim:,} x {num_coefficients:,}; use 'fold' or 'dct'."
        )


def make_basis(kind: str, dim: int, num_coefficients: int, *, seed: int, device: str = "cpu") -> Basis:
    """The basis of a run, a function of the public seed.

    Raises:
        ValueError: unknown kind, or k outside 1..d_theta.
    """
    check_basis(kind, dim, num_coefficients)
    basis: Basis = BASES[kind](dim, num_coefficients, seed=seed, device=device)
    return basis
