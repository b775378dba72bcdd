"""The honest rival: every client trains the same network alone, at home, on its own labelled records. No federation, no noise,
nothing released, epsilon = 0. `python -m benchmarks.alone_at_home` writes docs/benchmarks/alone_at_home.json.

Records and splits are those of the preset `aligned`: 800 labelled records for training, 200 for evaluation, whether the client
participates or is a future one. Adam at its default step, 20 epochs, batches of 32, inputs standardised by public constants:
what a library's user would do first. Nothing was tuned.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import common  # noqa: F401

# isort: split
import torch
import torch.nn.functional as F

from client_app.sources import BuiltInRecords
from common.data.records import standardization
from common.data.splits import is_future, split
from common.files import write_atomically
from common.model import build_reference
from common.numerics import describe, pin_torch
from common.rules import spec_of
from common.settings import Settings

EPOCHS, BATCH = 20, 32


def accuracy_alone(settings, source, client):
    """Of one client's own model on its held-out records."""
    spec, records = spec_of(settings), source.records(client)
    parts = split(settings, client, settings.records_per_client)
    train = parts.context if is_future(settings, client) else parts.train
    constants = standardization(spec, "standardized")
    inputs, labels = records.tensors(train, *constants, torch.device("cpu"))
    model, theta = build_reference(settings.model, spec.image_shape, spec.num_classes, seed=settings.seed)
    model.load(theta)
    module = model.module.requires_grad_(True)
    optimizer = torch.optim.Adam(module.parameters())
    generator = torch.Generator().manual_seed(settings.seed * 1000 + client)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(train), generator=generator).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(module(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    queries, answers = records.tensors(parts.evaluation, *constants, torch.device("cpu"))
    with torch.no_grad():
        return float((module(queries).argmax(1) == answers).double().mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=Settings.data_dir)
    parser.add_argument("--seeds", type=int, nargs="+", default=[41, 42, 43])
    parser.add_argument("--datasets", nargs="+", default=["cifar10", "mnist"])
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/alone_at_home.json"))
    options = parser.parse_args()
    pin_torch()
    result = {"epochs": EPOCHS, "batch": BATCH, "numerics": describe(), "runs": []}
    if options.out.exists():  # goes on where it was interrupted
        result["runs"] = json.loads(options.out.read_text())["runs"]
    for seed in options.seeds:
        for dataset in options.datasets:
            if any(run["dataset"] == dataset and run["seed"] == seed for run in result["runs"]):
                continue
            settings = Settings.from_config({"preset": "aligned", "dataset": dataset, "seed": seed})
            source = BuiltInRecords(settings, Path(options.data_dir).expanduser())
            started = time.process_time()
            found = {client: accuracy_alone(settings, source, client) for client in range(settings.num_clients)}
            row = {
                "dataset": dataset,
                "seed": seed,
                "seen": statistics.mean(v for c, v in found.items() if not is_future(settings, c)),
                "future": statistics.mean(v for c, v in found.items() if is_future(settings, c)),
                "cpu_seconds": time.process_time() - started,
            }
            result["runs"].append(row)
            print(row, flush=True)
            write_atomically(options.out, json.dumps(result, indent=2).encode() + b"\n")


if __name__ == "__main__":
    main()
