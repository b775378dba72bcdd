import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.basis import BASES, make_basis

STRUCTURED = sorted(set(BASES) - {"identity"})

sizes = st.integers(1, 300).flatmap(lambda dim: st.tuples(st.just(dim), st.integers(1, dim)))


@pytest.mark.parametrize("kind", STRUCTURED)
@settings(max_examples=30, deadline=None)
@given(size=sizes, seed=st.integers(0, 2**31))
def test_columns_are_orthonormal(kind, size, seed):
    dim, k = size
    basis = make_basis(kind, dim, k, seed=seed)
    columns = torch.stack([basis.expand(unit) for unit in torch.eye(k)])
    assert torch.allclose(columns @ columns.T, torch.eye(k), atol=2e-6)


@pytest.mark.parametrize("kind", STRUCTURED)
@settings(max_examples=30, deadline=None)
@given(size=sizes, seed=st.integers(0, 2**31))
def test_project_is_the_adjoint_of_expand(kind, size, seed):
    dim, k = size
    basis = make_basis(kind, dim, k, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    a, g = torch.randn(k, generator=generator), torch.randn(3, dim, generator=generator)
    out = torch.full((3, k), float("nan"))
    assert basis.project(g, out=out) is out
    assert torch.allclose(out @ a, g @ basis.expand(a), atol=1e-4)
    assert torch.allclose(basis.project(g), out)


@pytest.mark.parametrize("kind", STRUCTURED)
def test_basis_depends_on_the_seed_alone(kind):
    a = torch.randn(8, generator=torch.Generator().manual_seed(0))
    first, again, other = (make_basis(kind, 20, 8, seed=s).expand(a) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_identity_is_the_parameter_space_itself():
    basis = make_basis("identity", 20, 20, seed=0)
    g = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    assert torch.equal(basis.expand(g[0]), g[0])
    assert torch.equal(basis.project(g, out=torch.empty(3, 20)), g)
    with pytest.raises(ValueError, match="identity"):
        make_basis("identity", 20, 19, seed=0)


@pytest.mark.parametrize("k", [0, 21])
def test_k_outside_the_model_is_refused(k):
    with pytest.raises(ValueError, match="num-coefficients"):
        make_basis("fold", 20, k, seed=0)


def test_dense_basis_refuses_large_sizes():
    with pytest.raises(ValueError, match="dense"):
        make_basis("dense", 121_182, 16_384, seed=0)


@pytest.mark.parametrize("kind", ["fold", "dct"])
def test_largest_size_stays_within_two_gigabytes(kind):
    """The coefficient gradient of a batch, k = 65,536 on the CIFAR-10 model, in a process of its own: peak memory."""
    code = (
        "import common, torch, resource\n"
        "from client_app.gradients import CoefficientGradients\n"
        "from common.basis import make_basis\n"
        "from common.model import build_reference\n"
        "model, reference = build_reference('lenet', (3, 32, 32), 10, seed=0)\n"
        f"basis = make_basis({kind!r}, model.dim, 65536, seed=0)\n"
        "theta = reference + basis.expand(torch.randn(65536))\n"
        "inputs, labels = torch.rand(120, 3, 32, 32), torch.zeros(120, dtype=torch.int64)\n"
        "CoefficientGradients(model, basis)(theta, inputs, labels, clip_norm=1.0, denominator=120)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peak = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert peak * 1024 < 2 * 2**30  # ru_maxrss is in kilobytes
