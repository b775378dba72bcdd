"""One self-contained HTML page: tables, claims, figures inline; nothing is loaded from anywhere."""

from __future__ import annotations

import base64
import html
from pathlib import Path

from simulations.report.results import Results
from simulations.report.tables import Table

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1c2733;max-width:1080px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{margin-top:2.2rem;font-size:1.2rem}
table{border-collapse:collapse;font-size:.86rem;margin:.6rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;border-bottom:1px solid #dde3ea;text-align:left}th{background:#f3f6f9}
figure{margin:1rem 0}figure img{max-width:100%}figcaption,.note{color:#56657a;font-size:.9rem}
.agree{color:#00734f}.differ{color:#b03a00;font-weight:600}.within-noise,.one-seed,.not-run{color:#56657a}
nav a{margin-right:1rem}
"""


def render_page(results: Results, tables: list[Table], claims: Table, figures: dict[str, tuple[Path, Path]]) -> str:
    """The page as text."""
    versions = sorted(
        {(r["numerics"]["numerics_version"], r["numerics"]["torch"], r["numerics"]["cpu"]) for r in results.records}
    )
    guarantees = sorted({r["privacy"]["guarantee"] for r in results.records})
    outside = sorted({item for r in results.records for item in r["privacy"]["outside_epsilon"]})
    parts = [
        "<h1>papfl: results</h1>",
        f"<p>{len(results.records)} runs. "
        + " ".join(f"Arithmetic {v}, torch {html.escape(t)}, {html.escape(c)}." for v, t, c in versions)
        + "</p>",
        f"<p class=note>Guarantee: {html.escape('; '.join(guarantees))}. ε does not cover: {html.escape('; '.join(outside))}.</p>",
        "<nav>"
        + "".join(f"<a href='#{t.name}'>{html.escape(t.title)}</a>" for t in [*tables, claims])
        + "<a href='#figures'>Figures</a></nav>",
        *(_section(table) for table in tables),
        _section(claims, verdicts=True),
        "<h2 id=figures>Figures</h2>",
        *(_figure(title, png) for title, (png, _) in figures.items()),
    ]
    return f"<!doctype html><html lang=en><meta charset=utf-8><title>papfl results</title><style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"


def _section(table: Table, verdicts: bool = False) -> str:
    def row(cells: list[str]) -> str:
        shown = [f"<td>{html.escape(cell)}</td>" for cell in cells]
        if verdicts:
            shown[-1] = f"<td class='{cells[-1].replace(' ', '-')}'>{html.escape(cells[-1])}</td>"
        return "<tr>" + "".join(shown) + "</tr>"

    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.header)
    body = "".join(row(cells) for cells in table.rows)
    return f"<h2 id={table.name}>{html.escape(table.title)}</h2><p class=note>{html.escape(table.note)}</p><table><tr>{head}</tr>{body}</table>"


def _figure(title: str, png: Path) -> str:
    data = base64.b64encode(png.read_bytes()).decode()
    return f"<figure><img alt='{html.escape(title)}' src='data:image/png;base64,{data}'><figcaption>{html.escape(title)}</figcaption></figure>"
