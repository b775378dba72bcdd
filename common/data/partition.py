"""Equal-size Dirichlet label partition (docs/method.md, section 10): always ends, no order bias.

Drawing clients one after another without replacement gives the last ones the leftovers. Here all clients are drawn at
once: N x classes Dirichlet weights, fitted to the client size and to the class counts by bounded iterative proportional
fitting, rounded by largest remainders, and filled with a random assignment of records. Rows are dealt to clients at
random, so future clients (the last numbers) are a random subset.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from common.randomness import Purpose, public_generator
from common.validation import integer, number

_MAX_SWEEPS = 1000
_TOLERANCE = 1e-9
# Keeps every cell positive, so that fitting has a solution even where the Dirichlet draw underflows to zero.
_FLOOR = 1e-12


@dataclass(frozen=True)
class Partition:
    """Which records each client holds.

    Attributes:
        indices: (clients, records_per_client) int64, into the official training split, no index twice.
        label_counts: (clients, classes) int64, realised.
    """

    indices: np.ndarray
    label_counts: np.ndarray

    def digest(self) -> str:
        """SHA-256 of the assignment."""
        return hashlib.sha256(self.indices.astype("<i8").tobytes()).hexdigest()


def dirichlet_partition(
    labels: np.ndarray, *, num_clients: int, records_per_client: int, alpha: float, seed: int
) -> Partition:
    """Deal records to clients of equal size with Dirichlet label proportions.

    Args:
        labels: (n,) integer labels of all records.
        alpha: concentration, any positive number.

    Raises:
        ValueError: an argument out of range, or more records wanted than there are.
    """
    integer("num_clients", num_clients, at_least=1)
    integer("records_per_client", records_per_client, at_least=1)
    number("dirichlet-alpha", alpha, above=0.0)
    wanted = num_clients * records_per_client
    if wanted > len(labels):
        raise ValueError(f"num_clients x records_per_client must be at most {len(labels)}. Received {wanted}.")
    labels = np.asarray(labels, dtype=np.int64)
    available = np.bincount(labels)
    rng = public_generator(seed, Purpose.PARTITION)
    class_totals = _largest_remainder(available * (wanted / len(labels)), wanted, rng)
    weights = _dirichlet(rng, alpha, num_clients, len(available))
    counts = _round(_fit(weights, records_per_client, class_totals), records_per_client, class_totals, rng)
    counts = counts[public_generator(seed, Purpose.FUTURE_CLIENTS).permutation(num_clients)]
    return Partition(_assign(labels, counts, rng), counts)


def _dirichlet(rng: np.random.Generator, alpha: float, rows: int, columns: int) -> np.ndarray:
    """Dirichlet(alpha) rows, via log-Gamma draws that do not underflow: Gamma(a) = Gamma(a+1) U^(1/a)."""
    log_gamma = np.log(rng.standard_gamma(alpha + 1.0, (rows, columns))) + np.log(rng.random((rows, columns))) / alpha
    weights = np.exp(log_gamma - log_gamma.max(axis=1, keepdims=True))
    result: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return result


def _fit(weights: np.ndarray, row_total: int, column_totals: np.ndarray) -> np.ndarray:
    """Scale rows and columns in turn until both totals hold; the last step leaves no column too full."""
    matrix = np.maximum(weights, _FLOOR)
    for _ in range(_MAX_SWEEPS):
        matrix *= row_total / matrix.sum(axis=1, keepdims=True)
        columns = matrix.sum(axis=0)
        if np.abs(columns - column_totals).max() <= _TOLERANCE * row_total:
            break
        matrix *= np.divide(column_totals, columns, out=np.zeros(len(columns)), where=columns > 0)
    rows = matrix.sum(axis=1, keepdims=True)
    return matrix * np.minimum(1.0, row_total / rows)


def _round(matrix: np.ndarray, row_total: int, column_totals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers with exact row and column totals: floors, then the largest remainders that both totals admit."""
    counts = np.floor(matrix + 1e-9).astype(np.int64)
    # where fitting stopped early, a column may still be too full: the fullest cells give back
    for column in np.flatnonzero(counts.sum(axis=0) > column_totals):
        excess = counts[:, column].sum() - column_totals[column]
        for row in np.argsort(-counts[:, column]):
            take = min(excess, counts[row, column])
            counts[row, column] -= take
            excess -= take
    row_missing = row_total - counts.sum(axis=1)
    column_missing = column_totals - counts.sum(axis=0)
    # ties at random, so that no client is served first for its number
    order = np.lexsort((rng.random(matrix.size), -(matrix - counts).ravel()))
    for cell in order:
        row, column = divmod(int(cell), matrix.shape[1])
        if row_missing[row] > 0 and column_missing[column] > 0:
            counts[row, column] += 1
            row_missing[row] -= 1
            column_missing[column] -= 1
    # each cell took one at most; what is left is dealt without regard to the weights
    for row in rng.permutation(np.flatnonzero(row_missing)):
        for column in np.argsort(-column_missing):
            take = min(row_missing[row], column_missing[column])
            counts[row, column] += take
            row_missing[row] -= take
            column_missing[column] -= take
    return counts


def _largest_remainder(shares: np.ndarray, total: int, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers near `shares` (never above their ceiling) with the given sum."""
    counts = np.floor(shares + 1e-9).astype(np.int64)
    order = np.lexsort((rng.random(len(shares)), counts - shares))
    counts[order[: total - counts.sum()]] += 1
    return counts


def _assign(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random choice of records with the given label counts; each client's list in random order."""
    pools = [rng.permutation(np.flatnonzero(labels == label)) for label in range(counts.shape[1])]
    ends = np.cumsum(counts, axis=0)
    clients = [
        np.concatenate([pool[end[c] - row[c] : end[c]] for c, pool in enumerate(pools)])
        for row, end in zip(counts, ends, strict=True)
    ]
    return np.stack([rng.permutation(client) for client in clients])
