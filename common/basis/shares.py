"""How many of the k coefficients each tensor of a model gets where every tensor is folded alone."""

from collections.abc import Sequence

import numpy as np


def coefficient_shares(tensors: Sequence[int], num_coefficients: int) -> list[int]:
    """min(d_l, c sqrt(d_l)) for each tensor of d_l entries, with c such that they sum to k; at least one each.

    The square root lies between equal shares, which starve the large tensors, and proportional ones, which starve the
    convolutions; a tensor never gets more coefficients than it has entries.
    """
    sizes = np.array(tensors)
    shares = np.zeros(len(sizes), dtype=int)
    open_ = np.ones(len(sizes), dtype=bool)  # tensors that are not at their full size yet
    while open_.any():
        left = num_coefficients - shares[~open_].sum()
        wanted = left * np.sqrt(sizes) / np.sqrt(sizes[open_]).sum()
        full = open_ & (wanted >= sizes)
        if not full.any():
            shares[open_] = np.maximum(1, np.floor(wanted[open_])).astype(int)
            break
        shares[full], open_ = sizes[full], open_ & ~full
    # Rounding leaves a few: the largest tensor that can takes them, or gives them back.
    rest = num_coefficients - int(shares.sum())
    for position in np.argsort(-sizes):
        change = int(np.clip(shares[position] + rest, 1, sizes[position]) - shares[position])
        shares[position] += change
        rest -= change
    return [int(share) for share in shares]
