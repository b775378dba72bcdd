"""The one-shot context phase: ask every client once, cache what comes back, never ask again."""

from __future__ import annotations

import logging

from flwr.app import ConfigRecord, MessageType, RecordDict

from common.protocol import CONTEXT, REQUEST
from server_app.federation import Federation, FederationError
from server_app.receiver import Receiver
from server_app.state import ServerState

log = logging.getLogger("papfl.server")


def release_contexts(
    state: ServerState, federation: Federation, receiver: Receiver, lost: frozenset[int] = frozenset()
) -> None:
    """Query the private context of every client (eq. 2) and give them to the generator.

    A client that fails goes without a model; its release counts as spent all the same.

    Args:
        lost: clients whose release was spent before an interruption and cannot be repeated.

    Raises:
        FederationError: no participating client can release a context, or a worker process died.
    """
    clients = [client for client in range(state.settings.num_clients) if client not in lost]
    if not any(client < state.settings.num_participating for client in clients):
        raise FederationError(
            f"The contexts of clients {sorted(lost)} were spent before an interruption and never arrived; they are not "
            "released twice. Start a new run under another run-name."
        )
    if lost:
        log.warning("contexts of clients %s were spent and lost: these clients go without a model", sorted(lost))
    state.spend(0, clients)
    request = ConfigRecord({"noise-stddev": state.rules.plan.context_noise_stddev, "public-key": receiver.public_key})
    requests = {client: RecordDict({REQUEST: request}) for client in clients}
    replies = federation.ask(f"{MessageType.QUERY}.{CONTEXT}", requests, 0)
    if replies.worker_died:
        raise FederationError("A worker process died while contexts were released; what it held is spent and lost.")
    contexts = receiver.context(replies)
    if not any(client < state.settings.num_participating for client in contexts):
        causes = "; ".join(sorted(set(replies.failed.values())))
        raise FederationError(f"No participating client released a context: {causes}.")
    state.generator.set_contexts(contexts)
