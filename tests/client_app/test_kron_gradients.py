"""The Kronecker basis: gradients by hooks against autograd on the parameters, on models of every make."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from client_app import kron_gradients
from client_app.kron_gradients import KronGradients
from common.basis.kron import KronBasis, kron_blocks
from common.model import FlatModel

CLASSES = 3


class Residual(nn.Module):
    """Branches, a group norm, a strided shortcut."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 8, 3, stride=2, padding=1, bias=False)
        self.norm, self.second = nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3, padding="same")
        self.shortcut, self.last = nn.Conv2d(2, 8, 1, stride=2), nn.Linear(8, CLASSES)

    def forward(self, x):
        h = self.second(torch.relu(self.norm(self.first(x))))
        return self.last(torch.relu(h + self.shortcut(x)).mean(dim=(2, 3)))


class Attention(nn.Module):
    """One block of self-attention by linear projections, with layer norms over two dimensions and one."""

    def __init__(self, width=8):
        super().__init__()
        self.enter, self.norm = nn.Linear(8, width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.both, self.last = nn.LayerNorm((16, width)), nn.Linear(width, CLASSES)

    def forward(self, x):
        h = self.enter(x.flatten(2).transpose(1, 2).reshape(len(x), 16, 8))
        n = self.norm(h)
        h = h + F.scaled_dot_product_attention(self.query(n), self.key(n), self.value(n))
        return self.last(self.both(h).mean(dim=1))


class Recurrent(nn.Module):
    """A cell unrolled by hand: its layers are called again and again."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer, self.last = nn.Linear(6, 6), nn.Linear(8, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        h = torch.zeros(len(x), 6)
        for step in x.flatten(2).reshape(len(x), 16, 8).unbind(1):
            h = torch.tanh(self.inner(h) + self.outer(step))
        return self.last(h)


class Tied(nn.Module):
    """A layer on vectors and on sequences, twice."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        h = self.layer(x.flatten(2).reshape(len(x), 16, 8))
        return self.last(self.layer(h.mean(dim=1)))


class Tokens(nn.Module):
    """Pixels as words."""

    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(11, 5), nn.Linear(5, CLASSES)

    def forward(self, x):
        return self.last(torch.tanh(self.words((x.flatten(1) * 10).long())).mean(dim=1))


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 16), nn.Tanh(), nn.Linear(16, CLASSES)),
    "in place": lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 16), nn.ReLU(inplace=True), nn.Linear(16, CLASSES)),
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(2, 6, 3, dilation=2), nn.ReLU(inplace=True), nn.Conv2d(6, 6, 3, groups=3, padding=1), nn.Dropout(p=0),
        nn.Conv2d(6, 4, (1, 2), stride=(2, 1), bias=False), nn.Flatten(), nn.Linear(24, CLASSES),
    ),
    "1d": lambda: nn.Sequential(
        nn.Flatten(2), nn.Conv1d(2, 8, 5, stride=2, groups=2), nn.GELU(), nn.Conv1d(8, 4, 3, padding=1), nn.Flatten(),
        nn.Linear(120, CLASSES),
    ),
    "residual": Residual,
    "attention": Attention,
    "recurrent": Recurrent,
    "tied": Tied,
    "tokens": Tokens,
}  # fmt: skip


def made(name, rank=4, vectors="identity", seed=0, frozen=()):
    torch.manual_seed(seed)
    module = MODELS[name]()
    for part in frozen:
        module.get_parameter(part).requires_grad_(False)
    blocks = kron_blocks(module, rank, "", vectors, 10**6)
    model = FlatModel(module)
    return model, KronBasis(model.dim, blocks, seed=seed)


def records(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 2, 8, 8, generator=generator), torch.randint(CLASSES, (count,), generator=generator)


def projected_autograd(model, basis, x, y):
    """A plain loop: the gradient of each record by autograd, in double precision, projected on P."""
    twin = copy.deepcopy(model.module).double()
    wanted = [twin.get_parameter(name) for name in model.trainable]
    for parameter in wanted:
        parameter.requires_grad_(True)
    rows = []
    for i in range(len(x)):
        inputs = x[i : i + 1].double()
        hidden = twin(inputs) if not isinstance(twin, Recurrent) else recurrent_in_double(twin, inputs)
        gradients = torch.autograd.grad(F.cross_entropy(hidden, y[i : i + 1]), wanted, allow_unused=True)
        parts = [torch.zeros_like(p) if g is None else g for p, g in zip(wanted, gradients, strict=True)]
        rows.append(torch.cat([part.flatten() for part in parts]))
    return basis.project(torch.stack(rows))


def recurrent_in_double(twin, x):
    h = torch.zeros(len(x), 6, dtype=torch.float64)
    for step in x.flatten(2).reshape(len(x), 16, 8).unbind(1):
        h = torch.tanh(twin.inner(h) + twin.outer(step))
    return twin.last(h)


@pytest.mark.parametrize("vectors", ["identity", "frozen"])
@pytest.mark.parametrize("rank", [1, 4, 100])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_rows_are_projected_gradients(name, rank, vectors):
    """Without a clip that matters, to 1e-5 of the longest row."""
    model, basis = made(name, rank, vectors)
    x, y = records(5)
    theta = model.flat.clone()
    found = KronGradients(model, basis, (2, 8, 8)).clipped_rows(theta, x, y, clip_norm=1e6)
    expected = projected_autograd(model, basis, x, y)
    assert float((found - expected).norm(dim=1).max()) < 1e-5 * float(expected.norm(dim=1).max())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_clip_is_joint_over_all_blocks_and_the_sum_is_of_clipped_rows(name):
    """Half of the records are clipped; m_g is fixed."""
    model, basis = made(name)
    x, y = records(9)
    rows = projected_autograd(model, basis, x, y)
    norms = rows.norm(dim=1, keepdim=True)
    clip = float(norms.median())
    gradients = KronGradients(model, basis)
    result = gradients(model.flat.clone(), x, y, clip_norm=clip, denominator=20)
    expected = (rows * torch.clamp(clip / norms, max=1.0)).sum(dim=0) / 20
    assert torch.allclose(result.gradient, expected, atol=1e-5 * clip, rtol=0)
    assert result.clipped_fraction == pytest.approx(4 / 9, abs=1.01 / 9)
    clipped = gradients.clipped_rows(model.flat.clone(), x, y, clip_norm=clip)
    assert torch.allclose(clipped.double().sum(dim=0) / 20, expected, atol=1e-5 * clip, rtol=0)


def test_many_records_and_calls_in_a_row_do_not_mix(monkeypatch):
    """More than a chunk; then fewer records: nothing of the first call is left, and no hook."""
    monkeypatch.setattr(kron_gradients, "CHUNK", 16)
    model, basis = made("residual")
    x, y = records(39)
    gradients, theta = KronGradients(model, basis), model.flat.clone()
    first = gradients(theta, x, y, clip_norm=0.1, denominator=200).gradient
    alone = gradients(theta, x[:3], y[:3], clip_norm=0.1, denominator=200).gradient
    rest = gradients(theta, x[3:], y[3:], clip_norm=0.1, denominator=200).gradient
    assert torch.allclose(alone + rest, first, atol=1e-8)
    assert torch.equal(gradients(theta, x, y, clip_norm=0.1, denominator=200).gradient, first)
    assert not any(module._forward_hooks for module in model.module.modules())
    assert not any(parameter.requires_grad for parameter in model.module.parameters())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["mlp", "residual", "attention"])
def test_bad_records_contribute_zero_and_are_counted(name, value):
    model, basis = made(name)
    x, y = records(6)
    x[[1, 4]] = value
    kept = [0, 2, 3, 5]
    gradients, theta = KronGradients(model, basis), model.flat.clone()
    result = gradients(theta, x, y, clip_norm=0.1, denominator=6)
    clean = gradients(theta, x[kept], y[kept], clip_norm=0.1, denominator=6)
    assert result.nonfinite_records == 2
    assert torch.allclose(result.gradient, clean.gradient, atol=1e-9)
    assert result.loss == pytest.approx(clean.loss, rel=1e-5)


def test_replacing_one_record_moves_the_sum_by_at_most_the_sensitivity():
    model, basis = made("convolutions")
    x, y = records(12)
    gradients, theta = KronGradients(model, basis), model.flat.clone()
    before = gradients(theta, x, y, clip_norm=1e-3, denominator=12).gradient
    for scale in (0.0, -3.0, 1e3):
        changed = x.clone()
        changed[5] *= scale
        after = gradients(theta, changed, (y + (torch.arange(12) == 5)) % CLASSES, clip_norm=1e-3, denominator=12)
        assert 0 < float((before - after.gradient).norm()) <= 2e-3 / 12


def test_frozen_parameters_have_no_block():
    model, basis = made("mlp", frozen=("1.weight", "1.bias"))
    assert [block.name for block in basis.blocks] == ["3.weight", "3.bias"]
    x, y = records(4)
    found = KronGradients(model, basis, (2, 8, 8)).clipped_rows(model.flat.clone(), x, y, clip_norm=1e6)
    assert torch.allclose(found.double(), projected_autograd(model, basis, x, y), atol=1e-5)


class UsedAside(nn.Module):
    """A weight that is used without a call of its layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(128, CLASSES)

    def forward(self, x):
        return self.layer(x.flatten(1)) + F.linear(x.flatten(1), self.layer.weight)


def doubled(module):
    original = module.forward
    module.forward = lambda x: 2 * original(x)
    return module


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (UsedAside(), "'layer.weight' is used otherwise"),
        (nn.Sequential(nn.Flatten(), doubled(nn.Linear(128, CLASSES))), "'1.weight' is used otherwise"),
    ],
)
def test_what_the_calls_of_layers_do_not_show_is_refused_by_name(module, named):
    blocks = kron_blocks(module, 4, "", "identity", 10**6)
    model = FlatModel(module)
    with pytest.raises(ValueError, match=named):
        KronGradients(model, KronBasis(model.dim, blocks, seed=0), (2, 8, 8))


def test_hooks_of_others_are_right_by_construction():
    module = nn.Sequential(nn.Flatten(), nn.Linear(128, 8), nn.Linear(8, CLASSES))
    module[1].register_forward_hook(lambda _m, _x, output: 3 * output)
    module[2].register_forward_pre_hook(lambda _m, inputs: (inputs[0] / 2,))
    blocks = kron_blocks(module, 4, "", "identity", 10**6)
    model = FlatModel(module)
    basis = KronBasis(model.dim, blocks, seed=0)
    x, y = records(3)
    found = KronGradients(model, basis, (2, 8, 8)).clipped_rows(model.flat.clone(), x, y, clip_norm=1e6)
    assert torch.allclose(found.double(), projected_autograd(model, basis, x, y), atol=1e-5)


@pytest.mark.parametrize(("clip", "denominator"), [(0.0, 4), (float("nan"), 4), (1.0, 3), (1.0, 0)])
def test_bad_arguments_are_refused(clip, denominator):
    model, basis = made("mlp")
    x, y = records(4)
    with pytest.raises(ValueError, match="clip_norm|denominator"):
        KronGradients(model, basis)(model.flat.clone(), x, y, clip_norm=clip, denominator=denominator)
