"""The message around a payload: versioned, bound to its event, authenticated with the event's shared key.

The digest is keyed, so damage, another round or client, and a wrong key are all detected before any decoding.
"""

from __future__ import annotations

import hashlib
import hmac

from google.protobuf.message import DecodeError

from common.channel.base import ChannelError, ChannelEvent, EventKeys
from common.channel.channel_pb2 import Release
from common.randomness import derive_key

VERSION = 1


def pack(
    event: ChannelEvent,
    kind: int,
    payload: bytes,
    keys: EventKeys,
    *,
    block_size: int = 0,
    scale: int = 0,
    model_class: int = 0,
) -> bytes:
    """Serialise a payload and the public facts of its event."""
    message = Release(
        version=VERSION,
        run=_run_tag(event.run),
        round=event.round,
        partition=event.client,
        k=event.k,
        noise_stddev=event.noise_stddev,
        kind=kind,  # type: ignore[arg-type]
        block_size=block_size,
        scale=scale,
        model_class=model_class,
        payload=payload,
        nonce=keys.nonce,
    )
    message.digest = _digest(message, keys.shared)
    return message.SerializeToString(deterministic=True)


def peek(data: bytes) -> Release:
    """The fields of a message as they stand, checked against nothing.

    Raises:
        ChannelError: not a message at all.
    """
    message = Release()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise ChannelError(f"message of {len(data)} bytes is not a release: truncated or damaged") from None
    return message


def unpack(data: bytes, event: ChannelEvent, kind: int, keys: EventKeys, *, block_size: int = 0) -> Release:
    """Parse and check a message against the event that it should belong to.

    Raises:
        ChannelError: naming the first thing that is wrong.
    """
    message = peek(data)
    expected = {
        "version": VERSION,
        "run": _run_tag(event.run),
        "round": event.round,
        "partition": event.client,
        "k": event.k,
        "noise_stddev": event.noise_stddev,
        "kind": kind,
        "block_size": block_size,
        "nonce": keys.nonce,
    }
    for field, value in expected.items():
        found = getattr(message, field)
        if found != value:
            raise ChannelError(f"{field} must be {value}. Received {found}.")
    if not hmac.compare_digest(message.digest.to_bytes(8, "big"), _digest(message, keys.shared).to_bytes(8, "big")):
        raise ChannelError("digest does not match: damaged message or another event's key")
    # The digest covers the fields, not their encoding: refuse any other spelling of the same message.
    if message.SerializeToString(deterministic=True) != data:
        raise ChannelError("message has bytes that do not belong to it")
    return message


def _run_tag(run: str) -> int:
    return int.from_bytes(hashlib.sha256(run.encode()).digest()[:4], "big")


def _digest(message: Release, shared_key: bytes) -> int:
    covered = Release()
    covered.CopyFrom(message)
    covered.digest = 0
    key = derive_key(shared_key, "digest")
    mac = hmac.digest(key, covered.SerializeToString(deterministic=True), "sha256")
    return int.from_bytes(mac[:8], "big")
