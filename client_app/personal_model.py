"""A finished personal model in its holder's own volume: safetensors with the architecture's parameter names, and what is
needed to use it.

    models/<run>/model.safetensors   parameters of the personal model, as `torch.nn.Module.load_state_dict` wants them
    models/<run>/model.json          architecture, input, origin, and the epsilon that these records have spent
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from common.data.records import standardization
from common.files import write_atomically
from common.model import MODELS
from common.rules import spec_of
from common.settings import Settings


def write_model(folder: Path, tensors: dict[str, torch.Tensor], facts: dict[str, Any], settings: Settings) -> str:
    """Write both files, the metadata last; returns the SHA-256 of the model file.

    Args:
        facts: entries of the metadata beside those that the settings decide.
    """
    from safetensors.torch import save  # half a second, in a process that mostly does other things

    spec = spec_of(settings)
    shift, scale = standardization(spec, settings.input_scaling)
    data = save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, {"run": settings.name})
    digest = hashlib.sha256(data).hexdigest()
    metadata = {
        "run": settings.name,
        "settings_digest": settings.digest(),
        "architecture": settings.model,
        "image_shape": list(spec.image_shape),
        "num_classes": spec.num_classes,
        "input": {"range": [0.0, 1.0], "subtract": shift.ravel().tolist(), "divide_by": scale.ravel().tolist()},
        "delta": settings.delta,
        "sha256": digest,
        **facts,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "model.safetensors", data)
    write_atomically(folder / "model.json", json.dumps(metadata, indent=2).encode() + b"\n")
    return digest


def load_model(folder: Path) -> nn.Module:
    """The network of a folder that `write_model` made, in evaluation mode. `papfl.load_model` scales its input too.

    Its input is (n, channels, height, width) float32 in [0, 1], shifted and scaled as `model.json` says.

    Raises:
        ValueError: the two files don't belong together.
    """
    return read_model(folder)[0]


def read_model(folder: Path) -> tuple[nn.Module, dict[str, Any]]:
    """The network, and what `model.json` says of it; raises as `load_model`."""
    from safetensors.torch import load_file

    metadata = json.loads((folder / "model.json").read_text())
    path = folder / "model.safetensors"
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != metadata["sha256"]:
        raise ValueError(f"{path} must be the file that model.json names ({metadata['sha256']}). Received {found}.")
    model = MODELS[metadata["architecture"]](tuple(metadata["image_shape"]), metadata["num_classes"])
    model.load_state_dict(load_file(path))
    return model.eval(), metadata
