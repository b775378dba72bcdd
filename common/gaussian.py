"""u + N(0, σ²), rounded to float32 as the exact real number would be.

The inverse distribution function of a 52-bit uniform number is a Gaussian on a grid. Between 6.5 and 8.2 standard
deviations that grid is coarser than float32, so that whole intervals are never drawn, and which ones depends on u: by
enumeration, δ of a run at ε = 16 was 4.8e-5 to 3.6e-4 where 1e-5 was claimed. Here the grid only proposes. Where it
leaves open to which float32 number u + σ Z rounds, for a real Gaussian Z, further random bits decide, in arithmetic of
400 bits (docs/method.md, section 7). Holohan & Braghin, "Secure random sampling in differential privacy", 2021, explain
the attack; drawing bits until the rounding is certain is Karney's idea, "Sampling exactly from the normal distribution",
2016.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from common.randomness import KeyStream, derive_key

# Bits of the grid that proposes, and of the words that decide.
_PROPOSED = 52
_WORD = 64
_WORDS = 3
_PRECISION = 400
# ndtri errs by less than this times (1 + |z|): forty times what a comparison with 50 digits shows (tested).
_QUANTILE_ERROR = 2.0**-46
# Beyond, one cell of the grid is too wide for a linear bound.
_TAIL = 6.0


def add_gaussian(values: np.ndarray, stddev: float, key: bytes, *, exact: bool = True) -> np.ndarray:
    """values + N(0, stddev² I), a function of the key alone.

    Args:
        values: (k,) float64, finite.
        key: 32 secret bytes, never used for other values.
        exact: round to float32 exactly. False gives the float64 sum as proposed: for keys that derive from a public
            seed, which protect nothing, and whose results are to be repeated to the last bit.

    Returns:
        (k,) float64. With `exact`, float32 numbers with the law of the correctly rounded real sum, but for a total
        variation of 2^-212 a coordinate: U has 2^244 cells, and only those that hold one of fewer than 2^32 borders
        between float32 numbers can be rounded wrong. That is 2^-170 for 10^12 coordinates.
    """
    cells = KeyStream(key).words(len(values)) >> np.uint64(_WORD - _PROPOSED)
    z = np.asarray(ndtri((cells.astype(np.float64) + 0.5) * 2.0**-_PROPOSED))
    proposed: np.ndarray = values + stddev * z
    if not exact or stddev == 0:
        return proposed
    # Half a cell is 2^-53 of probability, and the density at z turns it into a distance. Then ndtri, product and sum.
    doubt = 1.01 * 2.0**-53 * math.sqrt(2.0 * math.pi) * np.exp(np.minimum(z * z, _TAIL**2) / 2.0)
    doubt = stddev * (doubt + _QUANTILE_ERROR * (1.0 + np.abs(z))) + 2.0**-52 * np.abs(proposed)
    result = (proposed - doubt).astype(np.float32)
    open_ = np.flatnonzero((result != (proposed + doubt).astype(np.float32)) | (np.abs(z) > _TAIL))
    if len(open_):
        words = KeyStream(derive_key(key, "further bits")).words(_WORDS * len(open_)).reshape(-1, _WORDS)
        for index, more in zip(open_, words, strict=True):
            result[index] = _decide(float(values[index]), stddev, int(cells[index]), [int(word) for word in more])
    return result.astype(np.float64)


def _decide(value: float, stddev: float, cell: int, words: list[int]) -> np.float32:
    """The float32 number nearest to value + stddev · Φ⁻¹(U), where the cell and the words are the bits of U."""
    import mpmath  # only here: one message in a hundred needs it

    bits = _PROPOSED + _WORD * len(words)
    for word in words:
        cell = cell << _WORD | word
    with mpmath.workprec(_PRECISION):
        half = 2**bits // 2
        sign, tail = (-1, cell) if cell < half else (1, 2**bits - 1 - cell)
        total = mpmath.mpf(value) + sign * mpmath.mpf(stddev) * _upper_quantile(
            mpmath.mpf(2 * tail + 1) / 2 ** (bits + 1)
        )
        near = np.float32(float(total))
        infinity = np.float32(np.inf)
        candidates = (np.nextafter(near, -infinity), near, np.nextafter(near, infinity))
        result: np.float32 = min(candidates, key=lambda candidate: abs(mpmath.mpf(float(candidate)) - total))
        return result


def _upper_quantile(probability):  # type: ignore[no-untyped-def]
    """z with 1 − Φ(z) = probability ≤ 1/2: Newton's method on the logarithm, each step doubling the digits."""
    import mpmath

    z = mpmath.mpf(-float(ndtri(float(probability))))
    for _ in range(5):
        upper = mpmath.erfc(z / mpmath.sqrt(2)) / 2
        z += mpmath.log(upper / probability) * upper / mpmath.npdf(z)
    return z
