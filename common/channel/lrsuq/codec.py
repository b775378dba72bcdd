"""LRSUQ: layered rejection-sampled universal quantisation. The quantisation error *is* the Gaussian noise.

`encode_payload` and `decode_payload` are the bare codec; `encode` and `decode` wrap it in a self-contained message
(docs/lrsuq.md; Ling & Li, "Rejection-sampled universal quantization for smaller quantization errors", 2024).
"""

from __future__ import annotations

import bisect
import math
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np

from common.channel.base import ChannelError
from common.channel.lrsuq import status
from common.channel.lrsuq.tables import NUM_CLASSES, tables
from common.compiled import load_compiled
from common.randomness import KeyStream, derive_key
from common.validation import number

BLOCK_SIZES = (1, 4)
# Scales of the update in units of sigma: 2^((index - 80)/8). Index 0 is the zero update.
MAX_SCALE = 460
_OFFSET = 80
# 2^(i/8) to the last bit: both sides must have the same.
_EIGHTHS = (1.0, 1.0905077326652577, 1.189207115002721, 1.2968395546510096,
            1.4142135623730951, 1.5422108254079407, 1.681792830507429, 1.8340080864093424)  # fmt: skip
# Beyond this many standard deviations float64 no longer holds update and noise together.
MAX_RATIO = 2.0**45
# Kurtosis of an update from which the next heavier model class codes it better.
_KURTOSIS = (3.7, 6.3, 12.0, 34.0)
_MAX_PAYLOAD_PER_BLOCK = 64


def kernel() -> ModuleType:
    """The compiled codec."""
    here = Path(__file__)
    return load_compiled(here.with_name("kernel.py"), here.with_name("range_coder.py"))


def scale_of(index: int) -> float:
    """Root mean square of the update's coordinates in units of σ, as the coder assumes it."""
    if index == 0:
        return 0.0
    octave, eighth = divmod(index - _OFFSET, 8)
    return math.ldexp(_EIGHTHS[eighth], octave)


@cache
def _midpoints() -> list[float]:
    """Geometric midpoints between consecutive scales of the grid, ascending."""
    return [scale_of(index) * 1.0442737824274138 for index in range(1, MAX_SCALE)]


def scale_index(ratio: float) -> int:
    """The index whose scale is nearest to `ratio` (τ/σ) on the logarithmic grid; 0 for 0."""
    # Comparisons with exactly computed midpoints: with a public scale both sides must find the same index.
    return 0 if ratio == 0 else 1 + bisect.bisect_left(_midpoints(), ratio)


def choose_model(update: np.ndarray, noise_stddev: float) -> tuple[int, int]:
    """Scale index and model class for an update: what the header carries. Only the encoder computes this."""
    largest = float(np.abs(update).max(initial=0.0))
    if largest == 0.0:
        return 0, 0
    squares = update / largest
    squares *= squares
    square = float(squares.mean())
    kurtosis = float(np.square(squares).mean()) / square**2
    model_class = sum(kurtosis > limit for limit in _KURTOSIS)
    return scale_index(largest / noise_stddev * math.sqrt(square)), model_class


def encode_payload(
    update: np.ndarray,
    noise_stddev: float,
    key: bytes,
    *,
    block_size: int = 4,
    scale: int,
    model_class: int = 0,
    profile: np.ndarray | None = None,
) -> tuple[bytes, np.ndarray]:
    """Entropy-coded payload and the decoded release.

    Args:
        update: (k,) float64, finite.
        noise_stddev: σ > 0.
        key: 32 bytes, shared with the decoder and used for this update alone.
        scale, model_class: as from `choose_model`; both sides must pass the same.
        profile: (k,) positive factors on the assumed scale per coordinate, known to both sides; None: all one.

    Returns:
        The payload (at least one byte) and the decoded release (k,): update + N(0, σ² I).

    Raises:
        ValueError: an argument out of range; |update| above 2^45 σ, where float64 cannot hold the sum.
    """
    sigma = _check(noise_stddev, block_size, scale, model_class)
    values = np.asarray(update, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"update must be a finite vector. Received shape {values.shape}.")
    if scale == 0 and values.any():
        raise ValueError("scale must be at least 1 for an update that is not zero. Received 0.")
    if np.abs(values).max(initial=0.0) > MAX_RATIO * sigma:
        raise ValueError(
            f"update must be within 2^45 noise_stddev = {MAX_RATIO * sigma:g}. Received a larger coordinate."
        )
    if len(values) == 0:
        return b"\0", np.empty(0)
    padded = np.zeros(-(-len(values) // block_size) * block_size)
    padded[: len(values)] = values
    buffer = np.empty(64 + _MAX_PAYLOAD_PER_BLOCK * len(padded) // block_size, dtype=np.uint8)
    length, decoded = _run(True, padded, len(values), sigma, key, block_size, scale, model_class, profile, buffer)
    return (buffer[:length].tobytes() or b"\0"), decoded


def decode_payload(
    payload: bytes,
    k: int,
    noise_stddev: float,
    key: bytes,
    *,
    block_size: int = 4,
    scale: int,
    model_class: int = 0,
    profile: np.ndarray | None = None,
) -> np.ndarray:
    """The decoded release (k,) of `encode_payload`, from the payload and the shared key alone.

    Raises:
        ChannelError: bytes that no encoder writes for these arguments. Time and memory are bounded by k.
    """
    sigma = _check(noise_stddev, block_size, scale, model_class)
    if not payload or (len(payload) > 1 and payload[-1] == 0):
        raise ChannelError(f"payload must be at least one byte and not end in a zero. Received {len(payload)} bytes.")
    if k == 0:
        if payload != b"\0":
            raise ChannelError(f"payload of an empty update must be one zero byte. Received {len(payload)} bytes.")
        return np.empty(0)
    padded = np.zeros(-(-k // block_size) * block_size)
    stripped = b"" if payload == b"\0" else payload
    buffer = np.frombuffer(stripped, dtype=np.uint8).copy()  # writable, as the encoder's: one compiled signature
    _, decoded = _run(False, padded, k, sigma, key, block_size, scale, model_class, profile, buffer)
    return decoded


def _check(noise_stddev: float, block_size: int, scale: int, model_class: int) -> float:
    sigma = number("noise_stddev", noise_stddev, above=0.0)
    if block_size not in BLOCK_SIZES:
        raise ValueError(f"block_size must be 1 or 4. Received {block_size!r}.")
    if not 0 <= scale <= MAX_SCALE:
        raise ChannelError(f"scale must be from 0 to {MAX_SCALE}. Received {scale}.")
    if not 0 <= model_class < NUM_CLASSES:
        raise ChannelError(f"model_class must be from 0 to {NUM_CLASSES - 1}. Received {model_class}.")
    return sigma


def _run(encoding, padded, k, sigma, key, block_size, scale, model_class, profile, buffer):  # type: ignore[no-untyped-def]
    """The kernel, with as much randomness as it turns out to need: one deterministic stream, ever longer prefixes."""
    compiled = kernel()
    table = tables(model_class)
    scales = np.full(len(padded), scale_of(scale) * sigma)
    if profile is not None:
        factors = np.asarray(profile, dtype=np.float64)
        if factors.shape != (k,) or not (np.isfinite(factors).all() and (factors > 0).all()):
            raise ValueError(f"profile must hold {k} finite positive factors. Received shape {factors.shape}.")
        scales[:k] *= factors
    decoded = np.empty(len(padded))
    blocks = len(padded) // block_size
    function = compiled.lrsuq4 if block_size == 4 else compiled.lrsuq1
    words = int(blocks * (3 + 4 * 1.75)) + 256 if block_size == 4 else int(blocks * (3 + 2 * 1.35)) + 256
    # No encoder comes near this many trials; a forged payload is stopped there.
    max_trials = 2 * blocks + 256
    while True:
        unit = KeyStream(derive_key(key, "lrsuq")).unit(words)
        outcome, length = function(
            encoding, padded, decoded, sigma, scales, unit, max_trials, buffer,
            table.cdf, table.hazard, table.shrink, table.z_cut,
        )  # fmt: skip
        if outcome == status.OK:
            return length, decoded[:k]
        if outcome != status.MORE_RANDOMNESS:
            raise ChannelError(
                {
                    status.TOO_MANY_TRIALS: "payload needs more trials than any encoder writes",
                    status.BUFFER_FULL: "payload would be longer than any encoder writes",
                    status.TRAILING_BYTES: "payload has trailing bytes",
                }[outcome]
            )
        words *= 2
