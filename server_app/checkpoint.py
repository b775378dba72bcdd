"""Complete server state on disk, atomically: generator, optimiser, contexts, ledger. One safetensors file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save

from common.files import write_atomically
from common.numerics import describe
from common.privacy.events import GaussianRelease, Ledger
from server_app.generator import Generator
from server_app.optimizer import ServerOptimizer


@dataclass(frozen=True)
class Restored:
    """What a checkpoint says beside the tensors it restores.

    Attributes:
        round: last completed round.
    """

    round: int
    ledger: Ledger


def save_checkpoint(
    path: Path, *, round: int, generator: Generator, optimizer: ServerOptimizer, ledger: Ledger, settings_digest: str
) -> None:
    """Write the state after `round`; a crash leaves the old file or the new one."""
    tensors = {f"generator.{name}": value for name, value in generator.variant.state_dict().items()}
    tensors |= {f"optimizer.{name}": value for name, value in optimizer.tensors().items()}
    for client, context in generator.contexts.items():
        tensors[f"context.{client}"] = torch.tensor(context)
    metadata = {
        "round": str(round),
        "settings": settings_digest,
        "numerics": json.dumps(describe()),
        "ledger": json.dumps([event.to_json() for event in ledger.events]),
    }
    write_atomically(path, save({name: value.cpu().contiguous() for name, value in tensors.items()}, metadata))


def load_checkpoint(
    path: Path, *, generator: Generator, optimizer: ServerOptimizer, settings_digest: str, exact: bool = True
) -> Restored:
    """Restore the state in place.

    Args:
        exact: refuse a checkpoint after which training would not go on bit for bit.

    Raises:
        ValueError: the checkpoint belongs to other settings.
    """
    groups: dict[str, dict[str, torch.Tensor]] = {"generator": {}, "optimizer": {}, "context": {}}
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        if metadata["settings"] != settings_digest:
            raise ValueError(
                f"{path} belongs to a run with other settings; choose another run-name, or resume with its own."
            )
        if exact and json.loads(metadata["numerics"]) != describe():
            raise ValueError(
                f"{path} was written by other software or another processor ({metadata['numerics']}); the run would not "
                "go on bit for bit. Resume it where it began, or start a new run."
            )
        for key in file.keys():  # noqa: SIM118  (not a mapping)
            group, name = key.split(".", 1)
            groups[group][name] = file.get_tensor(key).clone()
    contexts: dict[int, np.ndarray] = {int(client): value.numpy() for client, value in groups["context"].items()}
    generator.set_contexts(contexts)
    generator.variant.load_state_dict(groups["generator"])
    optimizer.load_tensors(groups["optimizer"])
    events = [GaussianRelease.from_json(value) for value in json.loads(metadata["ledger"])]
    return Restored(int(metadata["round"]), Ledger(events))
