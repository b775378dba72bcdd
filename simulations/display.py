"""What a person sees of a run: a live progress line, and a table at the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from common.settings import Settings

if TYPE_CHECKING:
    from simulations.explain import Line


def show_progress(rows: Iterable[dict[str, Any]], settings: Settings, console: Console) -> None:
    """Consume the rows of a run and draw its progress."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=settings.num_rounds, status="")
        accuracy = ""
        for row in rows:
            if "seen_accuracy" in row:
                accuracy = f"Seen {row['seen_accuracy']:.1%}"
                if "future_accuracy" in row:
                    accuracy += f"  Future {row['future_accuracy']:.1%}"
                if not console.is_terminal:
                    console.print(f"round {row['round']}: {accuracy}")
            status = f"loss {row['loss']:.3f}  " if "loss" in row else ""
            progress.update(task, completed=row["round"], description="training", status=status + accuracy)


def show_summary(summary: dict[str, Any], console: Console) -> None:
    """The result table, what it cost, and what ε does not cover."""
    settings, privacy, uplink = summary["settings"], summary["privacy"], summary["uplink"]
    accuracy, references = summary["accuracy"], summary["references"]
    table = Table(title=f"{summary['run']} (round {accuracy['round']})")
    for name, justify in (("", "left"), ("Seen", "right"), ("Future", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_row(
        f"{settings['variant']} / {settings['channel']}, personal models",
        _percent(accuracy["seen"]),
        _percent(accuracy["future"]),
    )
    for name, row in references.items():
        if isinstance(row, dict):
            table.add_row(name.replace("_", " "), _percent(row["seen"]), _percent(row.get("future")), style="dim")
        else:
            table.add_row(name, _percent(row), _percent(row), style="dim")
    console.print(table)
    console.print(f"guarantee: {privacy['guarantee']}")
    console.print(
        f"epsilon {_number(privacy['epsilon'])} (future clients {_number(privacy['epsilon_future'])}) at delta {privacy['delta']:g}, "
        f"accountant {privacy['accountant']}, sigma {summary['noise']['noise_stddev']:.5g}, "
        f"T_max {summary['noise']['t_max']} ({summary['noise']['t_max_source']})"
    )
    size = "lengths not recorded without diagnostics"
    if uplink["message_bytes"] is not None:
        size = f"{uplink['message_bytes'] / 1e6:.2f} MB, {uplink['bits_per_coordinate'] or 0:.3f} bits per coordinate"
    console.print(f"protected uplink {uplink['messages']} messages, {size}; {summary['failed_replies']} failed replies")
    for caution in privacy.get("cautions", []):
        console.print(f"caution: {caution}", style="bold")
    console.print("outside epsilon: " + "; ".join(privacy["outside_epsilon"]), style="dim")


def show_lines(sections: list[tuple[str, list[Line]]], console: Console) -> None:
    """Facts in sections: name, value, meaning."""
    for title, lines in sections:
        table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
        for line in lines:
            table.add_row(line.name, f"[bold]{escape(line.value)}[/bold]", line.meaning)
        if lines:
            console.print(table)


def _number(value: float | None) -> str:
    return "unbounded" if value is None else f"{value:.4g}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f} %"
