"""Paths that people give: `~`, and what to say where nobody is at home (a container's user without a passwd entry)."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def expand(name: str, value: str | Path) -> Path:
    """The path with `~` resolved.

    Args:
        name: of the setting, for the message.

    Raises:
        ValueError: there is no such home directory.
    """
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError(
            f"{name} must be an absolute path where this user has no home directory (or set HOME). Received {str(value)!r}."
        ) from None


def require_writable(name: str, folder: Path) -> None:
    """Raises `ValueError`, naming the setting, where a folder cannot be made or written. Makes nothing."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"{name} must be a folder that this user can write. Received {folder} ({there} is not).")


def require_text(name: str, path: Path) -> None:
    """Raises `ValueError` for a path that cannot be given to other processes as text."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{name} has letters that {sys.getfilesystemencoding()}, this terminal's encoding, does not have: set PYTHONUTF8=1. "
            f"Received {str(path)!r}."
        ) from None
