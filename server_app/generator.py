"""Generators: maps from a client's context to the coefficients of its personal model (docs/method.md, eq. 3).

A variant is one `torch.nn.Module` with `forward(context) → a (k,)` and, for the diagnostics, `hidden(context) → h (r,)`.
Its Jacobian is autograd's business, so eq. 6 needs nothing from it. A new variant is one class and one line in
`VARIANTS`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from common.context import ContextEntry
from common.randomness import Purpose, public_generator
from common.settings import Settings

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


class Variant(nn.Module):
    """What the rest of the server knows of a variant."""

    def hidden(self, context: torch.Tensor) -> torch.Tensor:
        """h_i: (2s,) → (r,)."""
        raise NotImplementedError

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """a_i: (2s,) → (k,)."""
        raise NotImplementedError


class Ours(Variant):
    """a = W h_ψ(c), h_ψ a two-layer perceptron 2s → r → r (eq. 3)."""

    def __init__(self, settings: Settings, context_dim: int) -> None:
        super().__init__()
        activation = ACTIVATIONS[settings.activation]
        r = settings.hidden_dim
        self.network = nn.Sequential(nn.Linear(context_dim, r), activation(), nn.Linear(r, r), activation())
        self.output = nn.Linear(r, settings.num_coefficients, bias=False)  # W
        if settings.output_init == "zero":
            nn.init.zeros_(self.output.weight)

    def hidden(self, context: torch.Tensor) -> torch.Tensor:
        """See `Variant.hidden`."""
        h: torch.Tensor = self.network(context)
        return h

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """See `Variant.forward`."""
        a: torch.Tensor = self.output(self.hidden(context))
        return a


VARIANTS: dict[str, Callable[[Settings, int], Variant]] = {"ours": Ours}


class Generator:
    """A variant together with the cached contexts and how they enter it."""

    def __init__(self, settings: Settings, context_dim: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(public_generator(settings.seed, Purpose.GENERATOR).integers(2**63)))
            self.variant = VARIANTS[settings.variant](settings, context_dim).to(settings.device)
        self._settings = settings
        self.contexts: dict[int, np.ndarray] = {}
        self._inputs: dict[int, torch.Tensor] = {}
        self.entry: ContextEntry | None = None

    def set_contexts(self, contexts: dict[int, np.ndarray]) -> None:
        """Cache the released contexts, client → (2s,) float64. Standardisation looks at participating clients only.

        Raises:
            ValueError: no participating client has a context.
        """
        participating = [contexts[i] for i in sorted(contexts) if i < self._settings.num_participating]
        if not participating:
            raise ValueError("contexts must hold at least one participating client's. Received none.")
        self.contexts = dict(contexts)
        self.entry = ContextEntry.fit(
            self._settings.context_entry, self._settings.context_gain, np.stack(participating)
        )
        self._inputs = {
            client: torch.tensor(self.entry(context), device=self._settings.device)
            for client, context in contexts.items()
        }

    def coefficients(self, client: int) -> np.ndarray:
        """a_i: (k,) float32."""
        with torch.no_grad():
            a: np.ndarray = self.variant(self._inputs[client]).cpu().numpy()
        return a

    def hidden_norm_squared(self, client: int) -> float:
        """‖h_i‖², the isotropic gain of eq. 9."""
        with torch.no_grad():
            return float(self.variant.hidden(self._inputs[client]).double().square().sum())

    def accumulate(self, updates: dict[int, np.ndarray]) -> None:
        """Leave (1/|S|) Σ J_iᵀ g̃_i in the parameters' gradients (eq. 6), clients in ascending order."""
        self.variant.zero_grad(set_to_none=True)
        for client in sorted(updates):
            update = torch.tensor(updates[client], dtype=torch.float32, device=self._settings.device)
            torch.dot(update / len(updates), self.variant(self._inputs[client])).backward()
