"""The round journal: what was asked and what was accepted, on disk before it takes effect.

One JSON line per fact, flushed to disk (fsync). After a crash: last checkpoint + replay of the journal, no client asked
again, bit-identical. A torn last line is what a crash leaves, and is dropped; damage elsewhere is an error.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from common.files import sync_folder


class Journal:
    """Append-only facts of one run since its last checkpoint."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, kind: str, **fact: Any) -> None:
        """Write one fact and wait until it is on disk."""
        new = not self._path.exists()
        with self._path.open("ab") as file:
            file.write(json.dumps({"kind": kind, **fact}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(self._path.parent)

    def read(self) -> list[dict[str, Any]]:
        """All facts, oldest first; a torn last line is removed from the file.

        Raises:
            ValueError: a damaged line that isn't the last.
        """
        if not self._path.exists():
            return []
        lines = self._path.read_bytes().split(b"\n")
        facts, good = [], 0
        for number, line in enumerate(lines):
            complete = number < len(lines) - 1
            if not line and not complete:
                break
            try:
                facts.append(json.loads(line))
            except ValueError:
                if complete and any(lines[number + 1 :]):
                    raise ValueError(f"{self._path} line {number + 1} is damaged") from None
                break
            if not complete:  # a whole fact without its line end: still torn
                facts.pop()
                break
            good += len(line) + 1
        with self._path.open("r+b") as file:
            file.truncate(good)
        return facts

    def clear(self) -> None:
        """Forget everything: a checkpoint holds it now."""
        self._path.unlink(missing_ok=True)


def pack_array(values: np.ndarray) -> str:
    """A float32 array as text, bit for bit."""
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


def unpack_array(text: str) -> np.ndarray:
    """The inverse of `pack_array`."""
    return np.frombuffer(base64.b64decode(text), "<f4").copy()
