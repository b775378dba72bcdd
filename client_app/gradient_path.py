"""Which way coefficient gradients are computed: it follows from the basis."""

from __future__ import annotations

from typing import Protocol

import torch

from client_app.gradients import BatchGradient, CoefficientGradients
from client_app.kron_gradients import KronGradients
from common.basis import Basis
from common.basis.kron import KronBasis
from common.model import FlatModel


class Gradients(Protocol):
    """(1/m_g) Σ clip(g_z), and its summands."""

    def __call__(
        self,
        theta: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        *,
        clip_norm: float,
        denominator: int,
    ) -> BatchGradient:
        """See `CoefficientGradients.__call__`."""

    def clipped_rows(
        self, theta: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, *, clip_norm: float
    ) -> torch.Tensor:
        """See `CoefficientGradients.clipped_rows`."""


def make_gradients(
    model: FlatModel, basis: Basis, image_shape: tuple[int, ...], *, reproduction: bool = False
) -> Gradients:
    """The way that fits the basis.

    Raises:
        ValueError: a model that the Kronecker basis has no rule for, by the name of the parameter.
    """
    if isinstance(basis, KronBasis):
        return KronGradients(model, basis, image_shape)
    return CoefficientGradients(model, basis, reproduction=reproduction)
