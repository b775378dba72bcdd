"""The LRSUQ codec: payload bytes, conditional-entropy floor, milliseconds, growth with k. Bytes and times come from one
and the same encoder, through the same messages that a run sends."""

import statistics
from time import perf_counter

import numpy as np

import common  # noqa: F401
from benchmarks.floor import entropy_per_coordinate, shannon
from benchmarks.report import save, table
from common.channel import ChannelEvent, EventKeys, LayeredQuantizer
from common.channel.lrsuq import codec, warm_up
from common.channel.wire import peek
from common.randomness import seed_key

K, MESSAGES = 16_384, 64
GRID = [(sigma, norm) for sigma in (0.008, 0.015, 0.026, 0.048) for norm in (0.1, 0.3, 0.6, 0.9)]


def messages(sigma: float, norm: float, block_size: int, k: int = K, count: int = MESSAGES) -> dict[str, float]:
    """Means over `count` Gaussian updates of length `norm`."""
    channel, payload, overhead, encode_ms, decode_ms = LayeredQuantizer(block_size), [], [], [], []
    for index in range(count):
        u = np.random.default_rng(index).standard_normal(k)
        u *= norm / np.linalg.norm(u)
        event = ChannelEvent("benchmark", 1 + index, index % 50, k, sigma)
        key = EventKeys(seed_key(index, 11))
        started = perf_counter()
        message = channel.encode(u, event, key)
        encode_ms.append(1e3 * (perf_counter() - started))
        started = perf_counter()
        channel.decode(message, event, key)
        decode_ms.append(1e3 * (perf_counter() - started))
        size = len(peek(message).payload)
        payload.append(size)
        overhead.append(len(message) - size)
    return {
        "payload": statistics.mean(payload),
        "bpc": 8 * statistics.mean(payload) / k,
        "overhead": max(overhead),
        "encode_ms": statistics.median(encode_ms),
        "decode_ms": statistics.median(decode_ms),
    }


def mismatch() -> list[list[float]]:
    """Payload of 32 messages at s = 0.156 coded with a wrong public scale."""
    rows, base = [], 0.0
    for factor in (1.0, 0.5, 2**-0.5, 2**0.5, 2.0):
        sizes = []
        for index in range(32):
            u = np.random.default_rng(index).standard_normal(K)
            u *= 0.3 / np.linalg.norm(u)
            scale = codec.scale_index(factor * 0.3 / (np.sqrt(K) * 0.015))
            sizes.append(len(codec.encode_payload(u, 0.015, seed_key(index, 11), scale=scale)[0]))
        base = base or statistics.mean(sizes)
        rows.append([factor, statistics.mean(sizes), statistics.mean(sizes) / base - 1])
    return rows


if __name__ == "__main__":
    warm_up()
    results: dict[str, dict[str, list]] = {}
    rows, floors = [], {}
    for sigma, norm in GRID:
        s = norm / (np.sqrt(K) * sigma)
        four, one = messages(sigma, norm, 4), messages(sigma, norm, 1)
        floors[s], error = entropy_per_coordinate(s)
        rows.append([sigma, norm, s, four["payload"], four["bpc"], floors[s], four["bpc"] / floors[s] - 1, error / floors[s], shannon(s),
                     four["encode_ms"] + four["decode_ms"], one["payload"], one["encode_ms"] + one["decode_ms"], four["overhead"]])  # fmt: skip
    header = ["sigma", "norm", "s", "payload B", "bpc", "floor bpc", "excess", "floor rel. error", "Shannon bpc",
              "enc+dec ms", "payload B (b=1)", "enc+dec ms (b=1)", "other bytes"]  # fmt: skip
    table("Payload of 16,384 coordinates, means of 64 messages", header, rows)
    results["grid"] = {"header": header, "rows": rows}
    growth = []
    for k in (4096, 16_384, 65_536, 262_144, 1_048_576):
        norm = 0.3 * np.sqrt(k / K)
        cost = messages(0.015, norm, 4, k, 5)
        growth.append(
            [
                k,
                cost["payload"],
                cost["bpc"],
                cost["encode_ms"],
                cost["decode_ms"],
                1e6 * (cost["encode_ms"] + cost["decode_ms"]) / k,
            ]
        )
    header = ["k", "payload B", "bpc", "encode ms", "decode ms", "ns per coordinate"]
    table("Growth with k at s = 0.156", header, growth)
    results["growth"] = {"header": header, "rows": growth}
    results["mismatch"] = {"header": ["guess / true scale", "payload B", "excess"], "rows": mismatch()}
    table("A public scale that is wrong (s = 0.156)", results["mismatch"]["header"], results["mismatch"]["rows"])
    save("codec", results)
