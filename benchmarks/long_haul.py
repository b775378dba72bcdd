"""Long runs at small size: does a round cost the same at the end as at the beginning, and is anything left behind?

2,000 rounds on Ray and 10,000 in this process, 50 clients. `python -m benchmarks.long_haul --data-dir …`
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import uuid
from pathlib import Path

from benchmarks.report import FOLDER, save
from common.settings import Settings
from server_app.results import RunFolder
from simulations.run import run_in_process, run_on_ray

# In the environment of everything that this process starts.
MARK = f"PAPFL_LONG_HAUL={uuid.uuid4().hex}"


def settings_of(data_dir: Path, out_dir: str, rounds: int, name: str) -> Settings:
    return Settings(
        data_dir=str(data_dir), out_dir=out_dir, run_name=name, num_rounds=rounds, records_per_client=60,
        context_records=20, batch_records=24, num_coefficients=1024, hidden_dim=16, evaluate_every=rounds // 4,
        tensorboard=False, diagnostics="public-data", accountant="gdp",
    )  # fmt: skip


def family(mark: str) -> list[Path]:
    """Processes with this in their environment, and this one."""
    found = [Path("/proc/self")]
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if int(path.name) != os.getpid() and mark.encode() in (path / "environ").read_bytes():
                found.append(path)
        except OSError:
            continue
    return found


def look(mark: str) -> dict[str, float]:
    """Of all processes of a run: memory in MB (shared pages counted by share, so that it also moves with other programs, and
    heaps alone), open files, number."""
    seen = {"memory_mb": 0.0, "heap_mb": 0.0, "open_files": 0.0, "processes": 0.0}
    for path in family(mark):
        try:
            sizes = dict(line.split(":") for line in (path / "smaps_rollup").read_text().splitlines()[1:])
            seen["memory_mb"] += int(sizes["Pss"].split()[0]) / 1024
            seen["heap_mb"] += int(sizes["Anonymous"].split()[0]) / 1024
            seen["open_files"] += len(list((path / "fd").iterdir()))
            seen["processes"] += 1
        except OSError:
            continue
    return seen


def haul(rows, settings: Settings, mark: str) -> dict:
    """Run, and look every hundredth of it."""
    seen, step = [], max(1, settings.num_rounds // 100)
    for row in rows:
        if row["round"] % step == 0:
            seen.append(look(mark))
    seconds = [row["seconds"] for row in RunFolder(settings).read_metrics()]
    tenth = len(seconds) // 10

    parts = {"second_tenth": seen[10:20], "last_tenth": seen[-10:]}  # the first tenth still loads and compiles
    return {
        "rounds": len(seconds),
        "round_ms_second_tenth": 1e3 * statistics.median(seconds[tenth : 2 * tenth]),
        "round_ms_last_tenth": 1e3 * statistics.median(seconds[-tenth:]),
        **{
            f"{name}_{when}": statistics.median(one[name] for one in part)
            for name in seen[0]
            for when, part in parts.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("~/.cache/papfl").expanduser())
    parser.add_argument("--ray-rounds", type=int, default=2000, help="0: leave that part as it was measured")
    parser.add_argument("--rounds", type=int, default=10_000, help="0: as above")
    options = parser.parse_args()
    os.environ.update([MARK.split("=")])
    path = FOLDER / "long_haul.json"
    result = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        if options.rounds:
            settings = settings_of(options.data_dir, folder, options.rounds, "in-process")
            before = look("nobody")
            result["in process"] = haul(run_in_process(settings), settings, "nobody")
            result["in process"]["open_files_left"] = look("nobody")["open_files"] - before["open_files"]
        if options.ray_rounds:
            settings = settings_of(options.data_dir, folder, options.ray_rounds, "ray")
            result["ray"] = haul(run_on_ray(settings), settings, MARK)
            deadline = time.monotonic() + 60  # Ray's processes notice the end of their driver within seconds
            while len(family(MARK)) > 1 and time.monotonic() < deadline:
                time.sleep(1.0)
            result["ray"]["processes_left"] = len(family(MARK)) - 1
    result.pop("machine", None)
    save("long_haul", result)


if __name__ == "__main__":
    main()
