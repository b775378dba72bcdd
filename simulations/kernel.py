"""Kernel tools (docs/method.md, section 6): how one client's noisy update moves another client's coefficients.

Eq. 8: Δa_j = −(η/|S_t|) K_ji g̃_i with K_ji = J_j J_iᵀ. Eq. 9: K_ji = (h_jᵀ h_i) I_k + W H_j H_iᵀ Wᵀ for a factorised variant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.func import functional_call, jvp, vjp

from server_app.variants import Variant


class KernelOperator:
    """K_ji for two contexts as a linear map on R^k: two passes of automatic differentiation, never a k × k matrix.

    Args:
        variant: the generator's variant, in its present state.
        context_j: of the client that is moved; context_i: of the client that sent the update. Each (2s,).
    """

    def __init__(self, variant: Variant, context_j: torch.Tensor, context_i: torch.Tensor) -> None:
        self._variant, self._j, self._i = variant, context_j, context_i
        self._parameters = {name: p.detach() for name, p in variant.named_parameters()}

    def _coefficients(self, context: torch.Tensor):  # type: ignore[no-untyped-def]
        return lambda parameters: functional_call(self._variant, parameters, (context,))

    def pull_back(self, update: torch.Tensor) -> dict[str, torch.Tensor]:
        """J_iᵀ g: (k,) → parameters."""
        _, backward = vjp(self._coefficients(self._i), self._parameters)  # type: ignore[misc]
        gradients: dict[str, torch.Tensor] = backward(update)[0]
        return gradients

    def __call__(self, update: torch.Tensor) -> torch.Tensor:
        """K_ji g: (k,) → (k,)."""
        tangents = (self.pull_back(update),)
        _, moved = jvp(self._coefficients(self._j), (self._parameters,), tangents)  # type: ignore[misc]
        result: torch.Tensor = moved
        return result

    def dense(self) -> np.ndarray:
        """K_ji as a matrix (k, k) float64: for small k."""
        a = self._variant(self._i)
        if len(a) > 4096:
            raise ValueError(f"k must be at most 4096 for a dense kernel. Received {len(a)}.")
        columns = [self(unit).double().detach().numpy() for unit in torch.eye(len(a), dtype=a.dtype)]
        return np.stack(columns, axis=1)


def predicted_change(operator: KernelOperator, update: torch.Tensor, eta: float, clients: int) -> torch.Tensor:
    """Δa_j of eq. 8 for one client's share of a round: (k,)."""
    return -(eta / clients) * operator(update)


@dataclass(frozen=True)
class EnergySplit:
    """‖K_ji g‖² along g (what a scalar gain would do) and across it."""

    along: float
    across: float

    @property
    def isotropic_share(self) -> float:
        """Share of the update's energy that a scalar gain explains."""
        total = self.along + self.across
        return self.along / total if total > 0 else 1.0


def energy_split(operator: KernelOperator, update: torch.Tensor) -> EnergySplit:
    """The isotropic and directional parts of one update's effect on client j."""
    moved, direction = operator(update).double(), update.double()
    along = torch.dot(moved, direction) / torch.linalg.vector_norm(direction)
    return EnergySplit(float(along**2), float(moved @ moved - along**2))
