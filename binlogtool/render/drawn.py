"""Fast hexdump: the lines of `render.hexdump` as bytes, those of short fields by compiled code."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from binlogtool.limits import KIB
from binlogtool.render.hexdump import HexdumpOptions, line_template, make_label, render_hexdump
from binlogtool.schema import backends, hexlines
from binlogtool.schema.annotation import AddressSpace, AnnotatedPiece, FieldRow
from binlogtool.schema.trace_shapes import ElementShape, FoldedRow, unfold_rows

_FIELDS_AT_ONCE = 4096
"""Fields that are drawn at once."""
_MAX_SMALL_PIECE = 64 * KIB
"""Bytes of a piece that is drawn together with others."""
_MAX_OFFSET = 1 << 32
_MAX_PLAIN_NUMBER = 1 << 64


def kernel_compiler(backend: str) -> Callable[[Any], Any] | None:
    """Return the function that compiles kernels; None = this backend has none."""
    selected_backend = backends.choose_backend(backend)
    return selected_backend.compile_kernel if selected_backend.name == "native" else None


def draw_hexdump(
    rows: Iterable[FieldRow], spaces: Iterable[AddressSpace], options: HexdumpOptions, heading: bool, compile_: Any
) -> Iterator[bytes]:
    """Yield the text, in pieces that end with a line. compile_: compiles a kernel, None = there is none."""
    spaces, rows = tuple(spaces), list(rows)
    if compile_ is None or not _has_default_format(options) or not _is_one_range(rows, spaces):
        yield from _encode_lines(render_hexdump(unfold_rows(rows), spaces, options, heading))
        return
    if heading:
        yield from _encode_lines(render_hexdump((), (), options))
    lines = _FieldBuffer(spaces[0], options, _compile_put_lines(compile_))
    for row in lines.unfold(rows):
        if not lines.add_row(row):
            yield lines.draw()
            yield from _encode_lines(render_hexdump((row,), spaces, options, heading=False))
        elif len(lines.starts) >= _FIELDS_AT_ONCE:
            yield lines.draw()
    yield lines.draw()


def join_small_pieces(pieces: Iterable[AnnotatedPiece]) -> Iterator[tuple[list[FieldRow], tuple[AddressSpace, ...]]]:
    """Yield rows and spaces of the pieces; several small consecutive ones are joined."""
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
    """Return True if the piece consists of few bytes of the file alone, all of which are present."""
    if len(piece.spaces) != 1 or piece.spaces[0].name or piece.spaces[0].base != piece.start:
        return False
    return len(piece.spaces[0].data) == piece.end - piece.start <= _MAX_SMALL_PIECE


@lru_cache(maxsize=4)
def _compile_put_lines(compile_: Callable[[Any], Any]) -> Any:
    return compile_(hexlines.put_hexdump_lines)


def _has_default_format(options: HexdumpOptions) -> bool:
    """Return True if lines are not folded or coloured, and have borders and hexadecimal offsets."""
    is_plain = options.depth is None and options.columns is None and not options.color
    return is_plain and options.base == "hex" and options.border != "none"


def _is_one_range(rows: list[FieldRow], spaces: tuple[AddressSpace, ...]) -> bool:
    """Return True if all bytes are those of one range of the file."""
    return len(spaces) == 1 and not spaces[0].name and spaces[0].base + len(spaces[0].data) < _MAX_OFFSET


def _encode_lines(lines: Iterable[str]) -> Iterator[bytes]:
    lines = iter(lines)
    while chunk := list(islice(lines, _FIELDS_AT_ONCE)):
        yield ("\n".join(chunk) + "\n").encode("utf-8", "backslashreplace")


class _ShapeLines(NamedTuple):
    """How the fields of a shape are drawn. labels: with a NUL for the path of the element, and `%d` for numbers."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    marks: tuple[int, ...]
    labels: str


class _FieldBuffer(msgspec.Struct):
    """Fields that wait to be drawn."""

    space: AddressSpace
    options: HexdumpOptions
    put_lines: Any
    starts: list[int] = msgspec.field(default_factory=list)
    ends: list[int] = msgspec.field(default_factory=list)
    marks: list[int] = msgspec.field(default_factory=list)
    labels: list[str] = msgspec.field(default_factory=list)
    _shape_lines: dict[int, tuple[ElementShape, _ShapeLines | None]] = msgspec.field(default_factory=dict)
    """By identity of a shape, which is kept alive."""

    def unfold(self, rows: Iterable[FieldRow]) -> Iterator[FieldRow]:
        """Yield the rows, without the elements that are buffered as a whole; of other elements their own rows."""
        for row in rows:
            if row.__class__ is not FoldedRow:
                yield row
            elif not self._add_element(row):
                yield from row.expand_rows()

    def _add_element(self, row: FoldedRow) -> bool:
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
        """Return the lines of a shape; None where a field may need more than two lines."""
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

    def add_row(self, row: FieldRow) -> bool:
        """Add the lines of a field; return False if it is not a short one."""
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

    def draw(self) -> bytes:
        """Draw and remove all buffered fields."""
        count = len(self.starts)
        if not count:
            return b""
        layout, blank = line_template(self.options)
        texts = "".join(self.labels).encode("utf-8", "backslashreplace")
        out = bytearray(2 * count * (len(blank) + 2) + len(texts))
        integers = (array("q", one) for one in (self.starts, self.ends, self.marks, layout, list(blank)))
        size = self.put_lines(self.space.data, self.space.base, count, *integers, texts, out)
        for buffer in (self.starts, self.ends, self.marks, self.labels):
            buffer.clear()
        return bytes(memoryview(out)[:size])
