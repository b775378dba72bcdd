"""The Kronecker basis: every weight moves within U A Vᵀ, U and V fixed and orthonormal (docs/method.md, K1).

A weight tensor is seen as a matrix M (out × in; of a convolution, in is channels × kernel). vec(A) → vec(U A Vᵀ) keeps lengths,
so the blocks side by side are one basis with PᵀP = I. Nothing of the size of the model is needed for a record's coefficient
gradient (`client_app.kron_gradients`). Vectors (biases, normalisation) are blocks of their own, or stay as they are.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from common.randomness import Purpose, public_generator

# Layers whose weight has a rule in `client_app.kron_layers`.
_MATRICES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding)
_NORMS = (nn.LayerNorm, nn.GroupNorm)


@dataclass(frozen=True)
class KronBlock:
    """One parameter of the model.

    Attributes:
        name: of the parameter.
        offset: where it begins in θ.
        rows, columns: the matrix M that it is; a vector has one column.
        p, q: of A; for a vector p = rows and q = 1 (it moves freely).
    """

    name: str
    offset: int
    rows: int
    columns: int
    p: int
    q: int

    @property
    def is_vector(self) -> bool:
        """True for a block that is the identity."""
        return self.columns == 1


def kron_blocks(module: nn.Module, rank: int, overrides: str, vectors: str, largest: int) -> tuple[KronBlock, ...]:
    """The blocks of a model, in the order of its parameters.

    Args:
        rank: of A, at most; `overrides` ("pattern=rank,…", shell patterns on parameter names) goes before it.
        vectors: "identity" or "frozen".
        largest: k; ranks are lowered, all alike, until the blocks have no more coefficients.

    Raises:
        ValueError: a parameter that no rule covers, by name; overrides that cannot be read or match nothing; fewer
            coefficients than even rank 1 has.
    """
    shapes = _shapes(module, vectors)
    ranks = _ranks(overrides, [name for name, *_ in shapes])
    for cap in range(rank, 0, -1):
        blocks = []
        for name, offset, rows, columns in shapes:
            r = min(ranks.get(name, rank), cap) if columns > 1 else rows
            blocks.append(KronBlock(name, offset, rows, columns, min(r, rows), min(r, columns)))
        if sum(block.p * block.q for block in blocks) <= largest:
            return tuple(blocks)
    raise ValueError(
        f"num-coefficients (and what coefficient-noise leaves of it) must be at least {sum(b.p * b.q for b in blocks)} for "
        f"basis 'kron' of this model with kron-vectors {vectors!r}. Received {largest}."
    )


def _shapes(module: nn.Module, vectors: str) -> list[tuple[str, int, int, int]]:
    """(name, offset in θ, rows, columns) of every parameter that moves."""
    owners = {id(p): (owner, part) for owner in module.modules() for part, p in owner.named_parameters(recurse=False)}
    shapes, offset = [], 0
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        owner, part = owners[id(parameter)]
        if isinstance(owner, _MATRICES) and part == "weight":
            rows = parameter.shape[0]
            shapes.append((name, offset, rows, parameter.numel() // rows))
        elif isinstance(owner, _NORMS) or (isinstance(owner, _MATRICES) and part == "bias"):
            if vectors == "identity":
                shapes.append((name, offset, parameter.numel(), 1))
        else:
            raise ValueError(
                f"basis must be another one than 'kron' for this model: it has no rule for {name!r} "
                f"(shape {tuple(parameter.shape)}, of {type(owner).__name__}). Freeze it (requires_grad = False), build it from "
                "Linear, Conv1d, Conv2d, Embedding, LayerNorm and GroupNorm, or use 'layers'."
            )
        offset += parameter.numel()
    return shapes


def _ranks(overrides: str, names: Sequence[str]) -> dict[str, int]:
    result: dict[str, int] = {}
    for part in filter(None, overrides.split(",")):
        pattern, _, text = part.partition("=")
        matched = fnmatch.filter(names, pattern)
        if not text.isdecimal() or int(text) < 1 or not matched:
            raise ValueError(
                "kron-ranks must be 'pattern=rank,...' with ranks >= 1 and patterns that match parameters such as "
                f"{', '.join(names[:4])}. Received {part!r}."
            )
        result |= dict.fromkeys(matched, int(text))
    return result


class KronBasis:
    """P of blocks U ⊗ V, from the public seed.

    Args:
        dim: d_theta, of which the blocks may leave a part out.
    """

    def __init__(self, dim: int, blocks: Sequence[KronBlock], *, seed: int, device: str = "cpu") -> None:
        self.dim, self.blocks = dim, tuple(blocks)
        self.num_coefficients = sum(block.p * block.q for block in blocks)
        self.factors: list[tuple[torch.Tensor, torch.Tensor] | None] = []
        self.starts: list[int] = []
        start = 0
        for index, block in enumerate(blocks):
            self.starts.append(start)
            start += block.p * block.q
            if block.is_vector:
                self.factors.append(None)
                continue
            rng = public_generator(seed, Purpose.BASIS, index)
            sides = ((block.rows, block.p), (block.columns, block.q))
            u, v = (_orthonormal(torch.tensor(rng.standard_normal(size))).float().to(device) for size in sides)
            self.factors.append((u, v))

    def expand(self, coefficients: torch.Tensor) -> torch.Tensor:
        """See `Basis.expand`."""
        theta = torch.zeros(self.dim, device=coefficients.device)
        for block, factors, start in zip(self.blocks, self.factors, self.starts, strict=True):
            a = coefficients[start : start + block.p * block.q]
            moved = a if factors is None else (factors[0] @ a.view(block.p, block.q) @ factors[1].t()).flatten()
            theta[block.offset : block.offset + block.rows * block.columns] = moved
        return theta

    def project(self, gradients: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """See `Basis.project`."""
        result = gradients.new_empty(len(gradients), self.num_coefficients) if out is None else out
        for block, factors, start in zip(self.blocks, self.factors, self.starts, strict=True):
            g = gradients[:, block.offset : block.offset + block.rows * block.columns]
            if factors is not None:
                u, v = (factor.to(g.dtype) for factor in factors)
                g = (u.t() @ g.view(-1, block.rows, block.columns) @ v).flatten(1)
            result[:, start : start + block.p * block.q] = g
        return result


def _orthonormal(gaussian: torch.Tensor) -> torch.Tensor:
    """Orthonormal columns; signs of the diagonal make the factorisation unique. torch's: its threads are pinned."""
    q, r = torch.linalg.qr(gaussian)
    signs = torch.sign(torch.diagonal(r))
    return q * torch.where(signs == 0, torch.ones_like(signs), signs)
