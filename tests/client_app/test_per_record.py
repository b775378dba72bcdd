import pytest
import torch
import torch.nn.functional as F
from torch import nn

from client_app.per_record import BLOCK, GenericGradients, LayerGradients, per_record_gradients, supports_layers
from common.model import FlatModel, build_reference

GENERATOR = torch.Generator().manual_seed(0)


def collect(gradients, x, y):
    losses, rows = zip(*((loss, block.clone()) for loss, block in gradients(x, y)), strict=True)
    assert all(len(block) <= BLOCK for block in rows)
    return torch.cat(losses), torch.cat(rows)


def one_by_one(model, x, y):
    """Plain autograd on single records: the reference of the references."""
    rows = []
    for i in range(len(x)):
        trainable = list(model.trainable.values())
        for parameter in trainable:
            parameter.requires_grad_(True)
        loss = F.cross_entropy(model.module(x[i : i + 1]), y[i : i + 1])
        grads = torch.autograd.grad(loss, trainable, allow_unused=True)
        model.module.requires_grad_(False)
        grads = [torch.zeros_like(p) if g is None else g for p, g in zip(trainable, grads, strict=True)]
        rows.append(torch.cat([g.flatten() for g in grads]))
    return torch.stack(rows)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_fast_path_equals_the_generic_one_and_plain_autograd(shape):
    model, _ = build_reference("lenet", shape, 10, seed=0)
    x, y = (
        torch.rand(2 * BLOCK + 3, *shape, generator=GENERATOR),
        torch.randint(10, (2 * BLOCK + 3,), generator=GENERATOR),
    )
    assert isinstance(per_record_gradients(model), LayerGradients)
    losses, fast = collect(LayerGradients(model), x, y)
    slow_losses, slow = collect(GenericGradients(model), x, y)
    assert torch.allclose(losses, slow_losses, atol=1e-6)
    assert torch.allclose(fast, slow, atol=1e-6)
    assert torch.allclose(fast[:4], one_by_one(model, x[:4], y[:4]), atol=1e-6)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(36, 5, bias=False), nn.Tanh(), nn.Linear(5, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 3)),
        nn.Sequential(nn.Conv2d(1, 2, (1, 3)), nn.Flatten(), nn.Linear(48, 3)),
    ],
)
def test_fast_path_on_other_sequential_models(module):
    model = FlatModel(module)
    assert supports_layers(model)
    x, y = torch.rand(5, 1, 6, 6, generator=GENERATOR), torch.randint(3, (5,), generator=GENERATOR)
    assert torch.allclose(collect(LayerGradients(model), x, y)[1], one_by_one(model, x, y), atol=1e-6)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Linear(144, 3)

    def forward(self, x):
        return self.last((x + torch.relu(self.norm(self.first(x)))).flatten(1))


def test_any_module_works_by_the_generic_path():
    model = FlatModel(Residual())
    gradients = per_record_gradients(model)
    assert isinstance(gradients, GenericGradients)
    x, y = torch.rand(4, 1, 6, 6, generator=GENERATOR), torch.randint(3, (4,), generator=GENERATOR)
    assert torch.allclose(collect(gradients, x, y)[1], one_by_one(model, x, y), atol=1e-6)


class OwnForward(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


def changed(module, change):
    """A module as a user of PyTorch may leave it."""
    change(module)
    return module


def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 9), nn.ReLU(), nn.Linear(9, 3))


def freeze(module):
    module[1].requires_grad_(False)


def replace_forward(layer):
    original = layer.forward
    layer.forward = lambda x: 2 * original(x)


def tie(module):
    module[3] = nn.Linear(9, 9)
    module.append(nn.Linear(9, 9))
    module[4].weight = module[3].weight


RELU = nn.ReLU()


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(36, 9), RELU, nn.Linear(9, 9), RELU, nn.Linear(9, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(36, 9), nn.ReLU(inplace=True), nn.Linear(9, 3)),
        OwnForward(nn.Flatten(), nn.Linear(36, 3)),
        nn.Sequential(nn.Flatten(1, 2), nn.Flatten(), nn.Linear(36, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(8, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(72, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.LayerNorm(8), nn.Linear(8, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Dropout(p=0), nn.Linear(8, 3)),
        changed(plain(), replace_forward),
        changed(plain(), lambda m: replace_forward(m[1])),
        changed(plain(), lambda m: replace_forward(m[2])),
        changed(plain(), lambda m: m.register_forward_hook(lambda _m, _x, output: 3 * output)),
        changed(plain(), lambda m: m.register_forward_pre_hook(lambda _m, x: (x[0] / 2,))),
        changed(plain(), lambda m: m[3].register_forward_hook(lambda _m, _x, output: output**2)),
        changed(plain(), lambda m: m.register_parameter("unused", nn.Parameter(torch.ones(5)))),
        changed(plain(), lambda m: m[2].register_parameter("unused", nn.Parameter(torch.ones(5)))),
        changed(plain(), lambda m: m[1].register_parameter("unused", nn.Parameter(torch.ones(5)))),
        changed(plain(), lambda m: m.register_buffer("constant", torch.ones(2))),
        changed(plain(), lambda m: nn.utils.parametrizations.weight_norm(m[1])),
        changed(plain(), freeze),
        changed(plain(), lambda m: m[1].weight.requires_grad_(False)),
        changed(plain(), tie),
    ],
)
def test_what_the_fast_path_does_not_know_is_left_to_the_generic_one(module):
    model = FlatModel(module)
    assert not supports_layers(model)
    x, y = torch.rand(5, 1, 6, 6, generator=GENERATOR), torch.randint(3, (5,), generator=GENERATOR)
    assert torch.allclose(collect(per_record_gradients(model), x, y)[1], one_by_one(model, x, y), atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: GPU path not exercised")
def test_cuda_gradients_equal_cpu_gradients():
    model, _ = build_reference("lenet", (3, 32, 32), 10, seed=0)
    cuda, _ = build_reference("lenet", (3, 32, 32), 10, seed=0, device="cuda")
    x, y = torch.rand(8, 3, 32, 32, generator=GENERATOR), torch.randint(10, (8,), generator=GENERATOR)
    assert isinstance(per_record_gradients(cuda), GenericGradients)
    ours = collect(per_record_gradients(cuda), x.cuda(), y.cuda())[1].cpu()
    assert torch.allclose(ours, collect(LayerGradients(model), x, y)[1], atol=1e-4)
