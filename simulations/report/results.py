"""Result files grouped into cells: the same settings but for the seed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from common.settings import Settings

Record = dict[str, Any]
_DEFAULTS = Settings().to_config()
# Settings of a cell that have no place in its description.
_INCIDENTAL = ("seed", "deterministic", "tensorboard", "evaluate-every", "checkpoint-every")
# What decides which records are evaluated: the partition, and what contexts leave of a future client's.
_EVALUATED = (
    "dataset",
    "dirichlet-alpha",
    "num-participating",
    "num-future",
    "records-per-client",
    "train-fraction",
    "context-records",
)


@dataclass(frozen=True)
class Interval:
    """A mean over seeds.

    Attributes:
        n: number of seeds; mean and std (ddof 1) are NaN where there are too few.
        half_width: of the 95 % confidence interval of the mean (Student).
    """

    n: int
    mean: float
    std: float
    half_width: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Interval:
        """From one value per seed."""
        array = np.array(list(values), dtype=float)
        if len(array) == 0:
            return cls(0, math.nan, math.nan, math.nan)
        if len(array) == 1:
            return cls(1, float(array[0]), math.nan, math.nan)
        std = float(array.std(ddof=1))
        return cls(
            len(array),
            float(array.mean()),
            std,
            float(stats.t.ppf(0.975, len(array) - 1)) * std / math.sqrt(len(array)),
        )

    def percent(self) -> str:
        """mean ± std in percent with n, as tables show it; an en dash where nothing was run."""
        if self.n == 0:
            return "–"
        spread = "" if math.isnan(self.std) else f" ± {100 * self.std:.2f}"
        return f"{100 * self.mean:.2f}{spread} (n={self.n})"


class Results:
    """All records, looked up by the settings of their cell."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def cell(self, **wanted: Any) -> dict[int, Record]:
        """Records of one cell by seed. What `wanted` (snake_case) doesn't name must be at its default."""
        target = {key.replace("_", "-"): value for key, value in wanted.items()}
        found = {}
        for record in self.records:
            config = record["settings"]
            described = {key: value for key, value in config.items() if key not in _INCIDENTAL}
            expected = {key: value for key, value in target.items() if value != _DEFAULTS[key]}
            if described == expected:
                found[config.get("seed", _DEFAULTS["seed"])] = record
        return dict(sorted(found.items()))

    def accuracy(self, side: str, **wanted: Any) -> Interval:
        """Seen or Future accuracy of a cell over its seeds."""
        values = (record["accuracy"][side] for record in self.cell(**wanted).values())
        return Interval.of(value for value in values if value is not None)

    def difference(self, side: str, one: dict[str, Any], other: dict[str, Any]) -> Interval:
        """Accuracy of cell `one` minus cell `other`, paired over the seeds that both have."""
        a, b = self.cell(**one), self.cell(**other)
        pairs = [(a[seed]["accuracy"][side], b[seed]["accuracy"][side]) for seed in sorted(set(a) & set(b))]
        return Interval.of(x - y for x, y in pairs if x is not None and y is not None)

    def reference(self, row: str, side: str, **wanted: Any) -> Interval:
        """A reference row that every run has (commonest label), one value per seed: it depends on the evaluated records
        alone. The settings that decide those must be as `wanted` (snake_case) says, or at their default."""
        evaluated = {key: wanted.get(key.replace("-", "_"), _DEFAULTS[key]) for key in _EVALUATED}
        values: dict[int, float] = {}
        for record in self.records:
            config = record["settings"]
            if all(config.get(key, _DEFAULTS[key]) == value for key, value in evaluated.items()):
                found = record["references"].get(row)
                if isinstance(found, dict):
                    values[config.get("seed", _DEFAULTS["seed"])] = found[side]
        return Interval.of(values.values())

    def context_noise(self, dataset: str, ratio: float, entry: str = "raw") -> dict[int, Record]:
        """The context-noise experiment by seed: σ_g is fixed at each seed's own number, σ_c is `ratio` times it."""
        return {
            record["settings"].get("seed", _DEFAULTS["seed"]): record
            for record in self.records
            if record["settings"].get("context-noise-ratio") == ratio
            and record["settings"].get("context-entry", "raw") == entry
            and record["settings"].get("dataset", _DEFAULTS["dataset"]) == dataset
        }
