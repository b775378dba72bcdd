"""A node's own configuration (Flower's `--node-config`): what a data holder decides, whatever the run's settings say.

An unknown key is refused: a misspelt budget must not be no budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_app.policy import Policy
from client_app.sources import Place
from common.places import expand
from common.settings import Settings
from common.validation import boolean, integer, number, one_of

KEYS: dict[str, str] = {
    "partition-id": "number of this client, from 0; participating clients first",
    "num-partitions": "unused; Flower sets it in simulation",
    "data": "own records: an .npz file with x and y, or a folder of class folders with images",
    "data-dir": "cache of the built-in data sets on this node",
    "state-dir": "durable state: ledger, key, manifest, personal models",
    "max-epsilon": "largest epsilon of all releases of these records, over all runs, at max-delta, by exact accounting",
    "max-delta": "largest delta that a run may account with (default: 1e-5 with max-epsilon, else any)",
    "diagnostics": "public-data or off: whether noiseless diagnostics may leave this node",
    "allow-deterministic": "true or false: whether runs with public noise, without any privacy, are served",
}


@dataclass(frozen=True)
class Node:
    """One node's configuration.

    Attributes:
        client: partition id.
        place: where its records are.
        state: durable state directory; None in simulation, where Flower's per-client state lives as long as the run.
    """

    client: int
    place: Place
    state: Path | None
    policy: Policy

    @classmethod
    def from_config(cls, config: Mapping[str, Any], settings: Settings) -> Node:
        """From Flower's node configuration.

        A node with data, a budget or a state directory of its own is a deployment: there, noiseless diagnostics and
        deterministic runs are off unless it says otherwise.

        Raises:
            ValueError: an unknown key, or a value out of range, named.
        """
        unknown = sorted(set(config) - set(KEYS))
        if unknown:
            raise ValueError(f"node-config must only have {', '.join(KEYS)}. Received {', '.join(unknown)}.")
        if "partition-id" not in config:
            raise ValueError("node-config must have partition-id, the number of this client from 0. Received none.")
        client = integer("partition-id", config["partition-id"], at_least=0)
        deployed = any(key in config for key in ("data", "state-dir", "max-epsilon"))
        budget = math.inf
        if "max-epsilon" in config:
            budget = number("max-epsilon", config["max-epsilon"], above=0.0)
        for key, needs, why in (
            ("data", "state-dir", "it holds the manifest and the ledger"),
            ("data", "max-epsilon", "own records need a limit that no server can talk away"),
            ("max-epsilon", "state-dir", "a ledger that is lost with the run protects nothing"),
        ):
            if key in config and needs not in config:
                raise ValueError(f"{needs} must be given with {key}: {why}. Received none.")
        diagnostics = config.get("diagnostics", "off" if deployed else "public-data")
        policy = Policy(
            budget=budget,
            max_delta=number("max-delta", config["max-delta"], above=0.0, below=1.0) if "max-delta" in config else None,
            diagnostics=one_of("diagnostics", diagnostics, ("public-data", "off")) == "public-data",
            deterministic=boolean("allow-deterministic", config.get("allow-deterministic", not deployed)),
        )
        state, own = (_absolute(key, config.get(key)) for key in ("state-dir", "data"))
        data_dir = str(config.get("data-dir", settings.data_dir))
        # Own records need no cache, and a node's user may have no home directory.
        place = Place(Path(data_dir) if own else expand("data-dir", data_dir), own, state)
        return cls(client, place, state, policy)


def _absolute(key: str, value: Any) -> Path | None:
    """A relative path would be another one when the node is started from elsewhere: another ledger, an empty one."""
    if value is None:
        return None
    path = Path(str(value))
    if not path.is_absolute():
        raise ValueError(f"{key} must be an absolute path. Received {str(value)!r}.")
    return path
