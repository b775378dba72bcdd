"""What holds for every channel: the law of the decoded noise, and that damage is always an error."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.channel import ChannelError, ChannelEvent, DirectGaussian, EventKeys, LayeredQuantizer, QuantizedGaussian
from common.channel.channel_pb2 import Release
from common.channel.dg import add_noise
from common.gaussian import add_gaussian
from common.randomness import derive_key, seed_key

CHANNELS = {
    "dg": DirectGaussian(),
    "dg-q12": QuantizedGaussian(),
    "lrsuq": LayeredQuantizer(),
    "lrsuq-1": LayeredQuantizer(block_size=1),
    "lrsuq-padded": LayeredQuantizer(padding=64),
    "lrsuq-public": LayeredQuantizer(public_scale=0.15),
}
EVENT = ChannelEvent("run", 3, 7, 400, 0.015)


def keys(seed=0):
    return EventKeys(seed_key(seed, 11, 7, 3), seed_key(seed, 10, 7, 3))


def server_keys(seed=0):
    return EventKeys(keys(seed).shared)


def update(seed=0, k=400):
    return np.random.default_rng(seed).standard_normal(k) * 0.002


@pytest.fixture(params=sorted(CHANNELS))
def channel(request):
    return CHANNELS[request.param]


def test_noise_has_the_stated_standard_deviation(channel):
    """50,000 coordinates; mean and variance within 5 standard errors (a false alarm in 10^6), 12-bit cells included."""
    errors = []
    for seed in range(125):
        u = update(seed)
        errors.append(channel.decode(channel.encode(u, EVENT, keys(seed)), EVENT, server_keys(seed)) - u)
    e = np.concatenate(errors) / EVENT.noise_stddev
    assert abs(e.mean()) < 5 / np.sqrt(e.size)
    assert abs(e.var() - 1) < 5 * np.sqrt(2 / e.size) + 2e-6


def test_secret_noise_is_exactly_rounded():
    """Public keys repeat landed results to the last bit; secret ones round exactly, for both channels that add noise."""
    update_, secret = update(k=400), keys()
    exact = add_gaussian(update_, EVENT.noise_stddev, derive_key(secret.secret, "noise"))
    public = dataclasses.replace(secret, public=True)
    proposed = add_gaussian(update_, EVENT.noise_stddev, derive_key(secret.secret, "noise"), exact=False)
    assert np.array_equal(add_noise(update_, EVENT, secret), exact)
    assert np.array_equal(add_noise(update_, EVENT, public), proposed)
    assert not np.array_equal(exact, proposed)


def test_a_message_under_another_nonce_is_refused(channel):
    fresh = dataclasses.replace(keys(), nonce=bytes(range(16)))
    message = channel.encode(update(), EVENT, fresh)
    assert len(message) == len(channel.encode(update(), EVENT, keys())) + 18
    with pytest.raises(ChannelError, match="nonce"):
        channel.decode(message, EVENT, server_keys())
    channel.decode(message, EVENT, dataclasses.replace(server_keys(), nonce=bytes(range(16))))


def test_same_event_same_bytes_another_event_other_bytes(channel):
    u = update()
    message = channel.encode(u, EVENT, keys())
    assert channel.encode(u, EVENT, keys()) == message
    assert channel.encode(u, EVENT, keys(1)) != message


@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 4096])
def test_any_number_of_coordinates(channel, k):
    event = ChannelEvent("run", 1, 0, k, 0.015)
    decoded = channel.decode(channel.encode(update(0, k), event, keys()), event, server_keys())
    assert decoded.shape == (k,)
    assert np.abs(decoded - update(0, k)).max(initial=0.0) < 0.015 * 7


def test_every_flipped_byte_is_an_error(channel):
    message = channel.encode(update(), EVENT, keys())
    for position in range(len(message)):
        for bit in (1, 128):
            damaged = bytearray(message)
            damaged[position] ^= bit
            with pytest.raises(ChannelError):
                channel.decode(bytes(damaged), EVENT, server_keys())


def test_every_truncation_and_trailing_bytes_are_errors(channel):
    message = channel.encode(update(), EVENT, keys())
    lengths = range(len(message)) if len(message) < 500 else range(0, len(message), 17)
    for length in lengths:
        with pytest.raises(ChannelError):
            channel.decode(message[:length], EVENT, server_keys())
    for tail in (b"\0", b"\x08\x01", b"x" * 100):
        with pytest.raises(ChannelError):
            channel.decode(message + tail, EVENT, server_keys())


@pytest.mark.parametrize(
    ("event", "named"),
    [
        (ChannelEvent("other", 3, 7, 400, 0.015), "run"),
        (ChannelEvent("run", 4, 7, 400, 0.015), "round"),
        (ChannelEvent("run", 3, 8, 400, 0.015), "partition"),
        (ChannelEvent("run", 3, 7, 404, 0.015), "k must"),
        (ChannelEvent("run", 3, 7, 400, 0.016), "noise_stddev"),
    ],
)
def test_messages_of_another_event_are_refused_by_name(channel, event, named):
    with pytest.raises(ChannelError, match=named):
        channel.decode(channel.encode(update(), EVENT, keys()), event, server_keys())


def test_wrong_key_other_version_and_other_channel_are_refused(channel):
    message = channel.encode(update(), EVENT, keys())
    with pytest.raises(ChannelError, match="digest"):
        channel.decode(message, EVENT, server_keys(1))
    newer = Release.FromString(message)
    newer.version = 2
    with pytest.raises(ChannelError, match="version"):
        channel.decode(newer.SerializeToString(), EVENT, server_keys())
    other = CHANNELS["dg" if channel.name != "dg" else "lrsuq"]
    with pytest.raises(ChannelError, match="kind"):
        other.decode(message, EVENT, server_keys())


@pytest.mark.parametrize("bad", [np.full(400, np.nan), np.full(400, np.inf), np.zeros(399), np.zeros((4, 100))])
def test_bad_updates_are_refused_before_anything_is_encoded(channel, bad):
    with pytest.raises(ValueError, match="update"):
        channel.encode(bad, EVENT, keys())


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_are_an_error(data):
    for one in CHANNELS.values():
        with pytest.raises(ChannelError):
            one.decode(data, EVENT, server_keys())


def test_overhead_beyond_the_payload_is_small(channel):
    event = ChannelEvent("run", 500, 49, 16_384, 0.01503)
    message = channel.encode(update(0, 16_384), event, keys())
    assert len(message) - len(Release.FromString(message).payload) <= 48


def test_client_secret_is_needed_for_direct_noise():
    for name in ("dg", "dg-q12"):
        with pytest.raises(ValueError, match="secret"):
            CHANNELS[name].encode(update(), EVENT, server_keys())


def test_q12_saturates_outside_its_public_range():
    u = np.zeros(400)
    u[0], u[1] = 1.0, -1.0
    decoded = CHANNELS["dg-q12"].decode(CHANNELS["dg-q12"].encode(u, EVENT, keys()), EVENT, server_keys())
    assert decoded[0] == pytest.approx(8 * 0.015, rel=1e-3)
    assert decoded[1] == pytest.approx(-8 * 0.015, rel=1e-3)
