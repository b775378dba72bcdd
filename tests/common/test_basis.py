import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.basis import BASES, make_basis
from common.basis.shares import coefficient_shares

STRUCTURED = sorted(set(BASES) - {"identity"})

# Tensors of a model, and k.
sizes = st.lists(st.integers(1, 100), min_size=1, max_size=5).flatmap(
    lambda tensors: st.tuples(st.just(tensors), st.integers(len(tensors), sum(tensors)))
)


@pytest.mark.parametrize("kind", STRUCTURED)
@settings(max_examples=30, deadline=None)
@given(size=sizes, seed=st.integers(0, 2**31))
def test_columns_are_orthonormal(kind, size, seed):
    tensors, k = size
    basis = make_basis(kind, tensors, k, seed=seed)
    columns = torch.stack([basis.expand(unit) for unit in torch.eye(k)])
    assert torch.allclose(columns @ columns.T, torch.eye(k), atol=2e-6)


@pytest.mark.parametrize("kind", STRUCTURED)
@settings(max_examples=30, deadline=None)
@given(size=sizes, seed=st.integers(0, 2**31))
def test_project_is_the_adjoint_of_expand(kind, size, seed):
    tensors, k = size
    basis = make_basis(kind, tensors, k, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    a, g = torch.randn(k, generator=generator), torch.randn(3, sum(tensors), generator=generator)
    out = torch.full((3, k), float("nan"))
    assert basis.project(g, out=out) is out
    assert torch.allclose(out @ a, g @ basis.expand(a), atol=1e-4)
    assert torch.allclose(basis.project(g), out)


@pytest.mark.parametrize("kind", STRUCTURED)
def test_basis_depends_on_the_seed_alone(kind):
    a = torch.randn(8, generator=torch.Generator().manual_seed(0))
    first, again, other = (make_basis(kind, [12, 8], 8, seed=s).expand(a) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_identity_is_the_parameter_space_itself():
    basis = make_basis("identity", [20], 20, seed=0)
    g = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    assert torch.equal(basis.expand(g[0]), g[0])
    assert torch.equal(basis.project(g, out=torch.empty(3, 20)), g)
    with pytest.raises(ValueError, match="identity"):
        make_basis("identity", [20], 19, seed=0)


@pytest.mark.parametrize("k", [0, 21])
def test_k_outside_the_model_is_refused(k):
    with pytest.raises(ValueError, match="num-coefficients"):
        make_basis("fold", [20], k, seed=0)


def test_dense_basis_refuses_large_sizes():
    with pytest.raises(ValueError, match="dense"):
        make_basis("dense", [121_182], 16_384, seed=0)


@pytest.mark.parametrize("kind", ["fold", "layers", "dct"])
def test_largest_size_stays_within_two_gigabytes(kind):
    """The coefficient gradient of a batch, k = 65,536 on the CIFAR-10 model, in a process of its own: peak memory."""
    code = (
        "import common, torch, resource\n"
        "from client_app.gradients import CoefficientGradients\n"
        "from common.basis import make_basis\n"
        "from common.model import build_reference\n"
        "model, reference = build_reference('lenet', (3, 32, 32), 10, seed=0)\n"
        f"basis = make_basis({kind!r}, [size.numel() for _, size in model.offsets().values()], 65536, seed=0)\n"
        "theta = reference + basis.expand(torch.randn(65536))\n"
        "inputs, labels = torch.rand(120, 3, 32, 32), torch.zeros(120, dtype=torch.int64)\n"
        "CoefficientGradients(model, basis)(theta, inputs, labels, clip_norm=1.0, denominator=120)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peak = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert peak * 1024 < 2 * 2**30  # ru_maxrss is in kilobytes


@given(size=sizes)
def test_shares_of_layers_sum_to_k_and_fit(size):
    tensors, k = size
    shares = coefficient_shares(tensors, k)
    assert sum(shares) == k
    assert all(1 <= share <= entries for share, entries in zip(shares, tensors, strict=True))


def test_shares_follow_the_square_root():
    """Two tensors, the second 100 times the first: 10 times its coefficients, until the first is at its full size."""
    assert coefficient_shares([100, 10_000], 220) == [20, 200]
    assert coefficient_shares([100, 10_000], 2100) == [100, 2000]


def test_no_column_of_layers_mixes_two_tensors():
    basis = make_basis("layers", [30, 20], 11, seed=0)
    columns = torch.stack([basis.expand(unit) for unit in torch.eye(11)]) != 0
    assert not (columns[:, :30].any(dim=1) & columns[:, 30:].any(dim=1)).any()


def test_one_tensor_by_layers_is_the_fold():
    a = torch.randn(7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(*(make_basis(kind, [30], 7, seed=0).expand(a) for kind in ("fold", "layers")))


def test_layers_need_a_coefficient_for_every_tensor():
    with pytest.raises(ValueError, match=r"from 3 to d_theta = 30 for basis 'layers'. Received 2"):
        make_basis("layers", [10, 10, 10], 2, seed=0)
