"""The least that the D4 scheme can cost: H(κ, lattice point | shared randomness), by Monte Carlo, and Shannon's limit.

Independent of the codec: NumPy's own randomness, its own lattice quantiser, no tables. For each draw of the shared
randomness, the outcome (κ, point) of many updates is counted; the entropy of the counts (Miller-Madow corrected) is
averaged over draws.
"""

import numpy as np

RHO2 = 0.5
MAX_TRIALS = 40


def outcomes(u: np.ndarray, dithers: np.ndarray) -> np.ndarray:
    """Identifiers of (κ, point) for updates u (n, 4) in ball units under one sequence of dithers (trials, 4)."""
    identifiers = np.zeros((len(u), 5), dtype=np.int64)
    todo = np.arange(len(u))
    for kappa, w in enumerate(dithers):
        y = u[todo] - w
        z = np.floor(y + 0.5)
        gap = np.abs(y - z)
        odd = (z.sum(axis=1) % 2) != 0
        rows, worst = np.flatnonzero(odd), gap.argmax(axis=1)[odd]
        z[rows, worst] += np.where(y[rows, worst] > z[rows, worst], 1.0, -1.0)
        accepted = ((y - z) ** 2).sum(axis=1) <= RHO2
        identifiers[todo[accepted], 0] = kappa + 1
        identifiers[todo[accepted], 1:] = z[accepted]
        todo = todo[~accepted]
        if len(todo) == 0:
            break
    return identifiers


def entropy_per_coordinate(s: float, draws: int = 3000, samples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """Bits per coordinate at s = τ/σ and the standard error of the estimate."""
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(draws):
        t = s * np.sqrt(RHO2 / rng.chisquare(6))
        dithers = rng.random((MAX_TRIALS, 4)) * [1, 1, 1, 2]
        found = outcomes(t * rng.standard_normal((samples, 4)), dithers)
        hashed = found @ np.array([1_000_003, 10_007, 101, 7, 1])
        counts = np.unique(hashed, return_counts=True)[1]
        p = counts / samples
        values.append((-(p * np.log2(p)).sum() + (len(counts) - 1) / (2 * samples * np.log(2))) / 4)
    return float(np.mean(values)), float(np.std(values) / np.sqrt(draws))


def shannon(s: float) -> float:
    """Capacity-style limit of the Gaussian channel: ½ log2(1 + s²) bits per coordinate."""
    return 0.5 * float(np.log2(1 + s * s))
