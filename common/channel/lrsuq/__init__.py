"""LRSUQ: the exact Gaussian channel at a fraction of a bit per coordinate. Usable without Flower: `encode`, `decode`."""

from common.channel.lrsuq.channel import LayeredQuantizer, decode, encode

__all__ = ["LayeredQuantizer", "decode", "encode"]
