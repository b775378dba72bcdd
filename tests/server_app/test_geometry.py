import itertools

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from client_app.app import app
from common.rules import make_rules
from common.settings import Settings
from server_app import app as server
from server_app import geometry
from server_app.generator import Generator
from server_app.results import RunFolder
from simulations.grid import InProcessGrid

TRACES = {"hidden_rotation", "hidden_alignment", "isotropic_share", "isotropic_share_others"}


def generator_of(variant="ours"):
    settings = Settings(
        variant=variant, num_participating=2, num_future=1, num_coefficients=40, hidden_dim=6, output_init="default"
    )
    generator = Generator(make_rules(settings))
    generator.set_contexts({0: np.array([0.1, 0.4]), 1: np.array([0.3, 0.2]), 2: np.array([0.9, 0.8])})
    return generator


def test_traces_are_the_cosines_and_shares_that_they_name():
    generator = generator_of()
    update = {1: np.random.default_rng(0).standard_normal(40).astype(np.float32)}
    assert geometry.trace(generator, update)["hidden_rotation"] == pytest.approx(1.0)
    before = [generator.hidden(client) for client in range(3)]
    with torch.no_grad():
        for parameter in generator.variant.network.parameters():
            parameter.mul_(1.5).add_(0.1)
    after = [generator.hidden(client) for client in range(3)]

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    row = geometry.trace(generator, update)
    assert set(row) == TRACES
    assert row["hidden_rotation"] == pytest.approx(np.mean([cosine(a, b) for a, b in zip(after, before, strict=True)]))
    pairs = itertools.combinations(after, 2)
    assert row["hidden_alignment"] == pytest.approx(np.mean([cosine(a, b) for a, b in pairs]))
    assert 0 < row["isotropic_share"] <= 1
    gains = geometry.gains(generator)
    assert [len(line) for line in gains] == [1, 2, 3]
    assert gains[2][0] == pytest.approx(after[2] @ after[0], rel=0.01)


def test_variants_without_a_hidden_state_have_no_traces():
    generator = generator_of("direct")
    assert geometry.trace(generator, {0: np.ones(40, dtype=np.float32)}) == {}
    assert geometry.gains(generator) is None


def test_one_hidden_state_for_all_has_no_map():
    assert geometry.gains(generator_of("factorized-u0")) is None


def test_traces_come_at_their_cadence_and_change_no_bit(tiny):
    states = {}
    for every in (0, 2):
        settings = tiny(geometry_every=every, num_rounds=4, run_name=f"every-{every}")
        server.run(InProcessGrid(app, settings), settings)
        states[every] = load_file(RunFolder(settings).path / "generator.safetensors")
        rows = RunFolder(settings).read_metrics()
        assert [row["round"] for row in rows if set(row) >= TRACES] == ([2, 4] if every else [])
    assert geometry.due(Settings(geometry_every=0), 10) is False
    assert all(torch.equal(states[0][name], states[2][name]) for name in states[0])


def test_a_resumed_run_measures_rotation_from_the_first_state(tiny, killed_in_round):
    """h_i(0) is the public initial state, not the state at the checkpoint."""
    options = dict(geometry_every=1, num_rounds=4, checkpoint_every=2, learning_rate=5.0)
    whole = tiny(run_name="whole", **options)
    server.run(InProcessGrid(app, whole), whole)
    expected = [row["hidden_rotation"] for row in RunFolder(whole).read_metrics()]
    assert expected[-1] < 0.9999
    broken = tiny(run_name="broken", **options)
    with killed_in_round(4):
        server.run(InProcessGrid(app, broken), broken)
    again = tiny(run_name="broken", resume=True, **options)
    server.run(InProcessGrid(app, again), again)
    assert [row["hidden_rotation"] for row in RunFolder(again).read_metrics()] == expected
