"""The vocabulary of messages between server and clients, and the codes of refusals.

Error replies carry a code and never exception text: Flower forwards an error's reason to the server.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum

from common.settings import Settings

REQUEST = "request"  # ConfigRecord of every request
REPLY = "reply"  # ConfigRecord of a reply
COEFFICIENTS = "coefficients"  # ArrayRecord: a_i, one (k,) float32 array
METRICS = "metrics"  # MetricRecord

HELLO = "hello"  # query: who are you? releases nothing
CONTEXT = "context"  # query: the one private context release
MODEL = "model"  # query: here is your finished personal model, keep it

# Flower's code for a reply that never came because the worker process died.
FLOWER_WORKER_DIED = 0


class Refusal(IntEnum):
    """Why a client answered with an error. Codes from 100 on are papfl's, below are Flower's."""

    SETTINGS = 101  # the client's settings or data don't allow the run
    REQUEST = 102  # malformed, or not what the public schedule and plan say
    BUDGET = 103  # the release would exceed the client's privacy budget
    REPEATED = 104  # the event was spent before and can't be repeated
    DIAGNOSTICS = 105  # the client doesn't share noiseless diagnostics
    LEDGER = 106  # the client's ledger is unusable, so nothing may be released
    INTERNAL = 199  # anything else; the client's own log has it


class RequestRefused(Exception):
    """Raised in a client; only `code` leaves it."""

    def __init__(self, code: Refusal, message: str) -> None:
        super().__init__(message)
        self.code = code


def event_digest(
    settings: Settings, client: int, round: int, noise_stddev: float, server_key: bytes, coefficients: bytes
) -> str:
    """What identifies an event: the run, who, when, for whom, and all that decides the update: settings, request, a_i.

    Noise and dithers are keyed by it: two updates must never share one. The server's public key is part of it: bytes
    encoded for an earlier server of the same name cannot be decoded by the next. Hexadecimal SHA-256.
    """
    head = f"{settings.name}|{settings.digest()}|{client}|{round}|{noise_stddev!r}|{server_key.hex()}|".encode()
    return hashlib.sha256(head + coefficients).hexdigest()
