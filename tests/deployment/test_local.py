"""A real SuperLink with TLS and authentication and four real SuperNodes: parity, secrets, who gets in."""

import base64
import dataclasses
import shutil
import socket
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from client_app.personal_model import load_model
from client_app.sources import Place
from client_app.sqlite_ledger import SqliteLedger
from client_app.workspace import workspace
from common.data.splits import batch, split
from common.flower import free_port
from deployment.follow import follow, submit
from deployment.layout import Layout
from deployment.local import LocalFederation
from deployment.pki import initialise
from deployment.processes import Process
from deployment.session import node_config, personalize_run
from server_app.results import RunFolder
from simulations.run import run_in_process
from tests.runs import outcome, processes_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def federation(layout):
    """SuperLink and executor for this module, with all of Flower's own log levels on."""
    initialise(layout, nodes=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_LOG_LEVEL", "DEBUG")
        with LocalFederation(layout) as made:
            yield made


def finish(federation, settings, seen=lambda: None):
    run_id = submit(federation.flwr, settings)

    def look_after():
        federation.alive()
        seen()

    options = dict(results=Path(settings.out_dir), look_after=look_after, log_tail=federation.log_tail)
    return list(follow(federation.flwr, settings, run_id, **options))


def test_deployed_and_in_process_runs_are_bit_identical(federation, four, start_nodes, tmp_path):
    """4 nodes x 5 rounds: ω, metrics and ledgers."""
    deployed = four()
    start_nodes(federation, deployed, range(4))
    assert [row["round"] for row in finish(federation, deployed)] == [1, 2, 3, 4, 5]
    here = four(out_dir=str(tmp_path))
    assert len(list(run_in_process(here))) == 5
    assert outcome(deployed) == outcome(here)


def test_no_key_and_no_unnoised_value_is_anywhere_and_a_late_node_gets_its_model(federation, four, start_nodes, layout):
    """A private LRSUQ run; then node 4 joins, and everything that was written is searched."""
    settings = four(
        run_name="private", deterministic=False, channel="lrsuq", num_rounds=2, num_future=2, require_future=False
    )
    server_keys = set()
    key_file = RunFolder(settings).server_key

    def remember():
        if key_file.exists():
            server_keys.add(key_file.read_bytes())

    for node in list(federation.nodes):
        federation.nodes.pop(node).stop()
    start_nodes(federation, settings, range(4))
    finish(federation, settings, remember)
    start_nodes(federation, settings, [4])
    deadline = time.monotonic() + 60
    while "4" not in (report := personalize_run(federation.flwr, Path(settings.out_dir), "private"))["clients"]:
        assert time.monotonic() < deadline, report
    assert report["clients"]["4"] == {
        "status": "delivered",
        "joined_later": True,
        "epsilon": pytest.approx(16, rel=0.9),
    }
    state = layout.local / "node-4" / "state"
    assert [event.kind for _, event in SqliteLedger(state / "ledger.sqlite").rows()] == ["context"]
    assert load_model(state / "models" / "private") is not None

    assert len(server_keys) == 1
    secrets = dict.fromkeys(server_keys, "server key")
    for node in range(5):
        secrets[(layout.local / f"node-{node}" / "state" / "client.key").read_bytes()] = f"key of node {node}"
    secrets |= {value: name for name, value in unnoised(settings)}
    assert len(secrets) == 1 + 5 + 2 * (5 + 2)
    needles = {form: name for value, name in secrets.items() for form in spellings(value[:32])}
    searched = 0
    for path in layout.local.rglob("*"):
        if path.is_file() and path.name != "client.key":
            content = path.read_bytes()
            searched += len(content)
            for needle, name in needles.items():
                assert needle not in content, f"{name} in {path}"
    assert searched > 1_000_000
    # The search itself works: the keys are found where they must be.
    assert any(needle in (layout.local / "node-0" / "state" / "client.key").read_bytes() for needle in needles)


def spellings(value):
    """How bytes can stand in a file: raw, hex, and base64 at each of the three alignments, whole groups only."""
    yield value
    yield value.hex().encode()
    yield value.hex().upper().encode()
    for alphabet in (b"+/", b"-_"):
        for skip in range(3):
            whole = (len(value) - skip) // 3 * 3
            yield base64.b64encode(value[skip : skip + whole], alphabet)


def unnoised(settings):
    """Context statistics, and first-round gradients at a = 0, without noise: as clients compute them."""
    space = workspace(settings, Place(Path(settings.data_dir)))
    for client in range(settings.num_clients):
        parts = split(settings, client, len(space.records(client)))
        phi = space.rules.context_map.phi(space.records(client).images[parts.context])
        statistic = phi.sum(axis=0) / settings.context_records
        yield f"context of {client}", statistic.tobytes()
        yield f"float32 context of {client}", statistic.astype(np.float32).tobytes()
    for client in space.rules.schedule.clients(1):
        parts = split(settings, client, len(space.records(client)))
        positions = batch(settings, client, 1, 0, parts.train)
        gradient = space.gradient(client, torch.zeros(settings.num_coefficients), positions).gradient.numpy()
        gradient = gradient[int(np.flatnonzero(gradient)[0]) :]
        yield f"gradient of {client}", gradient.tobytes()
        yield f"float32 gradient of {client}", gradient.astype(np.float32).tobytes()


def refused(federation, home, *, key, ca):
    """A SuperNode that is not admitted: starts it, waits for its end, returns what it said."""
    authority = ["--insecure"] if ca is None else ["--root-certificates", str(ca)]
    identity = [] if key is None else ["--auth-supernode-private-key", str(key)]
    command = [
        "flower-supernode", "--superlink", federation.address, *authority, *identity, "--max-retries", "1",
        "--max-wait-time", "20", "--host", "127.0.0.1", "--port", str(free_port()), "--node-config", "partition-id=5",
    ]  # fmt: skip
    process = Process("refused", command, home, home / "log", restarts=False)
    process.start()
    deadline = time.monotonic() + 120
    while process.alive() and time.monotonic() < deadline:
        time.sleep(0.2)
    code = process.exit_code
    process.stop()
    assert code not in (0, None)
    return process.log.read_text()


def test_only_registered_keys_over_trusted_tls_get_in(federation, layout, tmp_path):
    foreign = Layout(tmp_path / "foreign")
    initialise(foreign, nodes=1)
    key = layout.node_key(5)  # made, never registered
    known = federation.online()
    cases = {
        "[code: 2004]": dict(key=key, ca=layout.ca),
        "[code: 2001]": dict(key=None, ca=layout.ca),
        "CERTIFICATE_VERIFY_FAILED": dict(key=key, ca=foreign.ca),
        "TLS is not enabled": dict(key=key, ca=None),
    }
    for number, (said, options) in enumerate(cases.items()):
        assert said in refused(federation, tmp_path / str(number), **options)
    # Plain HTTP, from a program that doesn't care what Flower's own client refuses to do.
    with socket.create_connection(("127.0.0.1", federation.port), 10) as plain:
        plain.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert b"200" not in plain.recv(1024)
    assert federation.online() == known


def test_nothing_is_left_running(four, tmp_path, layout):
    """Start and stop on its own; every process of it is gone afterwards."""
    own = Layout(tmp_path / "own")
    shutil.copytree(layout.root / "certificates", own.root / "certificates")
    initialise(own, nodes=2)
    settings = dataclasses.replace(four(), num_participating=1, num_future=1, clients_per_round=1)
    with LocalFederation(own) as made:
        for node in range(2):
            made.register(node)
            made.add_node(node, node_config(settings, node))
        made.wait_for_nodes()
        assert processes_of(own.local)
    assert processes_of(own.local) == []
