"""The paper's experiments as grids of settings (docs/method.md, section 9): what to run, nothing about how.

A cell is a set of changes to the paper preset; a grid is cells x seeds. `papfl sweep grid.toml` takes one's own: tables
`[fixed]` (settings of every run) and `[vary]` (lists of values, all combinations), and optionally `seeds`.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common.presets import ALIGNED_STEPS
from common.rules import make_rules
from common.settings import Settings

Cell = dict[str, Any]
SEEDS: tuple[int, ...] = (41, 42, 43, 44, 45)
DATASETS = ("mnist", "cifar10")
EPSILONS = (4.0, 8.0, 16.0, 32.0)
ALIGNED_EPSILONS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
ABLATION_EPSILONS = (4.0, 16.0)
# Without noise there is nothing for LRSUQ to send.
SILENT: Cell = {"noise-stddev": 0.0, "channel": "dg"}
# Half of a client's 800 training records in every batch: a record pays for every second batch.
HALF_BATCHES: Cell = {"batch-schedule": "cyclic", "batch-records": 400}

# Names in tables are (variant, channel) pairs.
MAIN_VARIANTS: tuple[Cell, ...] = (
    {"variant": "global", "channel": "dg"},
    {"variant": "full", "channel": "dg"},
    {"variant": "deeplin", "channel": "dg"},
    {"variant": "ours", "channel": "dg"},
    {"variant": "ours", "channel": "lrsuq"},
)
CONTROLS = ("direct", "deeplin-u0", "factorized-u0", "radial-u0", "replay-u0", "ours")


def _table1(epsilons: Sequence[float] = EPSILONS) -> list[Cell]:
    """End-to-end comparison: data sets x budgets x five variants."""
    return [
        {"dataset": dataset, "epsilon": epsilon, **variant}
        for epsilon in epsilons
        for dataset in DATASETS
        for variant in MAIN_VARIANTS
    ]


def _table2() -> list[Cell]:
    """Heterogeneity at ε = 16."""
    return [
        {"dataset": dataset, "dirichlet-alpha": alpha, "variant": variant, "channel": "dg"}
        for dataset in DATASETS
        for alpha in (0.1, 0.3, 0.5, 1.0)
        for variant in ("full", "ours")
    ]


def _figure1a() -> list[Cell]:
    """Coefficient dimension on CIFAR-10."""
    return [
        {"dataset": "cifar10", "num-coefficients": k, "variant": "ours", "channel": "dg"}
        for k in (4096, 8192, 16384, 32768, 65536)
    ]


def _geometry() -> list[Cell]:
    """Six controls without noise and at ε = 16. Replay names the run whose gains it needs: the sweep fills them in."""
    cells = []
    for dataset in DATASETS:
        for noise in ("auto", 0.0):
            for variant in CONTROLS:
                cells.append({"dataset": dataset, "noise-stddev": noise, "variant": variant, "channel": "dg"})
    return cells


def _table3() -> list[Cell]:
    """The channel on CIFAR-10 at ε = 16."""
    return [{"dataset": "cifar10", "variant": "ours", "channel": channel} for channel in ("dg", "dg-q12", "lrsuq")]


def _context_noise() -> list[Cell]:
    """The context's signal-to-noise alone: σ_g stays the paper's, σ_c falls, and the reported ε rises with it. The ratio 1 is
    Table 1's run. Then its scale as it enters the generator, alone and with less noise."""
    quiet: Cell = {"noise-stddev": PAPER_NOISE, "context-noise-ratio": 0.1}
    changes: tuple[Cell, ...] = (
        {**quiet, "context-noise-ratio": 0.3},
        quiet,
        {"context-entry": "standardized"},
        {**quiet, "context-entry": "standardized"},
    )
    return [
        {"dataset": dataset, "variant": "ours", "channel": "dg", **change} for dataset in DATASETS for change in changes
    ]


def _gain() -> list[Cell]:
    """DeepLin with contexts that are larger as they enter the generator: its gain ‖V c̃‖² alone."""
    return [
        {"dataset": dataset, "variant": "deeplin", "channel": "dg", "context-gain": gain}
        for dataset in DATASETS
        for gain in (3.0, 10.0)
    ]


def _references() -> list[Cell]:
    """Reference rows of the accuracy tables (docs/method.md, section 10) that need runs: no noise, no federation."""
    return [
        {"dataset": dataset, "channel": "dg", **cell}
        for dataset in DATASETS
        for cell in ({"variant": "ours", "noise-stddev": 0.0}, {"variant": "local"})
    ]


def _aligned(budgets: Sequence[Cell]) -> list[Cell]:
    """Both presets over the budget."""
    return [
        {"preset": preset, "dataset": dataset, **budget}
        for budget in budgets
        for dataset in DATASETS
        for preset in ("aligned", "paper")
    ]


def _ablation() -> list[Cell]:
    """From the paper's setting to the aligned one, a step at a time: the first cell of each kind is the paper's, the last the
    aligned preset's."""
    return [
        {"dataset": dataset, "epsilon": epsilon, **cell}
        for epsilon in ABLATION_EPSILONS
        for dataset in DATASETS
        for _, cell in ablation_steps()
    ]


def _compute() -> list[Cell]:
    """The aligned preset at half its CPU time, beside the preset itself."""
    return [
        {"preset": "aligned", "dataset": dataset, "epsilon": epsilon, **change}
        for epsilon in ABLATION_EPSILONS
        for dataset in DATASETS
        for change in ({}, HALF_BATCHES)
    ]


def _kron() -> list[Cell]:
    """The aligned preset in the Kronecker basis, at the k of `layers` or the next below it that ranks allow."""
    return [
        {"preset": "aligned", "dataset": dataset, "epsilon": epsilon, "basis": "kron", "kron-rank": 1000}
        for epsilon in ABLATION_EPSILONS
        for dataset in DATASETS
    ]


def ablation_steps() -> list[tuple[str, Cell]]:
    """Names of the steps, and the settings of the paper preset with all changes up to each of them."""
    steps: list[tuple[str, Cell]] = [("paper", {})]
    aligned = Settings.from_config({"preset": "aligned"}).to_config()
    for name, choices in ALIGNED_STEPS.items():
        steps.append((name, {**steps[-1][1], **{choice.setting: aligned[choice.setting] for choice in choices}}))
    return steps


EXPERIMENTS: dict[str, Callable[[], list[Cell]]] = {
    "table1": _table1,
    "table1-eps16": lambda: _table1((16.0,)),
    "table2": _table2,
    "figure1a": _figure1a,
    "geometry": _geometry,
    "table3": _table3,
    "context-noise": _context_noise,
    "gain": _gain,
    "references": _references,
    "aligned": lambda: _aligned([*({"epsilon": epsilon} for epsilon in ALIGNED_EPSILONS), SILENT]),
    "aligned-eps4-16": lambda: _aligned([{"epsilon": epsilon} for epsilon in ABLATION_EPSILONS]),
    "ablation": _ablation,
    "compute": _compute,
    "kron": _kron,
}
# Three seeds where five take too long.
_OWN_SEEDS = dict.fromkeys(("aligned", "ablation", "compute", "kron"), SEEDS[:3])

# Of every run of a sweep: reproduction on public data, few evaluations, small files.
_SWEEP: Cell = {
    "preset": "paper",
    "deterministic": True,
    "tensorboard": False,
    "checkpoint-every": 100,
}


def evaluation_cadence(num_rounds: int) -> int:
    """At the last round and at four points before."""
    return max(1, num_rounds // 5)


def grid(experiment: str, *, seeds: Sequence[int] | None = None, rounds: int | None = None) -> list[Settings]:
    """The runs of an experiment, or of a TOML grid of one's own; seeds outermost, so that early results are balanced.

    Raises:
        ValueError: neither an experiment nor a readable grid file, or settings that don't exist.
    """
    if experiment in EXPERIMENTS:
        cells, own_seeds = EXPERIMENTS[experiment](), _OWN_SEEDS.get(experiment, SEEDS)
    elif experiment.endswith(".toml"):
        cells, own_seeds = _read_grid(Path(experiment))
    else:
        raise ValueError(
            f"EXPERIMENT must be one of {', '.join(EXPERIMENTS)}, or a .toml file. Received {experiment!r}."
        )
    if any(cell.get("dataset") == "own" for cell in cells):
        raise ValueError("dataset must be mnist or cifar10 in a sweep; own records live in nodes. Received 'own'.")
    changes: Cell = {} if rounds is None else {"num-rounds": rounds}
    result = []
    for seed in seeds or own_seeds:
        for cell in cells:
            config = {**_SWEEP, **cell, **changes, "seed": seed}
            config.setdefault("evaluate-every", evaluation_cadence(config.get("num-rounds", Settings.num_rounds)))
            if config.get("variant") == "replay-u0":
                config["replay-gains"] = GAINS_PLACEHOLDER
            if config.get("noise-stddev") == PAPER_NOISE:
                config["noise-stddev"] = _paper_noise(config)
            result.append(Settings.from_config(config, given={*cell, *changes}))
    return list(dict.fromkeys(result))


# A replay run's gains come from another run of the same sweep; its file is known once that run exists.
GAINS_PLACEHOLDER = "<factorized-u0 run of the same settings>"


# σ_g of the paper's calibration for the same seed, whatever else a cell changes.
PAPER_NOISE = "paper"


def _paper_noise(config: Cell) -> float:
    kept = {key: value for key, value in config.items() if key not in ("noise-stddev", "context-noise-ratio")}
    return make_rules(Settings.from_config(kept, given=kept)).mechanism.update_noise


def _read_grid(path: Path) -> tuple[list[Cell], tuple[int, ...]]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"grid file must be readable TOML. Received {path}: {error}.") from None
    unknown = set(content) - {"fixed", "vary", "seeds"}
    if unknown:
        raise ValueError(
            f"grid file must have only `seeds`, [fixed] and [vary]. Received {', '.join(sorted(unknown))}."
        )
    fixed, vary = content.get("fixed", {}), content.get("vary", {})
    cells = [
        {"variant": "ours", **fixed, **dict(zip(vary, values, strict=True))}
        for values in itertools.product(*vary.values())
    ]
    return cells, tuple(content.get("seeds", SEEDS))
