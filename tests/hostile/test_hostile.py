"""A short visit to every door in every test run; `make fuzz` stays for a million inputs (docs/privacy.md has the count)."""

import logging
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile.doors import TARGETS, Tally, knock

# Doors that write files take longer.
FAST = {"release", "signed release", "standalone release", "settings", "node configuration", "IDX file"}


@pytest.fixture(autouse=True)
def quiet():
    """Thousands of rejected replies are thousands of warnings."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_random_bytes(name, data_dir):
    """Fixed seed; hypothesis shrinks what it finds in the test below."""
    rng, tally = random.Random(0), Tally()
    for _ in range(400 if name in FAST else 40):
        knock(name, rng.randbytes(rng.choice([0, 4, 16, 64, 256])), tally)
    assert tally.inputs > 0


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_bytes_that_hypothesis_chooses(name, data_dir):
    tally = Tally()

    @settings(max_examples=100 if name in FAST else 20, deadline=None, database=None)
    @given(st.binary(max_size=200))
    def visit(data):
        knock(name, data, tally)

    visit()
