"""Where our numbers differ from the paper's: the most likely reason, and what the experiment that tests it shows.

The reasons are typed; whether a claim differs, and the numbers of the test, are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simulations.report.claims import claim_rows
from simulations.report.results import Interval, Record, Results
from simulations.report.tables import Table

Cell = dict[str, Any]


@dataclass(frozen=True)
class Removal:
    """An experiment that removes a suspected cause.

    Attributes:
        what: in words.
        side: accuracy that it looks at.
        cells: two cells per data set, the second with the cause removed.
    """

    what: str
    side: str
    cells: tuple[Cell, Cell]


@dataclass(frozen=True)
class Reason:
    """An explanation of the claims whose text contains one of `claims`, and how it is tested."""

    claims: tuple[str, ...]
    reason: str
    tests: tuple[Removal, ...]


_OURS: Cell = {"variant": "ours", "channel": "dg"}
REASONS = (
    Reason(
        ("over DeepLin",),
        "the step of a factorised map is multiplied by its gain ‖h‖²; of ‖V c̃‖² little is left for contexts as small as these, so "
        "DeepLin hardly moves at the paper's η",
        (
            Removal(
                "DeepLin / DG with contexts ten times as large as they enter the generator (gain × 100), nothing else",
                "seen",
                (
                    {"variant": "deeplin", "channel": "dg"},
                    {"variant": "deeplin", "channel": "dg", "context_gain": 10.0},
                ),
            ),
        ),
    ),
    Reason(
        ("Factorized over Direct", "≈ Direct"),
        "the same gain: Direct takes steps of η, Factorized of η‖h‖²; at equal η they are not comparable",
        (
            Removal(
                "Replay, which is Direct with the gains of the Factorized run",
                "seen",
                ({"variant": "direct", "channel": "dg"}, {"variant": "replay-u0", "channel": "dg"}),
            ),
        ),
    ),
    Reason(
        ("context over Factorized", "Ours over Full"),
        "raw contexts differ by about 0.01 between clients, so h hardly differs (cos 0.9995) and nearly everyone gets one model; and "
        "at σ_c = σ_g most of the difference is noise (φ's mean varies by 0.007, σ_c is 0.015)",
        (
            Removal(
                "σ_c alone divided by ten (ε rises accordingly)",
                "future",
                (_OURS, {**_OURS, "context_noise_ratio": 0.1}),
            ),
            Removal(
                "contexts alone standardised as they enter (costs no ε)",
                "future",
                (_OURS, {**_OURS, "context_entry": "standardized"}),
            ),
            Removal(
                "both",
                "future",
                (_OURS, {**_OURS, "context_noise_ratio": 0.1, "context_entry": "standardized"}),
            ),
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
        tests = "; ".join(test.what for test in reason.tests)
        outcomes = "; ".join(_outcome(results, test, str(claim.one["dataset"])) for test in reason.tests)
        rows.append([*head, reason.reason, tests, outcomes])
    return Table("disagreements", "Where we differ from the paper, and why",
                 "Every claim with the verdict “differ”, and those that one seed puts outside the published range. The last column is the experiment that tests the reason: accuracy before → after its suspected cause is removed, on the n seeds that both have. A reason whose removal changes little is not the reason.",
                 ["claim", "paper", "ours", "verdict", "most likely reason", "tested by", "outcome"], rows)  # fmt: skip


def _outcome(results: Results, test: Removal, dataset: str) -> str:
    """Means over the seeds that both cells have."""
    before, after = (_cell(results, {"dataset": dataset, **cell}) for cell in test.cells)
    both = sorted(set(before) & set(after))
    seeds = [s for s in both if None not in (before[s]["accuracy"][test.side], after[s]["accuracy"][test.side])]
    if not seeds:
        return "not run"
    first, second = (Interval.of(cell[s]["accuracy"][test.side] for s in seeds) for cell in (before, after))
    return f"{test.side.capitalize()} {100 * first.mean:.1f} → {100 * second.mean:.1f} (n={len(seeds)})"


def _cell(results: Results, wanted: Cell) -> dict[int, Record]:
    """By seed; σ_g of the context-noise experiment is a number of its own for every seed."""
    if "context_noise_ratio" not in wanted:
        return results.cell(**wanted)
    entry = str(wanted.get("context_entry", "raw"))
    return results.context_noise(str(wanted["dataset"]), float(wanted["context_noise_ratio"]), entry)
