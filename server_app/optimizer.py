"""The server's optimiser: plain SGD as in eq. 6, or momentum or Adam on the same privatised gradients (free)."""

from __future__ import annotations

import math
from typing import Any

import torch

from common.rules import Rules
from server_app.variants import Variant


def base_learning_rate(rules: Rules) -> float:
    """η at the first round: the setting, less where the releases' noise is large (`learning-rate-noise`).

    With ν = σ_g √k / C_g, the noise's length in units of the longest gradient, and ν₀ the setting: η / (1 + ν/ν₀).
    """
    settings = rules.settings
    if not settings.learning_rate_noise:
        return settings.eta
    noise = rules.noise_norm / settings.clip_norm
    return settings.eta / (1.0 + noise / settings.learning_rate_noise)


def learning_rate(rules: Rules, round: int) -> float:
    """η of round `round`, counted from 1."""
    settings = rules.settings
    progress = (round - 1) / settings.num_rounds
    factor = {
        "constant": 1.0,
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * progress)),
    }[settings.learning_rate_schedule]
    return base_learning_rate(rules) * factor


class ServerOptimizer:
    """Applies the gradients that `Generator.accumulate` left."""

    def __init__(self, rules: Rules, variant: Variant) -> None:
        self._rules = rules
        trunk = variant.trunk()
        inner = [] if trunk is None else list(trunk.parameters())
        others = [p for p in variant.parameters() if all(p is not q for q in inner)]
        # Each group's share of η.
        groups = [
            {"params": inner, "share": rules.settings.trunk_learning_rate},
            {"params": others, "share": 1.0},
        ]
        self._optimizer: torch.optim.Optimizer
        if rules.settings.server_optimizer == "adam":
            self._optimizer = torch.optim.Adam(groups)
        else:
            self._optimizer = torch.optim.SGD(groups, momentum=rules.settings.server_momentum)

    def step(self, round: int) -> None:
        """One step with the learning rate of `round`."""
        for group in self._optimizer.param_groups:
            group["lr"] = group["share"] * learning_rate(self._rules, round)
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
