import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from common.data.partition import dirichlet_partition

LABELS = np.repeat(np.arange(10), 600)
UNEVEN = np.repeat(np.arange(4), [400, 300, 200, 100])


@settings(max_examples=60, deadline=None)
@given(
    clients=st.integers(1, 25),
    share=st.floats(0.05, 1.0),
    alpha=st.floats(1e-6, 1e6),
    seed=st.integers(0, 2**31),
    labels=st.sampled_from([LABELS, UNEVEN]),
)
def test_partition_is_exact_disjoint_and_deterministic(clients, share, alpha, seed, labels):
    size = max(1, int(len(labels) * share / clients))
    arguments = dict(num_clients=clients, records_per_client=size, alpha=alpha, seed=seed)
    part = dirichlet_partition(labels, **arguments)
    assert part.indices.shape == (clients, size)
    assert len(np.unique(part.indices)) == clients * size
    assert np.array_equal(
        part.label_counts,
        [np.bincount(labels[row], minlength=labels.max() + 1) for row in part.indices],
    )
    assert part.digest() == dirichlet_partition(labels, **arguments).digest()


def test_a_thousand_clients_with_tiny_alpha_end_quickly():
    started = time.monotonic()
    part = dirichlet_partition(
        np.repeat(np.arange(10), 5000), num_clients=1000, records_per_client=50, alpha=0.01, seed=0
    )
    assert part.label_counts.sum() == 50_000
    assert time.monotonic() - started < 60  # it took a fraction of a second; the bound is against not ending


def test_small_alpha_concentrates_and_large_alpha_evens_out():
    def commonest(alpha):
        part = dirichlet_partition(LABELS, num_clients=20, records_per_client=200, alpha=alpha, seed=0)
        return (part.label_counts.max(axis=1) / 200).mean()

    assert commonest(0.01) > 0.8
    assert 0.3 < commonest(0.5) < 0.5
    assert commonest(1e5) < 0.13


def test_label_law_does_not_depend_on_the_clients_number():
    """Share of the commonest label, first five against last five clients over 200 seeds: Kolmogorov-Smirnov at 1e-4."""
    first, last = [], []
    for seed in range(200):
        part = dirichlet_partition(LABELS, num_clients=20, records_per_client=300, alpha=0.3, seed=seed)
        shares = part.label_counts.max(axis=1) / 300
        first.extend(shares[:5])
        last.extend(shares[-5:])
    assert stats.ks_2samp(first, last).pvalue > 1e-4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"alpha": 0.0}, "dirichlet-alpha"),
        ({"alpha": float("nan")}, "dirichlet-alpha"),
        ({"num_clients": 0}, "num_clients"),
        ({"records_per_client": 7000}, "at most"),
    ],
)
def test_bad_arguments_are_refused(change, named):
    arguments = dict(num_clients=2, records_per_client=10, alpha=0.5, seed=0) | change
    with pytest.raises(ValueError, match=named):
        dirichlet_partition(LABELS, **arguments)
