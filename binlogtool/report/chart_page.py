"""HTML page of `stats --chart FILE.html`: the chart and its figures."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.render.page import end, head, text
from binlogtool.report.chart import chart
from binlogtool.report.series import Counted, step_text
from binlogtool.report.words import count

MOST_ROWS = 1000
"""Lines of a table; what more there is, is counted."""


def chart_page(found: Counted, title: str) -> bytes:
    """Render the page."""
    groups = [(name, tally.records, tally.bytes) for name, tally in found.groups.items()]
    steps = [(step_text(start), tally.records, tally.bytes) for start, tally in found.steps().items()]
    about = f"by {text(found.by)}, steps of {text(found.bucket)}"
    page = (
        head(title, "annotated.css", "report.css"),
        f'<header><h1>{text(title)}</h1><p class="about">{about}</p></header>',
        f'<main><article class="file"><div class="chart">{chart(found, title).decode("utf-8")}</div></article>\n',
        *_table(found.by, groups),
        *_table(f"time ({found.bucket})", steps),
        f"</main>\n{end()}",
    )
    return "".join(page).encode("utf-8", "backslashreplace")


def _table(first: str, rows: list[tuple[str | None, int, int]]) -> Iterator[str]:
    yield f'<article class="file"><table><tr><th>{text(first)}</th><th>records</th><th>bytes</th></tr>\n'
    for name, records, size in rows[:MOST_ROWS]:
        shown = text("-" if name is None else name)
        yield f'<tr><td>{shown}</td><td class="n">{count(records)}</td><td class="n">{count(size)}</td></tr>\n'
    more = len(rows) - MOST_ROWS
    yield f"</table>{f'<p>{count(more)} more are not shown.</p>' if more > 0 else ''}</article>\n"
