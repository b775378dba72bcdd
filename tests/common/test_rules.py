import dataclasses

import numpy as np
import pytest

from common.data.records import standardization
from common.rules import make_rules, spec_of
from common.settings import Settings

OWN = Settings(
    dataset="own", image_shape="3,32,32", num_classes=5, input_mean="0.5,0.4,0.25", input_stddev="0.2,0.1,0.3"
)


def test_own_records_have_the_constants_that_are_given():
    """In the model's input and in the public centre of contexts: mean and mean square of every channel."""
    mean, stddev = standardization(spec_of(OWN), "standardized")
    assert np.allclose(mean.ravel(), [0.5, 0.4, 0.25])
    assert np.allclose(stddev.ravel(), [0.2, 0.1, 0.3])
    centred = dataclasses.replace(OWN, context_center="public", context_radius=0.1)
    center = make_rules(centred).context_map.center * np.sqrt(6)
    assert np.allclose(center, [0.5, 0.4, 0.25, 0.29, 0.17, 0.1525])


def test_without_constants_own_records_are_scaled_around_one_half():
    spec = spec_of(dataclasses.replace(OWN, input_mean="", input_stddev=""))
    assert spec.mean == spec.stddev == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_mean": "0.5,0.4"}, r"input-mean must be 3 .* Received '0.5,0.4'"),
        ({"input_mean": "0.5,0.4,nan"}, "input-mean must be 3"),
        ({"input_mean": "0.5,0.4,1.5"}, "input-mean must be 3"),
        ({"input_stddev": "0.2,0,0.3"}, "input-stddev must be 3"),
        ({"input_stddev": ""}, "input-mean and input-stddev go together"),
        ({"dataset": "mnist"}, "input-mean must be empty unless dataset is 'own'"),
    ],
)
def test_bad_constants_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        make_rules(dataclasses.replace(OWN, **changes))
