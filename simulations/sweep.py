"""Many runs as Ray tasks, one core each; the same command on a Ray cluster scales out (`--address`).

Resumable after a kill at any point: a finished run has a result file and is never repeated, a half run continues from
its checkpoint and journal. A failed run is listed and the rest goes on.
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from common.data.cache import require_cached
from common.settings import Settings
from common.space import PARAMETER_SPACE
from simulations.experiments import GAINS_PLACEHOLDER
from simulations.ray_folder import ray_folder
from simulations.records import read_records, run_hash
from simulations.worker import execute, gains_path

# Before anything was measured here: CPU seconds of a 500-round run of the paper preset on one core of a small server.
_GUESS = {"mnist": 130.0, "cifar10": 200.0}
_PARAMETER_SPACE_FACTOR = 1.3


@dataclass(frozen=True)
class Plan:
    """What a sweep would do.

    Attributes:
        todo: runs without a result file, in order.
        done: number of runs that have one.
        seconds: CPU time of the runs to do, estimated.
    """

    todo: tuple[Settings, ...]
    done: int
    seconds: float


def gains_source(replay: Settings) -> Settings:
    """The factorized run whose gains a replay replays."""
    return dataclasses.replace(replay, variant="factorized-u0", replay_gains="")


def make_plan(runs: list[Settings], results: Path, work: Path) -> Plan:
    """Compare the wanted runs with the result files there are; estimate the CPU time of the rest from those files."""
    finished = {run_hash(settings) for settings in runs if (results / f"{run_hash(settings)}.json").exists()}
    # A replay needs gains that only its factorized run's work folder has: without them that run is due once more.
    for settings in runs:
        if settings.replay_gains == GAINS_PLACEHOLDER and run_hash(settings) not in finished:
            source = gains_source(settings)
            if not gains_path(work, source).exists():
                finished.discard(run_hash(source))
    todo = tuple(settings for settings in runs if run_hash(settings) not in finished)
    measured = read_records(results) if results.exists() else []
    return Plan(todo, len(runs) - len(todo), sum(estimate(settings, measured) for settings in todo))


def estimate(settings: Settings, measured: list[dict[str, Any]]) -> float:
    """CPU seconds of a run: the mean of measured runs of its data set and variant, scaled by rounds, or a guess."""
    similar = [
        record["cpu_seconds"] / record["settings"].get("num-rounds", Settings.num_rounds)
        for record in measured
        if record["settings"].get("dataset", Settings.dataset) == settings.dataset
        and record["settings"].get("variant", Settings.variant) == settings.variant
    ]
    if similar:
        return settings.num_rounds * sum(similar) / len(similar)
    factor = _PARAMETER_SPACE_FACTOR if settings.variant in PARAMETER_SPACE else 1.0
    return _GUESS[settings.dataset] * factor * settings.num_rounds / 500


def run_sweep(
    plan: Plan, *, results: Path, work: Path, data_dir: Path, jobs: int, address: str | None, console: Console
) -> list[str]:
    """Run everything that is left; returns a line per failed run.

    Raises:
        DataError: a data set is missing from the cache.
    """
    import ray

    for dataset in sorted({settings.dataset for settings in plan.todo}):
        require_cached(dataset, data_dir)
    work.mkdir(parents=True, exist_ok=True)
    if address:
        ray.init(address=address, log_to_driver=False)
    else:
        ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False, _temp_dir=str(ray_folder() / "ray"))
    try:
        return _run_all(plan, results, work, data_dir, jobs, console)
    finally:
        ray.shutdown()


def _run_all(plan: Plan, results: Path, work: Path, data_dir: Path, jobs: int, console: Console) -> list[str]:
    import ray

    task = ray.remote(num_cpus=1, max_retries=0)(execute)
    waiting, failures = list(plan.todo), []
    running: dict[Any, Settings] = {}
    started = time.monotonic()
    capacity = max(1, int(ray.cluster_resources().get("CPU", jobs)))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console, refresh_per_second=1) as progress:
        bar = progress.add_task("sweep", total=len(plan.todo), left="")
        while waiting or running:
            for settings in list(waiting):
                if len(running) >= capacity:
                    break
                ready = _resolve_gains(settings, work, [*waiting, *running.values()])
                if ready is None:
                    continue
                waiting.remove(settings)
                if isinstance(ready, str):
                    failures.append(ready)
                    progress.advance(bar)
                    continue
                config = {**ready.to_config(), "data-dir": str(data_dir)}
                running[task.remote(config, str(results), str(work))] = settings
            if not running:
                continue
            done, _ = ray.wait(list(running), num_returns=1, timeout=5.0)
            for reference in done:
                settings = running.pop(reference)
                try:
                    ray.get(reference)
                except Exception as error:  # listed; the rest goes on
                    cause = (str(error).strip() or type(error).__name__).splitlines()[-1]
                    failures.append(f"{describe(settings)}: {cause}")
                    console.print(f"failed: {failures[-1]}", markup=False)
                progress.advance(bar)
            progress.update(bar, left=_time_left(plan, len(waiting) + len(running), started))
    return failures


def _time_left(plan: Plan, left: int, started: float) -> str:
    finished = len(plan.todo) - left
    if finished == 0:
        return f"about {plan.seconds / 3600:.1f} CPU hours"
    seconds = (time.monotonic() - started) / finished * left
    return f"{seconds / 60:.0f} min left"


def _resolve_gains(settings: Settings, work: Path, unfinished: list[Settings]) -> Settings | str | None:
    """A replay needs the gains of a factorized run: the settings with their path, None to wait, or why it can't run."""
    if settings.replay_gains != GAINS_PLACEHOLDER:
        return settings
    source = gains_source(settings)
    path = gains_path(work, source)
    if path.exists():
        return dataclasses.replace(settings, replay_gains=str(path))
    if run_hash(source) in {run_hash(other) for other in unfinished}:
        return None
    return f"{describe(settings)}: no recorded gains at {path}; run the factorized-u0 run of the same settings again"


def describe(settings: Settings) -> str:
    """The settings that differ from the defaults and matter to a reader, on one line."""
    hidden = {
        "deterministic",
        "tensorboard",
        "checkpoint-every",
        "evaluate-every",
        "out-dir",
        "data-dir",
        "replay-gains",
    }
    changed = {k: v for k, v in settings.changed().items() if k not in hidden}
    return f"{settings.dataset}/{settings.variant}/{settings.channel} " + json.dumps(
        {k: v for k, v in changed.items() if k not in ("dataset", "variant", "channel")}
    )
