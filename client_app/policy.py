"""What a data holder refuses, whatever the run's settings say. Its keys are those of the node's configuration (`node`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from common.privacy.accountant import worst_record_rho
from common.privacy.events import GaussianRelease
from common.protocol import Refusal, RequestRefused
from common.rules import Rules

# ε is compared with this relative slack: plan and ledger sum the same numbers in different orders.
_SLACK = 1.0 + 1e-8


@dataclass(frozen=True)
class Policy:
    """A data holder's own limits.

    Attributes:
        budget: largest ε; infinite: the run's own budget alone holds.
        max_delta: largest δ of a run's accounting, where there is a budget.
        diagnostics: whether noiseless diagnostics may leave this client.
        deterministic: whether a run without any privacy (public noise, or none) may be served.
    """

    budget: float = math.inf
    max_delta: float = 1e-5
    diagnostics: bool = True
    deterministic: bool = True

    def check(self, rules: Rules, of_run: Sequence[GaussianRelease], of_all: Sequence[GaussianRelease]) -> None:
        """Refuse what would exceed the run's budget or this client's own.

        Args:
            of_run: everything spent in this run, with the release in question.
            of_all: everything spent in any run on these records, with the release in question.

        Raises:
            RequestRefused: over budget, or a run whose accounting would make the budget meaningless.
        """
        settings = rules.settings
        if settings.deterministic or settings.noise_stddev == 0:
            if math.isfinite(self.budget) or not self.deterministic:
                raise RequestRefused(Refusal.BUDGET, "the run's noise is public or none, so it has no guarantee")
            return
        if math.isfinite(self.budget) and settings.delta > self.max_delta:
            raise RequestRefused(Refusal.BUDGET, f"delta {settings.delta:g} is above this client's {self.max_delta:g}")
        for events, limit, whose in ((of_run, rules.budget, "run"), (of_all, self.budget, "client")):
            epsilon = rules.accountant.epsilon(worst_record_rho(events), settings.delta)
            if epsilon > limit * _SLACK:
                raise RequestRefused(Refusal.BUDGET, f"epsilon would be {epsilon:.6g}, the {whose}'s is {limit:.6g}")
