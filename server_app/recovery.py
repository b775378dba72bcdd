"""After an interruption: last checkpoint, then the journal. No client is asked for what has arrived before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common.privacy.events import Ledger
from common.validation import integer
from server_app.journal import unpack_array
from server_app.state import ServerState

BEFORE_CONTEXTS = -1


class CannotResume(ValueError):
    """The run's folder cannot be continued here, with the reason."""


@dataclass(frozen=True)
class Recovered:
    """Where a run stands.

    Attributes:
        round: last completed round; 0 after the contexts, `BEFORE_CONTEXTS` before them.
        lost: round → clients whose release was asked for, never arrived, and cannot be repeated: their own ledger did
            not survive, so asking again would be a second release. They stay spent.
    """

    round: int = BEFORE_CONTEXTS
    lost: Mapping[int, frozenset[int]] = field(default_factory=dict)


def recover(
    state: ServerState, hellos: Mapping[int, Mapping[str, Any]], finish_round: Callable[[int, dict[str, Any]], None]
) -> Recovered:
    """Bring `state` to where the run's folder stands.

    Args:
        hellos: what the connected clients said, by partition id.
        finish_round: called after each replayed round with its metrics: evaluates where due and writes them.

    Raises:
        CannotResume: checkpoint of other settings, software or processor; damaged checkpoint or journal.
    """
    try:
        return _recover(state, hellos, finish_round)
    except ValueError as error:
        raise CannotResume(str(error)) from error


def _recover(
    state: ServerState, hellos: Mapping[int, Mapping[str, Any]], finish_round: Callable[[int, dict[str, Any]], None]
) -> Recovered:
    folder, last = state.folder, BEFORE_CONTEXTS
    if folder.checkpoint.exists():
        last = state.restore()
    written = folder.last_round()
    folder.truncate_metrics(last)
    asked: dict[int, list[int]] = {}
    for fact in map(_checked, state.journal.read()):
        round = fact["round"]
        if round <= last:  # interrupted between a checkpoint and the clearing of the journal
            continue
        if fact["kind"] == "asked":
            state.record(round, fact["clients"])
            asked[round] = fact["clients"]
        else:
            updates = {int(client): unpack_array(text) for client, text in fact["updates"].items()}
            if round != last + 1 or last == BEFORE_CONTEXTS or not set(updates) <= state.ledger.spent_in(round):
                raise ValueError(f"journal: round {round} was accepted without what came before it; a part is lost")
            if any(update.shape != (state.rules.space.dim,) for update in updates.values()):
                raise ValueError(f"journal: updates of round {round} must have {state.rules.space.dim} coordinates")
            key = bytes.fromhex(fact["noise_key"]) if "noise_key" in fact else None
            if (key is not None) != (state.rules.mechanism.server_noise(round) > 0):
                raise ValueError(f"journal: round {round} does not have the server noise of these settings")
            state.apply(round, updates, fact["row"], key)
            finish_round(round, fact["row"])
            asked.pop(round, None)
            last = round
    if written > max(last, 0):
        raise ValueError(
            f"{folder.path} has metrics of round {written}, but checkpoint and journal end at round {max(last, 0)}: what was "
            "released in between would be counted as never released. Restore them from a back-up, or start a new run."
        )
    lost = {
        round: frozenset(client for client in clients if not _can_repeat(state, hellos.get(client), client, round))
        for round, clients in asked.items()
    }
    return Recovered(last, lost)


def spent_so_far(state: ServerState) -> Ledger:
    """Every release that an unfinished run has asked for, from its checkpoint and journal.

    Raises:
        CannotResume: damaged checkpoint or journal.
    """
    try:
        if state.folder.checkpoint.exists():
            state.restore(exact=False)
        for fact in map(_checked, state.journal.read()):
            if fact["kind"] == "asked":
                state.record(fact["round"], fact["clients"])
    except ValueError as error:
        raise CannotResume(str(error)) from error
    return state.ledger


def _can_repeat(state: ServerState, hello: Mapping[str, Any] | None, client: int, round: int) -> bool:
    """True if asking again brings the same bytes: the client's own ledger is still there, or the run is deterministic
    (a fresh ledger then computes the same bytes)."""
    if hello is None:  # a future client that is not connected now
        return False
    if state.settings.deterministic:
        return True
    earlier = sum(event.round < round for event in state.ledger.of(client))
    return int(hello["num-events"]) >= max(earlier, 1)


def _checked(fact: Any) -> dict[str, Any]:
    """A fact of the journal with the parts that it must have.

    Raises:
        ValueError: it is something else.
    """
    kinds: dict[str, dict[str, type]] = {"asked": {"clients": list}, "accepted": {"updates": dict, "row": dict}}
    kind = fact.get("kind") if isinstance(fact, dict) else None
    parts = kinds.get(kind) if isinstance(kind, str) else None
    if parts is None or not all(isinstance(fact.get(name), wanted) for name, wanted in parts.items()):
        raise ValueError(f"journal must hold asked and accepted releases. Received {str(fact)[:80]!r}.")
    integer("round of a journal's fact", fact.get("round"), at_least=0)
    clients = fact["clients"] if kind == "asked" else [int(client) for client in fact["updates"]]
    for client in clients:
        integer("client of a journal's fact", client, at_least=0)
    if kind == "accepted" and not all(isinstance(text, str) for text in fact["updates"].values()):
        raise ValueError("journal: updates must be text")
    if not isinstance(fact.get("noise_key", ""), str):
        raise ValueError("journal: noise_key must be text")
    return dict(fact)
