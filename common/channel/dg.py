"""DG, the direct Gaussian: add the noise, send float32. 32 bits per coordinate; the reference for every other channel."""

from __future__ import annotations

import numpy as np

from common.channel import wire
from common.channel.base import ChannelError, ChannelEvent, EventKeys, check_update
from common.channel.channel_pb2 import DG
from common.gaussian import add_gaussian
from common.randomness import derive_key


def add_noise(update: np.ndarray, event: ChannelEvent, keys: EventKeys) -> np.ndarray:
    """update + N(0, σ² I) from the client's secret key: (k,) float64, rounded exactly to float32 (`common.gaussian`)."""
    values = check_update(update, event)
    if keys.secret is None:
        raise ValueError("keys.secret must be given: the noise is the client's secret.")
    return add_gaussian(values, event.noise_stddev, derive_key(keys.secret, "noise"), exact=not keys.public)


class DirectGaussian:
    """update + σ · noise, little-endian float32."""

    name = "dg"

    def encode(self, update: np.ndarray, event: ChannelEvent, keys: EventKeys) -> bytes:
        """See `Channel.encode`."""
        payload = add_noise(update, event, keys).astype("<f4").tobytes()
        return wire.pack(event, DG, payload, keys)

    def decode(self, data: bytes, event: ChannelEvent, keys: EventKeys) -> np.ndarray:
        """See `Channel.decode`."""
        payload = wire.unpack(data, event, DG, keys).payload
        if len(payload) != 4 * event.k:
            raise ChannelError(f"payload must have {4 * event.k} bytes. Received {len(payload)}.")
        values = np.frombuffer(payload, "<f4").astype(np.float64)
        if not np.isfinite(values).all():
            raise ChannelError("payload must be finite numbers")
        return values
