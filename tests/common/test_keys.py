import stat

import pytest

from common import keys


def test_both_sides_agree_on_the_shared_key_of_every_event():
    client, server = keys.new_private_key(), keys.new_private_key()
    nonce = keys.fresh_nonce()
    one = keys.shared_event_keys(client, keys.public_key(server), event="a", nonce=nonce)
    two = keys.shared_event_keys(server, keys.public_key(client), event="a", nonce=nonce)
    assert one.shared == two.shared
    assert one.secret != two.secret
    for event, other in (("b", nonce), ("a", keys.fresh_nonce())):
        another = keys.shared_event_keys(client, keys.public_key(server), event=event, nonce=other)
        assert len({another.shared, another.secret, one.shared, one.secret}) == 4


def test_private_key_file_is_for_its_owner_alone_and_lasts(tmp_path):
    path = tmp_path / "state" / "client.key"
    private = keys.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.load_or_create(path) == private
    path.write_bytes(b"short")
    with pytest.raises(ValueError, match="32 bytes"):
        keys.load_or_create(path)


def test_deterministic_keys_depend_on_the_event():
    values = {
        keys.deterministic_event_keys(seed, client=client, round=round)
        for seed in (0, 1)
        for client in (0, 1)
        for round in (0, 1)
    }
    assert len(values) == 8
    assert all(value.shared != value.secret for value in values)
