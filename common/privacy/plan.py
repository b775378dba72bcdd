"""How much noise: σ from the public schedule and the budget, before anything is released.

One σ serves every release of a kind. It is calibrated for the client, and with cyclic batches the record, that pays
most; no subsampling amplification is claimed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from common.context import ContextMap
from common.data.splits import batch, is_future, split
from common.privacy.accountant import ACCOUNTANTS, worst_record_rho
from common.privacy.events import CONTEXT_ROUND, GaussianRelease
from common.schedule import Schedule
from common.settings import Settings


@dataclass(frozen=True)
class PrivacyPlan:
    """Noise and sensitivities of a run.

    Attributes:
        noise_stddev: σ_g, standard deviation of one released coordinate of a gradient.
        context_noise_stddev: σ_c, the same for a context.
        sensitivity: Δ_g = 2 C_g/m_g.
        context_sensitivity: Δ_c.
        t_max: participations that σ is calibrated for.
        epsilon: ε of the worst client if the whole plan is spent; inf without noise.
    """

    noise_stddev: float
    context_noise_stddev: float
    sensitivity: float
    context_sensitivity: float
    t_max: int
    epsilon: float


class Releases:
    """The releases that the settings allow, as events: used to plan them and to record them."""

    def __init__(self, settings: Settings, context_map: ContextMap) -> None:
        self._settings = settings
        self.sensitivity = 2.0 * settings.clip_norm / settings.batch_records
        self.context_sensitivity = context_map.sensitivity(settings.context_records, settings.context_sensitivity)

    def context(self, client: int, noise_stddev: float) -> GaussianRelease:
        """The one context release of a client."""
        records = None
        if self._per_record(client):
            records = tuple(sorted(self._split(client).context.tolist()))
        return GaussianRelease(client, CONTEXT_ROUND, "context", self.context_sensitivity, noise_stddev, records)

    def gradient(self, client: int, round: int, participation: int, noise_stddev: float) -> GaussianRelease:
        """The gradient release of a client in a round."""
        records = None
        if self._per_record(client):
            positions = batch(self._settings, client, round, participation, self._split(client).train)
            records = tuple(sorted(positions.tolist()))
        return GaussianRelease(client, round, "gradient", self.sensitivity, noise_stddev, records)

    def _per_record(self, client: int) -> bool:
        """Record-level accounting needs batches that are public and known in advance."""
        return self._settings.batch_schedule == "cyclic" and not is_future(self._settings, client)

    def _split(self, client: int):  # type: ignore[no-untyped-def]
        return split(self._settings, client, self._settings.records_per_client)


def make_plan(settings: Settings, schedule: Schedule, context_map: ContextMap) -> PrivacyPlan:
    """σ_g and σ_c for a run (eq. 7, or exact GDP, as `accountant` says).

    Raises:
        ValueError: `t-max-override` below the schedule's own maximum: σ would be too small for the budget.
    """
    releases = Releases(settings, context_map)
    counts = schedule.counts()
    if settings.t_max_override and settings.t_max_override < max(counts):
        raise ValueError(
            f"t-max-override must be 0 or at least the schedule's maximum {max(counts)}. "
            f"Received {settings.t_max_override}."
        )
    # In units where σ_g = 1. Δ_c/σ_c and Δ_g/σ_g are in the ratio of the setting.
    ratio = settings.context_noise_ratio
    context_scale = 1.0 if ratio is None else ratio * releases.context_sensitivity / releases.sensitivity

    def cost(noise_stddev: float) -> float:
        worst = 0.0
        for client, count in enumerate(counts):
            participations = settings.t_max_override or count
            events = [releases.gradient(client, t + 1, t, noise_stddev) for t in range(participations)]
            events.append(releases.context(client, context_scale * noise_stddev))
            worst = max(worst, worst_record_rho(events))
        # A future client only releases its context, which is part of every participating client's cost as well.
        return worst

    accountant = ACCOUNTANTS[settings.accountant]
    noise_stddev = settings.noise_stddev
    unit_cost = cost(1.0)
    if noise_stddev is None:
        noise_stddev = math.sqrt(unit_cost / accountant.rho(settings.epsilon, settings.delta))
    epsilon = math.inf if noise_stddev == 0 else accountant.epsilon(unit_cost / noise_stddev**2, settings.delta)
    return PrivacyPlan(
        noise_stddev=noise_stddev,
        context_noise_stddev=context_scale * noise_stddev,
        sensitivity=releases.sensitivity,
        context_sensitivity=releases.context_sensitivity,
        t_max=settings.t_max_override or max(counts),
        epsilon=epsilon,
    )
