"""Every setting of a run: name, type, default, range, reason. The defaults are the paper's (preset `paper`).

Flower passes settings as flat key-value pairs (`[tool.flwr.app.config]`, `--run-config`). `Settings.from_config`
turns them into one frozen, validated object; an unknown key, a wrong type or a value out of range is refused by
name. `papfl settings` prints this table; a test holds `pyproject.toml` against it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from common.presets import PRESETS, TRAIN_RECORDS
from common.settings.checks import check_together
from common.settings.fields import check_field, key_of
from common.settings.learning import ContextSettings, GeneratorSettings, ModelSettings
from common.settings.privacy import ChannelSettings, PrivacySettings
from common.settings.run import DataSettings, FederationSettings, RunSettings

AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Settings(
    ChannelSettings,
    PrivacySettings,
    GeneratorSettings,
    ContextSettings,
    ModelSettings,
    DataSettings,
    FederationSettings,
    RunSettings,
):
    """All settings of one run, by groups (fields stand in the order of the last base first). Field names are the keys of the run
    configuration with `_` for `-`."""

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            check_field(spec, getattr(self, spec.name))
        check_together(self)

    @property
    def train_records(self) -> int:
        """Training records of a participating client (4:1 by default: 800 of 1,000)."""
        return round(self.records_per_client * self.train_fraction)

    @property
    def num_clients(self) -> int:
        """Participating and future clients together."""
        return self.num_participating + self.num_future

    @property
    def eta(self) -> float:
        """The learning rate with "auto" resolved: 0.2 on CIFAR-10, 0.1 elsewhere."""
        if self.learning_rate is not None:
            return self.learning_rate
        return {"cifar10": 0.2}.get(self.dataset, 0.1)

    @property
    def name(self) -> str:
        """Name of the run: the setting, or one made of the settings that matter most."""
        if self.run_name:
            return self.run_name
        noise = f"eps{self.epsilon:g}" if self.noise_stddev is None else f"sigma{self.noise_stddev:g}"
        return f"{self.dataset}-{self.variant}-{self.channel}-{noise}-r{self.num_rounds}-seed{self.seed}"

    @classmethod
    def from_config(cls, config: Mapping[str, Any], given: Container[str] = ()) -> Settings:
        """Settings from flat `kebab-case` keys, the preset applied to every key that has its default value.

        Args:
            given: keys that the preset leaves alone even at their default, where a caller knows what was given.

        Raises:
            ValueError: unknown key, wrong type, or value out of range, naming the setting.
        """
        specs = {key_of(spec.name): spec for spec in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, value in config.items():
            if key not in specs:
                raise ValueError(f"Unknown setting {key!r}. `papfl settings` lists those that exist.")
            spec = specs[key]
            if spec.metadata["kind"] == "float" and value == AUTO and spec.default is None:
                value = None
            elif spec.metadata["kind"] == "float" and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            values[spec.name] = value
        preset = values.get("preset", cls.preset)
        if isinstance(preset, str) and preset in PRESETS:
            left = {key for key, spec in specs.items() if values.get(spec.name, spec.default) == spec.default}
            chosen = {key: value for key, value in PRESETS[preset].items() if key in left and key not in given}
            values |= {specs[key].name: value for key, value in chosen.items() if value != TRAIN_RECORDS}
            counts = [specs[key].name for key, value in chosen.items() if value == TRAIN_RECORDS]
            if counts:
                # Checked without them first: they follow from settings that must be valid.
                records = cls(**{**values, **dict.fromkeys(counts, 1)}).train_records
                values |= dict.fromkeys(counts, records)
        return cls(**values)

    def to_config(self) -> dict[str, Any]:
        """Flat `kebab-case` keys, "auto" for None: `from_config` gives the same settings back.

        The preset is "paper", which changes nothing: its values are resolved already.
        """
        values = {**dataclasses.asdict(self), "preset": "paper"}
        return {key_of(name): AUTO if value is None else value for name, value in values.items()}

    def changed(self) -> dict[str, Any]:
        """The part of `to_config` that differs from the defaults."""
        defaults = Settings().to_config()
        return {key: value for key, value in self.to_config().items() if value != defaults[key]}

    def digest(self) -> str:
        """Hash of the settings that decide a result (not of where it is written or shown).

        Settings at their default do not enter: a setting that is added later leaves the hashes of earlier results
        alone. Whoever changes a default raises `common.numerics.NUMERICS_VERSION`.
        """
        outside = {
            "run-name",
            "out-dir",
            "data-dir",
            "resume",
            "task",
            "require-future",
            "tensorboard",
            "checkpoint-every",
            "round-timeout",
            "federation-timeout",
            "replay-gains",  # named by the run that they come from
        }
        kept = {key: value for key, value in self.changed().items() if key not in outside}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
