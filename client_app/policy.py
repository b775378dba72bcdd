"""What a data holder decides for itself, from its own node's configuration, whatever the run's settings say.

Keys of Flower's node configuration: `epsilon-budget` (largest ε of all releases of these records), `max-delta` (largest δ that
a run may account with; 1e-5), `diagnostics` ("public-data" or "off"). A node with a budget or a state directory of its own is a
deployment: there, noiseless diagnostics are off unless it says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.privacy.accountant import ACCOUNTANTS, worst_record_rho
from common.privacy.events import GaussianRelease
from common.protocol import Refusal, RequestRefused
from common.rules import Rules
from common.validation import number, one_of

# ε is compared with this relative slack: plan and ledger sum the same numbers in different orders.
_SLACK = 1.0 + 1e-8


@dataclass(frozen=True)
class Policy:
    """A data holder's own limits.

    Attributes:
        budget: largest ε; infinite: the run's own budget alone holds.
        max_delta: largest δ of a run's accounting, where there is a budget.
        diagnostics: whether noiseless diagnostics may leave this client.
    """

    budget: float = math.inf
    max_delta: float = 1e-5
    diagnostics: bool = True

    @classmethod
    def from_node(cls, node_config: Mapping[str, Any]) -> Policy:
        """From a node's configuration.

        Raises:
            ValueError: a value out of range, named.
        """
        deployed = "epsilon-budget" in node_config or "state-dir" in node_config
        budget = math.inf
        if "epsilon-budget" in node_config:
            budget = number("epsilon-budget", node_config["epsilon-budget"], above=0.0)
        choice = one_of(
            "diagnostics", node_config.get("diagnostics", "off" if deployed else "public-data"), ("public-data", "off")
        )
        max_delta = number("max-delta", node_config.get("max-delta", 1e-5), above=0.0, below=1.0)
        return cls(budget, max_delta, choice == "public-data")

    def check(self, rules: Rules, of_run: Sequence[GaussianRelease], of_all: Sequence[GaussianRelease]) -> None:
        """Refuse what would exceed the run's budget or this client's own.

        Args:
            of_run: everything spent in this run, with the release in question.
            of_all: everything spent in any run on these records, with the release in question.

        Raises:
            RequestRefused: over budget, or a run whose accounting would make the budget meaningless.
        """
        settings = rules.settings
        if math.isfinite(self.budget):
            if settings.deterministic:
                raise RequestRefused(Refusal.BUDGET, "a deterministic run has public noise and no guarantee")
            if settings.delta > self.max_delta:
                raise RequestRefused(
                    Refusal.BUDGET, f"delta {settings.delta:g} is above this client's {self.max_delta:g}"
                )
        accountant = ACCOUNTANTS[settings.accountant]
        for events, limit, whose in ((of_run, rules.budget, "run"), (of_all, self.budget, "client")):
            epsilon = accountant.epsilon(worst_record_rho(events), settings.delta)
            if epsilon > limit * _SLACK:
                raise RequestRefused(Refusal.BUDGET, f"epsilon would be {epsilon:.6g}, the {whose}'s is {limit:.6g}")
