"""Coefficient gradient of 333 records against a plain batch pass and Opacus' per-sample gradients, one thread, CPU time."""

import gc
import resource
import statistics

import torch
import torch.nn.functional as F
from opacus import GradSampleModule

import common  # noqa: F401
from benchmarks.report import median_ratio, paired, save, table
from client_app.gradients import CoefficientGradients
from common.basis import make_basis
from common.model import build_reference, lenet
from common.numerics import pin_torch

RECORDS, K, REPEATS = 333, 16_384, 25
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


def measure(dataset: str) -> dict[str, float]:
    shape = SHAPES[dataset]
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(RECORDS, *shape, generator=generator)
    y = torch.randint(10, (RECORDS,), generator=generator)
    model, theta = build_reference("lenet", shape, 10, seed=0)
    gradients = CoefficientGradients(model, make_basis("fold", [model.dim], K, seed=0))
    plain_model, opacus_model = lenet(shape, 10), GradSampleModule(lenet(shape, 10))

    def plain():
        plain_model.zero_grad()
        F.cross_entropy(plain_model(x), y).backward()

    def ours():
        gradients(theta, x, y, clip_norm=1.0, denominator=RECORDS)

    def opacus():
        opacus_model.zero_grad()
        F.cross_entropy(opacus_model(x), y).backward()

    times = paired({"plain": plain, "ours": ours, "opacus": opacus}, REPEATS)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(50):
        ours()
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "plain_ms": 1e3 * statistics.median(times["plain"]),
        "ours_ms": 1e3 * statistics.median(times["ours"]),
        "opacus_ms": 1e3 * statistics.median(times["opacus"]),
        "ours_over_plain": median_ratio(times, "ours", "plain"),
        "opacus_over_plain": median_ratio(times, "opacus", "plain"),
        "peak_memory_growth_kb_over_50_calls": float(growth),
    }


if __name__ == "__main__":
    pin_torch()
    results = {dataset: measure(dataset) for dataset in SHAPES}
    keys = list(results["mnist"])
    table(
        "Coefficient gradient of 333 records, k = 16,384",
        ["data set", *keys],
        [[d, *r.values()] for d, r in results.items()],
    )
    save("gradients", results)
