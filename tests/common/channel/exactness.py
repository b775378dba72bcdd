"""The exactness suite: is the decoded error N(0, σ²), independent of the update? Shared by tests and benchmark.

Every statistic is standardised; `LIMIT` = 5.5 standard errors, two-sided 4e-8. With about ten statistics on a dozen
inputs, a right codec fails once in about 2·10^5 suites. p-values are held above 1e-7.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from common.randomness import derive_key

LIMIT = 5.5
P_LIMIT = 1e-7
SIGMA = 0.015
K = 16_384


def inputs(rng: np.random.Generator, k: int = K) -> dict[str, np.ndarray]:
    """Updates of every shape that could betray a dependence."""
    layers = np.repeat([0.001, 0.01, 0.1, 1.0], k // 4) * SIGMA
    return {
        "zero": np.zeros(k),
        "constant": np.full(k, 0.3 * SIGMA),
        "gaussian": rng.standard_normal(k) * 0.16 * SIGMA,
        "laplace": rng.laplace(size=k) * 0.2 * SIGMA,
        "sparse": np.where(rng.random(k) < 0.01, 3.0 * SIGMA, 0.0),
        "50 sigma": rng.standard_normal(k) * 50 * SIGMA,
        "layered scales": rng.standard_normal(k) * layers,
    }


def key_of(case: str, index: int, seed: int) -> bytes:
    """A fresh key per case: one key would test one draw of the shared randomness many times."""
    return derive_key(seed.to_bytes(32, "big"), "exactness", case, index)


def failures(updates: np.ndarray, errors: np.ndarray) -> list[str]:
    """Names of the statistics that are off.

    Args:
        updates: (n,) un-noised coordinates; errors: (n,) decoded minus un-noised, in units of σ; n a multiple of 4.
    """
    n = errors.size
    found = {
        "mean": errors.mean() * np.sqrt(n),
        "variance": (np.mean(errors**2) - 1.0) * np.sqrt(n / 2),
        "skew": np.mean(errors**3) * np.sqrt(n / 15),
        "kurtosis": (np.mean(errors**4) - 3.0) * np.sqrt(n / 96),
    }
    if updates.std() > 0:
        found["corr(u, e)"] = np.corrcoef(updates, errors)[0, 1] * np.sqrt(n)
        if (updates**2).std() > 0:
            # A weight per coordinate that heavy tails cannot dominate: the rank-like square of the bounded update.
            weight = np.tanh(np.abs(updates) / np.abs(updates).mean())
            found["corr(u^2, e^2)"] = np.corrcoef(weight, errors**2)[0, 1] * np.sqrt(n)
    blocks = errors.reshape(-1, 4)
    neighbours = np.mean(blocks[:, 0] * blocks[:, 1]) * np.sqrt(len(blocks))
    found["corr within a block"] = neighbours
    off = [f"{name}: {value:.1f} standard errors" for name, value in found.items() if abs(value) > LIMIT]
    for name, p in {
        "KS": stats.kstest(errors, "norm").pvalue,
        "block norm": stats.kstest(np.sum(blocks**2, axis=1), stats.chi2(4).cdf).pvalue,
    }.items():
        if p < P_LIMIT:
            off.append(f"{name}: p = {p:.1e}")
    return off
