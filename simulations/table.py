"""Result files as one table: a line per run, a column per setting that differs anywhere."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from common.settings import Settings
from simulations.records import Record, message_size

# How a run is watched, not what it does.
_HIDDEN = {"deterministic", "tensorboard", "evaluate-every", "checkpoint-every", "geometry-every"}
_OUTCOMES = ("epsilon spent", "seen", "future", "message bytes", "cpu seconds")


def table(records: Sequence[Record]) -> str:
    """CSV. Columns: settings with more than one value among the runs, then those that differ from the general defaults
    in all of them, then outcomes of the last round. Rows in the order of their settings."""
    defaults = Settings().to_config()
    names = sorted({name for record in records for name in record["settings"]} - _HIDDEN)
    runs = [[record["settings"].get(name, defaults[name]) for name in names] for record in records]
    varying = [i for i in range(len(names)) if len({str(run[i]) for run in runs}) > 1]
    order = varying + [i for i in range(len(names)) if i not in varying]
    rows = sorted(
        ([run[i] for i in order] + _outcomes(record) for run, record in zip(runs, records, strict=True)),
        key=lambda row: [(isinstance(value, str), value) for value in row[: len(order)]],
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(names[i] for i in order), *_OUTCOMES])
    writer.writerows(rows)
    return text.getvalue()


def _outcomes(record: Record) -> list[object]:
    accuracy, epsilon = record["accuracy"], record["privacy"]["epsilon"]
    return [
        "none" if epsilon is None else f"{epsilon:.4g}",
        f"{accuracy['seen']:.4f}",
        "" if accuracy["future"] is None else f"{accuracy['future']:.4f}",
        round(message_size(record)),
        round(record["cpu_seconds"]),
    ]
