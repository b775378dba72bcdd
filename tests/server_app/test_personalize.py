"""Own records, a client that joins after training, and models in their holders' own folders: in process, on real code."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Error, Message

from client_app.app import app
from client_app.personal_model import load_model
from client_app.sqlite_ledger import SqliteLedger
from common.data.cache import load
from common.privacy.accountant import GdpAccountant
from common.settings import Settings
from server_app import app as server
from server_app.federation import FederationError
from server_app.results import RunFolder
from simulations.grid import InProcessGrid


@pytest.fixture
def nodes(tmp_path, data_dir):
    """Six data holders with MNIST records of their own, of different numbers, in files and state folders of their own."""
    dataset = load("mnist", data_dir)
    configs, start = {}, 0
    for client in range(6):
        count = 60 + 5 * client
        path = tmp_path / f"holder-{client}" / "records.npz"
        path.parent.mkdir()
        np.savez(path, x=dataset.images[start : start + count], y=dataset.labels[start : start + count])
        start += count
        configs[client] = {
            "data": str(path),
            "state-dir": str(path.parent / "state"),
            "max-epsilon": 20.0,
            "diagnostics": "public-data",
        }
    return configs


def grid(settings, nodes, clients):
    """A federation where only `clients` are connected."""
    made = InProcessGrid(app, settings, num_nodes=6, node_configs=nodes)
    made.contexts = {node: c for node, c in made.contexts.items() if c.node_config["partition-id"] in clients}
    return made


@pytest.fixture
def settings(tiny):
    def make(**changes):
        options = dict(
            dataset="own",
            image_shape="1,28,28",
            deterministic=False,
            require_future=False,
            run_name="own",
            channel="lrsuq",
        )
        return tiny(**(options | changes))

    return make


def ledger(nodes, client):
    return SqliteLedger(Path(nodes[client]["state-dir"]) / "ledger.sqlite").rows()


def models(nodes, client):
    return Path(nodes[client]["state-dir"]) / "models" / "own"


@pytest.fixture
def aligned(tmp_path):
    def make(records):
        return Settings.from_config(
            {
                "preset": "aligned",
                "dataset": "own",
                "image-shape": "1,28,28",
                "input-mean": "0.13",
                "input-stddev": "0.31",
                "records-per-client": records,
                "num-participating": 4,
                "num-future": 2,
                "num-rounds": 4,
                "num-coefficients": 256,
                "hidden-dim": 8,
                "tensorboard": False,
                "out-dir": str(tmp_path / "runs"),
                "run-name": "own",
            }
        )

    return make


def test_aligned_preset_on_own_records_goes_by_the_smallest_participating_client(aligned, nodes):
    """60 to 85 records: everyone trains on 48 of its own, so that one sensitivity holds for all."""
    summary = server.run(grid(aligned(60), nodes, range(6)), aligned(60))
    assert summary["accuracy"]["future"] is not None
    sensitivities = {e.sensitivity for c in range(4) for _, e in ledger(nodes, c) if e.kind == "gradient"}
    assert sensitivities == {2 / 48}
    assert [event.kind for _, event in ledger(nodes, 5)] == ["context"]
    delivered = aligned(60).to_config() | {"task": "personalize"}
    server.give_models(grid(Settings.from_config(delivered), nodes, range(6)), Settings.from_config(delivered))
    facts = json.loads((models(nodes, 5) / "model.json").read_text())
    assert facts["input"]["subtract"] == pytest.approx([0.13])
    assert facts["input"]["divide_by"] == pytest.approx([0.31])


def test_a_participating_client_with_fewer_records_is_refused_before_anything_is_spent(aligned, nodes, caplog):
    with pytest.raises(FederationError, match=r"Missing \[0, 1\]; refused \(SETTINGS\)"):
        server.run(grid(aligned(70), nodes, range(6)), aligned(70))
    assert "Client 0 must have at least 56 training records" in caplog.text
    assert not any(Path(nodes[c]["state-dir"], "ledger.sqlite").exists() and ledger(nodes, c) for c in range(6))


def test_a_client_that_joins_later_gets_a_model_from_one_context_without_training(settings, nodes, data_dir):
    training = settings()
    summary = server.run(grid(training, nodes, range(5)), training)
    assert summary["accuracy"]["seen"] is not None
    assert summary["uplink"]["messages"] == 8
    before = {client: ledger(nodes, client) for client in range(5)}
    generator_before = (RunFolder(training).path / "generator.safetensors").read_bytes()

    later = settings(task="personalize")
    report = server.give_models(grid(later, nodes, range(6)), later)
    assert {c: o["status"] for c, o in report["clients"].items()} == {str(c): "delivered" for c in range(6)}
    assert [c for c, o in report["clients"].items() if o["joined_later"]] == ["5"]
    # Nobody who had a context was asked again; the one that joined spent its context and nothing else.
    assert {client: ledger(nodes, client) for client in range(5)} == before
    assert [(run, event.kind) for run, event in ledger(nodes, 5)] == [("own", "context")]
    spent = json.loads((RunFolder(training).path / "ledger.json").read_text())
    assert sum(event["client"] == 5 for event in spent) == 1
    assert (RunFolder(training).path / "generator.safetensors").read_bytes() != generator_before
    assert not RunFolder(training).server_key.exists()

    model = load_model(models(nodes, 5))
    facts = json.loads((models(nodes, 5) / "model.json").read_text())
    assert facts["accountant"] == "gdp"
    assert facts["epsilon_spent"] == GdpAccountant().epsilon(ledger(nodes, 5)[0][1].rho, training.delta)
    assert facts["epsilon_spent"] < report["clients"]["5"]["epsilon"]  # the run accounts by the closed form
    images = torch.tensor(load("mnist", data_dir).images[:4, None] / np.float32(255))
    assert model(images).shape == (4, 10)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(model.parameters(), load_model(models(nodes, 0)).parameters(), strict=True)
    )


def test_personalizing_again_spends_nothing(settings, nodes):
    training, later = settings(), settings(task="personalize")
    server.run(grid(training, nodes, range(5)), training)
    server.give_models(grid(later, nodes, range(6)), later)
    before = {client: ledger(nodes, client) for client in range(6)}
    report = server.give_models(grid(later, nodes, [2, 5]), later)
    assert sorted(report["clients"]) == ["2", "5"]
    assert not any(outcome["joined_later"] for outcome in report["clients"].values())
    assert {client: ledger(nodes, client) for client in range(6)} == before


def test_the_personal_model_is_the_generators(settings, nodes):
    """θ_i = θ_ref + P a_i, bit for bit, with the reference and the basis of the public seed."""
    from client_app.sources import Place
    from client_app.workspace import workspace
    from common.rules import make_rules
    from server_app.checkpoint import load_checkpoint
    from server_app.state import ServerState

    training, later = settings(), settings(task="personalize")
    server.run(grid(training, nodes, range(5)), training)
    server.give_models(grid(later, nodes, [1]), later)
    state = ServerState(make_rules(training), RunFolder(training))
    load_checkpoint(
        RunFolder(training).checkpoint,
        generator=state.generator,
        optimizer=state.optimizer,
        settings_digest=training.digest(),
    )
    place = Place(*(Path(p) for p in (training.data_dir, nodes[1]["data"], nodes[1]["state-dir"])))
    space = workspace(training, place)
    theta = space.theta(torch.tensor(state.generator.coefficients(1)))
    flat = torch.cat([parameter.flatten() for parameter in load_model(models(nodes, 1)).parameters()])
    assert torch.equal(flat, theta)


def test_a_killed_personalisation_spends_the_new_context_once(settings, nodes, monkeypatch):
    training, later = settings(), settings(task="personalize")
    server.run(grid(training, nodes, range(5)), training)
    from server_app import contexts

    original = contexts.Receiver.context

    def die(self, replies):
        raise KeyboardInterrupt

    monkeypatch.setattr(contexts.Receiver, "context", die)
    with pytest.raises(KeyboardInterrupt):
        server.give_models(grid(later, nodes, range(6)), later)
    monkeypatch.setattr(contexts.Receiver, "context", original)
    assert len(ledger(nodes, 5)) == 1
    report = server.give_models(grid(later, nodes, range(6)), later)
    assert report["clients"]["5"]["status"] == "delivered"
    assert len(ledger(nodes, 5)) == 1
    spent = json.loads((RunFolder(training).path / "ledger.json").read_text())
    assert sum(event["client"] == 5 for event in spent) == 1


def test_a_refusing_newcomer_is_reported_and_does_not_stop_the_others(settings, nodes):
    training, later = settings(), settings(task="personalize")
    server.run(grid(training, nodes, range(5)), training)
    nodes[5]["max-epsilon"] = 0.01
    report = server.give_models(grid(later, nodes, range(6)), later)
    assert report["clients"]["5"]["status"] == "no context: refused (BUDGET)"
    assert report["clients"]["4"]["status"] == "delivered"
    assert ledger(nodes, 5) == []


def test_only_a_finished_run_can_be_personalized(settings, nodes):
    later = settings(task="personalize")
    with pytest.raises(ValueError, match="finished run"):
        server.give_models(grid(later, nodes, range(6)), later)
    training = settings()
    server.run(grid(training, nodes, range(5)), training)
    with pytest.raises(FederationError, match="nobody is connected"):
        server.give_models(grid(settings(task="personalize", federation_timeout=0.1), nodes, []), later)


def test_participating_clients_must_be_there_future_ones_need_not(settings, nodes):
    training = settings(federation_timeout=0.1)
    with pytest.raises(FederationError, match=r"Missing \[3\]"):
        server.run(grid(training, nodes, [0, 1, 2, 4]), training)
    assert all(not ledger(nodes, client) for client in (0, 1, 2, 4))
    with pytest.raises(FederationError, match=r"at least partition ids 0 to 3\. .*Missing \[2, 3\]"):
        server.run(grid(training, nodes, [0, 1]), training)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"data": "/nowhere.npz"}, "SETTINGS"), ({"max-epsilo": 3}, "SETTINGS"), ({"diagnostics": "maybe"}, "SETTINGS")],
)
def test_a_node_with_bad_configuration_ends_the_run_before_anything_is_released(settings, nodes, change, named):
    nodes[2] |= change
    with pytest.raises(FederationError, match=named):
        server.run(grid(settings(), nodes, range(6)), settings())
    assert all(not ledger(nodes, client) for client in (0, 1, 3))


def test_cyclic_accounting_needs_equal_public_sizes(settings, nodes):
    with pytest.raises(FederationError, match="SETTINGS"):
        server.run(grid(settings(batch_schedule="cyclic"), nodes, range(6)), settings(batch_schedule="cyclic"))


def test_a_second_run_over_the_same_records_adds_up(settings, nodes):
    """16 + 16 is more than the clients' 20: the second run ends where their ledgers say so, and they say what was spent."""
    first, second = settings(), settings(run_name="second", max_failed_rounds=100)
    server.run(grid(first, nodes, range(5)), first)
    summary = server.run(grid(second, nodes, range(5)), second)
    assert summary["failed_replies"] > 0
    rows = ledger(nodes, 0)
    assert {run for run, _ in rows} == {"own", "second"}


def test_a_model_goes_to_the_holder_that_had_the_number(settings, nodes, tmp_path):
    """Holder 2 claims to be client 0: refused while 0 is away, and both are left out while both are there."""
    training, later = settings(), settings(task="personalize")
    server.run(grid(training, nodes, range(5)), training)
    alone = grid(later, nodes, [2])
    alone.contexts[1000 + 7 * 2].node_config["partition-id"] = 0
    with pytest.raises(FederationError, match="client 0 .* another key"):
        server.give_models(alone, later)
    both = grid(later, nodes, [0, 1, 2])
    both.contexts[1000 + 7 * 2].node_config["partition-id"] = 0
    report = server.give_models(both, later)
    assert list(report["clients"]) == ["1"]
    assert "two clients claim partition-id 0" in report["problems"]
    assert not models(nodes, 2).exists()


def test_a_key_serves_one_number_only(settings, nodes):
    """A newcomer with the state directory of a client that trained: its records would pay under two numbers."""
    training, later = settings(), settings(task="personalize")
    server.run(grid(training, nodes, range(5)), training)
    nodes[5] = nodes[0]
    before = ledger(nodes, 0)
    report = server.give_models(grid(later, nodes, range(6)), later)
    assert any("clients 0, 5 have one key" in problem for problem in report["problems"])
    assert set(report["clients"]) == {"1", "2", "3", "4"}
    report = server.give_models(grid(later, nodes, [1, 5]), later)
    assert report["problems"] == ["client 5 has the key of client 0: one holder under two numbers"]
    assert ledger(nodes, 0) == before


def test_the_servers_key_goes_although_a_context_was_lost_in_training(settings, nodes, monkeypatch):
    """That context was spent for a key which is gone: nothing waits for the new one."""
    training, later = settings(), settings(task="personalize")
    federation = grid(training, nodes, range(5))
    deliver = federation.deliver

    def lose(message):
        reply = deliver(message)
        if message.metadata.message_type == "query.context" and message.metadata.dst_node_id == 1000:
            return Message(Error(1), reply_to=message)
        return reply

    monkeypatch.setattr(federation, "deliver", lose)
    monkeypatch.setattr(
        federation, "send_and_receive", lambda messages, timeout=None: [_named(lose(m), m) for m in messages]
    )
    summary = server.run(federation, training)
    assert summary["contexts_lost"] == [0]
    report = server.give_models(grid(later, nodes, range(6)), later)
    assert "lost in training" in report["clients"]["0"]["status"]
    assert not RunFolder(training).server_key.exists()


def _named(reply, message):
    reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
    return reply


def test_a_late_reply_of_a_newcomer_is_repeated_for_the_same_server_key(settings, nodes, monkeypatch):
    """The context was released and lost on the way: the next personalisation gets the same bytes."""
    training, later = settings(), settings(task="personalize")
    server.run(grid(training, nodes, range(5)), training)
    from server_app import personalize as module

    original = module.ask_for_contexts

    def lose(state, federation, receiver, clients):
        contexts, replies = original(state, federation, receiver, clients)
        replies.reject(5, "no reply within 600 s")
        contexts.pop(5)
        return contexts, replies

    monkeypatch.setattr(module, "ask_for_contexts", lose)
    report = server.give_models(grid(later, nodes, range(6)), later)
    assert "no reply" in report["clients"]["5"]["status"]
    assert RunFolder(training).server_key.exists()
    monkeypatch.undo()
    report = server.give_models(grid(later, nodes, range(6)), later)
    assert report["clients"]["5"]["status"] == "delivered"
    assert len(ledger(nodes, 5)) == 1
    assert not RunFolder(training).server_key.exists()
    summary = json.loads(RunFolder(training).summary.read_text())
    assert summary["privacy"]["epsilon_per_client"]["5"] == pytest.approx(report["clients"]["5"]["epsilon"])


def test_a_future_client_that_is_away_does_not_stop_a_resumed_run(settings, nodes, killed_in_round):
    training = settings(num_rounds=6, checkpoint_every=2)
    with killed_in_round(4):
        server.run(grid(training, nodes, range(6)), training)
    again = settings(num_rounds=6, checkpoint_every=2, resume=True)
    summary = server.run(grid(again, nodes, range(5)), again)
    assert summary["accuracy"]["round"] == 6
    assert summary["failed_replies"] == 0
