"""DG+Q12: add the noise, then quantise to 12 bits. The published comparator: post-processing, not an exact channel."""

from __future__ import annotations

import numpy as np

from common.channel import wire
from common.channel.base import ChannelError, ChannelEvent, EventKeys
from common.channel.channel_pb2 import DG_Q12
from common.channel.dg import add_noise

LEVELS = 4096
# The public range is ± this many σ: noise leaves it once in 10^15 coordinates. What leaves it is clipped to the end.
RANGE = 8.0


class QuantizedGaussian:
    """Twelve bits per coordinate on a uniform grid over ±8σ; coordinates outside saturate at the last level.

    Saturation biases a coordinate whose un-noised value is many σ; clipping makes that rare, and privacy does not
    depend on it (quantisation follows the noise).
    """

    name = "dg-q12"

    def encode(self, update: np.ndarray, event: ChannelEvent, keys: EventKeys) -> bytes:
        """See `Channel.encode`."""
        step = _step(event)
        noisy = add_noise(update, event, keys)
        index = np.clip(np.floor(noisy / step) + LEVELS // 2, 0, LEVELS - 1).astype(np.uint16)
        pairs = np.zeros(-(-len(index) // 2) * 2, dtype=np.uint16)
        pairs[: len(index)] = index
        first, second = pairs[0::2], pairs[1::2]
        packed = np.stack([first >> 4, ((first & 15) << 4) | (second >> 8), second & 255], axis=1).astype(np.uint8)
        return wire.pack(event, DG_Q12, packed.tobytes(), keys)

    def decode(self, data: bytes, event: ChannelEvent, keys: EventKeys) -> np.ndarray:
        """See `Channel.decode`; the values are midpoints of the quantiser's cells."""
        payload = wire.unpack(data, event, DG_Q12, keys).payload
        size = 3 * (-(-event.k // 2))
        if len(payload) != size:
            raise ChannelError(f"payload must have {size} bytes. Received {len(payload)}.")
        triples = np.frombuffer(payload, np.uint8).reshape(-1, 3).astype(np.int64)
        first = (triples[:, 0] << 4) | (triples[:, 1] >> 4)
        second = ((triples[:, 1] & 15) << 8) | triples[:, 2]
        index = np.stack([first, second], axis=1).ravel()[: event.k]
        return (index - LEVELS // 2 + 0.5) * _step(event)


def _step(event: ChannelEvent) -> float:
    if event.noise_stddev == 0:
        raise ValueError("channel 'dg-q12' needs noise_stddev > 0: its range is a multiple of it. Received 0.")
    return 2.0 * RANGE * event.noise_stddev / LEVELS
