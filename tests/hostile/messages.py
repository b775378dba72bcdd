"""Doors of the wire: releases as bytes, replies to the server, requests to a client."""

import atexit
import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict

from client_app.app import app as client_app
from common import keys
from common.channel import ChannelError, ChannelEvent, EventKeys, make_channel, wire
from common.channel.channel_pb2 import DG, DG_Q12, LRSUQ
from common.channel.lrsuq import decode, encode
from common.protocol import COEFFICIENTS, CONTEXT, HELLO, METRICS, MODEL, REPLY, REQUEST, Refusal
from common.rules import make_rules
from common.settings import Settings
from server_app.federation import FederationError
from server_app.results import RunFolder
from server_app.strategy import PersonalizedStrategy
from server_app.summary import _manifest, _references
from simulations.grid import InProcessGrid
from tests.hostile.draw import Draw, mutate

K = 61
KEYS = EventKeys(bytes(32), bytes(range(32)))
EVENT = ChannelEvent("run", 3, 1, K, 0.1)
UPDATE = np.random.default_rng(0).standard_normal(K) * 0.05
CHANNELS = {
    "dg": make_channel(Settings(channel="dg")),
    "dg-q12": make_channel(Settings(channel="dg-q12")),
    "lrsuq": make_channel(Settings(channel="lrsuq")),
    "lrsuq-1": make_channel(Settings(channel="lrsuq", block_size=1)),
    "lrsuq-padded": make_channel(Settings(channel="lrsuq", lrsuq_padding=64)),
    "lrsuq-public": make_channel(Settings(channel="lrsuq", lrsuq_public_scale=1.0)),
}
SEEDS = {name: channel.encode(UPDATE, EVENT, KEYS) for name, channel in CHANNELS.items()}


def _usable(values):
    assert values.shape == (K,)
    assert np.isfinite(values).all()


def release(data):
    """A damaged release, by someone without the key."""
    draw = Draw(data)
    name = draw.choice(sorted(CHANNELS))
    raw = mutate(draw, SEEDS[name]) if draw.number(2) else draw.rest()
    if raw == SEEDS[name]:
        return
    CHANNELS[name].decode(raw, EVENT, EventKeys(KEYS.shared))
    raise AssertionError("a message that nobody encoded was accepted")


def signed_release(data):
    """Any payload under a right digest: by a client who has the key and means harm."""
    draw = Draw(data)
    name = draw.choice(sorted(CHANNELS))
    kind = DG if name == "dg" else DG_Q12 if name == "dg-q12" else LRSUQ
    payload = mutate(draw, wire.peek(SEEDS[name]).payload) if draw.number(2) else draw.bytes(draw.number(300))
    extra = {}
    if kind == LRSUQ:
        extra = {
            "block_size": 1 if name == "lrsuq-1" else 4,
            "scale": draw.choice([0, 1, 40, 80, 460, 461, draw.number(2**16)]),
            "model_class": draw.number(8),
        }
    message = wire.pack(EVENT, kind, payload, KEYS, **extra)
    _usable(CHANNELS[name].decode(message, EVENT, EventKeys(KEYS.shared)))


def standalone_release(data):
    """`common.channel.lrsuq.decode`, the codec as a library."""
    draw = Draw(data)
    seed = encode(UPDATE, 0.1, bytes(32))
    raw = mutate(draw, seed) if draw.number(2) else draw.rest()
    if raw != seed:
        decode(raw, bytes(32))


class World:
    """One small run with a server that waits for replies, made once per process."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        atexit.register(self._folder.cleanup)
        self.settings = Settings(
            out_dir=self._folder.name, data_dir=str(data_dir()), deterministic=True, tensorboard=False,
            num_participating=3, num_future=1, num_rounds=6, records_per_client=60, context_records=20,
            batch_records=24, num_coefficients=K, hidden_dim=4, channel="dg", run_name="world", evaluate_every=0,
            geometry_every=0, federation_timeout=1.0,
        )  # fmt: skip
        self.grid = InProcessGrid(client_app, self.settings)
        folder = RunFolder(self.settings)
        folder.create(self.settings)
        self.strategy = PersonalizedStrategy(make_rules(self.settings), folder)
        self.strategy.connect(self.grid)
        contexts = {client: np.full(2, 0.1 * client) for client in range(4)}
        self.strategy.state.generator.set_contexts(contexts)
        self.strategy.state.journal.append = lambda *a, **k: None  # the disk is not what is tried here
        self.requests = self.strategy.configure_train(1, ArrayRecord(), ConfigRecord(), self.grid)
        self.replies = [self.grid.deliver(message) for message in self.requests]

    def digest(self):
        """Of the model."""
        parameters = self.strategy.state.generator.variant.parameters()
        return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in parameters)).hexdigest()


_WORLD = []


def world():
    if not _WORLD:
        _WORLD.append(World())
    return _WORLD[0]


def data_dir():
    import os

    return Path(os.environ.get("PAPFL_DATA_DIR", "~/.cache/papfl")).expanduser()


def _config(draw, names):
    config = ConfigRecord()
    for _ in range(draw.number(6)):
        try:
            config[draw.choice(names)] = draw.scalar()
        except (TypeError, ValueError, OverflowError):  # Flower itself refuses it
            continue
    return config


def _metrics(draw):
    metrics = MetricRecord()
    for _ in range(draw.number(4)):
        try:
            metrics[draw.choice(["loss", "num-examples", "correct", "update-norm", "clipped-fraction", "x"])] = (
                draw.scalar()
            )
        except (TypeError, ValueError, OverflowError):
            continue
    return metrics


def _reply(draw, request, honest):
    kind = draw.number(4)
    if kind == 0:
        return Message(Error(draw.number(300)), reply_to=request)
    content = RecordDict()
    if draw.number(5):
        content[REPLY] = _config(draw, ["payload", "partition-id", "x"])
    if draw.number(5):
        content[METRICS] = _metrics(draw)
    if kind == 1:  # an honest payload, damaged, in its place
        record = honest.content.config_records[REPLY]
        content[REPLY] = ConfigRecord({**record, "payload": mutate(draw, record["payload"])})
    reply = Message(content, reply_to=request)
    reply.metadata.__dict__["_src_node_id"] = draw.choice([request.metadata.dst_node_id, 1, 1000])
    reply.metadata.__dict__["_group_id"] = draw.choice(["1", "1", "1", "0", "2", "x", ""])
    return reply


def replies(data):
    """Client → server: a round's replies, none of them honest. The model must not move."""
    draw, here = Draw(data), world()
    before = here.digest()
    here.strategy._failed_rounds = 0
    payloads = {honest.content.config_records[REPLY]["payload"] for honest in here.replies}
    count = draw.number(5)
    made = []
    for _ in range(count):
        index = draw.number(len(here.requests))
        made.append(_reply(draw, here.requests[index], here.replies[index]))
    if any(_payload(reply) in payloads for reply in made):
        return  # by chance an honest one
    here.strategy.aggregate_train(1, made)
    assert here.digest() == before
    assert here.strategy._row["clients"] == []


def _payload(reply):
    if reply.has_error() or REPLY not in reply.content.config_records:
        return None
    payload = reply.content.config_records[REPLY].get("payload")
    return payload if isinstance(payload, bytes) else None


def hellos(data):
    """Client → server: what clients say of themselves. Ends in an error or in clients that can be used."""
    draw, here = Draw(data), world()
    strategy = PersonalizedStrategy(here.strategy.rules, RunFolder(here.settings))

    class Grid(InProcessGrid):
        def send_and_receive(self, messages, *, timeout=None):
            made = []
            for message in messages:
                reply = self.deliver(message)
                if draw.number(3) == 1:
                    record = dict(reply.content.config_records[REPLY])
                    for _ in range(1 + draw.number(3)):
                        name = draw.choice(sorted(record))
                        value = draw.scalar()
                        record.pop(name) if draw.number(4) == 0 and len(record) > 1 else record.update({name: value})
                    content = RecordDict({REPLY: ConfigRecord(record)}) if draw.number(8) else RecordDict()
                    reply = Message(content, reply_to=message)
                    reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
                made.append(reply)
            return made

    strategy.connect(Grid(client_app, here.settings))
    assert set(strategy.hellos) >= set(range(4))
    for hello in strategy.hellos.values():
        assert keys.is_usable(hello["public-key"])
    # The end of the run writes what they said.
    json.dumps([_references(strategy.state, strategy.hellos), _manifest(strategy.hellos)], allow_nan=False)


def reports(data):
    """Client → server: an honest release beside any report about it. The row can be written, whatever it says."""
    draw, here = Draw(data), world()
    made = []
    for request, honest in zip(here.requests, here.replies, strict=True):
        reply = Message(
            RecordDict({REPLY: honest.content.config_records[REPLY], METRICS: _metrics(draw)}), reply_to=request
        )
        reply.metadata.__dict__["_src_node_id"] = request.metadata.dst_node_id
        made.append(reply)
    saved = [parameter.detach().clone() for parameter in here.strategy.state.generator.variant.parameters()]
    try:
        here.strategy.aggregate_train(1, made)
        assert len(here.strategy._row["clients"]) == len(made)
        json.dumps(here.strategy._row, allow_nan=False)
    finally:
        with torch.no_grad():
            for parameter, value in zip(here.strategy.state.generator.variant.parameters(), saved, strict=True):
                parameter.copy_(value)


def request(data):
    """Server → client: any request to an honest client. A code comes back, or an answer that was paid for."""
    draw, here = Draw(data), world()
    client = draw.number(4)
    context = Context(
        run_id=1, node_id=7, node_config={"partition-id": client, "num-partitions": 4}, state=RecordDict(),
        run_config=here.settings.to_config(),
    )  # fmt: skip
    content = RecordDict()
    mechanism = here.strategy.rules.mechanism
    config = _config(draw, ["round", "noise-stddev", "public-key", "x"])
    if draw.number(2):
        config["noise-stddev"] = draw.choice([mechanism.channel_noise(0, 1), mechanism.channel_noise(0, 0), 0.0])
        config["public-key"] = keys.public_key(bytes(range(32)))
        config["round"] = draw.number(9)
    content[REQUEST] = config
    dtype = draw.choice([np.float32, np.float64, np.int32, np.uint8])
    shape = draw.choice([(K,), (K, 1), (0,), (1,), (K + 1,), ()])
    values = np.zeros(shape, dtype)
    if values.size and draw.number(3) == 0 and values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            values.reshape(-1)[draw.number(values.size)] = values.dtype.type(draw.float())
    if draw.number(6):
        content[COEFFICIENTS] = ArrayRecord([values] * draw.choice([1, 1, 1, 2]))
    if draw.number(9) == 0:
        content = RecordDict()
    kind = draw.choice(["train", "evaluate", f"query.{CONTEXT}", f"query.{HELLO}", f"query.{MODEL}"])
    message = Message(content, 7, kind, group_id="1")
    message.metadata.__dict__["_message_id"] = "1"
    reply = client_app(message, context)
    spent = "ledger" in context.state.config_records and context.state.config_records["ledger"]["entries"] != "{}"
    if reply.has_error():
        assert reply.error.code in {int(code) for code in Refusal} - {int(Refusal.INTERNAL)}, reply.error.code
        assert not reply.error.reason
        assert not spent
    else:
        assert spent == (kind in ("train", f"query.{CONTEXT}"))


TARGETS = {
    "release": (release, (ChannelError,)),
    "signed release": (signed_release, (ChannelError,)),
    "standalone release": (standalone_release, (ChannelError,)),
    "replies": (replies, ()),
    "hellos": (hellos, (FederationError,)),
    "reports": (reports, ()),
    "request": (request, ()),
}
