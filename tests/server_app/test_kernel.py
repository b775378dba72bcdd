import numpy as np
import pytest
import torch

from common.rules import make_rules
from common.settings import Settings
from server_app.generator import Generator
from server_app.kernel import KernelOperator, directional_part, energy_split, predicted_change
from server_app.optimizer import ServerOptimizer

CONTEXTS = {0: np.array([0.1, 0.4]), 1: np.array([0.3, 0.2])}


def generator_of(variant, **changes):
    values = dict(
        variant=variant, num_participating=2, num_future=0, num_coefficients=40, hidden_dim=6, output_init="default"
    )
    settings = Settings(**(values | changes))
    generator = Generator(make_rules(settings))
    generator.set_contexts(CONTEXTS)
    return settings, generator


def operator_of(generator, j, i):
    return KernelOperator(generator.variant, generator.input(j), generator.input(i))


@pytest.mark.parametrize("variant", ["ours", "deeplin", "factorized-u0", "radial-u0"])
@pytest.mark.parametrize(("j", "i"), [(0, 0), (1, 0)])
def test_kernel_is_equation_9(variant, j, i):
    """(h_jᵀ h_i) I + W H_j H_iᵀ Wᵀ from explicit Jacobians of the hidden state."""
    _, generator = generator_of(variant)
    module = generator.variant
    output = module.output.weight.detach().double().numpy()
    hidden = {}
    for client in (j, i):
        h = module.hidden(generator.input(client))
        parameters = [p for name, p in module.named_parameters() if not name.startswith("output")]
        rows = [
            torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters, retain_graph=True)]) for value in h
        ]
        hidden[client] = (h.detach().double().numpy(), torch.stack(rows).double().numpy())
    (h_j, jacobian_j), (h_i, jacobian_i) = hidden[j], hidden[i]
    expected = (h_j @ h_i) * np.eye(40) + output @ jacobian_j @ jacobian_i.T @ output.T
    assert np.allclose(operator_of(generator, j, i).dense(), expected, atol=1e-5)


def test_direct_variant_has_the_identity_kernel():
    _, generator = generator_of("direct")
    assert np.allclose(operator_of(generator, 1, 0).dense(), np.eye(40))


@pytest.mark.parametrize("variant", ["ours", "deeplin"])
def test_predicted_change_agrees_to_first_order(variant):
    """The error of eq. 8 for one real step falls with η²: halving η divides it by about four."""
    update = np.random.default_rng(0).standard_normal(40).astype(np.float32)
    errors = []
    for eta in (0.02, 0.01):
        settings, generator = generator_of(variant, learning_rate=eta)
        predicted = predicted_change(operator_of(generator, 1, 0), torch.tensor(update), eta, 1).numpy()
        before = generator.coefficients(1)
        generator.accumulate({0: update}, 1)
        ServerOptimizer(make_rules(settings), generator.variant).step(1)
        actual = generator.coefficients(1) - before
        errors.append(np.linalg.norm(actual - predicted))
        assert errors[-1] < 0.2 * np.linalg.norm(actual)
    assert errors[1] < 0.4 * errors[0]


def test_energy_split_separates_the_two_terms_of_equation_9():
    update = torch.randn(40, generator=torch.Generator().manual_seed(0))
    _, generator = generator_of("ours")
    split = energy_split(generator.variant, generator.input(1), generator.input(0), update)
    h = [generator.hidden(client) for client in (1, 0)]
    assert split.isotropic == pytest.approx(float((h[0] @ h[1]) ** 2 * (update.double() @ update.double())), rel=1e-5)
    dense = operator_of(generator, 1, 0).dense() - (h[0] @ h[1]) * np.eye(40)
    assert split.directional == pytest.approx(float(np.sum((dense @ update.double().numpy()) ** 2)), rel=1e-3)
    assert 0 < split.isotropic_share < 1


@pytest.mark.parametrize("variant", ["ours", "deeplin", "radial-u0", "direct"])
def test_the_two_terms_add_up_to_the_operator(variant):
    update = torch.randn(40, generator=torch.Generator().manual_seed(1))
    _, generator = generator_of(variant)
    operator = operator_of(generator, 1, 0)
    directional = directional_part(generator.variant, generator.input(1), generator.input(0), update)
    assert torch.allclose(operator(update), operator.gain() * update + directional, atol=1e-5)
    assert (variant == "direct") == (float(directional.abs().max()) == 0.0)


@pytest.mark.parametrize("variant", ["direct", "ours"])
def test_energy_split_of_nothing_is_isotropic(variant):
    _, generator = generator_of(variant)
    assert (
        energy_split(generator.variant, generator.input(1), generator.input(0), torch.zeros(40)).isotropic_share == 1.0
    )


def test_dense_kernel_is_for_small_k():
    _, generator = generator_of("ours", num_coefficients=5000)
    with pytest.raises(ValueError, match="4096"):
        operator_of(generator, 0, 0).dense()
