"""The fixed public schedule S_1..S_T: who takes part in which round (docs/method.md, section 5).

Drawn from the public seed before training and independent of the data, so it costs no privacy and needs no
amplification argument. Participation counts T_i follow from it, and σ from them.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.randomness import Purpose, public_generator
from common.settings import Settings


@dataclass(frozen=True)
class Schedule:
    """`rounds[t - 1]` holds the scheduled clients of round t, ascending."""

    rounds: tuple[tuple[int, ...], ...]
    num_participating: int

    def clients(self, round: int) -> tuple[int, ...]:
        """Clients of round `round`, counted from 1."""
        return self.rounds[round - 1]

    def counts(self) -> list[int]:
        """T_i for every participating client."""
        counts = [0] * self.num_participating
        for clients in self.rounds:
            for client in clients:
                counts[client] += 1
        return counts

    def participation(self, client: int, round: int) -> int:
        """How often `client` was scheduled before `round` (its index among the client's batches)."""
        return bisect_left(self._rounds_of.get(client, []), round)

    @cached_property
    def _rounds_of(self) -> dict[int, list[int]]:
        """Client → its rounds, ascending."""
        result: dict[int, list[int]] = {}
        for round, clients in enumerate(self.rounds, start=1):
            for client in clients:
                result.setdefault(client, []).append(round)
        return result


def make_schedule(settings: Settings) -> Schedule:
    """The schedule of a run, a function of public settings alone."""
    rng = public_generator(settings.seed, Purpose.SCHEDULE)
    draw = _uniform if settings.schedule == "uniform" else _balanced
    rounds = draw(rng, settings.num_participating, settings.clients_per_round, settings.num_rounds)
    return Schedule(tuple(rounds), settings.num_participating)


def _uniform(rng: np.random.Generator, clients: int, per_round: int, rounds: int) -> list[tuple[int, ...]]:
    """Independent draws without replacement within a round."""
    return [tuple(sorted(rng.choice(clients, per_round, replace=False).tolist())) for _ in range(rounds)]


def _balanced(rng: np.random.Generator, clients: int, per_round: int, rounds: int) -> list[tuple[int, ...]]:
    """One random order of all clients after another, cut into rounds: counts never differ by more than one.

    A round across two orders takes the rest of the first, then those of the second that aren't in it already.
    """
    order: list[int] = []
    result = []
    for _ in range(rounds):
        chosen, order = order[:per_round], order[per_round:]
        if len(chosen) < per_round:
            order = rng.permutation(clients).tolist()
            there = set(chosen)
            new = [client for client in order if client not in there][: per_round - len(chosen)]
            chosen += new
            taken = set(new)
            order = [client for client in order if client not in taken]
        result.append(tuple(sorted(chosen)))
    return result
