"""The exactness suite on 10^7 coordinates per block size, decoder in another process."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import common  # noqa: F401
from benchmarks.report import save, table
from common.channel.lrsuq import encode, warm_up
from tests.common.channel.exactness import SIGMA, failures, inputs, key_of
from tests.common.channel.test_exactness import DECODER

PER_CASE = 88  # 7 inputs x 88 messages x 16,384 = 1.01e7 coordinates


def errors(case: str, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    updates, archive = [], {}
    for index in range(PER_CASE):
        u = inputs(np.random.default_rng(index))[case]
        key = key_of(case, index, seed=100 + block_size)
        updates.append(u)
        archive[f"m{index}"] = np.frombuffer(encode(u, SIGMA, key, block_size=block_size), np.uint8)
        archive[f"k{index}"] = np.frombuffer(key, np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "in.npz", **archive)
        subprocess.run([sys.executable, "-c", DECODER, f"{folder}/in.npz", f"{folder}/out.npy"], check=True)
        decoded = np.load(f"{folder}/out.npy")
    u = np.concatenate(updates)
    return u, (decoded - u) / SIGMA


if __name__ == "__main__":
    warm_up()
    rows, bad = [], []
    for block_size in (4, 1):
        pooled_u, pooled_e = [], []
        for case in inputs(np.random.default_rng(0), 8):
            u, e = errors(case, block_size)
            pooled_u.append(u)
            pooled_e.append(e)
            found = failures(u, e)
            bad += found
            rows.append(
                [
                    block_size,
                    case,
                    e.size,
                    e.mean(),
                    e.var(),
                    float(np.mean(e**3)),
                    float(np.mean(e**4)),
                    "; ".join(found) or "pass",
                ]
            )
        e = np.concatenate(pooled_e)
        rows.append([block_size, "all", e.size, e.mean(), e.var(), float(np.mean(e**3)), float(np.mean(e**4)), ""])
    header = ["block size", "input", "coordinates", "mean", "variance", "third moment", "fourth moment", "suite"]
    table("Decoded error in units of sigma", header, rows)
    save("exactness", {"header": header, "rows": rows})
    sys.exit(bool(bad))
