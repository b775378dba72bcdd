"""Clipped coefficient gradients of a batch against a plain forward and backward pass, one thread, CPU time.

Beside ours: Opacus' per-sample gradients and its ghost clipping, on the same models and records. Then the memory of a process
that does one of these with a model of 20 million parameters.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn

import common  # noqa: F401
from benchmarks.models import MODELS, large
from benchmarks.report import median_ratio, paired, save, table
from client_app.gradients import CoefficientGradients
from client_app.kron_gradients import KronGradients
from common.basis import make_basis
from common.basis.kron import KronBasis, kron_blocks
from common.model import FlatModel
from common.numerics import pin_torch

LARGE_RECORDS = 64


def records(shape, count, classes):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, *shape, generator=generator), torch.randint(classes, (count,), generator=generator)


def plain(module, x, y):
    def step():
        module.zero_grad()
        F.cross_entropy(module(x), y).backward()

    return step


def kron(module, rank, x, y):
    """Ours in the Kronecker basis; and k."""
    blocks = kron_blocks(module, rank, "", "identity", 10**7)
    model = FlatModel(module)
    basis = KronBasis(model.dim, blocks, seed=0)
    gradients, theta = KronGradients(model, basis, tuple(x.shape[1:])), model.flat.clone()
    return lambda: gradients(theta, x, y, clip_norm=1.0, denominator=len(x)), basis.num_coefficients


def projected(module, kind, k, x, y):
    """Ours by a gradient of every record and a projection."""
    model = FlatModel(module)
    basis = make_basis(kind, [p.numel() for p in model.trainable.values()], k, seed=0)
    gradients, theta = CoefficientGradients(model, basis), model.flat.clone()
    return lambda: gradients(theta, x, y, clip_norm=1.0, denominator=len(x))


def per_sample(module, x, y):
    """Opacus, a gradient of every record."""
    model = GradSampleModule(module)

    def step():
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()

    return step


def ghost(module, x, y):
    """Opacus, norms without gradients of records, then a second backward pass."""
    model = GradSampleModuleFastGradientClipping(module, max_grad_norm=1.0, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), lr=0.0), noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=len(x)
    )
    criterion = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss())

    def step():
        optimizer.zero_grad()
        criterion(model(x), y).backward()

    return step


def measure(name, rank, repeats):
    build, shape, count, classes = MODELS[name]
    x, y = records(shape, count, classes)
    ours, k = kron(build(), rank, x, y)
    functions = {"plain": plain(build(), x, y), "kron": ours}
    functions |= {"fold": projected(build(), "fold", k, x, y), "per-sample": per_sample(build(), x, y)}
    functions["ghost"] = ghost(build(), x, y)
    times = paired(functions, repeats)
    row = {"model": name, "records": count, "rank": rank, "k": k}
    row["plain_ms"] = 1e3 * statistics.median(times["plain"])
    return row | {f"{other}_over_plain": median_ratio(times, other, "plain") for other in functions if other != "plain"}


def peak(what):
    """Megabytes of this process after one step of the large model."""
    x, y = records((32, 16), LARGE_RECORDS, 10)
    module = large()
    step = {"plain": lambda: plain(module, x, y), "kron": lambda: kron(module, 32, x, y)[0],
            "fold": lambda: projected(module, "fold", 16_384, x, y), "per-sample": lambda: per_sample(module, x, y),
            "ghost": lambda: ghost(module, x, y)}[what]()  # fmt: skip
    step()
    # Not getrusage: its maximum is inherited from the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    pin_torch()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peak", help="only the memory of this way, in a process of its own")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak))
        sys.exit()
    cases = [(name, 32) for name in MODELS] + [("paper's LeNet, CIFAR-10", 16), ("paper's LeNet, CIFAR-10", 76)]
    rows = [measure(name, rank, options.repeats) for name, rank in cases]
    table("Clipped coefficient gradients", list(rows[0]), [list(row.values()) for row in rows])
    memory = {}
    for what in ("plain", "kron", "ghost", "per-sample"):
        command = [sys.executable, "-m", "benchmarks.gradients", "--peak", what]
        memory[what] = float(subprocess.check_output(command, text=True).split()[-1])
    parameters = sum(p.numel() for p in large().parameters())
    table(f"Peak memory, {parameters:,} parameters, {LARGE_RECORDS} records, MB", list(memory), [list(memory.values())])
    save("gradients", {"rows": rows, "large": {"parameters": parameters, "records": LARGE_RECORDS, "peak_mb": memory}})
