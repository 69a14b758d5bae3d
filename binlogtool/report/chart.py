"""Chart of records and bytes over time as SVG: stacked bars, one colour for each of the largest groups.

The same figures give the same bytes. Texts of the log are escaped twice: for the screen, then for XML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from xml.sax.saxutils import escape as xml_escaped

import msgspec

from binlogtool.render.escape import escape
from binlogtool.report.series import BUCKET_LENGTHS, OTHERS, LogStats, format_step
from binlogtool.report.stats import RecordTally
from binlogtool.report.words import format_count, format_size

WIDTH, HEIGHT = 960, 520
_LEFT, _RIGHT, _TOP, _PANEL, _GAP = 84, 220, 44, 180, 44
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#444444")
_OTHERS_COLOUR = "#bbbbbb"
_MAX_NAME_LENGTH = 26
_MAX_STEPS = 1000
_MAX_TIME_LABELS = 5

Bar = dict[str | None, int]


class Panel(msgspec.Struct, frozen=True):
    """One diagram of the chart.

    Attributes:
        bars: For each step, the value of each group.
        format_value: Formats a value for the scale.
        unit_size: Base of the units (1024 for bytes, 1 = none), for round scale ends.
    """

    title: str
    top: int
    bars: Sequence[Bar]
    format_value: Callable[[int], str]
    unit_size: int

    @property
    def highest(self) -> int:
        """The value at the upper end of the scale."""
        value, unit = max((sum(bar.values()) for bar in self.bars), default=0), 1
        while self.unit_size > 1 and unit * self.unit_size <= value:
            unit *= self.unit_size
        return round_up_scale(-(-value // unit)) * unit


def render_chart(series: LogStats, title: str) -> bytes:
    """Render the chart as one SVG document."""
    steps = _list_steps(series)
    shown = list(series.groups)[: len(_COLOURS)]
    colours = dict(zip(shown, _COLOURS, strict=False))
    has_others = len(series.groups) > len(shown)
    panels = (
        Panel("records", _TOP + 20, _sum_bars(series, steps, colours, lambda tally: tally.records), format_count, 1),
        Panel(
            "bytes",
            _TOP + 20 + _PANEL + _GAP,
            _sum_bars(series, steps, colours, lambda tally: tally.bytes),
            format_size,
            1024,
        ),
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12" fill="#222222">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _render_text(_LEFT, 24, f"{_shorten(title, 70)}: by {series.by}, steps of {series.bucket}", font_size=16),
        *(line for panel in panels for line in _render_panel(panel, colours)),
        *_render_time_labels(steps, panels[1].top + _PANEL + 18),
        *_render_legend(series, colours, has_others),
        "</svg>",
    ]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def round_up_scale(value: int) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50, … that is not below the value."""
    unit = 1
    while True:
        for factor in (1, 2, 5):
            if factor * unit >= value:
                return factor * unit
        unit *= 10


def _list_steps(series: LogStats) -> list[int | None]:
    """Return the start of every step from the first to the last, also of empty ones if there are not too many; None
    last.
    """
    starts = list(series.sum_steps())
    times = [start for start in starts if start is not None]
    length = BUCKET_LENGTHS[series.bucket]
    if times and (times[-1] - times[0]) // length < _MAX_STEPS:
        times = list(range(times[0], times[-1] + length, length))
    return [*times, *([None] if None in starts else [])]


def _sum_bars(
    series: LogStats, steps: Sequence[int | None], colours: dict[str | None, str], value: Callable[[RecordTally], int]
) -> list[Bar]:
    bars: dict[int | None, Bar] = {start: {} for start in steps}
    for (start, name), tally in series.cells.items():
        shown = name if name in colours else OTHERS
        bars[start][shown] = bars[start].get(shown, 0) + value(tally)
    return list(bars.values())


def _render_panel(panel: Panel, colours: dict[str | None, str]) -> Iterator[str]:
    """Render the scale, then the bars; their ends are rounded, so that no gaps open between the parts of a bar."""
    right, bottom = WIDTH - _RIGHT, panel.top + _PANEL
    yield _render_text(_LEFT, panel.top - 8, panel.title, weight="bold")
    for part in (0, 1, 2):
        y = bottom - _PANEL * part // 2
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}" stroke="#dddddd"/>'
        if part != 1 or panel.highest % 2 == 0:
            yield _render_text(_LEFT - 6, y + 4, panel.format_value(panel.highest * part // 2), anchor="end")
    width = (right - _LEFT) / max(len(panel.bars), 1)
    for i, bar in enumerate(panel.bars):
        x, below = _LEFT + i * width, 0
        for name in [*colours, OTHERS]:
            value = bar.get(name, 0)
            if not value:
                continue
            y0, y1 = (bottom - round(_PANEL * amount / panel.highest, 2) for amount in (below, below + value))
            below += value
            yield (
                f'<rect x="{x:.2f}" y="{y1:.2f}" width="{max(width * 0.9, 0.5):.2f}" height="{y0 - y1:.2f}"'
                f' fill="{colours.get(name, _OTHERS_COLOUR)}"/>'
            )


def _render_time_labels(steps: Sequence[int | None], y: int) -> Iterator[str]:
    """Render the start times of some of the steps."""
    width = (WIDTH - _RIGHT - _LEFT) / max(len(steps), 1)
    every = max(1, -(-len(steps) // _MAX_TIME_LABELS))
    for i in range(0, len(steps), every):
        if steps[i] is not None or i == 0 or len(steps) <= _MAX_TIME_LABELS:
            text = (format_step(steps[i]) or "no time").replace("T", " ")
            yield _render_text(round(_LEFT + i * width), y, text, font_size=11)


def _render_legend(series: LogStats, colours: dict[str | None, str], has_others: bool) -> Iterator[str]:
    x, y = WIDTH - _RIGHT + 24, _TOP + 20
    entries = [(name, colour, series.groups[name].records) for name, colour in colours.items()]
    if has_others:
        others = sum(tally.records for name, tally in series.groups.items() if name not in colours)
        entries.append((f"({len(series.groups) - len(colours)} others)", _OTHERS_COLOUR, others))
    for name, colour, records in entries:
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>'
        yield _render_text(x + 18, y + 10, _shorten("-" if name is None else name, _MAX_NAME_LENGTH))
        yield _render_text(x + 18, y + 24, f"{format_count(records)} records", font_size=10)
        y += 36


def _shorten(text: str, max_length: int) -> str:
    shown = escape(text)
    return shown if len(shown) <= max_length else f"{shown[: max_length - 1]}…"


def _render_text(
    x: int, y: int, text: str, *, anchor: str = "start", font_size: int = 12, weight: str = "normal"
) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{font_size}" font-weight="{weight}">'
        f"{xml_escaped(text)}</text>"
    )
