"""Printing and keeping what was measured: a table on the terminal, a JSON file in docs/benchmarks."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any

from common.numerics import describe

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print(
            "| " + " | ".join(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row) + " |",
            flush=True,
        )


def save(name: str, values: dict[str, Any]) -> None:
    """Keep the figures with what they were measured on."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    machine = {**describe(), "cores": os.cpu_count()}
    (FOLDER / f"{name}.json").write_text(json.dumps({"machine": machine, **values}, indent=1) + "\n")


def paired(
    functions: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float] = process_time
) -> dict[str, list[float]]:
    """Seconds of each function, in turn A B C A B C …, after one warm-up: ratios then hold when the machine drifts."""
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            started = clock()
            function()
            times[name].append(clock() - started)
    return times


def median_ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    """Median over pairs of time(name)/time(base)."""
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))
