import math

import numpy as np
import pytest

from simulations.audit.bound import best_bound, epsilon_bound, p_value


def test_p_value_in_closed_form():
    """All of r guesses right under pure ε-DP: q^r; no guess right: certain."""
    q = 1 / (1 + math.exp(-1.5))
    assert p_value(100, 40, 40, 1.5, 0.0) == pytest.approx(q**40)
    assert p_value(100, 40, 0, 1.5, 1e-5) == 1.0
    assert p_value(10, 2, 1, 0.0, 0.0) == pytest.approx(0.75)


def test_the_correction_in_delta():
    """2 m δ max_i P[v > B ≥ v - i]/i, by its definition."""
    from scipy.stats import binom

    q = 1 / (1 + math.exp(-1.0))
    alpha = max(sum(binom.pmf(30 - j, 40, q) for j in range(1, i + 1)) / i for i in range(1, 31))
    assert p_value(500, 40, 30, 1.0, 1e-3) == pytest.approx(binom.sf(29, 40, q) + 2 * 500 * 1e-3 * alpha)


def test_bound_is_where_the_p_value_reaches_the_significance():
    epsilon = epsilon_bound(1000, 100, 95, 1e-5, 0.05)
    assert p_value(1000, 100, 95, epsilon, 1e-5) == pytest.approx(0.05, rel=1e-4)
    assert epsilon_bound(1000, 100, 50, 1e-5, 0.05) == 0.0
    assert epsilon_bound(1000, 100, 100, 1e-5, 0.05) == pytest.approx(math.log(0.05**0.01 / (1 - 0.05**0.01)), rel=1e-2)


def test_randomised_response_is_never_refuted_more_often_than_stated():
    """ε = 2: the bound exceeds it in at most 5 % of trials; 400 trials, allowed 5 % + 4 standard errors."""
    rng = np.random.default_rng(0)
    q = 1 / (1 + math.exp(-2.0))
    refuted = 0
    for _ in range(400):
        coins = rng.random(300) < 0.5
        right = rng.random(300) < q
        scores = np.where(coins == right, 1.0, -1.0) * rng.random(300)
        refuted += best_bound(scores, coins, delta=0.0, confidence=0.95).epsilon > 2.0
    assert refuted / 400 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 400)


def test_a_perfect_attack_on_many_coins_proves_a_large_epsilon():
    coins = np.random.default_rng(0).random(2000) < 0.5
    finding = best_bound(np.where(coins, 1.0, -1.0), coins, delta=1e-5, confidence=0.95)
    assert finding.epsilon > 5
    assert finding.correct == finding.guesses == 2000


@pytest.mark.parametrize("bad", [dict(guesses=11), dict(correct=6), dict(epsilon=float("nan")), dict(delta=1.0)])
def test_bad_arguments_are_refused(bad):
    arguments = dict(canaries=10, guesses=5, correct=3, epsilon=1.0, delta=0.0) | bad
    with pytest.raises(ValueError, match=next(iter(bad))):
        p_value(**arguments)
