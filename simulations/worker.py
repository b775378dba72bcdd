"""One run of a sweep, in whatever process Ray starts for it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

import common  # noqa: F401  (pins the numerics before torch is imported)
from common.files import write_atomically
from common.settings import Settings


def execute(config: dict[str, Any], results: str, work: str) -> None:
    """Run or continue one simulation and write its result file.

    Args:
        config: settings as flat keys.
        results: folder of the result files.
        work: folder of unfinished runs; the run's own folder goes when it is finished, but for its recorded gains.
    """
    from client_app.app import app
    from server_app.app import run
    from server_app.recovery import CannotResume
    from server_app.results import RunFolder
    from simulations.grid import InProcessGrid
    from simulations.records import record_of, run_hash, write_record

    named = Settings.from_config(config)
    name = run_hash(named)
    settings = dataclasses.replace(named, run_name=name, out_dir=work, resume=(Path(work) / name).exists())
    started = time.process_time()
    folder = RunFolder(settings)
    seconds = add_seconds(folder.path, 0.0)
    if folder.summary.exists():  # interrupted between the summary and the result file
        summary = json.loads(folder.summary.read_text())
    else:
        try:
            summary = run(InProcessGrid(app, settings), settings)
        except CannotResume:
            # Other software or another processor, or damage: the run is deterministic, so it may simply start again.
            shutil.rmtree(folder.path)
            settings = dataclasses.replace(settings, resume=False)
            summary = run(InProcessGrid(app, settings), settings)
        finally:
            seconds = add_seconds(folder.path, time.process_time() - started)
    if settings.variant == "factorized-u0":  # before the result file, which says that the run is done
        write_atomically(gains_path(Path(work), named), folder.metrics.read_bytes())
    write_record(Path(results), named, record_of(named, summary, folder.read_metrics(), seconds))
    shutil.rmtree(folder.path)


def add_seconds(folder: Path, seconds: float) -> float:
    """CPU time of a run over all its attempts, kept in its folder."""
    path = folder / "cpu-seconds"
    total = seconds + (float(path.read_text()) if path.exists() else 0.0)
    if folder.exists():
        write_atomically(path, repr(total).encode())
    return total


def gains_path(work: Path, settings: Settings) -> Path:
    """Where the recorded gains of a factorized-u0 run are kept for replays."""
    from simulations.records import run_hash

    return work / f"gains-{run_hash(settings)}.jsonl"
