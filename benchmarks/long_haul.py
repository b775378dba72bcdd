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


def look(mark: str) -> tuple[float, int, int]:
    """Memory in MB (shared pages counted once), open files and processes of a run."""
    memory, files, processes = 0.0, 0, 0
    for path in family(mark):
        try:
            lines = (path / "smaps_rollup").read_text().splitlines()
            memory += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
            files += len(list((path / "fd").iterdir()))
            processes += 1
        except OSError:
            continue
    return memory, files, processes


def haul(rows, settings: Settings, mark: str) -> dict:
    """Run, and look every hundredth of it."""
    seen, step = [], max(1, settings.num_rounds // 100)
    for row in rows:
        if row["round"] % step == 0:
            seen.append((row["round"], *look(mark)))
    seconds = [row["seconds"] for row in RunFolder(settings).read_metrics()]
    tenth = len(seconds) // 10
    late, early = seen[-10:], seen[10:20]  # the first tenth still loads and compiles

    def middle(part, index):
        return statistics.median(item[index] for item in part)

    return {
        "rounds": len(seconds),
        "round_ms_second_tenth": 1e3 * statistics.median(seconds[tenth : 2 * tenth]),
        "round_ms_last_tenth": 1e3 * statistics.median(seconds[-tenth:]),
        "memory_mb_second_tenth": middle(early, 1),
        "memory_mb_last_tenth": middle(late, 1),
        "open_files_second_tenth": middle(early, 2),
        "open_files_last_tenth": middle(late, 2),
        "processes_second_tenth": middle(early, 3),
        "processes_last_tenth": middle(late, 3),
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
            result["in process"]["open_files_left"] = look("nobody")[1] - before[1]
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
