"""`papfl report`: tables, figures, claims and one HTML page, from result files alone."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from simulations.records import read_records
from simulations.report.aligned import ablation, budgets, compute
from simulations.report.claims import check_claims
from simulations.report.figures import draw_figures
from simulations.report.page import render_page
from simulations.report.reasons import disagreements
from simulations.report.results import Results
from simulations.report.tables import all_tables, markdown


def write_report(results: Path, out: Path) -> list[Path]:
    """Write tables (Markdown, CSV), figures (PNG, SVG), claims and `report.html` to `out`; returns what was written.

    Raises:
        ValueError: no result files in `results`.
    """
    records = read_records(results)
    if not records:
        raise ValueError(f"--results must be a folder with result files of `papfl sweep`. Received {results}.")
    found = Results(records)
    out.mkdir(parents=True, exist_ok=True)
    claims = check_claims(found)
    tables = [*all_tables(found), budgets(found), ablation(found), compute(found), disagreements(found)]
    written = []
    for table in tables:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([table.header, *table.rows])
        written.append(_write(out / f"{table.name}.csv", buffer.getvalue()))
    text = "\n\n".join([f"## {table.title}\n\n{table.note}\n\n{markdown(table)}" for table in tables])
    written.append(_write(out / "report.md", f"# Results\n\n{text}\n\n## Claims of the paper\n\n{markdown(claims)}\n"))
    figures = draw_figures(found, out)
    written += [path for pair in figures.values() for path in pair]
    written.append(_write(out / "report.html", render_page(found, tables, claims, figures)))
    return written


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
