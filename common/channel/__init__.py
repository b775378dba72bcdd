"""The uplink: how a clipped update becomes bytes and, on the server, a privatised update.

A channel is `encode(update, event, keys)` → bytes and `decode(bytes, event, keys)` → (k,). Whatever the channel, the
decoded vector is update + noise: accounting and learning never know which one runs.
"""

from common.channel.base import Channel, ChannelError, ChannelEvent, EventKeys
from common.channel.dg import DirectGaussian
from common.channel.lrsuq import LayeredQuantizer
from common.channel.q12 import QuantizedGaussian
from common.settings import Settings

__all__ = [
    "Channel",
    "ChannelError",
    "ChannelEvent",
    "DirectGaussian",
    "EventKeys",
    "LayeredQuantizer",
    "QuantizedGaussian",
    "make_channel",
]


def make_channel(settings: Settings) -> Channel:
    """The channel of gradient releases. Contexts always travel by `DirectGaussian`: they are 2s numbers."""
    if settings.channel == "lrsuq":
        return LayeredQuantizer(settings.block_size, settings.lrsuq_padding, settings.lrsuq_public_scale)
    return QuantizedGaussian() if settings.channel == "dg-q12" else DirectGaussian()
