"""The containers for real (`make test-docker`): image, four nodes with TLS, a run, its parity, a cut and a killed node, the end.

A compose project, ports and volumes of their own: a deployment that runs from here stays as it is. Needs Docker with
compose. BUILD_OPTIONS goes to `docker build`; DATA is a folder with MNIST, else it is fetched.
"""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from common.flower import free_port
from common.settings import Settings
from server_app.results import RunFolder
from simulations.run import run_in_process

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
PROJECT = "papfl-test"
FILES = ("-f", "docker-compose.yml", "-f", "deploy/nodes.yml")
SMALL = (
    "--deterministic true --records-per-client 400 --batch-records 100 --context-records 100 --evaluate-every 0 "
    "--tensorboard false --channel dg"
)


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
    options = {
        "DATA": data, "ALLOW_DETERMINISTIC": "true", "COMPOSE_PROJECT_NAME": PROJECT, "PORT": str(free_port()),
    }  # fmt: skip
    call("make", "docker-up", "NODES=4", **options)
    yield options
    call("docker", "compose", *FILES, "down", "--volumes", **options)


def test_run_in_containers_is_the_run_in_process(running, data_dir, tmp_path):
    """Another torch build and another process for everything: parameters agree to 1e-5."""
    name = f"docker-{int(time.time())}"
    call("make", "docker-run", "ROUNDS=5", f"RUN={name}", f"RUN_OPTIONS={SMALL}", **running)
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
    names = call("docker", "ps", "--filter", f"name={PROJECT}-", "--format", "{{.Names}}").split()
    assert len([name for name in names if "supernode-" in name or "clientapp-" in name]) == 8
    for name in names:
        facts = json.loads(call("docker", "inspect", name))[0]
        assert facts["Config"]["User"] == "papfl"
        assert facts["HostConfig"]["ReadonlyRootfs"] is True
        ports = facts["NetworkSettings"]["Ports"] or {}
        assert all(p["HostIp"] == "127.0.0.1" for bound in ports.values() for p in bound or [])


def test_packages_in_the_image_are_whole(running):
    """Their __init__.py are run: `common` pins the numerics there."""
    code = "import common, papfl, os; print(common.__file__, papfl.__version__, os.environ['MKL_CBWR'])"
    said = call("docker", "run", "--rm", "--workdir", "/", "--entrypoint", "python", "papfl", "-c", code)
    assert said.split()[::2] == ["/app/common/__init__.py", "AVX2,STRICT"]
    assert call("docker", "run", "--rm", "papfl", "--version").startswith("papfl ")


def test_personalize_in_containers(running):
    runs = sorted((ROOT / "deploy" / "results").glob("docker-*/summary.json"), key=lambda path: path.stat().st_mtime)
    output = call(
        "docker", "compose", *FILES, "run", "--rm", "control", "personalize", "--folder", "/deploy",
        "--address", "superlink:8000", "--results", "/results", "--run", runs[-1].parent.name, **running,
    )  # fmt: skip
    assert output.count("delivered") == 4
    listed = call("docker", "compose", *FILES, "exec", "clientapp-3", "papfl", "ledger", "show", "/state", **running)
    assert "1 context, 0 gradient" in listed


def test_a_cut_and_a_killed_node_cost_their_replies_and_nothing_else(running):
    """Node 0 loses its network for 20 seconds, node 1 is killed and started again; the run completes."""
    name = f"incident-{int(time.time())}"
    folder = ROOT / "deploy" / "results" / name
    command = ["make", "docker-run", "ROUNDS=10", f"RUN={name}", f"RUN_OPTIONS={SMALL} --round-timeout 90"]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **running}) as process:
        wait_for_rounds(folder, 2)
        node, network = f"{PROJECT}-supernode-0-1", f"{PROJECT}_uplink-0"
        call("docker", "network", "disconnect", network, node)
        time.sleep(20)
        call("docker", "network", "connect", network, node)
        wait_for_rounds(folder, 5)
        call("docker", "kill", f"{PROJECT}-supernode-1-1")
        call("docker", "start", f"{PROJECT}-supernode-1-1")
        assert process.wait() == 0
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == list(range(1, 11))
    failed = [client for row in rows for client in row["failed"]]
    print(f"lost replies: {failed}")
    assert set(failed) <= {"0", "1"}
    counted = json.loads((folder / "ledger.json").read_text())
    for client in range(4):
        shown = call(
            "docker", "compose", *FILES, "exec", f"clientapp-{client}", "papfl", "ledger", "show", "/state", **running
        )
        spent = int(re.search(rf"{name}: .*1 context, (\d+) gradient", shown).group(1))
        assert spent <= sum(event["client"] == client and event["kind"] == "gradient" for event in counted)


def wait_for_rounds(folder, rounds):
    metrics, deadline = folder / "metrics.jsonl", time.monotonic() + 600
    while not metrics.exists() or len(metrics.read_text().splitlines()) < rounds:
        assert time.monotonic() < deadline
        time.sleep(0.5)
