"""Per-record parameter gradients (n, d_theta), two ways behind one interface.

`GenericGradients` works for every model on every device (torch.func). `LayerGradients` serves sequential models of
convolutions and linear layers on a CPU: one forward pass, one backward pass to the layers' outputs only, and the outer
products by compiled loops that skip what pooling and ReLU made zero. `per_record_gradients` picks the fast one where it
applies; tests hold one against the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from common.compiled import load_compiled
from common.model import FlatModel

# Records per block: a block's gradients (BLOCK x d_theta floats) should stay in the cache. Part of the arithmetic.
BLOCK = 4
# Records per forward and backward pass of `LayerGradients`, and per clip; a multiple of BLOCK.
CHUNK = 112


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
        parameters = {name: p.detach() for name, p in self._model.trainable.items()}
        for x, y in zip(inputs.split(BLOCK), labels.split(BLOCK), strict=True):
            gradients, losses = self._gradients(parameters, x, y)
            rows = self._rows[: len(x)]
            for name, (offset, shape) in self._model.offsets().items():
                rows[:, offset : offset + shape.numel()] = gradients[name].flatten(1)
            yield losses, rows


_PARAMETRIC = (nn.Conv2d, nn.Linear)
_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid, nn.ELU, nn.Identity, nn.MaxPool2d, nn.AvgPool2d)


def _plain_convolution(layer: nn.Conv2d) -> bool:
    return (
        layer.groups == 1 and layer.stride == (1, 1) and layer.dilation == (1, 1) and layer.padding in ((0, 0), "valid")
    )


def _is_plain(module: nn.Module) -> bool:
    """True for a module whose call is its class's `forward` and nothing else."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return not any(hooks) and "forward" not in vars(module) and not getattr(module, "inplace", False)


def supports_layers(model: FlatModel) -> bool:
    """True where `LayerGradients` is known to compute what `module(x)` computes: a plain sequence of distinct layers of
    known types, convolutions without stride or padding, linear layers on vectors, and no parameter or buffer but theirs.

    Subclasses, replaced forwards, hooks, in-place and repeated layers, frozen and shared parameters may do anything.
    """
    module = model.module
    if type(module) is not nn.Sequential or not _is_plain(module) or _global_hooks():
        return False
    layers = list(module._modules.values())
    if len({id(layer) for layer in layers}) != len(layers) or any(True for _ in module.buffers()):
        return False
    flat = False
    for layer in layers:
        if layer is None or not _is_plain(layer) or layer._modules or getattr(layer, "return_indices", False):
            return False
        if type(layer) is nn.Flatten:
            if (layer.start_dim, layer.end_dim) != (1, -1):
                return False
            flat = True
        elif type(layer) is nn.Conv2d:
            if flat or not _plain_convolution(layer):
                return False
        elif type(layer) is nn.Linear:
            if not flat:
                return False
        elif type(layer) not in _ELEMENTWISE:
            return False
    # Every parameter is the weight or the bias of one layer, and trained.
    written = {
        f"{name}.{part}"
        for name, layer in module.named_children()
        if isinstance(layer, _PARAMETRIC)
        for part in ("weight", "bias")
        if getattr(layer, part) is not None
    }
    named = dict(module.named_parameters(remove_duplicate=False))
    return set(named) == written == set(model.trainable)


def _global_hooks() -> bool:
    """True if somebody observes or changes every module of the process."""
    hooks = nn.modules.module
    return any(
        getattr(hooks, name)
        for name in ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
        if hasattr(hooks, name)
    )


class LayerGradients:
    """Sequential models on a CPU: gradients of layer outputs by autograd, outer products by compiled loops.

    The passes run on larger chunks than the outer products, and in channels-last memory, where pooling vectorises.
    """

    def __init__(self, model: FlatModel) -> None:
        self._module = model.module
        self._offsets = model.offsets()
        self._rows = torch.empty(BLOCK, model.dim)
        self._kernels = load_compiled(Path(__file__).with_name("outer_products.py"))

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """See `PerRecordGradients`."""
        rows = self._rows.numpy()
        for x, y in zip(inputs.split(CHUNK), labels.split(CHUNK), strict=True):
            losses, tape = self._passes(x, y)
            for start in range(0, len(x), BLOCK):
                stop = min(start + BLOCK, len(x))
                for layer in tape:
                    layer.write(self._kernels, slice(start, stop), rows)
                yield losses[start:stop], self._rows[: stop - start]

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
        tape = [
            _Taped(self._offsets, name, layer, incoming, delta)
            for (name, layer, incoming, _), delta in zip(taped, deltas, strict=True)
        ]
        return losses.detach(), tape


class _Taped:
    """One parametric layer of a pass: its input, the gradient of its output, where its parameters live in θ."""

    def __init__(
        self,
        offsets: dict[str, tuple[int, torch.Size]],
        name: str,
        layer: nn.Module,
        x: torch.Tensor,
        delta: torch.Tensor,
    ) -> None:
        self._weight = offsets[f"{name}.weight"][0]
        self._bias = offsets[f"{name}.bias"][0] if f"{name}.bias" in offsets else -1
        self._kernel_size = layer.kernel_size if isinstance(layer, nn.Conv2d) else None
        self._x, self._delta = _channels_last(x), _channels_last(delta)

    def write(self, kernels: ModuleType, records: slice, rows: np.ndarray) -> None:
        """Write this layer's gradients of some records into the first rows."""
        x, delta = self._x[records], self._delta[records]
        if self._kernel_size is None:
            kernels.linear(x, delta, rows, self._weight, self._bias)
        else:
            kernels.convolution(x, delta, *self._kernel_size, rows, self._weight, self._bias)


def _channels_last(values: torch.Tensor) -> np.ndarray:
    """(n, c, h, w) → (n, h, w, c), other shapes unchanged; contiguous."""
    if values.dim() == 4:
        values = values.permute(0, 2, 3, 1)
    array: np.ndarray = values.contiguous().numpy()
    return array


def per_record_gradients(model: FlatModel) -> PerRecordGradients:
    """The fastest implementation that supports `model` where it lives."""
    fast = model.device.type == "cpu" and supports_layers(model)
    return LayerGradients(model) if fast else GenericGradients(model)
