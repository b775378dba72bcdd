"""Noise that the server adds to a round's aggregate before it moves the generator, where the mechanism asks for it.

Its key is secret, drawn once for a round and journalled together with what was accepted: a server that resumes adds the same
noise again, and never other noise to the same releases.
"""

from __future__ import annotations

import torch

from common.gaussian import add_gaussian
from common.randomness import Purpose, derive_key, fresh_key, seed_key
from common.rules import Rules
from server_app.variants import Variant


def draw_key(rules: Rules, round: int) -> bytes | None:
    """The key of a round's noise; None where the mechanism adds none. From the public seed in deterministic runs."""
    if rules.mechanism.server_noise(round) == 0:
        return None
    if rules.settings.deterministic:
        return seed_key(rules.settings.seed, Purpose.SERVER_NOISE, round=round)
    return fresh_key()


def add_server_noise(variant: Variant, stddev: float, key: bytes) -> None:
    """N(0, stddev²) to every entry of the gradients that `Generator.accumulate` left."""
    for name, parameter in variant.named_parameters():
        if parameter.grad is None:
            continue
        flat = parameter.grad.detach().double().cpu().numpy().ravel()
        noisy = torch.tensor(add_gaussian(flat, stddev, derive_key(key, name)), dtype=parameter.grad.dtype)
        parameter.grad = noisy.view_as(parameter.grad).to(parameter.grad.device)
