"""The public rules of a run: what both sides derive from the settings before anything is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass

from common.basis import check_basis
from common.context import ContextMap, make_context_map
from common.data.catalog import DATASETS, DatasetSpec
from common.privacy.accountant import ACCOUNTANTS, Accountant
from common.privacy.mechanism import Mechanism, make_mechanism
from common.schedule import Schedule, make_schedule
from common.settings import Settings
from common.space import Space, space_of
from common.validation import number

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
    mechanism: Mechanism

    @property
    def accountant(self) -> Accountant:
        """The accountant that the settings name."""
        return ACCOUNTANTS[self.settings.accountant]

    @property
    def noise_norm(self) -> float:
        """σ_g √k, the length of the noise of an update as the server learns from it."""
        return self.mechanism.update_noise * math.sqrt(self.space.dim)

    @property
    def budget(self) -> float:
        """See the class."""
        return self.settings.epsilon if self.settings.noise_stddev is None else self.mechanism.epsilon


def spec_of(settings: Settings) -> DatasetSpec:
    """Shapes and classes of the run's records: of a built-in data set, or as the settings say.

    Raises:
        ValueError: an image shape, a mean or a standard deviation that cannot be read.
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
    mean = _own_constants("input-mean", settings.input_mean, channels, least=0.0)
    stddev = _own_constants("input-stddev", settings.input_stddev, channels, least=1e-3)
    return DatasetSpec("own", (channels, height, width), settings.num_classes, mean, stddev, ())


def _own_constants(name: str, text: str, channels: int, least: float) -> tuple[float, ...]:
    """Public constants of own records: one number for every channel, or 0.5, which standardises [0, 1] to [-1, 1]."""
    if not text:
        return (0.5,) * channels
    try:
        values = tuple(number(name, float(part), at_least=least, at_most=1.0) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != channels:
        raise ValueError(
            f"{name} must be {channels} comma-separated numbers in [{least:g}, 1], one for each channel of image-shape, "
            f"or empty. Received {text!r}."
        )
    return values


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
    mechanism = make_mechanism(settings, schedule, context_map)
    space = space_of(settings, spec, mechanism.update_noise)
    if space.basis != "kron":
        check_basis(space.basis, space.tensors, space.dim)
    return Rules(
        settings=settings,
        spec=spec,
        schedule=schedule,
        space=space,
        context_map=context_map,
        mechanism=mechanism,
    )
