"""Rows of array elements that are laid out like an earlier one, made without a parse.

While an element is parsed, the plain numbers that no expression reads are recorded. All other bytes decided how it was
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

_make_row = tuple.__new__

_MAX_SHAPES = 16
"""Shapes of one kind of element."""
_MAX_FRUITLESS = 64
"""Shapes that are learned in vain before it is given up."""

PlainNumber = tuple[int, str]
"""Index of the row of a plain number, and how `struct` writes it."""


class ShapeRecorder:
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
        self.free: list[PlainNumber] = []
        self.reads: set[str] = set()
        self.spoiled = False
        self.inside = 0


class LearningStopper(Subconstruct):  # type: ignore[misc]
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


class ElementShape:
    """How elements of one layout are read: the bytes that decide, and the rows."""

    __slots__ = ("_fields", "_rows", "_values", "depth", "mask", "places", "size", "want")

    def __init__(
        self, data: bytes, start: int, rows: list[Any], base: int, plain_numbers: list[tuple[Any, str]]
    ) -> None:
        first = rows[0]
        address, self.size, self.depth = base + start, first[2] - first[1], first[8]
        mask = bytearray(b"\xff" * self.size)
        numbers = sorted((row[1] - address, row[2] - address, code) for row, code in plain_numbers)
        text, reached = "<", 0
        for low, high, code in numbers:
            text += f"{low - reached}x{code}"
            reached = high
            mask[low:high] = bytes(high - low)
        self._fields = struct.Struct(text)
        self.places = tuple(low for low, _, _ in numbers)
        """Where the numbers stand in it."""
        self.mask = int.from_bytes(mask, "little")
        self.want = int.from_bytes(data[start : start + self.size], "little") & self.mask
        index = {low: i for i, (low, _, _) in enumerate(numbers)}
        number_rows = {id(row) for row, _ in plain_numbers}
        stem, count = len(first[0]), len(numbers)
        constant_values: list[Any] = []
        row_templates = []
        for row in rows:
            if id(row) in number_rows:
                value = index[row[1] - address]
            else:
                value = count + len(constant_values)
                constant_values.append(row[3])
            row_templates.append(
                (row[0][stem:], row[1] - address, row[2] - address, value, row[4], row[8] - self.depth, row[9])
            )
        self._rows, self._values = tuple(row_templates), tuple(constant_values)

    def make_rows(self, data: bytes, start: int, address: int, path: str, unit: str, space: str) -> list[Any]:
        """Return the rows of the element at `data[start]`, which is at `address`."""
        values, depth = self._fields.unpack_from(data, start) + self._values, self.depth
        return [
            _make_row(
                FieldRow,
                (path + name, address + low, address + high, values[i], said, unit, space, None, depth + d, leaf, True),
            )
            for name, low, high, i, said, d, leaf in self._rows
        ]

    def read_numbers(self, data: bytes, start: int) -> tuple[int, ...]:
        """Return the numbers at `places` of the element at `data[start]`."""
        return self._fields.unpack_from(data, start)

    def __len__(self) -> int:
        return len(self._rows)


class FoldedRow(FieldRow):
    """The row of an element that also stands for all rows below it.

    Attributes:
        shape: How the element is read.
        data, at: Where its bytes are.
    """

    shape: ElementShape
    data: bytes
    at: int

    def expand_rows(self) -> list[FieldRow]:
        """Return the rows of the element and all below it."""
        return self.shape.make_rows(self.data, self.at, self.start, self.path, self.unit, self.space)

    def read_numbers(self) -> tuple[int, ...]:
        """See `ElementShape.read_numbers`."""
        return self.shape.read_numbers(self.data, self.at)


def make_folded_row(
    shape: ElementShape, data: bytes, start: int, address: int, path: str, unit: str, space: str
) -> FoldedRow:
    """Return the element at `data[start]`, which is at `address`, as one row."""
    row: FoldedRow = _make_row(
        FoldedRow, (path, address, address + shape.size, None, "", unit, space, None, shape.depth, False, True)
    )
    row.shape, row.data, row.at = shape, data, start
    return row


def unfold_rows(rows: Iterable[FieldRow]) -> Iterator[FieldRow]:
    """Yield the rows, with folded elements expanded."""
    for row in rows:
        if row.__class__ is FoldedRow:
            yield from row.expand_rows()
        else:
            yield row


def _is_read(path: str, reads: set[str]) -> bool:
    """Return True if an expression reads this field, or a group that it is in."""
    return path in reads or any(path.startswith(one) and path[len(one)] in ".[" for one in reads)


class ShapeCache:
    """The shapes of one kind of element, the most recently used first."""

    __slots__ = ("_found", "_known", "_learned")

    def __init__(self) -> None:
        self._known: list[ElementShape] = []
        self._found = self._learned = 0

    @property
    def is_learning(self) -> bool:
        """True while learning is worth its cost."""
        return self._learned < _MAX_FRUITLESS + self._found // 4

    def find_shape(self, data: bytes, start: int, depth: int) -> ElementShape | None:
        """Return the shape of the element at `data[start]`; None if it is new."""
        shapes = self._known
        for i, shape in enumerate(shapes):
            end = start + shape.size
            if (
                end <= len(data)
                and int.from_bytes(data[start:end], "little") & shape.mask == shape.want
                and shape.depth == depth
            ):
                self._found += 1
                if i:
                    shapes.insert(0, shapes.pop(i))
                return shape
        return None

    def learn(self, data: bytes, start: int, rows: list[Any], base: int, recorder: ShapeRecorder) -> None:
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
        plain_numbers = [(row, code) for row, code in numbers if not _is_read(row[0], recorder.reads)]
        if not plain_numbers:
            return
        self._known.insert(0, ElementShape(data, start, rows, base, plain_numbers))
        del self._known[_MAX_SHAPES:]


class LazyElement:
    """The value of an element that was not parsed; it is parsed when an expression reads something of it."""

    __slots__ = ("_context", "_data", "_start", "_subcon", "_value")

    def __init__(self, subcon: Construct, data: bytes, start: int, context: Any) -> None:
        self._subcon, self._data, self._start, self._context = subcon, data, start, context

    def _parse_value(self) -> Any:
        if self._subcon is not None:
            stream = io.BytesIO(self._data)
            stream.seek(self._start)
            self._value = self._subcon._parsereport(stream, self._context, "")
            self._subcon = None
        return self._value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parse_value(), name)

    def __getitem__(self, name: Any) -> Any:
        return self._parse_value()[name]


class RecordingContext(dict[Any, Any]):
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
        if name in RecordingContext.__slots__:
            object.__setattr__(self, name, value)
        else:
            dict.__setitem__(self, name, value)
