"""Figures from result files, as PNG and SVG. Colours are those of a colour-blind-safe palette (Okabe-Ito)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np

from common.settings import Settings
from simulations.experiments import ALIGNED_EPSILONS, CONTROLS, DATASETS, EPSILONS, MAIN_VARIANTS
from simulations.report.aligned import PRESETS_COMPARED, preset_cell
from simulations.report.results import Interval, Results
from simulations.report.tables import DATASET_NAMES, NAMES, pair_name

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
Pair = tuple[Path, Path]


def draw_figures(results: Results, out: Path) -> dict[str, Pair]:
    """Draw every figure for which there is data; returns title → (PNG, SVG)."""
    plt.rcParams.update({"svg.hashsalt": "papfl", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    drawn: dict[str, Pair] = {}
    figures: dict[str, tuple[str, Callable[[Results], Any]]] = {
        "Accuracy against ε": ("accuracy_epsilon", accuracy_epsilon),
        "Both presets against ε": ("presets_epsilon", presets_epsilon),
        "Accuracy against rounds": ("accuracy_rounds", accuracy_rounds),
        "Coefficient dimension (Fig. 1a)": ("figure1a", dimension),
        "Geometry controls": ("geometry", geometry),
        "Evolution of the hidden state (ε = 16)": ("radial", radial),
        "Alignment of clients": ("alignment", alignment),
        "Kernel between clients": ("heat_map", heat_map),
        "Communication against accuracy": ("communication", communication),
        "Accuracy of single clients": ("clients", clients),
    }
    for title, (name, draw) in figures.items():
        figure = draw(results)
        if figure is None:
            continue
        paths = (out / f"{name}.png", out / f"{name}.svg")
        figure.savefig(paths[0], dpi=150)
        figure.savefig(paths[1], metadata={"Date": None})
        plt.close(figure)
        drawn[title] = paths
    return drawn


def _axes(count: int, width: float = 4.2, height: float = 3.1) -> Any:
    figure, axes = plt.subplots(1, count, figsize=(width * count, height), constrained_layout=True, squeeze=False)
    return figure, axes[0]


def _legend(axes: Any) -> None:
    """One legend, on the first axes that has something to name."""
    for axis in axes:
        if axis.get_legend_handles_labels()[1]:
            axis.legend(frameon=False, fontsize=7)
            return


def accuracy_epsilon(results: Results) -> Any:
    """Future accuracy of the main variants over the budgets."""
    figure, axes = _axes(2)
    points = 0
    for axis, dataset in zip(axes, DATASETS, strict=True):
        for cell, color in zip(MAIN_VARIANTS, COLORS, strict=False):
            found = {e: results.accuracy("future", dataset=dataset, epsilon=e, **cell) for e in EPSILONS}
            points += _draw_budgets(axis, found, "o-", color, pair_name(**cell))
        axis.set(title=DATASET_NAMES[dataset], xlabel="ε", ylabel="Future accuracy, %")
    _legend(axes)
    return figure if points else None


def presets_epsilon(results: Results) -> Any:
    """Seen and Future accuracy of both presets over the budgets; lines without noise as dashes."""
    figure, axes = _axes(2)
    count = 0
    for axis, dataset in zip(axes, DATASETS, strict=True):
        for preset, color in zip(PRESETS_COMPARED, COLORS, strict=False):
            for side, style in (("future", "o-"), ("seen", "^:")):
                found = {e: results.accuracy(side, **preset_cell(preset, dataset, e)) for e in ALIGNED_EPSILONS}
                count += _draw_budgets(axis, found, style, color, f"{preset}, {side.capitalize()}")
            ceiling = results.accuracy("future", **preset_cell(preset, dataset, None))
            if ceiling.n:
                axis.axhline(100 * ceiling.mean, ls="--", lw=0.8, color=color, label=f"{preset}, Future, no noise")
        axis.set(title=DATASET_NAMES[dataset], xlabel="ε", ylabel="accuracy, %")
    _legend(axes)
    return figure if count else None


def _draw_budgets(axis: Any, found: dict[float, Interval], style: str, color: str, label: str) -> int:
    """Accuracy over ε, on an axis of its own scale; returns the number of points that were run."""
    known = {epsilon: value for epsilon, value in found.items() if value.n}
    axis.errorbar(list(known), [100 * v.mean for v in known.values()], [100 * v.std if v.n > 1 else 0 for v in known.values()],
                  fmt=style, ms=4, capsize=2, color=color, label=label)  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(found), [f"{e:g}" for e in found])
    return len(known)


def accuracy_rounds(results: Results) -> Any:
    """Seen accuracy at the evaluated rounds, ε = 16."""
    figure, axes = _axes(2)
    lines = 0
    for axis, dataset in zip(axes, DATASETS, strict=True):
        for cell, color in zip(MAIN_VARIANTS, COLORS, strict=False):
            records = list(results.cell(dataset=dataset, **cell).values())
            if not records:
                continue
            lines += 1
            rounds = [point["round"] for point in records[0]["evaluations"]]
            values = np.array([[point["seen"] for point in record["evaluations"]] for record in records])
            axis.plot(rounds, 100 * values.mean(axis=0), "o-", ms=3, color=color, label=pair_name(**cell))
        axis.set(title=DATASET_NAMES[dataset], xlabel="round", ylabel="Seen accuracy, %")
    _legend(axes)
    return figure if lines else None


def dimension(results: Results) -> Any:
    """Fig. 1(a) with its three axes: Future accuracy, perturbation norm, uplink."""
    ks = (4096, 8192, 16384, 32768, 65536)
    found = {k: results.cell(dataset="cifar10", num_coefficients=k, variant="ours", channel="dg") for k in ks}
    cells = {k: list(cell.values()) for k, cell in found.items() if cell}
    if not cells:
        return None
    figure, (axis,) = _axes(1, 6.0, 3.4)
    rows = [
        (
            "Future accuracy, %",
            [100 * Interval.of(r["accuracy"]["future"] for r in cell).mean for cell in cells.values()],
        ),
        ("σ√k", [Interval.of(r["noise"]["norm"] for r in cell).mean for cell in cells.values()]),
        ("uplink, MB", [Interval.of(r["uplink"]["message_bytes"] / 1e6 for r in cell).mean for cell in cells.values()]),
    ]
    shown = [axis, axis.twinx(), axis.twinx()]
    shown[2].spines.right.set_position(("axes", 1.18))
    for one, (label, values), color in zip(shown, rows, COLORS, strict=False):
        one.plot(list(cells), values, "o-", color=color, ms=4)
        one.set_ylabel(label, color=color)
        one.tick_params(axis="y", colors=color)
        one.spines.right.set_visible(one is not axis)
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(cells), [f"{k:,}" for k in cells])
    axis.set_xlabel("k")
    return figure


def geometry(results: Results) -> Any:
    """Seen accuracy of the controls, without noise and at ε = 16."""
    figure, axes = _axes(2, 4.8)
    bars = 0
    for axis, dataset in zip(axes, DATASETS, strict=True):
        for offset, (noise, label) in enumerate(((0.0, "no noise"), ("auto", "ε = 16"))):
            found = [
                results.accuracy("seen", dataset=dataset, variant=v, channel="dg", noise_stddev=noise) for v in CONTROLS
            ]
            bars += sum(value.n > 0 for value in found)
            heights = [100 * value.mean if value.n else 0 for value in found]
            axis.bar(np.arange(len(CONTROLS)) + 0.4 * offset, heights, 0.38, color=COLORS[offset], label=label)
        axis.set_xticks(
            np.arange(len(CONTROLS)) + 0.2,
            ["Factorized+ctx" if v == "ours" else NAMES[v] for v in CONTROLS],
            rotation=30,
            ha="right",
        )
        axis.set(title=DATASET_NAMES[dataset], ylabel="Seen accuracy, %")
    _legend(axes)
    return figure if bars else None


def radial(results: Results) -> Any:
    """The hidden state over the rounds: ‖h‖², cos(h(t), h(0)), and the isotropic share of the energy of an update."""
    figure, axes = _axes(3)
    lines = 0
    shown = (
        ("hidden_norm_squared", "‖h‖²"),
        ("hidden_rotation", "cos(h(t), h(0))"),
        ("isotropic_share", "isotropic share of the update energy"),
    )
    for axis, (key, label) in zip(axes, shown, strict=True):
        for variant, color in zip(("factorized-u0", "radial-u0", "ours"), COLORS, strict=False):
            for dataset, style in zip(DATASETS, ("-", "--"), strict=True):
                record = _first(results, key, dataset=dataset, variant=variant, channel="dg")
                lines += _draw_trace(axis, record, key, style, color, f"{NAMES[variant]}, {DATASET_NAMES[dataset]}")
        axis.set(title=label, xlabel="round")
    _legend(axes)
    return figure if lines else None


def alignment(results: Results) -> Any:
    """cos(h_i, h_j), mean over pairs of clients, and the isotropic share of what an update does to *another* client."""
    figure, axes = _axes(2)
    lines = 0
    shown = (
        ("hidden_alignment", "cos(h_i, h_j), mean over pairs"),
        ("isotropic_share_others", "isotropic share, other clients"),
    )
    for axis, (key, label) in zip(axes, shown, strict=True):
        for noise, style in (("auto", "-"), (0.0, "--")):
            for dataset, color in zip(DATASETS, COLORS, strict=False):
                record = _first(results, key, dataset=dataset, variant="ours", channel="dg", noise_stddev=noise)
                name = f"{DATASET_NAMES[dataset]}, {'no noise' if noise == 0.0 else 'ε = 16'}"
                lines += _draw_trace(axis, record, key, style, color, name)
        axis.set(title=label, xlabel="round")
    _legend(axes)
    return figure if lines else None


def heat_map(results: Results) -> Any:
    """The isotropic gains h_jᵀ h_i of eq. 9 between all clients at the end of a run of the method."""
    figure, axes = _axes(2)
    maps = 0
    for axis, dataset in zip(axes, DATASETS, strict=True):
        axis.set(
            title=f"{DATASET_NAMES[dataset]}: h_jᵀ h_i, ε = 16", xlabel="client i (sends)", ylabel="client j (is moved)"
        )
        record = _first(results, "gains", dataset=dataset, variant="ours", channel="dg")
        if record is None:
            continue
        triangle = record["gains"]
        lower = np.array([row + [0.0] * (len(triangle) - len(row)) for row in triangle])
        shown = axis.imshow(lower + np.tril(lower, -1).T, cmap="viridis")
        figure.colorbar(shown, ax=axis, shrink=0.85)
        maps += 1
    return figure if maps else None


def _first(results: Results, key: str, **wanted: Any) -> Any:
    """The record of the lowest seed that has an entry or a trace of this name, or None."""
    return next((r for r in results.cell(**wanted).values() if r.get(key) or r["traces"].get(key)), None)


def _draw_trace(axis: Any, record: Any, key: str, style: str, color: str, label: str) -> int:
    """A trace over the rounds; returns the number of lines drawn."""
    trace = [] if record is None else record["traces"].get(key, [])
    if trace:
        rounds = np.linspace(0, record["settings"].get("num-rounds", Settings.num_rounds), len(trace))
        axis.plot(rounds, trace, style, color=color, label=label)
    return int(bool(trace))


def communication(results: Results) -> Any:
    """Protected uplink of a run against Future accuracy, by channel."""
    figure, axes = _axes(2)
    points = 0
    for axis, dataset in zip(axes, DATASETS, strict=True):
        for channel, color in zip(("dg", "dg-q12", "lrsuq"), COLORS, strict=False):
            records = list(results.cell(dataset=dataset, variant="ours", channel=channel).values())
            points += len(records)
            axis.plot(
                [r["uplink"]["message_bytes"] / 1e6 for r in records],
                [100 * r["accuracy"]["future"] for r in records],
                "o",
                color=color,
                label=channel.upper(),
            )
        axis.set_xscale("log")
        axis.set(title=DATASET_NAMES[dataset], xlabel="protected uplink of a run, MB", ylabel="Future accuracy, %")
    _legend(axes)
    return figure if points else None


def clients(results: Results) -> Any:
    """Distribution of accuracy over clients, all seeds together."""
    figure, axes = _axes(2)
    boxes = 0
    for axis, dataset in zip(axes, DATASETS, strict=True):
        values, names = [], []
        for cell in MAIN_VARIANTS:
            records = results.cell(dataset=dataset, **cell).values()
            accuracies = [100 * a for record in records for a in record["accuracy"]["per_client"].values()]
            if accuracies:
                values.append(accuracies)
                names.append(pair_name(**cell))
        boxes += len(values)
        if values:
            axis.boxplot(values, tick_labels=names, showfliers=False)
            axis.tick_params(axis="x", rotation=30)
        axis.set(title=DATASET_NAMES[dataset], ylabel="accuracy of one client, %")
    return figure if boxes else None
