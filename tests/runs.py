"""What tests of whole runs look at: the outcome of a run, and the processes that it has left behind."""

import json
import os
from pathlib import Path

import pytest

from client_app.app import app
from server_app.app import run
from server_app.results import RunFolder
from simulations.grid import InProcessGrid


def outcome(settings):
    """Everything of a run that must be equal bit for bit in every backend: metrics without times, ledger, ω, accuracy."""
    folder = RunFolder(settings)
    rows = [{k: v for k, v in r.items() if not k.endswith(("_ms", "seconds"))} for r in folder.read_metrics()]
    summary = json.loads(folder.summary.read_text())
    return rows, json.loads((folder.path / "ledger.json").read_text()), summary["generator_digest"], summary["accuracy"]


def run_until(settings, round):
    """A run in this process that is interrupted when the clients of a round are asked."""
    grid = InProcessGrid(app, settings)
    deliver = grid.deliver

    def die(message):
        if message.metadata.message_type == "train" and message.metadata.group_id == str(round):
            raise KeyboardInterrupt
        return deliver(message)

    grid.deliver = die
    with pytest.raises(KeyboardInterrupt):
        run(grid, settings)


def processes_of(home, name=""):
    """Ids of processes whose FLWR_HOME is `home` or below it and whose command line has `name`; not this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment, command = (path / "environ").read_bytes(), (path / "cmdline").read_bytes()
        except OSError:
            continue
        if f"FLWR_HOME={home}".encode() in environment and name.encode() in command and int(path.name) != os.getpid():
            found.append(int(path.name))
    return found
