"""From guesses to a lower bound on ε (Steinke, Nasr & Jagielski, "Privacy auditing with one (1) training run", 2023).

Every canary is in or out by a fair coin of its own. Under (ε, δ)-DP the number of correct guesses among r is at most
Binomial(r, e^ε/(1 + e^ε)), up to a correction in δ (their theorem 5.2). More correct guesses refute that ε.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom

from common.validation import integer, number

# Shares of the canaries that an auditor guesses on, surest first; the confidence is split over them.
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
_LARGEST = 100.0


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Chance of at least `correct` of `guesses` right guesses on `canaries` coins under (ε, δ)-DP, at most."""
    integer("canaries", canaries, at_least=1)
    integer("guesses", guesses, at_least=1, at_most=canaries)
    integer("correct", correct, at_least=0, at_most=guesses)
    q = float(expit(number("epsilon", epsilon, at_least=0.0)))
    beta = float(binom.sf(correct - 1, guesses, q))
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, q))
    alpha = float(np.max(below / np.arange(1, correct + 1), initial=0.0))
    return min(1.0, beta + 2.0 * canaries * number("delta", delta, at_least=0.0, below=1.0) * alpha)


def epsilon_bound(canaries: int, guesses: int, correct: int, delta: float, significance: float) -> float:
    """The largest ε that the guesses refute at this significance; 0 if they refute none."""

    def excess(epsilon: float) -> float:
        return p_value(canaries, guesses, correct, epsilon, delta) - significance

    if excess(0.0) >= 0:
        return 0.0
    if excess(_LARGEST) < 0:
        return _LARGEST
    return float(brentq(excess, 0.0, _LARGEST, xtol=1e-6))


@dataclass(frozen=True)
class Finding:
    """What an attack proves.

    Attributes:
        epsilon: lower bound on ε.
        guesses, correct: of the share of canaries that gives it.
        accuracy: of guesses on all canaries.
    """

    epsilon: float
    guesses: int
    correct: int
    accuracy: float


def best_bound(scores: np.ndarray, coins: np.ndarray, *, delta: float, confidence: float) -> Finding:
    """The best bound over `SHARES`, valid together with `confidence` (Bonferroni).

    Args:
        scores: (m,) larger where the canary is more likely in; its magnitude says how sure that is.
        coins: (m,) bool, the truth.
    """
    number("confidence", confidence, above=0.0, below=1.0)
    order = np.argsort(-np.abs(scores), kind="stable")
    right = (scores > 0)[order] == coins[order]
    return max(_findings(right, delta, (1.0 - confidence) / len(SHARES)), key=lambda finding: finding.epsilon)


def _findings(right: np.ndarray, delta: float, significance: float) -> Sequence[Finding]:
    m = len(right)
    result = []
    for share in SHARES:
        guesses = max(1, round(m * share))
        correct = int(right[:guesses].sum())
        result.append(
            Finding(epsilon_bound(m, guesses, correct, delta, significance), guesses, correct, float(right.mean()))
        )
    return result
