"""Chart of records and bytes over time as SVG: stacked bars, one colour for each of the largest groups.

The same figures give the same bytes. Texts of the log are escaped twice: for the screen, then for XML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from xml.sax.saxutils import escape as xml_escaped

import msgspec

from binlogtool.render.escape import escape
from binlogtool.report.series import BUCKETS, OTHERS, Counted, step_text
from binlogtool.report.stats import Tally
from binlogtool.report.words import count, size

WIDTH, HEIGHT = 960, 520
_LEFT, _RIGHT, _TOP, _PANEL, _GAP = 84, 220, 44, 180, 44
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#444444")
_REST = "#bbbbbb"
_LONGEST_NAME = 26
_MOST_STEPS = 1000
_LABELS = 5

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
    words: Callable[[int], str]
    unit: int

    @property
    def highest(self) -> int:
        """The value at the upper end of the scale."""
        value, unit = max((sum(bar.values()) for bar in self.bars), default=0), 1
        while self.unit > 1 and unit * self.unit <= value:
            unit *= self.unit
        return nice(-(-value // unit)) * unit


def chart(found: Counted, title: str) -> bytes:
    """Render the chart as one SVG document."""
    steps = _steps(found)
    shown = list(found.groups)[: len(_COLOURS)]
    colours = dict(zip(shown, _COLOURS, strict=False))
    rest = len(found.groups) > len(shown)
    panels = (
        Panel("records", _TOP + 20, _bars(found, steps, colours, lambda tally: tally.records), count, 1),
        Panel("bytes", _TOP + 20 + _PANEL + _GAP, _bars(found, steps, colours, lambda tally: tally.bytes), size, 1024),
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12" fill="#222222">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 24, f"{_short(title, 70)}: by {found.by}, steps of {found.bucket}", size_=16),
        *(line for panel in panels for line in _panel(panel, colours)),
        *_times(steps, panels[1].top + _PANEL + 18),
        *_legend(found, colours, rest),
        "</svg>",
    ]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def nice(value: int) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50, … that is not below the value."""
    unit = 1
    while True:
        for factor in (1, 2, 5):
            if factor * unit >= value:
                return factor * unit
        unit *= 10


def _steps(found: Counted) -> list[int | None]:
    """Return the start of every step from the first to the last, also of empty ones if there are not too many; None
    last.
    """
    known = list(found.steps())
    times = [start for start in known if start is not None]
    length = BUCKETS[found.bucket]
    if times and (times[-1] - times[0]) // length < _MOST_STEPS:
        times = list(range(times[0], times[-1] + length, length))
    return [*times, *([None] if None in known else [])]


def _bars(
    found: Counted, steps: Sequence[int | None], colours: dict[str | None, str], value: Callable[[Tally], int]
) -> list[Bar]:
    bars: dict[int | None, Bar] = {start: {} for start in steps}
    for (start, name), tally in found.cells.items():
        shown = name if name in colours else OTHERS
        bars[start][shown] = bars[start].get(shown, 0) + value(tally)
    return list(bars.values())


def _panel(panel: Panel, colours: dict[str | None, str]) -> Iterator[str]:
    """Render the scale, then the bars; their ends are rounded, so that no gaps open between the parts of a bar."""
    right, bottom = WIDTH - _RIGHT, panel.top + _PANEL
    yield _text(_LEFT, panel.top - 8, panel.title, weight="bold")
    for part in (0, 1, 2):
        y = bottom - _PANEL * part // 2
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}" stroke="#dddddd"/>'
        if part != 1 or panel.highest % 2 == 0:
            yield _text(_LEFT - 6, y + 4, panel.words(panel.highest * part // 2), anchor="end")
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
                f' fill="{colours.get(name, _REST)}"/>'
            )


def _times(steps: Sequence[int | None], y: int) -> Iterator[str]:
    """Render the start times of some of the steps."""
    width = (WIDTH - _RIGHT - _LEFT) / max(len(steps), 1)
    every = max(1, -(-len(steps) // _LABELS))
    for i in range(0, len(steps), every):
        if steps[i] is not None or i == 0 or len(steps) <= _LABELS:
            text = (step_text(steps[i]) or "no time").replace("T", " ")
            yield _text(round(_LEFT + i * width), y, text, size_=11)


def _legend(found: Counted, colours: dict[str | None, str], rest: bool) -> Iterator[str]:
    x, y = WIDTH - _RIGHT + 24, _TOP + 20
    entries = [(name, colour, found.groups[name].records) for name, colour in colours.items()]
    if rest:
        others = sum(tally.records for name, tally in found.groups.items() if name not in colours)
        entries.append((f"({len(found.groups) - len(colours)} others)", _REST, others))
    for name, colour, records in entries:
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>'
        yield _text(x + 18, y + 10, _short("-" if name is None else name, _LONGEST_NAME))
        yield _text(x + 18, y + 24, f"{count(records)} records", size_=10)
        y += 36


def _short(text: str, most: int) -> str:
    shown = escape(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _text(x: int, y: int, text: str, *, anchor: str = "start", size_: int = 12, weight: str = "normal") -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size_}" font-weight="{weight}">'
        f"{xml_escaped(text)}</text>"
    )
