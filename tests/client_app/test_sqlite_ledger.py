"""The durable ledger: what survives, what is refused, and that a kill at any step leaves nothing under-counted."""

import os
import signal
import sqlite3
import threading

import pytest

from client_app import sqlite_ledger
from client_app.sqlite_ledger import LedgerError, SqliteLedger
from common.privacy.accountant import RdpAccountant, worst_record_rho
from common.privacy.events import GaussianRelease
from common.protocol import Refusal, RequestRefused


def release(round, noise=0.5, client=0, records=None):
    kind = "context" if round == 0 else "gradient"
    return GaussianRelease(client, round, kind, 0.006, noise, records)


def accept(of_run, of_all):
    """No limit."""


@pytest.fixture
def ledger(tmp_path):
    made = SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    made.create()
    return made


def spend(ledger, round, run="r", message=b"bytes", check=accept):
    ledger.commit(run, f"{run}-{round}", release(round), check)
    ledger.finish(f"{run}-{round}", message)


def test_releases_come_back_as_they_were_spent(ledger):
    event = release(3, noise=0.1 + 0.2, records=(4, 7))
    ledger.commit("r", "digest", event, accept)
    assert ledger.rows() == [("r", event)]


@pytest.mark.parametrize("round", [0, 1])
def test_a_repeated_request_gets_the_same_bytes_and_a_changed_one_is_refused(ledger, round):
    """Round 0 is the context."""
    spend(ledger, round, message=bytes(range(256)))
    assert ledger.stored("r", f"r-{round}", round) == bytes(range(256))
    assert ledger.stored("r", "r-2", 2) is None
    with pytest.raises(RequestRefused) as error:
        ledger.stored("r", "another", round)
    assert error.value.code == Refusal.REPEATED
    with pytest.raises(RequestRefused):
        ledger.commit("r", "another", release(round), accept)
    assert len(ledger.events()) == 1


def test_committed_without_bytes_stays_spent_and_is_refused(ledger):
    ledger.commit("r", "r-1", release(1), accept)
    with pytest.raises(RequestRefused) as error:
        ledger.stored("r", "r-1", 1)
    assert error.value.code == Refusal.REPEATED


def test_every_round_keeps_its_bytes(ledger):
    """A server that goes on from an old checkpoint asks for old rounds again."""
    for round in range(5):
        spend(ledger, round, message=bytes([round]))
    assert [ledger.stored("r", f"r-{round}", round) for round in range(5)] == [bytes([round]) for round in range(5)]


def test_budgets_add_up_over_runs_and_restarts(ledger, tmp_path):
    limit = 0.5

    def check(of_run, of_all):
        if RdpAccountant().epsilon(worst_record_rho(of_all), 1e-5) > limit:
            raise RequestRefused(Refusal.BUDGET, "over")

    spent = 0
    with pytest.raises(RequestRefused):
        for run in ("first", "second", "third"):
            for round in range(40):
                spend(SqliteLedger(tmp_path / "state" / "ledger.sqlite"), round, run=run, check=check)
                spent += 1
    assert spent > 40  # the second run did not start anew
    assert len(ledger.events()) == spent
    used = RdpAccountant().epsilon(worst_record_rho(ledger.events()), 1e-5)
    assert used <= limit < RdpAccountant().epsilon(worst_record_rho([*ledger.events(), release(1)]), 1e-5)


def test_two_processes_cannot_both_pass_the_check(ledger, tmp_path):
    """Twenty threads with connections of their own race for ten releases."""

    def check(of_run, of_all):
        if len(of_all) > 10:
            raise RequestRefused(Refusal.BUDGET, "over")

    refused = []

    def race(round):
        try:
            SqliteLedger(tmp_path / "state" / "ledger.sqlite").commit("r", f"d{round}", release(round), check)
        except RequestRefused:
            refused.append(round)

    threads = [threading.Thread(target=race, args=(round,)) for round in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.events()) == 10
    assert len(refused) == 10


STEPS = ("before commit", "inside commit", "after commit", "after compute", "inside finish", "after finish", "sent")


@pytest.mark.parametrize("step", STEPS)
def test_kill_9_between_any_two_steps(ledger, tmp_path, step):
    """A child releases round 1 and is killed at `step`. Nothing has left that isn't counted; asking again brings the same
    bytes or a refusal; and it is never counted twice."""
    sent = tmp_path / "sent"
    child = os.fork()
    if child == 0:
        try:
            _release_and_die(ledger, sent, step)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    again = SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    counted = len(again.events())
    assert counted == (0 if step in ("before commit", "inside commit") else 1)
    if sent.exists():
        assert counted == 1
        assert again.stored("r", "r-1", 1) == sent.read_bytes()
    elif step == "after finish":
        assert again.stored("r", "r-1", 1) == b"noisy"
    elif counted:
        with pytest.raises(RequestRefused):
            again.stored("r", "r-1", 1)
        with pytest.raises(RequestRefused):
            again.commit("r", "r-1", release(1), accept)
    else:
        spend(again, 1)
    assert len(again.events()) == 1


def _release_and_die(ledger, sent, step):
    def die(at):
        if at == step:
            os.kill(os.getpid(), signal.SIGKILL)

    class Dying(sqlite3.Connection):
        """Dies in the middle of a transaction: written, not committed."""

        place = "inside commit"

        def execute(self, sql, *parameters):
            if sql == "COMMIT":
                die(self.place)
            return super().execute(sql, *parameters)

    original = sqlite3.connect
    sqlite_ledger.sqlite3.connect = lambda *a, **k: original(*a, factory=Dying, **k)
    die("before commit")
    ledger.commit("r", "r-1", release(1), accept)
    die("after commit")
    die("after compute")
    Dying.place = "inside finish"
    ledger.finish("r-1", b"noisy")
    die("after finish")
    sent.write_bytes(b"noisy")
    die("sent")


def test_a_full_disk_refuses_before_anything_is_computed(ledger, monkeypatch):
    spend(ledger, 1)
    original = sqlite_ledger._prepare

    def small(database):
        original(database)
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")

    monkeypatch.setattr(sqlite_ledger, "_prepare", small)
    round = 2
    with pytest.raises(LedgerError, match=r"full.*make room"):
        for round in range(2, 500):
            ledger.commit("r", f"r-{round}", release(round), accept)
    monkeypatch.undo()
    assert len(ledger.events()) == round - 1  # what was refused is not counted, what was accepted is
    spend(ledger, round)


def test_a_full_disk_after_the_commit_keeps_the_release_spent(ledger, monkeypatch):
    ledger.commit("r", "r-1", release(1), accept)
    original = sqlite_ledger._prepare

    def small(database):
        original(database)
        database.execute(f"PRAGMA max_page_count = {database.execute('PRAGMA page_count').fetchone()[0]}")

    monkeypatch.setattr(sqlite_ledger, "_prepare", small)
    with pytest.raises(LedgerError, match="full"):
        ledger.finish("r-1", bytes(1_000_000))
    monkeypatch.undo()
    assert len(ledger.events()) == 1
    with pytest.raises(RequestRefused):
        ledger.stored("r", "r-1", 1)


def damaged(path):
    data = bytearray(path.read_bytes())
    data[4096:8192] = os.urandom(4096)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "damage",
    [
        damaged,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not a database, but long enough to look at" * 100),
        lambda path: path.unlink(),
        lambda path: sqlite3.connect(path).execute("PRAGMA user_version = 7").connection.close(),
    ],
    ids=["pages", "empty", "foreign", "gone", "format"],
)
def test_a_damaged_or_lost_ledger_releases_nothing_and_says_how_to_go_on(ledger, damage):
    for round in range(60):
        spend(ledger, round)
    database = sqlite3.connect(ledger._path)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    damage(ledger._path)
    for call in (
        lambda: ledger.commit("new", "d", release(1), accept),
        lambda: ledger.stored("r", "r-1", 1),
        ledger.events,
    ):
        with pytest.raises(LedgerError, match="restore the newest back-up"):
            call()


@pytest.mark.parametrize(
    "change",
    [
        """UPDATE releases SET event = replace(event, '0', '1') WHERE round = 2""",
        "UPDATE releases SET round = 9 WHERE round = 2",
        "DELETE FROM releases WHERE round = 1",
        "DELETE FROM releases WHERE round = 3",
        "DELETE FROM releases",
        "DELETE FROM head",
    ],
)
def test_a_ledger_that_says_something_else_is_refused(ledger, change):
    """What SQLite takes for sound: a changed digit, a lost row, also the last."""
    for round in range(4):
        spend(ledger, round)
    database = sqlite3.connect(ledger._path)
    changed = database.execute(change).rowcount
    database.commit()
    database.close()
    assert changed > 0
    for call in (ledger.events, lambda: ledger.commit("r", "new", release(9), accept)):
        with pytest.raises(LedgerError, match="restore the newest back-up"):
            call()


def test_nothing_waits_in_the_write_ahead_log(ledger):
    """SQLite drops its damaged end without a word: what is committed is in the sealed file."""
    spend(ledger, 0)
    with ledger._open() as database:
        ledger.commit("r", "d", release(1), accept)
        log = ledger._path.with_name(ledger._path.name + "-wal")
        assert not log.exists() or log.stat().st_size == 0
        assert len(database.execute("SELECT * FROM releases").fetchall()) == 2


def test_creating_again_changes_nothing(ledger):
    spend(ledger, 1)
    ledger.create()
    assert len(ledger.events()) == 1


def test_two_runs_on_single_records_count_for_all_records(ledger):
    """Position 3 of one run may be position 8 of the next: what each spent on some records adds up."""
    ledger.commit("first", "a", release(1, records=(3,)), accept)
    one = worst_record_rho(ledger.events())
    ledger.commit("second", "b", release(1, records=(8,)), accept)
    assert worst_record_rho(ledger.events()) == pytest.approx(2 * one)
    assert [event.records for event in ledger.events("second")] == [(8,)]


def test_releases_that_a_server_proves_are_added_once(ledger):
    spend(ledger, 0)
    assert ledger.add("r", [release(0), release(1), release(2)]) == 2
    assert ledger.add("r", [release(0), release(1), release(2)]) == 0
    assert [event.round for event in ledger.events("r")] == [0, 1, 2]
    with pytest.raises(RequestRefused):
        ledger.stored("r", "r-1", 1)
