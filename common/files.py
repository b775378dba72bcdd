"""Files that survive a crash: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write, flush to disk, rename. Several processes may do it at once: each writes under a name of its own, and the
    last one's whole content stays.

    Args:
        private: readable by its owner alone.
    """
    temporary = _beside(path)
    try:
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666), "wb"
        ) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextlib.contextmanager
def created_whole(path: Path) -> Iterator[Path]:
    """Yields a temporary name to write and flush; the file then appears under its own name, unless another process was
    first. A kill or a full disk in between leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    try:
        yield temporary
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Make names in a folder (a rename, a new file) survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _beside(path: Path) -> Path:
    """A temporary name in the same folder that no other process has; short, as names may be at most 255 bytes long."""
    return path.with_name(f".{uuid.uuid4().hex}.tmp")
