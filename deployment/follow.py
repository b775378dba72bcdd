"""Submit a run to a SuperLink and follow it to its true end; `flwr run` itself returns 0 for a failed run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common.flower import FlowerCli, SuperLinkError
from common.settings import Settings
from server_app.results import RunFolder
from simulations.run import Tail, app_directory

_POLL_SECONDS = 1.0
_STATUS_SECONDS = 10.0
_SILENCE_SECONDS = 300.0


def submit(flwr: FlowerCli, settings: Settings) -> int:
    """Send app and settings; returns the run id.

    Raises:
        SuperLinkError: refused.
    """
    return flwr.submit(app_directory(), settings.to_config())


def follow(
    flwr: FlowerCli,
    settings: Settings,
    run_id: int,
    *,
    results: Path,
    look_after: Callable[[], object] = lambda: None,
    log_tail: Callable[[], str] = lambda: "",
    attempts: int = 3,
) -> Iterator[dict[str, Any]]:
    """Metrics of every round as they appear, until the run is complete.

    A ServerApp that died (and did not say why it ended) is submitted again, to go on where it was: nothing that a client
    has released is asked for again.

    Args:
        results: folder of run folders as seen from here; the settings' out-dir is the ServerApp's view of it.
        look_after: called between polls.
        attempts: submissions in all.

    Raises:
        SuperLinkError: the run did not complete, with the cause, or its results are not in `results`.
    """
    folder = RunFolder(dataclasses.replace(settings, out_dir=str(results)))
    rows = Tail(folder.metrics)
    next_status = time.monotonic() + _STATUS_SECONDS
    heard = time.monotonic()
    while True:
        look_after()
        yield from rows.new()
        if time.monotonic() > next_status or folder.failure.exists():
            next_status = time.monotonic() + _STATUS_SECONDS
            try:
                status, details = flwr.status(run_id)
            except SuperLinkError as error:  # it is being started again
                status, details = "unknown", str(error)
            if status == "running":
                heard = time.monotonic()
            elif time.monotonic() - heard > _SILENCE_SECONDS and not status.startswith("finished"):
                raise SuperLinkError(
                    f"The run has been {status!r} for {_SILENCE_SECONDS:g} s: {details}. Is the ServerApp executor up, with the "
                    f"SuperLink's secret?\n{log_tail()}"
                )
            complete = settings.task == "train" and folder.summary.exists()  # even if its process was killed afterwards
            if status == "finished:completed" or (status.startswith("finished") and complete):
                yield from rows.new()
                if settings.task == "train" and not complete:
                    raise SuperLinkError(
                        f"The run is complete, but {folder.summary} is not here: --results must be the ServerApp's out-dir = "
                        f"{settings.out_dir} as seen from here. Received {results}."
                    )
                return
            if status.startswith("finished"):
                cause = folder.read_failure()
                if cause or status == "finished:stopped" or attempts <= 1:
                    raise SuperLinkError(f"The run ended as {status!r}: {cause or details}\n{log_tail()}")
                attempts -= 1
                resume = settings.task == "train" and (folder.checkpoint.exists() or folder.journal.exists())
                run_id = submit(flwr, dataclasses.replace(settings, resume=resume))
        time.sleep(_POLL_SECONDS)
