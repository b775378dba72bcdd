"""ServerApp entry: settings → strategy → results."""

from __future__ import annotations

import common  # noqa: F401  (first: pins the numerics before NumPy and torch are loaded)

# isort: split
import logging
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from common.channel.lrsuq import warm_up
from common.numerics import check_device, pin_torch
from common.rules import make_rules
from common.settings import Settings
from server_app.personalize import personalize
from server_app.results import RunFolder
from server_app.strategy import PersonalizedStrategy
from server_app.summary import write_results

log = logging.getLogger("papfl.server")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Flower's entry point."""
    _log_to_stream()
    settings = Settings.from_config(context.run_config)
    if settings.task == "personalize":
        for client, outcome in give_models(grid, settings)["clients"].items():
            log.info("client %s: %s, epsilon %.6g", client, outcome["status"], outcome["epsilon"])
        return
    summary = run(grid, settings)
    accuracy, privacy = summary["accuracy"], summary["privacy"]
    log.info("Seen %s, Future %s at round %d", accuracy["seen"], accuracy["future"], accuracy["round"])
    log.info("epsilon %s at delta %g; guarantee: %s", privacy["epsilon"], privacy["delta"], privacy["guarantee"])
    log.info("outside epsilon: %s", "; ".join(privacy["outside_epsilon"]))


def _log_to_stream() -> None:
    """What `flwr run --stream` shows of us: our own lines, not those of the libraries below."""
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("papfl: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False


def give_models(grid: Grid, settings: Settings) -> dict[str, Any]:
    """`papfl personalize` on any grid; returns its report.

    Raises:
        ValueError: no finished run of these settings, or its folder is in use.
        FederationError: nobody is connected.
    """
    pin_torch()
    rules = make_rules(settings)
    check_device(settings)
    folder = RunFolder(settings)
    if not folder.summary.exists():
        raise ValueError(f"run-name must be that of a finished run. Received {folder.path}, which has no summary.json.")
    with folder.locked():
        folder.failure.unlink(missing_ok=True)
        try:
            return personalize(grid, rules, folder)
        except Exception as error:
            folder.fail(error)
            raise


def run(grid: Grid, settings: Settings) -> dict[str, Any]:
    """One whole run on any grid; returns its summary.

    Raises:
        ValueError: settings that don't go together, or a run folder that must not be overwritten or is in use.
        FederationError: the federation cannot serve the run.
    """
    pin_torch()
    rules = make_rules(settings)
    check_device(settings)
    if settings.channel == "lrsuq":
        warm_up()
    folder = RunFolder(settings)
    with folder.locked():
        folder.create(settings)
        try:
            strategy = PersonalizedStrategy(rules, folder)
            strategy.start(grid)
            return write_results(strategy.state, strategy.hellos)
        except Exception as error:
            folder.fail(error)
            raise
