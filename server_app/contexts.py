"""The one-shot context phase: ask every client once, cache what comes back, never ask again."""

from __future__ import annotations

from flwr.app import ConfigRecord, MessageType, RecordDict

from common.protocol import CONTEXT, REQUEST
from server_app.federation import Federation, FederationError
from server_app.receiver import Receiver
from server_app.state import ServerState


def release_contexts(
    state: ServerState, federation: Federation, receiver: Receiver, lost: frozenset[int] = frozenset()
) -> None:
    """Query the private context of every client (eq. 2) and give them to the generator.

    A client that fails goes without a model; its release counts as spent all the same.

    Args:
        lost: clients whose release was spent before an interruption and cannot be repeated.

    Raises:
        FederationError: no participating client released a context, or releases were lost.
    """
    if lost:
        raise FederationError(
            f"The contexts of clients {sorted(lost)} were spent before an interruption and never arrived; they are not "
            "released twice. Start a new run under another run-name."
        )
    clients = list(range(state.settings.num_clients))
    state.spend(0, clients)
    request = ConfigRecord({"noise-stddev": state.rules.plan.context_noise_stddev, "public-key": receiver.public_key})
    requests = {client: RecordDict({REQUEST: request}) for client in clients}
    replies = federation.ask(f"{MessageType.QUERY}.{CONTEXT}", requests, 0)
    contexts = receiver.context(replies)
    if not any(client < state.settings.num_participating for client in contexts):
        causes = "; ".join(sorted(set(replies.failed.values())))
        raise FederationError(f"No participating client released a context: {causes}.")
    state.generator.set_contexts(contexts)
