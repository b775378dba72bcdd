"""The durable ledger: one SQLite file in the client's state directory, for all runs on these records.

Write-ahead log, flushed to disk (fsync) before a release is computed and again before its bytes leave. Deployment starts
a process per message: a release is checked and spent in one exclusive transaction.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from client_app.ledger import Check
from common.files import created_whole
from common.privacy.events import GaussianRelease
from common.protocol import Refusal, RequestRefused

LEDGER = "ledger.sqlite"
_BUSY_SECONDS = 60.0
_SCHEMA_VERSION = 2
_SCHEMA = """
CREATE TABLE releases (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    round INTEGER NOT NULL,
    digest TEXT NOT NULL,
    event TEXT NOT NULL,
    committed TEXT NOT NULL,
    seal TEXT NOT NULL,
    message BLOB,
    UNIQUE (run, round)
) STRICT;
CREATE TABLE head (releases INTEGER NOT NULL, seal TEXT NOT NULL) STRICT;
INSERT INTO head VALUES (0, '')
"""


class LedgerError(RuntimeError):
    """The ledger cannot be read or written, so nothing may be released; the message says how to go on."""


class SqliteLedger:
    """See `client_app.ledger.ReleaseLedger`.

    Args:
        path: the file; `create` makes it.

    Raises:
        LedgerError: by every method, where the file is missing, damaged, foreign, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        """Make an empty ledger, unless there is one. It appears whole, so a file without a table is never a new one."""
        if self._path.exists():
            return
        try:
            with (
                created_whole(self._path) as temporary,
                contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as database,
            ):
                database.executescript(_SCHEMA)
                database.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(self._advice(error)) from error

    def events(self, run: str | None = None) -> list[GaussianRelease]:
        """See `ReleaseLedger.events`."""
        rows = self.rows()
        return over_all_runs(rows) if run is None else [event for name, event in rows if name == run]

    def rows(self) -> list[tuple[str, GaussianRelease]]:
        """(run, event) of everything spent, in order."""
        with self._open() as database:
            return _rows(database)

    def stored(self, run: str, digest: str, round: int) -> bytes | None:
        """See `ReleaseLedger.stored`."""
        with self._open() as database:
            found = database.execute(
                "SELECT digest, message FROM releases WHERE run = ? AND round = ?", (run, round)
            ).fetchone()
        if found is None:
            return None
        if found[0] != digest:
            raise RequestRefused(Refusal.REPEATED, f"round {round} of {run} was spent with another request")
        if found[1] is None:
            raise RequestRefused(Refusal.REPEATED, f"round {round} of {run} was spent and its message is gone")
        return bytes(found[1])

    def commit(self, run: str, digest: str, event: GaussianRelease, check: Check) -> None:
        """See `ReleaseLedger.commit`."""
        with self._open() as database, _exclusive(database):
            rows = _rows(database)
            if any(name == run and spent.round == event.round for name, spent in rows):
                raise RequestRefused(Refusal.REPEATED, f"round {event.round} of {run} was spent")
            check([*(spent for name, spent in rows if name == run), event], over_all_runs([*rows, (run, event)]))
            _insert(database, run, digest, event)

    def add(self, run: str, events: Iterable[GaussianRelease]) -> int:
        """Book releases that another record of them proves (a server's ledger.json), after a restored back-up; those that
        are there already stay. Returns how many were added."""
        with self._open() as database, _exclusive(database):
            there = {(name, spent.round) for name, spent in _rows(database)}
            new = [event for event in events if (run, event.round) not in there]
            for event in new:
                _insert(database, run, f"added from elsewhere: {run} round {event.round}", event)
        return len(new)

    def finish(self, digest: str, message: bytes) -> None:
        """See `ReleaseLedger.finish`."""
        with self._open() as database, _exclusive(database):
            changed = database.execute(
                "UPDATE releases SET message = ? WHERE digest = ? AND message IS NULL", (message, digest)
            ).rowcount
            if changed != 1:
                raise ValueError(f"only a committed event without bytes can be finished. Received {digest}.")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            # Mode rw: a ledger that has gone is an error, never a new one.
            name = f"{self._path.resolve().as_uri()}?mode=rw"
            database = sqlite3.connect(name, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(self._advice(error)) from error
        try:
            _prepare(database)
            yield database
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise LedgerError(self._advice(error)) from error
        finally:
            database.close()

    def _advice(self, error: Exception) -> str:
        return (
            f"The ledger {self._path} cannot be used ({error}), so nothing is released. Full disk, read-only folder or a lock "
            "that another program holds: make room or mend that, then ask again. Damage or loss: restore the newest back-up "
            "and add what was released since (papfl ledger add, from the servers' ledger.json, which papfl ledger export makes "
            "for an unfinished run); without a back-up, these records' budget counts as spent."
        )


def _prepare(database: sqlite3.Connection) -> None:
    """Durability of this connection; refuses what is not a ledger of this format."""
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    problem = database.execute("PRAGMA quick_check").fetchone()[0]
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != _SCHEMA_VERSION:
        raise sqlite3.DatabaseError(f"format {version}, this papfl knows {_SCHEMA_VERSION}")


@contextmanager
def _exclusive(database: sqlite3.Connection) -> Iterator[None]:
    """One transaction that no other process can interleave with; undone by any exception."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
        # Into the file that is sealed: SQLite drops a damaged end of its write-ahead log without a word.
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def over_all_runs(rows: list[tuple[str, GaussianRelease]]) -> list[GaussianRelease]:
    """What all runs together cost. Positions of different runs may name different records (another seed, another
    manifest), so what a run spent on some records counts for all of them as soon as there are two runs."""
    if len({run for run, _ in rows}) < 2:
        return [event for _, event in rows]
    return [dataclasses.replace(event, records=None) for _, event in rows]


def _insert(database: sqlite3.Connection, run: str, digest: str, event: GaussianRelease) -> None:
    committed = datetime.now(UTC).isoformat(timespec="seconds")
    (before,) = database.execute("SELECT seal FROM head").fetchone()
    text = json.dumps(event.to_json())
    seal = _seal(before, run, event.round, digest, text)
    database.execute(
        "INSERT INTO releases (run, round, digest, event, committed, seal) VALUES (?, ?, ?, ?, ?, ?)",
        (run, event.round, digest, text, committed, seal),
    )
    database.execute("UPDATE head SET releases = releases + 1, seal = ?", (seal,))


def _seal(before: str, run: str, round: int, digest: str, event: str) -> str:
    """A hash over this release and all before it: SQLite notices a torn page, but not a changed digit or a lost row. The
    table `head` has the number of releases and the last hash."""
    return hashlib.sha256(json.dumps([before, run, round, digest, event]).encode()).hexdigest()


def _rows(database: sqlite3.Connection) -> list[tuple[str, GaussianRelease]]:
    found = database.execute("SELECT run, round, digest, event, seal FROM releases ORDER BY id").fetchall()
    before = ""
    result: list[tuple[str, GaussianRelease]] = []
    try:
        for run, round, digest, event, seal in found:
            if seal != _seal(before, run, round, digest, event):
                raise sqlite3.DatabaseError(f"release {len(result) + 1} is not the one that was written")
            before = seal
            result.append((run, GaussianRelease.from_json(json.loads(event))))
    except (ValueError, KeyError, TypeError) as error:
        raise sqlite3.DatabaseError(f"a release cannot be read: {error}") from error
    if database.execute("SELECT releases, seal FROM head").fetchall() != [(len(result), before)]:
        raise sqlite3.DatabaseError(f"{len(result)} releases are there, others were written")
    return result
