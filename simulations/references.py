"""Reference rows that cost as much as the run itself: without noise, and every client on its own data alone.

Both are counterfactuals for a table, computed in this process, never part of the run's releases or its ε. The rows that
cost nothing (chance, commonest label) are in every summary.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from common.settings import Settings
from server_app.results import RunFolder
from simulations.display import show_progress
from simulations.run import run_in_process


def add_references(summary: dict[str, Any], settings: Settings, folder: RunFolder, console: Console) -> dict[str, Any]:
    """Add the rows `no_noise` and `local_only` to a finished run's summary and write it again."""
    console.print("reference: the same run without noise")
    summary["references"]["no_noise"] = _counterfactual(settings, "no-noise", console, noise_stddev=0.0)
    console.print("reference: private training of every client on its own data alone")
    summary["references"]["local_only"] = _counterfactual(settings, "local", console, variant="local", replay_gains="")
    summary["privacy"]["outside_epsilon"].append("reference rows: runs without noise, and of every client alone")
    folder.write_json("summary.json", summary)
    return summary


def _counterfactual(settings: Settings, name: str, console: Console, **changes: Any) -> dict[str, float]:
    """Accuracies of a run of its own beside the run's folder; one that is finished is read, a half one goes on."""
    run_name = f"{settings.name}-{name}"
    other = dataclasses.replace(
        settings,
        channel="dg",
        run_name=run_name,
        tensorboard=False,
        resume=Path(settings.out_dir, run_name).exists(),
        **changes,
    )
    folder = RunFolder(other)
    if not folder.summary.exists():
        show_progress(run_in_process(other), other, console)
    accuracy = json.loads(folder.summary.read_text())["accuracy"]
    return {"seen": accuracy["seen"], "future": accuracy["future"]}
