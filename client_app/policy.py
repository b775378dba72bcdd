"""What a data holder refuses, whatever the run's settings say. Its keys are those of the node's configuration (`node`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from common.privacy.accountant import GdpAccountant, worst_record_rho
from common.privacy.events import GaussianRelease
from common.protocol import Refusal, RequestRefused
from common.rules import Rules

# ε is compared with this relative slack: plan and ledger sum the same numbers in different orders.
_SLACK = 1.0 + 1e-8
# What a data holder's own budget is measured with: exact, so that it is the same over runs with different accountants.
OWN_ACCOUNTANT = GdpAccountant()
DEFAULT_DELTA = 1e-5


@dataclass(frozen=True)
class Policy:
    """A data holder's own limits.

    Attributes:
        budget: largest ε of all releases of these records, at `delta`, by exact accounting whatever a run accounts
            with; infinite: the run's own budget alone holds.
        max_delta: largest δ of a run, and that of the budget; None: 1e-5 where there is a budget, any where there is none.
        diagnostics: whether noiseless diagnostics may leave this client.
        deterministic: whether a run without any privacy (public noise, or none) may be served.
    """

    budget: float = math.inf
    max_delta: float | None = None
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
        if settings.delta > self.delta:
            raise RequestRefused(Refusal.BUDGET, f"delta {settings.delta:g} is above this client's {self.delta:g}")
        limits = (
            (of_run, rules.accountant, settings.delta, rules.budget, "run"),
            (of_all, OWN_ACCOUNTANT, self.delta, self.budget, "client"),
        )
        for events, accountant, delta, limit, whose in limits[: 2 if math.isfinite(self.budget) else 1]:
            epsilon = accountant.epsilon(worst_record_rho(events), delta)
            if epsilon > limit * _SLACK:
                raise RequestRefused(
                    Refusal.BUDGET,
                    f"epsilon would be {epsilon:.6g} at delta {delta:g} by {accountant.name}, the {whose}'s is {limit:.6g}"
                    + _moved(events),
                )

    @property
    def delta(self) -> float:
        """Largest δ that is accepted: that of the budget, where there is one."""
        if self.max_delta is not None:
            return self.max_delta
        return DEFAULT_DELTA if math.isfinite(self.budget) else 1.0


def _moved(events: Sequence[GaussianRelease]) -> str:
    orders = {event.order for event in events if event.records is not None}
    return " (records have come to other positions, so every release counts for all of them)" if len(orders) > 1 else ""
