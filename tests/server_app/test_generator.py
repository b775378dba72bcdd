import numpy as np
import pytest
import torch

from common.rules import make_rules
from common.settings import Settings
from server_app.generator import Generator
from server_app.optimizer import ServerOptimizer, base_learning_rate, learning_rate

CONTEXTS = {0: np.array([0.1, 0.4]), 1: np.array([0.3, 0.2]), 2: np.array([0.9, 0.1])}


def make(**changes):
    settings = Settings(
        **(dict(num_participating=2, num_future=1, num_coefficients=12, hidden_dim=5, output_init="default") | changes)
    )
    generator = Generator(make_rules(settings))
    generator.set_contexts(CONTEXTS)
    return settings, generator


def jacobian_step(generator, updates, eta):
    """Eq. 6 by explicit Jacobians J_i = ∂a_i/∂ω, in double precision."""
    parameters = list(generator.variant.parameters())
    total = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
    for client, update in updates.items():
        context = torch.tensor(CONTEXTS[client], dtype=torch.float32)
        a = generator.variant(context)
        for j in range(len(a)):
            rows = torch.autograd.grad(a[j], parameters, retain_graph=True)
            for t, row in zip(total, rows, strict=True):
                t += float(update[j]) * row.double()
    return [p.double() - eta / len(updates) * t for p, t in zip(parameters, total, strict=True)]


def test_update_is_equation_6():
    settings, generator = make(learning_rate=0.3)
    optimizer = ServerOptimizer(make_rules(settings), generator.variant)
    rng = np.random.default_rng(0)
    updates = {0: rng.standard_normal(12).astype(np.float32), 1: rng.standard_normal(12).astype(np.float32)}
    expected = jacobian_step(generator, updates, 0.3)
    generator.accumulate(updates, 1)
    optimizer.step(1)
    for parameter, value in zip(generator.variant.parameters(), expected, strict=True):
        assert torch.allclose(parameter.double(), value, atol=1e-6)


def test_clients_are_summed_in_partition_order():
    updates = {1: np.ones(12, np.float32), 0: np.full(12, 0.3, np.float32)}
    _, first = make()
    _, second = make()
    first.accumulate(updates, 1)
    second.accumulate(dict(sorted(updates.items())), 1)
    for p, q in zip(first.variant.parameters(), second.variant.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)


def test_zero_output_starts_every_client_at_the_reference_model():
    _, generator = make(output_init="zero")
    assert not generator.coefficients(2).any()
    assert generator.hidden(2) @ generator.hidden(2) > 0


def test_standardisation_looks_at_participating_clients_alone():
    _, generator = make(context_entry="standardized")
    two = np.stack([CONTEXTS[0], CONTEXTS[1]])
    assert np.allclose(generator.entry.shift, two.mean(axis=0))
    assert np.allclose(generator.entry(CONTEXTS[0]), [-1.0, 1.0])


@pytest.mark.parametrize("contexts", [{}, {2: CONTEXTS[2]}])
def test_no_participating_context_is_an_error(contexts):
    with pytest.raises(ValueError, match="participating"):
        make()[1].set_contexts(contexts)


@pytest.mark.parametrize("changes", [{"server_momentum": 0.9}, {"server_optimizer": "adam"}])
def test_optimiser_state_survives_a_round_trip(changes):
    settings, generator = make(**changes)
    optimizer = ServerOptimizer(make_rules(settings), generator.variant)
    update = {0: np.ones(12, np.float32)}
    for round in (1, 2):
        generator.accumulate(update, 1)
        optimizer.step(round)
    _, other = make(**changes)
    other.variant.load_state_dict({k: v.clone() for k, v in generator.variant.state_dict().items()})
    restored = ServerOptimizer(make_rules(settings), other.variant)
    restored.load_tensors({k: v.clone() for k, v in optimizer.tensors().items()})
    for one, opt in ((generator, optimizer), (other, restored)):
        one.accumulate(update, 1)
        opt.step(3)
    for p, q in zip(generator.variant.parameters(), other.variant.parameters(), strict=True):
        assert torch.equal(p, q)


def test_learning_rate_schedules():
    def rates(kind):
        rules = make_rules(Settings(num_rounds=4, learning_rate=1.0, learning_rate_schedule=kind))
        return [learning_rate(rules, t) for t in (1, 2, 3, 4)]

    assert rates("constant") == [1.0] * 4
    assert rates("linear") == [1.0, 0.75, 0.5, 0.25]
    assert rates("cosine")[0] == 1.0
    assert rates("cosine")[2] == pytest.approx(0.5)


def test_learning_rate_follows_the_noise():
    """sigma_g sqrt(k)/C_g = 0.1 * 20/0.5 = 4 and nu_0 = 2: a third."""
    changes = dict(learning_rate=0.9, num_coefficients=400, noise_stddev=0.1, clip_norm=0.5)
    assert base_learning_rate(make_rules(Settings(**changes))) == 0.9
    assert base_learning_rate(make_rules(Settings(**changes, learning_rate_noise=2.0))) == pytest.approx(0.3)
    silent = dict(changes, noise_stddev=0.0, channel="dg")
    assert base_learning_rate(make_rules(Settings(**silent, learning_rate_noise=2.0))) == 0.9


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_trunk_has_its_own_share_of_the_learning_rate(optimizer):
    """One step of 0, half and all of eta: W moves alike, h_psi not at all, by half, and in full."""

    def change(share):
        settings, generator = make(trunk_learning_rate=share, server_optimizer=optimizer)
        before = [p.detach().clone() for p in generator.variant.parameters()]
        generator.accumulate({0: np.ones(12, np.float32)}, 1)
        ServerOptimizer(make_rules(settings), generator.variant).step(1)
        return [p.detach() - q for p, q in zip(generator.variant.parameters(), before, strict=True)]

    none, half, full = change(0.0), change(0.5), change(1.0)
    for a, b, c in zip(none[:-1], half[:-1], full[:-1], strict=True):
        assert not a.any()
        assert c.any()
        assert torch.allclose(b, 0.5 * c, rtol=1e-4, atol=1e-7)
    assert torch.equal(none[-1], full[-1])
    assert torch.equal(half[-1], full[-1])
