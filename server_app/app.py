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
from server_app.results import RunFolder
from server_app.strategy import PersonalizedStrategy
from server_app.summary import write_results

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Flower's entry point."""
    logging.basicConfig(level=logging.INFO)
    run(grid, Settings.from_config(context.run_config))


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
