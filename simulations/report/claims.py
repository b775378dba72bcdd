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


_OURS: Cell = {"variant": "ours", "channel": "dg"}


def _against(variant: str) -> Cell:
    return {"variant": variant, "channel": "dg"}


def _compare(
    dataset: str, text: str, one: Cell, other: Cell, low: float, high: float, *, side: str = "future", **at: Any
) -> Claim:
    """A claim about two cells of one data set that share the settings `at`."""
    shared = {"dataset": dataset, **at}
    return Claim(f"{DATASET_NAMES[dataset]}{text}", side, {**shared, **one}, {**shared, **other}, low, high)


def paper_claims() -> list[Claim]:
    """Every numerical claim of the paper that two cells decide."""
    lrsuq, q12 = {**_OURS, "channel": "lrsuq"}, {**_OURS, "channel": "dg-q12"}
    factorized, direct = _against("factorized-u0"), _against("direct")
    claims = []
    for epsilon in EPSILONS:
        name = f", ε = {epsilon:g}"
        for dataset, low, high in (("cifar10", 2.15, 4.08), ("mnist", 0.0, 3.24)):
            claims.append(
                _compare(dataset, f"{name}: Ours over Full", _OURS, _against("full"), low, high, epsilon=epsilon)
            )
        for dataset, low, high in (("cifar10", 1.07, 3.91), ("mnist", 1.66, 2.80)):
            claims.append(
                _compare(dataset, f"{name}: Ours over DeepLin", _OURS, _against("deeplin"), low, high, epsilon=epsilon)
            )
        for dataset in ("mnist", "cifar10"):
            claims.append(_compare(dataset, f"{name}: LRSUQ tracks DG", lrsuq, _OURS, -1.0, 1.0, epsilon=epsilon))
    for dataset, gain, bound, context in (("mnist", 1.19, 0.43, 4.33), ("cifar10", 5.63, 0.10, 16.39)):
        within = f": Radial within {bound} of Factorized"
        claims += [
            _compare(dataset, ": Factorized over Direct", factorized, direct, gain, gain, side="seen"),
            _compare(dataset, within, _against("radial-u0"), factorized, -bound, bound, side="seen"),
            _compare(dataset, ": context over Factorized", _OURS, factorized, context, context, side="seen"),
        ]
        for variant in ("deeplin-u0", "factorized-u0", "radial-u0"):
            text = f", no noise: {variant} ≈ Direct"
            claims.append(_compare(dataset, text, _against(variant), direct, -1.0, 1.0, side="seen", noise_stddev=0.0))
    for alpha in (0.1, 0.3, 0.5, 1.0):
        for dataset, low, high in (("mnist", 2.08, 2.98), ("cifar10", 1.47, 5.41)):
            text = f", α = {alpha:g}: Ours over Full"
            claims.append(_compare(dataset, text, _OURS, _against("full"), low, high, dirichlet_alpha=alpha))
    for more, fewer, gain in ((32768, 16384, 1.43), (65536, 16384, 0.68), (65536, 32768, 0.68)):
        one, other = ({**_OURS, "num_coefficients": k} for k in (more, fewer))
        claims.append(_compare("cifar10", f": k = {more:,} over k = {fewer:,}", one, other, gain, gain))
    claims.append(_compare("cifar10", ": DG+Q12 comparable to LRSUQ", q12, lrsuq, -1.0, 1.0))
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


def claim_rows(results: Results) -> list[tuple[Claim, list[str]]]:
    """Every claim with its row of the table: text, accuracy, paper, ours, n, verdict."""
    rows = []
    for claim in paper_claims():
        raw = results.difference(claim.side, claim.one, claim.other)
        found = Interval(raw.n, 100 * raw.mean, 100 * raw.std, 100 * raw.half_width)
        ours = "–" if found.n == 0 else f"{found.mean:+.2f}" + ("" if found.n < 2 else f" ± {found.half_width:.2f}")
        published = f"{claim.low:+.2f}" if claim.low == claim.high else f"{claim.low:+.2f} … {claim.high:+.2f}"
        decided = verdict(found, claim.low, claim.high)
        rows.append((claim, [claim.text, claim.side.capitalize(), published, ours, str(found.n), decided]))
    return rows


def check_claims(results: Results) -> Table:
    """All claims with our numbers and the computed verdict."""
    rows = [row for _, row in claim_rows(results)]
    return Table("claims", "Claims of the paper", "Percentage points; ours: paired over n seeds, 95 % interval.",
                 ["claim", "accuracy", "paper", "ours", "n", "verdict"], rows)  # fmt: skip
