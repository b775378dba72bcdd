"""The one-shot context phase: ask every client once, cache what comes back, never ask again."""

from __future__ import annotations

import logging
from collections.abc import Collection

import numpy as np
from flwr.app import ConfigRecord, MessageType, RecordDict

from common.protocol import CONTEXT, REQUEST
from server_app.federation import Federation, FederationError, Replies
from server_app.receiver import Receiver
from server_app.state import ServerState

log = logging.getLogger("papfl.server")


def release_contexts(
    state: ServerState,
    federation: Federation,
    receiver: Receiver,
    present: Collection[int],
    lost: frozenset[int] = frozenset(),
) -> None:
    """Query the private context of every client (eq. 2) and give them to the generator.

    A client that fails goes without a model; its release counts as spent all the same.

    Args:
        present: clients that said hello.
        lost: clients whose release was spent before an interruption and cannot be repeated.

    Raises:
        FederationError: no participating client can release a context, or a worker process died.
    """
    clients = [client for client in sorted(present) if client not in lost]
    if not any(client < state.settings.num_participating for client in clients):
        raise FederationError(
            f"The contexts of clients {sorted(lost)} were spent before an interruption and never arrived; they are not "
            "released twice. Start a new run under another run-name."
        )
    if lost:
        log.warning("contexts of clients %s were spent and lost: these clients go without a model", sorted(lost))
    contexts, replies = ask_for_contexts(state, federation, receiver, clients)
    if replies.worker_died:
        raise FederationError("A worker process died while contexts were released; what it held is spent and lost.")
    if not any(client < state.settings.num_participating for client in contexts):
        causes = "; ".join(sorted(set(replies.failed.values())))
        raise FederationError(f"No participating client released a context: {causes}.")
    state.generator.set_contexts(contexts)


def ask_for_contexts(
    state: ServerState, federation: Federation, receiver: Receiver, clients: list[int]
) -> tuple[dict[int, np.ndarray], Replies]:
    """Spend, then ask: decoded contexts (client → (2s,) float64), and the replies with those that failed."""
    state.spend(0, clients)
    requests = {
        client: RecordDict(
            {REQUEST: ConfigRecord({**state.rules.mechanism.terms(client, 0), "public-key": receiver.public_key})}
        )
        for client in clients
    }
    replies = federation.ask(f"{MessageType.QUERY}.{CONTEXT}", requests, 0)
    return receiver.context(replies), replies
