"""Presets: named values for settings that are left at their default. Explicit settings win over them."""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    # The published system, with the defaults of docs/method.md section 10 where the paper is silent.
    "paper": {},
    # The same job in a few minutes on two cores: fewer rounds, everything else real.
    "quick": {"num-rounds": 100, "evaluate-every": 25},
}
