import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.privacy.events import GaussianRelease
from common.privacy.packed import add, pack, unpack

EVENTS = st.lists(
    st.builds(
        GaussianRelease,
        client=st.integers(0, 3),
        round=st.integers(0, 50),
        kind=st.sampled_from(["context", "gradient"]),
        sensitivity=st.sampled_from([0.1, 1 / 3]),
        noise_stddev=st.sampled_from([0.0, 0.1 + 0.2]),
        records=st.sampled_from([None, (1, 2), (3,)]),
    ),
    max_size=30,
    unique_by=lambda event: (event.round, event.client),
)


@given(EVENTS)
def test_releases_come_back_through_json(events):
    expected = sorted(events, key=lambda event: (event.round, event.client))
    assert unpack(json.loads(json.dumps(pack(events)))) == expected
    one_by_one = []
    for event in events:
        one_by_one = json.loads(json.dumps(one_by_one))
        add(one_by_one, event)
    assert unpack(one_by_one) == expected


def test_a_long_run_takes_a_few_bytes_a_release():
    events = [GaussianRelease(client, t, "gradient", 0.006, 0.015) for t in range(1, 501) for client in (1, 2)]
    assert len(json.dumps(pack(events))) < 6 * len(events)


@pytest.mark.parametrize(
    "change", [{"rounds": [True]}, {"rounds": [-1]}, {"noise_stddev": float("nan")}, {"kind": "other"}]
)
def test_what_is_no_release_is_refused(change):
    groups = pack([GaussianRelease(0, 1, "gradient", 0.006, 0.015)])
    with pytest.raises(ValueError, match=next(iter(change)).rstrip("s")):
        unpack([{**groups[0], **change}])
