"""Rows of array elements that are laid out like an earlier one, made without a parse.

While an element is parsed, the plain numbers that no expression reads are recorded. All other bytes decided how it
was
read, or are shown in words. An element with the same bytes there is read in the same way, whatever its numbers are.
Where a part could read other bytes (`LearningStopper`) nothing is learned.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from construct import Construct, Subconstruct

from binlogtool.schema.annotation import FieldRow

_row = tuple.__new__

_KEPT = 16
"""Shapes of one kind of element."""
_PATIENCE = 64
"""Shapes that are learned in vain before it is given up."""

Free = tuple[int, str]
"""Index of the row of a plain number, and how `struct` writes it."""


class Recorder:
    """Records what one parse depends on.

    Attributes:
        first: Index of its first row.
        free: The plain numbers.
        inside: How many sized fields it is inside of.
        reads: Paths that expressions read.
        spoiled: Nothing can be learned from it.
    """

    __slots__ = ("first", "free", "inside", "reads", "spoiled")

    def __init__(self, first: int) -> None:
        self.first = first
        self.free: list[Free] = []
        self.reads: set[str] = set()
        self.spoiled = False
        self.inside = 0


class Spoils(Subconstruct):  # type: ignore[misc]
    """A part that may read more than its own bytes, or that knows what no expression says.

    Attributes:
        ends: It only checks whether any bytes are left.
    """

    ends = False

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        recorder = getattr(path, "recorder", None)
        if recorder is not None and not (self.ends and recorder.inside):
            recorder.spoiled = True
        return self.subcon._parsereport(stream, context, path)


class Shape:
    """How elements of one layout are read: the bytes that decide, and the rows."""

    __slots__ = ("_fields", "_rows", "_values", "depth", "mask", "places", "size", "want")

    def __init__(self, data: bytes, start: int, rows: list[Any], base: int, free: list[tuple[Any, str]]) -> None:
        first = rows[0]
        at, self.size, self.depth = base + start, first[2] - first[1], first[8]
        mask = bytearray(b"\xff" * self.size)
        places = sorted((row[1] - at, row[2] - at, code) for row, code in free)
        text, reached = "<", 0
        for low, high, code in places:
            text += f"{low - reached}x{code}"
            reached = high
            mask[low:high] = bytes(high - low)
        self._fields = struct.Struct(text)
        self.places = tuple(low for low, _, _ in places)
        """Where the numbers stand in it."""
        self.mask = int.from_bytes(mask, "little")
        self.want = int.from_bytes(data[start : start + self.size], "little") & self.mask
        index = {low: i for i, (low, _, _) in enumerate(places)}
        own = {id(row) for row, _ in free}
        stem, count = len(first[0]), len(places)
        kept: list[Any] = []
        made = []
        for row in rows:
            if id(row) in own:
                value = index[row[1] - at]
            else:
                value = count + len(kept)
                kept.append(row[3])
            made.append((row[0][stem:], row[1] - at, row[2] - at, value, row[4], row[8] - self.depth, row[9]))
        self._rows, self._values = tuple(made), tuple(kept)

    def rows(self, data: bytes, start: int, at: int, path: str, unit: str, space: str) -> list[Any]:
        """Return the rows of the element at `data[start]`, which is at `address`."""
        values, depth = self._fields.unpack_from(data, start) + self._values, self.depth
        return [
            _row(
                FieldRow, (path + name, at + low, at + high, values[i], said, unit, space, None, depth + d, leaf, True)
            )
            for name, low, high, i, said, d, leaf in self._rows
        ]

    def numbers(self, data: bytes, start: int) -> tuple[int, ...]:
        """Return the numbers at `places` of the element at `data[start]`."""
        return self._fields.unpack_from(data, start)

    def __len__(self) -> int:
        return len(self._rows)


class Folded(FieldRow):
    """The row of an element that also stands for all rows below it.

    Attributes:
        shape: How the element is read.
        data, at: Where its bytes are.
    """

    shape: Shape
    data: bytes
    at: int

    def rows(self) -> list[FieldRow]:
        """Return the rows of the element and all below it."""
        return self.shape.rows(self.data, self.at, self.start, self.path, self.unit, self.space)

    def numbers(self) -> tuple[int, ...]:
        """See `ElementShape.read_numbers`."""
        return self.shape.numbers(self.data, self.at)


def fold(shape: Shape, data: bytes, start: int, at: int, path: str, unit: str, space: str) -> Folded:
    """Return the element at `data[start]`, which is at `address`, as one row."""
    made: Folded = _row(Folded, (path, at, at + shape.size, None, "", unit, space, None, shape.depth, False, True))
    made.shape, made.data, made.at = shape, data, start
    return made


def unfolded(rows: Iterable[FieldRow]) -> Iterator[FieldRow]:
    """Yield the rows, with folded elements expanded."""
    for row in rows:
        if row.__class__ is Folded:
            yield from row.rows()
        else:
            yield row


def _is_read(path: str, reads: set[str]) -> bool:
    """Return True if an expression reads this field, or a group that it is in."""
    return path in reads or any(path.startswith(one) and path[len(one)] in ".[" for one in reads)


class Shapes:
    """The shapes of one kind of element, the most recently used first."""

    __slots__ = ("_found", "_known", "_learned")

    def __init__(self) -> None:
        self._known: list[Shape] = []
        self._found = self._learned = 0

    @property
    def learning(self) -> bool:
        """True while learning is worth its cost."""
        return self._learned < _PATIENCE + self._found // 4

    def of(self, data: bytes, start: int, depth: int) -> Shape | None:
        """Return the shape of the element at `data[start]`; None if it is new."""
        known = self._known
        for i, shape in enumerate(known):
            end = start + shape.size
            if (
                end <= len(data)
                and int.from_bytes(data[start:end], "little") & shape.mask == shape.want
                and shape.depth == depth
            ):
                self._found += 1
                if i:
                    known.insert(0, known.pop(i))
                return shape
        return None

    def learn(self, data: bytes, start: int, rows: list[Any], base: int, recorder: Recorder) -> None:
        """Learn the shape of an element that was parsed, if nothing is wrong with it."""
        self._learned += 1  # a hit allows a quarter of another attempt
        if recorder.spoiled or not rows or rows[0] is None or rows[0][1] != base + start:
            return
        first = rows[0]
        if any(row is None or not row[10] or row[6] != first[6] or row[7] is not None for row in rows):
            return
        if any(row[2] > first[2] or not row[0].startswith(first[0]) for row in rows):
            return
        numbers = [(rows[i - recorder.first], code) for i, code in recorder.free]
        free = [(row, code) for row, code in numbers if not _is_read(row[0], recorder.reads)]
        if not free:
            return
        self._known.insert(0, Shape(data, start, rows, base, free))
        del self._known[_KEPT:]


class Unparsed:
    """The value of an element that was not parsed; it is parsed when an expression reads something of it."""

    __slots__ = ("_context", "_data", "_start", "_subcon", "_value")

    def __init__(self, subcon: Construct, data: bytes, start: int, context: Any) -> None:
        self._subcon, self._data, self._start, self._context = subcon, data, start, context

    def _parsed(self) -> Any:
        if self._subcon is not None:
            stream = io.BytesIO(self._data)
            stream.seek(self._start)
            self._value = self._subcon._parsereport(stream, self._context, "")
            self._subcon = None
        return self._value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parsed(), name)

    def __getitem__(self, name: Any) -> Any:
        return self._parsed()[name]


class Watched(dict[Any, Any]):
    """A `trace_quick.FastContext` that records what expressions read of it."""

    __slots__ = ("recorder", "stem")

    def __getitem__(self, name: Any) -> Any:
        if name.__class__ is not str or name[:1] == "_":
            self.recorder.spoiled = True
        else:
            self.recorder.reads.add(self.stem + name)
        return dict.__getitem__(self, name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Watched.__slots__:
            object.__setattr__(self, name, value)
        else:
            dict.__setitem__(self, name, value)
