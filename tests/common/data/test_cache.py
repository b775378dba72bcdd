import gzip
import json
import multiprocessing
import pickle
import shutil

import numpy as np
import pytest

from common.data import sources
from common.data.cache import DataError, digest, is_cached, load, store, verify
from common.data.catalog import DATASETS
from common.data.decode import _ArrayUnpickler, decode_idx
from common.data.records import ClientRecords


@pytest.fixture
def copy(data_dir, tmp_path):
    """A cache of one's own with MNIST in it."""
    shutil.copytree(data_dir / "mnist", tmp_path / "cache" / "mnist")
    return tmp_path / "cache"


def offline(name):
    def refuse(folder):
        raise DataError("no network")

    return [("first source", refuse), ("second source", refuse)]


def test_cached_arrays_have_the_documented_digests(data_dir):
    assert is_cached("mnist", data_dir)
    assert verify("mnist", data_dir) == []
    data = load("mnist", data_dir)
    assert data.images.shape == (60_000, 28, 28)
    assert isinstance(data.images, np.memmap)


def test_valid_cache_needs_no_network(copy, monkeypatch):
    monkeypatch.setattr(sources, "_sources", offline)
    assert sources.fetch("mnist", copy, report=lambda line: None) == "cache"


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x93NUMPY"])
def test_unreadable_file_is_named_with_the_way_out(copy, content):
    (copy / "mnist" / "train_labels.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"train_labels\.npy cannot be read.*--force"):
        load("mnist", copy)


def test_truncated_file_is_found_and_the_error_names_every_source_and_the_way_out(copy, monkeypatch):
    path = copy / "mnist" / "train_images.npy"
    path.write_bytes(path.read_bytes()[:-1000])
    assert str(path) in verify("mnist", copy)[0]
    with pytest.raises(DataError, match="--force"):
        load("mnist", copy)
    monkeypatch.setattr(sources, "_sources", offline)
    lines = []
    with pytest.raises(DataError) as error:
        sources.fetch("mnist", copy, report=lines.append)
    text = str(error.value)
    assert "first source: no network" in text
    assert "second source: no network" in text
    assert "papfl data import" in text
    assert f"papfl data fetch mnist --data-dir {copy}" in text
    assert any("damaged" in line for line in lines)


def test_flipped_bit_names_the_file_and_both_digests(copy):
    path = copy / "mnist" / "train_labels.npy"
    damaged = np.load(path)
    damaged[7] ^= 1
    np.save(path, damaged)
    problem = verify("mnist", copy)[0]
    assert str(path) in problem
    assert digest(damaged) in problem
    assert DATASETS["mnist"].arrays[1].sha256 in problem


def test_wrong_arrays_never_reach_the_cache(tmp_path, copy):
    arrays = [np.load(copy / "mnist" / f"{spec.name}.npy") for spec in DATASETS["mnist"].arrays]
    arrays[3][0] ^= 1
    with pytest.raises(DataError, match="test_labels.*sha256"):
        store("mnist", tuple(arrays), tmp_path / "new", source="test")
    assert not is_cached("mnist", tmp_path / "new")


def test_interrupted_write_is_not_a_cache(copy):
    (copy / "mnist" / "manifest.json").unlink()
    assert not is_cached("mnist", copy)
    with pytest.raises(DataError, match="papfl data fetch mnist"):
        load("mnist", copy)
    (copy / "mnist" / "manifest.json").write_text(json.dumps({"sha256": {}}))
    assert not is_cached("mnist", copy)


def test_sources_are_tried_in_order_until_one_gives_the_right_arrays(copy, tmp_path, monkeypatch):
    good = tuple(np.load(copy / "mnist" / f"{spec.name}.npy") for spec in DATASETS["mnist"].arrays)
    wrong = (good[0], good[1], good[2], good[3][::-1])
    chain = [*offline("mnist")[:1], ("wrong", lambda folder: wrong), ("right", lambda folder: good)]
    monkeypatch.setattr(sources, "_sources", lambda name: chain)
    lines = []
    assert sources.fetch("mnist", tmp_path / "new", report=lines.append) == "right"
    assert any("wrong: mnist/test_labels" in line and "sha256" in line for line in lines)


def _store_from(cache, target, queue):
    arrays = tuple(np.load(cache / "mnist" / f"{spec.name}.npy") for spec in DATASETS["mnist"].arrays)
    sources._sources = lambda name: [("disk", lambda folder: arrays)]
    queue.put(sources.fetch("mnist", target, report=lambda line: None))


def test_two_processes_at_once_both_succeed(copy, tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=_store_from, args=(copy, tmp_path / "new", queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    outcomes = sorted(queue.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    assert outcomes == ["cache", "disk"]
    assert verify("mnist", tmp_path / "new") == []


def test_import_takes_official_files_from_disk(copy, tmp_path):
    folder = tmp_path / "official"
    folder.mkdir()
    stems = ["train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"]
    for stem, spec in zip(stems, DATASETS["mnist"].arrays, strict=True):
        value = np.load(copy / "mnist" / f"{spec.name}.npy")
        header = bytes([0, 0, 8, value.ndim]) + b"".join(size.to_bytes(4, "big") for size in value.shape)
        (folder / f"{stem}-ubyte.gz").write_bytes(gzip.compress(header + value.tobytes(), 1))
    assert sources.import_file(folder, tmp_path / "imported") == "mnist"
    assert verify("mnist", tmp_path / "imported") == []


def test_import_of_something_else_says_what_is_known(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(DataError, match="cifar-10-python.tar.gz"):
        sources.import_file(tmp_path / "notes.txt", tmp_path / "cache")


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x09\x01", b"\x00\x00\x08\x01\x00\x00\x00\x05abc"])
def test_damaged_idx_files_are_refused(data):
    with pytest.raises(ValueError, match="IDX"):
        decode_idx(data)


def test_data_pickles_cannot_run_code():
    import io

    harmful = pickle.dumps(print)
    with pytest.raises(pickle.UnpicklingError, match="not allowed"):
        _ArrayUnpickler(io.BytesIO(harmful)).load()


def test_records_are_scaled_and_ordered(data_dir):
    data = load("mnist", data_dir)
    records = ClientRecords.of(data, np.array([5, 3]))
    assert records.images.shape == (2, 1, 28, 28)
    assert np.array_equal(records.images[1, 0], data.images[3].astype(np.float32) / np.float32(255))
    assert records.labels.tolist() == [int(data.labels[5]), int(data.labels[3])]
