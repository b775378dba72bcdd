"""LRSUQ and DG are the same mechanism: training by either ends at the same accuracy."""

import json

import numpy as np
import pytest

from common.settings import Settings
from server_app.results import RunFolder
from simulations.run import run_in_process

SEEDS = (41, 42, 43)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_accuracy_agrees_within_the_spread_over_seeds(tmp_path, data_dir):
    """MNIST, 300 rounds of the paper preset at ε = 16. The difference of means must stay within 3.5 standard errors of
    two independent samples of three seeds (Student, four degrees of freedom: a false alarm in about 40 tries)."""
    accuracy: dict[str, list[float]] = {"dg": [], "lrsuq": []}
    for channel, values in accuracy.items():
        for seed in SEEDS:
            settings = Settings(
                num_rounds=300, channel=channel, seed=seed, deterministic=True, tensorboard=False, evaluate_every=0,
                out_dir=str(tmp_path), data_dir=str(data_dir),
            )  # fmt: skip
            for _ in run_in_process(settings):
                pass
            values.append(json.loads(RunFolder(settings).summary.read_text())["accuracy"]["seen"])
    dg, lrsuq = (np.array(accuracy[name]) for name in ("dg", "lrsuq"))
    error = np.sqrt((dg.var(ddof=1) + lrsuq.var(ddof=1)) / len(SEEDS))
    assert abs(dg.mean() - lrsuq.mean()) <= 3.5 * error
    assert min(dg.mean(), lrsuq.mean()) > 0.5
