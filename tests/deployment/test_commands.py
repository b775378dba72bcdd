import json
import os
import time

import pytest

from client_app.sqlite_ledger import SqliteLedger
from common.privacy.accountant import ACCOUNTANTS, worst_record_rho
from common.privacy.events import GaussianRelease
from deployment.follow import follow
from deployment.processes import Process
from simulations import cli


@pytest.fixture
def state(tmp_path):
    """A state directory with two runs' releases."""
    ledger = SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    ledger.create()
    events = []
    for run, rounds in (("first", 3), ("second", 2)):
        for round in range(rounds):
            kind = "context" if round == 0 else "gradient"
            events.append(GaussianRelease(0, round, kind, 0.006, 0.02))
            ledger.commit(run, f"{run}-{round}", events[-1], lambda of_run, of_all: None)
    return tmp_path / "state", events


def test_ledger_show_adds_up_over_runs(state, capsys):
    path, events = state
    assert cli.main(["ledger", "show", str(path), "--releases"]) == 0
    text = capsys.readouterr().out
    assert "first: 1 context, 2 gradient" in text
    assert "second: 1 context, 1 gradient" in text
    assert text.count("  round ") == 5
    rho = worst_record_rho(events)
    for accountant in ACCOUNTANTS.values():
        assert f"{accountant.name} {accountant.epsilon(rho, 1e-5):.4g}" in text.splitlines()[-1]


def test_ledger_show_of_nothing_says_so(tmp_path, capsys):
    assert cli.main(["ledger", "show", str(tmp_path)]) == 1
    assert "ledger" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []  # looking makes nothing


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
