"""Per-record parameter gradients G (n, d_theta), two ways behind one interface.

`GenericGradients` works for every model (torch.func). `LayerGradients` serves sequential models of convolutions and
linear layers: one forward pass, one backward pass to the layers' outputs only, and the outer products written straight
into the flat buffer. `per_record_gradients` picks the fast one where it applies; tests hold one against the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from common.model import FlatModel

# Records per block: a block's gradients (BLOCK x d_theta floats) should stay near the cache. Part of the arithmetic.
BLOCK = 16
# Records per forward and backward pass of `LayerGradients`; a multiple of BLOCK.
_CHUNK = 112


class PerRecordGradients(Protocol):
    """Yields the gradients of single records, block by block, in a buffer that is reused."""

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Losses (b,) and ∇_θ ℓ(f(θ); z), (b, d_theta), of at most BLOCK consecutive records at a time.

        Args:
            inputs: (n, ...) float32; labels: (n,) int64.
        """


class GenericGradients:
    """Any supported module, by `torch.func.vmap(grad(...))`."""

    def __init__(self, model: FlatModel) -> None:
        self._model = model
        self._rows = torch.empty(BLOCK, model.dim, device=model.device)

        def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            logits = functional_call(model.module, parameters, (x.unsqueeze(0),))
            return F.cross_entropy(logits, y.unsqueeze(0))

        self._gradients = vmap(grad_and_value(loss), in_dims=(None, 0, 0))

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """See `PerRecordGradients`."""
        parameters = {name: p.detach() for name, p in self._model.module.named_parameters()}
        for x, y in zip(inputs.split(BLOCK), labels.split(BLOCK), strict=True):
            gradients, losses = self._gradients(parameters, x, y)
            rows = self._rows[: len(x)]
            for name, (offset, shape) in self._model.offsets().items():
                rows[:, offset : offset + shape.numel()] = gradients[name].flatten(1)
            yield losses, rows


_Taped = tuple[str, nn.Module, torch.Tensor, torch.Tensor]
_PARAMETRIC = (nn.Conv2d, nn.Linear)
_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid, nn.ELU, nn.Identity, nn.MaxPool2d, nn.AvgPool2d, nn.Flatten)


def _plain_convolution(layer: nn.Conv2d) -> bool:
    return (
        layer.groups == 1 and layer.stride == (1, 1) and layer.dilation == (1, 1) and layer.padding in ((0, 0), "valid")
    )


def supports_layers(module: nn.Module) -> bool:
    """True where `LayerGradients` applies: a flat sequence, plain convolutions, linear layers on vectors."""
    if not isinstance(module, nn.Sequential):
        return False
    flat = False
    for layer in module:
        if isinstance(layer, nn.Flatten):
            flat = layer.start_dim == 1
        elif isinstance(layer, nn.Conv2d):
            if not _plain_convolution(layer):
                return False
        elif isinstance(layer, nn.Linear):
            if not flat:
                return False
        elif not isinstance(layer, _ELEMENTWISE):
            return False
    parameters = [parameter for layer in module for parameter in layer.parameters()]
    return len({id(parameter) for parameter in parameters}) == len(parameters)


class LayerGradients:
    """Sequential models: gradients of layer outputs by autograd, outer products by hand.

    The passes run on larger chunks than the outer products, and in channels-last memory, where pooling vectorises.
    """

    def __init__(self, model: FlatModel) -> None:
        self._module = model.module
        self._offsets = model.offsets()
        self._rows = torch.empty(BLOCK, model.dim, device=model.device)
        self._scratch: dict[str, torch.Tensor] = {}

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """See `PerRecordGradients`."""
        for x, y in zip(inputs.split(_CHUNK), labels.split(_CHUNK), strict=True):
            losses, tape = self._passes(x, y)
            for start in range(0, len(x), BLOCK):
                stop = min(start + BLOCK, len(x))
                rows = self._rows[: stop - start]
                for name, layer, incoming, delta in tape:
                    self._outer_products(name, layer, incoming[start:stop], delta[start:stop], rows)
                yield losses[start:stop], rows

    def _passes(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, list[_Taped]]:
        """Forward, and backward to the outputs of the parametric layers only: inputs and deltas of each."""
        taped: list[tuple[str, nn.Module, torch.Tensor, torch.Tensor]] = []
        hidden = inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs
        with torch.enable_grad():
            for name, layer in self._module.named_children():
                incoming = hidden
                hidden = layer(hidden)
                if isinstance(layer, nn.Conv2d):  # one input channel fits both layouts, and the wrong one comes out
                    hidden = hidden.contiguous(memory_format=torch.channels_last)
                if isinstance(layer, _PARAMETRIC):
                    # Weights need no gradient, so the first layer's output is where the tape begins.
                    if not hidden.requires_grad:
                        hidden.requires_grad_()
                    taped.append((name, layer, incoming.detach(), hidden))
            losses = F.cross_entropy(hidden, labels, reduction="none")
            deltas = torch.autograd.grad(losses.sum(), [output for *_, output in taped])
        return losses.detach(), [
            (name, layer, incoming.contiguous(), delta)
            for (name, layer, incoming, _), delta in zip(taped, deltas, strict=True)
        ]

    def _outer_products(
        self, name: str, layer: nn.Module, incoming: torch.Tensor, delta: torch.Tensor, rows: torch.Tensor
    ) -> None:
        """Write one layer's gradients into `rows`."""
        weight = self._view(rows, f"{name}.weight")
        if isinstance(layer, nn.Conv2d):
            self._convolution(name, layer, incoming, delta, weight)
            bias_gradient = delta.sum((2, 3))
        else:
            torch.mul(delta.unsqueeze(2), incoming.unsqueeze(1), out=weight)
            bias_gradient = delta
        if layer.bias is not None:
            self._view(rows, f"{name}.bias").copy_(bias_gradient)

    def _view(self, rows: torch.Tensor, parameter: str) -> torch.Tensor:
        offset, shape = self._offsets[parameter]
        return rows[:, offset : offset + shape.numel()].unflatten(1, shape)

    def _convolution(
        self, name: str, layer: nn.Conv2d, incoming: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor
    ) -> None:
        """Weight gradients (n, out, in, kh, kw) from x (n, in, H, W) and δ (n, out, oh, ow): one batched product."""
        n, channels = incoming.shape[:2]
        _, outputs, height, width = delta.shape
        patches = self._buffer(name, (n, channels, *layer.kernel_size, height, width), incoming)
        patches.copy_(incoming.unfold(2, height, 1).unfold(3, width, 1))
        product = torch.bmm(
            patches.view(n, -1, height * width),
            delta.permute(0, 2, 3, 1).reshape(n, height * width, outputs),
        )
        weight.copy_(product.transpose(1, 2).view(weight.shape))

    def _buffer(self, name: str, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        """Scratch memory that is reused: fresh allocations of this size cost more than the arithmetic."""
        size = math.prod(shape)
        buffer = self._scratch.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self._scratch[name] = like.new_empty(size)
        return buffer[:size].view(shape)


def per_record_gradients(model: FlatModel) -> PerRecordGradients:
    """The fastest implementation that supports `model`."""
    return LayerGradients(model) if supports_layers(model.module) else GenericGradients(model)
