"""The generator: a variant together with the cached contexts and how they enter it."""

from __future__ import annotations

import numpy as np
import torch

from common.context_entry import ContextEntry
from common.randomness import Purpose, public_generator
from common.rules import Rules
from server_app.variants import VARIANTS


def public_vector(rules: Rules) -> np.ndarray:
    """u_0 of the geometry controls, (2s,) float64."""
    dim = rules.context_map.dim
    if rules.settings.public_vector in ("grey", "white"):
        return rules.context_map.constant({"grey": 0.5, "white": 1.0}[rules.settings.public_vector])
    if rules.settings.public_vector == "random":
        return public_generator(rules.settings.seed, Purpose.PUBLIC_VECTOR).standard_normal(dim)
    return np.full(dim, 1.0 if rules.settings.public_vector == "ones" else 0.0)


class Generator:
    """Context → coefficients for every client, and the gradient of eq. 6."""

    def __init__(self, rules: Rules) -> None:
        self._settings = rules.settings
        self._context_noise = max(rules.mechanism.channel_noise(c, 0) for c in range(rules.settings.num_participating))
        public = torch.tensor(public_vector(rules), dtype=torch.float32)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(public_generator(self._settings.seed, Purpose.GENERATOR).integers(2**63)))
            variant = VARIANTS[self._settings.variant](self._settings, rules.space.dim, public)
        self.variant = variant.to(self._settings.device)
        self.contexts: dict[int, np.ndarray] = {}
        self._inputs: dict[int, torch.Tensor] = {}
        self.entry: ContextEntry | None = None
        self.initial_hidden: dict[int, np.ndarray | None] = {}

    def set_contexts(self, contexts: dict[int, np.ndarray]) -> None:
        """Cache the released contexts, client → (2s,) float64. Standardisation looks at participating clients only.

        Call it before any trained parameters are loaded: h_i(0) is taken here.

        Raises:
            ValueError: no participating client has a context.
        """
        participating = [contexts[i] for i in sorted(contexts) if i < self._settings.num_participating]
        if not participating:
            raise ValueError("contexts must hold at least one participating client's. Received none.")
        self.contexts = dict(contexts)
        self.entry = ContextEntry.fit(
            self._settings.context_entry, self._settings.context_gain, np.stack(participating), self._context_noise
        )
        self._inputs = {
            client: self.variant.input_of(client, torch.tensor(self.entry(context), device=self._settings.device))
            for client, context in contexts.items()
        }
        self.initial_hidden = {client: self.hidden(client) for client in contexts}

    def input(self, client: int) -> torch.Tensor:
        """What enters the variant for a client: its context, standardised or raw, (2s,) float32."""
        return self._inputs[client]

    def coefficients(self, client: int) -> np.ndarray:
        """a_i: (k,) float32."""
        with torch.no_grad():
            a: np.ndarray = self.variant(self._inputs[client]).cpu().numpy().copy()
        return a

    def hidden(self, client: int) -> np.ndarray | None:
        """h_i: (r,) float64; None for a variant without a hidden state."""
        with torch.no_grad():
            h = self.variant.hidden(self._inputs[client])
        return None if h is None else h.double().cpu().numpy()

    def tensor(self, update: np.ndarray) -> torch.Tensor:
        """A release (k,) where the generator computes."""
        return torch.tensor(update, dtype=torch.float32, device=self._settings.device)

    def accumulate(self, updates: dict[int, np.ndarray], round: int) -> None:
        """Leave (1/|S|) Σ J_iᵀ g̃_i in the parameters' gradients (eq. 6), clients in ascending order."""
        self.variant.zero_grad(set_to_none=True)
        weight = self.variant.weight(round, len(updates))
        for client in sorted(updates):
            torch.dot(self.tensor(updates[client]) * weight, self.variant(self._inputs[client])).backward()
