"""ServerApp entry: settings → strategy → results."""

from __future__ import annotations

import logging
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import common  # noqa: F401  (pins the numerics before torch is imported)
from common.numerics import pin_torch
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
        ValueError: settings that don't go together, or a run folder that must not be overwritten.
        FederationError: the federation cannot serve the run.
    """
    pin_torch()
    rules = make_rules(settings)
    folder = RunFolder(settings)
    folder.create(settings)
    strategy = PersonalizedStrategy(rules, folder)
    try:
        strategy.start(grid)
    except Exception as error:
        folder.fail(error)
        raise
    return write_results(strategy.state, strategy.hellos)
