import pytest

from common.settings import Settings
from simulations.experiments import HALF_BATCHES
from simulations.report.aligned import ablation, budgets, compute
from simulations.report.figures import presets_epsilon
from simulations.report.results import Results
from tests.records import record


def run(seen, future, seed, **config):
    """A result of the settings that `config` (kebab-case) stands for, as a sweep would write it."""
    settings = Settings.from_config({"seed": seed, "deterministic": True, **config})
    made = record(seen, future, seed=seed)
    made["settings"] = settings.changed()
    return made


@pytest.fixture
def results():
    found = []
    for seed, shift in ((41, 0.0), (42, 0.02), (43, -0.02)):
        found.append(run(0.3 + shift, 0.2 + shift, seed, dataset="cifar10", epsilon=4.0))
        found.append(run(0.5 + shift, 0.5 + 2 * shift, seed, dataset="cifar10", epsilon=4.0, preset="aligned"))
        half = {"dataset": "cifar10", "epsilon": 4.0, "preset": "aligned", **HALF_BATCHES}
        found.append(run(0.4 + shift, 0.48 + shift, seed, **half) | {"milliseconds": {"gradient_ms": 50.0 + seed}})
    found.append(run(0.9, 0.8, 41, **{"preset": "aligned", "noise-stddev": 0.0, "channel": "dg"}))
    return Results(found)


def test_budgets_put_the_presets_side_by_side(results):
    rows = {tuple(row[:3]): row[3:] for row in budgets(results).rows}
    assert rows["CIFAR-10", "4", "paper"] == ["30.00 ± 2.00 (n=3)", "20.00 ± 2.00 (n=3)", "", "6.5e+04"]
    seen, future, gain, _ = rows["CIFAR-10", "4", "aligned"]
    assert (seen, future) == ("50.00 ± 2.00 (n=3)", "50.00 ± 4.00 (n=3)")
    assert gain == "+30.00 ± 4.97 (n=3)"  # differences 28, 30, 32: Student's 4.303 x 2/sqrt(3)
    assert rows["CIFAR-10", "16", "aligned"] == ["–", "–", "–", "–"]
    assert rows["MNIST", "∞", "aligned"][1] == "80.00 (n=1)"
    assert rows["MNIST", "0", "chance"][0] == "10.00"


def test_commonest_label_is_that_of_the_queries_that_a_preset_leaves(results):
    """Runs with other contexts evaluate other records of future clients."""
    found = results.records
    for entry in found:
        if entry["settings"].get("context-records") == 800:
            entry["references"]["commonest_label"] = {"seen": 0.4, "future": 0.25}
    rows = {tuple(row[:3]): row[3:] for row in budgets(Results(found)).rows}
    shares = [rows["CIFAR-10", "0", f"each client's commonest label ({p}'s queries)"][1] for p in ("paper", "aligned")]
    assert shares == ["35.00 ± 0.00 (n=3)", "25.00 ± 0.00 (n=3)"]


def test_ablation_compares_each_step_with_the_one_before(results):
    rows = [row for row in ablation(results).rows if row[:2] == ["CIFAR-10", "4"]]
    assert rows[0][2:5] == ["paper", "30.00 ± 2.00 (n=3)", "20.00 ± 2.00 (n=3)"]
    assert rows[0][5:] == ["", ""]
    assert rows[1][2] == "+ accounting"
    assert rows[1][5:] == ["–", "–"]  # not run
    assert rows[-1][3] == "50.00 ± 2.00 (n=3)"


def test_half_the_cpu_is_compared_with_the_preset(results):
    rows = {tuple(row[:3]): row[3:] for row in compute(results).rows}
    assert rows["CIFAR-10", "4", "all records"][:4] == ["50.00 ± 2.00 (n=3)", "50.00 ± 4.00 (n=3)", "", ""]
    half = rows["CIFAR-10", "4", "cyclic, half of them"]
    assert half[:2] == ["40.00 ± 2.00 (n=3)", "48.00 ± 2.00 (n=3)"]
    assert half[2:4] == ["-10.00 ± 0.00 (n=3)", "-2.00 ± 4.97 (n=3)"]  # differences -2, -4, 0
    assert half[4] == "92"  # seeds 41 to 43
    assert rows["MNIST", "16", "cyclic, half of them"][0] == "–"


def test_figure_is_drawn_from_what_there_is(results):
    figure = presets_epsilon(results)
    assert [axis.get_title() for axis in figure.axes] == ["MNIST", "CIFAR-10"]
    assert presets_epsilon(Results([])) is None
