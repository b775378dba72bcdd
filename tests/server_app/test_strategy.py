"""The strategy on the in-process grid, with clients that fail in every way of the failure table."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Error, Message
from safetensors.numpy import load_file

from client_app.app import app
from client_app.sources import Place
from client_app.workspace import Workspace, workspace
from common.channel import ChannelEvent
from common.channel.dg import add_noise
from common.data.splits import batch, split
from common.keys import deterministic_event_keys
from common.protocol import METRICS, REPLY
from server_app import app as server
from server_app.federation import FederationError
from server_app.results import RunFolder
from server_app.state import ServerState
from simulations.grid import InProcessGrid


class FaultyGrid(InProcessGrid):
    """Lets a test change what comes back: `tamper(message, reply)` → list of replies."""

    def __init__(self, settings, tamper, num_nodes=None):
        super().__init__(app, settings, num_nodes)
        self.tamper = tamper
        self.asked = []

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            self.asked.append((message.metadata.message_type, int(message.metadata.group_id), self.partition(message)))
            replies.extend(self.tamper(message, self.deliver(message)))
        return replies

    def partition(self, message):
        return self.contexts[message.metadata.dst_node_id].node_config["partition-id"]


def is_train(message, round=None):
    return message.metadata.message_type == "train" and (round is None or message.metadata.group_id == str(round))


def run(settings, tamper=lambda message, reply: [reply], num_nodes=None):
    grid = FaultyGrid(settings, tamper, num_nodes)
    return server.run(grid, settings), grid


def rows(settings):
    return RunFolder(settings).read_metrics()


def without_times(row):
    return {key: value for key, value in row.items() if not key.endswith(("_ms", "seconds"))}


def test_results_folder_is_complete(tiny):
    settings = tiny(tensorboard=True)
    summary, _ = run(settings)
    folder = RunFolder(settings).path
    names = {path.name for path in folder.iterdir()}
    assert {
        "settings.json",
        "metrics.jsonl",
        "ledger.json",
        "summary.json",
        "generator.safetensors",
        "tensorboard",
    } <= names
    assert any((folder / "tensorboard").iterdir())
    assert len(json.loads((folder / "ledger.json").read_text())) == 6 + 8
    assert len(rows(settings)) == 4
    assert [("seen_accuracy" in row) for row in rows(settings)] == [False, True, False, True]
    for key in ("loss", "update_norm", "clipped_fraction", "signal_to_noise", "hidden_norm_squared", "seconds",
                "payload_bytes", "message_bytes", "bits_per_coordinate", "encode_ms", "decode_ms"):  # fmt: skip
        assert all(key in row for row in rows(settings))
    assert summary["privacy"]["guarantee"].startswith("none (reproduction)")
    assert summary["privacy"]["epsilon"] == pytest.approx(16.0)
    assert len(summary["accuracy"]["per_client"]) == 6
    assert summary["references"]["chance"] == 0.1
    assert 0 < summary["references"]["commonest_label"]["seen"] <= 1
    assert len(summary["partition"]["label_counts"]) == 6
    assert summary["uplink"]["bits_per_coordinate"] == 32.0


def test_generator_file_holds_all_a_joining_client_needs(tiny):
    settings = tiny()
    run(settings)
    tensors = load_file(RunFolder(settings).path / "generator.safetensors")
    assert {"entry.shift", "entry.scale", "context.0", "context.5", "variant.output.weight"} <= set(tensors)


def test_same_settings_same_bits_other_seed_other_bits(tiny, tmp_path):
    first, _ = run(tiny(out_dir=str(tmp_path / "a")))
    again, _ = run(tiny(out_dir=str(tmp_path / "b")))
    other, _ = run(tiny(out_dir=str(tmp_path / "c"), seed=0))
    assert first["generator_digest"] == again["generator_digest"] != other["generator_digest"]


def test_secret_noise_differs_between_runs(tiny, tmp_path):
    digests = {run(tiny(out_dir=str(tmp_path / str(i)), deterministic=False))[0]["generator_digest"] for i in range(2)}
    assert len(digests) == 2


def test_order_of_replies_does_not_matter(tiny, tmp_path):
    straight, _ = run(tiny(out_dir=str(tmp_path / "a")))
    grid = InProcessGrid(app, tiny())
    grid.send_and_receive = lambda messages, timeout=None: [grid.deliver(m) for m in reversed(list(messages))]
    reversed_, _ = server.run(grid, tiny(out_dir=str(tmp_path / "b"))), None
    assert straight["generator_digest"] == reversed_["generator_digest"]


def test_failed_client_goes_missing_with_uniform_weight_over_the_others(tiny, caplog):
    """One of two replies of round 2 is an error: the round uses the other alone, and the failure is counted."""

    def fail_one(message, reply):
        if is_train(message, 2) and not seen:
            seen.append(1)
            return [Message(Error(2), reply_to=message)]
        return [reply]

    seen = []
    summary, _ = run(tiny(), fail_one)
    row = rows(tiny())[1]
    assert len(row["clients"]) == 1
    assert list(row["failed"].values()) == ["failed (Flower code 2)"]
    assert summary["failed_replies"] == 1
    assert "Flower code 2" in caplog.text
    # A release that was asked for counts, whatever came back.
    assert len(json.loads((RunFolder(tiny()).path / "ledger.json").read_text())) == 6 + 8


def test_what_is_applied_is_the_clients_release_and_nothing_else(tiny, monkeypatch):
    """Eq. 5 of the first round, computed here: the server adds nothing to it and takes nothing away."""
    settings, applied = tiny(num_rounds=1), {}
    original = ServerState.apply
    monkeypatch.setattr(
        ServerState,
        "apply",
        lambda self, round, updates, row, key: (applied.update(updates), original(self, round, updates, row, key)),
    )
    run(settings)
    space = workspace(settings, Place(Path(settings.data_dir)))
    noise, k = space.rules.mechanism.channel_noise(0, 1), settings.num_coefficients
    assert sorted(applied) == list(space.rules.schedule.clients(1))
    for client, update in applied.items():
        positions = batch(settings, client, 1, 0, split(settings, client, settings.records_per_client).train)
        gradient = space.gradient(client, torch.zeros(k), positions).gradient.numpy()
        event_keys = deterministic_event_keys(settings.seed, client=client, round=1)
        expected = add_noise(gradient, ChannelEvent(settings.name, 1, client, k, noise), event_keys)
        assert np.array_equal(update, expected.astype(np.float32))


def corrupt(reply, **changes):
    record = reply.content.config_records[REPLY]
    for key, value in changes.items():
        record[key.replace("_", "-")] = value
    return reply


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            lambda reply: [corrupt(reply, payload=reply.content.config_records[REPLY]["payload"][:-3])],
            "truncated|damaged",
        ),
        (lambda reply: [corrupt(reply, payload=b"")], "truncated|damaged|version"),
        (lambda reply: [corrupt(reply, partition_id=99)], "partition-id"),
        (lambda reply: [], "no reply within"),
        (lambda reply: [reply.content.config_records.pop(REPLY) and reply], "no message"),
    ],
)
def test_bad_replies_are_rejected_by_name_and_leave_the_model_alone(tiny, change, named):
    """All replies of round 3 are bad: the generator after round 3 is that after round 2."""
    run(tiny(), lambda message, reply: change(reply) if is_train(message, 3) else [reply])
    row = rows(tiny())[2]
    assert row["clients"] == []
    assert len(row["failed"]) == 2
    import re

    assert all(re.search(named, reason) for reason in row["failed"].values())
    assert "hidden_norm_squared" not in row


def test_reply_of_another_round_is_rejected(tiny):
    kept = []

    def replay(message, reply):
        if is_train(message, 1):
            kept.append(reply)
        if is_train(message, 3):
            return kept
        return [reply]

    run(tiny(num_participating=2, clients_per_round=2), replay)
    row = rows(tiny(num_participating=2, clients_per_round=2))[2]
    assert row["clients"] == []
    assert all("no reply within" in reason for reason in row["failed"].values())


def test_duplicate_and_late_replies_cost_nothing(tiny, tmp_path, caplog):
    """A second copy of every reply, and old replies of round 1 ahead of the right ones: rejected, bits unchanged."""
    kept = []

    def noisy(message, reply):
        if is_train(message, 1):
            kept.append(reply)
        old = [r for r in kept if r.metadata.src_node_id == reply.metadata.src_node_id] if is_train(message, 3) else []
        return [*old, reply, reply]

    clean, _ = run(tiny(out_dir=str(tmp_path / "a"), num_participating=2))
    noisy_run, _ = run(tiny(out_dir=str(tmp_path / "b"), num_participating=2), noisy)
    assert clean["generator_digest"] == noisy_run["generator_digest"]
    assert "second reply" in caplog.text
    assert "reply of round 1 in round 3" in caplog.text


@pytest.mark.parametrize("values", [{"loss": [1.0, 2.0]}, {"loss": float("nan")}])
def test_unusable_metrics_are_left_out_and_the_release_is_kept(tiny, values):
    def spoil(message, reply):
        if is_train(message, 2):
            for key, value in values.items():
                reply.content.metric_records[METRICS][key] = value
        return [reply]

    run(tiny(), spoil)
    assert "loss" not in rows(tiny())[1]
    assert len(rows(tiny())[1]["clients"]) == 2


@pytest.mark.parametrize(
    "hello", [{"label-counts": [float("nan")]}, {"label-counts": [True]}, {"commonest-label-accuracy": 7.0}]
)
def test_what_a_client_says_of_itself_cannot_spoil_the_end_of_the_run(tiny, hello):
    def lie(message, reply):
        if message.metadata.message_type == "query.hello":
            reply.content.config_records[REPLY].update(hello)
        return [reply]

    summary, _ = run(tiny(), lie)
    assert summary["accuracy"]["seen"] is not None


def test_unusable_evaluation_is_counted(tiny):
    def spoil(message, reply):
        if message.metadata.message_type == "evaluate" and message.metadata.dst_node_id == 1000:
            reply.content.metric_records[METRICS]["num-examples"] = 0
        return [reply]

    summary, _ = run(tiny(), spoil)
    assert summary["failed_evaluations"] == 2
    assert "0" not in summary["accuracy"]["per_client"]


def test_client_without_a_usable_key_ends_the_run_before_anything_is_spent(tiny):
    def spoil(message, reply):
        if message.metadata.message_type == "query.hello" and message.metadata.dst_node_id == 1000:
            reply.content.config_records[REPLY]["public-key"] = bytes(32)
        return [reply]

    with pytest.raises(FederationError, match="client 0 has no usable public key"):
        run(tiny(deterministic=False), spoil)
    assert not RunFolder(tiny(deterministic=False)).journal.exists()


def test_run_that_was_refused_before_anything_was_asked_can_be_started_again(tiny):
    with pytest.raises(FederationError):
        run(tiny(federation_timeout=0.1), num_nodes=5)
    run(tiny())


def test_two_servers_cannot_share_a_run(tiny):
    with RunFolder(tiny()).locked(), pytest.raises(ValueError, match="another server is running"):
        run(tiny())


def test_servers_private_key_is_for_its_owner_and_goes_with_the_run(tiny):
    modes = []
    path = RunFolder(tiny()).server_key

    def look(message, reply):
        modes.append(path.stat().st_mode & 0o777)
        return [reply]

    run(tiny(), lambda m, r: look(m, r) if is_train(m) else [r])
    assert set(modes) == {0o600}
    assert not path.exists()


def test_wrong_federation_size_prints_the_full_command(tiny):
    with pytest.raises(FederationError, match="flwr run . --stream --federation-config 'num-supernodes=6"):
        run(tiny(federation_timeout=0.1), num_nodes=5)
    assert not RunFolder(tiny()).journal.exists()


def test_rounds_without_any_usable_reply_abort_with_the_cause(tiny):
    settings = tiny(num_rounds=8, max_failed_rounds=2)
    with pytest.raises(FederationError, match=r"Stopped after round 4.*Flower code 2.*resume=true"):
        run(
            settings,
            lambda m, r: [Message(Error(2), reply_to=m)] if is_train(m) and int(m.metadata.group_id) > 2 else [r],
        )
    assert RunFolder(settings).read_failure().startswith("Stopped after round 4")


def test_dead_worker_aborts_even_while_the_other_client_answers(tiny):
    def die(message, reply):
        first = message.metadata.dst_node_id in (1000, 1007)
        return [Message(Error(0), reply_to=message)] if is_train(message) and first else [reply]

    with pytest.raises(FederationError, match="worker process died"):
        run(tiny(num_rounds=40, max_failed_rounds=2, num_participating=3), die)


def test_client_without_context_is_left_out_and_counted(tiny):
    def refuse(message, reply):
        context = message.metadata.message_type == "query.context" and message.metadata.dst_node_id == 1007
        return [Message(Error(102), reply_to=message)] if context else [reply]

    summary, grid = run(tiny(num_rounds=8), refuse)
    assert "1" not in summary["accuracy"]["per_client"]
    assert all(partition != 1 for kind, _, partition in grid.asked if kind in ("train", "evaluate"))
    assert summary["privacy"]["epsilon_per_client"]["1"] > 0


def test_contexts_are_asked_for_once(tiny):
    _, grid = run(tiny())
    assert sum(kind == "query.context" for kind, *_ in grid.asked) == 6


def test_finished_and_unfinished_runs_are_not_overwritten(tiny):
    run(tiny())
    with pytest.raises(ValueError, match="finished run"):
        run(tiny())
    settings = tiny(run_name="half", num_rounds=6, max_failed_rounds=1)
    with pytest.raises(FederationError):
        run(settings, lambda m, r: [] if is_train(m, 4) else [r])
    with pytest.raises(ValueError, match="unfinished run"):
        run(settings)


def test_diagnostics_off_asks_for_no_evaluation_and_records_nothing_noiseless(tiny):
    summary, grid = run(tiny(diagnostics="off"))
    assert all(kind != "evaluate" for kind, *_ in grid.asked)
    assert summary["accuracy"]["seen"] is None
    assert all("loss" not in row and "update_norm" not in row for row in rows(tiny()))
    assert "label_counts" not in summary["partition"]


def test_error_replies_carry_a_code_and_no_text(tiny, caplog):
    grid = InProcessGrid(app, tiny())
    node = next(iter(grid.contexts))
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    bad = Message(
        RecordDict({"coefficients": ArrayRecord([np.zeros(3, np.float32)]), "request": ConfigRecord({"round": 1})}),
        node, "train", group_id="1",
    )  # fmt: skip
    with caplog.at_level(logging.ERROR):
        reply = grid.deliver(bad)
    assert reply.error.code == 102
    assert reply.error.reason is None


def test_an_unforeseen_error_leaves_as_a_code_too(tiny, monkeypatch):
    """Its text may quote a record."""
    monkeypatch.setattr(Workspace, "gradient", lambda *a: (_ for _ in ()).throw(RuntimeError("label 7 of record 12")))
    errors = []

    def note(message, reply):
        if reply.has_error():
            errors.append((reply.error.code, reply.error.reason))
        return [reply]

    with pytest.raises(FederationError):
        run(tiny(), note)
    assert set(errors) == {(199, None)}
