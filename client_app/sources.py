"""Where a client's records come from: a partition of a built-in data set, or a data holder's own files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from client_app.manifest import frozen_records
from common.data.cache import DataError, load
from common.data.partition import Partition, dirichlet_partition
from common.data.records import ClientRecords
from common.rules import spec_of
from common.settings import Settings


class RecordSource(Protocol):
    """Records of the clients that this process serves."""

    def records(self, client: int) -> ClientRecords:
        """The ordered list of a client's records.

        Raises:
            DataError: this source has no such client, or its files are unusable.
        """

    def order(self, client: int) -> str:
        """Name of the order of a client's records: positions of different names are those of different records."""

    def indices(self, client: int) -> np.ndarray | None:
        """Positions of the records in a public data set; None for a data holder's own."""


@dataclass(frozen=True)
class Place:
    """Where a node's records are; hashable, so that a process keeps one workspace for it.

    Attributes:
        data_dir: cache of the built-in data sets.
        own: the data holder's file or folder; None: the node's share of the built-in set.
        state: state directory, which holds the manifest of own records.
    """

    data_dir: Path
    own: Path | None = None
    state: Path | None = None


class BuiltInRecords:
    """Every client's share of a built-in data set, by the public partition."""

    def __init__(self, settings: Settings, data_dir: Path) -> None:
        self._settings = settings
        self._dataset = load(settings.dataset, data_dir)
        self.partition: Partition = dirichlet_partition(
            self._dataset.labels,
            num_clients=settings.num_clients,
            records_per_client=settings.records_per_client,
            alpha=settings.dirichlet_alpha,
            seed=settings.seed,
        )
        self._records: dict[int, ClientRecords] = {}

    def records(self, client: int) -> ClientRecords:
        """See `RecordSource.records`; decoded once."""
        if client >= self._settings.num_clients:
            raise DataError(
                f"partition-id must be below num-participating + num-future = {self._settings.num_clients} for a share of "
                f"{self._settings.dataset}; a client beyond them needs data of its own. Received {client}."
            )
        if client not in self._records:
            self._records[client] = ClientRecords.of(self._dataset, self.partition.indices[client])
        return self._records[client]

    def order(self, client: int) -> str:
        """See `RecordSource.order`: a digest of the public partition."""
        indices = self.partition.indices[client].astype("<i8").tobytes()
        return hashlib.sha256(self._settings.dataset.encode() + indices).hexdigest()[:16]

    def indices(self, client: int) -> np.ndarray | None:
        """See `RecordSource.indices`."""
        return self.partition.indices[client]


class OwnFiles:
    """One data holder's own records, in their frozen order."""

    def __init__(self, settings: Settings, own: Path, state: Path) -> None:
        self._own, self._state, self._spec = own, state, spec_of(settings)
        self._cached: ClientRecords | None = None
        self._order = ""

    def records(self, client: int) -> ClientRecords:
        """See `RecordSource.records`: the same whatever the client's number; read once per process."""
        if self._cached is None:
            found = frozen_records(self._own, self._spec, self._state)
            self._order, self._cached = found.order, ClientRecords(found.images, found.labels)
        return self._cached

    def order(self, client: int) -> str:
        """See `RecordSource.order`: the manifest's."""
        self.records(client)
        return self._order

    def indices(self, client: int) -> np.ndarray | None:
        """None: nothing here is public."""
        return None


@lru_cache(maxsize=1)
def source_of(settings: Settings, place: Place) -> RecordSource:
    """The records behind this node.

    Raises:
        DataError: own records without a state directory, or a run on own records without any.
    """
    if place.own is not None:
        if place.state is None:
            raise DataError("state-dir must be given with data: it holds the manifest that freezes the records' order.")
        return OwnFiles(settings, place.own, place.state)
    if settings.dataset == "own":
        raise DataError("data must name this node's records where the run's dataset is own. Received nothing.")
    return BuiltInRecords(settings, place.data_dir)
