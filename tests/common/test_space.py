import pytest

from common.rules import make_rules
from common.settings import Settings
from common.space import space_of

SPEC = make_rules(Settings()).spec


@pytest.mark.parametrize(
    ("noise", "k"),
    [
        (0.01, 1100),  # 22 * 0.5/0.01
        (0.001, 4096),  # num-coefficients is the most
        (0.0, 4096),
        (1e6, 10),  # one for each tensor of the model is the least
    ],
)
def test_number_of_coefficients_follows_the_noise(noise, k):
    settings = Settings(num_coefficients=4096, coefficient_noise=22.0, clip_norm=0.5)
    assert space_of(settings, SPEC, noise).dim == k


def test_number_of_coefficients_is_the_setting_by_default():
    assert space_of(Settings(), SPEC, 0.01).dim == 16384


def test_full_model_variants_have_no_coefficients_to_choose():
    settings = Settings(variant="full", coefficient_noise=22.0)
    assert space_of(settings, SPEC, 0.01).dim == 85_822


def test_a_budget_decides_the_space_of_a_run():
    few, many = (
        make_rules(Settings.from_config({"preset": "aligned", "epsilon": epsilon})).space.dim for epsilon in (1.0, 16.0)
    )
    assert few < many / 4
