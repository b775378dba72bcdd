"""What one call of a layer adds to the coefficient gradients of its records (docs/method.md, K2 to K4).

With x the layer's input and δ the gradient at its output, a weight adds Σ_τ (Uᵀδ_τ)(Vᵀx_τ)ᵀ over positions τ. Where there is
one position, the two vectors are kept instead of their product: the norm is the product of their norms.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


class Outer:
    """left ⊗ right of every record, kept as the two: left (n, p), right (n, q); float64 from here on."""

    def __init__(self, left: torch.Tensor, right: torch.Tensor) -> None:
        self._left, self._right = left.double(), right.double()

    def norms_squared(self) -> torch.Tensor:
        """(n,) float64."""
        return _squares(self._left) * _squares(self._right)

    def rows(self) -> torch.Tensor:
        """(n, p q)."""
        return (self._left[:, :, None] * self._right[:, None, :]).flatten(1)

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """Σ weights · rows, (p q,) float64; a record of weight 0 counts nothing, whatever is in it."""
        left, right = _used(self._left, weights), _used(self._right, weights)
        return ((left * weights[:, None]).t() @ right).flatten()


class Rows:
    """A row for every record, (n, m); float64 from here on."""

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values.double()

    def norms_squared(self) -> torch.Tensor:
        """See `Outer`."""
        return _squares(self._values)

    def rows(self) -> torch.Tensor:
        """See `Outer`."""
        return self._values

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """See `Outer`."""
        return torch.mv(_used(self._values, weights).t(), weights)


Part = Outer | Rows


def _used(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """`values`, zero for records of weight 0: zero times infinity would not be."""
    used = weights > 0
    return values if used.all() else torch.where(used[:, None], values, 0.0)


def _squares(values: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(values, dim=1).square()


def add(parts: list[Part]) -> Part:
    """What several calls add up to, before any norm is taken."""
    if len(parts) == 1:
        return parts[0]
    return Rows(torch.stack([part.rows() for part in parts]).sum(dim=0))


def weight_input(layer: nn.Module, x: torch.Tensor, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The input's side of a weight seen as (out × in), with U (out, p) and V (in, q): Vᵀx, at every position.

    Taken when the layer is called: what is done to x in place later does not matter, and x need not be kept.
    """
    if isinstance(layer, nn.Linear):
        return x @ v
    if isinstance(layer, nn.Embedding):
        return u[x]
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    filters = v.t().reshape(v.shape[1], x.shape[1] // layer.groups, *layer.kernel_size)
    filters = filters.repeat(layer.groups, *[1] * (x.dim() - 1))
    apply: Callable[..., torch.Tensor] = F.conv1d if isinstance(layer, nn.Conv1d) else F.conv2d
    return apply(x, filters, None, layer.stride, layer.padding, layer.dilation, layer.groups)


def weight_part(layer: nn.Module, right: torch.Tensor, delta: torch.Tensor, u: torch.Tensor, v: torch.Tensor) -> Part:
    """The call's part of the weight's block.

    Args:
        right: from `weight_input`; delta: gradient at the output of the call, (n, ...).
    """
    if isinstance(layer, nn.Linear):
        left = delta @ u
        if left.dim() == 2:
            return Outer(left, right)
        return _product(left.flatten(1, -2), right.flatten(1, -2))
    if isinstance(layer, nn.Embedding):
        return _product(right.flatten(1, -2), (delta @ v).flatten(1, -2))
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    return _convolution(layer.groups, right, delta, u)


def _product(left: torch.Tensor, right: torch.Tensor) -> Rows:
    """left (n, τ, p), right (n, τ, q) → (n, p q)."""
    return Rows(torch.bmm(left.transpose(1, 2), right).flatten(1))


def _convolution(groups: int, right: torch.Tensor, delta: torch.Tensor, u: torch.Tensor) -> Rows:
    """Uᵀδ at every position against Vᵀx there; groups add up."""
    right = right.reshape(len(right), groups, right.shape[1] // groups, -1)
    left = delta.reshape(len(delta), groups, delta.shape[1] // groups, -1)
    total = None
    for group, rows in enumerate(u.split(u.shape[0] // groups)):
        projected = torch.matmul(rows.t(), left[:, group])  # (n, p, τ)
        part = torch.bmm(projected, right[:, group].transpose(1, 2))
        total = part if total is None else total + part
    assert total is not None
    return Rows(total.flatten(1))


def vector_input(layer: nn.Module, part: str, x: torch.Tensor) -> torch.Tensor | None:
    """The input's side of a vector: the normalised input for a normalisation's scale, nothing for a bias."""
    if part == "bias":
        return None
    if isinstance(layer, nn.LayerNorm):
        return F.layer_norm(x, layer.normalized_shape, None, None, layer.eps)
    assert isinstance(layer, nn.GroupNorm)
    return F.group_norm(x, layer.num_groups, None, None, layer.eps)


def vector_part(layer: nn.Module, normal: torch.Tensor | None, delta: torch.Tensor) -> Rows:
    """The call's part of a vector's block, (n, size); `normal` from `vector_input`."""
    return Rows(_sum_positions(layer, delta if normal is None else delta * normal))


def _sum_positions(layer: nn.Module, values: torch.Tensor) -> torch.Tensor:
    """Over all but the records and what the parameter is indexed by: channels of a convolution, else the last dimensions."""
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.GroupNorm):
        return values.flatten(2).sum(dim=2) if values.dim() > 2 else values
    kept = len(layer.normalized_shape) if isinstance(layer, nn.LayerNorm) else 1
    middle = values.flatten(1, -kept - 1) if values.dim() > kept + 1 else values.unsqueeze(1)
    return middle.sum(dim=1).flatten(1)
