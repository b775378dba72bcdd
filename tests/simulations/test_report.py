import csv
import json
import math

import pytest

from common.settings import Settings
from simulations import cli
from simulations.report import write_report
from simulations.report.claims import check_claims, paper_claims, verdict
from simulations.report.reasons import REASONS, disagreements
from simulations.report.results import Interval, Results
from simulations.report.tables import all_tables, table1, table3
from tests.records import record


@pytest.fixture
def records():
    found = []
    for seed, shift in ((41, 0.0), (42, 0.02), (43, -0.01)):
        found.append(record(0.80 + shift, 0.78 + shift, seed, variant="ours", channel="dg"))
        found.append(record(0.78 + shift, 0.755 + shift, seed, variant="full", channel="dg"))
    return found


def defaults_removed(records):
    """Records never hold settings at their default."""
    defaults = Settings().to_config()
    for one in records:
        one["settings"] = {k: v for k, v in one["settings"].items() if v != defaults[k] or k == "deterministic"}
    return records


def test_cells_hold_what_has_no_other_difference(records):
    results = Results(
        [*defaults_removed(records), *defaults_removed([record(0.1, 0.1, variant="ours", channel="dg", epsilon=4.0)])]
    )
    assert sorted(results.cell(variant="ours", channel="dg")) == [41, 42, 43]
    assert results.accuracy("seen", variant="ours", channel="dg").mean == pytest.approx(0.80333, abs=1e-5)
    assert results.accuracy("seen", variant="ours", channel="dg", epsilon=4.0).n == 1
    assert results.accuracy("seen", variant="ours", channel="lrsuq").n == 0


def test_missing_cells_are_shown_as_missing(records):
    rows = {(r[0], r[1], r[2]): r[3:] for r in table1(Results(defaults_removed(records))).rows}
    assert rows["MNIST", "16", "Ours / DG"] == ["80.33 ± 1.53 (n=3)", "78.33 ± 1.53 (n=3)"]
    assert rows["MNIST", "4", "Ours / DG"] == ["–", "–"]
    assert rows["MNIST", "0", "each client's commonest label"] == ["40.00 ± 0.00 (n=3)", "35.00 ± 0.00 (n=3)"]
    assert all(row[1] == "–" for row in table3(Results(defaults_removed(records))).rows[:3])


@pytest.mark.parametrize("name", ["table1", "table2", "figure1a", "table3", "geometry", "context_noise"])
def test_every_accuracy_table_has_the_reference_rows(records, name):
    table = next(t for t in all_tables(Results(defaults_removed(records))) if t.name == name)
    labels = {cell for row in table.rows for cell in row}
    assert {"each client alone: Local / DG", "each client's commonest label", "chance"} <= labels
    assert labels & {"no noise: Ours / DG", "Factorized+ctx"}
    chance = next(row for row in table.rows if "chance" in row)
    assert "10.00" in chance


def test_differences_are_paired_over_seeds(records):
    """The seeds move both cells by 2 points and more; their difference is 2.5 points every time."""
    results = Results(defaults_removed(records))
    gain = results.difference("future", {"variant": "ours", "channel": "dg"}, {"variant": "full", "channel": "dg"})
    assert (gain.n, gain.mean) == (3, pytest.approx(0.025))
    assert gain.half_width < 1e-9
    row = next(r for r in check_claims(results).rows if r[0] == "MNIST, ε = 16: Ours over Full")
    assert row[2:] == ["+0.00 … +3.24", "+2.50 ± 0.00", "3", "agree"]


@pytest.mark.parametrize(
    ("values", "low", "high", "expected"),
    [
        ([], 1.0, 2.0, "not run"),
        ([1.5], 1.0, 2.0, "one seed"),
        ([1.4, 1.5, 1.6], 1.0, 2.0, "agree"),
        ([5.0, 5.1, 5.2], 1.0, 2.0, "differ"),
        ([-3.0, 1.0, 5.0], 1.0, 2.0, "within noise"),
        ([-0.1, 0.0, 0.1], -0.4, 0.4, "agree"),
        ([-5.0, 0.0, 5.0], -0.4, 0.4, "within noise"),
    ],
)
def test_verdicts_are_computed(values, low, high, expected):
    assert verdict(Interval.of(values), low, high) == expected


def test_interval_of_one_seed_has_no_spread():
    one = Interval.of([0.5])
    assert one.n == 1
    assert math.isnan(one.std)
    assert one.percent() == "50.00 (n=1)"


def test_report_is_complete_and_self_contained(records, tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    for index, one in enumerate(defaults_removed(records)):
        (folder / f"{index}.json").write_text(json.dumps(one))
    written = write_report(folder, tmp_path / "out")
    names = {path.name for path in written}
    assert {"report.md", "report.html", "table1.csv", "accuracy_rounds.png", "accuracy_rounds.svg"}
    assert {"radial.svg", "alignment.svg", "heat_map.svg"} <= names
    assert all(path.stat().st_size > 0 for path in written)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "src='http" not in page
    assert "href='http" not in page
    assert page.count("data:image/png;base64") == sum(name.endswith(".png") for name in names)
    rows = list(csv.reader((tmp_path / "out" / "table1.csv").open()))
    assert rows[0] == ["data set", "ε", "variant / channel", "Seen", "Future"]


def test_report_without_results_is_refused(tmp_path, capsys):
    assert cli.main(["report", "--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "--results" in capsys.readouterr().err


def test_a_claim_that_differs_names_its_reason_and_the_outcome_of_the_test(records):
    for seed in (41, 42, 43):
        records.append(record(0.12, 0.10, seed, variant="deeplin", channel="dg"))
    before = disagreements(Results(defaults_removed(records)))
    rows = {row[0]: row for row in before.rows}
    assert rows["MNIST, ε = 16: Ours over DeepLin"][-1] == "not run"
    assert "MNIST, ε = 16: Ours over Full" not in rows  # agrees
    records.append(record(0.75, 0.7, 41, variant="deeplin", channel="dg", context_gain=10.0))
    after = {row[0]: row for row in disagreements(Results(defaults_removed(records))).rows}
    assert after["MNIST, ε = 16: Ours over DeepLin"][-1] == "Seen 12.0 → 75.0 (n=1)"
    assert after["MNIST, ε = 16: Ours over DeepLin"][2].startswith("+68.33")


def test_every_reason_explains_claims_that_exist():
    texts = [claim.text for claim in paper_claims()]
    for reason in REASONS:
        assert all(any(part in text for text in texts) for part in reason.claims)
