"""How much is audited."""

from __future__ import annotations

from dataclasses import dataclass

from common.validation import integer


@dataclass(frozen=True)
class Size:
    """How large an audited run is.

    Attributes:
        clients: all of them train in every round.
        records: training records of a client; all are in every batch and in the context.
        canaries: of these, whose presence is a coin.
    """

    clients: int
    records: int
    canaries: int
    rounds: int

    def __post_init__(self) -> None:
        for name in ("clients", "records", "rounds"):
            integer(name, getattr(self, name), at_least=1)
        integer("canaries", self.canaries, at_least=1, at_most=self.records)


# Many clients with few canaries each: releases of one client confuse its canaries with each other.
WHITE_BOX = Size(clients=200, records=40, canaries=10, rounds=20)
# Few records and many rounds: models that have had time to learn them by heart.
BLACK_BOX = Size(clients=10, records=40, canaries=40, rounds=300)
