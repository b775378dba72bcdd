"""The aligned preset against the paper's: over the budget, a step at a time, and at half its CPU time."""

from __future__ import annotations

from typing import Any

from common.settings import Settings
from simulations.experiments import (
    ABLATION_EPSILONS,
    ALIGNED_EPSILONS,
    DATASETS,
    HALF_BATCHES,
    SILENT,
    Cell,
    ablation_steps,
)
from simulations.records import message_size
from simulations.report.results import Interval, Results
from simulations.report.tables import DATASET_NAMES, SIDES, Table, commonest_label, number, points, references

PRESETS_COMPARED = ("paper", "aligned")


def wanted(config: Cell) -> dict[str, Any]:
    """A cell as `Results.cell` wants it: what a preset stands for, spelt out."""
    return {key.replace("-", "_"): value for key, value in Settings.from_config(config).changed().items()}


def preset_cell(preset: str, dataset: str, epsilon: float | None) -> dict[str, Any]:
    """A preset's cell; `epsilon` None: without noise."""
    budget = SILENT if epsilon is None else {"epsilon": epsilon}
    return wanted({"preset": preset, "dataset": dataset, **budget})


def budgets(results: Results) -> Table:
    """Both presets over ε, with the ceiling without noise and the reference rows."""
    rows = []
    for dataset in DATASETS:
        for epsilon in (*ALIGNED_EPSILONS, None):
            cells = {preset: preset_cell(preset, dataset, epsilon) for preset in PRESETS_COMPARED}
            gain = points(results.difference("future", cells["aligned"], cells["paper"]))
            for preset, cell in cells.items():
                budget = "∞" if epsilon is None else f"{epsilon:g}"
                accuracies = [results.accuracy(side, **cell).percent() for side in SIDES]
                shown = gain if preset == "aligned" else ""
                rows.append([DATASET_NAMES[dataset], budget, preset, *accuracies, shown, _bytes(results, cell)])
        # The rows without noise are the table's own. What is commonest depends on the queries.
        _, alone, _, chance = references(results, dataset)
        commonest = [
            [
                f"each client's commonest label ({p}'s queries)",
                "0",
                *commonest_label(results, **preset_cell(p, dataset, None)),
            ]
            for p in PRESETS_COMPARED
        ]
        for name, spent, seen, future in (alone, *commonest, chance):
            rows.append([DATASET_NAMES[dataset], spent, name, seen, future, "", ""])
    return Table(
        "presets", "The presets over the budget",
        "Ours / LRSUQ (without noise: DG), the same clients. Gain on Future: paired over seeds, 95 % interval, percentage points; a future client's queries "
        "are the records that its context leaves, 667 (paper) or 200 (aligned) of 1,000. Bytes: mean size of a message. Each client alone: in the paper's setting.",
        ["data set", "ε", "preset", "Seen", "Future", "gain", "bytes"], rows)  # fmt: skip


def ablation(results: Results) -> Table:
    """What each step from the paper's setting to the aligned one buys."""
    rows = []
    for dataset in DATASETS:
        for epsilon in ABLATION_EPSILONS:
            before: dict[str, Any] | None = None
            for name, changes in ablation_steps():
                cell = wanted({"dataset": dataset, "epsilon": epsilon, **changes})
                gains = [""] * len(SIDES)
                if before is not None:
                    gains = [points(results.difference(side, cell, before)) for side in SIDES]
                accuracies = [results.accuracy(side, **cell).percent() for side in SIDES]
                label = "paper" if before is None else f"+ {name}"
                rows.append([DATASET_NAMES[dataset], f"{epsilon:g}", label, *accuracies, *gains])
                before = cell
    return Table(
        "ablation", "From the paper's setting to the aligned one, a step at a time",
        "Ours / LRSUQ. Each row has all the changes above it; gains are over the row above: paired over seeds, 95 % interval, percentage points.",
        ["data set", "ε", "step", "Seen", "Future", "gain on Seen", "gain on Future"], rows)  # fmt: skip


def compute(results: Results) -> Table:
    """The aligned preset with full batches, and with batches of half the records."""
    rows = []
    for dataset in DATASETS:
        for epsilon in ABLATION_EPSILONS:
            budget = {"preset": "aligned", "dataset": dataset, "epsilon": epsilon}
            full, half = wanted(budget), wanted({**budget, **HALF_BATCHES})
            for name, cell in (("all records", full), ("cyclic, half of them", half)):
                accuracies = [results.accuracy(side, **cell).percent() for side in SIDES]
                gains = ["" if cell is full else points(results.difference(side, half, full)) for side in SIDES]
                times = Interval.of(r["milliseconds"]["gradient_ms"] for r in results.cell(**cell).values())
                rows.append([DATASET_NAMES[dataset], f"{epsilon:g}", name, *accuracies, *gains, number(times)])
    return Table(
        "compute", "The aligned preset at half its CPU time",
        "Ours / LRSUQ. Differences are paired over seeds, 95 % interval, percentage points. Milliseconds: of a gradient, on a machine "
        "whose load was not the same in all runs.",
        ["data set", "ε", "batches", "Seen", "Future", "difference on Seen", "difference on Future", "milliseconds"], rows)  # fmt: skip


def _bytes(results: Results, cell: dict[str, Any]) -> str:
    records = results.cell(**cell).values()
    return number(Interval.of(message_size(record) for record in records))
