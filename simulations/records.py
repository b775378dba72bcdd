"""Result files: one small JSON file per finished run, named by the hash of what decides the result."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from common.files import write_atomically
from common.numerics import NUMERICS_VERSION
from common.settings import Settings
from simulations.record_check import check_record

Record = dict[str, Any]

# By round, at most 50 numbers each.
TRACES = (
    "loss",
    "update_norm",
    "clipped_fraction",
    "hidden_norm_squared",
    "hidden_rotation",
    "hidden_alignment",
    "isotropic_share",
    "isotropic_share_others",
)


def run_hash(settings: Settings) -> str:
    """Name of a run: hash of its settings and of the arithmetic's version, 16 hexadecimal digits."""
    return hashlib.sha256(f"{settings.digest()}|{NUMERICS_VERSION}".encode()).hexdigest()[:16]


def record_of(settings: Settings, summary: dict[str, Any], rows: list[dict[str, Any]], cpu_seconds: float) -> Record:
    """What a report needs of a finished run, in at most 20 KB: the summary and short traces of its rounds."""
    changed = settings.changed()
    for place in ("out-dir", "data-dir", "run-name", "replay-gains", "resume"):
        changed.pop(place, None)
    privacy = {key: value for key, value in summary["privacy"].items() if key != "epsilon_per_client"}
    evaluations = [
        {
            "round": row["round"],
            "seen": row.get("seen_accuracy"),
            "future": row.get("future_accuracy"),
        }
        for row in rows
        if "seen_accuracy" in row
    ]
    per_client = {client: round(value, 4) for client, value in (summary["accuracy"]["per_client"] or {}).items()}
    return {
        "settings": changed,
        "digest": settings.digest(),
        "numerics": summary["numerics"],
        "privacy": privacy,
        "noise": summary["noise"],
        "accuracy": {**summary["accuracy"], "per_client": per_client},
        "evaluations": evaluations,
        "references": summary["references"],
        "partition": summary["partition"].get("sha256"),
        "uplink": summary["uplink"],
        "traces": {key: trace for key in TRACES if (trace := _trace(rows, key))},
        "gains": summary["gains"],
        "milliseconds": {key: _median(rows, key) for key in ("gradient_ms", "encode_ms", "decode_ms")},
        "failed_replies": summary["failed_replies"],
        "cpu_seconds": round(cpu_seconds, 1),
        "generator_digest": summary["generator_digest"],
    }


def message_size(record: Record) -> float:
    """Mean bytes of a message of a run."""
    uplink = record["uplink"]
    return float(uplink["message_bytes"] / max(1, uplink["messages"]))


def _trace(rows: list[dict[str, Any]], key: str, points: int = 50) -> list[float]:
    """Means of consecutive stretches of rounds: `points` numbers at most."""
    values = [row[key] for row in rows if key in row]
    size = max(1, -(-len(values) // points))
    return [
        float(f"{sum(part) / len(part):.5g}") for i in range(0, len(values), size) if (part := values[i : i + size])
    ]


def _median(rows: list[dict[str, Any]], key: str) -> float | None:
    values = sorted(row[key] for row in rows if key in row)
    return round(values[len(values) // 2], 3) if values else None


def write_record(folder: Path, settings: Settings, record: Record) -> Path:
    """Write a result file, atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run_hash(settings)}.json"
    write_atomically(path, (_compact(json.dumps(record, indent=1)) + "\n").encode())
    return path


def _compact(text: str) -> str:
    """Lists of numbers on one line: files of a third of the size, and diffs that a person can read."""
    return re.sub(r"\[[\s\d.,eE+-]*\]", lambda found: re.sub(r"\s+", " ", found.group()), text)


def read_records(folder: Path) -> list[Record]:
    """All result files of a folder (and of folders in it), in the order of their names.

    Raises:
        ValueError: a file that is no result file, named with what is wrong in it.
    """
    return [_read_record(path) for path in sorted(folder.rglob("*.json"))]


def _read_record(path: Path) -> Record:
    try:
        record = json.loads(path.read_text())
        check_record(record)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be a result file: {error}") from None
    return dict(record)
