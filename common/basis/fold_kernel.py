"""The fold as one compiled loop: a row of gradients is read once, while it is in the cache. NumPy and Numba alone."""

import numpy as np
from numba import njit


@njit(cache=True)
def fold(gradients, entries, out):
    """gradients (n, d), entries (d,) → out (n, k): out[r, j] = sum over m of entries[m k + j] gradients[r, m k + j]."""
    n, dim = gradients.shape
    k = out.shape[1]
    for r in range(n):
        target = out[r]
        row = gradients[r]
        for j in range(k):
            target[j] = entries[j] * row[j]
        for start in range(k, dim, k):
            length = min(k, dim - start)
            part = row[start : start + length]
            signs = entries[start : start + length]
            for j in range(length):
                target[j] += np.float32(signs[j] * part[j])
