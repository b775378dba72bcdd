"""One run, by `flwr run` on Ray virtual clients or in this process; both watch the same files and end the same way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.command import federation_config
from common.data.cache import require_cached
from common.flower import SuperLinkError
from common.places import expand, require_writable
from common.rules import make_rules
from common.settings import Settings
from server_app.results import RunFolder
from simulations.superlink import LocalSuperLink

_POLL_SECONDS = 0.5
_STATUS_SECONDS = 30.0

Row = dict[str, Any]


def app_directory() -> Path:
    """The checkout: `flwr run` bundles the app from there.

    Raises:
        SuperLinkError: papfl is installed without its pyproject.toml.
    """
    path = Path(__file__).resolve().parent.parent
    if not (path / "pyproject.toml").is_file():
        raise SuperLinkError(f"flwr run needs papfl's source tree (an editable install). Received {path}.")
    return path


def check(settings: Settings) -> None:
    """Everything that can be refused before a process is started or a file is written.

    Raises:
        ValueError: settings that don't go together, a finished or unfinished run of the same name.
        DataError: the data set is not in the cache.
    """
    make_rules(settings)
    if settings.dataset == "own":
        raise ValueError(
            "dataset must be mnist or cifar10 in simulation; own records live in nodes (papfl deploy). Received 'own'."
        )
    require_cached(settings.dataset, expand("data-dir", settings.data_dir))
    folder = RunFolder(settings)
    require_writable("out-dir", folder.path)
    folder.check(resume=settings.resume)


def run_on_ray(settings: Settings, gpus: float = 0.0) -> Iterator[Row]:
    """Run by `flwr run`; yields the metrics of every round as they are written.

    Raises:
        ValueError, DataError: see `check`; at once, before the first row is asked for.
        SuperLinkError: the run did not complete, with the cause.
    """
    check(settings)
    return _run_on_ray(settings, gpus)


def _run_on_ray(settings: Settings, gpus: float) -> Iterator[Row]:
    folder = RunFolder(settings)
    folder.failure.unlink(missing_ok=True)
    with LocalSuperLink() as superlink:
        run_id = superlink.flwr.submit(app_directory(), settings.to_config(), federation_config(settings, gpus))
        rows = Tail(folder.metrics)
        next_status = time.monotonic() + _STATUS_SECONDS
        while True:
            yield from rows.new()
            ended = folder.summary.exists() or folder.failure.exists() or not superlink.alive()
            if ended or time.monotonic() > next_status:
                next_status = time.monotonic() + (1.0 if ended else _STATUS_SECONDS)
                status, details = superlink.flwr.status(run_id) if superlink.alive() else ("SuperLink died", "")
                if status == "finished:completed" and folder.summary.exists():
                    yield from rows.new()
                    return
                if status.startswith("finished") or not superlink.alive():
                    cause = folder.read_failure() or f"{details}\n{superlink.log_tail()}"
                    raise SuperLinkError(f"The run ended as {status!r}: {cause}")
            time.sleep(_POLL_SECONDS)


def run_in_process(settings: Settings) -> Iterator[Row]:
    """The same run without processes; yields the same rows, and raises the same at once."""
    check(settings)
    return _run_in_process(settings)


def _run_in_process(settings: Settings) -> Iterator[Row]:
    from client_app.app import app
    from server_app.app import run
    from simulations.grid import InProcessGrid

    failure: list[BaseException] = []

    def target() -> None:
        try:
            run(InProcessGrid(app, settings), settings)
        except BaseException as error:
            failure.append(error)

    rows = Tail(RunFolder(settings).metrics)
    worker = threading.Thread(target=target, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(_POLL_SECONDS)
        yield from rows.new()
    if failure:
        raise failure[0]


class Tail:
    """New whole lines of a growing JSON-lines file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[Row]:
        """Rows that have appeared since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield json.loads(line)
