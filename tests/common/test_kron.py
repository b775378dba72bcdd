import dataclasses

import pytest
import torch
from torch import nn

from common.basis.kron import KronBasis, kron_blocks
from common.data.catalog import DATASETS
from common.model import lenet
from common.rules import make_rules
from common.settings import Settings
from common.space import basis_of, space_of


def lenet_basis(rank=32, vectors="identity", overrides="", largest=10**6, seed=0):
    module = lenet((3, 32, 32), 10)
    return KronBasis(121_182, kron_blocks(module, rank, overrides, vectors, largest), seed=seed)


@pytest.mark.parametrize(("rank", "vectors", "k"), [(32, "frozen", 3904), (32, "identity", 4166), (16, "frozen", 1184)])
def test_sizes(rank, vectors, k):
    assert lenet_basis(rank, vectors).num_coefficients == k


def test_the_basis_is_orthonormal():
    """PᵀP = I to float32, by projecting what was expanded; and lengths are kept."""
    basis = lenet_basis()
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(20, basis.num_coefficients, generator=generator)
    theta = torch.stack([basis.expand(row) for row in a])
    assert torch.allclose(basis.project(theta), a, atol=1e-5)
    assert torch.allclose(theta.norm(dim=1), a.norm(dim=1), rtol=1e-5)
    for factors in filter(None, basis.factors):
        for factor in factors:
            assert torch.allclose(factor.t() @ factor, torch.eye(factor.shape[1]), atol=1e-6)


def test_project_is_the_transpose_of_expand():
    basis = lenet_basis(rank=8)
    generator = torch.Generator().manual_seed(1)
    a, g = torch.randn(basis.num_coefficients, generator=generator), torch.randn(1, 121_182, generator=generator)
    assert float(basis.expand(a) @ g[0]) == pytest.approx(float(basis.project(g)[0] @ a), rel=1e-4)
    out = torch.empty(1, basis.num_coefficients)
    assert basis.project(g, out=out) is out


def test_factors_come_from_the_public_seed_alone():
    one, again, other = lenet_basis(), lenet_basis(), lenet_basis(seed=1)
    assert torch.equal(one.factors[0][0], again.factors[0][0])
    assert not torch.equal(one.factors[0][0], other.factors[0][0])
    assert not torch.equal(one.factors[4][0], one.factors[6][0][: one.factors[4][0].shape[0]])


def test_ranks_by_pattern_and_by_what_fits():
    blocks = {block.name: block for block in lenet_basis(overrides="7.*=8,0.weight=2").blocks}
    assert (blocks["7.weight"].p, blocks["7.weight"].q) == (8, 8)
    assert (blocks["0.weight"].p, blocks["0.weight"].q) == (2, 2)
    assert (blocks["3.weight"].p, blocks["3.weight"].q) == (32, 32)
    assert lenet_basis(largest=2000).num_coefficients <= 2000
    assert lenet_basis(largest=2000).num_coefficients > 1500


@pytest.mark.parametrize("overrides", ["nothing=4", "0.weight", "0.weight=0", "0.weight=-1", "0.weight=x"])
def test_bad_overrides_are_refused(overrides):
    with pytest.raises(ValueError, match="kron-ranks must be 'pattern=rank"):
        lenet_basis(overrides=overrides)


def test_too_few_coefficients_are_refused():
    with pytest.raises(ValueError, match="num-coefficients .* must be at least 267"):
        lenet_basis(largest=100)


@pytest.mark.parametrize(
    ("module", "named"),
    [(nn.MultiheadAttention(8, 2), "in_proj_weight"), (nn.Bilinear(3, 3, 3), "weight"), (nn.PReLU(), "weight")],
)
def test_parameters_without_a_rule_are_refused_by_name(module, named):
    with pytest.raises(ValueError, match=f"no rule for '{named}'"):
        kron_blocks(module, 4, "", "identity", 10**6)


def test_k_follows_ranks_and_noise():
    settings = Settings(basis="kron", epsilon=16.0)
    rules = make_rules(settings)
    assert rules.space.dim == basis_of(rules.space, seed=0).num_coefficients
    assert {min(block.p, block.q) for block in rules.space.blocks if not block.is_vector} == {10, 16, 32}
    quiet = space_of(dataclasses.replace(settings, coefficient_noise=22.0), DATASETS["mnist"], 0.01)
    loud = space_of(dataclasses.replace(settings, coefficient_noise=22.0), DATASETS["mnist"], 0.02)
    assert loud.dim <= 1100 < quiet.dim <= 2200
