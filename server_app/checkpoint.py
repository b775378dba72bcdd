"""Complete server state on disk, atomically: generator, optimiser, contexts, ledger. One safetensors file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from common.files import write_atomically
from common.numerics import describe
from common.privacy.events import Ledger
from common.privacy.packed import pack, unpack
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
        "ledger": json.dumps(pack(ledger.events)),
    }
    tensors = {name: value.cpu().contiguous() for name, value in tensors.items()}
    metadata["seal"] = _seal(tensors, metadata)
    write_atomically(path, save(tensors, metadata))


def load_checkpoint(
    path: Path, *, generator: Generator, optimizer: ServerOptimizer, settings_digest: str, exact: bool = True
) -> Restored:
    """Restore the state in place.

    Args:
        exact: refuse a checkpoint after which training would not go on bit for bit.

    Raises:
        ValueError: damaged, of other settings, or written by other software.
    """
    metadata, tensors = _read(path)
    if metadata["settings"] != settings_digest:
        raise ValueError(
            f"{path} belongs to a run with other settings; choose another run-name, or resume with its own."
        )
    if exact and json.loads(metadata["numerics"]) != describe():
        raise ValueError(
            f"{path} was written by other software or another processor ({metadata['numerics']}); the run would not "
            "go on bit for bit. Resume it where it began, or start a new run."
        )
    groups: dict[str, dict[str, torch.Tensor]] = {"generator": {}, "optimizer": {}, "context": {}}
    for key, value in tensors.items():
        group, name = key.split(".", 1)
        groups[group][name] = value
    contexts: dict[int, np.ndarray] = {int(client): value.numpy() for client, value in groups["context"].items()}
    generator.set_contexts(contexts)
    generator.variant.load_state_dict(groups["generator"])
    optimizer.load_tensors(groups["optimizer"])
    return Restored(int(metadata["round"]), Ledger(unpack(json.loads(metadata["ledger"]))))


def _read(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Metadata and tensors exactly as they were written.

    Raises:
        ValueError: anything else.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118  (not a mapping)
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(f"{path} is damaged ({error}); restore it from a back-up.") from None
    if metadata.pop("seal", None) != _seal(tensors, metadata):
        raise ValueError(
            f"{path} is damaged, or of an older papfl: its seal does not match. Restore it from a back-up."
        )
    return metadata, tensors


def _seal(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> str:
    """A hash over everything: safetensors itself would not notice another number."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()
