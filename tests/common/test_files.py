import threading

import pytest

from common.files import created_whole, write_atomically


def together(count, work):
    """`work(i)` in `count` threads that start at once; what they raised."""
    barrier, raised = threading.Barrier(count), []

    def run(number):
        barrier.wait()
        try:
            for _ in range(20):
                work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_several_may_write_one_file_at_once(tmp_path):
    """First starts of several processes: in 0.1.0 they shared a temporary name, and 17 of 32 failed."""
    contents = [bytes([number]) * 5000 for number in range(16)]
    assert together(16, lambda number: write_atomically(tmp_path / "manifest.json", contents[number])) == []
    assert (tmp_path / "manifest.json").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_whoever_is_first_creates(tmp_path):
    made = []

    def create(number):
        with created_whole(tmp_path / "client.key") as temporary:
            temporary.write_bytes(bytes([number]))
        made.append((tmp_path / "client.key").read_bytes())

    assert together(16, create) == []
    assert len(set(made)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["client.key"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    write_atomically(tmp_path / "x", b"old")
    with pytest.raises(TypeError):
        write_atomically(tmp_path / "x", "text")
    assert (tmp_path / "x").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_names_may_be_as_long_as_the_system_allows_and_modes_are_kept(tmp_path):
    write_atomically(tmp_path / ("n" * 255), b"")
    write_atomically(tmp_path / "secret", b"", private=True)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
