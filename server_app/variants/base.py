"""What the rest of the server knows of a variant."""

import torch
from torch import nn

from common.settings import Settings


class Variant(nn.Module):
    """A module with `forward(context) → a`. Its Jacobian is autograd's business, so eq. 6 needs nothing else."""

    def hidden(self, context: torch.Tensor) -> torch.Tensor | None:
        """h_i (r,) of a context (2s,); None for a variant without a hidden state."""
        return None

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """a_i (k,) of a context (2s,)."""
        raise NotImplementedError

    def gain(self, round: int) -> float:
        """Factor on the step of a round; one, except where a recorded schedule is replayed."""
        return 1.0


def output_layer(settings: Settings, k: int) -> nn.Linear:
    """W: (k, r), zero at the start by default, so that every client begins at the reference model."""
    layer = nn.Linear(settings.hidden_dim, k, bias=False)
    if settings.output_init == "zero":
        nn.init.zeros_(layer.weight)
    return layer
