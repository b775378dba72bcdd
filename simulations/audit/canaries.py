"""Records whose presence is a coin: at each of their positions stands one real record or another one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from client_app.sources import BuiltInRecords
from common.data.cache import load
from common.data.records import ClientRecords
from common.data.splits import split
from common.randomness import Purpose, public_generator
from common.settings import Settings
from common.validation import integer


@dataclass(frozen=True)
class Canaries:
    """The canaries of one client.

    Attributes:
        positions: (c,) in the client's list, training records all of them.
        present, absent: (c,) records each: what stands there if the coin is true, or false.
        coins: (c,) bool.
    """

    positions: np.ndarray
    present: ClientRecords
    absent: ClientRecords
    coins: np.ndarray


class CanaryRecords:
    """A record source with canaries in it.

    Args:
        per_client: canaries of each participating client.
        trial: another trial has other coins and other canaries.

    Raises:
        ValueError: more canaries than training records, or than the data set has records to spare.
    """

    def __init__(self, settings: Settings, data_dir: Path, per_client: int, trial: int) -> None:
        integer("canaries", per_client, at_least=1, at_most=settings.train_records)
        self._source = BuiltInRecords(settings, data_dir)
        dataset = load(settings.dataset, data_dir)
        rng = public_generator(settings.seed, Purpose.AUDIT, round=trial)
        unused = np.setdiff1d(np.arange(len(dataset.labels)), np.concatenate(self._source.partition.indices))
        needed = 2 * per_client * settings.num_participating
        if needed > len(unused):
            raise ValueError(f"canaries must leave {needed} unused records. {settings.dataset} has {len(unused)}.")
        drawn = rng.permutation(unused)[:needed].reshape(settings.num_participating, 2, per_client)
        classes = int(dataset.labels.max()) + 1

        def mislabelled(indices: np.ndarray) -> ClientRecords:
            """A model that fits the others never fits these: their gradients stay large, and memory of them shows."""
            records = ClientRecords.of(dataset, indices)
            return ClientRecords(records.images, (records.labels + rng.integers(1, classes, len(indices))) % classes)

        self.canaries = [
            Canaries(
                split(settings, client, settings.records_per_client).train[:per_client],
                mislabelled(present),
                mislabelled(absent),
                rng.random(per_client) < 0.5,
            )
            for client, (present, absent) in enumerate(drawn)
        ]
        self._planted = [self._plant(client) for client in range(settings.num_participating)]

    def _plant(self, client: int) -> ClientRecords:
        original, canaries = self._source.records(client), self.canaries[client]
        images, labels = original.images.copy(), original.labels.copy()
        coins = canaries.coins
        images[canaries.positions] = np.where(
            coins[:, None, None, None], canaries.present.images, canaries.absent.images
        )
        labels[canaries.positions] = np.where(coins, canaries.present.labels, canaries.absent.labels)
        return ClientRecords(images, labels)

    def records(self, client: int) -> ClientRecords:
        """See `RecordSource.records`."""
        return self._planted[client] if client < len(self._planted) else self._source.records(client)

    def order(self, client: int) -> str:
        """See `RecordSource.order`."""
        return self._source.order(client)

    def indices(self, client: int) -> np.ndarray | None:
        """None: these are not the public partition's records."""
        return None
