"""What a run may claim: ε per client from its ledger, the guarantee in words, and what ε does not cover."""

import math
from typing import Any

from common.data.splits import is_future
from common.privacy.accountant import ACCOUNTANTS, worst_record_rho
from common.privacy.events import Ledger
from common.settings import Settings


def client_epsilon(ledger: Ledger, client: int, settings: Settings) -> float:
    """ε of everything that `client` has released, at the settings' δ and by their accountant."""
    accountant = ACCOUNTANTS[settings.accountant]
    return accountant.epsilon(worst_record_rho(ledger.of(client)), settings.delta)


def guarantee(settings: Settings) -> str:
    """The claim in one line."""
    if settings.deterministic:
        return "none (reproduction): noise and keys derive from the public seed"
    if settings.noise_stddev == 0:
        return "none: the run adds no noise"
    return f"central record-level (epsilon, {settings.delta:g})-DP, replace-one, trusted server"


def outside_epsilon(settings: Settings) -> list[str]:
    """What ε does not cover (docs/method.md, section 5)."""
    items = [
        "choosing settings by looking at runs on the same records",
        "an adversary who holds keys or seeds together with transcripts",
        "floating point: noise and sums are finite-precision",
    ]
    if settings.diagnostics != "off":
        items.insert(
            0,
            "noiseless diagnostics, functions of private records: accuracy, loss, update norm, clipped fraction, "
            "non-finite records, timings, label counts, commonest-label accuracy",
        )
    if settings.channel.startswith("lrsuq"):
        items.append("headers and lengths of LRSUQ messages: functions of the un-noised update")
    return items


def cautions(settings: Settings) -> list[str]:
    """What makes a claim weaker than it looks."""
    records = settings.num_clients * settings.records_per_client
    if settings.delta * records <= 1:
        return []
    return [
        f"delta = {settings.delta:g} is above 1/{records}, one over the records of the federation: publishing some record "
        "in full would satisfy it. Choose a smaller delta"
    ]


def finite(epsilon: float) -> float | None:
    """JSON has no infinity: None stands for "no guarantee"."""
    return epsilon if math.isfinite(epsilon) else None


def privacy_report(ledger: Ledger, settings: Settings) -> dict[str, Any]:
    """ε of every client and the maxima, from the ledger: what was spent, whatever was planned. None: unbounded."""
    epsilons = {
        client: client_epsilon(ledger, client, settings)
        for client in sorted({*range(settings.num_clients), *ledger.clients()})
    }
    participating = [value for client, value in epsilons.items() if not is_future(settings, client)]
    future = [value for client, value in epsilons.items() if is_future(settings, client)]
    return {
        "guarantee": guarantee(settings),
        "accountant": settings.accountant,
        "delta": settings.delta,
        "epsilon": finite(max(epsilons.values(), default=0.0)),
        "epsilon_participating": finite(max(participating, default=0.0)),
        "epsilon_future": finite(max(future, default=0.0)),
        "epsilon_per_client": {str(client): finite(value) for client, value in epsilons.items()},
        "outside_epsilon": outside_epsilon(settings),
        "cautions": cautions(settings),
    }
