"""`python -m client_app.warm_up`: compiles everything that a release needs, once per machine or image."""

from __future__ import annotations

import common  # noqa: F401  (first: pins the numerics before NumPy and torch are loaded)

# isort: split
import torch

from client_app.gradients import CoefficientGradients
from common.basis import make_basis
from common.channel.lrsuq import warm_up as warm_up_codec
from common.model import build_reference
from common.numerics import pin_torch


def warm_up() -> None:
    """Codec, fold and per-record outer products, on two records without meaning."""
    pin_torch()
    warm_up_codec()
    shape = (1, 28, 28)
    model, theta = build_reference("lenet", shape, 10, seed=0)
    gradients = CoefficientGradients(model, make_basis("fold", [model.dim], 512, seed=0))
    inputs = torch.linspace(0, 1, 2 * 28 * 28).reshape(2, *shape)
    gradients(theta, inputs, torch.tensor([0, 1]), clip_norm=1.0, denominator=2)


if __name__ == "__main__":
    warm_up()
