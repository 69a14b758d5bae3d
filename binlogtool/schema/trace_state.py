"""State of one annotated parse: the rows so far, the position, the errors."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from construct import Construct, StopFieldError
from msgspec.structs import replace

from binlogtool.formats.fields import ChecksumResult, MalformedError, TracePart
from binlogtool.formats.layouts import DecompressionError
from binlogtool.limits import Limits
from binlogtool.schema.annotation import AddressSpace, FieldRow, HexInt
from binlogtool.schema.trace_shapes import LazyElement, ShapeCache, ShapeRecorder, make_folded_row
from binlogtool.schema.trace_words import PLAIN_TYPES, describe_checksum, describe_error, describe_value

ROW_BYTES = 2048
"""Memory that one row may take, path and value included: `max_memory / ROW_BYTES` rows are kept."""

_make_row = tuple.__new__

ConstructParser = Callable[[Any, Any, Any], Any]
"""A construct's parser: stream, context, path."""

OpenContainer = tuple[int, int, str, int, Any, str]
"""A container whose end is not known yet: level, index of its row, path, start, value, meaning."""


class TraceError(NamedTuple):
    """Why a record could not be parsed, or that its checksum is wrong.

    Attributes:
        position: Absolute, in the space `space`.
    """

    path: str
    position: int
    message: str
    finding_id: str
    space: str = ""


class AbandonedElement(NamedTuple):
    """The rows of the last element that an open-ended range or an optional field gave up, and why."""

    space: str
    position: int
    rows: list[Any]
    error: TraceError


class Trace:
    """The state of an annotated parse; it takes the place of construct's `path` argument, so that it reaches every
    field.

    Positions are those of the stream (and index `data`); rows get `base` added. `prefix` ends in a dot.

    Args:
        fold_rows: Elements that are laid out like an earlier one become one row (`trace_shapes.FoldedRow`).
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
        """Return a plain string: a construct class that extends its path leaves the trace, so nothing below it has
        rows.
        """
        return str(self) + text

    def add_leaf(self, path: str, start: int, end: int, value: Any, meaning: str = "", ok: bool = True) -> None:
        """Add the row of a field without children; `[start, end)` are stream positions (bits inside bit fields)."""
        if value.__class__ not in PLAIN_TYPES:
            value, decoded_meaning = describe_value(value, self.flags)
            meaning = meaning or decoded_meaning
        self._add_row(len(self.rows), path, (start, end), value, meaning, True, ok)

    def _add_row(
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
        """Parse a field that may have children: its row, then theirs. Bytes that no child covers become `filler`."""
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
            self._close_node(index, path, start, stream.tell(), None, None if stopped else error, filler)
            raise
        self.prefix, self.depth = outer, depth
        end, base, last = stream.tell(), self.base, rows[-1]
        tiled = last is not None and last[2] == base + end and last[6] == self.space and self.bits is None
        if tiled and not isinstance(value, str | int):
            span = (path, base + start, base + end, None, "", self.unit, self.space, None, depth, False, True)
            rows[index] = _make_row(FieldRow, span)
        else:
            self._close_node(index, path, start, end, value, None, filler)
        return value

    def _close_node(
        self, index: int, path: str, start: int, end: int, value: Any, error: BaseException | None, filler: str
    ) -> None:
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
            self._fill_tail(path, end, filler)
        value = (
            describe_value(value, self.flags)[0] if isinstance(value, str | int) else None
        )  # the children show the rest
        self._add_row(index, path, (start, max(end, start)), value, meaning, False, error is None)

    def _fill_tail(self, path: str, end: int, filler: str) -> None:
        """Add rows for bytes after the last child: the element that was given up there, if any, and the rest as
        `filler`.
        """
        reached = self._find_last_end()
        if reached < end and self.abandoned is not None and self.abandoned[:2] == (self.space, self.base + reached):
            self._restore_abandoned(self.abandoned)
            reached = self._find_last_end()
        if reached < end:
            self.depth += 1
            self.add_leaf(f"{path}.{filler}" if path else filler, reached, end, self.data[reached:end])
            self.depth -= 1

    def _restore_abandoned(self, abandoned: AbandonedElement) -> None:
        """Add the rows of the element that was given up: nothing else took its bytes, so it is what is wrong here."""
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
        """Return the stream position after the last row of this space."""
        for row in reversed(self.rows):
            if row is not None and row.space == self.space and row.unit == self.unit:
                return int(row.end) - self.base
        return 0

    def add_failed_row(self, error: BaseException, path: str, start: int, end: int) -> None:
        """Add a row with the error's text for the innermost field that ends with an exception."""
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

    def keep_error(self, error: BaseException, position: int) -> None:
        """Keep the error of a field whose content is broken; the parse continues after the field."""
        if self.failing is not error or self.reason is None:
            self._note_error(error, self.prefix[:-1], position)
        assert self.reason is not None
        self.errors.append(self.reason)
        self.failing = self.reason = None

    def abandon_element(self, error: BaseException, row_count: int, position: int) -> None:
        """Remove and keep the rows of an optional element that did not parse."""
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
        return self._parse_and_learn(shapes, path, subcon, stream, context)

    def _parse_and_learn(self, shapes: ShapeCache, path: str, subcon: Construct, stream: Any, context: Any) -> Any:
        """Parse an element and learn its shape, for elements that are laid out like it."""
        start, row_count, error_count = stream.tell(), len(self.rows), len(self.errors)
        recorder = self.recorder = ShapeRecorder(row_count)
        try:
            value = self.parse_node(path, subcon._parsereport, stream, context)
        finally:
            self.recorder = None
        if len(self.errors) == error_count:
            shapes.learn(self.data, start, self.rows[row_count:], self.base, recorder)
        return value

    def parse_nested(self, detail: Construct, content: bytes, start: int, context: Any) -> None:
        """Parse the bytes of a sized field by a schema of their own; errors in it do not stop the fields after it."""
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
            self.keep_error(error, stream.tell())
        finally:
            self.data, self.base = outer
            if recorder is not None:
                recorder.inside -= 1

    def parse_compressed(
        self, subcon: Construct, codec: Any, name: str, packed: bytes, start: int, context: Any
    ) -> None:
        """Decompress the rest of a field and parse it in a new address space, which is named after the field."""
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
            self._fill_tail(field, len(content), "unmapped")
        finally:
            self.depth += 1
            self.unit, self.space, self.base, self.data = outer

    def add_parts(self, parts: Iterable[TracePart], start: int, end: int) -> None:
        """Add the rows of a field that names its own parts; on an error the remaining bytes become one row with its
        text.

        Raises:
            MalformedError: from the parts, or because they make no progress or are too many.
        """
        open_: list[OpenContainer] = []
        stem, reached = self.prefix[:-1], start
        base, unit, space, outer, rows = self.base, self.unit, self.space, self.depth - 1, self.rows
        innermost, empty_parts, row_limit = -1, 0, self.max_rows
        try:
            for path, level, part_start, part_end, value, meaning in parts:
                if level <= innermost:
                    self._close_parts(open_, level, reached, True)
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
            self._close_parts(open_, 0, reached, self.failing is None)

    def _close_parts(self, open_: list[OpenContainer], level: int, end: int, ok: bool) -> None:
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
        """Return the index of the row that an expression names, seen from the current structure; -1 = there is none.

        Args:
            hints: Likely indexes, from the first row or (negative) from the last one.
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
        """Write the verdict into the row of the stored checksum; take and return hints for that row (see
        `find_row`).
        """
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
