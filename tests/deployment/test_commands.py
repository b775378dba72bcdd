import json
import os
import time

import pytest

from client_app.app import app
from client_app.sqlite_ledger import SqliteLedger
from common.privacy.accountant import GdpAccountant, worst_record_rho
from common.privacy.events import GaussianRelease
from common.rules import make_rules
from deployment.follow import follow
from deployment.processes import Process
from server_app.app import run
from server_app.results import RunFolder
from simulations import cli
from simulations.grid import InProcessGrid
from tests.runs import run_until


@pytest.fixture
def state(tmp_path):
    """A state directory with two runs' releases."""
    ledger = SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    ledger.create()
    events = []
    for name, rounds in (("first", 3), ("second", 2)):
        for round in range(rounds):
            kind = "context" if round == 0 else "gradient"
            events.append(GaussianRelease(0, round, kind, 0.006, 0.02))
            ledger.commit(name, f"{name}-{round}", events[-1], lambda of_run, of_all: None)
    return tmp_path / "state", events


def test_ledger_show_says_what_is_spent_left_and_for_which_records(state, capsys, monkeypatch):
    """One answer to each question, whatever the width of the terminal."""
    monkeypatch.setenv("COLUMNS", "20")
    path, events = state
    assert cli.main(["ledger", "show", str(path), "--releases", "--max-epsilon", "6", "--delta", "1e-6"]) == 0
    text = capsys.readouterr().out
    rho, exact = worst_record_rho(events), GdpAccountant()
    first = exact.epsilon(worst_record_rho(events[:3]), 1e-6)
    assert f"first: epsilon {first:.4g}; 1 context, 2 gradient" in text
    assert "second: epsilon" in text
    assert text.count("  round ") == 5
    assert f"spent: epsilon {exact.epsilon(rho, 1e-6):.4g} at delta 1e-06, by exact accounting\n" in text
    assert "for:   each of these records\n" in text
    left = exact.epsilon(exact.rho(6.0, 1e-6) - rho, 1e-6)
    assert f"left:  of max-epsilon 6, a run that alone costs epsilon {left:.4g}\n" in text


def test_ledger_show_of_a_spent_budget(state, capsys):
    assert cli.main(["ledger", "show", str(state[0]), "--max-epsilon", "1"]) == 0
    assert "left:  nothing of max-epsilon 1: the node refuses" in capsys.readouterr().out


def test_ledger_show_of_single_records_and_of_public_noise(tmp_path, capsys):
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    ledger.create()
    for round, records in ((1, (0, 1)), (2, (1, 2))):
        event = GaussianRelease(0, round, "gradient", 0.006, 0.02, records, "order")
        ledger.commit("run", str(round), event, lambda of_run, of_all: None)
    assert cli.main(["ledger", "show", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert f"spent: epsilon {GdpAccountant().epsilon(2 * event.rho, 1e-5):.4g} " in text
    assert "for:   the record that paid most" in text
    ledger.commit("run", "3", GaussianRelease(0, 3, "gradient", 0.006, 0.0), lambda of_run, of_all: None)
    assert cli.main(["ledger", "show", str(tmp_path), "--max-epsilon", "9"]) == 0
    text = capsys.readouterr().out
    assert "spent: epsilon unbounded (a run without noise, or with public noise)" in text
    assert "left:  nothing of max-epsilon 9" in text


@pytest.mark.parametrize("command", [["show"], ["add", "--run", "r", "--client", "0", "--from"]])
def test_where_there_is_no_ledger_that_is_what_is_said(tmp_path, capsys, command):
    """In 0.1.0 a wrong path got the advice for a lost ledger: that the budget counts as spent."""
    (tmp_path / "ledger.json").write_text("[]")
    more = [str(tmp_path / "ledger.json")] if command[0] == "add" else []
    assert cli.main(["ledger", *command[:1], str(tmp_path / "wrong"), *command[1:], *more]) == 2
    assert "There is no ledger at" in (error := capsys.readouterr().err)
    assert "spent" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.json"]  # looking makes nothing


def test_a_deterministic_runs_ledger_books_no_protection(state, tmp_path, tiny, capsys):
    """What its server writes says so; what a server of 0.1.0 wrote is known by the settings beside it."""
    settings = tiny(num_rounds=2, run_name="repro")
    run(InProcessGrid(app, settings), settings)
    folder = RunFolder(settings).path
    written = json.loads((folder / "ledger.json").read_text())
    assert {entry["noise_stddev"] for entry in written} == {0.0}
    (folder / "ledger.json").write_text(json.dumps([entry | {"noise_stddev": 0.02} for entry in written]))
    path = state[0]
    add = ["ledger", "add", str(path), "--from", str(folder / "ledger.json"), "--run", "repro", "--client", "0"]
    assert cli.main(add) == 0
    assert "releases added" in capsys.readouterr().out
    added = [event for name, event in SqliteLedger(path / "ledger.sqlite").rows() if name == "repro"]
    assert added and {event.noise_stddev for event in added} == {0.0}


def test_the_ledger_of_an_unfinished_run_can_be_exported(tiny, tmp_path, capsys):
    """Its server died after it had asked for round 2: no ledger.json, and the releases count."""
    settings = tiny(num_rounds=3, run_name="half", deterministic=False, checkpoint_every=1)
    run_until(settings, 2)
    folder = RunFolder(settings)
    assert not (folder.path / "ledger.json").exists()
    assert cli.main(["ledger", "export", str(folder.path)]) == 0
    exported = [GaussianRelease.from_json(entry) for entry in json.loads(capsys.readouterr().out)]
    schedule = make_rules(settings).schedule
    assert {(event.round, event.client) for event in exported} == {
        *((0, client) for client in range(6)),
        *((round, client) for round in (1, 2) for client in schedule.clients(round)),
    }
    assert cli.main(["ledger", "export", str(tmp_path / "wrong")]) == 2
    assert "PATH must be the folder of a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["deploy", "local", "--nodes", "2", "--future", "2"], "--future"),
        (["deploy", "local", "--late", "2"], "--late"),
        (["deploy", "local", "--dataset", "own"], "dataset"),
        (["deploy", "local", "--num-rounds", "9"], "--rounds"),
        (["deploy", "local", "--epsilon", "-1"], "epsilon"),
        (["deploy", "register"], "--ca"),
        (["personalize", "--run", "none", "--results", "/nowhere", "--ca", __file__], "--run"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_started(arguments, named, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    assert cli.main([*arguments, "--folder", str(tmp_path / "deploy")]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "deploy").exists()


class ScriptedFlower:
    """Statuses as a SuperLink would report them; remembers what was submitted."""

    def __init__(self, statuses):
        self.statuses, self.submitted = list(statuses), []

    def status(self, run_id):
        return self.statuses.pop(0), "details"

    def submit(self, app, config):
        self.submitted.append(config)
        return len(self.submitted) + 1


@pytest.fixture
def quick(monkeypatch):
    from deployment import follow as module

    monkeypatch.setattr(module, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(module, "_STATUS_SECONDS", -1.0)


def test_a_serverapp_that_died_without_a_word_is_submitted_again_to_resume(quick, tiny, tmp_path):
    settings = tiny(out_dir=str(tmp_path), run_name="run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text("")
    flower = ScriptedFlower(["running", "finished:failed", "running", "finished:completed"])
    with pytest.raises(RuntimeError, match="complete, but .*summary.json is not here: --results"):
        list(follow(flower, settings, 1, results=tmp_path))
    assert [config["resume"] for config in flower.submitted] == [True]
    (tmp_path / "run" / "summary.json").write_text("{}")
    assert list(follow(ScriptedFlower(["running", "finished:completed"]), settings, 1, results=tmp_path)) == []


@pytest.mark.parametrize(
    ("statuses", "failure", "named"),
    [
        (["finished:failed"], "out of budget", "out of budget"),
        (["finished:stopped"], None, "finished:stopped"),
        (["finished:failed"] * 3, None, "finished:failed"),
    ],
)
def test_a_run_that_cannot_go_on_ends_with_its_cause(quick, tiny, tmp_path, statuses, failure, named):
    settings = tiny(out_dir=str(tmp_path), run_name="run")
    (tmp_path / "run").mkdir()
    if failure:
        (tmp_path / "run" / "failure.json").write_text(json.dumps({"error": "E", "message": failure}))
    with pytest.raises(RuntimeError, match=named):
        list(follow(ScriptedFlower(statuses), settings, 1, results=tmp_path))


def test_a_process_is_started_again_and_stopped_with_its_children(tmp_path, monkeypatch):
    from deployment import processes

    monkeypatch.setattr(processes, "_RESTART_SECONDS", 0.0)
    script = "sleep 300 & echo started; sleep 300"
    process = Process("p", ["sh", "-c", script], tmp_path / "home", tmp_path / "log")
    process.start()
    first = process.pid
    process.signal(9)
    process._process.wait()
    process.mend()
    assert process.alive()
    assert process.pid != first
    assert process.starts == 2
    process.stop()
    assert not process.alive()
    with pytest.raises(ProcessLookupError):
        for _ in range(200):  # until the system has collected them
            os.killpg(first, 0)
            time.sleep(0.05)
    process.mend()  # stopped on purpose: it stays so
    assert process.exit_code is None
