"""The public rules of a run: what both sides derive from the settings before anything is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass

from common.basis import check_basis
from common.context import ContextMap, make_context_map
from common.data.catalog import DATASETS, DatasetSpec
from common.privacy.accountant import ACCOUNTANTS, Accountant
from common.privacy.plan import PrivacyPlan, Releases, make_plan
from common.schedule import Schedule, make_schedule
from common.settings import Settings
from common.space import Space, space_of

# Two convolutions of 5 and two poolings leave one pixel of this.
MIN_SIDE = 16


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
    def accountant(self) -> Accountant:
        """The accountant that the settings name."""
        return ACCOUNTANTS[self.settings.accountant]

    @property
    def noise_norm(self) -> float:
        """σ_g √k, the length of the noise of a gradient."""
        return self.plan.noise_stddev * math.sqrt(self.space.dim)

    @property
    def budget(self) -> float:
        """See the class."""
        return self.settings.epsilon if self.settings.noise_stddev is None else self.plan.epsilon


def spec_of(settings: Settings) -> DatasetSpec:
    """Shapes and classes of the run's records: of a built-in data set, or as the settings say.

    Raises:
        ValueError: an image shape that cannot be read.
    """
    if settings.dataset in DATASETS:
        return DATASETS[settings.dataset]
    try:
        channels, height, width = (int(part) for part in settings.image_shape.split(","))
        if channels < 1 or min(height, width) < MIN_SIDE:
            raise ValueError
    except ValueError:
        raise ValueError(
            f"image-shape must be 'channels,height,width' with sides of at least {MIN_SIDE} pixels. "
            f"Received {settings.image_shape!r}."
        ) from None
    # Standardised own inputs: [0, 1] becomes [-1, 1], whatever the records.
    half = (0.5,) * channels
    return DatasetSpec("own", (channels, height, width), settings.num_classes, half, half, ())


def make_rules(settings: Settings) -> Rules:
    """Derive the rules; raises `ValueError` for settings that don't go together."""
    spec = spec_of(settings)
    if spec.arrays:
        available = spec.arrays[1].shape[0]
        if settings.num_clients * settings.records_per_client > available:
            raise ValueError(
                f"(num-participating + num-future) x records-per-client must be at most the {available} records of "
                f"{settings.dataset}. Received {settings.num_clients} x {settings.records_per_client}."
            )
    schedule = make_schedule(settings)
    context_map = make_context_map(settings, spec)
    plan = make_plan(settings, schedule, context_map)
    space = space_of(settings, spec, plan.noise_stddev)
    check_basis(space.basis, space.tensors, space.dim)
    return Rules(
        settings=settings,
        spec=spec,
        schedule=schedule,
        space=space,
        context_map=context_map,
        releases=Releases(settings, context_map),
        plan=plan,
    )
