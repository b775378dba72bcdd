"""What kill -9 and a cut network do to a run of real processes (minutes: `make test-recovery`).

Observed outcomes are in docs/deployment.md, "When something dies".
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from client_app.sqlite_ledger import SqliteLedger
from deployment.follow import follow, submit
from deployment.layout import Layout
from deployment.local import LocalFederation
from deployment.pki import initialise
from server_app.results import RunFolder
from simulations.run import run_in_process
from tests.runs import processes_of

pytestmark = [pytest.mark.recovery, pytest.mark.timeout(1500)]

ROUNDS = 6
KILL_AFTER_ROUND = 2


@pytest.fixture
def layout(tmp_path):
    """A federation of its own for every scenario."""
    layout = Layout(tmp_path / "deploy")
    initialise(layout, nodes=4)
    return layout


@pytest.fixture
def settings(four):
    return four(num_rounds=ROUNDS, run_name="recovery", round_timeout=150.0, checkpoint_every=4)


@pytest.fixture
def uninterrupted(settings, tmp_path):
    """Digest of ω of the same run without any interruption."""
    import dataclasses

    here = dataclasses.replace(settings, out_dir=str(tmp_path / "here"))
    list(run_in_process(here))
    return json.loads(RunFolder(here).summary.read_text())["generator_digest"]


class Incident:
    """Something that happens once, as soon as a round's metrics are there; measures how long the next round takes."""

    def __init__(self, settings, happen, after=KILL_AFTER_ROUND):
        self._metrics, self._happen, self._after = RunFolder(settings).metrics, happen, after
        self.time = None
        self.recovered = None

    def __call__(self):
        rounds = len(self._metrics.read_text().splitlines()) if self._metrics.exists() else 0
        if self.time is None and rounds >= self._after:
            self.time = time.monotonic()
            self._happen()
        elif self.time is not None and self.recovered is None and rounds > self._after:
            self.recovered = time.monotonic() - self.time


def run(federation, settings, incident):
    def look_after():
        incident()
        federation.alive()

    run_id = submit(federation.flwr, settings)
    options = dict(results=Path(settings.out_dir), look_after=look_after, log_tail=federation.log_tail)
    rows = list(follow(federation.flwr, settings, run_id, **options))
    print(f"\nnext round {incident.recovered:.0f} s after the incident; failed replies "
          f"{sum(len(row['failed']) for row in rows)}")  # fmt: skip
    return rows


def check_ledgers(layout, settings):
    """Whatever happened: the server never counts less than a client has released."""
    summary = json.loads(RunFolder(settings).summary.read_text())
    counted = json.loads((RunFolder(settings).path / "ledger.json").read_text())
    for node in range(4):
        own = [event for _, event in SqliteLedger(layout.local / f"node-{node}" / "state" / "ledger.sqlite").rows()]
        assert own
        assert {event.round for event in own} <= {event["round"] for event in counted if event["client"] == node}
    assert len({(event["client"], event["round"]) for event in counted}) == len(counted)
    return summary


def kill(process):
    process.signal(signal.SIGKILL)


def kill_app(federation, name, patience=0.0):
    """The app's process itself, by its name and FLWR_HOME; waits up to `patience` seconds for one."""
    deadline = time.monotonic() + patience
    while not (found := processes_of(federation.layout.local, name)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found, f"no {name} to kill"
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def test_killed_superlink(layout, settings, uninterrupted, start_nodes):
    """The run survives: nodes and ServerApp reconnect, nothing is asked again, ω is the uninterrupted run's."""
    with LocalFederation(layout) as federation:
        start_nodes(federation, settings, range(4))
        run(federation, settings, Incident(settings, lambda: kill(federation.superlink)))
        assert federation.superlink.starts == 2
    assert check_ledgers(layout, settings)["generator_digest"] == uninterrupted


def test_killed_serverapp(layout, settings, uninterrupted, start_nodes):
    """Submitted again, it goes on from checkpoint and journal; clients repeat their bytes; ω is the uninterrupted run's."""
    with LocalFederation(layout) as federation:
        start_nodes(federation, settings, range(4))
        run(federation, settings, Incident(settings, lambda: kill_app(federation, "flwr-serverapp")))
    assert check_ledgers(layout, settings)["generator_digest"] == uninterrupted


def test_killed_supernode(layout, settings, start_nodes):
    """Rounds go on without it; it is admitted again once its last heartbeat is a minute old; its spent releases count."""
    with LocalFederation(layout) as federation:
        start_nodes(federation, settings, range(4))
        rows = run(federation, settings, Incident(settings, lambda: kill(federation.nodes[0])))
        assert federation.nodes[0].starts >= 2
        assert all(set(row["failed"]) <= {"0"} for row in rows)
        assert [len(row["clients"]) + len(row["failed"]) for row in rows] == [2] * ROUNDS
        deadline = time.monotonic() + 150
        while len(federation.online()) < 4 and time.monotonic() < deadline:  # admitted again
            federation.alive()
            time.sleep(1.0)
        assert len(federation.online()) == 4
    check_ledgers(layout, settings)


def test_killed_clientapp(layout, settings, uninterrupted, start_nodes):
    """The process that computes a release dies. Either Flower has another one do the task, with the same bytes from the
    ledger if it got that far, or the round goes on without that client, whose release stays spent."""
    with LocalFederation(layout) as federation:
        start_nodes(federation, settings, range(4))
        incident = Incident(settings, lambda: kill_app(federation, "flwr-clientapp", patience=60))
        rows = run(federation, settings, incident)
        assert sum(process.starts for process in federation.nodes.values()) == 4
    lost = [(row["round"], client) for row in rows for client in row["failed"]]
    assert len(lost) <= 2  # those of one round, never more
    assert len({round for round, _ in lost}) <= 1
    assert (check_ledgers(layout, settings)["generator_digest"] == uninterrupted) == (not lost)


class Cable:
    """A TCP connection to the SuperLink that can be cut: a proxy for one node; TLS goes through it unread."""

    def __init__(self, port):
        self._target, self._cut = port, False
        self._sockets = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._cut:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            end.close()

    def cut(self, seconds):
        """No byte for a while, in either direction."""
        self._cut = True
        for end in self._sockets:
            end.close()
        threading.Timer(seconds, self._mend).start()

    def _mend(self):
        self._cut = False


@pytest.mark.parametrize("seconds", [15, 100])
def test_cut_network_of_a_node(layout, settings, uninterrupted, start_nodes, seconds):
    """A reply that is lost in the cut is not sent again: its round goes on without the node, whose release stays spent."""
    with LocalFederation(layout) as federation:
        cable = Cable(federation.port)
        start_nodes(federation, settings, [1, 2, 3])
        direct = federation.address
        federation.address = f"127.0.0.1:{cable.port}"
        start_nodes(federation, settings, [0])
        federation.address = direct
        rows = run(federation, settings, Incident(settings, lambda: cable.cut(seconds)))
    summary = check_ledgers(layout, settings)
    lost = [row["round"] for row in rows if row["failed"]]
    # At most the round in flight and, for a cut longer than two heartbeats, those until the node is back.
    assert len(lost) <= (1 if seconds < 60 else 3)
    assert all(set(row["failed"]) == {"0"} for row in rows if row["failed"])
    assert (summary["generator_digest"] == uninterrupted) == (not lost)
