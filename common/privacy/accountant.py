"""What releases cost. All mechanisms here are Gaussian, so one number ρ carries everything (docs/method.md, section 5).

Composition adds ρ (= Σ Δ²/(2σ²)); an accountant converts ρ to ε at a given δ and back:

* `RdpAccountant`: the closed form of eq. 7, Rényi DP optimised over continuous orders.
* `GdpAccountant`: exact. A sequence of Gaussian releases is μ-GDP with μ = √(2ρ) (Dong, Roth & Su 2019), and
  δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) is tight (Balle & Wang 2018).
"""

import math
from collections.abc import Callable, Iterable
from typing import Protocol

from common.privacy.events import GaussianRelease
from common.validation import number


class Accountant(Protocol):
    """Conversion between composed cost ρ and (ε, δ)."""

    name: str

    def epsilon(self, rho: float, delta: float) -> float:
        """ε at δ of releases with total cost ρ."""

    def rho(self, epsilon: float, delta: float) -> float:
        """The largest total ρ within (ε, δ)."""


def _check_delta(delta: float) -> float:
    return number("delta", delta, above=0.0, below=1.0)


def _check_rho(rho: float) -> float:
    if rho == math.inf and not isinstance(rho, bool):
        return rho
    return number("rho", rho, at_least=0.0)


def rdp_curve(rho: float, alpha: float) -> float:
    """ε(α) = α ρ (eq. 7, first line): Rényi divergence of order α > 1."""
    return number("alpha", alpha, above=1.0) * _check_rho(rho)


class RdpAccountant:
    """ε = ρ + 2 √(ρ ln(1/δ)) (eq. 7, second line)."""

    name = "rdp"

    def epsilon(self, rho: float, delta: float) -> float:
        """See `Accountant.epsilon`."""
        rho, log_term = _check_rho(rho), math.log(1.0 / _check_delta(delta))
        return rho + 2.0 * math.sqrt(rho * log_term)

    def rho(self, epsilon: float, delta: float) -> float:
        """See `Accountant.rho`."""
        epsilon, log_term = number("epsilon", epsilon, above=0.0), math.log(1.0 / _check_delta(delta))
        # √ρ = √(L + ε) − √L, written without cancellation.
        return (epsilon / (math.sqrt(log_term + epsilon) + math.sqrt(log_term))) ** 2


class GdpAccountant:
    """Exact conversion of the Gaussian mechanism's trade-off function.

    What `epsilon` and `rho` return is on the safe side: `delta` of it is at most the δ asked for, to the relative
    precision `_RESOLUTION` of the evaluation itself, however small the budget.
    """

    name = "gdp"

    def delta(self, rho: float, epsilon: float) -> float:
        """δ(ε) of releases with total cost ρ."""
        rho, epsilon = _check_rho(rho), number("epsilon", epsilon, at_least=0.0)
        if rho == 0:
            return 0.0
        if rho == math.inf:
            return 1.0
        mu = math.sqrt(2.0 * rho)
        if mu < _SMALL_MU:
            return _delta_of_small(mu, epsilon)
        from scipy.special import log_ndtr  # SciPy is a second of start-up, which only exact accounting needs

        first = log_ndtr(-epsilon / mu + mu / 2.0)
        second = epsilon + log_ndtr(-epsilon / mu - mu / 2.0)
        return max(0.0, math.exp(first) * -math.expm1(second - first))

    def epsilon(self, rho: float, delta: float) -> float:
        """See `Accountant.epsilon`."""
        rho, delta = _check_rho(rho), _check_delta(delta)
        if rho == math.inf:
            return math.inf
        if self.delta(rho, 0.0) <= delta:
            return 0.0
        from scipy.optimize import brentq

        high = RdpAccountant().epsilon(rho, delta)  # never below the exact value
        root = float(brentq(lambda epsilon: self.delta(rho, epsilon) - delta, 0.0, high, xtol=1e-12, rtol=1e-14))
        return _safe(root, high, lambda epsilon: self.delta(rho, epsilon), delta)

    def rho(self, epsilon: float, delta: float) -> float:
        """See `Accountant.rho`."""
        epsilon, delta = number("epsilon", epsilon, above=0.0), _check_delta(delta)
        from scipy.optimize import brentq

        low = RdpAccountant().rho(epsilon, delta)
        high = 2.0 * low
        while self.delta(high, epsilon) < delta:
            high *= 2.0
        # An absolute tolerance says nothing about a tiny root. Ordinary ones keep the bits of the results that exist.
        tolerance = 1e-15 * min(1.0, 1e3 * low)
        root = float(brentq(lambda rho: self.delta(rho, epsilon) - delta, low, high, xtol=tolerance, rtol=1e-14))
        return _safe(root, low, lambda rho: self.delta(rho, epsilon), delta)


# Below this μ the two terms of δ(ε) cancel. Above it, and for the budgets that people use, they don't.
_SMALL_MU = 0.1
# δ of a returned value is at most this much, relatively, above the δ asked for: what evaluating δ in float64 resolves.
_RESOLUTION = 1e-11
# Nodes and weights of Gauss-Legendre quadrature of order 5 on [-1, 1].
_LEGENDRE = (
    (-0.9061798459386640, 0.2369268850561891),
    (-0.5384693101056831, 0.4786286704993665),
    (0.0, 0.5688888888888889),
    (0.5384693101056831, 0.4786286704993665),
    (0.9061798459386640, 0.2369268850561891),
)


def _delta_of_small(mu: float, epsilon: float) -> float:
    """δ(ε) where μ is small, without cancellation.

    With t = ε/μ, e^ε φ(t + μ/2) = φ(t − μ/2), so that δ = φ(t − μ/2) [M(t − μ/2) − M(t + μ/2)] with Mills' ratio
    M(x) = Φ(−x)/φ(x), and M' = x M − 1: the difference is the integral of 1 − x M(x) over an interval of length μ.
    """
    from scipy.special import erfcx

    middle = epsilon / mu
    total = 0.0
    for node, weight in _LEGENDRE:
        x = middle + mu / 2.0 * node
        # 1 − x M(x) loses digits to cancellation as x² grows; from x = 30 on its asymptotic series has them all.
        total += weight * (
            1.0 - x * math.sqrt(math.pi / 2.0) * float(erfcx(x / math.sqrt(2.0)))
            if x < 30.0
            else (1.0 - (3.0 - (15.0 - (105.0 - 945.0 / x**2) / x**2) / x**2) / x**2) / x**2
        )
    edge = middle - mu / 2.0
    return mu / 2.0 * total * math.exp(-edge * edge / 2.0) / math.sqrt(2.0 * math.pi)


def _safe(root: float, safe: float, delta_of: Callable[[float], float], delta: float) -> float:
    """`root`, or the nearest value towards `safe` whose δ is within the promise.

    Args:
        root: where δ was found to be reached, to the root finder's absolute tolerance.
        safe: an end of the bracket whose δ is at most `delta`.
    """
    if delta_of(root) <= delta * (1.0 + _RESOLUTION):
        return root
    for _ in range(200):  # a bisection in floating point ends long before
        middle = 0.5 * (root + safe)
        if middle in (root, safe):
            break
        if delta_of(middle) <= delta:
            safe = middle
        else:
            root = middle
    return safe


ACCOUNTANTS: dict[str, Accountant] = {"rdp": RdpAccountant(), "gdp": GdpAccountant()}


def worst_record_rho(events: Iterable[GaussianRelease]) -> float:
    """Total ρ of the record of one client that pays most (docs/method.md, section 5).

    Releases that can depend on any record add to all; the others add to the records that they name. With whole-client
    events (records = None) this is ρ_i of eq. 7. Positions of different orders may be those of one record, so with more
    than one order every release adds to all.
    """
    events = list(events)
    comparable = len({event.order for event in events if event.records is not None}) < 2
    shared = 0.0
    per_record: dict[int, float] = {}
    for event in events:
        if event.records is None or not comparable:
            shared += event.rho
        else:
            for position in event.records:
                per_record[position] = per_record.get(position, 0.0) + event.rho
    return shared + max(per_record.values(), default=0.0)
