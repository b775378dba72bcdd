"""The containers for real (`make test-docker`): image, four nodes with TLS, a run, parity, a killed node, the end.

Needs Docker with compose. BUILD_OPTIONS goes to `docker build`; DATA is a folder with MNIST, else it is fetched.
"""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from common.settings import Settings
from server_app.results import RunFolder
from simulations.run import run_in_process

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]


def call(*command, **environment):
    started = time.monotonic()
    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    print(
        f"\n$ {' '.join(command)}  ({time.monotonic() - started:.0f} s)\n{result.stdout[-1500:]}{result.stderr[-1500:]}"
    )
    assert result.returncode == 0
    return result.stdout


@pytest.fixture(scope="module")
def running(request):
    if shutil.which("docker") is None:
        pytest.skip("no docker here")
    data = os.environ.get("DATA") or str(Path(os.environ.get("PAPFL_DATA_DIR", "~/.cache/papfl")).expanduser())
    options = {"DATA": data, "ALLOW_DETERMINISTIC": "true"}
    call("make", "docker-up", "NODES=4", **options)
    yield options
    call("make", "docker-down", **options)


def test_run_in_containers_is_the_run_in_process(running, data_dir, tmp_path):
    """Another torch build and another process for everything: parameters agree to 1e-5."""
    name = f"docker-{int(time.time())}"
    extra = (
        "--deterministic true --records-per-client 400 --batch-records 100 --context-records 100 --evaluate-every 0 "
        "--tensorboard false --channel dg"
    )
    call("make", "docker-run", "ROUNDS=5", f"RUN={name}", f"RUN_OPTIONS={extra}", **running)
    folder = ROOT / "deploy" / "results" / name
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["failed_replies"] == 0
    settings = Settings.from_config(
        {**summary["settings"], "out-dir": str(tmp_path), "data-dir": str(data_dir), "run-name": name}
    )
    list(run_in_process(settings))
    here = load_file(RunFolder(settings).path / "generator.safetensors")
    there = load_file(folder / "generator.safetensors")
    assert set(here) == set(there)
    assert max(float((here[key] - there[key]).abs().max()) for key in here) < 1e-5


def test_containers_have_no_rights(running):
    names = call("docker", "ps", "--format", "{{.Names}}").split()
    assert len([name for name in names if "supernode-" in name or "clientapp-" in name]) == 8
    for name in names:
        facts = json.loads(call("docker", "inspect", name))[0]
        assert facts["Config"]["User"] == "papfl"
        assert facts["HostConfig"]["ReadonlyRootfs"] is True
        ports = facts["NetworkSettings"]["Ports"] or {}
        assert all(p["HostIp"] == "127.0.0.1" for bound in ports.values() for p in bound or [])


def test_personalize_in_containers(running):
    runs = sorted((ROOT / "deploy" / "results").glob("docker-*/summary.json"), key=lambda path: path.stat().st_mtime)
    files = ("-f", "docker-compose.yml", "-f", "deploy/nodes.yml")
    output = call(
        "docker", "compose", *files, "run", "--rm", "control", "personalize", "--folder", "/deploy",
        "--address", "superlink:8000", "--results", "/results", "--run", runs[-1].parent.name, **running,
    )  # fmt: skip
    assert output.count("delivered") == 4
    listed = call("docker", "compose", *files, "exec", "clientapp-3", "papfl", "ledger", "show", "/state", **running)
    assert "1 context, 0 gradient" in listed
