"""The picture of docs/lrsuq.md: decoded error against the Gaussian; bytes against s with floor and Shannon limit."""

from pathlib import Path

import matplotlib

import common  # noqa: F401

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from benchmarks.codec import messages
from benchmarks.floor import entropy_per_coordinate, shannon
from common.channel.lrsuq import decode, encode
from common.randomness import seed_key

K, SIGMA = 16_384, 0.015
TARGET = Path(__file__).resolve().parent.parent / "docs" / "lrsuq.svg"


def draw() -> None:
    """Write docs/lrsuq.svg."""
    plt.rcParams.update({"svg.hashsalt": "papfl", "svg.fonttype": "none", "font.size": 9})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), constrained_layout=True)
    errors = []
    for index in range(30):
        u = np.random.default_rng(index).laplace(size=K) * 0.2 * SIGMA
        errors.append((decode(encode(u, SIGMA, seed_key(index, 11)), seed_key(index, 11)) - u) / SIGMA)
    left.hist(np.concatenate(errors), bins=201, density=True, color="#9db8d9", label="decoded error / σ (491,520)")
    grid = np.linspace(-5, 5, 400)
    left.plot(grid, norm.pdf(grid), color="#b03a2e", lw=1, label="N(0, 1)")
    left.set_yscale("log")
    left.set_ylim(1e-6, 1)
    left.set_xlim(-5, 5)
    left.set_xlabel("error in units of σ (Laplace input)")
    left.legend(frameon=False, loc="lower center")
    scales = [0.02, 0.05, 0.1, 0.156, 0.3, 0.5, 0.9]
    floors = [entropy_per_coordinate(s, draws=1000, samples=2000)[0] for s in scales]
    for block, color in ((4, "#1f4e79"), (1, "#5d8aa8")):
        bytes_ = [messages(SIGMA, s * SIGMA * np.sqrt(K), block, K, 8)["payload"] for s in scales]
        right.plot(scales, bytes_, "o-", color=color, ms=4, label=f"papfl, block size {block}")
    right.plot(scales, np.array(floors) * K / 8, "--", color="#555", label="conditional entropy of D4")
    right.plot(scales, [shannon(s) * K / 8 for s in scales], ":", color="#555", label="Shannon limit")
    right.axhline(24_600, color="#b03a2e", lw=1)
    right.text(0.021, 26_500, "published, 12.01 bits per coordinate", color="#b03a2e", fontsize=8)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_ylim(1, 60_000)
    right.set_xlabel("s = RMS of the update / σ")
    right.set_ylabel("payload, bytes of 16,384 coordinates")
    right.legend(frameon=False, loc="lower right")
    figure.savefig(TARGET, metadata={"Date": None})


if __name__ == "__main__":
    draw()
