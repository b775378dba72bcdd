"""The fold as one compiled loop: a row of gradients is read once, while it is in the cache. NumPy and Numba alone."""

import numpy as np
from numba import njit


@njit(cache=True)
def fold(gradients, entries, rows, columns, out):
    """gradients (n, d), entries (d,) → out (n, k), block after block: block b folds the rows rows[b]..rows[b + 1] of P
    onto its columns columns[b]..columns[b + 1]."""
    n = gradients.shape[0]
    for r in range(n):
        for b in range(len(rows) - 1):
            first, last, width = rows[b], rows[b + 1], columns[b + 1] - columns[b]
            target = out[r, columns[b] : columns[b + 1]]
            part = gradients[r, first : first + width]
            signs = entries[first : first + width]
            for j in range(width):
                target[j] = signs[j] * part[j]
            for start in range(first + width, last, width):
                length = min(width, last - start)
                part = gradients[r, start : start + length]
                signs = entries[start : start + length]
                for j in range(length):
                    target[j] += np.float32(signs[j] * part[j])
