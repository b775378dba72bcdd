"""A client's record of its own releases: it, not the server, refuses what must not be released.

Rules (docs/architecture.md, "Events"): the client commits an event *before* it encodes; the same event gives the same
bytes again; the same round with another request is refused; a committed event without stored bytes is refused and
stays counted as spent; a release beyond the budget is refused whatever the server asks.
"""

from __future__ import annotations

import json
from typing import Protocol

from flwr.app import ConfigRecord, RecordDict

from common.privacy.accountant import Accountant, worst_record_rho
from common.privacy.events import GaussianRelease
from common.protocol import Refusal, RequestRefused

# ε is compared with this relative slack: the plan and the ledger sum the same numbers in different orders.
_SLACK = 1.0 + 1e-9


class ReleaseLedger(Protocol):
    """What a client needs of its ledger."""

    def events(self) -> list[GaussianRelease]:
        """Everything spent, in order."""

    def stored(self, digest: str, round: int) -> bytes | None:
        """Bytes of this very event if it was released before; None if its round is unspent.

        Raises:
            RequestRefused: the round was spent with another request, or its bytes are gone.
        """

    def commit(self, digest: str, event: GaussianRelease) -> None:
        """Spend `event`, before anything is computed from the records."""

    def finish(self, digest: str, message: bytes) -> None:
        """Keep the bytes of a committed event, to answer a repeated request."""


class StateLedger:
    """A ledger in Flower's per-client state: lives as long as the run (simulation) or the node process.

    Only the latest event's bytes are kept: a server asks again for the round in progress or not at all.
    """

    def __init__(self, state: RecordDict) -> None:
        if "ledger" not in state.config_records:
            state.config_records["ledger"] = ConfigRecord({"entries": "[]", "latest": "", "message": b""})
        self._record = state.config_records["ledger"]

    def _entries(self) -> list[dict[str, object]]:
        entries: list[dict[str, object]] = json.loads(str(self._record["entries"]))
        return entries

    def events(self) -> list[GaussianRelease]:
        """See `ReleaseLedger.events`."""
        return [GaussianRelease.from_json(entry["event"]) for entry in self._entries()]  # type: ignore[arg-type]

    def stored(self, digest: str, round: int) -> bytes | None:
        """See `ReleaseLedger.stored`."""
        spent = {entry["event"]["round"]: entry["digest"] for entry in self._entries()}  # type: ignore[index]
        if round not in spent:
            return None
        if spent[round] != digest:
            raise RequestRefused(Refusal.REPEATED, f"round {round} was spent with another request")
        message = self._record["message"]
        if self._record["latest"] != digest or not isinstance(message, bytes) or not message:
            raise RequestRefused(Refusal.REPEATED, f"round {round} was spent and its message is gone")
        return message

    def commit(self, digest: str, event: GaussianRelease) -> None:
        """See `ReleaseLedger.commit`."""
        entries = self._entries()
        entries.append({"digest": digest, "event": event.to_json()})
        self._record["entries"] = json.dumps(entries)
        self._record["latest"], self._record["message"] = digest, b""

    def finish(self, digest: str, message: bytes) -> None:
        """See `ReleaseLedger.finish`."""
        if self._record["latest"] != digest:
            raise ValueError(f"only the latest event can be finished. Received {digest}.")
        self._record["message"] = message


def check_budget(
    ledger: ReleaseLedger, event: GaussianRelease, accountant: Accountant, delta: float, budget: float
) -> None:
    """Refuse a release that would take this client beyond its budget.

    Raises:
        RequestRefused: ε after the release would exceed `budget`.
    """
    epsilon = accountant.epsilon(worst_record_rho([*ledger.events(), event]), delta)
    if epsilon > budget * _SLACK:
        raise RequestRefused(Refusal.BUDGET, f"epsilon would be {epsilon:.6g}, the budget is {budget:.6g}")
