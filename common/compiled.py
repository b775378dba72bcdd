"""Loads modules that Numba compiles from a place that survives.

Numba caches machine code beside the source file. Flower unpacks every build of the app into another folder and
deployment starts a process per message, so a kernel compiled in place would be compiled again and again, and not at all
where the code is read-only. Therefore: a copy of the module in a cache folder named by its content. Numba itself is
imported only when a kernel is first used.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType


def wanted_folder() -> Path | None:
    """Below `PAPFL_CACHE_DIR`, or ~/.cache/papfl; None for a user without a home directory."""
    try:
        return Path(os.environ.get("PAPFL_CACHE_DIR", "~/.cache/papfl")).expanduser() / "kernels"
    except RuntimeError:
        return None


def cache_folder() -> Path:
    """`wanted_folder`, or a folder in the temporary directory where that cannot be written."""
    wanted = wanted_folder()
    if wanted is not None:
        with contextlib.suppress(OSError):
            wanted.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=wanted):
                return wanted
    fallback = Path(tempfile.gettempdir()) / f"papfl-kernels-{os.getuid()}"
    fallback.mkdir(mode=0o700, exist_ok=True)
    if fallback.stat().st_uid != os.getuid():
        raise PermissionError(f"PAPFL_CACHE_DIR must be writable. Received {wanted}, and {fallback} is not ours.")
    return fallback


@cache
def load_compiled(source_file: Path, *parts: Path) -> ModuleType:
    """The module in `source_file`, imported from the cache.

    Args:
        parts: modules whose compiled functions it uses: their text decides about the cached code as well.

    The first use on a machine compiles it (seconds), later ones load it (a fraction of one).
    """
    source = source_file.read_bytes()
    digest = hashlib.sha256(b"".join([source, *(part.read_bytes() for part in parts)])).hexdigest()[:16]
    folder = cache_folder() / digest
    name = f"papfl_{source_file.stem}_{digest}"
    path = folder / f"{name}.py"
    wanted = wanted_folder()
    if not path.exists() and wanted not in (None, folder.parent) and (wanted / digest).is_dir():
        # A read-only image with a warm cache: Numba wants to write beside what it reads, so work on a copy.
        _copy_whole(wanted / digest, folder)
    if not path.exists():
        folder.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(source)
        os.replace(file.name, path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _copy_whole(source: Path, target: Path) -> None:
    """Copy a folder; several processes may do it at once, and none sees half a copy."""
    with tempfile.TemporaryDirectory(dir=target.parent, ignore_cleanup_errors=True) as temporary:
        copy = Path(shutil.copytree(source, Path(temporary) / target.name))
        with contextlib.suppress(OSError):  # another process was first
            copy.rename(target)
