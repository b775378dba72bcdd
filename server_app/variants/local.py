"""Every client on its own: the reference row without federation. Future clients keep the reference model."""

import torch
from torch import nn

from server_app.variants.base import Variant


class Local(Variant):
    """One coefficient vector per participating client, moved by that client's releases alone, with the full step η."""

    def __init__(self, k: int, num_participating: int) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(torch.zeros(num_participating, k))

    def input_of(self, client: int, context: torch.Tensor) -> torch.Tensor:
        """The client's number: a context has no use here."""
        return torch.tensor(client)

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """The client's own row."""
        client = int(context)
        if client >= len(self.coefficients):
            return torch.zeros_like(self.coefficients[0])
        return self.coefficients[client]

    def weight(self, round: int, clients: int) -> float:
        """1: nothing is averaged."""
        return 1.0
