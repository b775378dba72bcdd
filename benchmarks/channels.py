"""DG, DG+Q12, LRSUQ, zlib and constriction on the same releases: bytes, milliseconds, exactness."""

import statistics
import zlib
from time import perf_counter

import constriction
import numpy as np

import common  # noqa: F401
from benchmarks.report import save, table
from common.channel import ChannelEvent, DirectGaussian, EventKeys, LayeredQuantizer, QuantizedGaussian
from common.channel.lrsuq import warm_up
from common.randomness import seed_key

K, SIGMA, NORM, MESSAGES = 16_384, 0.015, 0.3, 64
BINS = 4096


def constriction_encode(noisy: np.ndarray) -> bytes:
    """Twelve-bit cells of the noisy release, range coded under the Gaussian that they follow."""
    step = 16 * SIGMA / BINS
    index = np.clip(np.floor(noisy / step), -BINS // 2, BINS // 2 - 1).astype(np.int32)
    coder = constriction.stream.queue.RangeEncoder()
    model = constriction.stream.model.QuantizedGaussian(-BINS // 2, BINS // 2 - 1)
    spread = np.full(K, np.sqrt(SIGMA**2 + NORM**2 / K) / step)
    coder.encode(index, model, np.zeros(K) - 0.5, spread)
    return coder.get_compressed().tobytes()


def constriction_decode(data: bytes) -> np.ndarray:
    step = 16 * SIGMA / BINS
    coder = constriction.stream.queue.RangeDecoder(np.frombuffer(data, np.uint32))
    model = constriction.stream.model.QuantizedGaussian(-BINS // 2, BINS // 2 - 1)
    spread = np.full(K, np.sqrt(SIGMA**2 + NORM**2 / K) / step)
    return (coder.decode(model, np.zeros(K) - 0.5, spread) + 0.5) * step


if __name__ == "__main__":
    warm_up()
    channels = {
        "DG": DirectGaussian(),
        "DG+Q12": QuantizedGaussian(),
        "LRSUQ b = 4": LayeredQuantizer(),
        "LRSUQ b = 1": LayeredQuantizer(1),
    }
    coders = {"zlib (float32)": (lambda noisy: zlib.compress(noisy.astype("<f4").tobytes(), 9), lambda data: np.frombuffer(zlib.decompress(data), "<f4")),
              "constriction (12-bit cells)": (constriction_encode, constriction_decode)}  # fmt: skip
    found: dict[str, list[list[float]]] = {name: [] for name in [*channels, *coders]}
    for index in range(MESSAGES):
        u = np.random.default_rng(index).standard_normal(K)
        u *= NORM / np.linalg.norm(u)
        event = ChannelEvent("benchmark", 1, 0, K, SIGMA)
        keys = EventKeys(seed_key(index, 11), seed_key(index, 10))
        noisy = None
        for name, channel in channels.items():
            a = perf_counter()
            message = channel.encode(u, event, keys)
            b = perf_counter()
            decoded = channel.decode(message, event, keys)
            c = perf_counter()
            noisy = decoded if name == "DG" else noisy
            found[name].append([len(message), 1e3 * (b - a), 1e3 * (c - b), float(np.var((decoded - u) / SIGMA))])
        for name, (encode, decode) in coders.items():
            a = perf_counter()
            data = encode(noisy)
            b = perf_counter()
            decoded = decode(data)
            c = perf_counter()
            found[name].append([len(data), 1e3 * (b - a), 1e3 * (c - b), float(np.var((decoded - u) / SIGMA))])
    exact = {"DG": "float32 rounding", "DG+Q12": "no: cell of 0.0039 sigma, saturates", "LRSUQ b = 4": "yes", "LRSUQ b = 1": "yes",
             "zlib (float32)": "as DG", "constriction (12-bit cells)": "no: as DG+Q12"}  # fmt: skip
    rows = [
        [name, statistics.mean(v[0] for v in values), 8 * statistics.mean(v[0] for v in values) / K,
         statistics.median(v[1] for v in values), statistics.median(v[2] for v in values), statistics.mean(v[3] for v in values), exact[name]]
        for name, values in found.items()
    ]  # fmt: skip
    header = ["channel", "message B", "bpc", "encode ms", "decode ms", "error variance / sigma^2", "exact Gaussian"]
    table("The same 64 releases, k = 16,384, sigma = 0.015, norm 0.3", header, rows)
    save("channels", {"header": header, "rows": rows})
