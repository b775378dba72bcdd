"""Per-record parameter gradients G (n, d_theta), two ways behind one interface.

`GenericGradients` works for every model (torch.func). `LayerGradients` serves sequential models of convolutions and
linear layers: one forward pass, one backward pass to the layers' outputs only, and the outer products written straight
into the flat buffer. `per_record_gradients` picks the fast one where it applies; tests hold one against the other.
"""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from common.model import FlatModel


class PerRecordGradients(Protocol):
    """Fills a buffer with the gradients of single records."""

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Write ∇_θ ℓ(f(θ); z) of every record z to `out` (n, d_theta); return the losses (n,)."""


class GenericGradients:
    """Any supported module, by `torch.func.vmap(grad(...))`."""

    def __init__(self, model: FlatModel) -> None:
        self._model = model

        def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            logits = functional_call(model.module, parameters, (x.unsqueeze(0),))
            return F.cross_entropy(logits, y.unsqueeze(0))

        self._gradients = vmap(grad_and_value(loss), in_dims=(None, 0, 0))

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """See `PerRecordGradients`."""
        parameters = {name: p.detach() for name, p in self._model.module.named_parameters()}
        gradients, losses = self._gradients(parameters, inputs, labels)
        for name, (offset, shape) in self._model.offsets().items():
            out[:, offset : offset + shape.numel()] = gradients[name].flatten(1)
        return losses


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
    """Sequential models: gradients of layer outputs by autograd, outer products by hand."""

    def __init__(self, model: FlatModel) -> None:
        self._module = model.module
        self._offsets = model.offsets()
        self._scratch: dict[str, torch.Tensor] = {}

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """See `PerRecordGradients`."""
        taped: list[tuple[str, nn.Module, torch.Tensor, torch.Tensor]] = []
        hidden = inputs
        with torch.enable_grad():
            for name, layer in self._module.named_children():
                incoming = hidden
                hidden = layer(hidden)
                if isinstance(layer, _PARAMETRIC):
                    # Weights need no gradient, so the first layer's output is where the tape begins.
                    if not hidden.requires_grad:
                        hidden.requires_grad_()
                    taped.append((name, layer, incoming.detach(), hidden))
            losses = F.cross_entropy(hidden, labels, reduction="none")
            deltas = torch.autograd.grad(losses.sum(), [output for *_, output in taped])
        for (name, layer, incoming, _), delta in zip(taped, deltas, strict=True):
            weight = self._view(out, f"{name}.weight")
            if isinstance(layer, nn.Conv2d):
                self._convolution(name, layer, incoming, delta, weight)
                bias_gradient = delta.flatten(2).sum(2)
            else:
                torch.mul(delta.unsqueeze(2), incoming.unsqueeze(1), out=weight)
                bias_gradient = delta
            if layer.bias is not None:
                self._view(out, f"{name}.bias").copy_(bias_gradient)
        return losses.detach()

    def _view(self, out: torch.Tensor, parameter: str) -> torch.Tensor:
        offset, shape = self._offsets[parameter]
        return out[:, offset : offset + shape.numel()].unflatten(1, shape)

    def _convolution(
        self, name: str, layer: nn.Conv2d, incoming: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor
    ) -> None:
        """Weight gradients (n, out, in, kh, kw) from x (n, in, H, W) and δ (n, out, oh, ow): one batched product."""
        n, channels = incoming.shape[:2]
        _, outputs, rows, columns = delta.shape
        kernel_h, kernel_w = layer.kernel_size
        patches = self._buffer(name, (n, channels, kernel_h, kernel_w, rows, columns), incoming)
        windows = incoming.unfold(2, rows, 1).unfold(3, columns, 1)  # (n, in, kh, kw, oh, ow), a view
        patches.copy_(windows)
        product = torch.bmm(
            delta.reshape(n, outputs, rows * columns),
            patches.view(n, channels * kernel_h * kernel_w, rows * columns).transpose(1, 2),
        )
        weight.copy_(product.view(weight.shape))

    def _buffer(self, name: str, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        """Scratch memory that is reused: fresh allocations of this size cost more than the arithmetic."""
        size = 1
        for side in shape:
            size *= side
        buffer = self._scratch.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self._scratch[name] = like.new_empty(size)
        return buffer[:size].view(shape)


def per_record_gradients(model: FlatModel) -> PerRecordGradients:
    """The fastest implementation that supports `model`."""
    return LayerGradients(model) if supports_layers(model.module) else GenericGradients(model)
