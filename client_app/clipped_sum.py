"""Compiled loops over float32 rows in float64: norms, and weighted sums, without a copy of the rows.

Sums run in a fixed order, without fast-math. Depends on NumPy and Numba alone (see `common.compiled`).
"""

import numpy as np
from numba import njit

# Independent partial sums, so that the compiler can use vector instructions without changing the order of any.
_LANES = 16


@njit(cache=True)
def norms(rows, result):
    """rows (n, k) float32 → result (n,) float64, the norm of every row."""
    n, k = rows.shape
    whole = k - k % _LANES
    lanes = np.empty(_LANES, dtype=np.float64)
    for r in range(n):
        row = rows[r]
        lanes[:] = 0.0
        for start in range(0, whole, _LANES):
            for lane in range(_LANES):
                value = np.float64(row[start + lane])
                lanes[lane] += value * value
        total = 0.0
        for lane in range(_LANES):
            total += lanes[lane]
        for i in range(whole, k):
            value = np.float64(row[i])
            total += value * value
        result[r] = np.sqrt(total)


@njit(cache=True)
def add(total, rows, weights):
    """total (k,) float64 += Σ weights (n,) float64 · rows (n, k) float32, row after row."""
    n, k = rows.shape
    for r in range(n):
        row, weight = rows[r], weights[r]
        for i in range(k):
            total[i] += weight * np.float64(row[i])
