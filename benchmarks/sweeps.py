"""Sweeps: throughput on two cores against one, CPU beside the run itself, memory of the largest variant."""

import argparse
import dataclasses
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

import common  # noqa: F401
from benchmarks.report import save, table
from common.settings import Settings
from simulations.records import read_records
from simulations.sweep import make_plan, run_sweep

# Full-DG on CIFAR-10: W is 121,182 x 100.
_LARGEST = Settings(
    dataset="cifar10",
    variant="full",
    channel="dg",
    num_rounds=5,
    deterministic=True,
    tensorboard=False,
    evaluate_every=0,
)
_PROBE = """
import resource, sys
import common
from common.settings import Settings
from simulations.run import run_in_process
list(run_in_process(Settings.from_config(eval(sys.argv[1]))))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def sweep_seconds(runs: list[Settings], data_dir: Path, jobs: int) -> dict[str, float]:
    """Wall and CPU seconds of a sweep, start-up of Ray included, and of the runs in it as they measured themselves."""
    with tempfile.TemporaryDirectory() as folder:
        results, work = Path(folder) / "results", Path(folder) / "work"
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        failures = run_sweep(
            make_plan(runs, results, work),
            results=results, work=work, data_dir=data_dir, jobs=jobs, address=None, console=Console(quiet=True),
        )  # fmt: skip
        if failures:
            raise RuntimeError("; ".join(failures))
        seconds = time.monotonic() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        records = read_records(results)
        return {
            "wall_s": seconds,
            "runs_cpu_s": sum(record["cpu_seconds"] for record in records),
            "children_cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        }


def largest_memory(data_dir: Path) -> float:
    """Peak resident memory in GB of a process that runs full-DG on CIFAR-10 and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        settings = dataclasses.replace(_LARGEST, out_dir=folder, data_dir=str(data_dir), run_name="largest")
        command = [sys.executable, "-c", _PROBE, repr(settings.to_config())]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return int(output.split()[-1]) / 1e6


def in_process_cpu(settings: Settings, data_dir: Path) -> float:
    """CPU seconds of one run in a process of its own, after imports."""
    code = _PROBE.replace("list(run", "started = resource.getrusage(resource.RUSAGE_SELF).ru_utime\nlist(run").replace(
        "ru_maxrss", "ru_utime - started"
    )
    with tempfile.TemporaryDirectory() as folder:
        own = dataclasses.replace(settings, out_dir=folder, data_dir=str(data_dir), run_name="alone")
        command = [sys.executable, "-c", code, repr(own.to_config())]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path(Settings.data_dir).expanduser())
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--runs", type=int, default=4)
    options = parser.parse_args()
    base = Settings(channel="dg", num_rounds=options.rounds, deterministic=True, tensorboard=False, evaluate_every=0)
    runs = [dataclasses.replace(base, seed=seed) for seed in range(options.runs)]
    # A sweep of one core, one of two, and the first again: the machine is shared.
    one, two, again = (sweep_seconds(runs, options.data_dir, jobs) for jobs in (1, 2, 1))
    alone = in_process_cpu(runs[0], options.data_dir)
    in_sweep = (one["runs_cpu_s"] + again["runs_cpu_s"]) / (2 * options.runs)
    result = {
        "rounds": options.rounds,
        "runs": options.runs,
        "one_core_wall_s": (one["wall_s"] + again["wall_s"]) / 2,
        "two_cores_wall_s": two["wall_s"],
        "throughput_ratio": (one["wall_s"] + again["wall_s"]) / 2 / two["wall_s"],
        "cpu_of_a_run_alone_s": alone,
        "cpu_of_a_run_in_the_sweep_s": in_sweep,
        "overhead": in_sweep / alone - 1,
        "full_dg_cifar10_peak_gb": largest_memory(options.data_dir),
    }
    table("Sweeps", ["figure", "value"], [[key, f"{value:.4g}"] for key, value in result.items()])
    save("sweeps", result)


if __name__ == "__main__":
    main()
