"""The lines of `render.hexdump` as bytes, many at a time: those of short fields by compiled code."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any

import msgspec

from binlogtool.render.hexdump import HexdumpOptions, hexdump, label_of, measures
from binlogtool.schema import hexlines
from binlogtool.schema.annotation import FieldRow, Space

_SOME = 4096
"""Fields that are drawn at once."""
_OFFSETS_TO = 1 << 32
_PLAIN = 1 << 64


def drawn(
    rows: Iterable[FieldRow], spaces: Iterable[Space], options: HexdumpOptions, heading: bool, compile_: Any
) -> Iterator[bytes]:
    """The text, in pieces that end with a line. compile_: turns a kernel into native code, None = there is none."""
    spaces, rows = tuple(spaces), list(rows)
    if compile_ is None or not _usual(options) or not _alone(rows, spaces):
        yield from _encoded(hexdump(rows, spaces, options, heading))
        return
    if heading:
        yield from _encoded(hexdump((), (), options))
    lines = _Lines(spaces[0], options, _run(compile_))
    for row in rows:
        if not lines.take(row):
            yield lines.text()
            yield from _encoded(hexdump((row,), spaces, options, heading=False))
        elif len(lines.labels) >= _SOME:
            yield lines.text()
    yield lines.text()


@lru_cache(maxsize=4)
def _run(compile_: Callable[[Any], Any]) -> Any:
    return compile_(hexlines.put_lines)


def _usual(options: HexdumpOptions) -> bool:
    """Are lines as wide as they are, without colours, with borders and hexadecimal offsets?"""
    plain = options.depth is None and options.columns is None and not options.color
    return plain and options.base == "hex" and options.border != "none"


def _alone(rows: list[FieldRow], spaces: tuple[Space, ...]) -> bool:
    """Are all bytes those of one range of the file?"""
    return len(spaces) == 1 and not spaces[0].name and spaces[0].base + len(spaces[0].data) < _OFFSETS_TO


def _encoded(lines: Iterable[str]) -> Iterator[bytes]:
    text = "\n".join(lines)
    if text:
        yield (text + "\n").encode("utf-8", "backslashreplace")


class _Lines(msgspec.Struct):
    """Fields that wait to be drawn."""

    space: Space
    options: HexdumpOptions
    run: Any
    starts: list[int] = msgspec.field(default_factory=list)
    ends: list[int] = msgspec.field(default_factory=list)
    marks: list[int] = msgspec.field(default_factory=list)
    labels: list[str] = msgspec.field(default_factory=list)

    def take(self, row: FieldRow) -> bool:
        """Adds the lines of a field; False: they are no short ones."""
        path, start, end, value, meaning, _, space, bits, _, leaf, ok = row
        if not leaf:
            return ok or not meaning
        width, base = self.options.width, self.space.base
        if space or not start < end <= start - start % width + 2 * width or start < base:
            return False
        if end > base + len(self.space.data):
            return False
        if (
            value.__class__ is int
            and not meaning
            and not bits
            and -_PLAIN < value < _PLAIN
            and path.isascii()
            and (path.isprintable())
        ):
            self.labels.append(f"{path.removesuffix('.value')} = {value}")
        else:
            self.labels.append(label_of(row, self.options))
        self.starts.append(start)
        self.ends.append(end)
        self.marks.append(32 if ok else 33)
        return True

    def text(self) -> bytes:
        """All of them, drawn."""
        if not self.labels:
            return b""
        layout, blank = measures(self.options)
        whole = "".join(self.labels)
        texts = whole.encode("utf-8", "backslashreplace")
        sizes = [*map(len, self.labels)]
        if len(texts) != len(whole):
            sizes = [len(label.encode("utf-8", "backslashreplace")) for label in self.labels]
        count = len(self.labels)
        out = bytearray(2 * count * (len(blank) + 2) + len(texts))
        columns = (self.starts, self.ends, self.marks, accumulate(sizes), layout, blank)
        integers = (array("q", one if isinstance(one, list) else list(one)) for one in columns)
        size = self.run(self.space.data, self.space.base, count, *integers, texts, out)
        for kept in (self.starts, self.ends, self.marks, self.labels):
            kept.clear()
        return bytes(memoryview(out)[:size])
