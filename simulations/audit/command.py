"""`papfl audit`."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import astuple
from pathlib import Path
from typing import Any

from common.settings import Settings
from simulations.audit.size import BLACK_BOX, WHITE_BOX, Size


def add_audit(commands: Any) -> None:
    """Register the command with `papfl`."""
    audit = commands.add_parser(
        "audit",
        help="lower bounds on epsilon, by attacking real runs",
        description="Trains on records with canaries, guesses which are there, and says which epsilon that refutes.",
    )
    audit.add_argument("--channels", nargs="+", default=["dg", "lrsuq"], choices=("dg", "lrsuq", "dg-q12"))
    audit.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0, 16.0], help="claims to be tested")
    audit.add_argument("--dataset", default="mnist", choices=("mnist", "cifar10"))
    for adversary, size in (("white-box", WHITE_BOX), ("black-box", BLACK_BOX)):
        audit.add_argument(
            f"--{adversary}",
            nargs=4,
            type=int,
            default=astuple(size),
            metavar=("CLIENTS", "RECORDS", "CANARIES", "ROUNDS"),
            help=f"size of the run that the {adversary} adversary attacks; records and canaries are per client",
        )
    audit.add_argument("--confidence", type=float, default=0.95)
    audit.add_argument("--trial", type=int, default=0, help="other canaries and coins")
    audit.add_argument("--data-dir", default=Settings.data_dir)
    audit.add_argument(
        "--out", type=Path, default=Path("runs/audit.json"), help="table as JSON and, beside it, Markdown"
    )
    audit.set_defaults(handler=_audit)


def _audit(options: argparse.Namespace) -> int:
    from rich.console import Console

    from simulations.audit.table import Audit, audit_rows, write_audit
    from simulations.run import check

    audit = Audit(
        white_box=Size(*options.white_box), black_box=Size(*options.black_box),
        dataset=options.dataset, confidence=options.confidence, trial=options.trial,
    )  # fmt: skip
    console, rows = Console(), []
    with tempfile.TemporaryDirectory() as work:
        for epsilon in options.epsilons:  # what cannot run is refused before the first run
            for size in (audit.white_box, audit.black_box):
                check(audit.settings(size, options.channels[0], epsilon, options.data_dir, Path(work)))
        for row in audit_rows(
            audit,
            channels=options.channels,
            epsilons=options.epsilons,
            data_dir=options.data_dir,
            work=Path(work),
        ):
            rows.append(row)
            write_audit(options.out, audit, rows)
            console.print(
                f"{row['channel']} {row['adversary']}: claimed epsilon {row['claimed_epsilon']:.4g}, at least "
                f"{row['epsilon']:.2f} ({row['correct']} of {row['guesses']} guesses right)"
            )
    console.print(f"{options.out}, {options.out.with_suffix('.md')}", markup=False, soft_wrap=True)
    refuted = [row for row in rows if row["refuted"]]
    for row in refuted:
        console.print(f"[red]claim refuted[/red]: {row['channel']}, epsilon {row['claimed_epsilon']:.4g}")
    return 1 if refuted else 0
