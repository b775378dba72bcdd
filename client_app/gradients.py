"""The clipped coefficient gradient of a batch (docs/method.md, eq. 4-5 without the noise).

For every record: parameter gradient, projection on the basis, *joint* clip of all k coordinates. The sum is divided by
the fixed m_g, never by the number of records that happened to be usable: the sensitivity 2 C_g/m_g depends on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from client_app.per_record import CHUNK, PerRecordGradients, per_record_gradients
from common.basis import Basis
from common.model import FlatModel
from common.validation import integer, number

# Clipped norms stay below C_g by more than float32 rounding can add back.
_SHRINK = 1.0 - 1e-5


@dataclass(frozen=True)
class BatchGradient:
    """What one batch gives. Only `gradient` is ever privatised and sent; the rest are noiseless diagnostics."""

    gradient: torch.Tensor  # (k,) float64: (1/m_g) sum of clipped coefficient gradients
    loss: float  # mean over finite records, before the step
    clipped_fraction: float  # of all records
    nonfinite_records: int  # contributed zero


class CoefficientGradients:
    """Computes (1/m_g) Σ clip(g_z) for one model and basis, reusing its buffers."""

    def __init__(self, model: FlatModel, basis: Basis, gradients: PerRecordGradients | None = None) -> None:
        if basis.dim != model.dim:
            raise ValueError(f"basis must have d_theta = {model.dim} rows. Received {basis.dim}.")
        self._model, self._basis = model, basis
        self._gradients = gradients or per_record_gradients(model)
        self._rows = torch.empty(CHUNK, basis.num_coefficients, device=model.device)

    def __call__(
        self,
        theta: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        *,
        clip_norm: float,
        denominator: int,
    ) -> BatchGradient:
        """Eq. 4-5 without the noise.

        Args:
            theta: (d_theta,) parameters at which to differentiate.
            inputs: (n, channels, height, width); labels: (n,) int64.
            clip_norm: C_g, bound on the norm of one record's coefficient gradient.
            denominator: m_g, fixed; n may be smaller, never larger.

        Raises:
            ValueError: clip_norm or denominator out of range, more records than the denominator.
        """
        bound = number("clip_norm", clip_norm, above=0.0) * _SHRINK
        integer("denominator", denominator, at_least=max(1, len(inputs)))
        self._model.load(theta)
        total = torch.zeros(self._basis.num_coefficients, dtype=torch.float64, device=self._model.device)
        loss, clipped, nonfinite = 0.0, 0, 0
        for losses, rows in self._chunks(inputs, labels):
            norms, usable, weights = _clip(rows, bound)
            total += torch.mv(rows.t(), weights)
            loss += float(losses[usable].double().sum())
            clipped += int((norms[usable] > bound).sum())
            nonfinite += int((~usable).sum())
        return BatchGradient(
            gradient=total / denominator,
            loss=loss / max(1, len(inputs) - nonfinite),
            clipped_fraction=clipped / max(1, len(inputs)),
            nonfinite_records=nonfinite,
        )

    def clipped_rows(
        self, theta: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, *, clip_norm: float
    ) -> torch.Tensor:
        """clip_{C_g}(g_z) of every record, (n, k) float32: the summands of eq. 5. For audits; never released."""
        bound = number("clip_norm", clip_norm, above=0.0) * _SHRINK
        self._model.load(theta)
        return torch.cat([rows * _clip(rows, bound)[2][:, None] for _, rows in self._chunks(inputs, labels)])

    def _chunks(self, inputs: torch.Tensor, labels: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Losses (c,) and coefficient gradients (c, k) of up to `CHUNK` records, projected block by block."""
        losses, filled = [], 0
        for block_losses, block in self._gradients(inputs, labels):
            self._basis.project(block, out=self._rows[filled : filled + len(block)])
            losses.append(block_losses)
            filled += len(block)
            if filled == CHUNK:
                yield torch.cat(losses), self._rows
                losses, filled = [], 0
        if filled:
            yield torch.cat(losses), self._rows[:filled]


def _clip(rows: torch.Tensor, bound: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Norms, which rows are usable, and the weight of every row. Rows that are not finite become zero."""
    norms = torch.linalg.vector_norm(rows, dim=1)
    usable = torch.isfinite(norms)
    weights = torch.clamp(bound / norms.clamp_min(torch.finfo(norms.dtype).tiny), max=1.0)
    if not usable.all():
        rows[~usable] = 0.0
        weights[~usable] = 0.0
    return norms, usable, weights
