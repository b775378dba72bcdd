"""Kernel tools (docs/method.md, section 6): how one client's noisy update moves another client's coefficients.

Eq. 8: Δa_j = −(η/|S_t|) K_ji g̃_i with K_ji = J_j J_iᵀ. Eq. 9: K_ji = (h_jᵀ h_i) I_k + W H_j H_iᵀ Wᵀ for a factorised variant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
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

    def gain(self) -> float:
        """h_jᵀ h_i, the isotropic term; 1 for a variant that trains the coefficients themselves."""
        with torch.no_grad():
            h_j, h_i = self._variant.hidden(self._j), self._variant.hidden(self._i)
        return 1.0 if h_j is None or h_i is None else float(torch.dot(h_j.double(), h_i.double()))

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
    """‖K_ji g‖² taken apart along the two terms of eq. 9.

    Attributes:
        isotropic: ‖(h_jᵀ h_i) g‖².
        directional: ‖W H_j H_iᵀ Wᵀ g‖².
        total: ‖K_ji g‖²; differs from the sum by twice the inner product of the two parts.
    """

    isotropic: float
    directional: float
    total: float

    @property
    def isotropic_share(self) -> float:
        """isotropic / (isotropic + directional); 1 where nothing moves."""
        parts = self.isotropic + self.directional
        return self.isotropic / parts if parts > 0 else 1.0


def directional_part(
    variant: Variant, context_j: torch.Tensor, context_i: torch.Tensor, update: torch.Tensor
) -> torch.Tensor:
    """W H_j H_iᵀ Wᵀ g, the second term of eq. 9: (k,) → (k,), by differentiating h_ψ alone; W is used twice and no more."""
    output = getattr(variant, "output", None)
    if output is None:  # the coefficients themselves are trained: K_ji = I
        return torch.zeros_like(update)
    weight = output.weight.detach()
    parameters = {name: p.detach() for name, p in variant.named_parameters() if not name.startswith("output.")}

    def hidden(context: torch.Tensor):  # type: ignore[no-untyped-def]
        return lambda values: functional_call(_Hidden(variant), {f"of.{k}": v for k, v in values.items()}, (context,))

    _, backward = vjp(hidden(context_i), parameters)  # type: ignore[misc]
    _, moved = jvp(hidden(context_j), (parameters,), (backward(weight.T @ update)[0],))  # type: ignore[misc]
    return weight @ moved


class _Hidden(nn.Module):
    """A variant up to its hidden state, as a module of its own."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.of = variant

    def forward(self, context: torch.Tensor) -> torch.Tensor | None:
        return self.of.hidden(context)


def energy_split(
    variant: Variant, context_j: torch.Tensor, context_i: torch.Tensor, update: torch.Tensor
) -> EnergySplit:
    """The isotropic and the directional part of one update's effect on client j."""
    isotropic = KernelOperator(variant, context_j, context_i).gain() * update.double()
    directional = directional_part(variant, context_j, context_i, update).double()
    return EnergySplit(*(float(part @ part) for part in (isotropic, directional, isotropic + directional)))
