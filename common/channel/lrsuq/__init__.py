"""LRSUQ: the exact Gaussian channel at a fraction of a bit per coordinate. Usable without Flower: `encode`, `decode`."""

import numpy as np

from common.channel.lrsuq.channel import LayeredQuantizer, decode, encode

__all__ = ["LayeredQuantizer", "decode", "encode", "warm_up"]


def warm_up() -> None:
    """Compile the codec, or load it from the cache: call before the first message is waited for."""
    for block_size in (4, 1):
        decode(encode(np.zeros(4), 1.0, bytes(32), block_size=block_size), bytes(32))
