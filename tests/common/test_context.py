import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from common.context import ContextMap, make_context_map
from common.data.catalog import DATASETS
from common.settings import Settings

IMAGES = hnp.arrays(np.float64, (3, 2, 4, 5), elements=st.floats(-2, 2) | st.just(float("nan")))


def test_phi_is_equation_1():
    image = np.zeros((1, 2, 2, 2))
    image[0, 0] = [[0.2, 0.4], [0.6, 0.8]]
    image[0, 1] = 1.0
    expected = np.array([0.5, 1.0, (0.04 + 0.16 + 0.36 + 0.64) / 4, 1.0]) / 2.0
    assert np.allclose(ContextMap((2, 2, 2)).phi(image), expected)


@settings(max_examples=50, deadline=None)
@given(images=IMAGES, grid=st.integers(1, 4))
def test_phi_lies_in_the_unit_ball_whatever_the_records(images, grid):
    phi = ContextMap((2, 4, 5), grid).phi(images)
    assert phi.shape == (3, 2 * 2 * grid**2)
    assert (np.linalg.norm(phi, axis=1) <= 1 + 1e-12).all()


@settings(max_examples=50, deadline=None)
@given(images=IMAGES, kind=st.sampled_from(["paper", "tight"]), clipped=st.booleans())
def test_replacing_one_record_moves_the_statistic_by_at_most_the_sensitivity(images, kind, clipped):
    plain = ContextMap((2, 4, 5))
    phi = ContextMap((2, 4, 5), 1, plain.constant(0.3), 0.1) if clipped else plain
    values = phi.phi(images)
    change = np.linalg.norm(values[0] - values[1]) / 333
    assert change <= phi.sensitivity(333, kind) + 1e-15


def test_sensitivities():
    plain = ContextMap((1, 28, 28))
    assert plain.sensitivity(333, "paper") == 2 / 333
    assert plain.sensitivity(333, "tight") == 1 / 333
    ball = ContextMap((1, 28, 28), 1, plain.constant(0.5), 0.15)
    assert ball.sensitivity(333, "paper") == ball.sensitivity(333, "tight") == 0.3 / 333


def test_bad_records_get_the_centre():
    phi = ContextMap((1, 2, 2))
    bad = np.full((1, 1, 2, 2), np.inf)
    assert np.array_equal(phi.phi(bad)[0], phi.constant(0.5))
    centred = ContextMap((1, 2, 2), 1, phi.constant(0.2), 0.1)
    assert np.array_equal(centred.phi(bad)[0], phi.constant(0.2))


def test_patches_average_to_the_channel():
    rng = np.random.default_rng(0)
    image = rng.random((1, 1, 8, 8))
    patches = ContextMap((1, 8, 8), 4).phi(image)[0] * np.sqrt(32)
    whole = ContextMap((1, 8, 8), 1).phi(image)[0] * np.sqrt(2)
    assert np.isclose(patches[:16].mean(), whole[0])
    assert np.isclose(patches[16:].mean(), whole[1])


@pytest.mark.parametrize("text", ["", "0.1", "0.1,0.2,0.3", "a,b", "0.1,nan", "0.1,1.5"])
def test_unreadable_centres_are_refused(text):
    with pytest.raises(ValueError, match="context-"):
        make_context_map(Settings(context_center=text, context_radius=0.1), DATASETS["mnist"])


@pytest.mark.parametrize("grid", [1, 2])
def test_public_centre_is_that_of_the_data_sets_constants(grid):
    spec = DATASETS["cifar10"]
    made = make_context_map(Settings(context_center="public", context_radius=0.1, context_grid=grid), spec)
    center = made.center * np.sqrt(made.dim)
    assert center.shape == (6 * grid**2,)
    assert center[0] == pytest.approx(0.4914)
    assert center[3 * grid**2 - 1] == pytest.approx(0.4465)
    assert center[-1] == pytest.approx(0.4465**2 + 0.2616**2)
