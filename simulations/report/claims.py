"""The paper's claims beside our numbers: agree, differ or within noise, computed from paired differences over seeds.

A claim is a range (percentage points) that a paired difference should fall into. With our 95 % interval:

* "differ": the interval misses the range;
* "agree": of a claimed gain (a range without zero), the interval meets the range and excludes zero; of a claimed
  equivalence or bound (a range with zero), the interval lies inside the range;
* "within noise": neither, so the data cannot tell;
* "one seed", "not run": too few common seeds for an interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from simulations.experiments import EPSILONS
from simulations.report.results import Interval, Results
from simulations.report.tables import DATASET_NAMES, Table

Cell = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """A difference of two cells and the published range of it, in percentage points."""

    text: str
    side: str
    one: Cell
    other: Cell
    low: float
    high: float


def _cell(dataset: str, variant: str, **changes: Any) -> Cell:
    return {"dataset": dataset, "variant": variant, "channel": "dg", **changes}


def paper_claims() -> list[Claim]:
    """Every numerical claim of the paper that two cells decide."""
    claims = []
    for epsilon in EPSILONS:
        at = {"epsilon": epsilon}
        for dataset, low, high in (("cifar10", 2.15, 4.08), ("mnist", 0.0, 3.24)):
            claims.append(
                Claim(
                    f"{DATASET_NAMES[dataset]}, ε = {epsilon:g}: Ours over Full",
                    "future",
                    _cell(dataset, "ours", **at),
                    _cell(dataset, "full", **at),
                    low,
                    high,
                )
            )
        for dataset, low, high in (("cifar10", 1.07, 3.91), ("mnist", 1.66, 2.80)):
            claims.append(
                Claim(
                    f"{DATASET_NAMES[dataset]}, ε = {epsilon:g}: Ours over DeepLin",
                    "future",
                    _cell(dataset, "ours", **at),
                    _cell(dataset, "deeplin", **at),
                    low,
                    high,
                )
            )
        for dataset in ("mnist", "cifar10"):
            claims.append(
                Claim(
                    f"{DATASET_NAMES[dataset]}, ε = {epsilon:g}: LRSUQ tracks DG",
                    "future",
                    _cell(dataset, "ours", channel="lrsuq", **at),
                    _cell(dataset, "ours", **at),
                    -1.0,
                    1.0,
                )
            )
    for dataset, factorized, radial, context in (("mnist", 1.19, 0.43, 4.33), ("cifar10", 5.63, 0.10, 16.39)):
        name = DATASET_NAMES[dataset]
        claims.append(
            Claim(
                f"{name}: Factorized over Direct",
                "seen",
                _cell(dataset, "factorized-u0"),
                _cell(dataset, "direct"),
                factorized,
                factorized,
            )
        )
        claims.append(
            Claim(
                f"{name}: Radial within {radial} of Factorized",
                "seen",
                _cell(dataset, "radial-u0"),
                _cell(dataset, "factorized-u0"),
                -radial,
                radial,
            )
        )
        claims.append(
            Claim(
                f"{name}: context over Factorized",
                "seen",
                _cell(dataset, "ours"),
                _cell(dataset, "factorized-u0"),
                context,
                context,
            )
        )
        for variant in ("deeplin-u0", "factorized-u0", "radial-u0"):
            clean = {"noise_stddev": 0.0}
            claims.append(
                Claim(
                    f"{name}, no noise: {variant} ≈ Direct",
                    "seen",
                    _cell(dataset, variant, **clean),
                    _cell(dataset, "direct", **clean),
                    -1.0,
                    1.0,
                )
            )
    for alpha in (0.1, 0.3, 0.5, 1.0):
        for dataset, low, high in (("mnist", 2.08, 2.98), ("cifar10", 1.47, 5.41)):
            at = {"dirichlet_alpha": alpha}
            claims.append(
                Claim(
                    f"{DATASET_NAMES[dataset]}, α = {alpha:g}: Ours over Full",
                    "future",
                    _cell(dataset, "ours", **at),
                    _cell(dataset, "full", **at),
                    low,
                    high,
                )
            )
    k16, k32, k65 = ({"num_coefficients": k} for k in (16384, 32768, 65536))
    claims.append(
        Claim(
            "CIFAR-10: k = 32,768 over k = 16,384",
            "future",
            _cell("cifar10", "ours", **k32),
            _cell("cifar10", "ours", **k16),
            1.43,
            1.43,
        )
    )
    claims.append(
        Claim(
            "CIFAR-10: k = 65,536 over k = 16,384",
            "future",
            _cell("cifar10", "ours", **k65),
            _cell("cifar10", "ours", **k16),
            0.68,
            0.68,
        )
    )
    claims.append(
        Claim(
            "CIFAR-10: k = 65,536 over k = 32,768",
            "future",
            _cell("cifar10", "ours", **k65),
            _cell("cifar10", "ours", **k32),
            0.68,
            0.68,
        )
    )
    claims.append(
        Claim(
            "CIFAR-10: DG+Q12 comparable to LRSUQ",
            "future",
            _cell("cifar10", "ours", channel="dg-q12"),
            _cell("cifar10", "ours", channel="lrsuq"),
            -1.0,
            1.0,
        )
    )
    return claims


def verdict(found: Interval, low: float, high: float) -> str:
    """Our paired difference (in percentage points) against a published range."""
    if found.n < 2 or math.isnan(found.half_width):
        return "not run" if found.n == 0 else "one seed"
    bottom, top = found.mean - found.half_width, found.mean + found.half_width
    if top < low or bottom > high:
        return "differ"
    gain_claimed = low > 0 or high < 0
    decided = not bottom <= 0.0 <= top if gain_claimed else low <= bottom and top <= high
    return "agree" if decided else "within noise"


def check_claims(results: Results) -> Table:
    """All claims with our numbers and the computed verdict."""
    rows = []
    for claim in paper_claims():
        raw = results.difference(claim.side, claim.one, claim.other)
        found = Interval(raw.n, 100 * raw.mean, 100 * raw.std, 100 * raw.half_width)
        ours = "–" if found.n == 0 else f"{found.mean:+.2f}" + ("" if found.n < 2 else f" ± {found.half_width:.2f}")
        published = f"{claim.low:+.2f}" if claim.low == claim.high else f"{claim.low:+.2f} … {claim.high:+.2f}"
        rows.append(
            [claim.text, claim.side.capitalize(), published, ours, str(found.n), verdict(found, claim.low, claim.high)]
        )
    return Table("claims", "Claims of the paper", "Percentage points; ours: paired over n seeds, 95 % interval.",
                 ["claim", "accuracy", "paper", "ours", "n", "verdict"], rows)  # fmt: skip
