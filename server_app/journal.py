"""The round journal: what was asked and what was accepted, on disk before it takes effect.

One line per fact, a checksum and JSON, flushed to disk (fsync). The checksum goes over all lines before it too, so that a lost
line is noticed as well as a changed one. After a crash: last checkpoint + replay of the journal, no client asked again,
bit-identical. A last line without its end is what a crash leaves, and is dropped: nothing was asked or applied before it was
whole. Damage to a whole line is an error.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from common.files import sync_folder


class Journal:
    """Append-only facts of one run since its last checkpoint."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checksum: int | None = None  # of the lines there; None: not read yet

    def append(self, kind: str, **fact: Any) -> None:
        """Write one fact and wait until it is on disk."""
        if self._checksum is None:
            self.read()
        new = not self._path.exists()
        with self._path.open("ab") as file:
            text = json.dumps({"kind": kind, **fact}).encode()
            file.write(sealed(text, self._checksum or 0))
            self._checksum = zlib.crc32(text, self._checksum or 0)
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(self._path.parent)

    def read(self) -> list[dict[str, Any]]:
        """All facts, oldest first; a torn last line is removed from the file.

        Raises:
            ValueError: a damaged line.
        """
        self._checksum = 0
        if not self._path.exists():
            return []
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        facts = []
        for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
            text = line[9:]
            if sealed(text, self._checksum) != line + b"\n":
                raise ValueError(f"{self._path} line {number} is damaged, or one before it is lost")
            self._checksum = zlib.crc32(text, self._checksum)
            facts.append(json.loads(text))
        torn = content[len(whole) :]
        if torn[9:-1] and sealed(torn[9:-1], self._checksum)[:-1] == torn[:-1]:
            raise ValueError(f"{self._path} is damaged: its last line is whole but for its end")
        if torn:
            with self._path.open("r+b") as file:
                file.truncate(len(whole))
        return facts

    def clear(self) -> None:
        """Forget everything: a checkpoint holds it now."""
        self._path.unlink(missing_ok=True)
        self._checksum = 0


def sealed(fact: bytes, before: int = 0) -> bytes:
    """The line of a fact: CRC-32 of the facts so far (`before`: without this one) in hexadecimal, a space, the fact."""
    return b"%08x %s\n" % (zlib.crc32(fact, before), fact)


def pack_array(values: np.ndarray) -> str:
    """A float32 array as text, bit for bit."""
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


def unpack_array(text: str) -> np.ndarray:
    """The inverse of `pack_array`."""
    return np.frombuffer(base64.b64decode(text), "<f4").copy()
