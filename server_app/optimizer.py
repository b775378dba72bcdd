"""The server's optimiser: plain SGD as in eq. 6, or momentum or Adam on the same privatised gradients (free)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from common.settings import Settings


def learning_rate(settings: Settings, round: int) -> float:
    """η of round `round`, counted from 1."""
    progress = (round - 1) / settings.num_rounds
    factor = {
        "constant": 1.0,
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * progress)),
    }[settings.learning_rate_schedule]
    return settings.eta * factor


class ServerOptimizer:
    """Applies the gradients that `Generator.accumulate` left."""

    def __init__(self, settings: Settings, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._settings = settings
        self._optimizer: torch.optim.Optimizer
        if settings.server_optimizer == "adam":
            self._optimizer = torch.optim.Adam(parameters, lr=settings.eta)
        else:
            self._optimizer = torch.optim.SGD(parameters, lr=settings.eta, momentum=settings.server_momentum)

    def step(self, round: int) -> None:
        """One step with the learning rate of `round`."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self._settings, round)
        self._optimizer.step()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Momentum buffers and moments, flat: 'index.name' → tensor."""
        state: dict[int, dict[str, Any]] = self._optimizer.state_dict()["state"]
        return {
            f"{index}.{name}": value
            for index, values in state.items()
            for name, value in values.items()
            if isinstance(value, torch.Tensor)
        }

    def load_tensors(self, tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `tensors`."""
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key, value in tensors.items():
            index, name = key.split(".", 1)
            state.setdefault(int(index), {})[name] = value
        current = self._optimizer.state_dict()
        self._optimizer.load_state_dict({**current, "state": state})
