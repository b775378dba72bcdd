"""The clipped coefficient gradient in the Kronecker basis: nothing of the size of the model for any record.

The module's own forward runs, whatever it is made of. Hooks on the layers that own a block note what goes in, and autograd
supplies the gradient at what comes out. A layer that is called twice adds both before the norm. That the sum of the notes is the
gradient of the model is tried at construction, on records made of nothing, against autograd on the parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from client_app.gradients import BatchGradient, Tally, margin
from client_app.kron_layers import Part, add, vector_input, vector_part, weight_input, weight_part
from common.basis.kron import KronBasis
from common.model import FlatModel
from common.validation import integer, number

# Records per forward and backward pass. Part of the arithmetic.
CHUNK = 512
_TOLERANCE = 1e-3


class KronGradients:
    """Computes (1/m_g) Σ clip(g_z) for one model; called like `client_app.gradients.CoefficientGradients`.

    Raises:
        ValueError: a parameter is used in a way that its layer's calls don't show, by name.
    """

    def __init__(self, model: FlatModel, basis: KronBasis, image_shape: tuple[int, ...] | None = None) -> None:
        if basis.dim != model.dim:
            raise ValueError(f"basis must have d_theta = {model.dim} rows. Received {basis.dim}.")
        self._model, self._basis = model, basis
        owners = {id(p): owner for owner in model.module.modules() for p in owner.parameters(recurse=False)}
        # Layer → its blocks: (index, name of the parameter in the layer).
        self._blocks: dict[nn.Module, list[tuple[int, str]]] = {}
        for index, block in enumerate(basis.blocks):
            owner = owners[id(model.trainable[block.name])]
            self._blocks.setdefault(owner, []).append((index, block.name.rpartition(".")[2]))
        if image_shape is not None:
            self._try(image_shape)

    def __call__(
        self,
        theta: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        *,
        clip_norm: float,
        denominator: int,
    ) -> BatchGradient:
        """Eq. 4-5 without the noise; see `CoefficientGradients`."""
        integer("denominator", denominator, at_least=max(1, len(inputs)))
        bound = self._bound(clip_norm, denominator)
        self._model.load(theta)
        tally = Tally(self._basis.num_coefficients, self._model.device)
        for losses, parts in self._chunks(inputs, labels):
            norms, usable, weights = _clip(parts, bound)
            for index, part in parts.items():
                start, block = self._basis.starts[index], self._basis.blocks[index]
                tally.total[start : start + block.p * block.q] += part.weighted_sum(weights)
            tally.note(losses, norms, usable, bound)
        return tally.result(len(inputs), denominator)

    def clipped_rows(
        self, theta: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, *, clip_norm: float
    ) -> torch.Tensor:
        """clip_{C_g}(g_z) of every record, (n, k) float32: the summands of eq. 5. For audits; never released."""
        bound = self._bound(clip_norm, len(inputs))
        self._model.load(theta)
        result = []
        for _, parts in self._chunks(inputs, labels):
            _, usable, weights = _clip(parts, bound)
            rows = torch.where(usable[:, None], self._rows(parts, len(usable)), 0.0)
            result.append((rows * weights[:, None]).float())
        return torch.cat(result)

    def _bound(self, clip_norm: float, denominator: int) -> float:
        return number("clip_norm", clip_norm, above=0.0) * (1.0 - margin(self._basis.num_coefficients, denominator))

    def _rows(self, parts: dict[int, Part], count: int) -> torch.Tensor:
        """(n, k) float64: blocks side by side; a block that no call touched is zero."""
        rows = torch.zeros(count, self._basis.num_coefficients, dtype=torch.float64, device=self._model.device)
        for index, part in parts.items():
            start, block = self._basis.starts[index], self._basis.blocks[index]
            rows[:, start : start + block.p * block.q] = part.rows()
        return rows

    def _chunks(self, inputs: torch.Tensor, labels: torch.Tensor) -> Iterator[tuple[torch.Tensor, dict[int, Part]]]:
        """Losses (c,), and what every block gets from every record, of up to `CHUNK` records."""
        for x, y in zip(inputs.split(CHUNK), labels.split(CHUNK), strict=True):
            parts: dict[int, list[Part]] = {}
            handles = [
                # First of the layer's hooks: the others may change what comes out.
                layer.register_forward_hook(functools.partial(self._note, parts, blocks), prepend=True)
                for layer, blocks in self._blocks.items()
            ]
            try:
                with torch.enable_grad():
                    losses = F.cross_entropy(self._model.module(_fast(x)), y, reduction="none")
                losses.sum().backward()
            finally:
                for handle in handles:
                    handle.remove()
            yield losses.detach(), {index: add(parts[index]) for index in sorted(parts)}

    def _note(
        self,
        parts: dict[int, list[Part]],
        blocks: list[tuple[int, str]],
        layer: nn.Module,
        inputs: tuple[Any, ...],
        output: torch.Tensor,
    ) -> torch.Tensor:
        """Called after a layer: when the gradient at its output is known, the call's part of every block."""
        x, taken = inputs[0].detach(), []
        with torch.no_grad():
            for index, name in blocks:
                factors = self._basis.factors[index]
                side = vector_input(layer, name, x) if factors is None else weight_input(layer, x, *factors)
                taken.append((index, factors, side))
        if not output.requires_grad:
            # Parameters need no gradient, so the tape begins here; not as a leaf, which may not be changed in place.
            output = output + torch.zeros((), device=output.device, requires_grad=True)

        def gradient(delta: torch.Tensor) -> None:
            with torch.no_grad():
                for index, factors, side in taken:
                    if factors is None:
                        part: Part = vector_part(layer, side, delta)
                    else:
                        assert side is not None
                        part = weight_part(layer, side, delta, *factors)
                    parts.setdefault(index, []).append(part)

        output.register_hook(gradient)
        return output

    def _try(self, image_shape: tuple[int, ...]) -> None:
        """Two records made of nothing: the notes must add up to what autograd says of the parameters."""
        generator = torch.Generator().manual_seed(0)
        inputs = torch.rand(2, *image_shape, generator=generator).to(self._model.device)
        labels = torch.tensor([0, 1], device=self._model.device)
        ((_, parts),) = self._chunks(inputs, labels)
        found = self._rows(parts, 2).sum(dim=0)
        parameters = list(self._model.trainable.values())
        for parameter in parameters:
            parameter.requires_grad_(True)
        loss = F.cross_entropy(self._model.module(inputs), labels, reduction="sum")
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        self._model.module.requires_grad_(False)
        flat = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]
        expected = self._basis.project(torch.cat([g.flatten() for g in flat])[None])[0]
        for block, start in zip(self._basis.blocks, self._basis.starts, strict=True):
            part = slice(start, start + block.p * block.q)
            error = float((found[part] - expected[part]).norm())
            if not error <= _TOLERANCE * (1e-3 + float(expected.norm())):
                raise ValueError(
                    f"basis must be another one than 'kron' for this model: {block.name!r} is used otherwise than by calling its "
                    f"layer (its coefficient gradient is off by {error:.2g} of {float(expected.norm()):.2g}). 'layers' works."
                )


def _clip(parts: dict[int, Part], bound: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Joint norms over all blocks, which records are usable, and every record's weight, float64; 0 for the others."""
    norms = torch.stack([part.norms_squared() for part in parts.values()]).sum(dim=0).sqrt()
    usable = torch.isfinite(norms)
    weights = torch.clamp(bound / norms.clamp_min(torch.finfo(norms.dtype).tiny), max=1.0)
    return norms, usable, torch.where(usable, weights, 0.0)


def _fast(inputs: torch.Tensor) -> torch.Tensor:
    """Images in channels-last memory, where convolutions and pooling are faster on CPUs."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs
