"""Which records play which role: functions of (seed, client, round, |D_i|) alone (docs/method.md, section 0).

Positions index a client's ordered list. Nothing here looks at a record, a label or a file name: otherwise replacing one
record could move others, and the sensitivities of section 5 would not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from common.randomness import Purpose, public_generator
from common.settings import Settings


@dataclass(frozen=True)
class Split:
    """Positions in a client's list, each (n,) int64.

    Attributes:
        train: records of gradient batches; empty for a future client.
        context: C_i, records behind the private context.
        evaluation: held-out records (participating) or query records (future); disjoint from the others.
    """

    train: np.ndarray
    context: np.ndarray
    evaluation: np.ndarray


def is_future(settings: Settings, client: int) -> bool:
    """Clients are numbered participating first. Which data they hold is drawn at random, see `partition`."""
    return client >= settings.num_participating


def split(settings: Settings, client: int, num_records: int) -> Split:
    """The split of one client.

    Args:
        client: partition id.
        num_records: |D_i|, public.

    Raises:
        ValueError: too few records for the settings.
    """
    order = public_generator(settings.seed, Purpose.SPLIT, client).permutation(num_records)
    if is_future(settings, client):
        if num_records <= settings.context_records:
            raise ValueError(
                f"Future client {client} must hold more than context-records = {settings.context_records} records. "
                f"Received {num_records}."
            )
        return Split(order[:0], order[: settings.context_records], order[settings.context_records :])
    count = round(num_records * settings.train_fraction)
    needed = max(settings.context_records, settings.batch_records)
    if count < needed or count >= num_records:
        raise ValueError(
            f"Client {client} must have at least {needed} training records (context-records, batch-records) and one "
            f"for evaluation. Received {num_records} records, {count} of them for training."
        )
    return Split(order[:count], order[: settings.context_records], order[count:])


def batch(settings: Settings, client: int, round: int, participation: int, train: np.ndarray) -> np.ndarray:
    """Positions of B_{i,t}: (m_g,) int64, without repetition.

    Args:
        round: communication round from 1 (keys the fresh draw of `batch-schedule = uniform`).
        participation: how often the client was scheduled before (walks through the records for `cyclic`).
        train: training positions of the client.
    """
    if settings.batch_schedule == "uniform":
        rng = public_generator(settings.seed, Purpose.BATCH, client, round)
        return rng.choice(train, settings.batch_records, replace=False)
    order = public_generator(settings.seed, Purpose.BATCH, client).permutation(train)
    start = participation * settings.batch_records
    result: np.ndarray = order[np.arange(start, start + settings.batch_records) % len(order)]
    return result
