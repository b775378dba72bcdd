"""One real `flwr run` on Ray: own port and FLWR_HOME, true outcome, and the same bits as in process."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.flower import SuperLinkError
from common.presets import PRESETS, TRAIN_RECORDS
from simulations.run import run_in_process, run_on_ray
from simulations.superlink import LocalSuperLink
from tests.runs import outcome, processes_of

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("channel", ["lrsuq"])
def test_ray_and_in_process_runs_are_bit_identical(tiny, tmp_path, channel, monkeypatch):
    """ω, metrics and ledgers, with all that the aligned preset adds. Afterwards no process of the run is left."""
    homes = []
    original = LocalSuperLink.__init__

    def remember(self):
        original(self)
        homes.append(self.home)

    monkeypatch.setattr(LocalSuperLink, "__init__", remember)
    aligned = {key.replace("-", "_"): v for key, v in PRESETS["aligned"].items() if v != TRAIN_RECORDS}
    changes = {**aligned, "channel": channel, "num_rounds": 3}
    on_ray = tiny(out_dir=str(tmp_path / "ray"), **changes)
    rounds = [row["round"] for row in run_on_ray(on_ray)]
    assert rounds == [1, 2, 3]
    here = tiny(out_dir=str(tmp_path / "here"), **changes)
    assert len(list(run_in_process(here))) == 3
    assert outcome(on_ray) == outcome(here)
    # Ray's own processes notice the end of their driver within seconds, later on a busy machine.
    deadline = time.monotonic() + 60
    while processes_of(homes[0]) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert processes_of(homes[0]) == []


def test_run_that_fails_returns_non_zero_and_shows_the_cause(tiny, tmp_path):
    """`flwr run` itself would return 0. The cache is damaged in a way that only the clients see."""
    damaged = tmp_path / "data"
    shutil.copytree(Path(tiny().data_dir) / "mnist", damaged / "mnist")
    (damaged / "mnist" / "train_labels.npy").write_bytes(b"")
    command = [
        sys.executable, "-m", "simulations.cli", "run", "--num-participating", "2", "--num-future", "0",
        "--num-rounds", "2", "--data-dir", str(damaged), "--out-dir", str(tmp_path / "runs"),
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "refused (SETTINGS)" in result.stderr


def test_superlink_that_cannot_run_the_app_says_so(tmp_path):
    with LocalSuperLink() as superlink, pytest.raises(SuperLinkError, match="flwr run failed"):
        superlink.flwr.submit(tmp_path, {}, "num-supernodes=2")
