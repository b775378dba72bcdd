"""Fixtures: a small, fast, real run on the real MNIST; the data set is fetched once."""

import os
from contextlib import contextmanager
from pathlib import Path

import hypothesis
import pytest

import common  # noqa: F401  (pins the numerics before torch is imported)
from common.data.sources import fetch
from common.settings import Settings

# A time limit per example would assert a timing: on a busy machine it fails at random.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The cache of the data sets; MNIST is in it."""
    path = Path(os.environ.get("PAPFL_DATA_DIR", "~/.cache/papfl")).expanduser()
    fetch("mnist", path, report=lambda line: None)
    return path


@pytest.fixture
def tiny(tmp_path, data_dir):
    """Settings of a run of a few seconds: six clients, small batches; keyword arguments override."""

    def make(**changes):
        values = dict(
            out_dir=str(tmp_path / "runs"),
            data_dir=str(data_dir),
            deterministic=True,
            tensorboard=False,
            num_participating=4,
            num_future=2,
            num_rounds=4,
            records_per_client=60,
            context_records=20,
            train_fraction=0.8,
            batch_records=24,
            num_coefficients=512,
            hidden_dim=16,
            evaluate_every=2,
            checkpoint_every=3,
            channel="dg",
        )
        return Settings(**(values | changes))

    return make


@pytest.fixture
def killed_in_round():
    """`with killed_in_round(n):` the server dies before it accepts what came back in round n."""
    from server_app.state import ServerState

    original = ServerState.accept

    @contextmanager
    def killed(wanted):
        def die(self, round, *arguments):
            if round == wanted:
                raise KeyboardInterrupt
            return original(self, round, *arguments)

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(ServerState, "accept", die)
            yield

    return killed
