"""The Gaussian of `dg` and of contexts: exactly rounded, also where a grid of uniform numbers has gaps."""

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from common import gaussian
from common.gaussian import add_gaussian
from common.randomness import KeyStream, derive_key

KEY = derive_key(bytes(32), "test")


def nearest_float32(value, stddev, cell, words):
    """The same decision by bisection over float32 numbers and Φ alone, at 600 bits."""
    with mpmath.workprec(600):
        u = mpmath.mpf(cell)
        for word in words:
            u = u * 2**64 + int(word)
        u = (u + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** (52 + 64 * len(words))
        # Integers in the order of float32 numbers.
        low, high = -0x7F7FFFFF, 0x7F7FFFFF
        while low < high:
            middle = (low + high) // 2
            border = (as_real(middle) + as_real(middle + 1)) / 2
            if mpmath.ncdf((border - mpmath.mpf(value)) / mpmath.mpf(stddev)) < u:
                low = middle + 1
            else:
                high = middle
        return float(as_real(low))


def as_real(order):
    bits = np.uint32(order) if order >= 0 else np.uint32(0x80000000 | -order)
    return mpmath.mpf(float(bits.view(np.float32)))


class Words:
    """A stream whose proposing words are given; further bits come from the real stream."""

    def __init__(self, first):
        self.first = first

    def __call__(self, key):
        return self if key == KEY else KeyStream(key)

    def words(self, n):
        return np.asarray(self.first[:n], dtype=np.uint64)


CELLS = [0, 1, 2, 3, 17, 1000, 10**6, 2**26, 2**51 - 1, 2**51, 2**52 - 1, 2**52 - 2, 2**52 - 10**4]


@pytest.mark.parametrize(("value", "stddev"), [(0.0, 1.0), (0.0021, 0.015), (-3.0, 1e-3), (0.0, 1e-12), (1e-9, 0.3)])
def test_the_sum_is_rounded_as_the_exact_number(monkeypatch, value, stddev):
    """Both tails to the last cell, and the middle, against an independent computation."""
    decided, decide = {}, gaussian._decide

    def recorded(value, stddev, cell, words):
        decided[cell] = words
        return decide(value, stddev, cell, words)

    monkeypatch.setattr(gaussian, "_decide", recorded)
    monkeypatch.setattr(gaussian, "KeyStream", Words([cell << 12 for cell in CELLS]))
    found = add_gaussian(np.full(len(CELLS), value), stddev, KEY)
    z = ndtri((np.array(CELLS, float) + 0.5) * 2.0**-52)
    assert {cell for cell, far in zip(CELLS, np.abs(z) > 6.0, strict=True) if far} <= set(decided)
    for cell, number in zip(CELLS, found, strict=True):
        if cell in decided:
            assert number == nearest_float32(value, stddev, cell, decided[cell])
    assert len({tuple(words) for words in decided.values()}) == len(decided)
    assert np.array_equal(found, found.astype(np.float32))
    assert np.allclose(found, value + stddev * z, rtol=0.1)


def test_the_tail_has_no_gaps(monkeypatch):
    """All of the outermost cell's draws: they follow the exact conditional law beyond 8.1 standard deviations, where
    0.1.0 had one single value. Fixed key; Kolmogorov-Smirnov at 1e-6."""
    count = 600
    monkeypatch.setattr(gaussian, "KeyStream", Words(np.zeros(count)))
    found = add_gaussian(np.zeros(count), 1.0, KEY)
    assert len(set(found)) > count - 5
    with mpmath.workprec(100):
        uniform = np.array([float(mpmath.ncdf(x) * 2**52) for x in found])
    assert stats.kstest(uniform, "uniform").pvalue > 1e-6


def test_the_proposal_is_trusted_only_where_it_is_right(monkeypatch):
    """Everywhere the doubt covers half a cell and the error of ndtri: 2,000 cells of all sizes against 50 digits."""
    rng = np.random.default_rng(5)
    tail = 2.0 ** -rng.uniform(1, 29, 1000)
    cells = np.floor(np.concatenate([tail, 1 - tail, rng.random(500), 0.5 + 1e-9 * rng.standard_normal(100)]) * 2**52)
    z = ndtri((cells + 0.5) * 2.0**-52)
    kept = np.abs(z) <= 6.0
    with mpmath.workdps(50):
        for cell, proposed in zip(cells[kept], z[kept], strict=True):
            doubt = 1.01 * 2.0**-53 * np.sqrt(2 * np.pi) * np.exp(proposed**2 / 2)
            below, above = (
                mpmath.ncdf(mpmath.mpf(proposed) + sign * (doubt + gaussian._QUANTILE_ERROR * (1 + abs(proposed)) / 30))
                for sign in (-1, 1)
            )
            assert below <= mpmath.mpf(cell) / 2**52 and (mpmath.mpf(cell) + 1) / 2**52 <= above


def test_noise_is_standard_normal():
    """Fixed key; Kolmogorov-Smirnov and variance at 5 standard errors: a false alarm in about a million keys."""
    for exact in (True, False):
        sample = add_gaussian(np.zeros(400_000), 1.0, KEY, exact=exact)
        assert stats.kstest(sample, "norm").pvalue > 1e-6
        assert abs(sample.var() - 1.0) < 5 * np.sqrt(2 / 400_000)


def test_exact_and_proposed_agree_but_for_roundings_that_are_open():
    values = np.linspace(-1, 1, 200_000)
    exact, proposed = (add_gaussian(values, 0.01, KEY, exact=exact) for exact in (True, False))
    assert (exact != proposed.astype(np.float32)).sum() <= 1


def test_no_noise_changes_nothing():
    assert np.array_equal(add_gaussian(np.array([0.1, -2.0]), 0.0, KEY), [0.1, -2.0])
