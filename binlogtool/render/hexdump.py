"""Annotated rows as text lines: offset, hex, ASCII, `path = value (meaning)`.

Only bytes of the data and escaped text go into a line; colours are a few fixed codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from binlogtool.render.escape import escape
from binlogtool.render.screen import folded, folded_at
from binlogtool.schema.annotation import FieldRow, HexInt, Space
from binlogtool.schema.hexlines import OFFSET

LONGEST = 64
"""Characters of a value; longer ones are cut."""

_ROOM, _LEAST_ROOM = 28, 20
"""Columns for labels that are wanted, and below which they stand over the bytes and not beside them."""

_OFFSETS = {"hex": (8, "x"), "dec": (10, "d"), "oct": (11, "o"), "bin": (32, "b")}
_BORDERS = {"unicode": "│", "ascii": "|", "none": " "}
_COLORS = {"offset": "2", "path": "36", "bad": "1;31", "good": "32", "heading": "1"}
_DOTS = bytes(byte if 0x20 <= byte < 0x7F else 0x2E for byte in range(256))


class HexdumpOptions(msgspec.Struct, frozen=True):
    """Options of a hexdump.

    Args:
        width: bytes in a line.
        group: bytes written together (1, 2, 4 or 8).
        base: of the offsets (hex, dec, oct, bin).
        depth: nesting levels that are shown, None = all.
        squeeze: equal lines of a field become one `*`.
        border: unicode, ascii, none.
        columns: of the terminal that the lines must fit, None = no limit.
    """

    width: int = 16
    columns: int | None = None
    group: int = 1
    base: str = "hex"
    depth: int | None = None
    squeeze: bool = True
    border: str = "unicode"
    color: bool = False


_USUAL = HexdumpOptions()


def fitting_width(columns: int | None, base: str = "hex") -> int:
    """Return the bytes in a line that leave space for labels beside them; at least 4."""
    if columns is None:
        return 16
    pages = (_page(HexdumpOptions(width=width, columns=columns, base=base)) for width in (16, 8))
    return next((page.options.width for page in pages if page.room >= _ROOM), 4)


def hexdump(
    rows: Iterable[FieldRow],
    spaces: Iterable[Space],
    options: HexdumpOptions = _USUAL,
    heading: bool = True,
) -> Iterator[str]:
    """Yield lines without line ends; unpacked bytes get a section of their own after the record that holds them.

    heading: False leaves out the line of column numbers (for the second and further pieces of a long dump).
    """
    data = _Data(spaces)
    page = _page(options)
    if heading:
        yield page.header()
    held: dict[str, list[FieldRow]] = {}
    plain = options.depth is None and options.columns is None
    for row in rows:
        space, depth, leaf = row[6], row[8], row[9]
        if space:
            held.setdefault(space, []).append(row)
            continue
        if held and depth == 0:
            yield from _sections(held, data, page)
            held = {}
        if plain and leaf and (lines := page.short(row, data)):
            yield from lines
        elif not plain or leaf or not row.ok:
            yield from page.lines(row, data)
    yield from _sections(held, data, page)


def _sections(held: Mapping[str, list[FieldRow]], data: _Data, page: _Page) -> Iterator[str]:
    for name, rows in held.items():
        lines = [line for row in rows for line in page.lines(row, data)]
        if lines:
            size = len(data.spaces[name][-1].data) if name in data.spaces else 0
            for text in page.fitted(f"{escape(name)} (decompressed, {size:,} bytes)"):
                yield page.painted(text, "heading")
            yield from lines


def label_of(row: FieldRow, options: HexdumpOptions) -> str:
    """Return the label beside the bytes of a row."""
    return _page(options)._label(row).rstrip()


def measures(options: HexdumpOptions) -> tuple[list[int], bytes]:
    """Return the layout of a line for `schema.hexlines`, and a line without bytes and label; with hex offsets."""
    page = _page(options)
    blank = page._line(0, "", "", _BLANK, ".")[:-1].rstrip()
    text = blank[: blank.rindex(page.bar)].rindex(page.bar) + 2
    begin, more = OFFSET + 3, len(page.bar.encode()) - 1  # bars may take several bytes
    places = [begin + more + column for column in page.columns]
    return [options.width, len(blank.encode()), OFFSET, text + 2 * more, *places], blank.encode()


class _Data:
    """The bytes of the rows; ranges of the file may be given in several pieces."""

    def __init__(self, spaces: Iterable[Space]) -> None:
        self.spaces: dict[str, list[Space]] = {}
        for space in spaces:
            self.spaces.setdefault(space.name, []).append(space)

    def of(self, row: FieldRow) -> bytes:
        """Return the bytes of a row, as far as they are given."""
        return self.of_space(row.space, row.start, row.end)

    def of_space(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of a range, as far as they are given."""
        for space in self.spaces.get(name, ()):
            base, data = space.base, space.data
            if base <= start < base + len(data):
                return data[start - base : end - base]
        return b""


class _Page(msgspec.Struct):
    """Layout of a line, computed once."""

    options: HexdumpOptions
    bar: str = ""
    seams: list[str] = msgspec.field(default_factory=list)
    columns: list[int] = msgspec.field(default_factory=list)
    hex_width: int = 0
    more: str = "…"
    room: int = 0
    number: str = ""
    """How `%` writes an offset; "": it cannot."""
    forms: dict[tuple[int, int, bool], str] = msgspec.field(default_factory=dict)
    """See `_form`."""

    def __post_init__(self) -> None:
        width, group = self.options.width, self.options.group
        self.bar = _BORDERS[self.options.border]
        digits, kind = _OFFSETS[self.options.base]
        self.number = "" if kind == "b" else f"%0{digits}{kind}"
        self.more = "…" if self.options.border == "unicode" else "..."
        self.seams = [
            ("  " if at % 8 == 0 and at < width else " " if at % group == 0 else "") for at in range(1, width)
        ] + [""]
        position = 0
        for seam in self.seams:
            self.columns.append(position)
            position += 2 + len(seam)
        self.hex_width = position
        if self.options.columns is not None:
            self.room = self.options.columns - len(self._line(0, "", "", _BLANK, ".")) + 1

    def fitted(self, text: str) -> list[str]:
        """Return a text as lines that fit."""
        return [text] if self.options.columns is None else folded(text, self.options.columns)

    def painted(self, text: str, style: str) -> str:
        return text if not self.options.color or not text else f"\x1b[{_COLORS[style]}m{text}\x1b[0m"

    def offset(self, value: int) -> str:
        digits, kind = _OFFSETS[self.options.base]
        return f"{value:0{digits}{kind}}"

    def header(self) -> str:
        """Return the column numbers above the hex."""
        names = "".join(f"{at:02x}"[-2:] + self.seams[at] for at in range(self.options.width))
        return self.painted(" " * (_OFFSETS[self.options.base][0] + 3) + names, "offset")

    def short(self, row: FieldRow, data: _Data) -> tuple[str, ...]:
        """Return the lines of a leaf whose bytes are in one or two lines, as for most; () = use `render_row`."""
        path, start, end, value, meaning, _, space, bits, _, _, ok = row
        width, size = self.options.width, end - start
        column = start % width
        if not 0 < size <= 2 * width - column:
            return ()
        piece = data.of_space(space, start, end)
        if len(piece) != size:
            return ()
        usual = value.__class__ is int and not meaning and not bits and -_PLAIN < value < _PLAIN
        if usual and not self.options.color and path.isascii() and path.isprintable():
            label = f"{path.removesuffix('.value')} = {value}"
        else:
            label = self._label(row)
        if column + size <= width:
            return (self._short(start - column, column, piece, ok, label),)
        cut, place = width - column, start - column
        return (
            self._short(place, column, piece[:cut], ok, label),
            self._short(place + width, 0, piece[cut:], ok, ""),
        )

    def _short(self, place: int, column: int, piece: bytes, ok: bool, label: str) -> str:
        """Return a line with bytes at these columns."""
        key = column, len(piece), ok
        form = self.forms.get(key) or self.forms.setdefault(key, self._form(*key))
        text = piece.translate(_DOTS).decode("ascii")
        return (form % (place if self.number else self.offset(place), *piece, text, label)).rstrip()

    def _form(self, column: int, size: int, ok: bool) -> str:
        """Return the `%` template of a line with bytes at these columns: offset, each byte, text, label."""
        seams = self.seams[column : column + size]
        used = self.columns[column] + 2 * size + sum(map(len, seams))
        hexes = " " * self.columns[column] + "".join("%02x" + seam for seam in seams) + " " * (self.hex_width - used)
        text = " " * column + "%s" + " " * (self.options.width - column - size)
        columns = f"{hexes} {self.bar} {text} {self.bar}"
        mark = " "
        if not ok:
            mark, columns = self.painted("!", "bad"), self.painted(columns, "bad")
        return f"{self.painted(self.number or '%s', 'offset')}{mark}{self.bar} {columns} %s"

    def lines(self, row: FieldRow, data: _Data) -> Iterator[str]:
        """Yield the lines of a leaf or of a container at the last shown level; of other containers only errors."""
        depth = self.options.depth
        if depth is not None and row.depth >= depth:
            if row.depth > depth:
                return
        elif not row.leaf:
            if not row.ok and row.meaning:
                yield from self._labelled(row, iter([(row.start, "", "")]))
            return
        yield from self._labelled(row, self._bytes(row, data.of(row)))

    def _labelled(self, row: FieldRow, lines: Iterator[tuple[int, str, str]]) -> Iterator[str]:
        """Yield the lines of a row with its label beside them, or above them where the screen is too narrow."""
        labels = self._labels(row)
        if self.options.columns is not None and self.room < _LEAST_ROOM:
            yield from labels
            labels = []
        said = iter(labels)
        for offset, hexes, text in lines:
            yield self._line(offset, hexes, text, row, next(said, ""))
        for label in said:
            yield self._line(None, "", "", row, label)

    def _labels(self, row: FieldRow) -> list[str]:
        """Return the label, folded to fit the columns."""
        label, columns = self._label(row), self.options.columns
        if columns is None:
            return [label]
        if self.room >= _LEAST_ROOM:
            return folded_at(label, self.room)
        return [f"  {text}" for text in folded(label, columns - 2)]

    def _bytes(self, row: FieldRow, data: bytes) -> Iterator[tuple[int, str, str]]:
        """Yield (offset, hex, ASCII) of each line."""
        width = self.options.width
        start, end = row.start, row.start + len(data)
        if not data:
            yield start, "", ""
            return
        previous, squeezed = b"", False
        for line in range(start - start % width, end, width):
            first, last = max(line, start), min(line + width, end)
            piece = data[first - start : last - start]
            if self.options.squeeze and piece == previous and len(piece) == width and last < end:
                if not squeezed:
                    yield line, "*", ""
                squeezed = True
                continue
            previous, squeezed = piece, False
            yield line, self._hex(piece, first - line), " " * (first - line) + _ascii(piece)
        if end < row.end:
            yield end, f"{self.more} {row.end - end:,} bytes more", ""

    def _hex(self, piece: bytes, column: int) -> str:
        digits = piece.hex()
        seams = self.seams
        cells = [digits[2 * i : 2 * i + 2] + seams[column + i] for i in range(len(piece))]
        return " " * self.columns[column] + "".join(cells)

    def _line(self, offset: int | None, hexes: str, text: str, row: FieldRow, label: str) -> str:
        """Return one line; without an offset it continues a label."""
        mark = " " if row.ok else "!"
        columns = f"{hexes:<{self.hex_width}} {self.bar} {text:<{self.options.width}} {self.bar}"
        if len(hexes) > self.hex_width and not text and not label:
            columns = hexes
        place = self.offset(0 if offset is None else offset)
        place = " " * len(place) if offset is None else place
        if not self.options.color:
            return f"{place}{mark}{self.bar} {columns} {label}".rstrip()
        place = self.painted(place, "offset")
        if not row.ok:
            mark, columns = self.painted(mark, "bad"), self.painted(columns, "bad")
        return f"{place}{mark}{self.bar} {columns} {label}".rstrip()

    def _label(self, row: FieldRow) -> str:
        """Return `path = value (meaning)`; a verdict such as `ok (crc32c of …)` has its own parentheses."""
        name, _, _, held, meaning, _, _, bit_range, _, _, _ = row
        path = self.painted(escape(name.removesuffix(".value")), "path")
        value = str(held) if held.__class__ is int and -_PLAIN < held < _PLAIN else shown(held, self.more)
        if not meaning and not bit_range:
            return f"{path} = {value}" if value else path
        bits = f" [bits {bit_range[0]}..{bit_range[1]}]" if bit_range else ""
        meaning = escape(meaning)
        if meaning:
            wrapped = f"  {meaning}" if meaning.endswith(")") or not row.ok else f" ({meaning})"
            style = "bad" if not row.ok else "good" if meaning.startswith("ok (") else ""
            meaning = self.painted(wrapped, style) if style else wrapped
        return path + (f" = {value}" if value else "") + bits + meaning


_PLAIN = 1 << 64
"""Numbers below it are shown in full."""
_BLANK = FieldRow("", 0, 0, None)


@lru_cache(maxsize=8)
def _page(options: HexdumpOptions) -> _Page:
    return _Page(options)


def _ascii(piece: bytes) -> str:
    return piece.translate(_DOTS).decode("ascii")


def shown(value: Any, more: str = "…") -> str:
    """Format a value as one short escaped line: text in quotes, printable bytes as text, else their number."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case HexInt():
            return repr(value)
        case int() if value.bit_length() > 256:
            return f"a number of {value.bit_length():,} bits"
        case int() | float():
            return str(value)
        case str():
            return _quoted(value, more)
        case bytes() | bytearray() | memoryview():
            return _bytes_shown(bytes(value), more)
        case _:
            return _cut(escape(str(value)[: LONGEST + 1]), more)


def _bytes_shown(data: bytes, more: str) -> str:
    try:
        text = data[:1024].decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if len(data) > 1024 or not text.isprintable():
        return f"{len(data):,} byte{'' if len(data) == 1 else 's'}"
    return _quoted(text, more)


def _quoted(text: str, more: str) -> str:
    return f'"{_cut(escape(text[: LONGEST + 1]), more)}"'


def _cut(text: str, more: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + more


def marks(options: HexdumpOptions, drawn: str, line: int, ranges: Iterable[tuple[int, int]]) -> str:
    """Return the markers under a line of bytes from offset `line` on: `^` under those in the ranges; "" = none."""
    page = _page(options)
    if page.offset(line) not in drawn[:48]:  # a line that has only a label
        return ""
    begin = _OFFSETS[options.base][0] + 3
    signs: dict[int, str] = {}
    for start, end in ranges:
        for at in range(max(start, line), min(end, line + options.width)):
            column = begin + page.columns[at - line]
            signs[column] = signs[column + 1] = "^"
    return "".join(signs.get(column, " ") for column in range(max(signs) + 1)) if signs else ""
