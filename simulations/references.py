"""Reference rows that cost as much as the run itself: without noise, and every client on its own data alone.

Both are counterfactuals for a table, computed in this process, never part of the run's releases or its ε. The rows that
cost nothing (chance, commonest label) are in every summary.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from client_app.workspace import Workspace, workspace
from common.data.splits import batch, split
from common.randomness import KeyStream, Purpose, fresh_key, seed_key
from common.settings import Settings
from server_app.metrics import mean
from server_app.results import RunFolder
from simulations.display import show_progress
from simulations.run import run_in_process


def add_references(summary: dict[str, Any], settings: Settings, folder: RunFolder, console: Console) -> dict[str, Any]:
    """Add the rows `no_noise` and `local_only` to a finished run's summary and write it again."""
    console.print("reference: the same run without noise")
    summary["references"]["no_noise"] = _no_noise(settings, console)
    console.print("reference: private training of every client on its own data alone")
    summary["references"]["local_only"] = {"seen": local_only(settings), "future": None}
    summary["privacy"]["outside_epsilon"].append("reference rows: runs without noise, and of every client alone")
    folder.write_json("summary.json", summary)
    return summary


def _no_noise(settings: Settings, console: Console) -> dict[str, float]:
    clean = dataclasses.replace(
        settings,
        noise_stddev=0.0,
        channel="dg",
        run_name=f"{settings.name}-no-noise",
        tensorboard=False,
        resume=Path(settings.out_dir, f"{settings.name}-no-noise").exists(),
    )
    folder = RunFolder(clean)
    if not folder.summary.exists():
        show_progress(run_in_process(clean), clean, console)
    accuracy = json.loads(folder.summary.read_text())["accuracy"]
    return {"seen": accuracy["seen"], "future": accuracy["future"]}


def local_only(settings: Settings) -> float:
    """Mean held-out accuracy of participating clients that train alone: the client's own rounds, batches, clip and σ,
    plain SGD on the coefficients themselves with the run's η. Future clients have no row: they never train."""
    space = workspace(settings)
    return mean(_train_alone(space, client) for client in range(settings.num_participating))


def _train_alone(space: Workspace, client: int) -> float:
    settings, rules = space.settings, space.rules
    parts = split(settings, client, len(space.records(client)))
    device = space.model.device
    coefficients = torch.zeros(rules.space.dim, device=device)
    rounds = [t + 1 for t, clients in enumerate(rules.schedule.rounds) if client in clients]
    for participation, round in enumerate(rounds):
        positions = batch(settings, client, round, participation, parts.train)
        result = space.gradient(client, coefficients, positions)
        key = seed_key(settings.seed, Purpose.LOCAL_ONLY, client, round) if settings.deterministic else fresh_key()
        noise = rules.plan.noise_stddev * KeyStream(key).gaussian(rules.space.dim)
        release = result.gradient.cpu().numpy() + noise
        coefficients -= settings.eta * torch.tensor(release.astype(np.float32), device=device)
    _, correct = space.evaluate(client, coefficients, parts.evaluation)
    return correct / len(parts.evaluation)
