"""LRSUQ as a channel of the uplink, and as a library of two functions."""

from __future__ import annotations

import numpy as np

from common.channel import wire
from common.channel.base import ChannelError, ChannelEvent, EventKeys, check_update
from common.channel.channel_pb2 import LRSUQ
from common.channel.lrsuq.codec import choose_model, decode_payload, encode_payload, scale_index
from common.validation import integer, number

# What `decode` allocates at most for a message from elsewhere.
MAX_COORDINATES = 1 << 26
_MARK = 0x80


class LayeredQuantizer:
    """The exact Gaussian channel of eq. 10.

    Args:
        block_size: 4 (D4 lattice, rejection) or 1 (layered dither).
        padding: payloads are filled up to a multiple of this many bytes, so that their length says less about the
            update; 0: not filled.
        public_scale: a public guess of τ/σ, used instead of the update's own, so that the header does not depend on
            the update; 0: off.
    """

    name = "lrsuq"

    def __init__(self, block_size: int = 4, padding: int = 0, public_scale: float = 0.0) -> None:
        self._block_size = block_size
        self._padding = integer("lrsuq-padding", padding, at_least=0)
        self._public = scale_index(number("lrsuq-public-scale", public_scale, at_least=0.0))

    def encode(self, update: np.ndarray, event: ChannelEvent, keys: EventKeys) -> bytes:
        """See `Channel.encode`. The noise is the shared key's: `keys.secret` is not used."""
        values = check_update(update, event)
        scale, model_class = (self._public, 0) if self._public else choose_model(values, event.noise_stddev)
        payload, _ = encode_payload(
            values, event.noise_stddev, keys.shared, block_size=self._block_size, scale=scale, model_class=model_class
        )
        header = (0, 0) if self._public else (scale, model_class)
        return wire.pack(
            event, LRSUQ, self._pad(payload), keys,
            block_size=self._block_size, scale=header[0], model_class=header[1],
        )  # fmt: skip

    def decode(self, data: bytes, event: ChannelEvent, keys: EventKeys) -> np.ndarray:
        """See `Channel.decode`."""
        message = wire.unpack(data, event, LRSUQ, keys, block_size=self._block_size)
        scale, model_class = message.scale, message.model_class
        if self._public:
            if scale or model_class:
                raise ChannelError(
                    f"scale and model_class must be 0 with a public scale. Received {scale}, {model_class}."
                )
            scale = self._public
        return decode_payload(
            self._unpad(message.payload), event.k, event.noise_stddev, keys.shared,
            block_size=self._block_size, scale=scale, model_class=model_class,
        )  # fmt: skip

    def _pad(self, payload: bytes) -> bytes:
        if not self._padding:
            return payload
        length = -(-(len(payload) + 1) // self._padding) * self._padding
        return payload + bytes([_MARK]) + bytes(length - len(payload) - 1)

    def _unpad(self, payload: bytes) -> bytes:
        if not self._padding:
            return payload
        stripped = payload.rstrip(b"\0")
        if len(payload) % self._padding or not stripped or stripped[-1] != _MARK:
            raise ChannelError(
                f"payload must be padded to a multiple of {self._padding} bytes. Received {len(payload)}."
            )
        return stripped[:-1]


def encode(update: np.ndarray, noise_stddev: float, key: bytes, *, block_size: int = 4) -> bytes:
    """One update as a self-contained message, without Flower.

    Args:
        update: (k,) finite; k may be 0.
        noise_stddev: σ > 0, standard deviation of the noise in one decoded coordinate.
        key: 32 secret bytes, shared with the decoder, never used for another update: two updates under one key would
            reveal their difference.

    Raises:
        ValueError: an argument out of range, named.

    Example:
        >>> import numpy as np
        >>> from common.channel.lrsuq import decode, encode
        >>> from common.randomness import fresh_key
        >>> key, update = fresh_key(), np.full(16_384, 0.002)
        >>> message = encode(update, 0.015, key)
        >>> len(message) < 500  # of the 65,536 bytes that float32 would take
        True
        >>> noise = decode(message, key) - update
        >>> bool(abs(noise.std() / 0.015 - 1) < 0.03)
        True
    """
    sigma = number("noise_stddev", noise_stddev, above=0.0)
    _check_key(key)
    values = np.asarray(update, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"update must be a vector. Received shape {values.shape}.")
    event = ChannelEvent("", 0, 0, len(values), sigma)
    return LayeredQuantizer(block_size).encode(values, event, EventKeys(key))


def decode(data: bytes, key: bytes) -> np.ndarray:
    """The release in a message of `encode`: (k,) float64, update + N(0, σ² I).

    Raises:
        ChannelError: damaged, truncated, another key, or more than 2^26 coordinates.
    """
    _check_key(key)
    head = wire.peek(data)
    if head.k > MAX_COORDINATES:
        raise ChannelError(f"k must be at most {MAX_COORDINATES}. Received {head.k}.")
    if head.block_size not in (1, 4):
        raise ChannelError(f"block_size must be 1 or 4. Received {head.block_size}.")
    if not head.noise_stddev > 0 or head.noise_stddev == float("inf"):
        raise ChannelError(f"noise_stddev must be a finite number > 0. Received {head.noise_stddev}.")
    event = ChannelEvent("", 0, 0, head.k, head.noise_stddev)
    return LayeredQuantizer(head.block_size).decode(data, event, EventKeys(key))


def _check_key(key: bytes) -> None:
    if not isinstance(key, bytes) or len(key) != 32:
        raise ValueError(f"key must be 32 bytes. Received {type(key).__name__} of length {len(key)}.")
