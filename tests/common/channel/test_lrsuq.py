import doctest
import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import common.channel.lrsuq.channel as library
from common.channel import ChannelError
from common.channel.lrsuq import codec, decode, encode, tables
from common.channel.lrsuq.codec import kernel
from common.randomness import seed_key

KEY = seed_key(0, 11)


def gaussian_update(norm, k=16_384, seed=0):
    u = np.random.default_rng(seed).standard_normal(k)
    return u * (norm / np.linalg.norm(u))


def test_docstring_example_runs():
    assert doctest.testmod(library).failed == 0
    assert doctest.testmod(library).attempted >= 6


def test_decoder_in_another_process_agrees_bit_for_bit(tmp_path):
    """From message and key alone, in a process with its own libraries loaded in another order."""
    u = gaussian_update(0.3)
    message = encode(u, 0.015, KEY)
    (tmp_path / "message").write_bytes(message)
    (tmp_path / "key").write_bytes(KEY)
    code = (
        "import sys, pathlib; from common.channel.lrsuq import decode; p = pathlib.Path(sys.argv[1]);"
        "(p / 'out').write_bytes(decode((p / 'message').read_bytes(), (p / 'key').read_bytes()).tobytes())"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert np.array_equal(np.frombuffer((tmp_path / "out").read_bytes()), decode(message, KEY))


@pytest.mark.parametrize("block_size", [1, 4])
@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(st.floats(-1e12, 1e12), max_size=40),
    sigma=st.floats(0.1, 1e6),
    seed=st.integers(0, 2**20),
)
def test_any_finite_update_comes_back_within_the_noise(block_size, values, sigma, seed):
    """A block's error is N(0, σ² I_4): beyond 12 σ (plus float64 rounding) once in 10^30."""
    u, key = np.array(values), seed_key(seed, 11)
    decoded = decode(encode(u, sigma, key, block_size=block_size), key)
    assert decoded.shape == u.shape
    assert (np.abs(decoded - u) <= 12 * sigma + 1e-9 * np.abs(u)).all()


@pytest.mark.parametrize("block_size", [1, 4])
@pytest.mark.parametrize("k", [1, 4, 16_384, 2**20])
def test_zero_update_takes_one_byte_of_payload(block_size, k):
    payload, _ = codec.encode_payload(np.zeros(k), 0.015, KEY, block_size=block_size, scale=0)
    assert len(payload) == 1


@pytest.mark.parametrize(("norm", "limit"), [(0.3, 380), (0.9, 1075)])
def test_payload_sizes_at_the_papers_setting(norm, limit):
    """Means of 64 messages, k = 16,384, σ = 0.015 (the published system spends 24,600 bytes)."""
    sizes = []
    for seed in range(64):
        u = gaussian_update(norm, seed=seed)
        scale, model_class = codec.choose_model(u, 0.015)
        sizes.append(len(codec.encode_payload(u, 0.015, seed_key(seed, 11), scale=scale, model_class=model_class)[0]))
    assert np.mean(sizes) <= limit


def test_heavier_classes_code_heavy_tails_in_fewer_bytes():
    rng = np.random.default_rng(0)
    u = rng.standard_normal(16_384) * np.where(rng.random(16_384) < 0.02, 1.0, 0.02)
    u *= 0.6 / np.linalg.norm(u)
    scale, model_class = codec.choose_model(u, 0.015)
    assert model_class > 0
    chosen = len(codec.encode_payload(u, 0.015, KEY, scale=scale, model_class=model_class)[0])
    gaussian = len(codec.encode_payload(u, 0.015, KEY, scale=scale, model_class=0)[0])
    assert chosen < gaussian


def test_a_known_profile_of_scales_saves_bytes():
    rng = np.random.default_rng(0)
    profile = np.exp(rng.standard_normal(16_384))
    profile /= np.sqrt(np.mean(profile**2))
    u = rng.standard_normal(16_384) * profile * 0.0025
    scale = codec.scale_index(0.0025 / 0.015)
    with_profile, decoded = codec.encode_payload(u, 0.015, KEY, scale=scale, profile=profile)
    flat, _ = codec.encode_payload(u, 0.015, KEY, scale=scale)
    assert len(with_profile) < 0.9 * len(flat)
    assert np.array_equal(decoded, codec.decode_payload(with_profile, 16_384, 0.015, KEY, scale=scale, profile=profile))


@pytest.mark.parametrize("block_size", [1, 4])
@settings(max_examples=300, deadline=None)
@given(
    payload=st.binary(min_size=1, max_size=200), scale=st.integers(0, codec.MAX_SCALE), model_class=st.integers(0, 4)
)
def test_forged_payloads_end_in_an_error_or_in_k_numbers(block_size, payload, scale, model_class):
    """Behind a valid digest a malicious client could send anything: bounded time, no crash."""
    try:
        decoded = codec.decode_payload(
            payload, 4096, 0.015, KEY, block_size=block_size, scale=scale, model_class=model_class
        )
    except ChannelError:
        return
    assert decoded.shape == (4096,)
    assert np.isfinite(decoded).all()


def test_payload_crafted_to_run_long_is_stopped():
    """All decisions "no": the trial limit ends it, far below what the stream could feed."""
    for scale in (40, 60, 75):
        with pytest.raises(ChannelError, match="more trials than any encoder writes"):
            codec.decode_payload(b"\xff" * 30_000, 65_536, 0.015, KEY, scale=scale)


def test_scale_zero_is_for_the_zero_update():
    with pytest.raises(ValueError, match="scale must be at least 1"):
        codec.encode_payload(np.full(4, 0.05), 0.015, KEY, block_size=1, scale=0)


@pytest.mark.parametrize(
    ("payload", "named"),
    [(b"", "at least one byte"), (b"a\0", "not end in a zero"), (b"\x12" * 3000, "trailing|trials")],
)
def test_impossible_payloads_are_named(payload, named):
    with pytest.raises(ChannelError, match=named):
        codec.decode_payload(payload, 16, 0.015, KEY, scale=60)


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf"), True])
def test_bad_sigma_is_refused_by_name(sigma):
    with pytest.raises(ValueError, match="noise_stddev"):
        encode(np.zeros(4), sigma, KEY)


def test_update_beyond_float64_resolution_is_refused():
    with pytest.raises(ValueError, match="2\\^45"):
        encode(np.array([1e300]), 0.015, KEY)
    assert np.abs(decode(encode(np.array([2.0**44]), 1.0, KEY), KEY) - 2.0**44).max() < 12


def test_bad_block_size_is_refused():
    with pytest.raises(ValueError, match="block_size"):
        encode(np.zeros(4), 1.0, KEY, block_size=2)


def golden_inputs():
    """Updates that between them use every part of the coder: candidates, escapes, bins, wide bins, all classes."""
    rng = np.random.Generator(np.random.PCG64(7))
    flat = rng.standard_normal(64)
    sparse = np.where(np.arange(64) % 16 == 0, 50.0, 0.0)
    return {
        "small": np.linspace(-0.01, 0.01, 24) / 0.015,
        "medium": 0.9 * flat,
        "large": 5.0 * flat,
        "huge": 1e6 * flat,
        "sparse": sparse,
        "heavy": flat**5 / 50,
    }


@pytest.mark.parametrize("name", sorted(golden_inputs()))
@pytest.mark.parametrize("block_size", [4, 1])
def test_golden_bytes(name, block_size):
    """The wire format and the arithmetic behind it. If this fails, old messages can no longer be read."""
    message = encode(golden_inputs()[name], 1.0, bytes(range(32)), block_size=block_size)
    assert hashlib.sha256(message).hexdigest()[:16] == GOLDEN[f"{name}-{block_size}"]


def test_golden_bytes_of_forced_models():
    """Every model class and a scale far from the truth: escapes and their integers."""
    u, found = golden_inputs()["medium"], {}
    for model_class in range(tables.NUM_CLASSES):
        for scale in (20, 70, 120):
            payload, _ = codec.encode_payload(u, 1.0, bytes(32), scale=scale, model_class=model_class)
            found[f"{model_class}-{scale}"] = hashlib.sha256(payload).hexdigest()[:8]
    assert found == FORCED


GOLDEN = {
    "heavy-1": "3cbb0bb91db76a82",
    "heavy-4": "66e1ad27c857929a",
    "huge-1": "13bbf176f1f513f9",
    "huge-4": "25e42521f17fdec7",
    "large-1": "6cfbb811891575fa",
    "large-4": "a506967b8a0eb8d9",
    "medium-1": "4fa1df9c3e0d27b6",
    "medium-4": "660d398ca42bd29f",
    "small-1": "67aa27078545206f",
    "small-4": "2fb8d4c9109270d1",
    "sparse-1": "e750161abc8f698c",
    "sparse-4": "cc28112958b8835e",
}
FORCED = {
    "0-120": "ccaf5a56",
    "0-20": "659b7522",
    "0-70": "da05eb41",
    "1-120": "d346c11f",
    "1-20": "6dd90a46",
    "1-70": "c3737312",
    "2-120": "8045d064",
    "2-20": "cfd4ab65",
    "2-70": "d163bae2",
    "3-120": "a4c5fc1c",
    "3-20": "983b7786",
    "3-70": "6b14b4f8",
    "4-120": "d343b867",
    "4-20": "1aa4beba",
    "4-70": "9bb45997",
}


def test_tables_match_the_kernel_and_the_normal_distribution():
    compiled = kernel()
    assert (tables.Z_MAX, tables.Z_STEPS, tables.TABLE_SIZE) == (compiled.Z_MAX, compiled.Z_STEPS, compiled.TABLE_SIZE)
    z = np.arange(tables.TABLE_SIZE) / tables.Z_STEPS - tables.Z_MAX
    assert np.allclose(tables.tables(0).cdf, ndtr(z), rtol=1e-11, atol=1e-13)
    for model_class in range(tables.NUM_CLASSES):
        table = tables.tables(model_class)
        assert (np.diff(table.cdf) >= 0).all()
        assert np.isfinite(table.hazard).all()
        assert (table.shrink >= 0).all()


def test_kernel_logarithm_is_accurate():
    compiled = kernel()
    x = np.concatenate([10.0 ** np.linspace(-48, 0, 2000), 1.0 - 10.0 ** np.linspace(-15, -1, 200)])
    ours = np.array([compiled._log(value) for value in x])
    assert np.allclose(ours, np.log(x), rtol=4e-15, atol=0)
