import csv
from pathlib import Path

from common.settings import Settings
from simulations.cli import main
from simulations.experiments import grid
from simulations.records import read_records, write_record
from simulations.table import table
from tests.records import record

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def rows(text):
    return list(csv.DictReader(text.splitlines()))


def test_a_line_per_run_and_a_column_per_setting():
    got = rows(table([record(0.5, 0.4, learning_rate=1.0, dataset="cifar10"), record(0.25, None, dataset="cifar10")]))
    assert [(row["learning-rate"], row["dataset"], row["seen"], row["future"]) for row in got] == [
        ("1.0", "cifar10", "0.5000", "0.4000"),
        ("auto", "cifar10", "0.2500", ""),
    ]
    assert got[0]["message bytes"] == "65000"
    assert next(iter(got[0])) == "learning-rate"  # what varies comes first


def test_the_command_writes_the_table_of_a_folder(tmp_path, capsys):
    for seed in (1, 2):
        write_record(tmp_path / "in", Settings(seed=seed, deterministic=True), record(0.5, 0.4, seed=seed))
    assert main(["table", "--results", str(tmp_path / "in"), "--out", str(tmp_path / "runs.csv")]) == 0
    assert [row["seed"] for row in rows((tmp_path / "runs.csv").read_text())] == ["1", "2"]
    assert "2 runs" in capsys.readouterr().out


def test_a_folder_without_result_files_is_refused(tmp_path, capsys):
    assert main(["table", "--results", str(tmp_path), "--out", str(tmp_path / "runs.csv")]) == 2
    assert "--results" in capsys.readouterr().err
    assert not (tmp_path / "runs.csv").exists()


def test_settings_were_not_chosen_on_the_seeds_that_are_reported():
    tuning, readings = (
        {int(row["seed"]) for row in rows((RESULTS / name).read_text())} for name in ("tuning.csv", "readings.csv")
    )
    assert tuning <= {1, 2, 3, 4, 5}
    chosen = tuning | readings
    reported = {record["settings"].get("seed", Settings.seed) for record in read_records(RESULTS)}
    assert not chosen & reported


def test_every_run_of_a_reading_is_of_a_committed_grid():
    logged = rows((RESULTS / "readings.csv").read_text())
    runs = [run for path in (RESULTS / "readings").glob("*.toml") for run in grid(str(path))]
    assert len(runs) == len(set(runs)) == len(logged)
    described = {(run.dataset, run.variant, run.seed, run.reference_init, run.trunk_init, run.basis) for run in runs}
    names = ("dataset", "variant", "seed", "reference-init", "trunk-init", "basis")
    defaults = Settings().to_config()
    assert described == {tuple(type(defaults[n])(row.get(n, defaults[n])) for n in names) for row in logged}
