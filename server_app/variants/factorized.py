"""a = W h_ψ(c): the method itself; in parameter space Full-DG; with the public vector u_0 for c the control Factorized."""

from collections.abc import Callable

import torch
from torch import nn

from common.model import initialise
from common.settings import Settings
from server_app.variants.base import Variant, output_layer

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


def context_network(settings: Settings, context_dim: int) -> nn.Sequential:
    """h_ψ: Linear(2s, r) – activation – Linear(r, r) – activation, the last one only if `hidden-output` is "activated"."""
    activation, r = ACTIVATIONS[settings.activation], settings.hidden_dim
    last = activation() if settings.hidden_output == "activated" else nn.Identity()
    network = nn.Sequential(nn.Linear(context_dim, r), activation(), nn.Linear(r, r), last)
    initialise(network, settings.trunk_init)
    return network


class Factorized(Variant):
    """Eq. 3. With `public`, every client gets the model of that vector."""

    def __init__(self, settings: Settings, k: int, context_dim: int, public: torch.Tensor | None = None) -> None:
        super().__init__()
        self.network = context_network(settings, context_dim)
        self.output = output_layer(settings, k)
        self.register_buffer("public", public, persistent=False)

    def trunk(self) -> nn.Module:
        """See `Variant.trunk`."""
        return self.network

    def hidden(self, context: torch.Tensor) -> torch.Tensor:
        """See `Variant.hidden`."""
        h: torch.Tensor = self.network(context if self.public is None else self.public)
        return h

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """See `Variant.forward`."""
        a: torch.Tensor = self.output(self.hidden(context))
        return a
