"""The public rules of a run: what both sides derive from the settings before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass

from common.context import ContextMap, make_context_map
from common.data.catalog import DATASETS, DatasetSpec
from common.privacy.plan import PrivacyPlan, Releases, make_plan
from common.schedule import Schedule, make_schedule
from common.settings import Settings
from common.space import Space, space_of


@dataclass(frozen=True)
class Rules:
    """Functions of the settings alone; equal on server and clients.

    Attributes:
        budget: ε that no client exceeds: the setting, or that of an explicitly given σ.
    """

    settings: Settings
    spec: DatasetSpec
    schedule: Schedule
    space: Space
    context_map: ContextMap
    releases: Releases
    plan: PrivacyPlan

    @property
    def budget(self) -> float:
        """See the class."""
        return self.settings.epsilon if self.settings.noise_stddev is None else self.plan.epsilon


def make_rules(settings: Settings) -> Rules:
    """Derive the rules; raises `ValueError` for settings that don't go together."""
    spec = DATASETS[settings.dataset]
    schedule = make_schedule(settings)
    context_map = make_context_map(settings, spec.image_shape)
    return Rules(
        settings=settings,
        spec=spec,
        schedule=schedule,
        space=space_of(settings, spec),
        context_map=context_map,
        releases=Releases(settings, context_map),
        plan=make_plan(settings, schedule, context_map),
    )
