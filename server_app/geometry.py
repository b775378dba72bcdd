"""Traces of the generator's geometry over training (docs/method.md, section 6): how the hidden states move, and what share
of an update's effect is the isotropic gain of eq. 9. All of it is post-processing of releases: it costs no privacy.
"""

from __future__ import annotations

import itertools

import numpy as np

from common.settings import Settings
from server_app import metrics
from server_app.generator import Generator
from server_app.kernel import energy_split


def due(settings: Settings, round: int) -> bool:
    """True in the rounds that `geometry-every` names."""
    return settings.geometry_every > 0 and round % settings.geometry_every == 0


def trace(generator: Generator, updates: dict[int, np.ndarray]) -> dict[str, float]:
    """Before the round's step is taken; nothing for a variant without a hidden state.

    Args:
        updates: client → decoded release (k,) float32; participating clients.

    Returns:
        hidden_rotation: cos(h_i(t), h_i(0)), mean over all clients with a context.
        hidden_alignment: cos(h_i, h_j), mean over pairs of clients with a context.
        isotropic_share: share of the isotropic term in the energy of an update's effect on its own client, mean over
            `updates`; isotropic_share_others: the same for its effect on the client after it.
    """
    clients = sorted(generator.contexts)
    hidden = {client: generator.hidden(client) for client in clients}
    if any(state is None for state in hidden.values()):
        return {}
    states = np.stack([hidden[client] for client in clients])  # type: ignore[arg-type, misc]
    initial = np.stack([generator.initial_hidden[client] for client in clients])  # type: ignore[arg-type, misc]
    unit, unit_initial = _normalised(states), _normalised(initial)
    row = {"hidden_rotation": float(np.mean(np.sum(unit * unit_initial, axis=1)))}
    if len(clients) > 1:
        cosines = unit @ unit.T
        row["hidden_alignment"] = float(
            np.mean([cosines[i, j] for i, j in itertools.combinations(range(len(clients)), 2)])
        )
    following = {client: clients[(index + 1) % len(clients)] for index, client in enumerate(clients)}
    row["isotropic_share"] = metrics.mean(_share(generator, i, i, updates[i]) for i in sorted(updates))
    row["isotropic_share_others"] = metrics.mean(
        _share(generator, following[i], i, updates[i]) for i in sorted(updates)
    )
    return row


def _share(generator: Generator, j: int, i: int, update: np.ndarray) -> float:
    """Of the isotropic term in the energy of client i's update as it moves client j."""
    split = energy_split(generator.variant, generator.input(j), generator.input(i), generator.tensor(update))
    return split.isotropic_share


def gains(generator: Generator) -> list[list[float]] | None:
    """h_jᵀ h_i of all pairs as the rows of a lower triangle, clients in ascending order, five digits (clients differ little).

    None for a variant without a hidden state or with the same one for every client.
    """
    hidden = [generator.hidden(client) for client in sorted(generator.contexts)]
    if any(state is None for state in hidden):
        return None
    states = np.stack(hidden)  # type: ignore[arg-type]
    if np.all(states == states[0]):
        return None
    products = states @ states.T
    return [[float(f"{value:.5g}") for value in products[j, : j + 1]] for j in range(len(states))]


def _normalised(states: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(states, axis=1, keepdims=True)
    return states / np.where(norms > 0, norms, 1.0)
