"""Where our numbers differ from the paper's: the most likely reason, and what the experiment that tests it shows.

The reasons are typed; whether a claim differs, and the numbers of the test, are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simulations.report.claims import claim_rows
from simulations.report.results import Interval, Results
from simulations.report.tables import Table

Cell = dict[str, Any]


@dataclass(frozen=True)
class Reason:
    """An explanation of the claims whose text contains one of `claims`.

    Attributes:
        test: how it is tested, in words.
        side: accuracy that the test looks at.
        cells: two cells per data set, the second with the suspected cause removed.
    """

    claims: tuple[str, ...]
    reason: str
    test: str
    side: str
    cells: tuple[Cell, Cell]


REASONS = (
    Reason(
        ("over DeepLin",),
        "the step of a factorised map is multiplied by its gain ‖h‖²; of ‖V c̃‖² little is left for contexts as small as these, so "
        "DeepLin hardly moves at the paper's η",
        "DeepLin / DG with contexts ten times as large as they enter the generator (gain × 100), nothing else",
        "seen",
        (
            {"variant": "deeplin", "channel": "dg"},
            {"variant": "deeplin", "channel": "dg", "context_gain": 10.0},
        ),
    ),
    Reason(
        ("Factorized over Direct", "≈ Direct"),
        "the same gain: Direct takes steps of η, Factorized of η‖h‖²; at equal η they are not comparable",
        "Replay, which is Direct with the gains of the Factorized run",
        "seen",
        ({"variant": "direct", "channel": "dg"}, {"variant": "replay-u0", "channel": "dg"}),
    ),
    Reason(
        ("context over Factorized", "Ours over Full"),
        "at σ_c = σ_g the released context is mostly noise (across clients φ's mean varies by 0.007, σ_c is 0.015)",
        "σ_c alone divided by ten, σ_g kept (ε rises accordingly)",
        "future",
        (
            {"variant": "ours", "channel": "dg"},
            {"variant": "ours", "channel": "dg", "context_noise_ratio": 0.1},
        ),
    ),
)
_DATASETS = {"MNIST": "mnist", "CIFAR-10": "cifar10"}


def disagreements(results: Results) -> Table:
    """A row per claim that differs: paper, ours, the likely reason and the outcome of its test."""
    rows = []
    for claim, row in claim_rows(results):
        alone = row[-1] == "one seed" and not claim.low <= float(row[3]) <= claim.high
        if row[-1] != "differ" and not alone:
            continue
        reason = next((r for r in REASONS if any(part in claim.text for part in r.claims)), None)
        head = [claim.text, row[2], row[3], row[-1]]
        if reason is None:
            rows.append([*head, "not known", "–", "–"])
            continue
        rows.append([*head, reason.reason, reason.test, _outcome(results, reason, str(claim.one["dataset"]))])
    return Table("disagreements", "Where we differ from the paper, and why",
                 "Every claim with the verdict “differ”, and those that one seed puts outside the published range. The last column is the experiment that tests the reason: accuracy before → after its cause is removed (n seeds).",
                 ["claim", "paper", "ours", "verdict", "most likely reason", "tested by", "outcome"], rows)  # fmt: skip


def _outcome(results: Results, reason: Reason, dataset: str) -> str:
    before, after = (_accuracy(results, reason.side, {"dataset": dataset, **cell}) for cell in reason.cells)
    if not before.n or not after.n:
        return "not run"
    return f"{reason.side.capitalize()} {100 * before.mean:.1f} → {100 * after.mean:.1f} (n={before.n}, {after.n})"


def _accuracy(results: Results, side: str, wanted: Cell) -> Interval:
    """Of a cell; σ_g of the context-noise experiment is a number of its own for every seed."""
    if "context_noise_ratio" not in wanted:
        return results.accuracy(side, **wanted)
    records = results.context_noise(str(wanted["dataset"]), float(wanted["context_noise_ratio"]))
    return Interval.of(record["accuracy"][side] for record in records)
