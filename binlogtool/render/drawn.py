"""Fast hexdump: the lines of `render.hexdump` as bytes, those of short fields by compiled code."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from binlogtool.limits import KIB
from binlogtool.render.hexdump import HexdumpOptions, hexdump, label_of, measures
from binlogtool.schema import backends, hexlines
from binlogtool.schema.annotation import FieldRow, Piece, Space
from binlogtool.schema.trace_shapes import Folded, Shape, unfolded

_SOME = 4096
"""Fields that are drawn at once."""
_SMALL = 64 * KIB
"""Bytes of a piece that is drawn together with others."""
_OFFSETS_TO = 1 << 32
_PLAIN = 1 << 64


def compiler(backend: str) -> Callable[[Any], Any] | None:
    """Return the function that compiles kernels; None = this backend has none."""
    chosen = backends.choose(backend)
    return chosen.compile if chosen.name == "native" else None


def drawn(
    rows: Iterable[FieldRow], spaces: Iterable[Space], options: HexdumpOptions, heading: bool, compile_: Any
) -> Iterator[bytes]:
    """Yield the text, in pieces that end with a line. compile_: compiles a kernel, None = there is none."""
    spaces, rows = tuple(spaces), list(rows)
    if compile_ is None or not _usual(options) or not _alone(rows, spaces):
        yield from _encoded(hexdump(unfolded(rows), spaces, options, heading))
        return
    if heading:
        yield from _encoded(hexdump((), (), options))
    lines = _Lines(spaces[0], options, _run(compile_))
    for row in lines.folded(rows):
        if not lines.take(row):
            yield lines.text()
            yield from _encoded(hexdump((row,), spaces, options, heading=False))
        elif len(lines.starts) >= _SOME:
            yield lines.text()
    yield lines.text()


def gathered(pieces: Iterable[Piece]) -> Iterator[tuple[list[FieldRow], tuple[Space, ...]]]:
    """Yield rows and spaces of the pieces; several small consecutive ones are joined."""
    rows, parts, base, end = list[FieldRow](), list[bytes](), 0, 0
    for piece in pieces:
        alone = _is_small(piece)
        if rows and (not alone or piece.start != end or len(rows) >= _SOME):
            yield rows, (Space("", base, b"".join(parts)),)
            rows, parts = [], []
        if alone:
            base = base if rows else piece.start
            rows += piece.rows
            parts.append(piece.spaces[0].data)
            end = piece.end
        else:
            yield piece.rows, piece.spaces
    if rows:
        yield rows, (Space("", base, b"".join(parts)),)


def _is_small(piece: Piece) -> bool:
    """Return True if the piece consists of few bytes of the file alone, all of which are present."""
    if len(piece.spaces) != 1 or piece.spaces[0].name or piece.spaces[0].base != piece.start:
        return False
    return len(piece.spaces[0].data) == piece.end - piece.start <= _SMALL


@lru_cache(maxsize=4)
def _run(compile_: Callable[[Any], Any]) -> Any:
    return compile_(hexlines.put_lines)


def _usual(options: HexdumpOptions) -> bool:
    """Return True if lines are not folded or coloured, and have borders and hexadecimal offsets."""
    plain = options.depth is None and options.columns is None and not options.color
    return plain and options.base == "hex" and options.border != "none"


def _alone(rows: list[FieldRow], spaces: tuple[Space, ...]) -> bool:
    """Return True if all bytes are those of one range of the file."""
    return len(spaces) == 1 and not spaces[0].name and spaces[0].base + len(spaces[0].data) < _OFFSETS_TO


def _encoded(lines: Iterable[str]) -> Iterator[bytes]:
    lines = iter(lines)
    while some := list(islice(lines, _SOME)):
        yield ("\n".join(some) + "\n").encode("utf-8", "backslashreplace")


class _Plan(NamedTuple):
    """How the fields of a shape are drawn. labels: with a NUL for the path of the element, and `%d` for numbers."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    marks: tuple[int, ...]
    labels: str


class _Lines(msgspec.Struct):
    """Fields that wait to be drawn."""

    space: Space
    options: HexdumpOptions
    run: Any
    starts: list[int] = msgspec.field(default_factory=list)
    ends: list[int] = msgspec.field(default_factory=list)
    marks: list[int] = msgspec.field(default_factory=list)
    labels: list[str] = msgspec.field(default_factory=list)
    _plans: dict[int, tuple[Shape, _Plan | None]] = msgspec.field(default_factory=dict)
    """By identity of a shape, which is kept alive."""

    def folded(self, rows: Iterable[FieldRow]) -> Iterator[FieldRow]:
        """Yield the rows, without the elements that are buffered as a whole; of other elements their own rows."""
        for row in rows:
            if row.__class__ is not Folded:
                yield row
            elif not self._take_whole(row):
                yield from row.rows()

    def _take_whole(self, row: Folded) -> bool:
        if row.space or not row.path.isascii() or not row.path.isprintable():
            return False
        known = self._plans.get(id(row.shape))
        if known is None:
            known = self._plans[id(row.shape)] = row.shape, self._plan(row)
        plan, at = known[1], row.start
        if plan is None or at < self.space.base or row.end > self.space.base + len(self.space.data):
            return False
        self.starts += [at + low for low in plan.starts]
        self.ends += [at + high for high in plan.ends]
        self.marks += plan.marks
        self.labels.append((plan.labels % row.numbers()).replace("\0", row.path))
        return True

    def _plan(self, row: Folded) -> _Plan | None:
        """Return the lines of a shape; None where a field may need more than two lines."""
        leaves = [one for one in row.rows() if one.leaf]
        if any(one.end - one.start > self.options.width + 1 for one in leaves):
            return None
        numbers, labels = set(row.shape.places), list[str]()
        for one in leaves:
            if one.start - row.start in numbers:
                labels.append(f"\0{one.path[len(row.path) :].removesuffix('.value')} = %d")
            else:
                label = label_of(one, self.options)
                labels.append("\0" + label[len(row.path) :].replace("%", "%%"))
        if any("\0" in label[1:] for label in labels):
            return None
        starts, ends = (
            tuple(place - row.start for place in places) for places in zip(*(one[1:3] for one in leaves), strict=True)
        )
        return _Plan(starts, ends, (32,) * len(leaves), "".join(label + "\n" for label in labels))

    def take(self, row: FieldRow) -> bool:
        """Add the lines of a field; return False if it is not a short one."""
        path, start, end, value, meaning, _, space, bits, _, leaf, ok = row
        if not leaf:
            return ok or not meaning
        width, base = self.options.width, self.space.base
        if space or not start < end <= start - start % width + 2 * width or start < base:
            return False
        if end > base + len(self.space.data):
            return False
        usual = value.__class__ is int and not meaning and not bits and -_PLAIN < value < _PLAIN
        if usual and path.isascii() and path.isprintable():
            self.labels.append(f"{path.removesuffix('.value')} = {value}\n")
        else:
            self.labels.append(label_of(row, self.options) + "\n")
        self.starts.append(start)
        self.ends.append(end)
        self.marks.append(32 if ok else 33)
        return True

    def text(self) -> bytes:
        """Draw and remove all buffered fields."""
        count = len(self.starts)
        if not count:
            return b""
        layout, blank = measures(self.options)
        texts = "".join(self.labels).encode("utf-8", "backslashreplace")
        out = bytearray(2 * count * (len(blank) + 2) + len(texts))
        integers = (array("q", one) for one in (self.starts, self.ends, self.marks, layout, list(blank)))
        size = self.run(self.space.data, self.space.base, count, *integers, texts, out)
        for kept in (self.starts, self.ends, self.marks, self.labels):
            kept.clear()
        return bytes(memoryview(out)[:size])
