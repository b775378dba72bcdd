import pytest

from simulations.report.claims import Claim
from simulations.report.results import Results
from simulations.report.score import Outcome, score
from tests.records import record


def grades(low, high, ours):
    return Outcome(Claim("", "seen", {}, {}, low, high), ours).grades


@pytest.mark.parametrize(
    ("low", "high", "ours", "passed"),
    [
        (2.0, 4.0, 3.0, {"inside", "size", "sign"}),
        (2.0, 4.0, 7.9, {"size", "sign"}),
        (2.0, 4.0, 0.9, {"sign"}),
        (2.0, 4.0, -0.1, set()),
        (5.6, 5.6, 6.5, {"inside", "size", "sign"}),  # one number: within a point of it
        (5.6, 5.6, 3.0, {"size", "sign"}),
        (-1.0, 1.0, -0.9, {"inside", "size", "sign"}),
        (-1.0, 1.0, 1.9, {"size"}),
        (-1.0, 1.0, 2.1, set()),
        (2.0, 4.0, None, set()),
    ],
)
def test_grades(low, high, ours, passed):
    assert grades(low, high, ours) == passed


def test_noisy_and_silent_cells_of_a_reading_are_found_by_their_own_settings():
    noisy = {"activation": "relu", "epsilon": 16.0}
    silent = {"activation": "relu", "noise_stddev": 0.0, "clip_norm": 1e6}
    shared = {"variant": "direct", "channel": "dg"}
    records = [
        record(0.80, 0.8, **shared, activation="relu"),
        record(0.82, 0.8, variant="factorized-u0", channel="dg", activation="relu"),
        record(0.95, 0.9, **shared, **silent),
        record(0.955, 0.9, variant="factorized-u0", channel="dg", **silent),
        record(0.10, 0.1, variant="factorized-u0", channel="dg", activation="tanh"),
    ]
    found = {o.claim.text: o.ours for o in score(Results(records), noisy, silent) if o.ours is not None}
    assert found == {
        "MNIST: Factorized over Direct": pytest.approx(2.0),
        "MNIST, no noise: factorized-u0 ≈ Direct": pytest.approx(0.5),
    }


def test_a_run_counts_for_readings_that_differ_in_what_its_variant_ignores():
    records = [
        record(0.80, 0.8, variant="direct", channel="dg", reference_init="he"),
        record(0.82, 0.8, variant="factorized-u0", channel="dg", reference_init="he", trunk_init="xavier"),
    ]
    for reading, ours in (
        ({"reference_init": "he", "trunk_init": "xavier", "context_entry": "standardized"}, [pytest.approx(2.0)]),
        ({"reference_init": "he"}, []),
        ({"trunk_init": "xavier"}, []),
    ):
        assert [o.ours for o in score(Results(records), reading, reading) if o.ours is not None] == ours
