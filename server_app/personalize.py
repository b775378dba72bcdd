"""After training: contexts of clients that joined since, and every connected client's model to its own disk.

No client trains. A client whose context is cached is not asked again (using it is free); a new one spends its one
context release, in its own ledger and in the run's.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, MessageType, RecordDict
from flwr.serverapp import Grid

from common import keys
from common.data.splits import is_future
from common.privacy.report import client_epsilon, finite
from common.protocol import COEFFICIENTS, MODEL, REPLY, REQUEST, Refusal
from common.rules import Rules
from server_app.contexts import ask_for_contexts
from server_app.federation import Federation, FederationError
from server_app.receiver import Receiver
from server_app.results import RunFolder
from server_app.state import ServerState
from server_app.summary import update_summary

log = logging.getLogger("papfl.server")
REPORT = "personalization.json"
_REPEATED = f"refused ({Refusal.REPEATED.name})"


def personalize(grid: Grid, rules: Rules, folder: RunFolder) -> dict[str, Any]:
    """Serve every client that is connected now; returns the report that `personalization.json` holds.

    Raises:
        ValueError: the folder's run has other settings.
        FederationError: nobody is connected.
    """
    state = ServerState(rules, folder)
    round = state.restore(exact=False)
    for fact in state.journal.read():  # an interrupted personalisation: its contexts are spent
        if fact["kind"] == "asked" and fact["round"] == 0:
            state.record(0, fact["clients"])
    lost = json.loads(folder.summary.read_text()).get("contexts_lost", [])
    federation = Federation(grid, state.settings)
    hellos, problems = federation.whoever_is_there()
    known = folder.read_clients()
    numbers = {key: client for client, key in known.items()}
    for client, hello in list(hellos.items()):
        key = bytes(hello["public-key"])
        if known.get(client, key) != key:
            problems.append(f"client {client} is not the one that had this number: it has another key")
            del hellos[client]
        elif numbers.get(key, client) != client:
            problems.append(f"client {client} has the key of client {numbers[key]}: one holder under two numbers")
            del hellos[client]
    if not hellos:
        raise FederationError(f"No client can be served: {'; '.join(problems) or 'nobody is connected'}.")
    # Kept until the end: a client repeats its bytes for the server that asked, and for no other.
    private_key = keys.load_or_create(folder.server_key)
    receiver = Receiver(rules, private_key, {client: bytes(hello["public-key"]) for client, hello in hellos.items()})
    clients: dict[int, str] = {}
    new = [c for c in sorted(hellos) if c not in state.generator.contexts and is_future(state.settings, c)]
    if new:
        contexts, replies = ask_for_contexts(state, federation, receiver, new)
        clients |= {client: f"no context: {reason}" for client, reason in replies.failed.items()}
        state.generator.set_contexts({**state.generator.contexts, **contexts})
        state.checkpoint(round)
        update_summary(state)
    clients |= _send_models(state, federation, hellos, round)
    for client in sorted(set(hellos) - set(clients)):
        clients[client] = "no context: its release was lost in training, and there is only one"
    report = {
        "run": state.settings.name,
        "round": round,
        "clients": {
            str(client): {
                "status": status,
                "joined_later": client in new,
                "epsilon": finite(client_epsilon(state.ledger, client, state.settings)),
            }
            for client, status in sorted(clients.items())
        },
        "problems": problems,
    }
    folder.write_json(REPORT, report)
    folder.write_clients({client: bytes(hello["public-key"]) for client, hello in hellos.items()})
    # A client whose context was asked for and did not arrive repeats its bytes for this key and for no other. One that lost
    # its context in training has spent it for a key that is gone.
    outstanding = state.ledger.spent_in(0) - set(state.generator.contexts) - set(lost)
    if not outstanding - {client for client, status in clients.items() if _REPEATED in status}:
        folder.server_key.unlink(missing_ok=True)
    return report


def _send_models(state: ServerState, federation: Federation, hellos: dict[int, Any], round: int) -> dict[int, str]:
    """a_i to every client with a context; returns "delivered" or why not."""
    served = [client for client in sorted(hellos) if client in state.generator.contexts]
    coefficients = {client: state.generator.coefficients(client) for client in served}
    requests = {
        client: RecordDict({COEFFICIENTS: ArrayRecord([coefficients[client]]), REQUEST: ConfigRecord({"round": round})})
        for client in served
    }
    replies = federation.ask(f"{MessageType.QUERY}.{MODEL}", requests, 0)
    result = {client: f"not delivered: {reason}" for client, reason in replies.failed.items()}
    for client, content in replies.accepted.items():
        digest = content.config_records[REPLY].get("sha256") if REPLY in content.config_records else None
        if not isinstance(digest, str):
            result[client] = "not delivered: the reply names no model"
            continue
        result[client] = "delivered"
        sent = hashlib.sha256(coefficients[client].tobytes()).hexdigest()[:12]
        log.info("client %d keeps its model %s (coefficients %s)", client, digest[:12], sent)
    return result
