"""The clipped coefficient gradient of a batch (docs/method.md, eq. 4-5 without the noise).

For every record: parameter gradient, projection on the basis, *joint* clip of all k coordinates. The sum is divided by
the fixed m_g, never by the number of records that happened to be usable: the sensitivity 2 C_g/m_g depends on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from client_app.per_record import CHUNK, PerRecordGradients, per_record_gradients
from common.basis import Basis
from common.compiled import load_compiled
from common.model import FlatModel
from common.validation import integer, number

# Of a reproduction, which protects nothing: the float32 arithmetic of the results that exist, and its margin.
_REPRODUCED_SHRINK = 1.0 - 1e-5


@dataclass(frozen=True)
class BatchGradient:
    """What one batch gives. Only `gradient` is ever privatised and sent; the rest are noiseless diagnostics."""

    gradient: torch.Tensor  # (k,) float64: (1/m_g) sum of clipped coefficient gradients
    loss: float  # mean over finite records, before the step
    clipped_fraction: float  # of all records
    nonfinite_records: int  # contributed zero


def margin(num_coefficients: int, denominator: int) -> float:
    """By how much C_g is lowered, relatively, so that rounding cannot add it back (docs/method.md, section 3).

    In float64 a norm of k terms is wrong by at most k 2^-53, and a sum of m vectors of norm C_g by m² 2^-53 C_g. Twice
    that, since two data sets are compared, and a little for the division and for the weights.
    """
    return 2.0**-40 + (num_coefficients + denominator**2) * 2.0**-52


class Tally:
    """Adds up a batch, chunk by chunk."""

    def __init__(self, num_coefficients: int, device: torch.device) -> None:
        self.total = torch.zeros(num_coefficients, dtype=torch.float64, device=device)
        self._loss, self._clipped, self._nonfinite = 0.0, 0, 0

    def note(self, losses: torch.Tensor, norms: torch.Tensor, usable: torch.Tensor, bound: float) -> None:
        """The diagnostics of a chunk."""
        self._loss += float(losses[usable].double().sum())
        self._clipped += int((norms[usable] > bound).sum())
        self._nonfinite += int((~usable).sum())

    def result(self, count: int, denominator: int) -> BatchGradient:
        """Of `count` records; the sum is divided by the fixed m_g."""
        return BatchGradient(
            gradient=self.total / denominator,
            loss=self._loss / max(1, count - self._nonfinite),
            clipped_fraction=self._clipped / max(1, count),
            nonfinite_records=self._nonfinite,
        )


class CoefficientGradients:
    """Computes (1/m_g) Σ clip(g_z) for one model and basis, reusing its buffers.

    Norms, weights and sums are float64, so that replacing one record moves the result by at most 2 C_g/m_g as computed,
    not only as written.

    Args:
        reproduction: the float32 arithmetic of earlier results instead, for `deterministic` runs, which have no guarantee
            and are to be repeated to the last bit.
    """

    def __init__(
        self,
        model: FlatModel,
        basis: Basis,
        gradients: PerRecordGradients | None = None,
        *,
        reproduction: bool = False,
    ) -> None:
        if basis.dim != model.dim:
            raise ValueError(f"basis must have d_theta = {model.dim} rows. Received {basis.dim}.")
        self._model, self._basis = model, basis
        self._gradients = gradients or per_record_gradients(model)
        self._clip = _clip_as_before if reproduction else _clip
        self._reproduction = reproduction
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
        integer("denominator", denominator, at_least=max(1, len(inputs)))
        bound = self._bound(clip_norm, denominator)
        self._model.load(theta)
        tally = Tally(self._basis.num_coefficients, self._model.device)
        for losses, rows in self._chunks(inputs, labels):
            norms, usable, weights = self._clip(rows, bound)
            _add(tally.total, rows, weights)
            tally.note(losses, norms, usable, bound)
        return tally.result(len(inputs), denominator)

    def clipped_rows(
        self, theta: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, *, clip_norm: float
    ) -> torch.Tensor:
        """clip_{C_g}(g_z) of every record, (n, k) float32: the summands of eq. 5. For audits; never released."""
        bound = self._bound(clip_norm, len(inputs))
        self._model.load(theta)
        clipped = ((rows, self._clip(rows, bound)[2]) for _, rows in self._chunks(inputs, labels))
        return torch.cat([rows * weights[:, None].to(rows.dtype) for rows, weights in clipped])

    def _bound(self, clip_norm: float, denominator: int) -> float:
        """What norms are clipped to: C_g less what rounding could add back."""
        clip_norm = number("clip_norm", clip_norm, above=0.0)
        if self._reproduction:
            return clip_norm * _REPRODUCED_SHRINK
        return clip_norm * (1.0 - margin(self._basis.num_coefficients, denominator))

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
    """Norms, which rows are usable, and the weight of every row, all of float64. Rows that are not finite become zero."""
    if rows.device.type == "cpu":
        norms = torch.empty(len(rows), dtype=torch.float64)
        _kernels().norms(rows.numpy(), norms.numpy())
    else:
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    usable = torch.isfinite(norms)
    weights = torch.clamp(bound / norms.clamp_min(torch.finfo(norms.dtype).tiny), max=1.0)
    return norms, *_zeroed(rows, usable, weights)


def _clip_as_before(rows: torch.Tensor, bound: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same in float32, of which the norm of a long row is an estimate."""
    norms = torch.linalg.vector_norm(rows, dim=1)
    weights = torch.clamp(bound / norms.clamp_min(torch.finfo(norms.dtype).tiny), max=1.0)
    return norms, *_zeroed(rows, torch.isfinite(norms), weights)


def _zeroed(rows: torch.Tensor, usable: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that cannot be used become zero, in place: zero times infinity would not be."""
    if not usable.all():
        rows[~usable] = 0.0
        weights[~usable] = 0.0
    return usable, weights


def _add(total: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> None:
    """total += Σ weights · rows, summed in the type of the weights. `total`: (k,) float64."""
    if weights.dtype == rows.dtype:
        total += torch.mv(rows.t(), weights)
    elif rows.device.type == "cpu":
        _kernels().add(total.numpy(), rows.numpy(), weights.numpy())
    else:
        total += torch.mv(rows.t().double(), weights)


def _kernels() -> ModuleType:
    return load_compiled(Path(__file__).with_name("clipped_sum.py"))
