"""The frozen, secret order of a data holder's own records (docs/method.md, section 0).

A record's position decides which batches it is in. Where files or rows happen to stand says something about what is in
them, so positions are drawn uniformly at random, once, and kept secret in the state directory. From then on a record is
known by its content: renamed files and reordered rows change nothing, and a record that replaces another takes its place.

Positions carry what has been spent on them. That says nothing any more once a record turns up at another position than
it had: the order then gets a new name, and positions of another name are never compared (`worst_record_rho`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from common.data.cache import DataError
from common.data.catalog import DatasetSpec
from common.data.own import OwnRecords, list_classes, read_records
from common.files import write_atomically
from common.randomness import KeyStream, fresh_key

log = logging.getLogger("papfl.client")
_VERSION = 2
# In place of a digest: a record without content, of which nothing was ever released.
UNUSABLE = ""


@dataclass(frozen=True)
class Manifest:
    """What is frozen.

    Attributes:
        order: name of this order: positions of another one are those of other records.
        classes: class folders, label by position.
        positions: of each position, digests of the records that it has held, the present one last.
    """

    order: str
    classes: tuple[str, ...]
    positions: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class FrozenRecords:
    """A holder's records by position, and the name of their order."""

    images: np.ndarray
    labels: np.ndarray
    order: str


def frozen_records(path: Path, spec: DatasetSpec, state: Path) -> FrozenRecords:
    """The records in their frozen order; the first call freezes it.

    Raises:
        DataError: unreadable records, another number of them than before, a damaged manifest.
    """
    file = state / "manifest.json"
    state.mkdir(parents=True, exist_ok=True)
    with FileLock(state / "manifest.lock"):  # a process per message: two of them must not draw two orders
        known = read_manifest(file) if file.exists() else None
        classes = known.classes if known else list_classes(path, spec)
        found = read_records(path, spec, classes)
        if found.problems:
            log.warning(
                "%d of %d records cannot be used and count as records without content (papfl data check names all): %s",
                len(found.problems), len(found.labels), "; ".join(found.problems[:3]),
            )  # fmt: skip
        digests = [_digest(image, int(label)) for image, label in zip(found.images, found.labels, strict=True)]
        if known is None or not known.positions:
            positions = tuple((digests[row],) for row in _permutation(len(digests)))
            manifest = Manifest(secrets.token_hex(8), classes, positions)
        else:
            manifest = rearranged(known, digests, file)
        if manifest != known:
            _write(file, manifest)
    return _in_order(found, digests, manifest)


def rearranged(known: Manifest, digests: list[str], file: Path) -> Manifest:
    """The manifest with the records that have come instead of others.

    Args:
        digests: of the records that are there now, in any order.

    Raises:
        DataError: another number of records.
    """
    if len(digests) != len(known.positions):
        raise DataError(
            f"data must hold the {len(known.positions)} records of {file}, or as many others. Received {len(digests)}. "
            "For another number, move the manifest away to freeze a new one; the ledger goes on counting, and then counts "
            "every earlier release for all records."
        )
    left: dict[str, int] = defaultdict(int)
    for digest in digests:
        left[digest] += 1
    free = []
    for position, held in enumerate(known.positions):
        if left[held[-1]]:
            left[held[-1]] -= 1
        else:
            free.append(position)
    new = [digest for digest, count in left.items() for _ in range(count)]
    if not new:
        return known
    taken = _places_of_their_own(known, free, new)
    free = [place for place in free if place not in taken]
    for digest in taken.values():
        new.remove(digest)
    elsewhere = {_subject(digest) for held in known.positions for digest in held} - {UNUSABLE}
    order = secrets.token_hex(8) if elsewhere & set(map(_subject, new)) else known.order
    if order != known.order:
        log.warning("a record of %s has come to another position: earlier releases now count for all records", file)
    taken |= {place: new[index] for place, index in zip(free, _permutation(len(new)), strict=True)}
    positions = [(*held, taken[place]) if place in taken else held for place, held in enumerate(known.positions)]
    return Manifest(order, known.classes, tuple(positions))


def _places_of_their_own(known: Manifest, free: list[int], new: list[str]) -> dict[int, str]:
    """Free position → record, for those that stood there before, perhaps with another label."""
    homes: dict[str, list[int]] = defaultdict(list)
    for place in free:
        for subject in {_subject(digest) for digest in known.positions[place]} - {UNUSABLE}:
            homes[subject].append(place)
    taken: dict[int, str] = {}
    for digest in new:
        home = next((place for place in homes[_subject(digest)] if place not in taken), None)
        if home is not None:
            taken[home] = digest
    return taken


def read_manifest(file: Path) -> Manifest:
    """A manifest from disk. One of 0.1.0, whose order followed file names, has no positions: a new order is drawn.

    Raises:
        DataError: damaged.
    """
    try:
        content = json.loads(file.read_text())
        classes = _texts(content["classes"])
        if "version" not in content:
            _texts(content["names"])
            log.warning("%s is of 0.1.0: its order followed the records; a secret one is drawn now", file)
            return Manifest("", classes, ())
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']!r}, this papfl knows {_VERSION}")
        if content.pop("seal") != _seal(content):
            raise ValueError("it is not what was written")
        return Manifest(content["order"], classes, tuple(_texts(held) for held in content["positions"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is damaged ({error}); restore it from a back-up: positions must not change.") from None


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("names, classes and digests must be lists of text")
    return tuple(values)


def _write(file: Path, manifest: Manifest) -> None:
    content = {
        "version": _VERSION,
        "order": manifest.order,
        "classes": manifest.classes,
        "positions": manifest.positions,
    }
    write_atomically(file, json.dumps({**content, "seal": _seal(content)}).encode(), private=True)


def _seal(content: dict[str, Any]) -> str:
    """A changed digit would otherwise be taken for another record."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest(image: np.ndarray, label: int) -> str:
    """What is trained on, whatever file or row it came from."""
    if np.isnan(image).any():
        return UNUSABLE
    return f"{hashlib.sha256(image.astype('<f4').tobytes()).hexdigest()[:32]}:{label}"


def _subject(digest: str) -> str:
    """The part of a digest that a corrected label leaves alone."""
    return digest.split(":")[0]


def _permutation(count: int) -> list[int]:
    """Uniformly random and secret."""
    while True:
        words = KeyStream(fresh_key()).words(count)
        if len(np.unique(words)) == count:
            return [int(index) for index in np.argsort(words)]


def _in_order(found: OwnRecords, digests: list[str], manifest: Manifest) -> FrozenRecords:
    """The records that were found, at the positions that the manifest gives them."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, digest in enumerate(digests):
        rows[digest].append(row)
    index = np.array([rows[held[-1]].pop() for held in manifest.positions])
    return FrozenRecords(found.images[index], found.labels[index], manifest.order)
