"""From replies to decoded releases: every message is checked against the event that it must belong to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from common.channel import Channel, ChannelError, ChannelEvent, DirectGaussian, EventKeys, make_channel
from common.channel.wire import peek
from common.keys import NONCE_BYTES, deterministic_event_keys, public_key, shared_event_keys
from common.protocol import REPLY, event_digest
from common.rules import Rules
from server_app.federation import Replies


class Receiver:
    """The server's end of the channel.

    Args:
        private_key: the server's X25519 key.
        peers: public keys of the clients, by partition id.
    """

    def __init__(self, rules: Rules, private_key: bytes, peers: Mapping[int, bytes]) -> None:
        self._rules, self._private_key, self._peers = rules, private_key, peers
        self._channel = make_channel(rules.settings)
        self.public_key = public_key(private_key)

    def context(self, replies: Replies) -> dict[int, np.ndarray]:
        """Decoded contexts, client → (2s,) float64; what cannot be decoded moves to the failures."""
        dim = self._rules.context_map.dim
        contexts = {}
        for client in sorted(replies.accepted):
            decoded = self._decode(replies, client, 0, dim, DirectGaussian(), b"")
            if decoded is not None:
                contexts[client] = decoded
        return contexts

    def updates(
        self, replies: Replies, round: int, sent: Mapping[int, np.ndarray]
    ) -> tuple[dict[int, np.ndarray], dict[str, Any]]:
        """Decoded coefficient gradients, client → (k,) float32, and what they cost on the wire (bytes of all together)."""
        k = self._rules.space.dim
        updates, message_bytes, payload_bytes = {}, 0, 0
        started = time.perf_counter()
        for client in sorted(replies.accepted):
            request = sent[client].tobytes()
            decoded = self._decode(replies, client, round, k, self._channel, request)
            if decoded is not None:
                updates[client] = decoded.astype(np.float32)
                message = _payload(replies, client)
                message_bytes += len(message)
                payload_bytes += len(peek(message).payload)
        if not updates:
            return updates, {}
        return updates, {
            "message_bytes": message_bytes,
            "payload_bytes": payload_bytes,
            "bits_per_coordinate": 8.0 * payload_bytes / (k * len(updates)),
            "decode_ms": 1e3 * (time.perf_counter() - started) / len(updates),
        }

    def _decode(
        self, replies: Replies, client: int, round: int, k: int, channel: Channel, request: bytes
    ) -> np.ndarray | None:
        run, noise = self._rules.settings.name, self._rules.mechanism.channel_noise(client, round)
        digest = event_digest(self._rules.settings, client, round, noise, self.public_key, request)
        try:
            if replies.accepted[client].config_records[REPLY]["partition-id"] != client:
                raise ChannelError("reply names another partition-id than the client's")
            message = _payload(replies, client)
            keys = self._keys(client, round, digest, bytes(peek(message).nonce))
            return channel.decode(message, ChannelEvent(run, round, client, k, noise), keys)
        except ChannelError as error:
            replies.reject(client, str(error))
        except (KeyError, TypeError, ValueError):
            replies.reject(client, "reply has no message, or one that cannot be read")
        return None

    def _keys(self, client: int, round: int, digest: str, nonce: bytes) -> EventKeys:
        settings = self._rules.settings
        if settings.deterministic:
            return deterministic_event_keys(settings.seed, client=client, round=round)
        if len(nonce) != NONCE_BYTES:
            raise ChannelError(f"nonce must be {NONCE_BYTES} bytes. Received {len(nonce)}.")
        shared = shared_event_keys(self._private_key, self._peers[client], event=digest, nonce=nonce).shared
        return EventKeys(shared, nonce=nonce)


def _payload(replies: Replies, client: int) -> bytes:
    payload = replies.accepted[client].config_records[REPLY]["payload"]
    if not isinstance(payload, bytes):
        raise TypeError
    return payload
