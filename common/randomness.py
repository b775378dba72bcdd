"""Randomness as an argument: generators and byte streams keyed by (seed, purpose, client, round).

Two families, never mixed:

* `public_generator`: NumPy generators for everything that is public (schedule, partition, splits, θ_ref).
* `KeyStream`: a cryptographic stream (AES-128-CTR) for noise and dithers. Its key is secret (`fresh_key`,
  or derived from a secret), except in deterministic runs, where it is derived from the public seed.
"""

import secrets
from enum import IntEnum

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from common.validation import integer


class Purpose(IntEnum):
    """What a stream is for. Values are part of every deterministic result: append, never renumber."""

    SCHEDULE = 1
    REFERENCE = 2
    BASIS = 3
    GENERATOR = 4
    PARTITION = 5
    FUTURE_CLIENTS = 6
    SPLIT = 7
    BATCH = 8
    CONTEXT_NOISE = 9
    GRADIENT_NOISE = 10
    SHARED_RANDOMNESS = 11
    AUDIT = 12
    SERVER_NOISE = 13
    PUBLIC_VECTOR = 14


def public_generator(seed: int, purpose: Purpose, client: int = 0, round: int = 0) -> np.random.Generator:
    """A NumPy generator that depends on (seed, purpose, client, round) alone. Seed 0 is a seed like any other."""
    seed = integer("seed", seed, at_least=0)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(purpose), client, round)))


def fresh_key() -> bytes:
    """32 secret bytes from the operating system."""
    return secrets.token_bytes(32)


def derive_key(secret: bytes, *info: str | int) -> bytes:
    """A 32-byte key from a secret and a public label (HKDF-SHA256). Another label gives an independent key."""
    label = b"papfl/v1|" + "|".join(str(part) for part in info).encode()
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=label).derive(secret)


def seed_key(seed: int, purpose: Purpose, client: int = 0, round: int = 0) -> bytes:
    """The key of a deterministic run: derived from the *public* seed, so it protects nothing."""
    return derive_key(integer("seed", seed, at_least=0).to_bytes(32, "big"), "seed", int(purpose), client, round)


class KeyStream:
    """An AES-128-CTR stream. Two streams with one key give the same bytes: never use a key for two purposes."""

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError(f"key must be 32 bytes long. Received {len(key)} bytes.")
        self._encryptor = Cipher(algorithms.AES(key[:16]), modes.CTR(key[16:])).encryptor()

    def words(self, n: int) -> np.ndarray:
        """The next n uniform 64-bit words, dtype uint64, little-endian whatever the machine."""
        return np.frombuffer(self._encryptor.update(bytes(8 * n)), dtype="<u8").astype(np.uint64, copy=False)

    def unit(self, n: int) -> np.ndarray:
        """n floats uniform on the multiples of 2^-53 in [0, 1), shape (n,), float64."""
        return (self.words(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53
