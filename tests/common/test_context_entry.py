import numpy as np
import pytest

from common.context_entry import ContextEntry


def entered(entry, contexts):
    return np.stack([entry(context) for context in contexts]).astype(np.float64)


def test_standardised_over_participating_contexts_and_kept():
    contexts = np.array([[1.0, 5.0], [3.0, 5.0]])
    entry = ContextEntry.fit("standardized", 2.0, contexts, 0.1)
    assert np.allclose(entry(contexts[0]), [-2.0, 0.0])


def test_raw_applies_the_gain_alone():
    contexts = np.array([[1.0, 5.0], [3.0, 5.0]])
    assert np.allclose(ContextEntry.fit("raw", 0.5, contexts, 0.1)(contexts[1]), [1.5, 2.5])


@pytest.mark.parametrize(("clients", "dim"), [(40, 6), (40, 384)])
def test_whitened_contexts_have_equal_spread_in_every_direction(clients, dim):
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((clients, dim)) * np.geomspace(1.0, 1e-3, dim)
    result = entered(ContextEntry.fit("whitened", 0.3, contexts, 0.0), contexts)
    singular = np.linalg.svd(result - result.mean(axis=0), compute_uv=False)
    rank = min(dim, clients - 1)
    assert np.allclose(singular[:rank], singular[0], rtol=1e-4)
    assert np.sqrt((result**2).mean()) == pytest.approx(0.3, rel=1e-5)


def test_whitening_shrinks_directions_by_their_share_of_noise():
    """Two directions, the second with four times the noise's variance: a quarter of its variance goes."""
    contexts = np.array([[1.0, 0.2], [1.0, -0.2], [-1.0, 0.2], [-1.0, -0.2]])
    plain, noisy = (ContextEntry.fit("whitened", 1.0, contexts, noise)(contexts[0]) for noise in (0.0, 0.1))
    assert np.allclose(plain, [1.0, 1.0])
    assert np.allclose(noisy, [1.0 - 0.01, 1.0 - 0.25])


def test_contexts_of_noise_alone_enter_as_zero():
    """All variances below σ_c²."""
    contexts = 0.01 * np.random.default_rng(0).standard_normal((40, 6))
    assert not entered(ContextEntry.fit("whitened", 1.0, contexts, 0.1), contexts).any()


@pytest.mark.parametrize(
    ("clients", "dim", "left"), [(400, 6, 0.07), (400, 150, 0.24), (40, 50, 0.35), (40, 150, 0.67)]
)
def test_noise_alone_is_shrunk_as_far_as_there_are_clients_to_tell(clients, dim, left):
    """Variances fitted on few contexts scatter by a factor of about (1 ± √(2s/M))²: what exceeds σ_c² passes for signal
    (docs/method.md, section 1). The share of the length that is left, within ± 0.03 over three draws."""
    for seed in range(3):
        contexts = 0.01 * np.random.default_rng(seed).standard_normal((clients, dim))
        result = entered(ContextEntry.fit("whitened", 1.0, contexts, 0.01), contexts)
        assert np.sqrt((result**2).mean()) == pytest.approx(left, abs=0.03)


@pytest.mark.parametrize("contexts", [np.ones((1, 4)), np.ones((3, 4))])
def test_contexts_without_differences_enter_as_zero(contexts):
    assert not ContextEntry.fit("whitened", 1.0, contexts, 0.0)(contexts[0]).any()


def test_a_context_is_whitened_like_the_participating_ones():
    rng = np.random.default_rng(1)
    contexts = rng.standard_normal((40, 6)) @ rng.standard_normal((6, 6))
    entry = ContextEntry.fit("whitened", 1.0, contexts, 0.0)
    future = rng.standard_normal(6)
    mixed = entry.shift + 0.5 * (contexts[3] - entry.shift) + 0.5 * (future - entry.shift)
    assert np.allclose(entry(mixed), 0.5 * entry(contexts[3]) + 0.5 * entry(future), atol=1e-5)
