"""What the rest of the server knows of a variant."""

import torch
from torch import nn

from common.settings import Settings


class Variant(nn.Module):
    """A module with `forward(context) → a`. Its Jacobian is autograd's business, so eq. 6 needs nothing else."""

    def hidden(self, context: torch.Tensor) -> torch.Tensor | None:
        """h_i (r,) of a context (2s,); None for a variant without a hidden state."""
        return None

    def trunk(self) -> nn.Module | None:
        """What makes h_i, h_ψ with its own learning rate; None for a variant without it."""
        return None

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """a_i (k,) of a context (2s,)."""
        raise NotImplementedError

    def input_of(self, client: int, context: torch.Tensor) -> torch.Tensor:
        """What `forward` gets for a client: its context (2s,), unless a variant needs something else."""
        return context

    def weight(self, round: int, clients: int) -> float:
        """Factor of one client's term in eq. 6, where `clients` answered: the mean."""
        return 1.0 / clients


def output_layer(settings: Settings, k: int) -> nn.Linear:
    """W: (k, r), zero at the start by default, so that every client begins at the reference model."""
    layer = nn.Linear(settings.hidden_dim, k, bias=False)
    if settings.output_init == "zero":
        nn.init.zeros_(layer.weight)
    return layer
