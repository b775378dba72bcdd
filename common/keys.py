"""Keys of events. Client and server agree on a secret (X25519); every event gets its own keys from it (HKDF).

No key ever travels in a message: Flower's database stores message contents. In deterministic runs all keys derive from
the public seed instead, so anyone can recompute them: reproduction only, no privacy.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeGuard

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from common.channel.base import EventKeys
from common.files import created_whole
from common.randomness import Purpose, derive_key, fresh_key, seed_key

NONCE_BYTES = 16


def new_private_key() -> bytes:
    """A fresh X25519 private key, 32 bytes."""
    return fresh_key()


def public_key(private: bytes) -> bytes:
    """The public key, 32 bytes: safe to send."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def is_usable(peer: object) -> TypeGuard[bytes]:
    """True for a public key with which a secret can be agreed: 32 bytes, not of low order."""
    if not isinstance(peer, bytes) or len(peer) != 32:
        return False
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError:
        return False
    return True


def load_or_create(path: Path) -> bytes:
    """The private key in `path`, created with mode 0600 if it isn't there.

    Raises:
        ValueError: the file doesn't hold 32 bytes.
    """
    if not path.exists():
        with (
            created_whole(path) as temporary,
            os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
        ):
            file.write(new_private_key())
            file.flush()
            os.fsync(file.fileno())
    private = path.read_bytes()
    if len(private) != 32:
        raise ValueError(f"{path} must hold a private key of 32 bytes. Received {len(private)} bytes.")
    return private


def fresh_nonce() -> bytes:
    """Sixteen bytes that no other release has."""
    return fresh_key()[:NONCE_BYTES]


def shared_event_keys(private: bytes, peer: bytes, *, event: str, nonce: bytes) -> EventKeys:
    """Keys of an event as one side computes them.

    They depend on the nonce, which the client draws when it has committed the event: a private key and an event alone
    would give the same noise again, on other records, to a client whose ledger was restored from a back-up.

    Args:
        private: own private key.
        peer: the other side's public key.
        event: `event_digest` of the event.
        nonce: of the release (`fresh_nonce`); not secret.

    Returns:
        The shared key; `secret` is the private key's own derivation and differs between the sides: only the client's
        is used.
    """
    secret = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(peer))
    return EventKeys(
        derive_key(secret, "event", event, nonce.hex()), derive_key(private, "noise", event, nonce.hex()), nonce=nonce
    )


def deterministic_event_keys(seed: int, *, client: int, round: int) -> EventKeys:
    """Keys of an event in a deterministic run: from the public seed."""
    noise = Purpose.CONTEXT_NOISE if round == 0 else Purpose.GRADIENT_NOISE
    return EventKeys(
        seed_key(seed, Purpose.SHARED_RANDOMNESS, client, round),
        seed_key(seed, noise, client, round),
        public=True,
    )
