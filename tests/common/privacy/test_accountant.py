import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import example, given
from hypothesis import strategies as st

from common.privacy.accountant import ACCOUNTANTS, GdpAccountant, RdpAccountant, rdp_curve, worst_record_rho
from common.privacy.events import GaussianRelease

DELTA = 1e-5
rhos = st.floats(1e-6, 50)
deltas = st.floats(1e-9, 0.1)


def golden_rho(sigma=0.01503, t_max=42):
    return (1 + t_max) * (2 / 333) ** 2 / (2 * sigma**2)


def test_golden_numbers():
    assert RdpAccountant().rho(16.0, DELTA) == pytest.approx(3.431, abs=5e-4)
    sigma = math.sqrt(43 * (2 / 333) ** 2 / (2 * RdpAccountant().rho(16.0, DELTA)))
    assert sigma == pytest.approx(0.01503, abs=1e-5)
    assert sigma * math.sqrt(16_384) == pytest.approx(1.92, abs=5e-3)
    assert RdpAccountant().epsilon(golden_rho(sigma), DELTA) == pytest.approx(16.0, abs=1e-9)
    assert GdpAccountant().epsilon(golden_rho(0.01503), DELTA) == pytest.approx(14.018, abs=1e-3)
    ratios = [math.sqrt(RdpAccountant().rho(e, DELTA) / GdpAccountant().rho(e, DELTA)) for e in (4.0, 8.0, 16.0, 32.0)]
    assert ratios == pytest.approx([0.834, 0.869, 0.902, 0.928], abs=1e-3)


@pytest.mark.parametrize("participations", [0, 1, 7, 42])
@pytest.mark.parametrize("sigma", [0.0048, 0.01503, 0.05])
def test_rdp_curve_equals_dp_accounting(participations, sigma):
    """The whole curve ε(α), composed release by release by the independent library."""
    orders = [1.1, 1.5, 2.0, 3.7, 8.0, 32.0, 256.0]
    sensitivity = 2 / 333
    reference = rdp_privacy_accountant.RdpAccountant(orders, dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    reference.compose(dp_accounting.GaussianDpEvent(sigma / sensitivity), 1 + participations)
    rho = (1 + participations) * sensitivity**2 / (2 * sigma**2)
    ours = [rdp_curve(rho, order) for order in orders]
    assert np.allclose(ours, reference._rdp, rtol=1e-12, atol=0)


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 16.0, 32.0])
def test_closed_form_is_never_below_dp_accountings_rdp_epsilon(epsilon):
    rho = RdpAccountant().rho(epsilon, DELTA)
    reference = rdp_privacy_accountant.RdpAccountant(np.linspace(1.01, 200, 20_000))
    reference.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * rho)))
    theirs = reference.get_epsilon(DELTA)
    assert theirs <= epsilon
    if epsilon == 16.0:
        assert theirs == pytest.approx(14.99, abs=0.01)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0, 14.018])
def test_gdp_equals_the_privacy_loss_distribution(epsilon):
    rho = GdpAccountant().rho(epsilon, DELTA)
    pld = privacy_loss_distribution.from_gaussian_mechanism(1 / math.sqrt(2 * rho), value_discretization_interval=1e-4)
    assert pld.get_epsilon_for_delta(DELTA) == pytest.approx(epsilon, abs=1e-3)


@pytest.mark.parametrize(("rho", "epsilon"), [(0.01, 0.3), (0.5, 3.0), (3.431, 14.0), (20.0, 60.0)])
def test_gdp_delta_in_high_precision(rho, epsilon):
    mpmath.mp.dps = 40
    mu, e = mpmath.sqrt(2 * mpmath.mpf(rho)), mpmath.mpf(epsilon)
    exact = mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2)
    assert GdpAccountant().delta(rho, epsilon) == pytest.approx(float(exact), rel=1e-9)


def exact_delta(rho, epsilon):
    """δ(ε) to 120 digits."""
    with mpmath.workdps(120):
        mu, e = mpmath.sqrt(2 * mpmath.mpf(rho)), mpmath.mpf(epsilon)
        return mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2)


# What evaluating δ in float64 resolves.
PROMISE = 1 + 1e-10


@given(epsilon=st.floats(-6, 2), delta=st.floats(-100, -0.05))
@example(epsilon=-6.0, delta=-18.0)
@example(epsilon=-6.0, delta=-100.0)
def test_the_exact_accountant_never_overspends(epsilon, delta):
    """Whatever the budget, 10^-6 to 100 at 10^-100 to 0.9: the ρ found keeps the promise and uses it up; so does the ε of
    that ρ. In 0.1.0 the true δ at (1e-6, 1e-18) was 1.4 times the promise."""
    epsilon, delta = 10**epsilon, 10**delta
    rho = GdpAccountant().rho(epsilon, delta)
    assert exact_delta(rho, epsilon) <= delta * PROMISE
    assert exact_delta(rho * 1.0001, epsilon) > delta
    back = GdpAccountant().epsilon(rho, delta)
    assert back == 0.0 or exact_delta(rho, back) <= delta * PROMISE


@pytest.mark.parametrize("mu", [1e-9, 1e-4, 0.09, 0.0999999, 0.1, 0.11])
@pytest.mark.parametrize("t", [0.0, 0.5, 5.0, 20.0, 29.9, 30.1, 35.0])
def test_delta_of_tiny_budgets_has_all_its_digits(mu, t):
    """On both sides of the two places where the formula changes."""
    epsilon = t * mu
    assert GdpAccountant().delta(mu**2 / 2, epsilon) == pytest.approx(float(exact_delta(mu**2 / 2, epsilon)), rel=2e-11)


@pytest.mark.parametrize("name", sorted(ACCOUNTANTS))
@given(rho=rhos, delta=deltas)
def test_epsilon_grows_with_rho_and_shrinks_with_delta(name, rho, delta):
    accountant = ACCOUNTANTS[name]
    epsilon = accountant.epsilon(rho, delta)
    assert accountant.epsilon(rho * 1.1, delta) >= epsilon
    assert accountant.epsilon(rho, delta * 1.5) <= epsilon + 1e-9


@given(rho=rhos, delta=deltas)
def test_exact_epsilon_is_never_above_the_closed_form(rho, delta):
    assert GdpAccountant().epsilon(rho, delta) <= RdpAccountant().epsilon(rho, delta) + 1e-9


@pytest.mark.parametrize("name", sorted(ACCOUNTANTS))
@given(epsilon=st.floats(0.05, 60), delta=deltas)
def test_rho_inverts_epsilon(name, epsilon, delta):
    accountant = ACCOUNTANTS[name]
    assert accountant.epsilon(accountant.rho(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", sorted(ACCOUNTANTS))
@pytest.mark.parametrize("bad", [float("nan"), -1.0, True, "1"])
def test_bad_rho_is_refused(name, bad):
    with pytest.raises(ValueError, match="rho"):
        ACCOUNTANTS[name].epsilon(bad, DELTA)


@pytest.mark.parametrize("name", sorted(ACCOUNTANTS))
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0, 1.0, 2.0, True])
def test_bad_delta_is_refused(name, bad):
    with pytest.raises(ValueError, match="delta"):
        ACCOUNTANTS[name].epsilon(1.0, bad)
    with pytest.raises(ValueError, match="delta"):
        ACCOUNTANTS[name].rho(1.0, bad)


def test_no_noise_costs_infinitely():
    event = GaussianRelease(0, 1, "gradient", 0.006, 0.0)
    for accountant in ACCOUNTANTS.values():
        assert accountant.epsilon(worst_record_rho([event]), DELTA) == math.inf


@pytest.mark.parametrize(
    "change",
    [
        {"sensitivity": 0.0},
        {"sensitivity": float("nan")},
        {"noise_stddev": -1.0},
        {"noise_stddev": float("inf")},
        {"client": -1},
        {"round": True},
        {"kind": "other"},
    ],
)
def test_bad_events_are_refused_by_name(change):
    values = dict(client=0, round=1, kind="gradient", sensitivity=0.006, noise_stddev=0.015) | change
    with pytest.raises(ValueError, match=next(iter(change))):
        GaussianRelease(**values)


def test_worst_record_pays_for_its_own_releases_only():
    def release(round, records):
        return GaussianRelease(0, round, "gradient", 1.0, 1.0, records)

    assert worst_record_rho([release(1, (0, 1)), release(2, (1, 2)), release(3, (2, 3))]) == 1.0
    assert worst_record_rho([release(1, None), release(2, (1,))]) == 1.0
    assert worst_record_rho([]) == 0.0
