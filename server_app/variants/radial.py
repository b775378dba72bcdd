"""Radial: the hidden direction stays at its initial value, only its magnitude evolves."""

import torch
from torch import nn

from common.settings import Settings
from server_app.variants.base import Variant, output_layer
from server_app.variants.factorized import context_network


class Radial(Variant):
    """h = ‖h_ψ(u_0)‖ v_0, v_0 the direction of h_ψ(u_0) at the start; ψ is trained through the norm."""

    def __init__(self, settings: Settings, k: int, public: torch.Tensor) -> None:
        super().__init__()
        self.network = context_network(settings, len(public))
        self.output = output_layer(settings, k)
        self.register_buffer("public", public, persistent=False)
        with torch.no_grad():
            initial = self.network(public)
        # Persistent: a resumed run must keep the direction of the first start.
        self.register_buffer("direction", initial / torch.linalg.vector_norm(initial))

    def trunk(self) -> nn.Module:
        """See `Variant.trunk`."""
        return self.network

    def hidden(self, context: torch.Tensor) -> torch.Tensor:
        """‖h_ψ(u_0)‖ v_0."""
        h: torch.Tensor = torch.linalg.vector_norm(self.network(self.public)) * self.direction
        return h

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """See `Variant.forward`."""
        a: torch.Tensor = self.output(self.hidden(context))
        return a
