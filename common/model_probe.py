"""Tries a model on a few records made of nothing, before any real one is touched: what no list of layer types can know.

A model has per-record gradients only if the answer for a record depends on that record and the parameters alone: not on the
other records of the batch, not on a random draw, not on what was seen before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_RECORDS = 3
# Batched and single products round differently; mixing records, drawing and counting change far more than this.
_TOLERANCE = 1e-3


def probe(module: nn.Module, image_shape: tuple[int, ...], device: torch.device) -> None:
    """Run the model on `_RECORDS` records, twice together and once alone.

    Raises:
        ValueError: naming the first module that draws, keeps what it has seen, or mixes records, or why the model
            cannot take such records at all.
    """
    inputs = torch.rand(_RECORDS, *image_shape, generator=torch.Generator().manual_seed(0)).to(device)
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    state = torch.random.get_rng_state()
    try:
        together, again, alone = (_outputs(module, batch) for batch in (inputs, inputs, inputs[:1]))
    except Exception as error:
        raise ValueError(
            f"model must take records of shape {tuple(image_shape)} in batches. It ended in {type(error).__name__}: {error}"
        ) from None
    finally:
        torch.random.set_rng_state(state)
    for name, buffer in module.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise ValueError(_refused(name.rpartition(".")[0], module, f"buffer {name!r} changes with what it sees"))
    for name, output in together.items():
        if not _close(output, again.get(name)):
            raise ValueError(_refused(name, module, "the same records give other values: it draws"))
    for name, output in together.items():
        if not _close(output[:1] if len(output) == _RECORDS else output, alone.get(name)):
            raise ValueError(
                _refused(name, module, "a record alone gives other values than among others: it mixes records")
            )


def _outputs(module: nn.Module, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """What every module returns, by name, in the order of calls; the last call of one that is called often."""
    outputs: dict[str, torch.Tensor] = {}

    def note(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                outputs[name] = output.detach().clone()

        return hook

    handles = [child.register_forward_hook(note(name)) for name, child in module.named_modules()]
    try:
        with torch.no_grad():
            result = module(inputs)
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(result, torch.Tensor) or result.dim() != 2 or len(result) != len(inputs):
        shape = tuple(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
        raise TypeError(f"it must return scores (records, classes), returned {shape}")
    return outputs


def _close(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    if other is None or one.shape != other.shape:
        return False
    return torch.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)


def _refused(name: str, module: nn.Module, why: str) -> str:
    kind = type(module.get_submodule(name)).__name__
    return (
        "model must consist of layers that treat records independently and deterministically. "
        f"Received {kind} at {name or 'the top level'!r}: {why}."
    )
