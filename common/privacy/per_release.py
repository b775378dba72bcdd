"""Noise in every release, as in the paper: whatever the server decodes is private by itself."""

from __future__ import annotations

import dataclasses
from typing import Any

from common.context import ContextMap
from common.privacy.events import CONTEXT_ROUND, GaussianRelease
from common.privacy.plan import Releases, make_plan
from common.schedule import Schedule
from common.settings import Settings


class PerRelease:
    """One σ_c for contexts and one σ_g for gradients, added by each client's channel; the server adds nothing (eq. 2, 5, 7).

    Attributes:
        plan: σ_g, σ_c, and what they were calibrated for.
        releases: the events that the settings allow.
    """

    def __init__(self, settings: Settings, schedule: Schedule, context_map: ContextMap) -> None:
        self._settings, self._schedule = settings, schedule
        self.releases = Releases(settings, context_map)
        self.plan = make_plan(settings, schedule, context_map)

    @property
    def epsilon(self) -> float:
        """See `Mechanism`."""
        return self.plan.epsilon

    @property
    def update_noise(self) -> float:
        """See `Mechanism`: σ_g."""
        return self.plan.noise_stddev

    def channel_noise(self, client: int, round: int) -> float:
        """See `Mechanism.channel_noise`: σ_c or σ_g, the same for every client."""
        return self.plan.context_noise_stddev if round == CONTEXT_ROUND else self.plan.noise_stddev

    def server_noise(self, round: int) -> float:
        """See `Mechanism.server_noise`: none."""
        return 0.0

    def event(self, client: int, round: int) -> GaussianRelease:
        """See `Mechanism.event`: the release that the channel makes."""
        noise = self.channel_noise(client, round)
        if round == CONTEXT_ROUND:
            return self.releases.context(client, noise)
        return self.releases.gradient(client, round, self._schedule.participation(client, round), noise)

    def terms(self, client: int, round: int) -> dict[str, float]:
        """See `Mechanism.terms`."""
        return {"noise-stddev": self.channel_noise(client, round)}

    def facts(self) -> dict[str, Any]:
        """See `Mechanism.facts`."""
        facts = dataclasses.asdict(self.plan)
        del facts["epsilon"]
        return {**facts, "t_max_source": "t-max-override" if self._settings.t_max_override else "schedule"}

    def explain(self) -> list[tuple[str, str, str]]:
        """See `Mechanism.explain`."""
        plan, counts = self.plan, self._schedule.counts()
        return [
            ("sigma_g", f"{plan.noise_stddev:.5g}", f"noise of one coordinate of a gradient; Delta_g = {plan.sensitivity:.5g}"),
            ("sigma_c", f"{plan.context_noise_stddev:.5g}", f"of a context; Delta_c = {plan.context_sensitivity:.5g}"),
            ("T_max", str(plan.t_max), f"participations that sigma is made for; the schedule has {min(counts)} to {max(counts)}"),
        ]  # fmt: skip
