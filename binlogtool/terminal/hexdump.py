"""Format annotated rows as lines of a hexdump, in bulk by compiled code, or as an SVG picture.

A line contains only bytes of the data and escaped text; colours are a few fixed codes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any, NamedTuple
from xml.sax.saxutils import escape as xml_escaped

import msgspec

from binlogtool.errors import LimitError
from binlogtool.limits import KIB
from binlogtool.schema import annotation_types, backends
from binlogtool.schema.annotated_parse_state import ElementShape, FoldedRow, unfold_rows
from binlogtool.schema.annotation_types import OFFSET_DIGITS, AddressSpace, AnnotatedPiece, FieldRow, HexInt
from binlogtool.terminal.escape_and_fold_text import escape, fold_column, fold_line

# --- Annotated rows as text lines ---

MAX_VALUE_LENGTH = 64
"""Maximum characters of a value; longer values are cut."""

_LABEL_WIDTH, _MIN_LABEL_WIDTH = 28, 20
"""Preferred columns for labels, and the minimum; with fewer columns, labels are written above the bytes."""

_OFFSET_FORMAT = f"%0{OFFSET_DIGITS}x"
_BORDERS = {"unicode": "│", "ascii": "|"}
_COLORS = {"offset": "2", "path": "36", "bad": "1;31", "good": "32", "heading": "1"}
_ASCII_TABLE = bytes(byte if 0x20 <= byte < 0x7F else 0x2E for byte in range(256))


class HexdumpOptions(msgspec.Struct, frozen=True):
    """Options of a hexdump.

    Args:
        width: bytes per line.
        depth: number of nesting levels that are shown; None = all.
        squeeze: replace equal lines of a field by one `*`.
        border: unicode, ascii.
        columns: width of the terminal that the lines must fit; None = no limit.
    """

    width: int = 16
    columns: int | None = None
    depth: int | None = None
    squeeze: bool = True
    border: str = "unicode"
    color: bool = False


_DEFAULT_OPTIONS = HexdumpOptions()


def choose_bytes_per_line(screen_columns: int | None) -> int:
    """Return the number of bytes per line that leaves space for labels beside them; at least 4."""
    if screen_columns is None:
        return 16
    layouts = (_get_layout(HexdumpOptions(width=width, columns=screen_columns)) for width in (16, 8))
    return next((page.options.width for page in layouts if page.label_width >= _LABEL_WIDTH), 4)


def render_hexdump(
    rows: Iterable[FieldRow],
    spaces: Iterable[AddressSpace],
    options: HexdumpOptions = _DEFAULT_OPTIONS,
    heading: bool = True,
) -> Iterator[str]:
    """Yield lines without line ends; unpacked bytes are in a separate section after the record that contains them.

    heading: False = leave out the line of column numbers (for all pieces of a long dump except the first).
    """
    data = _RowBytes(spaces)
    layout = _get_layout(options)
    if heading:
        yield layout.format_column_numbers()
    rows_by_space: dict[str, list[FieldRow]] = {}
    for row in rows:
        space, depth = row[6], row[8]
        if space:
            rows_by_space.setdefault(space, []).append(row)
            continue
        if rows_by_space and depth == 0:
            yield from _render_sections(rows_by_space, data, layout)
            rows_by_space = {}
        yield from layout.render_row(row, data)
    yield from _render_sections(rows_by_space, data, layout)


def _render_sections(
    rows_by_space: Mapping[str, list[FieldRow]], data: _RowBytes, layout: _LineLayout
) -> Iterator[str]:
    for name, rows in rows_by_space.items():
        lines = [line for row in rows for line in layout.render_row(row, data)]
        if lines:
            size = len(data.spaces[name][-1].data) if name in data.spaces else 0
            for text in layout.fold(f"{escape(name)} (decompressed, {size:,} bytes)"):
                yield layout.paint(text, "heading")
            yield from lines


def make_label(row: FieldRow, options: HexdumpOptions) -> str:
    """Return the label beside the bytes of a row."""
    return _get_layout(options)._format_label(row).rstrip()


def make_line_layout_and_blank_line(options: HexdumpOptions) -> tuple[list[int], bytes]:
    """Return the layout of a line for `schema.annotation_types`, and a line without bytes and label."""
    layout = _get_layout(options)
    blank = layout._format_line(0, "", "", _BLANK_ROW, ".")[:-1].rstrip()
    text = blank[: blank.rindex(layout.bar)].rindex(layout.bar) + 2
    begin, extra_bytes = OFFSET_DIGITS + 3, len(layout.bar.encode()) - 1  # bars may take several bytes
    byte_columns = [begin + extra_bytes + column for column in layout.columns]
    return [options.width, len(blank.encode()), OFFSET_DIGITS, text + 2 * extra_bytes, *byte_columns], blank.encode()


class _RowBytes:
    """Bytes of the rows; ranges of the file may be given in several pieces."""

    def __init__(self, spaces: Iterable[AddressSpace]) -> None:
        self.spaces: dict[str, list[AddressSpace]] = {}
        for space in spaces:
            self.spaces.setdefault(space.name, []).append(space)

    def row_bytes(self, row: FieldRow) -> bytes:
        """Return the available bytes of a row."""
        return self.range_bytes(row.space, row.start, row.end)

    def range_bytes(self, name: str, start: int, end: int) -> bytes:
        """Return the available bytes of a range."""
        for space in self.spaces.get(name, ()):
            base, data = space.base, space.data
            if base <= start < base + len(data):
                return data[start - base : end - base]
        return b""


class _LineLayout(msgspec.Struct):
    """Layout of a line, computed once."""

    options: HexdumpOptions
    bar: str = ""
    separators: list[str] = msgspec.field(default_factory=list)
    columns: list[int] = msgspec.field(default_factory=list)
    hex_width: int = 0
    ellipsis: str = "…"
    label_width: int = 0

    def __post_init__(self) -> None:
        width = self.options.width
        self.bar = _BORDERS[self.options.border]
        self.ellipsis = "…" if self.options.border == "unicode" else "..."
        self.separators = ["  " if at % 8 == 0 else " " for at in range(1, width)] + [""]
        position = 0
        for seam in self.separators:
            self.columns.append(position)
            position += 2 + len(seam)
        self.hex_width = position
        if self.options.columns is not None:
            self.label_width = self.options.columns - len(self._format_line(0, "", "", _BLANK_ROW, ".")) + 1

    def fold(self, text: str) -> list[str]:
        """Fold a text into lines that fit the columns."""
        return [text] if self.options.columns is None else fold_line(text, self.options.columns)

    def paint(self, text: str, style: str) -> str:
        return text if not self.options.color or not text else f"\x1b[{_COLORS[style]}m{text}\x1b[0m"

    def format_offset(self, value: int) -> str:
        return _OFFSET_FORMAT % value

    def format_column_numbers(self) -> str:
        """Return the column numbers above the hex."""
        names = "".join(f"{at:02x}"[-2:] + self.separators[at] for at in range(self.options.width))
        return self.paint(" " * (OFFSET_DIGITS + 3) + names, "offset")

    def render_row(self, row: FieldRow, data: _RowBytes) -> Iterator[str]:
        """Yield the lines of a leaf or of a container at the last shown level; of other containers only errors."""
        depth = self.options.depth
        if depth is not None and row.depth >= depth:
            if row.depth > depth:
                return
        elif not row.leaf:
            if not row.ok and row.meaning:
                yield from self._iter_labelled_lines(row, iter([(row.start, "", "")]))
            return
        yield from self._iter_labelled_lines(row, self._iter_offset_hex_and_ascii(row, data.row_bytes(row)))

    def _iter_labelled_lines(self, row: FieldRow, lines: Iterator[tuple[int, str, str]]) -> Iterator[str]:
        """Yield the lines of a row with its label beside them, or above them if the screen is too narrow."""
        labels = self._fold_label(row)
        if self.options.columns is not None and self.label_width < _MIN_LABEL_WIDTH:
            yield from labels
            labels = []
        remaining_labels = iter(labels)
        for offset, hexes, text in lines:
            yield self._format_line(offset, hexes, text, row, next(remaining_labels, ""))
        for label in remaining_labels:
            yield self._format_line(None, "", "", row, label)

    def _fold_label(self, row: FieldRow) -> list[str]:
        """Return the label, folded to fit the columns."""
        label, columns = self._format_label(row), self.options.columns
        if columns is None:
            return [label]
        if self.label_width >= _MIN_LABEL_WIDTH:
            return fold_column(label, self.label_width)
        return [f"  {text}" for text in fold_line(label, columns - 2)]

    def _iter_offset_hex_and_ascii(self, row: FieldRow, data: bytes) -> Iterator[tuple[int, str, str]]:
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
            yield line, self._format_hex(piece, first - line), " " * (first - line) + _format_ascii(piece)
        if end < row.end:
            yield end, f"{self.ellipsis} {row.end - end:,} bytes more", ""

    def _format_hex(self, piece: bytes, first_column: int) -> str:
        digits = piece.hex()
        seams = self.separators
        cells = [digits[2 * i : 2 * i + 2] + seams[first_column + i] for i in range(len(piece))]
        return " " * self.columns[first_column] + "".join(cells)

    def _format_line(self, offset: int | None, hexes: str, text: str, row: FieldRow, label: str) -> str:
        """Return one line; a line without an offset continues a label."""
        mark = " " if row.ok else "!"
        columns = f"{hexes:<{self.hex_width}} {self.bar} {text:<{self.options.width}} {self.bar}"
        if len(hexes) > self.hex_width and not text and not label:
            columns = hexes
        offset_text = self.format_offset(0 if offset is None else offset)
        offset_text = " " * len(offset_text) if offset is None else offset_text
        if not self.options.color:
            return f"{offset_text}{mark}{self.bar} {columns} {label}".rstrip()
        offset_text = self.paint(offset_text, "offset")
        if not row.ok:
            mark, columns = self.paint(mark, "bad"), self.paint(columns, "bad")
        return f"{offset_text}{mark}{self.bar} {columns} {label}".rstrip()

    def _format_label(self, row: FieldRow) -> str:
        """Return `path = value (meaning)`; a verdict such as `ok (crc32c of …)` has its own parentheses."""
        name, _, _, raw_value, meaning, _, _, bit_range, _, _, _ = row
        path = self.paint(escape(name.removesuffix(".value")), "path")
        value = (
            str(raw_value)
            if raw_value.__class__ is int and -_MAX_PLAIN_NUMBER < raw_value < _MAX_PLAIN_NUMBER
            else format_value(raw_value, self.ellipsis)
        )
        if not meaning and not bit_range:
            return f"{path} = {value}" if value else path
        bits = f" [bits {bit_range[0]}..{bit_range[1]}]" if bit_range else ""
        meaning = escape(meaning)
        if meaning:
            wrapped = f"  {meaning}" if meaning.endswith(")") or not row.ok else f" ({meaning})"
            style = "bad" if not row.ok else "good" if meaning.startswith("ok (") else ""
            meaning = self.paint(wrapped, style) if style else wrapped
        return path + (f" = {value}" if value else "") + bits + meaning


_MAX_PLAIN_NUMBER = 1 << 64
"""Limit of numbers that are shown in full."""
_BLANK_ROW = FieldRow("", 0, 0, None)


@lru_cache(maxsize=8)
def _get_layout(options: HexdumpOptions) -> _LineLayout:
    return _LineLayout(options)


def _format_ascii(piece: bytes) -> str:
    return piece.translate(_ASCII_TABLE).decode("ascii")


def format_value(value: Any, ellipsis: str = "…") -> str:
    """Format a value as one short escaped line: text in quotes, bytes as text if printable, else as their number."""
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
            return _quote(value, ellipsis)
        case bytes() | bytearray() | memoryview():
            return _format_bytes(bytes(value), ellipsis)
        case _:
            return _shorten(escape(str(value)[: MAX_VALUE_LENGTH + 1]), ellipsis)


def _format_bytes(data: bytes, ellipsis: str) -> str:
    try:
        text = data[:1024].decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if len(data) > 1024 or not text.isprintable():
        return f"{len(data):,} byte{'' if len(data) == 1 else 's'}"
    return _quote(text, ellipsis)


def _quote(text: str, ellipsis: str) -> str:
    return f'"{_shorten(escape(text[: MAX_VALUE_LENGTH + 1]), ellipsis)}"'


def _shorten(text: str, ellipsis: str) -> str:
    return text if len(text) <= MAX_VALUE_LENGTH else text[:MAX_VALUE_LENGTH] + ellipsis


def render_markers(options: HexdumpOptions, line_text: str, line: int, ranges: Iterable[tuple[int, int]]) -> str:
    """Return the markers under a line of bytes from offset `line` on: `^` under those in the ranges; "" = none."""
    layout = _get_layout(options)
    if layout.format_offset(line) not in line_text[:48]:  # a line with only a label
        return ""
    begin = OFFSET_DIGITS + 3
    markers: dict[int, str] = {}
    for start, end in ranges:
        for at in range(max(start, line), min(end, line + options.width)):
            column = begin + layout.columns[at - line]
            markers[column] = markers[column + 1] = "^"
    return "".join(markers.get(column, " ") for column in range(max(markers) + 1)) if markers else ""


# --- Fast hexdump ---

_FIELDS_AT_ONCE = 4096
"""Number of fields that are drawn at once."""
_MAX_SMALL_PIECE = 64 * KIB
"""Maximum bytes of a piece that is drawn together with others."""
_MAX_OFFSET = 1 << 32


def kernel_compiler(backend: str) -> Callable[[Any], Any] | None:
    """Return the function that compiles kernels; None = this backend does not compile."""
    selected_backend = backends.choose_backend(backend)
    return selected_backend.compile_kernel if selected_backend.name == "native" else None


def draw_hexdump_in_chunks(
    rows: Iterable[FieldRow], spaces: Iterable[AddressSpace], options: HexdumpOptions, heading: bool, compile_: Any
) -> Iterator[bytes]:
    """Yield the text in pieces of whole lines. compile_: function that compiles a kernel; None = no compiled code."""
    spaces, rows = tuple(spaces), list(rows)
    if compile_ is None or not _has_default_format(options) or not _is_one_range(spaces):
        yield from _encode_lines(render_hexdump(unfold_rows(rows), spaces, options, heading))
        return
    if heading:
        yield from _encode_lines(render_hexdump((), (), options))
    lines = _FieldBuffer(spaces[0], options, _compile_put_lines(compile_))
    for row in lines.unfold(rows):
        if not lines.try_add_row(row):
            yield lines.draw_and_clear()
            yield from _encode_lines(render_hexdump((row,), spaces, options, heading=False))
        elif len(lines.starts) >= _FIELDS_AT_ONCE:
            yield lines.draw_and_clear()
    yield lines.draw_and_clear()


def join_small_pieces(pieces: Iterable[AnnotatedPiece]) -> Iterator[tuple[list[FieldRow], tuple[AddressSpace, ...]]]:
    """Yield rows and spaces of the pieces; several small consecutive pieces are joined."""
    rows, data_parts, base, end = list[FieldRow](), list[bytes](), 0, 0
    for piece in pieces:
        is_small = _is_small_piece(piece)
        if rows and (not is_small or piece.start != end or len(rows) >= _FIELDS_AT_ONCE):
            yield rows, (AddressSpace("", base, b"".join(data_parts)),)
            rows, data_parts = [], []
        if is_small:
            base = base if rows else piece.start
            rows += piece.rows
            data_parts.append(piece.spaces[0].data)
            end = piece.end
        else:
            yield piece.rows, piece.spaces
    if rows:
        yield rows, (AddressSpace("", base, b"".join(data_parts)),)


def _is_small_piece(piece: AnnotatedPiece) -> bool:
    """Return True if the piece has few bytes, all of the file and all present."""
    if len(piece.spaces) != 1 or piece.spaces[0].name or piece.spaces[0].base != piece.start:
        return False
    return len(piece.spaces[0].data) == piece.end - piece.start <= _MAX_SMALL_PIECE


@lru_cache(maxsize=4)
def _compile_put_lines(compile_: Callable[[Any], Any]) -> Any:
    return compile_(annotation_types.write_hexdump_lines)


def _has_default_format(options: HexdumpOptions) -> bool:
    """Return True if lines are neither folded nor coloured."""
    return options.depth is None and options.columns is None and not options.color


def _is_one_range(spaces: tuple[AddressSpace, ...]) -> bool:
    """Return True if all bytes belong to one range of the file."""
    return len(spaces) == 1 and not spaces[0].name and spaces[0].base + len(spaces[0].data) < _MAX_OFFSET


def _encode_lines(lines: Iterable[str]) -> Iterator[bytes]:
    lines = iter(lines)
    while chunk := list(islice(lines, _FIELDS_AT_ONCE)):
        yield ("\n".join(chunk) + "\n").encode("utf-8", "backslashreplace")


class _ShapeLines(NamedTuple):
    """Lines for the fields of a shape. labels: texts with NUL for the path of the element, and `%d` for numbers."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    marks: tuple[int, ...]
    labels: str


class _FieldBuffer(msgspec.Struct):
    """Buffer of fields that wait to be drawn."""

    space: AddressSpace
    options: HexdumpOptions
    write_lines: Any
    starts: list[int] = msgspec.field(default_factory=list)
    ends: list[int] = msgspec.field(default_factory=list)
    marks: list[int] = msgspec.field(default_factory=list)
    labels: list[str] = msgspec.field(default_factory=list)
    _shape_lines: dict[int, tuple[ElementShape, _ShapeLines | None]] = msgspec.field(default_factory=dict)
    """id of a shape -> (the shape, to keep it alive; its lines)."""

    def unfold(self, rows: Iterable[FieldRow]) -> Iterator[FieldRow]:
        """Yield the rows except elements that were buffered as a whole; other elements are expanded to their rows."""
        for row in rows:
            if row.__class__ is not FoldedRow:
                yield row
            elif not self._try_add_element(row):
                yield from row.expand_rows()

    def _try_add_element(self, row: FoldedRow) -> bool:
        if row.space or not row.path.isascii() or not row.path.isprintable():
            return False
        cached = self._shape_lines.get(id(row.shape))
        if cached is None:
            cached = self._shape_lines[id(row.shape)] = row.shape, self._make_shape_lines(row)
        shape_lines, start = cached[1], row.start
        if shape_lines is None or start < self.space.base or row.end > self.space.base + len(self.space.data):
            return False
        self.starts += [start + low for low in shape_lines.starts]
        self.ends += [start + high for high in shape_lines.ends]
        self.marks += shape_lines.marks
        self.labels.append((shape_lines.labels % row.read_numbers()).replace("\0", row.path))
        return True

    def _make_shape_lines(self, row: FoldedRow) -> _ShapeLines | None:
        """Return the lines of a shape; None if a field may need more than two lines."""
        leaves = [one for one in row.expand_rows() if one.leaf]
        if any(one.end - one.start > self.options.width + 1 for one in leaves):
            return None
        number_places, labels = set(row.shape.places), list[str]()
        for leaf_row in leaves:
            if leaf_row.start - row.start in number_places:
                labels.append(f"\0{leaf_row.path[len(row.path) :].removesuffix('.value')} = %d")
            else:
                label = make_label(leaf_row, self.options)
                labels.append("\0" + label[len(row.path) :].replace("%", "%%"))
        if any("\0" in label[1:] for label in labels):
            return None
        starts, ends = (
            tuple(place - row.start for place in places) for places in zip(*(one[1:3] for one in leaves), strict=True)
        )
        return _ShapeLines(starts, ends, (32,) * len(leaves), "".join(label + "\n" for label in labels))

    def try_add_row(self, row: FieldRow) -> bool:
        """Add the lines of a field; return False if the field needs more than two lines."""
        path, start, end, value, meaning, _, space, bits, _, leaf, ok = row
        if not leaf:
            return ok or not meaning
        width, base = self.options.width, self.space.base
        if space or not start < end <= start - start % width + 2 * width or start < base:
            return False
        if end > base + len(self.space.data):
            return False
        is_plain_number = (
            value.__class__ is int and not meaning and not bits and -_MAX_PLAIN_NUMBER < value < _MAX_PLAIN_NUMBER
        )
        if is_plain_number and path.isascii() and path.isprintable():
            self.labels.append(f"{path.removesuffix('.value')} = {value}\n")
        else:
            self.labels.append(make_label(row, self.options) + "\n")
        self.starts.append(start)
        self.ends.append(end)
        self.marks.append(32 if ok else 33)
        return True

    def draw_and_clear(self) -> bytes:
        """Draw and remove all buffered fields."""
        count = len(self.starts)
        if not count:
            return b""
        layout, blank = make_line_layout_and_blank_line(self.options)
        texts = "".join(self.labels).encode("utf-8", "backslashreplace")
        out = bytearray(2 * count * (len(blank) + 2) + len(texts))
        integers = (array("q", one) for one in (self.starts, self.ends, self.marks, layout, list(blank)))
        size = self.write_lines(self.space.data, self.space.base, count, *integers, texts, out)
        for buffer in (self.starts, self.ends, self.marks, self.labels):
            buffer.clear()
        return bytes(memoryview(out)[:size])


# --- `hexdump-annotate -O svg`: draw bytes as a picture for a slide, each field in the colour of its label ---

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
    parts = [path.split(".")[:-1] for path in [row.path for row in rows]]
    same = takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False))
    common_path = "".join(f"{column[0]}." for column in same)
    rows = [row._replace(path=row.path[len(common_path) :]) for row in rows]
    title = f"{title}  {common_path.rstrip('.')}"
    lines: list[str] = []
    top = _TOP_HEIGHT
    for space, space_rows in _group_by_space(rows).items():
        lines += _draw_space(space, space_rows, spaces, top)
        top += _LINE_HEIGHT * (max(_count_lines(space_rows), len(space_rows)) + (1 if space else 0)) + 8
    height = top + 16
    return "".join(f"{line}\n" for line in (*svg_head(title, height, columns=True), *lines, "</svg>")).encode("utf-8")


def _is_drawn(row: FieldRow, depth: int | None) -> bool:
    if row.bits or row.end == row.start:
        return False
    return row.depth == depth or (row.leaf and (depth is None or row.depth < depth))


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
