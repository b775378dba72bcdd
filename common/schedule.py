"""The fixed public schedule S_1..S_T: who takes part in which round (docs/method.md, section 5).

Drawn from the public seed before training and independent of the data, so it costs no privacy and needs no
amplification argument. Participation counts T_i follow from it, and σ from them.
"""

from dataclasses import dataclass

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
        return sum(client in clients for clients in self.rounds[: round - 1])


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
    """Those who took part least so far, ties at random: counts never differ by more than one."""
    counts = np.zeros(clients, dtype=np.int64)
    result = []
    for _ in range(rounds):
        chosen = np.lexsort((rng.random(clients), counts))[:per_round]
        counts[chosen] += 1
        result.append(tuple(sorted(chosen.tolist())))
    return result
