import json

import numpy as np
import pytest
import torch

from client_app.app import app
from common.rules import make_rules
from common.settings import Settings
from server_app import app as server
from server_app.generator import Generator
from server_app.optimizer import ServerOptimizer
from server_app.results import RunFolder
from server_app.variants import VARIANTS
from simulations.grid import InProcessGrid

PUBLIC = ("global", "direct", "deeplin-u0", "factorized-u0", "radial-u0")


def run(settings):
    return server.run(InProcessGrid(app, settings), settings)


def test_registry_and_setting_name_the_same_variants():
    import dataclasses

    spec = next(s for s in dataclasses.fields(Settings) if s.name == "variant")
    assert set(spec.metadata["choices"]) == set(VARIANTS)


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - {"replay-u0"}))
def test_every_variant_runs_under_the_same_accountant_and_schedule(tiny, variant):
    summary = run(tiny(variant=variant))
    assert summary["privacy"]["epsilon"] == pytest.approx(16.0)
    assert summary["uplink"]["messages"] == 8
    assert summary["accuracy"]["seen"] is not None


@pytest.mark.parametrize("variant", ["global", "full"])
def test_full_model_variants_release_full_model_gradients(tiny, variant):
    summary = run(tiny(variant=variant))
    assert summary["uplink"]["payload_bytes"] == 8 * 4 * 85_822


@pytest.mark.parametrize("variant", PUBLIC)
def test_variants_without_context_give_all_clients_one_model(variant):
    generator = Generator(make_rules(Settings(variant=variant, channel="dg", output_init="default")))
    generator.set_contexts({0: np.array([0.1, 0.4]), 1: np.array([0.3, 0.2])})
    assert np.array_equal(generator.coefficients(0), generator.coefficients(1))


def fresh(**changes):
    return Generator(make_rules(Settings(channel="dg", num_coefficients=12, **changes))).variant


def test_the_public_vector_is_what_its_setting_says():
    for dataset, dim in (("mnist", 2), ("cifar10", 6)):
        given = {
            name: fresh(variant="factorized-u0", dataset=dataset, public_vector=name).public
            for name in ("grey", "white", "zeros", "ones", "random")
        }
        assert all(vector.shape == (dim,) for vector in given.values())
        assert torch.equal(given["zeros"], torch.zeros(dim))
        assert torch.equal(given["ones"], torch.ones(dim))
        assert float(given["white"].square().sum()) == pytest.approx(1.0)
        assert float(given["grey"].square().sum()) == pytest.approx((0.25 + 0.0625) / 2)
    again = fresh(variant="radial-u0", dataset="cifar10", public_vector="random").public
    other = fresh(variant="radial-u0", dataset="cifar10", public_vector="random", seed=42).public
    assert torch.equal(again, given["random"])
    assert not torch.equal(other, given["random"])


def test_a_linear_last_layer_gives_hidden_states_of_both_signs():
    context = torch.tensor([0.1, 0.4])
    activated = fresh(activation="relu").hidden(context)
    linear = fresh(activation="relu", hidden_output="linear").hidden(context)
    assert torch.equal(activated, linear.clamp_min(0))  # the same start, but for the last nonlinearity
    assert linear.min() < 0 < linear.max()


def test_deeplin_has_a_bias_where_it_is_wanted():
    context = torch.zeros(2)
    assert not fresh(variant="deeplin").hidden(context).any()
    assert fresh(variant="deeplin", linear_bias=True).hidden(context).any()
    zero_start = fresh(variant="deeplin", linear_bias=True, trunk_init="xavier")
    assert [tuple(p.shape) for p in zero_start.trunk().parameters()] == [(100, 2), (100,)]


@pytest.mark.parametrize("variant", ["ours", "deeplin", "radial-u0"])
def test_the_trunk_by_xavier_and_he_has_their_bounds_and_biases_of_zero(variant):
    bounds = {"xavier": (6 / 102) ** 0.5, "he": 3.0**0.5}
    for init, bound in bounds.items():
        weight, *rest = fresh(variant=variant, trunk_init=init).trunk().parameters()
        assert weight.shape == (100, 2)
        assert 0.9 * bound < float(weight.detach().abs().max()) <= bound
        assert all(not tensor.any() for tensor in rest if tensor.dim() == 1)


def test_radial_keeps_its_direction_over_a_run(tiny, monkeypatch):
    """Only ‖h‖ moves: v stays to 1e-6 over a run of noisy steps with a large η, and the norm does change."""
    states = []
    original = server.PersonalizedStrategy.aggregate_train

    def record(self, *arguments):
        result = original(self, *arguments)
        states.append(self.state.generator.hidden(0))
        return result

    monkeypatch.setattr(server.PersonalizedStrategy, "aggregate_train", record)
    run(tiny(variant="radial-u0", num_rounds=30, learning_rate=2.0))
    norms = [np.linalg.norm(h) for h in states]
    cosines = [h @ states[0] / (n * norms[0]) for h, n in zip(states, norms, strict=True)]
    assert min(cosines) > 1 - 1e-6
    assert max(norms) / min(norms) > 1.01


def test_replay_multiplies_the_recorded_gain(tiny, tmp_path):
    run(tiny(variant="factorized-u0"))
    gains = tmp_path / "gains.jsonl"
    gains.write_bytes(RunFolder(tiny(variant="factorized-u0")).metrics.read_bytes())
    recorded = [json.loads(line)["hidden_norm_squared"] for line in gains.read_text().splitlines()]
    settings = tiny(variant="replay-u0", replay_gains=str(gains))
    generator = Generator(make_rules(settings))
    generator.set_contexts({0: np.zeros(2)})
    generator.accumulate({0: np.ones(512, np.float32)}, 3)
    assert torch.allclose(generator.variant.coefficients.grad, torch.full((512,), recorded[2]))
    run(settings)


@pytest.mark.parametrize("content", ["", '{"round": 1, "hidden_norm_squared": 2.0}\n'])
def test_replay_refuses_missing_gains_before_anything_is_asked(tiny, tmp_path, content):
    path = tmp_path / "gains.jsonl"
    if content:
        path.write_text(content)
    settings = tiny(variant="replay-u0", replay_gains=str(path))
    with pytest.raises(ValueError, match="replay-gains"):
        run(settings)
    assert not RunFolder(settings).journal.exists()


def test_local_moves_a_client_by_its_own_releases_alone_with_the_full_step(tiny):
    """Two rounds of eq. 6 by hand: nothing is averaged, nobody else moves, future clients keep the reference model."""
    settings = Settings(variant="local", channel="dg", num_participating=2, num_future=1, learning_rate=0.5)
    generator = Generator(make_rules(settings))
    generator.set_contexts({client: np.array([0.1, 0.4]) for client in range(3)})
    optimizer = ServerOptimizer(make_rules(settings), generator.variant)
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal(settings.num_coefficients).astype(np.float32) for _ in range(2))
    for round, updates in ((1, {0: first, 1: second}), (2, {0: second})):
        generator.accumulate(updates, round)
        optimizer.step(round)
    assert np.allclose(generator.coefficients(0), -0.5 * (first + second), atol=1e-6)
    assert np.allclose(generator.coefficients(1), -0.5 * second, atol=1e-6)
    assert not generator.coefficients(2).any()
