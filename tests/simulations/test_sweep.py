import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from common.presets import ALIGNED_STEPS
from common.rules import make_rules
from common.settings import Settings
from simulations import cli, worker
from simulations.experiments import EXPERIMENTS, grid
from simulations.records import read_records, run_hash
from simulations.sweep import estimate, make_plan, run_sweep
from tests.records import record

GRID = """
seeds = [0, 1]
[fixed]
num-participating = 4
num-future = 2
num-rounds = 4
records-per-client = 60
context-records = 20
batch-records = 24
num-coefficients = 256
hidden-dim = 8
[vary]
variant = ["replay-u0", "factorized-u0"]
channel = ["dg"]
"""


@pytest.fixture
def own_grid(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return str(path)


def test_experiments_have_the_papers_numbers_of_runs():
    sizes = {name: len(grid(name)) for name in EXPERIMENTS}
    assert sizes["table1"] == 2 * 4 * 5 * 5
    assert sizes["table1-eps16"] == 50
    assert sizes["table2"] == 2 * 4 * 2 * 5
    assert sizes["figure1a"] == 25
    assert sizes["geometry"] == 24 * 5
    assert sizes["table3"] == 15
    assert sizes["aligned"] == 7 * 2 * 2 * 3
    assert sizes["aligned-eps4-16"] == 2 * 2 * 2 * 5
    assert sizes["ablation"] == 2 * 2 * 9 * 3
    assert sizes["compute"] == 2 * 2 * 2 * 3


def test_ablation_leads_from_the_paper_to_the_aligned_preset():
    """Its first and last steps are runs of the budget experiment; in between, every step changes something."""
    budget = {run_hash(s) for s in grid("aligned")}
    steps = [s for s in grid("ablation", seeds=[41]) if (s.dataset, s.epsilon) == ("mnist", 4.0)]
    hashes = [run_hash(s) for s in steps]
    assert {hashes[0], hashes[-1]} <= budget
    assert len(set(hashes)) == len(steps) == len(ALIGNED_STEPS) + 1
    assert not set(hashes[1:-1]) & budget


def test_compute_experiment_changes_the_batches_alone():
    """One of its two cells is the preset itself; in the other a record is in every second batch."""
    budget = {run_hash(s) for s in grid("aligned")}
    own = grid("compute", seeds=[41])
    assert [run_hash(s) in budget for s in own] == [True, False] * 4
    half = make_rules(own[1])
    assert 2 * own[1].batch_records == own[1].train_records
    # Twice the sensitivity; 13 gradients instead of 25, and a context that counts like 16 of them.
    expected = 2 * ((13 + 16) / (25 + 16)) ** 0.5
    assert half.mechanism.update_noise / make_rules(own[0]).mechanism.update_noise == pytest.approx(expected, rel=1e-3)


def test_a_grid_keeps_what_it_names_whatever_the_preset(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(
        'seeds = [1]\n[fixed]\npreset = "aligned"\n[vary]\nlearning-rate-schedule = ["constant", "linear"]\nbatch-records = [333, 800]\n'
    )
    runs = {(s.learning_rate_schedule, s.batch_records) for s in grid(str(path))}
    assert runs == {("constant", 333), ("constant", 800), ("linear", 333), ("linear", 800)}


def test_own_records_are_refused_in_a_sweep(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text('[fixed]\ndataset = "own"\n')
    with pytest.raises(ValueError, match="dataset must be mnist or cifar10"):
        grid(str(path))


def test_shared_runs_of_experiments_have_one_name():
    """Table 3's DG and LRSUQ cells are Table 1's: run once."""
    table1 = {run_hash(settings) for settings in grid("table1-eps16")}
    shared = [settings for settings in grid("table3") if run_hash(settings) in table1]
    assert len(shared) == 10


def test_context_noise_experiment_moves_the_context_noise_alone():
    plans = [make_rules(s).mechanism.plan for s in grid("context-noise", seeds=[41]) if s.dataset == "mnist"]
    assert [plan.noise_stddev for plan in plans] == pytest.approx([plans[0].noise_stddev] * 4, rel=1e-12)
    ratios = [plan.context_noise_stddev / plan.noise_stddev for plan in plans]
    assert ratios == pytest.approx([0.3, 0.1, 1.0, 0.1])


def test_hash_ignores_places_and_knows_settings():
    assert run_hash(Settings(out_dir="/a")) == run_hash(Settings(out_dir="/b"))
    assert run_hash(Settings(seed=1)) != run_hash(Settings(seed=2))


@pytest.mark.parametrize(
    ("text", "named"),
    [("seed = 1", "seeds"), ("[vary]\nepsilonn = [1]", "epsilonn"), ("[[", "readable TOML")],
)
def test_bad_grids_are_refused(tmp_path, text, named):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=named):
        grid(str(path))
    with pytest.raises(ValueError, match="EXPERIMENT"):
        grid("table9")


def test_dry_run_prints_plan_and_estimate_and_runs_nothing(own_grid, tmp_path, capsys):
    assert cli.main(["sweep", own_grid, "--dry-run", "--results", str(tmp_path / "results")]) == 0
    text = capsys.readouterr().out
    assert "4 runs: 0 done, 4 to do" in text
    assert "mnist/factorized-u0/dg" in text
    assert not (tmp_path / "results").exists()


def test_estimate_learns_from_finished_runs():
    settings = Settings(num_rounds=100)
    record = {"cpu_seconds": 50.0, "settings": {"num-rounds": 500}}
    assert estimate(settings, [record]) == pytest.approx(10.0)
    assert estimate(settings, []) > 10


@pytest.mark.integration
def test_sweep_resumes_lists_failures_and_never_repeats(own_grid, tmp_path, data_dir, monkeypatch):
    """One run half done, one that fails; the second call runs what is left and nothing else."""
    results, work = tmp_path / "results", tmp_path / "work"
    runs = grid(own_grid)
    half = next(s for s in runs if s.variant == "factorized-u0" and s.seed == 0)
    config = {**half.to_config(), "data-dir": str(data_dir)}
    from server_app.state import ServerState

    original, calls = ServerState.apply, []

    def die_in_round_3(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(ServerState, "apply", die_in_round_3)
    with pytest.raises(KeyboardInterrupt):
        worker.execute(config, str(results), str(work))
    monkeypatch.undo()
    assert (work / run_hash(half)).exists()
    broken = next(s for s in runs if s.variant == "factorized-u0" and s.seed == 1)
    (work / run_hash(broken)).mkdir(parents=True)
    (work / run_hash(broken) / "journal.jsonl").write_text("not a journal\n{}\n")
    options = dict(
        results=results, work=work, data_dir=Path(data_dir), jobs=2, address=None, console=Console(quiet=True)
    )
    failures = run_sweep(make_plan(runs, results, work), **options)
    assert len(failures) == 2  # the broken run, and the replay that needs its gains
    assert any("settings.json" in line for line in failures)
    assert any("no recorded gains" in line for line in failures)
    assert {r["settings"]["seed"] for r in read_records(results)} == {0}
    shutil.rmtree(work / run_hash(broken))
    before = {path: path.stat().st_mtime_ns for path in results.iterdir()}
    plan = make_plan(runs, results, work)
    assert (plan.done, len(plan.todo)) == (2, 2)
    assert run_sweep(plan, **options) == []
    assert len(read_records(results)) == 4
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert all(path.stat().st_size <= 20_000 for path in results.iterdir())
    clean = worker_result(half, data_dir, tmp_path)
    resumed = json.loads((results / f"{run_hash(half)}.json").read_text())
    assert resumed["generator_digest"] == clean["generator_digest"]


@pytest.mark.integration
def test_work_of_another_machine_is_done_again(own_grid, tmp_path, data_dir, monkeypatch, killed_in_round):
    """A checkpoint of another processor cannot be continued bit for bit: the run starts again and finishes."""
    from server_app import checkpoint

    settings = next(s for s in grid(own_grid) if s.variant == "factorized-u0")
    config = {**settings.to_config(), "data-dir": str(data_dir), "checkpoint-every": 2}
    with killed_in_round(3):
        worker.execute(config, str(tmp_path / "results"), str(tmp_path / "work"))
    monkeypatch.setattr(checkpoint, "describe", lambda: {"cpu": "another"})
    worker.execute(config, str(tmp_path / "results"), str(tmp_path / "work"))
    assert len(read_records(tmp_path / "results")) == 1


def test_cpu_time_of_earlier_attempts_survives_a_failed_write(tmp_path, monkeypatch):
    worker.add_seconds(tmp_path, 2.0)

    def full(descriptor):
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(OSError, match="disk full"):
            worker.add_seconds(tmp_path, 1.0)
    assert worker.add_seconds(tmp_path, 0.5) == 2.5


def test_replay_without_recorded_gains_makes_its_factorized_run_due_again(own_grid, tmp_path):
    runs = grid(own_grid, seeds=[0])
    factorized = next(s for s in runs if s.variant == "factorized-u0")
    results, work = tmp_path / "results", tmp_path / "work"
    results.mkdir()
    written = json.dumps(record(0.5, 0.5, variant="factorized-u0"))
    (results / f"{run_hash(factorized)}.json").write_text(written)
    assert len(make_plan(runs, results, work).todo) == 2
    work.mkdir()
    worker.gains_path(work, factorized).write_text("")
    assert [s.variant for s in make_plan(runs, results, work).todo] == ["replay-u0"]


def worker_result(settings, data_dir, tmp_path):
    """The same run without interruption."""
    worker.execute(
        {**settings.to_config(), "data-dir": str(data_dir)}, str(tmp_path / "clean"), str(tmp_path / "clean-work")
    )
    return read_records(tmp_path / "clean")[0]
