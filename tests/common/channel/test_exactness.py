"""10^6 decoded errors, decoder in another process; and mutants that the suite must catch."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from common.channel.lrsuq import codec, encode
from common.channel.lrsuq.codec import kernel
from common.randomness import KeyStream, derive_key
from tests.common.channel.exactness import SIGMA, K, failures, inputs, key_of

PER_CASE = 9  # messages of 16,384 coordinates: 7 inputs x 9 = 1.03 million

DECODER = """
import sys, numpy as np
from common.channel.lrsuq import decode
data = np.load(sys.argv[1], allow_pickle=False)
out = [decode(bytes(data[f"m{i}"]), bytes(data[f"k{i}"])) for i in range(len(data.files) // 2)]
np.save(sys.argv[2], np.concatenate(out))
"""


@pytest.mark.parametrize("block_size", [4, 1])
@pytest.mark.parametrize("case", sorted(inputs(np.random.default_rng(0), 8)))
def test_decoded_error_is_gaussian_and_independent_of_the_update(case, block_size, tmp_path):
    updates, archive = [], {}
    for index in range(PER_CASE):
        u = inputs(np.random.default_rng(index))[case]
        key = key_of(case, index, seed=block_size)
        updates.append(u)
        archive[f"m{index}"] = np.frombuffer(encode(u, SIGMA, key, block_size=block_size), np.uint8)
        archive[f"k{index}"] = np.frombuffer(key, np.uint8)
    np.savez(tmp_path / "in.npz", **archive)
    subprocess.run([sys.executable, "-c", DECODER, str(tmp_path / "in.npz"), str(tmp_path / "out.npy")], check=True)
    u = np.concatenate(updates)
    errors = (np.load(tmp_path / "out.npy") - u) / SIGMA
    assert errors.size == PER_CASE * K
    assert failures(u, errors) == []


def on_grid(decoded, key):
    """True if every block is (z + w) R/ρ with z in D4 and R, w from the shared 53-bit stream: the output must be
    a grid point that the shared randomness fixes, so that its low bits carry nothing about the update."""
    compiled = kernel()
    unit, position = KeyStream(derive_key(key, "lrsuq")).unit(8 * len(decoded) + 512), 0
    for block in range(0, len(decoded), 4):
        from_ball = SIGMA * compiled._radius4(unit, position) / compiled.RHO
        position += 3
        for trial in range(64):
            w = unit[position + 4 * trial : position + 4 * trial + 4] * [1, 1, 1, 2]
            z = np.round(decoded[block : block + 4] / from_ball - w)
            if z.sum() % 2 == 0 and np.array_equal((z + w) * from_ball, decoded[block : block + 4]):
                position += 4 * (trial + 1)
                break
        else:
            return False
    return True


def errors_of(messages):
    """Updates and standardised errors of the codec as it stands (or as a test has changed it)."""
    updates, errors = [], []
    for index in range(messages):
        u = inputs(np.random.default_rng(index))["gaussian"]
        scale, model_class = codec.choose_model(u, SIGMA)
        _, decoded = codec.encode_payload(u, SIGMA, key_of("mutant", index, 0), scale=scale, model_class=model_class)
        updates.append(u)
        errors.append((decoded - u) / SIGMA)
    return np.concatenate(updates), np.concatenate(errors)


def test_decoded_values_are_grid_points_of_the_shared_randomness_alone():
    key, u = key_of("grid", 0, 0), inputs(np.random.default_rng(1))["gaussian"][:400]
    scale, model_class = codec.choose_model(u, SIGMA)
    _, decoded = codec.encode_payload(u, SIGMA, key, scale=scale, model_class=model_class)
    assert on_grid(decoded, key)
    assert not on_grid(np.nextafter(decoded, 1.0), key)


MUTANTS = {
    "sigma off by 1 %": ("radius = sigma *", "radius = 1.01 * sigma *"),
    "radius with chi^2_4": (" * (1.0 - unit[position + 2])", ""),
    "dither in float32": ("w[0] = unit[position]", "w[0] = np.float64(np.float32(unit[position]))"),
}


@pytest.mark.parametrize("flaw", sorted(MUTANTS))
def test_the_suite_catches_a_flawed_codec(flaw, tmp_path, monkeypatch):
    """The real kernel with one line changed, compiled and run: the suite must not accept it."""
    before, after = MUTANTS[flaw]
    source = Path(codec.__file__).with_name("kernel.py").read_text()
    assert source.count(before) == 1
    path = tmp_path / "mutant_kernel.py"
    path.write_text(source.replace(before, after))
    spec = importlib.util.spec_from_file_location("mutant_kernel", path)
    mutant = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mutant_kernel", mutant)
    spec.loader.exec_module(mutant)
    monkeypatch.setattr(codec, "kernel", lambda: mutant)
    if flaw == "dither in float32":
        u = inputs(np.random.default_rng(1))["gaussian"][:400]
        _, decoded = codec.encode_payload(u, SIGMA, key_of("grid", 0, 0), scale=60)
        assert not on_grid(decoded, key_of("grid", 0, 0))
    else:
        assert failures(*errors_of(60)) != []


def test_the_suite_accepts_the_codec_under_the_same_conditions():
    assert failures(*errors_of(60)) == []
