"""Presets: named values for settings that are left at their default.

A setting with another value wins over the preset. Flower does not tell an explicit default from an absent one, so a
setting that is *given* its default counts as left at it; `papfl run` refuses that combination.
"""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    # The published system, with the defaults of docs/method.md section 10 where the paper is silent.
    "paper": {},
    # The same job in a few minutes on two cores: fewer rounds, everything else real.
    "quick": {"num-rounds": 250},
}

# Why a preset has a value, for `papfl explain`.
REASONS: dict[str, dict[str, str]] = {"quick": {"num-rounds": "half of the paper's: a few minutes on two cores"}}
