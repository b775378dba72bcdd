"""Compiled loops for per-record weight gradients: rows of G from a layer's inputs and output gradients.

After a 2×2 pooling at most a quarter of a convolution's output gradients differ from zero, and ReLU halves them again:
skipping zeros makes the per-record gradients cheaper than the dense products of a batch gradient. Sums run in a fixed
order, without fast-math. Depends on NumPy and Numba alone (see `common.compiled`).
"""

import numpy as np
from numba import njit


@njit(cache=True)
def linear(x, delta, rows, weight, bias):
    """x (n, in), delta (n, out) → rows[:, weight:] = delta ⊗ x, rows[:, bias:] = delta. bias < 0: the layer has none."""
    n, inputs = x.shape
    outputs = delta.shape[1]
    for r in range(n):
        row = rows[r]
        record = x[r]
        for o in range(outputs):
            d = delta[r, o]
            target = row[weight + o * inputs : weight + (o + 1) * inputs]
            for i in range(inputs):
                target[i] = d * record[i]
            if bias >= 0:
                row[bias + o] = d


@njit(cache=True)
def convolution(x, delta, kernel_h, kernel_w, rows, weight, bias):
    """x (n, H, W, in), delta (n, oh, ow, out) → weight gradients (out, in, kh, kw) and bias gradients in rows."""
    n, _, width, channels = x.shape
    _, height_out, width_out, outputs = delta.shape
    segment = kernel_w * channels
    size = kernel_h * segment
    # A multiple of what one unrolled vector step takes: the inner loop then has no remainder.
    padded = (size + 31) // 32 * 32
    patch = np.zeros(padded, dtype=np.float32)
    sums = np.empty((outputs, padded), dtype=np.float32)
    totals = np.empty(outputs, dtype=np.float32)
    active = np.empty(outputs + 1, dtype=np.int64)
    for r in range(n):
        sums[:] = 0.0
        totals[:] = 0.0
        image = x[r].reshape(-1)
        for i in range(height_out):
            for j in range(width_out):
                # Which outputs have a gradient here: without a branch, since no branch could be predicted.
                count = 0
                for o in range(outputs):
                    active[count] = o
                    count += delta[r, i, j, o] != 0.0
                if count == 0:
                    continue
                for ky in range(kernel_h):
                    start = ((i + ky) * width + j) * channels
                    for q in range(segment):
                        patch[ky * segment + q] = image[start + q]
                for index in range(count):
                    o = active[index]
                    d = delta[r, i, j, o]
                    totals[o] += d
                    target = sums[o]
                    for q in range(padded):
                        target[q] += d * patch[q]
        row = rows[r]
        position = weight
        for o in range(outputs):
            for c in range(channels):
                for ky in range(kernel_h):
                    for kx in range(kernel_w):
                        row[position] = sums[o, ky * segment + kx * channels + c]
                        position += 1
        if bias >= 0:
            for o in range(outputs):
                row[bias + o] = totals[o]
