"""The paper's tables from result files. Cells that were not run are shown as missing, never filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from common.data.catalog import DATASETS as DATA
from simulations.experiments import CONTROLS, DATASETS, EPSILONS, MAIN_VARIANTS
from simulations.report.results import Interval, Results

MISSING = "–"
SIDES = ("seen", "future")
NAMES = {
    "ours": "Ours",
    "global": "Global",
    "full": "Full",
    "deeplin": "DeepLin",
    "direct": "Direct",
    "deeplin-u0": "DeepLin (u_0)",
    "factorized-u0": "Factorized",
    "radial-u0": "Radial",
    "replay-u0": "Replay",
    "local": "Local",
}
DATASET_NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}


@dataclass(frozen=True)
class Table:
    """Strings, ready to print."""

    name: str
    title: str
    note: str
    header: list[str]
    rows: list[list[str]]


def markdown(table: Table) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(table.header) + " |", "|" + "---|" * len(table.header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in table.rows])


def pair_name(variant: str, channel: str) -> str:
    """(variant, channel), as tables name it."""
    return f"{NAMES[variant]} / {channel.upper()}"


def all_tables(results: Results) -> list[Table]:
    """Every table, in the paper's order."""
    return [
        table1(results),
        table2(results),
        figure1a(results),
        table3(results),
        geometry(results),
        context_noise(results),
    ]


def table1(results: Results) -> Table:
    """End-to-end comparison with the reference rows of every data set."""
    rows = []
    for dataset in DATASETS:
        for epsilon in EPSILONS:
            for cell in MAIN_VARIANTS:
                wanted = {"dataset": dataset, "epsilon": epsilon, **cell}
                rows.append([DATASET_NAMES[dataset], f"{epsilon:g}", pair_name(**cell), *_seen_future(results, wanted)])
        rows += [[DATASET_NAMES[dataset], epsilon, name, seen, future]
                 for name, epsilon, seen, future in references(results, dataset)]  # fmt: skip
    return Table("table1", "Table 1: end-to-end comparison", "Accuracy in percent, mean ± standard deviation over n seeds.",
                 ["data set", "ε", "variant / channel", "Seen", "Future"], rows)  # fmt: skip


def table2(results: Results) -> Table:
    """Heterogeneity at ε = 16."""
    rows = []
    for dataset in DATASETS:
        for alpha in (0.1, 0.3, 0.5, 1.0):
            full, ours = (
                {"dataset": dataset, "dirichlet_alpha": alpha, "variant": v, "channel": "dg"} for v in ("full", "ours")
            )
            gain = points(results.difference("future", ours, full))
            head = [DATASET_NAMES[dataset], f"{alpha:g}"]
            rows.append([*head, "Full / DG", *_seen_future(results, full), ""])
            rows.append([*head, "Ours / DG", *_seen_future(results, ours), gain])
            for name, _, seen, future in references(results, dataset, dirichlet_alpha=alpha):
                rows.append([*head, name, seen, future, ""])
    return Table("table2", "Table 2: heterogeneity (ε = 16)", "Gain of Ours over Full on Future: paired over seeds, 95 % interval, percentage points.",
                 ["data set", "Dirichlet α", "variant / channel", "Seen", "Future", "gain"], rows)  # fmt: skip


def figure1a(results: Results) -> Table:
    """Coefficient dimension on CIFAR-10."""
    rows = []
    for k in (4096, 8192, 16384, 32768, 65536):
        wanted: dict[str, Any] = {"dataset": "cifar10", "num_coefficients": k, "variant": "ours", "channel": "dg"}
        records = list(results.cell(**wanted).values())
        norm = Interval.of(record["noise"]["norm"] for record in records)
        uplink = Interval.of(record["uplink"]["message_bytes"] / 1e6 for record in records)
        rows.append([f"{k:,}", results.accuracy("future", **wanted).percent(), number(norm), number(uplink)])
    rows += [[name, future, "", ""] for name, _, _, future in references(results, "cifar10")]
    return Table("figure1a", "Figure 1(a): coefficient dimension (CIFAR-10, ε = 16)", "Perturbation norm σ√k and protected uplink of a run.",
                 ["k", "Future", "σ√k", "uplink MB"], rows)  # fmt: skip


def table3(results: Results) -> Table:
    """The channels."""
    rows = []
    for channel in ("dg", "dg-q12", "lrsuq"):
        wanted: dict[str, Any] = {"dataset": "cifar10", "variant": "ours", "channel": channel}
        records = list(results.cell(**wanted).values())
        rate = Interval.of(record["uplink"]["bits_per_coordinate"] for record in records)
        uplink = Interval.of(record["uplink"]["message_bytes"] / 1e6 for record in records)
        time = Interval.of(
            record["milliseconds"]["encode_ms"] + record["milliseconds"]["decode_ms"] for record in records
        )
        rows.append(
            [
                channel.upper(),
                number(rate),
                number(uplink),
                results.accuracy("future", **wanted).percent(),
                number(time),
            ]
        )
    rows += [[name, "", "", future, ""] for name, _, _, future in references(results, "cifar10")]
    return Table("table3", "Table 3: communication (CIFAR-10, ε = 16)", "Milliseconds: medians over messages, measured while two runs shared the machine.",
                 ["channel", "bits per coordinate", "uplink MB", "Future", "encode + decode ms"], rows)  # fmt: skip


def geometry(results: Results) -> Table:
    """Controls with and without noise."""
    rows = []
    for dataset in DATASETS:
        for variant in CONTROLS:
            cells = [
                {"dataset": dataset, "variant": variant, "channel": "dg", "noise_stddev": noise}
                for noise in (0.0, "auto")
            ]
            values = [results.accuracy("seen", **cell).percent() for cell in cells] + [
                results.accuracy("future", **cell).percent() for cell in cells
            ]
            name = "Factorized+ctx" if variant == "ours" else NAMES[variant]
            rows.append([DATASET_NAMES[dataset], name, *values])
        # The row without noise is the table's own last control.
        for name, _, seen, future in references(results, dataset)[1:]:
            rows.append([DATASET_NAMES[dataset], name, MISSING, seen, MISSING, future])
    return Table("geometry", "Geometry controls", "Seen and Future without noise and at ε = 16; all but the last replace the context by u_0.",
                 ["data set", "control", "Seen, no noise", "Seen, ε = 16", "Future, no noise", "Future, ε = 16"], rows)  # fmt: skip


def context_noise(results: Results) -> Table:
    """σ_c alone, σ_g fixed at the paper's: ε rises, only the context changes."""
    rows = []
    for dataset in DATASETS:
        for ratio in (1.0, 0.3, 0.1):
            plain = {"dataset": dataset, "variant": "ours", "channel": "dg"}
            cell = results.cell(**plain) if ratio == 1.0 else results.context_noise(dataset, ratio)
            records = list(cell.values())
            if not records:
                continue
            rows.append([DATASET_NAMES[dataset], f"{ratio:g}", number(Interval.of(r["privacy"]["epsilon"] for r in records)),
                         Interval.of(r["accuracy"]["seen"] for r in records).percent(), Interval.of(r["accuracy"]["future"] for r in records).percent()])  # fmt: skip
        rows += [
            [DATASET_NAMES[dataset], name, epsilon, seen, future]
            for name, epsilon, seen, future in references(results, dataset)
        ]
    return Table("context_noise", "Context noise alone", "σ_g as in the paper's setting, σ_c times the ratio; ε is what that costs.",
                 ["data set", "σ_c / σ_g", "ε", "Seen", "Future"], rows)  # fmt: skip


def references(results: Results, dataset: str, **at: Any) -> list[list[str]]:
    """Rows of (name, ε, Seen, Future) that every accuracy table of a data set ends with (docs/method.md, section 10).

    Args:
        at: settings of the table's cells that change the references (snake_case), as the partition's concentration.
    """
    free = {"dataset": dataset, "variant": "ours", "channel": "dg", **at, "noise_stddev": 0.0}
    alone = {"dataset": dataset, "variant": "local", "channel": "dg", **at}
    chance = f"{100 / DATA[dataset].num_classes:.2f}"
    return [
        ["no noise: Ours / DG", "∞", *_seen_future(results, free)],
        ["each client alone: Local / DG", "16", *_seen_future(results, alone)],
        ["each client's commonest label", "0", *commonest_label(results, dataset=dataset, **at)],
        ["chance", "0", chance, chance],
    ]


def commonest_label(results: Results, **wanted: Any) -> list[str]:
    """Seen and Future of the reference row, of the records that a cell evaluates."""
    return [results.reference("commonest_label", side, **wanted).percent() for side in SIDES]


def _seen_future(results: Results, wanted: dict[str, Any]) -> list[str]:
    return [results.accuracy(side, **wanted).percent() for side in SIDES]


def points(interval: Interval) -> str:
    """A difference in percentage points with its 95 % interval."""
    if interval.n == 0:
        return MISSING
    width = "" if interval.n == 1 else f" ± {100 * interval.half_width:.2f}"
    return f"{100 * interval.mean:+.2f}{width} (n={interval.n})"


def number(interval: Interval) -> str:
    """A mean of four digits, or a dash."""
    return MISSING if interval.n == 0 else f"{interval.mean:.4g}"
