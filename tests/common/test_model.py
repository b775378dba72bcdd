import pytest
import torch
from torch import nn

from common.model import FlatModel, build_reference, check_per_record
from common.model_probe import probe


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


def test_models_without_trainable_parameters_are_refused():
    for module in (nn.Sequential(nn.ReLU()), nn.Linear(3, 2).requires_grad_(False)):
        with pytest.raises(ValueError, match="parameters"):
            FlatModel(module)


def test_dropout_without_dropping_is_accepted():
    check_per_record(nn.Sequential(nn.Linear(4, 4), nn.Dropout(p=0.0)))


def test_frozen_parameters_stay_frozen_and_are_exported():
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    module[0].requires_grad_(False)
    module.register_buffer("constant", torch.ones(2))
    frozen = module[0].weight.clone()
    model = FlatModel(module)
    assert model.dim == 3
    assert set(model.offsets()) == {"1.weight", "1.bias"}
    exported = model.state_dict(torch.tensor([1.0, 2.0, 3.0]))
    assert torch.equal(exported["0.weight"], frozen)
    assert exported["1.weight"].tolist() == [[1.0, 2.0]]
    again = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    again.register_buffer("constant", torch.zeros(2))
    again.load_state_dict(exported)  # strict: nothing is missing


def test_shared_parameters_are_one_and_are_exported_under_every_name():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight
    model = FlatModel(module)
    assert model.dim == 12
    exported = model.state_dict(torch.arange(12.0))
    assert torch.equal(exported["1.weight"], exported["0.weight"])
    nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, bias=False)).load_state_dict(exported)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += len(x)
        return x


class Drawing(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


class Centring(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (Counting(), "Counting at '1': buffer '1.seen' changes"),
        (Drawing(), "Drawing at '1'.*it draws"),
        (nn.RReLU(), "RReLU at '1'.*it draws"),
        (Centring(), "Centring at '1'.*it mixes records"),
        (nn.Linear(7, 3), "must take records of shape .* It ended in RuntimeError"),
        (nn.Unflatten(1, (2, 2)), "it must return scores"),
    ],
)
def test_what_a_layer_does_is_found_out_by_trying(layer, named):
    """Whatever its type: the model is refused by the name of the module, before a record is touched."""
    module = nn.Sequential(nn.Linear(6, 4), layer)
    expected = torch.random.get_rng_state()
    with pytest.raises(ValueError, match=named):
        probe(module, (6,), torch.device("cpu"))
    assert torch.equal(torch.random.get_rng_state(), expected)


def test_models_that_treat_records_alone_pass_the_trial():
    for module in (
        nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Dropout(p=0)),
        nn.Sequential(
            nn.Unflatten(1, (2, 3)), nn.TransformerEncoderLayer(3, 1, 8, 0.0, batch_first=True), nn.Flatten()
        ),
    ):
        probe(module, (6,), torch.device("cpu"))
