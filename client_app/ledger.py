"""A client's record of its own releases: it, not the server, refuses what must not be released.

Rules (docs/architecture.md, "Events"): the client commits an event *before* it encodes; the same event gives the same
bytes again; the same round with another request is refused; a committed event without stored bytes is refused and
stays counted as spent; a release beyond the budget is refused whatever the server asks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Protocol

from flwr.app import ConfigRecord, RecordDict

from common.privacy.events import GaussianRelease
from common.privacy.packed import Groups, add, unpack
from common.protocol import Refusal, RequestRefused


class ReleaseLedger(Protocol):
    """What a client needs of its ledger. An implementation makes `commit` one transaction: deployment starts a process
    per message, and two of them must not both pass the check."""

    def events(self, run: str | None = None) -> list[GaussianRelease]:
        """Everything spent, in order: over all runs on these records, or in one of them."""

    def stored(self, run: str, digest: str, round: int) -> bytes | None:
        """Bytes of this very event if it was released before; None if its round of the run is unspent.

        Raises:
            RequestRefused: the round was spent with another request, or its bytes are gone.
        """

    def commit(self, run: str, digest: str, event: GaussianRelease, check: Check) -> None:
        """Spend `event`, before anything is computed from the records.

        Args:
            check: refuses by raising.

        Raises:
            RequestRefused: refused by `check`, or the round of the run is spent.
        """

    def finish(self, digest: str, message: bytes) -> None:
        """Keep the bytes of a committed event, to answer a repeated request."""


# Called with the events of the run and with those of all runs, both including the new one.
Check = Callable[[Sequence[GaussianRelease], Sequence[GaussianRelease]], None]


class StateLedger:
    """A ledger in Flower's per-client state: lives as long as the run.

    Only the latest event's bytes are kept: a server asks again for the round in progress or not at all.
    """

    def __init__(self, state: RecordDict) -> None:
        if "ledger" not in state.config_records:
            state.config_records["ledger"] = ConfigRecord({"entries": "{}", "latest": "", "message": b""})
        self._record = state.config_records["ledger"]
        # Run → releases (`common.privacy.packed`); read once, since a message has a ledger object of its own.
        self._runs: dict[str, Groups] = json.loads(str(self._record["entries"]))

    def events(self, run: str | None = None) -> list[GaussianRelease]:
        """See `ReleaseLedger.events`."""
        return [event for name, groups in self._runs.items() if run in (None, name) for event in unpack(groups)]

    def stored(self, run: str, digest: str, round: int) -> bytes | None:
        """See `ReleaseLedger.stored`."""
        if not self._is_spent(run, round):
            return None
        if self._record["latest"] != digest:
            raise RequestRefused(
                Refusal.REPEATED, f"round {round} was spent with another request, or its message is gone"
            )
        message = self._record["message"]
        if not isinstance(message, bytes) or not message:
            raise RequestRefused(Refusal.REPEATED, f"round {round} was spent and its message is gone")
        return message

    def commit(self, run: str, digest: str, event: GaussianRelease, check: Check) -> None:
        """See `ReleaseLedger.commit`."""
        if self._is_spent(run, event.round):
            raise RequestRefused(Refusal.REPEATED, f"round {event.round} was spent")
        of_run = [*self.events(run), event]
        check(of_run, of_run if set(self._runs) <= {run} else [*self.events(), event])
        add(self._runs.setdefault(run, []), event)
        self._record["entries"] = json.dumps(self._runs)
        self._record["latest"], self._record["message"] = digest, b""

    def finish(self, digest: str, message: bytes) -> None:
        """See `ReleaseLedger.finish`."""
        if self._record["latest"] != digest:
            raise ValueError(f"only the latest event can be finished. Received {digest}.")
        self._record["message"] = message

    def _is_spent(self, run: str, round: int) -> bool:
        return any(round in group["rounds"] for group in self._runs.get(run, []))
