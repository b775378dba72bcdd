"""How many of the paper's claims come out under a reading of it: `python -m simulations.report.score --results FOLDER GRID...`.

A reading is what the [fixed] tables of its grids say; the claims are those of `claims.py` about one budget (ε = 16 and no
noise). One seed decides, so the score has three grades, in percentage points of the paired difference:

* inside: in the published range; where that is one number, within one point of it;
* size: of a gain, from half of the range's lower end to twice its upper end; of an equivalence, within twice its bound;
* sign: of a gain, above zero; of an equivalence, as inside.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.settings import Settings
from simulations.records import read_records
from simulations.report.claims import Claim, paper_claims
from simulations.report.results import Results

_POINT = 1.0  # tolerance of a claim that is one number, as of those that say "similar"
# Settings without effect on a variant, so that a run of it counts for every reading that differs in those alone.
_TRUNK = ("trunk_init", "activation", "hidden_output")
_CONTEXT = ("context_entry", "context_gain")
_IDLE: dict[str, tuple[str, ...]] = {
    "direct": (*_TRUNK, *_CONTEXT, "linear_bias", "public_vector"),
    "factorized-u0": (*_CONTEXT, "linear_bias"),
    "radial-u0": (*_CONTEXT, "linear_bias"),
    "deeplin-u0": (*_CONTEXT, "activation", "hidden_output"),
    "deeplin": ("public_vector", "activation", "hidden_output"),
    "ours": ("public_vector", "linear_bias"),
    "full": ("public_vector", "linear_bias"),
}
_SCORED = {"epsilon": Settings.epsilon, "dirichlet_alpha": Settings.dirichlet_alpha}


@dataclass(frozen=True)
class Outcome:
    """One claim under a reading: our difference in points (None: not run) and the grades that it passes."""

    claim: Claim
    ours: float | None

    @property
    def is_gain(self) -> bool:
        """False for a claim that two cells are alike."""
        return self.claim.low >= 0

    @property
    def grades(self) -> set[str]:
        """Of "inside", "size" and "sign", those that are passed."""
        if self.ours is None:
            return set()
        low, high = self.claim.low, self.claim.high
        slack = _POINT if low == high else 0.0
        inside = low - slack <= self.ours <= high + slack
        size = low / 2 <= self.ours <= 2 * high if self.is_gain else 2 * low <= self.ours <= 2 * high
        sign = self.ours > 0 if self.is_gain else inside
        return {name for name, passed in (("inside", inside), ("size", inside or size), ("sign", sign)) if passed}


def score(results: Results, noisy: dict[str, Any], silent: dict[str, Any]) -> list[Outcome]:
    """Outcomes of the claims that need no other budget, partition, dimension or channel than the usual.

    Args:
        noisy: settings (snake_case) that make the reading; silent: the same where there is no noise.
    """
    used = Results([{**record, "settings": _used(record["settings"], "-")} for record in results.records])
    outcomes = []
    for claim in paper_claims():
        one, other = claim.one, claim.other
        if any(cell.get(key, usual) != usual for cell in (one, other) for key, usual in _SCORED.items()):
            continue
        if {one["channel"], other["channel"]} != {"dg"} or "num_coefficients" in one:
            continue
        settings = silent if one.get("noise_stddev") == 0.0 else noisy
        found = used.difference(claim.side, _used({**one, **settings}), _used({**other, **settings}))
        outcomes.append(Outcome(claim, 100 * found.mean if found.n else None))
    return outcomes


def _used(cell: dict[str, Any], joint: str = "_") -> dict[str, Any]:
    """The settings of a cell that have an effect on its variant."""
    names = (*_IDLE.get(cell.get("variant", Settings.variant), ()), "evaluate_every")
    idle = {name.replace("_", joint) for name in names}
    return {key: value for key, value in cell.items() if key not in idle}


def _main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument(
        "grids", nargs="+", type=Path, help="of one reading; one with noise-stddev = 0 in [fixed] is silent"
    )
    parser.add_argument("--results", type=Path, required=True)
    options = parser.parse_args(arguments)
    noisy: dict[str, Any] = {}
    silent: dict[str, Any] | None = None
    for grid in options.grids:
        fixed = {key.replace("-", "_"): value for key, value in tomllib.loads(grid.read_text())["fixed"].items()}
        if fixed.get("noise_stddev") == 0.0:
            silent = fixed
        else:
            noisy = fixed
    outcomes = score(Results(read_records(options.results)), noisy, silent or noisy)
    for outcome in outcomes:
        ours = "–" if outcome.ours is None else f"{outcome.ours:+.2f}"
        low, high = outcome.claim.low, outcome.claim.high
        print(f"{outcome.claim.text:45s} {low:+.2f} … {high:+.2f}  {ours:>7s}  {' '.join(sorted(outcome.grades))}")
    known = [outcome for outcome in outcomes if outcome.ours is not None]
    counts = ", ".join(f"{name} {sum(name in o.grades for o in known)}" for name in ("inside", "size", "sign"))
    print(f"{len(known)} of {len(outcomes)} claims: {counts}")
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
