"""The graph of the rooms as a picture (SVG): what is built on others stands above them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from math import log2

from tests.house.graph import Graph
from tests.house.modules import circles

Places = Mapping[str, tuple[float, float]]
"""The middle of each box."""

WIDTH, HEIGHT = 148, 40
ACROSS, DOWN = 176, 96
_ROUNDS = 12
_BESIDE = 24
_STYLE = (
    "text{font:12px sans-serif;fill:#1f2328;text-anchor:middle}.s{font-size:10px;fill:#57606a}"
    ".n{font-size:9px;fill:#57606a;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    "rect{fill:#f6f8fa;stroke:#57606a}path{fill:none;stroke:#0969da;stroke-opacity:.45}.up{stroke:#cf222e}"
)


def layers(drawn: Graph) -> tuple[list[list[str]], set[tuple[str, str]]]:
    """The rooms by height, from the top, and the arrows against that order: in each circle those of the fewest imports.

    Each room stands right above the highest of those that it needs.
    """
    arrows, against = dict(drawn.arrows), set[tuple[str, str]]()
    while found := circles({room: {o: True for h, o in arrows if h == room} for room in drawn.rooms}):
        inside = [arrow for arrow in arrows if found[0].issuperset(arrow)]
        weakest = min(inside, key=lambda arrow: (arrows[arrow], arrow))
        against.add(weakest)
        del arrows[weakest]
    heights: dict[str, int] = {}

    def height(room: str) -> int:
        if room not in heights:
            heights[room] = 1 + max((height(there) for here, there in arrows if here == room), default=-1)
        return heights[room]

    rows: dict[int, list[str]] = {}
    for room in drawn.rooms:
        rows.setdefault(height(room), []).append(room)
    return _untangled([rows[one] for one in sorted(rows, reverse=True)], drawn), against


def _untangled(rows: list[list[str]], drawn: Graph) -> list[list[str]]:
    """Each row in the order of what its rooms are joined to: fewer arrows cross."""
    joined: dict[str, list[str]] = {room: [] for room in drawn.rooms}
    for here, there in drawn.arrows:
        joined[here].append(there)
        joined[there].append(here)
    for _ in range(_ROUNDS):
        across = {room: x for room, (x, _) in places(rows).items()}
        for row in rows:
            middle = {room: sum(across[o] for o in joined[room]) / max(1, len(joined[room])) for room in row}
            row.sort(key=middle.__getitem__)
    return rows


def places(rows: list[list[str]]) -> Places:
    """Rows in the middle of the picture."""
    widest = max(map(len, rows))
    return {
        room: ((widest - len(row)) * ACROSS / 2 + (at + 0.5) * ACROSS, (down + 0.5) * DOWN)
        for down, row in enumerate(rows)
        for at, room in enumerate(row)
    }


def svg(drawn: Graph, title: str) -> Iterator[str]:
    """Lines of the picture. Arrows that go up, against the order of the rooms, are red."""
    rows, against = layers(drawn)
    where = places(rows)
    wide, high = max(map(len, rows)) * ACROSS, len(rows) * DOWN
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">'
    yield f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    yield f'<rect width="{wide}" height="{high}" style="fill:#fff;stroke:none"/>'
    yield from _marks()
    for (here, there), count in sorted(drawn.arrows.items(), key=lambda arrow: (arrow[0] in against, arrow)):
        yield _arrow(where[here], where[there], count)
    for room, (files, lines) in drawn.rooms.items():
        x, y = where[room]
        yield f'<rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>'
        yield f'<text x="{x:.0f}" y="{y - 3:.0f}">{escape(room.removeprefix("formats/"))}</text>'
        yield f'<text class="s" x="{x:.0f}" y="{y + 12:.0f}">{files} files, {lines:,} lines</text>'
    yield "</svg>"


def _marks() -> Iterator[str]:
    shape = 'viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse"'
    for name, colour in (("d", "#0969da"), ("u", "#cf222e")):
        yield f'<marker id="{name}" {shape} orient="auto"><path d="M0 0L8 4L0 8z" style="fill:{colour};stroke:none"/>'
        yield "</marker>"


def _arrow(here: tuple[float, float], there: tuple[float, float], count: int) -> str:
    """A bow between the edges of two boxes, with the number of imports on it."""
    (x, y), (to_x, to_y) = here, there
    side = 1 if to_y > y else -1
    if side < 0:
        x, to_x = x + _BESIDE, to_x + _BESIDE
    y, to_y = y + side * HEIGHT / 2, to_y - (side if to_y != y else 1) * HEIGHT / 2
    bend = side * max(28.0, abs(to_y - y) / 2)
    first, last = y + bend, (to_y - bend if to_y != y else y + bend)
    kind, mark = ("", "d") if side > 0 else (' class="up"', "u")
    path = f"M{x:.0f} {y:.0f}C{x:.0f} {first:.0f} {to_x:.0f} {last:.0f} {to_x:.0f} {to_y:.0f}"
    line = f'<path{kind} d="{path}" stroke-width="{1 + log2(count) / 2:.1f}" marker-end="url(#{mark})"/>'
    middle = (y + 3 * first + 3 * last + to_y) / 8
    return f'{line}<text class="n" x="{(x + to_x) / 2:.0f}" y="{middle:.0f}">{count}</text>'
