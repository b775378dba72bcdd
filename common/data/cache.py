"""The cache: four verified arrays per data set, memory-mapped and shared by all workers.

A set appears in the cache whole or not at all: arrays are verified in memory, written to a temporary folder and moved
into place under a lock. The manifest is written last, so an interrupted write is never taken for a finished one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.data.catalog import DATASETS, DatasetSpec
from common.data.decode import Arrays


class DataError(RuntimeError):
    """A data set that is missing, damaged or not to be had; the message says which file and the way out."""


@dataclass(frozen=True)
class Dataset:
    """A cached data set: read-only memory maps.

    Attributes:
        images: (n, height, width[, channels]) uint8, the official training split.
        labels: (n,) uint8.
    """

    spec: DatasetSpec
    images: np.ndarray
    labels: np.ndarray


def fetch_command(name: str, data_dir: Path) -> str:
    """The command that puts `name` into the cache."""
    return f"papfl data fetch {name} --data-dir {data_dir}"


def folder(name: str, data_dir: Path) -> Path:
    """Where a data set lives in the cache."""
    return data_dir / name


def load(name: str, data_dir: Path) -> Dataset:
    """The training split of a cached data set.

    Raises:
        DataError: not in the cache, or its files don't fit the manifest.
    """
    spec = DATASETS[name]
    require_cached(name, data_dir)
    arrays = []
    for array in spec.arrays[:2]:
        path = folder(name, data_dir) / f"{array.name}.npy"
        try:
            value = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path} cannot be read ({error}). Run: {fetch_command(name, data_dir)} --force") from None
        if value.shape != array.shape or value.dtype != np.uint8:
            raise DataError(
                f"{path} has shape {value.shape}, expected {array.shape}. Run: {fetch_command(name, data_dir)} --force"
            )
        arrays.append(value)
    return Dataset(spec, arrays[0], arrays[1])


def require_cached(name: str, data_dir: Path) -> None:
    """Raises `DataError` with the command to run where a data set is not in the cache."""
    if not is_cached(name, data_dir):
        raise DataError(f"{name} is not in the cache {data_dir}. Run: {fetch_command(name, data_dir)}")


def is_cached(name: str, data_dir: Path) -> bool:
    """True if the manifest is there and names the digests of this catalogue, and all files exist."""
    where = folder(name, data_dir)
    try:
        manifest = json.loads((where / "manifest.json").read_text())
    except (OSError, ValueError):
        return False
    expected = {array.name: array.sha256 for array in DATASETS[name].arrays}
    return manifest.get("sha256") == expected and all((where / f"{array}.npy").is_file() for array in expected)


def verify(name: str, data_dir: Path) -> list[str]:
    """Digests of the cached files against the catalogue: one line per file that is wrong."""
    problems = []
    for array in DATASETS[name].arrays:
        path = folder(name, data_dir) / f"{array.name}.npy"
        try:
            value = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            problems.append(f"{path}: {error}")
            continue
        found = digest(value)
        if found != array.sha256:
            problems.append(f"{path}: sha256 {found}, expected {array.sha256}")
    return problems


def digest(array: np.ndarray) -> str:
    """SHA-256 of an array's bytes in C order."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def store(name: str, arrays: Arrays, data_dir: Path, *, source: str) -> None:
    """Verify and write a data set. The caller holds the lock.

    Raises:
        DataError: an array has another shape or digest than the catalogue's; the cache is untouched.
    """
    spec = DATASETS[name]
    for expected, value in zip(spec.arrays, arrays, strict=True):
        if value.shape != expected.shape or value.dtype != np.uint8:
            raise DataError(
                f"{name}/{expected.name} from {source}: shape {value.shape} {value.dtype}, expected {expected.shape} uint8"
            )
        found = digest(value)
        if found != expected.sha256:
            raise DataError(f"{name}/{expected.name} from {source}: sha256 {found}, expected {expected.sha256}")
    data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data_dir, prefix=f".{name}-") as temporary:
        for expected, value in zip(spec.arrays, arrays, strict=True):
            np.save(Path(temporary) / f"{expected.name}.npy", value)
        manifest = {"source": source, "sha256": {array.name: array.sha256 for array in spec.arrays}}
        (Path(temporary) / "manifest.json").write_text(json.dumps(manifest, indent=2))
        finished = Path(temporary) / "finished"
        finished.mkdir()
        for file in list(Path(temporary).iterdir()):
            if file.is_file():
                file.rename(finished / file.name)
        target = folder(name, data_dir)
        if target.exists():
            shutil.rmtree(target)
        os.rename(finished, target)
