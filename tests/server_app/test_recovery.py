"""Kill the server at every point of a round; the resumed run must be bit-identical, and no release made twice."""

import json
from collections import Counter

import pytest

from client_app.app import app
from client_app.ledger import StateLedger
from server_app import app as server
from server_app.federation import FederationError
from server_app.journal import Journal
from server_app.recovery import CannotResume
from server_app.results import RunFolder
from server_app.state import ServerState
from simulations.grid import InProcessGrid


class Killed(BaseException):
    """Stands for SIGKILL: no handler of the code under test catches it."""


class CountingGrid(InProcessGrid):
    """Counts training requests; may die before or after delivering a round."""

    def __init__(self, settings, die_before=None, die_after=None):
        super().__init__(app, settings)
        self.requests = Counter()
        self.die_before, self.die_after = die_before, die_after

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        rounds = {int(m.metadata.group_id) for m in messages if m.metadata.message_type == "train"}
        if self.die_before in rounds:
            raise Killed
        for message in messages:
            self.requests[(message.metadata.message_type, message.metadata.group_id, message.metadata.dst_node_id)] += 1
        replies = super().send_and_receive(messages)
        if self.die_after in rounds:
            raise Killed
        return replies


def result(settings):
    folder = RunFolder(settings)
    times = ("_ms", "seconds")
    rows = [{k: v for k, v in row.items() if not k.endswith(times)} for row in folder.read_metrics()]
    return rows, json.loads((folder.path / "ledger.json").read_text())


@pytest.fixture
def reference(tiny, tmp_path):
    settings = tiny(out_dir=str(tmp_path / "reference"), num_rounds=7, server_momentum=0.5)
    return server.run(InProcessGrid(app, settings), settings), *result(settings)


def kill_points():
    return [("before", 1), ("before", 3), ("after", 3), ("before", 4), ("after", 5), ("after", 7)]


@pytest.mark.parametrize(("when", "round"), kill_points())
def test_resume_is_bit_identical_after_a_kill_around_a_round(tiny, reference, when, round):
    settings = tiny(num_rounds=7, server_momentum=0.5)
    grid = CountingGrid(settings, **{f"die_{when}": round})
    with pytest.raises(Killed):
        server.run(grid, settings)
    resumed = tiny(num_rounds=7, server_momentum=0.5, resume=True)
    second = CountingGrid(resumed)
    summary = server.run(second, resumed)
    assert summary["generator_digest"] == reference[0]["generator_digest"]
    assert result(resumed) == reference[1:]
    asked_again = [key for key in second.requests if key[0] == "train" and int(key[1]) < round]
    assert asked_again == []


@pytest.mark.parametrize("method", ["accept", "apply", "checkpoint", "spend"])
def test_resume_is_bit_identical_after_a_kill_inside_the_server(tiny, reference, monkeypatch, method):
    """Die inside the third call of each state-changing method, after what it had written so far."""
    settings = tiny(num_rounds=7, server_momentum=0.5)
    original, calls = getattr(ServerState, method), []

    def dying(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            if method == "accept":  # journalled, not applied
                monkeypatch.setattr(ServerState, "apply", lambda *a: (_ for _ in ()).throw(Killed()))
                original(self, *arguments)
            if method == "checkpoint":  # written, journal not cleared
                monkeypatch.setattr(Journal, "clear", lambda self: (_ for _ in ()).throw(Killed()))
                original(self, *arguments)
            raise Killed
        return original(self, *arguments)

    monkeypatch.setattr(ServerState, method, dying)
    with pytest.raises(Killed):
        server.run(InProcessGrid(app, settings), settings)
    monkeypatch.undo()
    resumed = tiny(num_rounds=7, server_momentum=0.5, resume=True)
    summary = server.run(InProcessGrid(app, resumed), resumed)
    assert summary["generator_digest"] == reference[0]["generator_digest"]
    assert result(resumed) == reference[1:]


def test_secret_release_that_was_lost_stays_spent_and_is_not_made_again(tiny):
    """Without determinism, and with clients whose ledgers are gone, round 3 was asked and never arrived."""
    settings = tiny(num_rounds=7, deterministic=False)
    with pytest.raises(Killed):
        server.run(CountingGrid(settings, die_after=3), settings)
    resumed = tiny(num_rounds=7, deterministic=False, resume=True)
    grid = CountingGrid(resumed)
    summary = server.run(grid, resumed)
    assert not [key for key in grid.requests if key[:2] == ("train", "3")]
    row = RunFolder(resumed).read_metrics()[2]
    assert row["clients"] == []
    assert all("lost" in reason for reason in row["failed"].values())
    assert summary["privacy"]["epsilon"] == pytest.approx(16.0)


def test_secret_release_is_repeated_where_the_clients_ledgers_survive(tiny):
    """The same clients come back (state kept): they answer with the same bytes, nothing is spent twice."""
    settings = tiny(num_rounds=7, deterministic=False)
    grid = CountingGrid(settings, die_after=3)
    with pytest.raises(Killed):
        server.run(grid, settings)
    resumed = tiny(num_rounds=7, deterministic=False, resume=True)
    second = CountingGrid(resumed)
    for node, context in second.contexts.items():
        context.state = grid.contexts[node].state
    server.run(second, resumed)
    assert len(RunFolder(resumed).read_metrics()[2]["clients"]) == 2
    spent = [len(StateLedger(context.state).events()) for context in second.contexts.values()]
    assert sum(spent) == 6 + 14


def test_contexts_that_were_lost_are_not_released_twice(tiny, monkeypatch):
    settings = tiny(deterministic=False)
    original = CountingGrid.send_and_receive

    def die_in_contexts(self, messages, *, timeout=None):
        messages = list(messages)
        if any(m.metadata.message_type == "query.context" for m in messages):
            raise Killed
        return original(self, messages)

    monkeypatch.setattr(CountingGrid, "send_and_receive", die_in_contexts)
    with pytest.raises(Killed):
        server.run(CountingGrid(settings), settings)
    monkeypatch.undo()
    resumed = tiny(deterministic=False, resume=True)
    with pytest.raises(FederationError, match="not released twice"):
        server.run(InProcessGrid(app, resumed), resumed)


def interrupted(tiny, round=6):
    """A run killed before round `round`; checkpoint at 3, journal up to there."""
    settings = tiny(num_rounds=7)
    with pytest.raises(Killed):
        server.run(CountingGrid(settings, die_before=round), settings)
    return RunFolder(settings)


def without(line):
    def change(folder):
        lines = folder.journal.read_bytes().splitlines(keepends=True)
        del lines[line]
        folder.journal.write_bytes(b"".join(lines))

    return change


def other_number(folder):
    """One bit of one tensor, which safetensors does not notice."""
    content = bytearray(folder.checkpoint.read_bytes())
    content[-5] ^= 1
    folder.checkpoint.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: folder.journal.unlink(), "counted as never released"),
        (lambda folder: folder.checkpoint.unlink(), "a part is lost"),
        (without(0), "one before it is lost"),
        (without(1), "one before it is lost"),
        (
            lambda folder: folder.journal.write_bytes(folder.journal.read_bytes()[:-1] + b"\x0b"),
            "whole but for its end",
        ),
        (other_number, "seal"),
        (lambda folder: folder.checkpoint.write_bytes(folder.checkpoint.read_bytes()[:-9]), "damaged"),
    ],
)
def test_a_folder_that_lost_a_part_is_not_resumed(tiny, damage, named):
    """Resuming would release again, or count too little."""
    folder = interrupted(tiny)
    damage(folder)
    resumed = tiny(num_rounds=7, resume=True)
    with pytest.raises(CannotResume, match=named):
        server.run(InProcessGrid(app, resumed), resumed)


def test_a_release_that_was_never_asked_for_is_not_accepted(tiny):
    """A journal that is sealed and wrong: somebody wrote it."""
    folder = interrupted(tiny)
    facts = [fact for fact in Journal(folder.journal).read() if not (fact["kind"] == "asked" and fact["round"] == 4)]
    folder.journal.unlink()
    journal = Journal(folder.journal)
    for fact in facts:
        journal.append(fact.pop("kind"), **fact)
    resumed = tiny(num_rounds=7, resume=True)
    with pytest.raises(CannotResume, match="a part is lost"):
        server.run(InProcessGrid(app, resumed), resumed)


def test_checkpoint_of_other_settings_is_refused(tiny):
    settings = tiny(run_name="same", num_rounds=7)
    with pytest.raises(Killed):
        server.run(CountingGrid(settings, die_before=5), settings)
    changed = tiny(run_name="same", num_rounds=7, epsilon=8.0, resume=True)
    with pytest.raises(ValueError, match="other settings"):
        server.run(InProcessGrid(app, changed), changed)
