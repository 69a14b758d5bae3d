"""`hexdump-annotate -O svg`: some bytes as a picture for a slide, each field in the colour of its label.

The same bytes give the same picture. Texts of the log are escaped twice: for the screen, then for XML.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from xml.sax.saxutils import escape as xml_escaped

from binlogtool.errors import LimitError
from binlogtool.render.escape import escape
from binlogtool.render.hexdump import shown
from binlogtool.schema.annotation import FieldRow, Piece, Space

MOST_FIELDS, MOST_BYTES = 60, 1024
"""What a slide shows; more is refused."""

_WIDTH, _TOP, _LINE = 1280, 76, 22
_OFFSET, _HEX, _TEXT, _FIELDS = 24, 110, 520, 690
_BYTE, _SIGN = 25, 9
_LONGEST = 64
_COLOURS = ("#cfe3f7", "#d3edd3", "#f8e3bd", "#e6d3f0", "#c8ebeb", "#f6d3dd")
_BAD = "#ff9c9c"
_TOO_MUCH = (
    f"a picture shows at most {MOST_FIELDS} fields and {MOST_BYTES:,} bytes; choose fewer with --record N, --at POS,"
    " --field PATH or --depth N"
)


def slide(pieces: Iterable[Piece], title: str, depth: int | None = None) -> bytes:
    """Return the picture as SVG. depth: nesting level whose fields are drawn whole; None = all levels.

    Raises:
        LimitError: it would have too many fields or bytes.
    """
    rows: list[FieldRow] = []
    spaces: list[Space] = []
    for piece in pieces:
        rows += [row for row in piece.rows if _drawn(row, depth)]
        spaces += piece.spaces
        if len(rows) > MOST_FIELDS or sum(row.end - row.start for row in rows) > MOST_BYTES:
            raise LimitError(_TOO_MUCH)
    stem = _stem([row.path for row in rows])
    rows = [row._replace(path=row.path[len(stem) :]) for row in rows]
    title = f"{title}  {stem.rstrip('.')}"
    lines: list[str] = []
    below = _TOP
    for space, held in _by_space(rows).items():
        lines += _space(space, held, spaces, below)
        below += _height(space, held)
    height = below + 16
    return "".join(f"{line}\n" for line in (*head(title, height, columns=True), *lines, "</svg>")).encode("utf-8")


def _drawn(row: FieldRow, depth: int | None) -> bool:
    if row.bits or row.end == row.start:
        return False
    return row.depth == depth or (row.leaf and (depth is None or row.depth < depth))


def _stem(paths: Sequence[str]) -> str:
    """Return the components that all paths begin with, dots included."""
    parts = [path.split(".")[:-1] for path in paths]
    same = takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False))
    return "".join(f"{column[0]}." for column in same)


def _by_space(rows: Sequence[FieldRow]) -> dict[str, list[FieldRow]]:
    held: dict[str, list[FieldRow]] = {}
    for row in rows:
        held.setdefault(row.space, []).append(row)
    return held


def _space(name: str, rows: Sequence[FieldRow], spaces: Sequence[Space], top: int) -> Iterator[str]:
    """Yield the elements of one space: bytes on the left, labels on the right."""
    first = rows[0].start
    begin = top + (_LINE if name else 0)
    if name:
        yield text_at(_OFFSET, top + 15, f"{shortened(name)} (decompressed)", "d")
    for line in range(_lines(rows)):
        yield text_at(_OFFSET, begin + _LINE * line + 15, f"{(first // 16 + line) * 16:08x}", "d")
    for number, row in enumerate(rows):
        colour = _COLOURS[number % len(_COLOURS)] if row.ok else _BAD
        data = next((s.cut(row.start, row.end) for s in spaces if s.name == name and _within(s, row)), b"")
        yield from _bytes(row.start, data, colour, begin - _LINE * (first // 16))
        yield from _legend(row, colour, begin + _LINE * number)


def _lines(rows: Sequence[FieldRow]) -> int:
    return -(-max(row.end for row in rows) // 16) - rows[0].start // 16


def _height(name: str, rows: Sequence[FieldRow]) -> int:
    return _LINE * (max(_lines(rows), len(rows)) + (1 if name else 0)) + 8


def _within(space: Space, row: FieldRow) -> bool:
    return space.base <= row.start < space.base + len(space.data)


def _bytes(start: int, data: bytes, colour: str, zero: int) -> Iterator[str]:
    """Yield the bytes of a field, one run per line. zero: y of the line of offset 0."""
    at, end = start, start + len(data)
    while at < end:
        line, column = divmod(at, 16)
        run = data[at - start : at - start + 16 - column]
        x, text, y = _HEX + _BYTE * column, _TEXT + _SIGN * column, zero + _LINE * line
        yield f'<rect x="{x - 4}" y="{y}" width="{_BYTE * len(run)}" height="20" rx="3" fill="{colour}"/>'
        yield f'<rect x="{text}" y="{y}" width="{_SIGN * len(run)}" height="20" fill="{colour}"/>'
        for number, byte in enumerate(run):
            yield text_at(x + _BYTE * number, y + 15, f"{byte:02x}")
            yield text_at(text + _SIGN * number, y + 15, sign_of(byte))
        at += len(run)


def sign_of(byte: int) -> str:
    """Return a byte as a character; nothing for a space."""
    return chr(byte) if 0x20 < byte < 0x7F else "." if byte != 0x20 else ""


def _legend(row: FieldRow, colour: str, y: int) -> Iterator[str]:
    value = shown(row.value)
    words = escape(row.path.removesuffix(".value")) + (f" = {value}" if value else "")
    said = escape(row.meaning)
    yield f'<rect x="{_FIELDS}" y="{y + 3}" width="14" height="14" rx="3" fill="{colour}"/>'
    mark = "" if row.ok else "! "
    text = shortened(f"{mark}{words}{f'  {said}' if said else ''}")
    yield text_at(_FIELDS + 22, y + 15, text, "" if row.ok else "b")


def head(title: str, height: int, *, columns: bool = False) -> Iterator[str]:
    """Yield the beginning of a picture. columns: with the column numbers of a line."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
        ' font-family="ui-monospace, DejaVu Sans Mono, monospace" font-size="14" fill="#1c2126">'
    )
    yield "<style>.d{fill:#5d6770}.b{fill:#b00020;font-weight:bold}.h{font-size:20px;font-weight:bold}</style>"
    yield f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    yield text_at(_OFFSET, 34, shortened(escape(title)), "h")
    for column in range(16 if columns else 0):
        yield text_at(_HEX + _BYTE * column, _TOP - 12, f"{column:02x}", "d")


def shortened(text: str) -> str:
    """Cut a text to the available width."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def text_at(x: int, y: int, text: str, kind: str = "") -> str:
    """Return one line of text; kind: its class (see `render_head`)."""
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{mark}>{xml_escaped(text)}</text>' if text else ""
