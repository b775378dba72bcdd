"""Tables in the documentation are those of the result files beside them."""

import re
from pathlib import Path

import pytest

from simulations.experiments import ABLATION_EPSILONS, ALIGNED_EPSILONS, HALF_BATCHES, MAIN_VARIANTS, ablation_steps
from simulations.records import read_records
from simulations.report.aligned import preset_cell, wanted
from simulations.report.results import Results
from simulations.report.tables import DATASET_NAMES, SIDES, pair_name

ROOT = Path(__file__).resolve().parents[2]
DATASETS = {name: key for key, name in DATASET_NAMES.items()}


@pytest.fixture(scope="module")
def results():
    return Results(read_records(ROOT / "docs" / "results"))


def rows(page, first):
    """Cells of the table rows of a page whose first cells match `first`."""
    for line in (ROOT / page).read_text().splitlines():
        if re.match(rf"\| {first}", line):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def short(interval, digits, usual):
    """As the pages write it: n only where it is not the usual one."""
    n = "" if interval.n in usual else f" (n={interval.n})"
    return f"{100 * interval.mean:.{digits}f} ± {100 * interval.std:.{digits}f}{n}"


def test_main_table(results):
    found = {row[0]: row[1:] for row in rows("docs/experiments.md", "(Ours|Full|DeepLin|Global) / ")}
    for cell in MAIN_VARIANTS:
        accuracies = [results.accuracy(side, dataset=d, **cell) for d in DATASET_NAMES for side in SIDES]
        assert found[pair_name(**cell)] == [short(accuracy, 2, (5,)) for accuracy in accuracies]


@pytest.mark.parametrize(
    ("page", "budgets", "count"),
    [("docs/experiments.md", (*ALIGNED_EPSILONS, None), 8), ("README.md", (1.0, 4.0, 16.0, None), 6)],
)
def test_presets_tables(results, page, budgets, count):
    found = list(rows(page, "(CIFAR-10|MNIST) (Seen|Future) "))
    assert len(found) == count
    for name, preset, *cells in found:
        dataset, side = name.split()
        accuracies = [results.accuracy(side.lower(), **preset_cell(preset, DATASETS[dataset], e)) for e in budgets]
        assert cells == [short(accuracy, 1, (3, 5)) for accuracy in accuracies]


def test_ablation_tables(results):
    """Future first, then Seen; every row has the step's accuracy and its difference to the row above."""
    found = list(rows("docs/choosing-settings.md", r"(paper|\+ \w+) "))
    steps = ablation_steps()
    assert len(found) == 2 * len(steps)
    for i, (label, *cells) in enumerate(found):
        side = ("future", "seen")[i // len(steps)]
        name, changes = steps[i % len(steps)]
        assert label.removeprefix("+ ") == name
        expected = []
        for dataset in ("cifar10", "mnist"):
            for epsilon in ABLATION_EPSILONS:
                base = {"dataset": dataset, "epsilon": epsilon}
                cell = wanted({**base, **changes})
                accuracy = results.accuracy(side, **cell)
                text = f"{100 * accuracy.mean:.1f}" + ("" if accuracy.n == 3 else f" (n={accuracy.n})")
                if i % len(steps):
                    gain = results.difference(side, cell, wanted({**base, **steps[i % len(steps) - 1][1]}))
                    text += f" ({100 * gain.mean:+.1f} ± {100 * gain.half_width:.1f})"
                expected.append(text)
        assert cells == expected


def test_half_batches_table(results):
    half, difference = (next(rows("docs/choosing-settings.md", label))[1:] for label in ("cyclic, 400", "difference "))
    for i, (dataset, epsilon) in enumerate((d, e) for d in ("cifar10", "mnist") for e in ABLATION_EPSILONS):
        base = {"preset": "aligned", "dataset": dataset, "epsilon": epsilon}
        full, cyclic = wanted(base), wanted({**base, **HALF_BATCHES})
        assert half[i] == " / ".join(f"{100 * results.accuracy(side, **cyclic).mean:.1f}" for side in SIDES)
        gains = [results.difference(side, cyclic, full) for side in SIDES]
        assert difference[i] == " / ".join(f"{100 * g.mean:+.1f} ± {100 * g.half_width:.1f}" for g in gains)
