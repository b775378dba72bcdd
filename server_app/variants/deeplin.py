"""a = W V c: the deep linear map, without the nonlinear trunk; with the public vector u_0 for c a geometry control."""

import torch
from torch import nn

from common.model import initialise
from common.settings import Settings
from server_app.variants.base import Variant, output_layer


class DeepLinear(Variant):
    """W: (k, r) and V: (r, 2s), both trained; by `linear-bias`, W (V c + b)."""

    def __init__(self, settings: Settings, k: int, context_dim: int, public: torch.Tensor | None = None) -> None:
        super().__init__()
        self.input = nn.Linear(context_dim, settings.hidden_dim, bias=settings.linear_bias)
        initialise(self.input, settings.trunk_init)
        self.output = output_layer(settings, k)
        self.register_buffer("public", public, persistent=False)

    def trunk(self) -> nn.Module:
        """See `Variant.trunk`."""
        return self.input

    def hidden(self, context: torch.Tensor) -> torch.Tensor:
        """V c, or V c + b."""
        h: torch.Tensor = self.input(context if self.public is None else self.public)
        return h

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """See `Variant.forward`."""
        a: torch.Tensor = self.output(self.hidden(context))
        return a
