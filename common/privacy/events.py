"""What was released: frozen facts. What they cost is the accountant's business.

An event is one Gaussian release of one client. `records` says which of the client's records it can depend on:
None for all of them, else their positions in the client's ordered list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

from common.validation import integer, number, one_of

CONTEXT_ROUND = 0


@dataclass(frozen=True)
class GaussianRelease:
    """One release u + N(0, noise_stddev² I).

    Attributes:
        client: partition id.
        round: communication round from 1; 0 for the context.
        kind: "context" or "gradient".
        sensitivity: L2 distance that replacing one record can cause (Δ_c or Δ_g).
        noise_stddev: σ, standard deviation of one released coordinate. 0 means no noise and an infinite cost.
        records: positions of the records it depends on; None: any of the client's.
        order: name of the order that these are positions of, where it could change (`client_app.manifest`).
    """

    client: int
    round: int
    kind: str
    sensitivity: float
    noise_stddev: float
    records: tuple[int, ...] | None = None
    order: str = ""

    def __post_init__(self) -> None:
        integer("client", self.client, at_least=0)
        integer("round", self.round, at_least=0)
        one_of("kind", self.kind, ("context", "gradient"))
        if not isinstance(self.order, str):
            raise ValueError(f"order must be a string. Received {self.order!r}.")
        number("sensitivity", self.sensitivity, above=0.0)
        number("noise_stddev", self.noise_stddev, at_least=0.0)

    @property
    def rho(self) -> float:
        """Δ²/(2σ²): the release's cost in eq. 7 (zero-concentrated DP), infinite without noise."""
        if self.noise_stddev == 0:
            return float("inf")
        return self.sensitivity**2 / (2.0 * self.noise_stddev**2)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for files and messages."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> GaussianRelease:
        """The inverse of `to_json`."""
        records = value["records"]
        return cls(**{**value, "records": None if records is None else tuple(records)})


class Ledger:
    """An append-only list of releases. Reading it never changes it; looking up a client or a round takes no longer in a
    long run."""

    def __init__(self, events: Iterable[GaussianRelease] = ()) -> None:
        self._events: list[GaussianRelease] = []
        self._by_client: dict[int, list[GaussianRelease]] = {}
        self._by_round: dict[int, set[int]] = {}
        self.record(events)

    @property
    def events(self) -> Sequence[GaussianRelease]:
        """All releases, in the order in which they were spent."""
        return tuple(self._events)

    def record(self, events: Iterable[GaussianRelease]) -> None:
        """Append releases. Call before the release is made: a failed release counts as spent."""
        for event in events:
            self._events.append(event)
            self._by_client.setdefault(event.client, []).append(event)
            self._by_round.setdefault(event.round, set()).add(event.client)

    def clients(self) -> set[int]:
        """Clients with a release."""
        return set(self._by_client)

    def of(self, client: int) -> Sequence[GaussianRelease]:
        """The releases of one client."""
        return tuple(self._by_client.get(client, ()))

    def spent_in(self, round: int) -> Set[int]:
        """Clients with a release in a round."""
        return frozenset(self._by_round.get(round, ()))
