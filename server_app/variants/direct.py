"""One coefficient vector for all clients, itself trained: the unfactorised reference; in parameter space Global."""

import json
from pathlib import Path

import torch
from torch import nn

from common.places import expand
from common.settings import Settings
from server_app.variants.base import Variant


class Direct(Variant):
    """a, starting at zero."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(torch.zeros(k))

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """The same a for every context."""
        return self.coefficients


class Replay(Direct):
    """Direct, with the step of round t multiplied by γ_t = ‖h_t‖² recorded from a Factorized run."""

    def __init__(self, settings: Settings, k: int) -> None:
        super().__init__(k)
        self._gains = read_gains(expand("replay-gains", settings.replay_gains), settings.num_rounds)

    def weight(self, round: int, clients: int) -> float:
        """γ_t times the mean's."""
        return self._gains[round - 1] / clients


def read_gains(path: Path, num_rounds: int) -> list[float]:
    """γ_1..γ_T from the metrics.jsonl of a run with a hidden state.

    Raises:
        ValueError: the file is missing, or some round has no recorded gain.
    """
    allowed = f"the metrics.jsonl of a factorized-u0 run with at least {num_rounds} rounds"
    if not path.is_file():
        raise ValueError(f"replay-gains must be {allowed}. Received {str(path)!r}.")
    recorded = {row["round"]: row.get("hidden_norm_squared") for row in map(json.loads, path.read_text().splitlines())}
    gains = [recorded.get(round) for round in range(1, num_rounds + 1)]
    if any(gain is None for gain in gains):
        raise ValueError(f"replay-gains must be {allowed}. Received {str(path)!r}, where rounds are missing.")
    return [float(gain) for gain in gains if gain is not None]
