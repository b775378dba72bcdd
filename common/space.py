"""Which space a variant's releases live in: coefficients of a basis (R^k), or the model's parameters (R^d_theta).

Both sides must know it before anything is sent: it decides what a client differentiates, clips and encodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from common.basis import Basis, make_basis
from common.basis.kron import KronBasis, KronBlock, kron_blocks
from common.data.catalog import DatasetSpec
from common.model import MODELS, FlatModel, build_reference
from common.settings import Settings

# Variants that release full-model gradients and need no basis (docs/method.md, section 8).
PARAMETER_SPACE = ("global", "full")


@dataclass(frozen=True)
class Space:
    """The space of a run's releases.

    Attributes:
        basis: kind of basis; "identity" for parameter space.
        dim: k, coordinates of one release.
        tensors: entries of each tensor of the personal model; their sum is d_theta.
        blocks: of the Kronecker basis; empty for the others.
    """

    basis: str
    dim: int
    tensors: tuple[int, ...]
    blocks: tuple[KronBlock, ...] = ()


def space_of(settings: Settings, spec: DatasetSpec, noise_stddev: float) -> Space:
    """The space of the settings' variant, where releases have the noise σ_g = `noise_stddev`."""
    with torch.device("meta"):  # shapes alone: no memory, no random numbers
        model = MODELS[settings.model](spec.image_shape, spec.num_classes)
    tensors = tuple(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if settings.variant in PARAMETER_SPACE:
        return Space("identity", sum(tensors), tensors)
    k = settings.num_coefficients
    if settings.coefficient_noise and noise_stddev > 0:
        affordable = int(settings.coefficient_noise * settings.clip_norm / noise_stddev)
        k = min(k, max(affordable, len(tensors)))
    if settings.basis == "kron":
        blocks = kron_blocks(model, settings.kron_rank, settings.kron_ranks, settings.kron_vectors, k)
        return Space("kron", sum(block.p * block.q for block in blocks), tensors, blocks)
    return Space(settings.basis, k, tensors)


def basis_of(space: Space, *, seed: int, device: str = "cpu") -> Basis:
    """The basis of a space, from the public seed."""
    if space.basis == "kron":
        return KronBasis(sum(space.tensors), space.blocks, seed=seed, device=device)
    return make_basis(space.basis, space.tensors, space.dim, seed=seed, device=device)


def reference_of(settings: Settings, spec: DatasetSpec, device: str = "cpu") -> tuple[FlatModel, torch.Tensor]:
    """The personal model and θ_ref of a run, the same wherever they are needed; raises as `build_reference`."""
    return build_reference(
        settings.model,
        spec.image_shape,
        spec.num_classes,
        seed=settings.seed,
        init=settings.reference_init,
        scale=settings.reference_scale,
        device=device,
    )
