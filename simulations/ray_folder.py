"""Where Ray keeps its sessions. Their sockets end 68 bytes below, and the system allows a socket's path 107."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOST_BYTES = 36
_SHORT = ("/tmp", "/var/tmp", "/dev/shm")


def ray_folder() -> Path:
    """The folder that Ray would take (`RAY_TMPDIR`, `TMPDIR`), or else a short one that can be written.

    Raises:
        ValueError: there is none.
    """
    given = [os.environ[name] for name in ("RAY_TMPDIR", "TMPDIR") if os.environ.get(name)]
    for folder in (*given, *_SHORT):
        # Ray joins its workers' command lines with spaces.
        plain = re.fullmatch(r"[A-Za-z0-9/._-]+", folder) is not None
        if plain and len(folder) <= _MOST_BYTES and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return Path(folder)
    raise ValueError(
        f"RAY_TMPDIR must be a folder that can be written, with at most {_MOST_BYTES} plain characters in its path (for Ray's "
        f"sockets); none of {', '.join(_SHORT)} can be. Received {given[0] if given else 'none'!r}."
    )
