import pytest
import torch
from torch import nn

from common.model import FlatModel, build_reference, check_per_record


@pytest.mark.parametrize(("shape", "dim"), [((1, 28, 28), 85_822), ((3, 32, 32), 121_182)])
def test_parameter_counts_are_the_papers(shape, dim):
    model, theta = build_reference("lenet", shape, 10, seed=0)
    assert model.dim == dim == theta.numel()
    assert model(torch.zeros(2, *shape)).shape == (2, 10)


def test_reference_is_public_and_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    _, first = build_reference("lenet", (1, 28, 28), 10, seed=0)
    assert torch.equal(torch.rand(1), expected)
    _, again = build_reference("lenet", (1, 28, 28), 10, seed=0)
    _, other = build_reference("lenet", (1, 28, 28), 10, seed=1)
    _, scaled = build_reference("lenet", (1, 28, 28), 10, seed=0, scale=2.0)
    assert torch.equal(first, again)
    assert torch.equal(scaled, 2 * first)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("init", "variance"), [("xavier", 2 / (512 + 120)), ("he", 2 / 512)])
def test_reference_by_xavier_and_he_has_their_variance_and_biases_of_zero(init, variance):
    model, theta = build_reference("lenet", (1, 28, 28), 10, seed=0, init=init)
    tensors = {name: theta[at : at + shape.numel()] for name, (at, shape) in model.offsets().items()}
    assert tensors["7.weight"].numel() == 512 * 120
    assert float(tensors["7.weight"].var()) == pytest.approx(variance, rel=0.02)
    assert all(not tensor.any() for name, tensor in tensors.items() if name.endswith("bias"))
    _, scaled = build_reference("lenet", (1, 28, 28), 10, seed=0, init=init, scale=2.0)
    assert torch.equal(scaled, 2 * theta)


def test_flat_vector_and_module_share_memory():
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    model = FlatModel(module)
    model.load(torch.arange(model.dim, dtype=torch.float32))
    assert torch.equal(module[0].weight, torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]))
    assert model.offsets()["1.bias"][0] == model.dim - 1


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (nn.BatchNorm1d(4), "BatchNorm1d at '1'"),
        (nn.Dropout(0.5), "Dropout at '1'"),
        (nn.LSTM(4, 4), "LSTM at '1'"),
    ],
)
def test_models_without_per_record_gradients_are_refused_by_module_name(layer, named):
    with pytest.raises(ValueError, match=named):
        check_per_record(nn.Sequential(nn.Linear(4, 4), layer))


def test_models_without_parameters_are_refused():
    with pytest.raises(ValueError, match="parameters"):
        FlatModel(nn.Sequential(nn.ReLU()))
