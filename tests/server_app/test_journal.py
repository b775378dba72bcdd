import numpy as np
import pytest

from server_app.journal import Journal, pack_array, unpack_array


def test_facts_come_back_in_order_and_bit_for_bit(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    values = np.random.default_rng(0).standard_normal(5).astype(np.float32)
    journal.append("asked", round=1, clients=[3])
    journal.append("accepted", round=1, updates={"3": pack_array(values)})
    facts = journal.read()
    assert [fact["kind"] for fact in facts] == ["asked", "accepted"]
    assert np.array_equal(unpack_array(facts[1]["updates"]["3"]), values)
    journal.clear()
    assert journal.read() == []


def test_torn_last_line_is_dropped_and_the_journal_goes_on(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append("asked", round=1)
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut])
        assert [fact["round"] for fact in journal.read()] == [1]
        journal.append("asked", round=2)
        assert [fact["round"] for fact in journal.read()] == [1, 2]


def test_damage_elsewhere_is_an_error(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append("asked", round=1)
    journal.append("asked", round=2)
    path.write_bytes(b"x" + path.read_bytes())
    with pytest.raises(ValueError, match="line 1"):
        journal.read()
