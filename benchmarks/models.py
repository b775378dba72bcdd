"""Models that people have, small enough to time: name → (builder, shape of a record, records, classes)."""

import torch
import torch.nn.functional as F
from torch import nn

from common.model import lenet


class Block(nn.Module):
    """Two convolutions with group norm, and what enters added to what leaves."""

    def __init__(self, width, stride, enter):
        super().__init__()
        self.first = nn.Conv2d(enter, width, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(8, width), nn.GroupNorm(8, width)])
        self.shortcut = nn.Conv2d(enter, width, 1, stride=stride, bias=False)

    def forward(self, x):
        h = self.norms[1](self.second(torch.relu(self.norms[0](self.first(x)))))
        return torch.relu(h + self.shortcut(x))


class Residual(nn.Module):
    """Three residual blocks, as in small ResNets."""

    def __init__(self, classes=10):
        super().__init__()
        self.blocks = nn.Sequential(Block(16, 1, 3), Block(32, 2, 16), Block(64, 2, 32))
        self.last = nn.Linear(64, classes)

    def forward(self, x):
        return self.last(self.blocks(x).mean(dim=(2, 3)))


class Layer(nn.Module):
    """A transformer layer whose attention is made of linear projections."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, tokens, width = x.shape
        h = self.norms[0](x)
        q, k, v = (p(h).view(n, tokens, self.heads, -1).transpose(1, 2) for p in (self.query, self.key, self.value))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, width))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


class Transformer(nn.Module):
    """Tokens of 16 numbers."""

    def __init__(self, layers=2, width=64, heads=4, classes=10):
        super().__init__()
        self.enter = nn.Linear(16, width)
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(layers)])
        self.last = nn.Linear(width, classes)

    def forward(self, x):
        return self.last(self.layers(self.enter(x)).mean(dim=1))


def mlp():
    """100–256–256–2."""
    return nn.Sequential(
        nn.Linear(100, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)
    )  # fmt: skip


MODELS = {
    "MLP 100-256-256-2": (mlp, (100,), 512, 2),
    "residual net, GroupNorm": (Residual, (3, 32, 32), 128, 10),
    "two-layer transformer": (Transformer, (32, 16), 128, 10),
    "head on 1,280 features": (lambda: nn.Linear(1280, 10), (1280,), 512, 10),
    "paper's LeNet, CIFAR-10": (lambda: lenet((3, 32, 32), 10), (3, 32, 32), 333, 10),
}


def large():
    """About 20 million parameters: six layers, width 512."""
    return Transformer(layers=6, width=512, heads=8)
