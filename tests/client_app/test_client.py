import copy

import numpy as np
import pytest

from client_app.client import PersonalClient
from client_app.node import Node
from client_app.policy import Policy
from client_app.workspace import Workspace
from common import keys
from common.channel import ChannelEvent, DirectGaussian, make_channel
from common.channel.channel_pb2 import Release
from common.data.records import ClientRecords
from common.data.splits import split
from common.keys import deterministic_event_keys, shared_event_keys
from common.privacy.accountant import GdpAccountant, worst_record_rho
from common.protocol import Refusal, RequestRefused, event_digest
from common.settings import Settings
from tests.party import SERVER, Party


@pytest.fixture
def party(tiny):
    return Party(tiny(num_rounds=12))


def refusal(call, *arguments, **changes):
    with pytest.raises(RequestRefused) as error:
        call(*arguments, **changes)
    return error.value.code


def test_context_is_equation_2_plus_seeded_noise(party):
    message = party.ask_context()["payload"]
    rules = party.space.rules
    images = party.space.records(0).images[split(party.settings, 0, 60).context]
    statistic = rules.context_map.phi(images).sum(axis=0) / party.settings.context_records
    event = ChannelEvent(party.settings.name, 0, 0, rules.context_map.dim, rules.mechanism.channel_noise(0, 0))
    event_keys = deterministic_event_keys(party.settings.seed, client=0, round=0)
    assert DirectGaussian().encode(statistic, event, event_keys) == message
    assert [event.kind for event in party.events] == ["context"]


def decoded_by_the_server(party, round, message, coefficients=None):
    if coefficients is None:
        coefficients = np.zeros(512, np.float32)
    noise, server = party.space.rules.mechanism.channel_noise(0, 1), keys.public_key(SERVER)
    digest = event_digest(party.settings, 0, round, noise, server, coefficients.tobytes())
    nonce = Release.FromString(message).nonce
    shared = shared_event_keys(SERVER, keys.public_key(party.private), event=digest, nonce=nonce)
    event = ChannelEvent(party.settings.name, round, 0, 512, noise)
    return make_channel(party.settings).decode(message, event, shared)


@pytest.mark.parametrize("channel", ["dg", "lrsuq"])
def test_noise_never_repeats_where_a_ledger_was_restored(tiny, channel, monkeypatch):
    """State from a back-up, other records since, the same request: in 0.1.0 the difference of the two releases was that of
    the updates, without any noise. Now it has the length of two independent noises, within 40 %."""
    party = Party(tiny(num_rounds=12, deterministic=False, channel=channel))
    backup, round = copy.deepcopy(party.state), party.rounds[0]
    first = decoded_by_the_server(party, round, party.ask(round)[2]["payload"])
    party.state = backup
    held = party.space.records(0)
    edited = ClientRecords(1 - held.images, held.labels)
    monkeypatch.setattr(type(party.space), "records", lambda space, client: edited)
    second = decoded_by_the_server(party, round, party.ask(round)[2]["payload"])
    noise = party.space.rules.mechanism.channel_noise(0, 1)
    assert np.linalg.norm(first - second) == pytest.approx(noise * np.sqrt(2 * 512), rel=0.4)


@pytest.mark.parametrize("change", ["run", "client", "round", "noise", "server", "coefficients"])
def test_the_digest_of_an_event_depends_on_all_that_decides_the_update(tiny, change):
    parts = dict(run="a", client=0, round=1, noise=0.01, server=b"key", coefficients=b"c")
    other = parts | {change: {"run": "b", "client": 1, "round": 2, "noise": 0.02}.get(change, b"other")}
    digests = {
        event_digest(tiny(run_name=p["run"]), p["client"], p["round"], p["noise"], p["server"], p["coefficients"])
        for p in (parts, other)
    }
    assert len(digests) == 2


@pytest.mark.parametrize("channel", ["dg", "lrsuq"])
def test_without_determinism_the_server_decodes_with_the_agreed_key(tiny, channel):
    party = Party(tiny(num_rounds=12, deterministic=False, channel=channel))
    round = party.rounds[0]
    coefficients = np.zeros(512, np.float32)
    _, count, metrics = party.ask(round, coefficients)
    noise = party.space.rules.mechanism.channel_noise(0, 1)
    decoded = decoded_by_the_server(party, round, metrics["payload"])
    assert count == party.settings.batch_records
    assert np.linalg.norm(decoded) == pytest.approx(noise * np.sqrt(512), rel=0.4)


def test_no_key_is_in_any_message_or_reply(tiny):
    party = Party(tiny(num_rounds=12, deterministic=False))
    reply = party.client.hello()
    _, _, metrics = party.ask(party.rounds[0])
    for value in [*reply.values(), *metrics.values()]:
        if isinstance(value, bytes):
            assert party.private not in value
            assert SERVER not in value


def test_same_event_gives_the_same_bytes_and_is_spent_once(tiny):
    party = Party(tiny(num_rounds=12, deterministic=False))
    first = party.ask(party.rounds[0])[2]["payload"]
    assert party.ask(party.rounds[0])[2]["payload"] == first
    assert len(party.events) == 1


def test_same_round_with_another_request_is_refused(party):
    party.ask(party.rounds[0])
    other = np.ones(512, np.float32)
    assert refusal(party.ask, party.rounds[0], other) == Refusal.REPEATED
    assert len(party.events) == 1


def test_context_is_released_once(party):
    """The same question gets the same bytes; a later one, in the middle of training, or with another server is refused."""
    first = party.ask_context()["payload"]
    assert party.ask_context()["payload"] == first
    party.ask(party.rounds[0])
    assert refusal(party.ask_context) == Refusal.REPEATED
    other = keys.public_key(keys.new_private_key())
    assert refusal(party.ask_context, **{"public-key": other}) == Refusal.REPEATED
    assert [event.kind for event in party.events] == ["context", "gradient"]


@pytest.mark.parametrize("deterministic", [False, True])
def test_no_two_events_share_a_key(tiny, deterministic, monkeypatch):
    """Context and every round of two clients, with equal coefficients throughout."""
    used = []
    original = PersonalClient._event_keys
    monkeypatch.setattr(PersonalClient, "_event_keys", lambda *a: used.append(original(*a)) or used[-1])
    for number in (0, 1):
        party = Party(tiny(num_rounds=12, deterministic=deterministic), client=number)
        party.ask_context()
        for round in party.rounds:
            party.ask(round)
    assert len(used) > 8
    assert len({key.shared for key in used} | {key.secret for key in used}) == 2 * len(used)


@pytest.mark.parametrize("dies", [(DirectGaussian, "encode"), (Workspace, "gradient")])
def test_event_that_was_committed_and_lost_stays_spent(party, monkeypatch, dies):
    """Gradient or encoder dies after the commit: the release counts, and asking again is refused."""
    monkeypatch.setattr(*dies, lambda *a: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(MemoryError):
        party.ask(party.rounds[0])
    monkeypatch.undo()
    assert len(party.events) == 1
    assert refusal(party.ask, party.rounds[0]) == Refusal.REPEATED


def test_older_event_is_refused_once_a_newer_one_is_there(party):
    party.ask(party.rounds[0])
    party.ask(party.rounds[1])
    assert refusal(party.ask, party.rounds[0]) == Refusal.REPEATED


def test_release_beyond_the_clients_own_budget_is_refused(tiny):
    settings = tiny(num_rounds=12, deterministic=False)
    generous, strict = Party(settings), Party(settings, policy=Policy(budget=7.0))
    for round in generous.rounds:
        generous.ask(round)
    code = None
    for round in strict.rounds:
        try:
            strict.ask(round)
        except RequestRefused as error:
            code = error.code
            break
    assert code == Refusal.BUDGET
    exact = [GdpAccountant().epsilon(worst_record_rho(generous.events[:n]), 1e-5) for n in (3, 4)]
    assert exact[0] < 7.0 < exact[1]  # whatever the run accounts with: by its closed form two would be 5.9, three 7.3
    assert len(strict.events) == 3 < len(generous.events)


@pytest.mark.parametrize(
    "changes",
    [{"noise-stddev": 1e-6}, {"noise-stddev": None}, {"round": 0}, {"round": True}, {"round": 99}],
)
def test_requests_that_the_public_plan_does_not_say_are_refused(party, changes):
    assert refusal(party.ask, party.rounds[0], **changes) == Refusal.REQUEST
    assert party.events == []


def test_unscheduled_round_is_refused(party):
    other = next(t for t in range(1, 13) if t not in party.rounds)
    assert refusal(party.ask, other) == Refusal.REQUEST


@pytest.mark.parametrize(
    "coefficients",
    [np.zeros(511, np.float32), np.zeros(512, np.float64), np.full(512, np.nan, np.float32)],
)
def test_malformed_coefficients_are_refused_before_anything_is_spent(party, coefficients):
    assert refusal(party.ask, party.rounds[0], coefficients) == Refusal.REQUEST
    assert party.events == []


def test_missing_public_key_is_refused_before_anything_is_spent(tiny):
    party = Party(tiny(num_rounds=12, deterministic=False))
    assert refusal(party.ask, party.rounds[0], **{"public-key": b"short"}) == Refusal.REQUEST
    assert party.events == []


def test_future_client_is_never_trained_on(tiny):
    party = Party(tiny(num_rounds=12), client=4)
    assert party.client.is_future
    assert party.rounds == []
    assert refusal(party.ask, 1) == Refusal.REQUEST
    party.ask_context()


def test_diagnostics_off_shares_nothing_noiseless(tiny):
    party = Party(tiny(num_rounds=12, diagnostics="off"))
    assert "label-counts" not in party.client.hello()
    metrics = party.ask(party.rounds[0])[2]
    assert set(metrics) == {"payload", "partition-id"}
    assert refusal(party.client.evaluate, [np.zeros(512, np.float32)], {}) == Refusal.DIAGNOSTICS


def test_the_data_holder_and_not_the_run_decides_on_diagnostics(tiny):
    party = Party(tiny(num_rounds=12), policy=node_policy({"state-dir": "/state", "allow-deterministic": True}))
    assert set(party.client.hello()) == {"partition-id", "num-records", "num-events", "public-key"}
    assert set(party.ask(party.rounds[0])[2]) == {"payload", "partition-id"}
    assert refusal(party.client.evaluate, [np.zeros(512, np.float32)], {}) == Refusal.DIAGNOSTICS


@pytest.mark.parametrize("changes", [{"deterministic": True}, {"delta": 0.9}, {"noise_stddev": 0.0}])
def test_a_budget_cannot_be_talked_away_by_the_runs_settings(tiny, changes):
    party = Party(tiny(**({"num_rounds": 12, "deterministic": False} | changes)), policy=Policy(budget=100.0))
    assert refusal(party.ask, party.rounds[0]) == Refusal.BUDGET
    assert party.events == []


def test_a_limit_on_delta_holds_without_a_budget(tiny):
    """In 0.1.0 max-delta without max-epsilon was read and forgotten: a run at delta = 0.5 was served."""
    limited = node_policy({"state-dir": "/state", "max-delta": 1e-6})
    settings = tiny(num_rounds=12, deterministic=False, delta=1e-5)
    party = Party(settings, policy=limited)
    assert refusal(party.ask, party.rounds[0]) == Refusal.BUDGET
    assert party.events == []
    Party(settings, policy=node_policy({"state-dir": "/state"})).ask(party.rounds[0])
    Party(tiny(num_rounds=12, deterministic=False, delta=1e-6), policy=limited).ask(party.rounds[0])


@pytest.mark.parametrize(
    "node",
    [
        {"max-epsilon": 0.0, "state-dir": "/s"},
        {"max-epsilon": "8", "state-dir": "/s"},
        {"max-delta": 1.0},
        {"diagnostics": "on"},
        {"allow-deterministic": "yes"},
        {"max-epsilo": 8.0, "state-dir": "/s"},
        {"partition-id": -1},
        {"partition-id": "0"},
    ],
)
def test_bad_node_configuration_is_refused_by_name(node):
    with pytest.raises(ValueError, match=next(iter(node))):
        node_policy(node)


@pytest.mark.parametrize(
    ("node", "missing"),
    [
        ({"max-epsilon": 8.0}, "state-dir"),
        ({"data": "/data.npz"}, "state-dir"),
        ({"data": "/data.npz", "state-dir": "/state"}, "max-epsilon"),
    ],
)
def test_own_records_need_a_budget_and_a_budget_a_ledger_that_outlives_the_run(node, missing):
    with pytest.raises(ValueError, match=f"{missing} must be given"):
        node_policy(node)


@pytest.mark.parametrize("key", ["state-dir", "data"])
@pytest.mark.parametrize("path", ["state", "~/state", "./state"])
def test_places_must_be_absolute(key, path):
    """From another working directory or home a relative path is another ledger: an empty one."""
    with pytest.raises(ValueError, match=f"{key} must be an absolute path"):
        node_policy({"state-dir": "/state", "max-epsilon": 8.0, key: path})


def test_public_noise_is_booked_as_none(tiny):
    party = Party(tiny(num_rounds=12))
    party.ask(party.rounds[0])
    assert [event.noise_stddev for event in party.events] == [0.0]
    assert party.events[0].rho == float("inf")


def test_a_deployed_node_sends_nothing_without_noise(tiny):
    party = Party(
        tiny(num_rounds=12, noise_stddev=0.0, deterministic=False), policy=node_policy({"state-dir": "/state"})
    )
    assert refusal(party.ask, party.rounds[0]) == Refusal.BUDGET
    assert party.events == []


def test_a_node_must_say_who_it_is():
    with pytest.raises(ValueError, match="partition-id"):
        Node.from_config({}, Settings())


def test_a_deployed_node_serves_no_run_with_public_noise_unless_it_says_so(tiny):
    party = Party(tiny(num_rounds=12), policy=node_policy({"state-dir": "/state"}))
    assert refusal(party.ask, party.rounds[0]) == Refusal.BUDGET
    assert refusal(party.ask_context) == Refusal.BUDGET
    assert party.events == []


def test_another_server_of_the_same_name_gets_no_old_bytes(tiny):
    """a_1 is zero for everyone: only the server's key tells a second run of this name from a repetition."""
    party = Party(tiny(num_rounds=12, deterministic=False))
    party.ask(party.rounds[0])
    other = keys.public_key(keys.new_private_key())
    assert refusal(party.ask, party.rounds[0], **{"public-key": other}) == Refusal.REPEATED
    for useless in (b"", bytes(32), "text"):
        assert refusal(party.ask, party.rounds[1], **{"public-key": useless}) == Refusal.REQUEST
    assert len(party.events) == 1


def node_policy(config):
    return Node.from_config({"partition-id": 0, **config}, Settings()).policy


def test_runs_of_one_name_with_other_settings_share_no_key(tiny):
    """Same name, same round, same a_i, same σ: another seed must still give another event."""
    digests = {
        event_digest(tiny(run_name="same", seed=seed, noise_stddev=0.01), 0, 1, 0.01, b"key", b"") for seed in (0, 1)
    }
    assert len(digests) == 2


def test_noise_is_agreed_up_to_the_last_bits_of_two_machines(party):
    sigma = party.space.rules.mechanism.channel_noise(0, 1)
    party.ask(party.rounds[0], **{"noise-stddev": sigma * (1 + 1e-15)})
    assert refusal(party.ask, party.rounds[1], **{"noise-stddev": sigma * (1 - 1e-8)}) == Refusal.REQUEST


def test_wire_message_names_its_event(party):
    message = Release.FromString(party.ask(party.rounds[0])[2]["payload"])
    assert (message.round, message.partition, message.k) == (party.rounds[0], 0, 512)
