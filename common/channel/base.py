"""What every channel has in common: the event it serves, the keys it uses, the error it raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from common.validation import integer, number


class ChannelError(ValueError):
    """A message that cannot be decoded, with what is wrong. The decoder has changed nothing."""


@dataclass(frozen=True)
class ChannelEvent:
    """The public facts of one release, known to both sides before anything is sent.

    Attributes:
        run: name of the run.
        round: communication round; 0 for the context.
        client: partition id.
        k: coordinates.
        noise_stddev: σ, standard deviation of the noise in one decoded coordinate.
    """

    run: str
    round: int
    client: int
    k: int
    noise_stddev: float

    def __post_init__(self) -> None:
        integer("round", self.round, at_least=0, at_most=2**32 - 1)
        integer("client", self.client, at_least=0, at_most=2**32 - 1)
        integer("k", self.k, at_least=0, at_most=2**31 - 1)
        number("noise_stddev", self.noise_stddev, at_least=0.0)


@dataclass(frozen=True)
class EventKeys:
    """Keys of one event, 32 bytes each.

    Attributes:
        shared: known to client and server: shared randomness of LRSUQ, and the digest of every message.
        secret: known to the client alone (None on the server): its noise.
        public: derived from a public seed: they protect nothing, and repeat a result to the last bit.
        nonce: fresh bytes that both keys depend on; travels with the message. Empty: none.
    """

    shared: bytes
    secret: bytes | None = None
    public: bool = False
    nonce: bytes = b""


class Channel(Protocol):
    """Encoder and decoder of privatised updates."""

    name: str

    def encode(self, update: np.ndarray, event: ChannelEvent, keys: EventKeys) -> bytes:
        """Privatise and serialise `update` (k,), finite.

        Raises:
            ValueError: wrong shape or non-finite values.
        """

    def decode(self, data: bytes, event: ChannelEvent, keys: EventKeys) -> np.ndarray:
        """The decoded release (k,) float64: update + N(0, σ² I).

        Raises:
            ChannelError: damaged, truncated, or not the message of this event.
        """


def check_update(update: np.ndarray, event: ChannelEvent) -> np.ndarray:
    """`update` as float64 (k,), or ValueError."""
    values = np.asarray(update, dtype=np.float64)
    if values.shape != (event.k,):
        raise ValueError(f"update must have shape ({event.k},). Received {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"update must be finite. Received {int((~np.isfinite(values)).sum())} other values.")
    return values
