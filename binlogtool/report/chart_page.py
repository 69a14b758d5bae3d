"""HTML page of `stats --chart FILE.html`: the chart and its figures."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.render.page import escape_html, html_head, render_end
from binlogtool.report.chart import render_chart
from binlogtool.report.series import LogStats, format_step
from binlogtool.report.words import format_count

MAX_ROWS = 1000
"""Lines of a table; what more there is, is counted."""


def render_chart_page(series: LogStats, title: str) -> bytes:
    """Render the page."""
    groups = [(name, tally.records, tally.bytes) for name, tally in series.groups.items()]
    steps = [(format_step(start), tally.records, tally.bytes) for start, tally in series.sum_steps().items()]
    about = f"by {escape_html(series.by)}, steps of {escape_html(series.bucket)}"
    page = (
        html_head(title, "annotated.css", "report.css"),
        f'<header><h1>{escape_html(title)}</h1><p class="about">{about}</p></header>',
        (
            f'<main><article class="file"><div '
            f'class="chart">{render_chart(series, title).decode("utf-8")}</div></article>\n'
        ),
        *_render_table(series.by, groups),
        *_render_table(f"time ({series.bucket})", steps),
        f"</main>\n{render_end()}",
    )
    return "".join(page).encode("utf-8", "backslashreplace")


def _render_table(heading: str, rows: list[tuple[str | None, int, int]]) -> Iterator[str]:
    yield f'<article class="file"><table><tr><th>{escape_html(heading)}</th><th>records</th><th>bytes</th></tr>\n'
    for name, records, size in rows[:MAX_ROWS]:
        shown = escape_html("-" if name is None else name)
        yield (
            f'<tr><td>{shown}</td><td class="n">{format_count(records)}</td><td '
            f'class="n">{format_count(size)}</td></tr>\n'
        )
    more = len(rows) - MAX_ROWS
    yield f"</table>{f'<p>{format_count(more)} more are not shown.</p>' if more > 0 else ''}</article>\n"
