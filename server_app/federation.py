"""Talking to clients by partition id: node ids are random and registration races, so the mapping is learnt first."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from common import keys
from common.command import flwr_command
from common.protocol import FLOWER_WORKER_DIED, HELLO, REPLY, REQUEST, Refusal
from common.settings import Settings
from common.validation import integer

log = logging.getLogger("papfl.server")


_POLL_SECONDS = 0.2
_HINT = (
    "In a deployment, start them; their logs say why they are not there. In simulation `papfl run` makes all clients, and by "
    "hand this does:"
)


class FederationError(RuntimeError):
    """The federation cannot serve the run: wrong size, clients that refuse, or a dead worker pool."""


@dataclass
class Replies:
    """What came back for one request, by partition id."""

    accepted: dict[int, RecordDict] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    worker_died: bool = False

    def reject(self, client: int, reason: str) -> None:
        """Move a reply to the failures."""
        self.accepted.pop(client, None)
        self.failed[client] = reason
        log.warning("client %d: %s", client, reason)


class Federation:
    """The clients of a run behind a Flower grid."""

    def __init__(self, grid: Grid, settings: Settings) -> None:
        self._grid, self._settings = grid, settings
        self._nodes: dict[int, int] = {}
        # Flower's in-memory grid polls every 0.1 s by default, as long as a whole round of ours.
        if hasattr(grid, "pull_interval"):
            grid.pull_interval = 0.01

    def join(self) -> dict[int, dict[str, Any]]:
        """Wait for the run's clients and learn who they are: partition id → their hello.

        Raises:
            FederationError: another number of clients than the settings say, an incomplete set of partition ids, or a
                client that refuses.
        """
        complete = self._wait()
        patience = self._settings.round_timeout
        if not complete:  # who is there says who is missing, and at once: nobody waits for a node that hangs
            patience = min(patience, self._settings.federation_timeout)
        hellos, problems = self._greet(patience)
        wanted = set(range(self._required))
        missing, surplus = sorted(wanted - set(hellos)), sorted(set(hellos) - wanted)
        said = [f"Missing {_some(missing)}"] if missing else []
        if surplus and self._settings.require_future:
            said.append(f"not in this run {_some(surplus)}")
        if said or problems:
            hint = "The clients' logs say why." if complete else f"{_HINT}\n  {flwr_command(self._settings)}"
            raise FederationError(
                f"The federation must have {'' if self._settings.require_future else 'at least '}partition ids 0 to {self._required - 1}. Received {len(hellos)} clients. "
                f"{'; '.join([*said, *problems])}. {hint}"
            )
        return hellos

    def whoever_is_there(self) -> tuple[dict[int, dict[str, Any]], list[str]]:
        """Hellos of the clients that are connected now, and what was wrong with the others."""
        deadline = time.monotonic() + self._settings.federation_timeout
        while not list(self._grid.get_node_ids()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return self._greet(self._settings.round_timeout)

    @property
    def _required(self) -> int:
        """Clients 0 to this must be there."""
        return self._settings.num_clients if self._settings.require_future else self._settings.num_participating

    def _greet(self, timeout: float) -> tuple[dict[int, dict[str, Any]], list[str]]:
        kind = f"{MessageType.QUERY}.{HELLO}"
        nodes = sorted(self._grid.get_node_ids())
        messages = [Message(RecordDict({REQUEST: ConfigRecord()}), node, kind, group_id="0") for node in nodes]
        hellos: dict[int, dict[str, Any]] = {}
        problems: list[str] = []
        doubtful: set[int] = set()
        for reply in self._grid.send_and_receive(messages, timeout=timeout) if messages else ():
            if reply.has_error():
                problems.append(_describe(reply))
                continue
            try:
                hello = _read_hello(reply)
            except ValueError as error:
                problems.append(str(error))
                continue
            client = hello["partition-id"]
            if client in hellos or client in doubtful:
                if self._nodes[client] != reply.metadata.src_node_id:
                    problems.append(f"two clients claim partition-id {client}")
                    doubtful.add(client)  # neither is believed: a model must not go to the wrong holder
                    hellos.pop(client, None)
                continue
            hellos[client] = hello
            self._nodes[client] = reply.metadata.src_node_id
        for clients in _of_one_key(hellos):
            problems.append(
                f"clients {', '.join(map(str, clients))} have one key: one holder under several numbers, whose records would "
                "pay several times (a copied state-dir?)"
            )
            for client in clients:
                hellos.pop(client)
        return hellos, sorted(set(problems))

    def connected(self, client: int) -> bool:
        """True for a client that said hello."""
        return client in self._nodes

    def messages(self, kind: str, requests: Mapping[int, RecordDict], round: int) -> list[Message]:
        """One message to each client of `requests`."""
        return [
            Message(content, self._nodes[client], kind, group_id=str(round)) for client, content in requests.items()
        ]

    def collect(self, replies: Iterable[Message], asked: Collection[int], round: int) -> Replies:
        """Sort replies by client. Late, duplicated and foreign ones are rejected by name; missing ones are failures."""
        result = Replies()
        clients = {self._nodes[client]: client for client in asked}
        for reply in replies:
            client = clients.get(reply.metadata.src_node_id, -1)
            if client < 0:
                log.warning("reply from node %d, which was not asked", reply.metadata.src_node_id)
            elif reply.metadata.group_id != str(round):
                log.warning(
                    "client %d: rejected a reply of round %s in round %d", client, reply.metadata.group_id, round
                )
            elif client in result.accepted or client in result.failed:
                log.warning("client %d: rejected a second reply in round %d", client, round)
            elif reply.has_error():
                result.reject(client, _describe(reply))
                result.worker_died |= reply.error.code == FLOWER_WORKER_DIED
            else:
                result.accepted[client] = reply.content
        for client in asked:
            if client not in result.accepted and client not in result.failed:
                result.reject(client, f"no reply within {self._settings.round_timeout:g} s")
        return result

    def ask(self, kind: str, requests: Mapping[int, RecordDict], round: int) -> Replies:
        """Send one request to each client and collect what comes back within the round timeout."""
        messages = self.messages(kind, requests, round)
        replies = self._grid.send_and_receive(messages, timeout=self._settings.round_timeout)
        return self.collect(replies, requests, round)

    def _wait(self) -> bool:
        """Until enough clients are there: all of them, or at least the participating ones. False: not in time."""
        settings = self._settings

        def complete(count: int) -> bool:
            return count == settings.num_clients if settings.require_future else count >= self._required

        deadline = time.monotonic() + settings.federation_timeout
        count = len(list(self._grid.get_node_ids()))
        while not complete(count) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            count = len(list(self._grid.get_node_ids()))
        return complete(count)


def _some(clients: list[int]) -> str:
    return f"{clients[:10]}{'...' if len(clients) > 10 else ''}"


def _of_one_key(hellos: Mapping[int, Mapping[str, Any]]) -> list[list[int]]:
    """Clients that have the same public key, where several do."""
    by_key: dict[bytes, list[int]] = {}
    for client, hello in sorted(hellos.items()):
        by_key.setdefault(bytes(hello["public-key"]), []).append(client)
    return [clients for clients in by_key.values() if len(clients) > 1]


def _describe(reply: Message) -> str:
    code = reply.error.code
    if code in {int(refusal) for refusal in Refusal}:
        return f"refused ({Refusal(code).name})"
    return "worker process died (Flower code 0)" if code == FLOWER_WORKER_DIED else f"failed (Flower code {code})"


def _read_hello(reply: Message) -> dict[str, Any]:
    """What a client said of itself, as far as it can be used: whatever else it says may not be of another type.

    Raises:
        ValueError: no usable number or key; the run cannot go on with this client.
    """
    records = reply.content.config_records
    hello = dict(records[REPLY]) if REPLY in records else {}
    client = integer("partition-id of a client", hello.get("partition-id"), at_least=0, at_most=2**32 - 1)
    if not keys.is_usable(hello.get("public-key")):
        raise ValueError(f"client {client} has no usable public key")
    integer(f"num-records of client {client}", hello.get("num-records"), at_least=0)
    integer(f"num-events of client {client}", hello.get("num-events"), at_least=0)
    # Diagnostics, which a client may leave out; what cannot be used is left out too.
    accuracy, counts = hello.get("commonest-label-accuracy"), hello.get("label-counts")
    if not (isinstance(accuracy, float) and 0.0 <= accuracy <= 1.0):
        hello.pop("commonest-label-accuracy", None)
    usable = isinstance(counts, list) and all(type(count) is int and count >= 0 for count in counts)
    if not usable or not isinstance(hello.get("indices"), bytes):
        hello.pop("indices", None)
    return hello
