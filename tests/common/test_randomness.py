import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from common.randomness import KeyStream, Purpose, derive_key, public_generator, seed_key


def test_generators_depend_on_every_part_of_their_key():
    draws = {
        tuple(public_generator(seed, purpose, client, round).integers(2**60, size=2))
        for seed in (0, 1)
        for purpose in (Purpose.SPLIT, Purpose.BATCH)
        for client in (0, 1)
        for round in (0, 1)
    }
    assert len(draws) == 16


def test_stream_is_aes_ctr_and_its_prefixes_agree():
    key = bytes(range(32))
    reference = Cipher(algorithms.AES(key[:16]), modes.CTR(key[16:])).encryptor().update(bytes(80))
    assert KeyStream(key).words(10).tobytes() == reference
    assert np.array_equal(KeyStream(key).unit(5), KeyStream(key).unit(9)[:5])


def test_key_must_have_32_bytes():
    with pytest.raises(ValueError, match="32 bytes"):
        KeyStream(b"short")


def test_derived_keys_differ_by_label():
    secret = bytes(32)
    assert len({derive_key(secret, "a"), derive_key(secret, "b"), derive_key(secret, "a", 1), secret}) == 4
    assert seed_key(0, Purpose.BATCH) != seed_key(1, Purpose.BATCH)
