"""The plain `flwr run` line that a run stands for."""

from __future__ import annotations

import shlex

from common.flower import toml_pairs
from common.settings import Settings


def federation_config(settings: Settings, gpus: float = 0.0) -> str:
    """The value of `flwr run --federation-config`.

    Args:
        gpus: GPU fraction of one virtual client.
    """
    value = f"num-supernodes={settings.num_clients} client-resources-num-cpus=1"
    return value + (f" client-resources-num-gpus={gpus:g}" if gpus else "")


def flwr_command(settings: Settings, gpus: float = 0.0) -> str:
    """The whole line, with every setting that differs from its default."""
    return (
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flwr run . --stream "
        f"--federation-config {shlex.quote(federation_config(settings, gpus))} "
        f"--run-config {shlex.quote(toml_pairs(settings.changed()))}"
    )
