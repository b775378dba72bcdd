"""The public rules of a run: what both sides derive from the settings before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass

from common.basis import check_basis
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
    available = spec.arrays[1].shape[0]
    if settings.num_clients * settings.records_per_client > available:
        raise ValueError(
            f"(num-participating + num-future) x records-per-client must be at most the {available} records of "
            f"{settings.dataset}. Received {settings.num_clients} x {settings.records_per_client}."
        )
    space = space_of(settings, spec)
    check_basis(space.basis, space.model_dim, space.dim)
    schedule = make_schedule(settings)
    context_map = make_context_map(settings, spec.image_shape)
    return Rules(
        settings=settings,
        spec=spec,
        schedule=schedule,
        space=space,
        context_map=context_map,
        releases=Releases(settings, context_map),
        plan=make_plan(settings, schedule, context_map),
    )
