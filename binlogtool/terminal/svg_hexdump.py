"""`hexdump-annotate -O svg`: draw bytes as a picture for a slide, each field in the colour of its label.

The same bytes give the same picture. Text from the log is escaped twice: for the screen, then for XML.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from xml.sax.saxutils import escape as xml_escaped

from binlogtool.errors import LimitError
from binlogtool.schema.annotation import AddressSpace, AnnotatedPiece, FieldRow
from binlogtool.terminal.escape import escape
from binlogtool.terminal.hexdump import format_value

MAX_FIELDS, MAX_BYTES = 60, 1024
"""Maximum number of fields and bytes in a picture; more are refused."""

_WIDTH, _TOP_HEIGHT, _LINE_HEIGHT = 1280, 76, 22
_OFFSET_X, _HEX_X, _TEXT_X, _FIELDS_X = 24, 110, 520, 690
_BYTE_WIDTH, _CHARACTER_WIDTH = 25, 9
_MAX_TEXT_LENGTH = 64
_COLOURS = ("#cfe3f7", "#d3edd3", "#f8e3bd", "#e6d3f0", "#c8ebeb", "#f6d3dd")
_BAD_COLOUR = "#ff9c9c"
_TOO_MUCH_MESSAGE = (
    f"a picture shows at most {MAX_FIELDS} fields and {MAX_BYTES:,} bytes; select fewer with --record N, --at POS,"
    " --field PATH or --depth N"
)


def render_picture(pieces: Iterable[AnnotatedPiece], title: str, depth: int | None = None) -> bytes:
    """Draw the picture as SVG. depth: nesting level whose fields are drawn as a whole; None = all levels.

    Raises:
        LimitError: the picture would have too many fields or bytes.
    """
    rows: list[FieldRow] = []
    spaces: list[AddressSpace] = []
    for piece in pieces:
        rows += [row for row in piece.rows if _is_drawn(row, depth)]
        spaces += piece.spaces
        if len(rows) > MAX_FIELDS or sum(row.end - row.start for row in rows) > MAX_BYTES:
            raise LimitError(_TOO_MUCH_MESSAGE)
    common_path = _common_path([row.path for row in rows])
    rows = [row._replace(path=row.path[len(common_path) :]) for row in rows]
    title = f"{title}  {common_path.rstrip('.')}"
    lines: list[str] = []
    top = _TOP_HEIGHT
    for space, space_rows in _group_by_space(rows).items():
        lines += _draw_space(space, space_rows, spaces, top)
        top += _space_height(space, space_rows)
    height = top + 16
    return "".join(f"{line}\n" for line in (*svg_head(title, height, columns=True), *lines, "</svg>")).encode("utf-8")


def _is_drawn(row: FieldRow, depth: int | None) -> bool:
    if row.bits or row.end == row.start:
        return False
    return row.depth == depth or (row.leaf and (depth is None or row.depth < depth))


def _common_path(paths: Sequence[str]) -> str:
    """Return the components with which all paths begin, including dots."""
    parts = [path.split(".")[:-1] for path in paths]
    same = takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False))
    return "".join(f"{column[0]}." for column in same)


def _group_by_space(rows: Sequence[FieldRow]) -> dict[str, list[FieldRow]]:
    groups: dict[str, list[FieldRow]] = {}
    for row in rows:
        groups.setdefault(row.space, []).append(row)
    return groups


def _draw_space(name: str, rows: Sequence[FieldRow], spaces: Sequence[AddressSpace], top: int) -> Iterator[str]:
    """Yield the SVG elements of one address space: bytes on the left, labels on the right."""
    first = rows[0].start
    begin = top + (_LINE_HEIGHT if name else 0)
    if name:
        yield draw_text(_OFFSET_X, top + 15, f"{shorten_label(name)} (decompressed)", "d")
    for line in range(_count_lines(rows)):
        yield draw_text(_OFFSET_X, begin + _LINE_HEIGHT * line + 15, f"{(first // 16 + line) * 16:08x}", "d")
    for number, row in enumerate(rows):
        colour = _COLOURS[number % len(_COLOURS)] if row.ok else _BAD_COLOUR
        data = next(
            (s.slice_bytes(row.start, row.end) for s in spaces if s.name == name and _contains_row(s, row)), b""
        )
        yield from _draw_bytes(row.start, data, colour, begin - _LINE_HEIGHT * (first // 16))
        yield from _draw_label(row, colour, begin + _LINE_HEIGHT * number)


def _count_lines(rows: Sequence[FieldRow]) -> int:
    return -(-max(row.end for row in rows) // 16) - rows[0].start // 16


def _space_height(name: str, rows: Sequence[FieldRow]) -> int:
    return _LINE_HEIGHT * (max(_count_lines(rows), len(rows)) + (1 if name else 0)) + 8


def _contains_row(space: AddressSpace, row: FieldRow) -> bool:
    return space.base <= row.start < space.base + len(space.data)


def _draw_bytes(start: int, data: bytes, colour: str, zero: int) -> Iterator[str]:
    """Yield the SVG elements for the bytes of a field, one run per line. zero: y of the line of offset 0."""
    offset, end = start, start + len(data)
    while offset < end:
        line, column = divmod(offset, 16)
        run = data[offset - start : offset - start + 16 - column]
        x, text, y = _HEX_X + _BYTE_WIDTH * column, _TEXT_X + _CHARACTER_WIDTH * column, zero + _LINE_HEIGHT * line
        yield f'<rect x="{x - 4}" y="{y}" width="{_BYTE_WIDTH * len(run)}" height="20" rx="3" fill="{colour}"/>'
        yield f'<rect x="{text}" y="{y}" width="{_CHARACTER_WIDTH * len(run)}" height="20" fill="{colour}"/>'
        for number, byte in enumerate(run):
            yield draw_text(x + _BYTE_WIDTH * number, y + 15, f"{byte:02x}")
            yield draw_text(text + _CHARACTER_WIDTH * number, y + 15, byte_character(byte))
        offset += len(run)


def byte_character(byte: int) -> str:
    """Return the character that shows a byte; "" for a space."""
    return chr(byte) if 0x20 < byte < 0x7F else "." if byte != 0x20 else ""


def _draw_label(row: FieldRow, colour: str, y: int) -> Iterator[str]:
    value = format_value(row.value)
    label = escape(row.path.removesuffix(".value")) + (f" = {value}" if value else "")
    meaning = escape(row.meaning)
    yield f'<rect x="{_FIELDS_X}" y="{y + 3}" width="14" height="14" rx="3" fill="{colour}"/>'
    mark = "" if row.ok else "! "
    text = shorten_label(f"{mark}{label}{f'  {meaning}' if meaning else ''}")
    yield draw_text(_FIELDS_X + 22, y + 15, text, "" if row.ok else "b")


def svg_head(title: str, height: int, *, columns: bool = False) -> Iterator[str]:
    """Yield the beginning of a picture. columns: with the column numbers of a line."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
        ' font-family="ui-monospace, DejaVu Sans Mono, monospace" font-size="14" fill="#1c2126">'
    )
    yield "<style>.d{fill:#5d6770}.b{fill:#b00020;font-weight:bold}.h{font-size:20px;font-weight:bold}</style>"
    yield f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    yield draw_text(_OFFSET_X, 34, shorten_label(escape(title)), "h")
    for column in range(16 if columns else 0):
        yield draw_text(_HEX_X + _BYTE_WIDTH * column, _TOP_HEIGHT - 12, f"{column:02x}", "d")


def shorten_label(text: str) -> str:
    """Cut a text to the available width."""
    return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[: _MAX_TEXT_LENGTH - 1]}…"


def draw_text(x: int, y: int, text: str, kind: str = "") -> str:
    """Return the SVG element of one line of text. kind: its class (see `svg_head`); "" = none."""
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{mark}>{xml_escaped(text)}</text>' if text else ""
