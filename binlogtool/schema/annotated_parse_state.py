"""State of an annotated parse: rows, position, errors, repeated shapes of array elements.

While an element is parsed, the plain numbers that no expression reads are recorded. All its other bytes determined how
it was parsed, or are shown as text. So an element that has the same other bytes is parsed in the same way, whatever its
numbers are. If a part could read bytes outside the element (`LearningStopper`), nothing is learned.
"""

from __future__ import annotations

import enum
import io
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from construct import (
    CheckError,
    ConstError,
    Construct,
    EnumInteger,
    EnumIntegerString,
    HexDisplayedInteger,
    RangeError,
    StopFieldError,
    StreamError,
    StringError,
    Subconstruct,
    TerminatedError,
)
from msgspec.structs import replace

from binlogtool.format_api.schema_fields import ChecksumResult, DecompressionError, MalformedError, TracePart
from binlogtool.limits import Limits
from binlogtool.schema.annotation_types import AddressSpace, FieldRow, HexInt

# --- Values and errors of construct in words ---

MAX_ERROR_LENGTH = 300
"""Maximum characters of an error text, because some texts of construct quote the whole input."""

PLAIN_TYPES = frozenset({int, bytes, str, float, bool, type(None), HexInt})

_FINDING_IDS: tuple[tuple[type[BaseException], str], ...] = (
    (RecursionError, "nesting-too-deep"),
    (StreamError, "length-out-of-bounds"),
    (OverflowError, "length-out-of-bounds"),
    (CheckError, "length-out-of-bounds"),
    (RangeError, "count-out-of-bounds"),
    (ConstError, "bad-magic"),
    (TerminatedError, "unmapped-bytes"),
    (StringError, "text-undecodable"),
)

_SHORT_READ = re.compile(r"stream read less than specified amount, expected (\d+), found (\d+)")
_LARGE_READ = re.compile(r"stream\.read\(\) failed, requested (-?\d+) bytes")
_WRONG_CONSTANT = re.compile(r"parsing expected (.*) but parsed (.*)", re.DOTALL)
_THIS_PATH = re.compile(r"this((?:\[(?:'\w+'|\d+)\])+)")
_PATH_NAME = re.compile(r"'(\w+)'")


class NamedNumber(HexInt):
    """Magic number with its name in the schema. shown: the number to show."""

    label: str
    shown: int


def describe_value(value: Any, flags: tuple[int, dict[str, int]] | None) -> tuple[Any, str]:
    """Return the value to show and its meaning.

    Args:
        flags: The integer and the flag names of the last parsed `FlagsEnum`.
    """
    if isinstance(value, EnumIntegerString):
        return int(value), str(value)
    if isinstance(value, EnumInteger):
        return int(value), "unknown"
    if isinstance(value, NamedNumber):
        return value.shown, value.label
    if isinstance(value, HexDisplayedInteger):
        return HexInt(value), ""
    if isinstance(value, enum.Enum):
        return value.value, value.name
    if flags is not None and isinstance(value, dict) and value.get("_flagsenum"):
        return flags[0], format_flags(*flags)
    return value, ""


def format_flags(raw: int, flags: dict[str, int]) -> str:
    """Format flags as `commit|wait_sync|0x40`: the names of the bits that are set, then the rest as a number."""
    names = [name for name, mask in flags.items() if mask and raw & mask == mask]
    unnamed_bits = raw
    for name in names:
        unnamed_bits &= ~flags[name]
    return "|".join([*names, hex(unnamed_bits)] if unnamed_bits else names)


def describe_checksum(verified: ChecksumResult, base: int) -> str:
    """Describe the verdict on a stored checksum; the covered range is absolute."""
    span = f"{verified.algorithm} of {base + verified.start:#x}..{base + verified.end:#x}"
    if verified.ok is None:
        return f"not computed ({span})"
    return f"ok ({span})" if verified.ok else f"WRONG, computed {HexInt(verified.computed)!r} ({span})"


def describe_error(error: BaseException) -> tuple[str, str]:
    """Return the text and the finding id for an exception that ended a parse.

    Raises:
        MemoryError: the exception is a MemoryError, which says nothing about the bytes.
    """
    if isinstance(error, MemoryError):
        raise error
    finding_id = getattr(error, "finding_id", None) or next(
        (name for kind, name in _FINDING_IDS if isinstance(error, kind)), "payload-undecodable"
    )
    return _format_error(error), finding_id


def _format_error(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error).split("\n", 1)[-1] if str(error).startswith("Error in path") else str(error)
    if short_read := _SHORT_READ.search(text):
        return format_missing_bytes(int(short_read[1]), int(short_read[2]))
    if large_read := _LARGE_READ.search(text):
        return f"needs {large_read[1]} bytes"
    if wrong_constant := _WRONG_CONSTANT.search(text):
        text = f"expected {wrong_constant[1]}, found {wrong_constant[2]}"
    if isinstance(error, KeyError | AttributeError):
        text = f"refers to {text}, which this record does not have"
    return (text or type(error).__name__)[:MAX_ERROR_LENGTH]


def format_missing_bytes(size: int, left: int) -> str:
    """Return the text about a field for which the data is too short."""
    return f"needs {size:,} {'byte' if size == 1 else 'bytes'}, {left:,} {'is' if left == 1 else 'are'} left"


def find_field_paths(expression: Any) -> list[list[str]]:
    """Return the fields that a `this` expression mentions, in order, as lists of names."""
    return [_PATH_NAME.findall(match) for match in _THIS_PATH.findall(repr(expression))]


def format_condition(expression: Any) -> str:
    """Format a `this` expression as readable text: `length <= 2147483647`."""
    text = _THIS_PATH.sub(_format_path, repr(expression))
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _format_path(match: re.Match[str]) -> str:
    return ".".join(_PATH_NAME.findall(match[0]))


# --- Rows of repeated array elements ---

_make_row = tuple.__new__

_MAX_SHAPES = 16
"""Maximum number of shapes kept for one kind of element."""
_MAX_FRUITLESS = 64
"""Number of shapes learned without a hit after which learning stops."""

PlainNumber = tuple[int, str]
"""(index of the row of a plain number, its `struct` code)."""


class ShapeRecorder:
    """Recorder of the fields on which the parse of one element depends.

    Attributes:
        first: Index of the element's first row.
        free: The plain numbers.
        inside: Number of enclosing sized fields.
        reads: Paths that expressions read.
        spoiled: True if nothing can be learned from this element.
    """

    __slots__ = ("first", "free", "inside", "reads", "spoiled")

    def __init__(self, first: int) -> None:
        self.first = first
        self.free: list[PlainNumber] = []
        self.reads: set[str] = set()
        self.spoiled = False
        self.inside = 0


class LearningStopper(Subconstruct):  # type: ignore[misc]
    """Field whose parse depends on bytes outside of it; array elements with such a field are never cached as a shape.

    Attributes:
        ends: True if it only checks whether bytes are left.
    """

    ends = False

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        recorder = getattr(path, "recorder", None)
        if recorder is not None and not (self.ends and recorder.inside):
            recorder.spoiled = True
        return self.subcon._parsereport(stream, context, path)


class ElementShape:
    """Template for array elements with the same layout: the bytes that identify the layout, and the rows."""

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
        """Offsets of the numbers in the element."""
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
    """Row of an element that also represents all rows below it.

    Attributes:
        shape: The shape of the element.
        data, at: The element's bytes, and their offset in them.
    """

    shape: ElementShape
    data: bytes
    at: int

    def expand_rows(self) -> list[FieldRow]:
        """Return the row of the element and all rows below it."""
        return self.shape.make_rows(self.data, self.at, self.start, self.path, self.unit, self.space)

    def read_numbers(self) -> tuple[int, ...]:
        """Return the numbers of the element."""
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
    """Return True if an expression reads this field, or a group that contains it."""
    return path in reads or any(path.startswith(one) and path[len(one)] in ".[" for one in reads)


class ShapeCache:
    """Cache of the shapes of one kind of element, most recently used first."""

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

    def learn_shape(self, data: bytes, start: int, rows: list[Any], base: int, recorder: ShapeRecorder) -> None:
        """Learn the shape of a parsed element, if it has no errors."""
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
    """Value of an element that was not parsed; it is parsed when an expression reads a part of it."""

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
    """`annotated_parse_nodes.FastContext` that records which of its members expressions read."""

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


# --- State of one annotated parse ---

ROW_BYTES = 2048
"""Memory in bytes that one row may take, path and value included: at most `max_memory / ROW_BYTES` rows are made."""

ConstructParser = Callable[[Any, Any, Any], Any]
"""Parse function of a construct: (stream, context, path) -> value."""

OpenContainer = tuple[int, int, str, int, Any, str]
"""Container whose end is not known yet: (level, index of its row, path, start, value, meaning)."""


class TraceError(NamedTuple):
    """Reason why a record could not be parsed, or a wrong checksum. position: absolute, in the space `space`."""

    path: str
    position: int
    message: str
    finding_id: str
    space: str = ""


class AbandonedElement(NamedTuple):
    """Rows of the last element that could not be parsed completely (in an open-ended range or an optional field),
    and the error.
    """

    space: str
    position: int
    rows: list[Any]
    error: TraceError


class Trace:
    """State of an annotated parse.

    It takes the place of construct's `path` argument, so that it reaches every field.

    Positions are those of the stream (and indexes of `data`); rows get `base` added. `prefix` ends with a dot.

    Args:
        fold_rows: Elements with the layout of an earlier element become one row (`FoldedRow`).
        decompress: Compressed bytes are decompressed and get rows in an address space of their own.
    """

    __slots__ = (
        "abandoned", "base", "bits", "data", "depth", "errors", "failing", "flags", "folds", "inflated", "limits",
        "max_rows", "prefix", "reason", "recorder", "rows", "space", "spaces", "unit", "unpacks",
    )  # fmt: skip

    def __init__(
        self, data: bytes, base: int, limits: Limits, fold_rows: bool = False, decompress: bool = True
    ) -> None:
        self.rows: list[Any] = []
        self.folds, self.unpacks = fold_rows, decompress
        self.errors: list[TraceError] = []
        self.spaces = [AddressSpace("", base, data)]
        self.data, self.base, self.unit, self.space = data, base, "file", ""
        self.prefix, self.depth = "", 0
        self.limits, self.max_rows = limits, limits.max_memory // ROW_BYTES
        self.bits: int | None = None
        self.flags: tuple[int, dict[str, int]] | None = None
        self.failing: BaseException | None = None
        self.reason: TraceError | None = None
        self.abandoned: AbandonedElement | None = None
        self.recorder: ShapeRecorder | None = None
        self.inflated = 0

    def __str__(self) -> str:
        return self.prefix[:-1]

    def __add__(self, text: str) -> str:
        """Return a plain string, so that fields below an untraced construct class add no rows."""
        return str(self) + text

    def add_leaf(self, path: str, start: int, end: int, value: Any, meaning: str = "", ok: bool = True) -> None:
        """Add the row of a field without children; `[start, end)` are stream positions (bits inside bit fields)."""
        if value.__class__ not in PLAIN_TYPES:
            value, decoded_meaning = describe_value(value, self.flags)
            meaning = meaning or decoded_meaning
        self._append_or_replace_row(len(self.rows), path, (start, end), value, meaning, True, ok)

    def _append_or_replace_row(
        self, index: int, path: str, span: tuple[int, int], value: Any, meaning: str, leaf: bool, ok: bool
    ) -> None:
        (start, end), base, bits = span, self.base, None
        if self.bits is not None:
            bits = (start % 8, end - start + start % 8)
            start, end = self.bits + start // 8, self.bits + (end + 7) // 8
        tail = (self.unit, self.space, bits, self.depth, leaf, ok)
        row = _make_row(FieldRow, (path, base + start, base + end, value, meaning, *tail))
        if index == len(self.rows):
            self.rows.append(row)
        else:
            self.rows[index] = row

    def parse_node(self, path: str, read: ConstructParser, stream: Any, context: Any, filler: str = "unmapped") -> Any:
        """Parse a field that may have children, adding its row, then theirs. Bytes without a child become `filler`."""
        rows, start, outer, depth = self.rows, stream.tell(), self.prefix, self.depth
        if depth > self.limits.max_depth:
            raise MalformedError(f"nested more than {self.limits.max_depth} deep", None, "nesting-too-deep")
        index = len(rows)
        rows.append(None)
        self.prefix, self.depth = path + ".", depth + 1
        try:
            value = read(stream, context, self)
        except Exception as error:
            self.prefix, self.depth = outer, depth
            stopped = isinstance(error, StopFieldError)
            self._finish_node_row(index, path, start, stream.tell(), None, None if stopped else error, filler)
            raise
        self.prefix, self.depth = outer, depth
        end, base, last = stream.tell(), self.base, rows[-1]
        tiled = last is not None and last[2] == base + end and last[6] == self.space and self.bits is None
        if tiled and not isinstance(value, str | int):
            span = (path, base + start, base + end, None, "", self.unit, self.space, None, depth, False, True)
            rows[index] = _make_row(FieldRow, span)
        else:
            self._finish_node_row(index, path, start, end, value, None, filler)
        return value

    def _finish_node_row(
        self, index: int, path: str, start: int, end: int, value: Any, error: BaseException | None, filler: str
    ) -> None:
        """Complete the row of a field after its children; without children, make it a leaf or drop it."""
        rows = self.rows
        if len(rows) == index + 1:
            del rows[index]
            if error is not None:
                self.add_failed_row(error, path, start, end)
            elif end > start:
                self.add_leaf(path, start, end, value)
            return
        meaning = ""
        if error is not None and self.failing is not error:
            meaning = self._note_error(error, path, start)
        if self.bits is None:
            self._add_rows_after_last_child(path, end, filler)
        value = (
            describe_value(value, self.flags)[0] if isinstance(value, str | int) else None
        )  # the children show the rest
        self._append_or_replace_row(index, path, (start, max(end, start)), value, meaning, False, error is None)

    def _add_rows_after_last_child(self, path: str, end: int, filler: str) -> None:
        """Add rows for bytes after the last child: an element that was abandoned there, and the rest as `filler`."""
        reached = self._find_last_end()
        if reached < end and self.abandoned is not None and self.abandoned[:2] == (self.space, self.base + reached):
            self._restore_abandoned(self.abandoned)
            reached = self._find_last_end()
        if reached < end:
            self.depth += 1
            self.add_leaf(f"{path}.{filler}" if path else filler, reached, end, self.data[reached:end])
            self.depth -= 1

    def _restore_abandoned(self, abandoned: AbandonedElement) -> None:
        """Add the rows of an abandoned element: nothing else consumed its bytes, so the error is in this element."""
        self.abandoned = None
        row_count, end = len(self.rows), max((row.end for row in abandoned.rows), default=abandoned.position)
        depth = min((row.depth for row in abandoned.rows), default=0)
        self.rows.extend(abandoned.rows)
        self.errors.append(abandoned.error)
        for index in range(row_count - 1, -1, -1):
            row = self.rows[index]
            if row is None or depth == 0 or row.space != self.space:
                return
            if row.depth < depth and not row.leaf:
                depth = row.depth
                self.rows[index] = row._replace(end=max(end, row.end), ok=False)

    def _find_last_end(self) -> int:
        """Return the stream position after the last row of the current address space."""
        for row in reversed(self.rows):
            if row is not None and row.space == self.space and row.unit == self.unit:
                return int(row.end) - self.base
        return 0

    def add_failed_row(self, error: BaseException, path: str, start: int, end: int) -> None:
        """Add a row with the error's text for the innermost field that ended with an exception."""
        if self.failing is error:
            return
        data = self.data[start:end] if self.bits is None else None
        self.add_leaf(path, start, max(start, end), data, self._note_error(error, path, start), False)

    def _note_error(self, error: BaseException, path: str, position: int) -> str:
        self.failing = error
        message, finding_id = describe_error(error)
        address = self.base + (position if self.bits is None else self.bits + position // 8)
        self.reason = TraceError(path, address, message, finding_id, self.space)
        return message

    def record_error_and_continue(self, error: BaseException, position: int) -> None:
        """Keep the error of a field whose content is broken; the parse continues after the field."""
        if self.failing is not error or self.reason is None:
            self._note_error(error, self.prefix[:-1], position)
        assert self.reason is not None
        self.errors.append(self.reason)
        self.failing = self.reason = None

    def abandon_element(self, error: BaseException, row_count: int, position: int) -> None:
        """Remove the rows of an optional element that could not be parsed, and keep them."""
        if self.recorder is not None:
            self.recorder.spoiled = True
        if self.failing is not error or self.reason is None:
            self._note_error(error, self.prefix[:-1], position)
        assert self.reason is not None
        removed = [row for row in self.rows[row_count:] if row is not None]
        self.abandoned = AbandonedElement(self.space, self.base + position, removed, self.reason)
        del self.rows[row_count:]
        self.failing = self.reason = None

    def parse_element(self, index: int, subcon: Construct, stream: Any, context: Any) -> Any:
        """Parse element `index` of an array."""
        if len(self.rows) > self.max_rows:
            raise MalformedError(f"more than {self.max_rows:,} fields", None, "count-out-of-bounds")
        path, shapes = f"{self.prefix[:-1]}[{index}]", getattr(subcon, "shapes", None)
        if shapes is None or self.bits is not None or self.recorder is not None:
            return self.parse_node(path, subcon._parsereport, stream, context)
        start = stream.tell()
        shape = shapes.find_shape(self.data, start, self.depth)
        if shape is not None and len(self.rows) + len(shape) <= self.max_rows:
            element_position = (self.data, start, self.base + start, path, self.unit, self.space)
            if self.folds:
                self.rows.append(make_folded_row(shape, *element_position))
                self.max_rows -= len(shape) - 1
            else:
                self.rows += shape.make_rows(*element_position)
            stream.seek(start + shape.size)
            return LazyElement(subcon, self.data, start, context)
        if not shapes.is_learning:
            return self.parse_node(path, subcon._parsereport, stream, context)
        return self._parse_element_and_learn_shape(shapes, path, subcon, stream, context)

    def _parse_element_and_learn_shape(
        self, shapes: ShapeCache, path: str, subcon: Construct, stream: Any, context: Any
    ) -> Any:
        """Parse an element and learn its shape, for later elements with the same layout."""
        start, row_count, error_count = stream.tell(), len(self.rows), len(self.errors)
        recorder = self.recorder = ShapeRecorder(row_count)
        try:
            value = self.parse_node(path, subcon._parsereport, stream, context)
        finally:
            self.recorder = None
        if len(self.errors) == error_count:
            shapes.learn_shape(self.data, start, self.rows[row_count:], self.base, recorder)
        return value

    def parse_nested(self, detail: Construct, content: bytes, start: int, context: Any) -> None:
        """Parse the bytes of a sized field with their own schema; errors in it do not affect later fields."""
        stream = io.BytesIO(content)
        outer, recorder = (self.data, self.base), self.recorder
        self.data, self.base = content, self.base + start
        if recorder is not None:
            recorder.inside += 1
        try:
            detail._parsereport(stream, context, self)
        except StopFieldError:
            pass
        except Exception as error:
            self.add_failed_row(error, f"{self.prefix}unmapped".lstrip("."), stream.tell(), len(content))
            self.record_error_and_continue(error, stream.tell())
        finally:
            self.data, self.base = outer
            if recorder is not None:
                recorder.inside -= 1

    def parse_compressed(
        self, subcon: Construct, codec: Any, name: str, packed: bytes, start: int, context: Any
    ) -> None:
        """Decompress the rest of a field, and parse it in a new address space named after the field."""
        field = self.prefix[:-1]
        packed_path = f"{self.prefix}packed"
        if not self.unpacks:
            self.add_leaf(packed_path, start, start + len(packed), packed)
            return
        try:
            limits = replace(self.limits, max_inflate=max(self.limits.max_inflate - self.inflated, 0))
            location = (self.base + start,) if getattr(codec, "located", False) else ()
            content = bytes(codec(memoryview(packed), limits, *location))
        except (DecompressionError, ValueError, ArithmeticError, RuntimeError) as error:
            finding_id = getattr(error, "finding_id", "compression-error")
            self.add_leaf(packed_path, start, start + len(packed), packed, f"{name}: {describe_error(error)[0]}", False)
            self.errors.append(
                TraceError(packed_path, self.base + start, describe_error(error)[0], finding_id, self.space)
            )
            return
        self.inflated += len(content)
        self.add_leaf(packed_path, start, start + len(packed), packed, f"{name}, {len(content):,} bytes unpacked")
        self.spaces.append(AddressSpace(field, 0, content))
        outer = self.unit, self.space, self.base, self.data
        self.unit, self.space, self.base, self.data = "decompressed", field, 0, content
        try:
            self.parse_nested(subcon, content, 0, context)
            self.depth -= 1
            self._add_rows_after_last_child(field, len(content), "unmapped")
        finally:
            self.depth += 1
            self.unit, self.space, self.base, self.data = outer

    def add_parts(self, parts: Iterable[TracePart], start: int, end: int) -> None:
        """Add the rows of a field that lists its own parts.

        On an error the remaining bytes become one row with its text.

        Raises:
            MalformedError: the parts raise it, make no progress, or are too many.
        """
        open_: list[OpenContainer] = []
        stem, reached = self.prefix[:-1], start
        base, unit, space, outer, rows = self.base, self.unit, self.space, self.depth - 1, self.rows
        innermost, empty_parts, row_limit = -1, 0, self.max_rows
        try:
            for path, level, part_start, part_end, value, meaning in parts:
                if level <= innermost:
                    self._add_rows_of_ended_containers(open_, level, reached, True)
                    innermost = open_[-1][0] if open_ else -1
                path = stem + path if stem else path[1:] if path[:1] == "." else path
                if part_end is None:
                    open_.append((level, len(rows), path, part_start, value, meaning))
                    rows.append(None)
                    innermost = level
                elif part_end > reached:
                    depth, low, high = outer + level, base + part_start, base + part_end
                    row = (path, low, high, value, meaning, unit, space, None, depth, True, True)
                    rows.append(_make_row(FieldRow, row))
                    reached, empty_parts = part_end, 0
                    if len(rows) <= row_limit:
                        continue
                empty_parts += 1
                if len(rows) > row_limit or empty_parts > 2 * self.limits.max_depth + 2:
                    raise MalformedError("too many parts for so few bytes", None, "count-out-of-bounds")
        except Exception as error:
            level, path = (open_[-1][0], open_[-1][2]) if open_ else (0, stem)
            self.depth += level
            self.add_failed_row(error, f"{path}.unmapped".lstrip("."), reached, end)
            self.depth -= level
            reached = max(reached, end)
            raise
        finally:
            self._add_rows_of_ended_containers(open_, 0, reached, self.failing is None)

    def _add_rows_of_ended_containers(self, open_: list[OpenContainer], level: int, end: int, ok: bool) -> None:
        """Add the rows of the containers that end before a part of this level."""
        rows, base, outer, unit, space = self.rows, self.base, self.depth - 1, self.unit, self.space
        while open_ and open_[-1][0] >= level:
            part_level, index, path, start, value, meaning = open_.pop()
            if index == len(rows) - 1:  # a container of no bytes
                del rows[index]
                continue
            low, high = base + start, base + (end if end > start else start)
            row = (path, low, high, value, meaning, unit, space, None, outer + part_level, False, ok)
            rows[index] = _make_row(FieldRow, row)

    def find_row(self, names: list[str], hints: tuple[int, ...] = ()) -> int:
        """Return the index of the row that an expression names, relative to the current structure; -1 = none.

        Args:
            hints: Likely indexes, from the first row or (negative) from the last row.
        """
        stem = self.prefix[:-1]
        while names and names[0] == "_":
            stem, names = stem.rpartition(".")[0], names[1:]
        wanted_path = ".".join([stem, *names] if stem else names)
        rows, size = self.rows, len(self.rows)
        for index in hints:
            if -size <= index < size and (row := rows[index]) is not None and row[0] == wanted_path:
                return index % size
        return next(
            (at for at in range(size - 1, -1, -1) if (row := rows[at]) is not None and row[0] == wanted_path), -1
        )

    def mark_checksum(self, names: list[str], verified: ChecksumResult, hints: tuple[int, ...]) -> tuple[int, ...]:
        """Write the verdict into the row of the stored checksum; return hints for `find_row`."""
        index = self.find_row(names, hints)
        words = describe_checksum(verified, self.base)
        is_wrong = verified.ok is False
        if index >= 0:
            row = self.rows[index]
            marked = (*row[:3], HexInt(verified.stored), words, *row[5:10], row.ok and not is_wrong)
            self.rows[index] = _make_row(FieldRow, marked)
        if is_wrong:
            path, position = (row.path, row.start) if index >= 0 else (self.prefix[:-1], self.base + verified.end)
            message = f"stored {HexInt(verified.stored)!r}, {words.removeprefix('WRONG, ')}"
            self.errors.append(TraceError(path, position, message, "checksum-mismatch", self.space))
        return (index, index - len(self.rows)) if index >= 0 else hints
