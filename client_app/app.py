"""ClientApp entry: Flower messages → `PersonalClient` → replies. Errors leave as codes, never as text."""

from __future__ import annotations

import common  # noqa: F401  (first: pins the numerics before NumPy and torch are loaded)

# isort: split
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from client_app.client import PersonalClient
from client_app.ledger import StateLedger
from client_app.node import Node
from client_app.sqlite_ledger import LEDGER, LedgerError, SqliteLedger
from client_app.workspace import workspace
from common import keys
from common.data.cache import DataError
from common.protocol import COEFFICIENTS, CONTEXT, HELLO, METRICS, MODEL, REPLY, REQUEST, Refusal, RequestRefused
from common.settings import Settings

log = logging.getLogger("papfl.client")

app = ClientApp()


@app.query(HELLO)
def hello(message: Message, context: Context) -> Message:
    """Who is there: partition id, record count, public key. Releases nothing."""
    return _answer(message, lambda: RecordDict({REPLY: ConfigRecord(_client(context).hello())}))


@app.query(CONTEXT)
def private_context(message: Message, context: Context) -> Message:
    """The one-shot private context."""
    return _answer(message, lambda: RecordDict({REPLY: ConfigRecord(_client(context).context(_request(message)))}))


@app.query(MODEL)
def personal_model(message: Message, context: Context) -> Message:
    """This client's finished personal model, kept in its own state directory."""

    def reply() -> RecordDict:
        model = _client(context).keep_model(_arrays(message), _request(message))
        return RecordDict({REPLY: ConfigRecord(model)})

    return _answer(message, reply)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One privatised coefficient gradient."""

    def reply() -> RecordDict:
        _, count, metrics = _client(context).fit(_arrays(message), _request(message))
        body = {name: metrics.pop(name) for name in ("payload", "partition-id")}
        return RecordDict({REPLY: ConfigRecord(body), METRICS: MetricRecord({"num-examples": count, **metrics})})

    return _answer(message, reply)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Accuracy of the personal model on held-out records."""

    def reply() -> RecordDict:
        loss, count, metrics = _client(context).evaluate(_arrays(message), _request(message))
        return RecordDict({METRICS: MetricRecord({"loss": loss, "num-examples": count, **metrics})})

    return _answer(message, reply)


def _request(message: Message) -> dict[str, Any]:
    if REQUEST not in message.content.config_records:
        raise RequestRefused(Refusal.REQUEST, f"message must have a configuration {REQUEST!r}")
    return dict(message.content.config_records[REQUEST])


def _arrays(message: Message) -> list[np.ndarray]:
    if COEFFICIENTS not in message.content.array_records:
        raise RequestRefused(Refusal.REQUEST, f"message must have arrays {COEFFICIENTS!r}")
    try:
        return message.content.array_records[COEFFICIENTS].to_numpy_ndarrays()
    except (ValueError, TypeError, EOFError, OSError) as error:  # bytes that are no array
        raise RequestRefused(Refusal.REQUEST, f"coefficients cannot be read: {error}") from None


def _answer(message: Message, reply: Callable[[], RecordDict]) -> Message:
    """The reply, or an error message with a code. Caught here so that the client's state (its ledger) is kept."""
    try:
        return Message(reply(), reply_to=message)
    except RequestRefused as refusal:
        log.error("refused: %s", refusal)
        return Message(Error(int(refusal.code)), reply_to=message)
    except LedgerError as error:
        log.error("cannot release: %s", error)
        return Message(Error(int(Refusal.LEDGER)), reply_to=message)
    except (ValueError, DataError) as error:
        log.error("cannot serve: %s", error)
        return Message(Error(int(Refusal.SETTINGS)), reply_to=message)
    except Exception:
        log.exception("request failed")
        return Message(Error(int(Refusal.INTERNAL)), reply_to=message)


def _client(context: Context) -> PersonalClient:
    """The client of this node, from the run's settings and the node's own configuration.

    In deployment its ledger, key and models are in the node's state directory; in simulation in Flower's per-client
    state.
    """
    settings = Settings.from_config(context.run_config)
    node = Node.from_config(context.node_config, settings)
    space = workspace(settings, node.place)
    if node.state is None:
        return PersonalClient(space, node.client, StateLedger(context.state), _simulated_key(context), node.policy)
    ledger, key = SqliteLedger(node.state / LEDGER), node.state / "client.key"
    if not key.exists():  # the key comes after the ledger: a key without a ledger is a ledger that was lost
        ledger.create()
    return PersonalClient(space, node.client, ledger, keys.load_or_create(key), node.policy, state=node.state)


def _simulated_key(context: Context) -> bytes:
    if "key" not in context.state.config_records:
        context.state.config_records["key"] = ConfigRecord({"private": keys.new_private_key()})
    return bytes(context.state.config_records["key"]["private"])  # type: ignore[arg-type]
