"""The frozen order of a data holder's own records (docs/method.md, section 0).

Positions decide which records are in a batch. They are fixed once, in the state directory: a file that is replaced keeps
its position, and a record that is added or removed needs a new manifest, because it is another data set.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from common.data.cache import DataError
from common.data.catalog import DatasetSpec
from common.data.own import OwnRecords, list_classes, list_records, read_records
from common.files import write_atomically
from common.validation import integer


@dataclass(frozen=True)
class Manifest:
    """What is frozen.

    Attributes:
        names: record files in order; empty for an NPZ file.
        classes: class folders, label by position.
        count: number of records.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    count: int


def frozen_records(path: Path, spec: DatasetSpec, state: Path) -> OwnRecords:
    """The records in their frozen order; the first call freezes it.

    Raises:
        DataError: unreadable records, or others than the manifest's.
    """
    file = state / "manifest.json"
    if not file.exists():
        names = list_records(path)
        records = read_records(path, spec, names, list_classes(path, spec))
        state.mkdir(parents=True, exist_ok=True)
        content = {"names": names, "classes": list_classes(path, spec), "count": len(records.labels)}
        write_atomically(file, json.dumps(content).encode())
        return records
    manifest = read_manifest(file)
    found = list_records(path)
    if set(found) != set(manifest.names):
        added, gone = sorted(set(found) - set(manifest.names)), sorted(set(manifest.names) - set(found))
        raise DataError(_changed(file, f"{len(added)} added {added[:3]}, {len(gone)} gone {gone[:3]}"))
    records = read_records(path, spec, manifest.names, manifest.classes)
    if len(records.labels) != manifest.count:
        raise DataError(_changed(file, f"{len(records.labels)} records instead of {manifest.count}"))
    return records


def _changed(file: Path, what: str) -> str:
    return (
        f"data must hold the records of {file}: {what}. Replace records in place; for another data set, move the manifest "
        "away to freeze a new one (the ledger goes on counting: positions of the old and the new set share one budget)."
    )


def read_manifest(file: Path) -> Manifest:
    """A manifest from disk.

    Raises:
        DataError: damaged.
    """
    try:
        content = json.loads(file.read_text())
        names, classes = (tuple(content[key]) for key in ("names", "classes"))
        if not all(isinstance(name, str) for name in names + classes):
            raise ValueError("names and classes must be text")
        return Manifest(names, classes, integer("count", content["count"], at_least=0))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is damaged ({error}); restore it from a back-up: positions must not change.") from None
