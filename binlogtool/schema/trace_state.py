"""State of one annotated parse: the rows so far, the position, the errors."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from construct import Construct, StopFieldError
from msgspec.structs import replace

from binlogtool.formats.fields import MalformedError, Part, Verified
from binlogtool.formats.layouts import CodecError
from binlogtool.limits import Limits
from binlogtool.schema.annotation import FieldRow, HexInt, Space
from binlogtool.schema.trace_shapes import Recorder, Shapes, Unparsed, fold
from binlogtool.schema.trace_words import PLAIN, checksum_words, shown, why

ROW_BYTES = 2048
"""Memory that one row may take, path and value included: `max_memory / ROW_BYTES` rows are kept."""

_row = tuple.__new__

Read = Callable[[Any, Any, Any], Any]
"""A construct's parser: stream, context, path."""

Opened = tuple[int, int, str, int, Any, str]
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


class Abandoned(NamedTuple):
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

    def __init__(self, data: bytes, base: int, limits: Limits, folds: bool = False, unpacks: bool = True) -> None:
        self.rows: list[Any] = []
        self.folds, self.unpacks = folds, unpacks
        self.errors: list[TraceError] = []
        self.spaces = [Space("", base, data)]
        self.data, self.base, self.unit, self.space = data, base, "file", ""
        self.prefix, self.depth = "", 0
        self.limits, self.max_rows = limits, limits.max_memory // ROW_BYTES
        self.bits: int | None = None
        self.flags: tuple[int, dict[str, int]] | None = None
        self.failing: BaseException | None = None
        self.reason: TraceError | None = None
        self.abandoned: Abandoned | None = None
        self.recorder: Recorder | None = None
        self.inflated = 0

    def __str__(self) -> str:
        return self.prefix[:-1]

    def __add__(self, text: str) -> str:
        """Return a plain string: a construct class that extends its path leaves the trace, so nothing below it has
        rows.
        """
        return str(self) + text

    def leaf(self, path: str, start: int, end: int, value: Any, meaning: str = "", ok: bool = True) -> None:
        """Add the row of a field without children; `[start, end)` are stream positions (bits inside bit fields)."""
        if value.__class__ not in PLAIN:
            value, said = shown(value, self.flags)
            meaning = meaning or said
        self._add(len(self.rows), path, (start, end), value, meaning, True, ok)

    def _add(self, at: int, path: str, span: tuple[int, int], value: Any, meaning: str, leaf: bool, ok: bool) -> None:
        (start, end), base, bits = span, self.base, None
        if self.bits is not None:
            bits = (start % 8, end - start + start % 8)
            start, end = self.bits + start // 8, self.bits + (end + 7) // 8
        place = (self.unit, self.space, bits, self.depth, leaf, ok)
        made = _row(FieldRow, (path, base + start, base + end, value, meaning, *place))
        if at == len(self.rows):
            self.rows.append(made)
        else:
            self.rows[at] = made

    def node(self, path: str, read: Read, stream: Any, context: Any, filler: str = "unmapped") -> Any:
        """Parse a field that may have children: its row, then theirs. Bytes that no child covers become `filler`."""
        rows, start, outer, depth = self.rows, stream.tell(), self.prefix, self.depth
        if depth > self.limits.max_depth:
            raise MalformedError(f"nested more than {self.limits.max_depth} deep", None, "nesting-too-deep")
        at = len(rows)
        rows.append(None)
        self.prefix, self.depth = path + ".", depth + 1
        try:
            value = read(stream, context, self)
        except Exception as error:
            self.prefix, self.depth = outer, depth
            stopped = isinstance(error, StopFieldError)
            self._close(at, path, start, stream.tell(), None, None if stopped else error, filler)
            raise
        self.prefix, self.depth = outer, depth
        end, base, last = stream.tell(), self.base, rows[-1]
        tiled = last is not None and last[2] == base + end and last[6] == self.space and self.bits is None
        if tiled and not isinstance(value, str | int):
            span = (path, base + start, base + end, None, "", self.unit, self.space, None, depth, False, True)
            rows[at] = _row(FieldRow, span)
        else:
            self._close(at, path, start, end, value, None, filler)
        return value

    def _close(
        self, at: int, path: str, start: int, end: int, value: Any, error: BaseException | None, filler: str
    ) -> None:
        rows = self.rows
        if len(rows) == at + 1:
            del rows[at]
            if error is not None:
                self.fail(error, path, start, end)
            elif end > start:
                self.leaf(path, start, end, value)
            return
        meaning = ""
        if error is not None and self.failing is not error:
            meaning = self._blame(error, path, start)
        if self.bits is None:
            self._fill_tail(path, end, filler)
        value = shown(value, self.flags)[0] if isinstance(value, str | int) else None  # the children show the rest
        self._add(at, path, (start, max(end, start)), value, meaning, False, error is None)

    def _fill_tail(self, path: str, end: int, filler: str) -> None:
        """Add rows for bytes after the last child: the element that was given up there, if any, and the rest as
        `filler`.
        """
        reached = self._reached()
        if reached < end and self.abandoned is not None and self.abandoned[:2] == (self.space, self.base + reached):
            self._restore(self.abandoned)
            reached = self._reached()
        if reached < end:
            self.depth += 1
            self.leaf(f"{path}.{filler}" if path else filler, reached, end, self.data[reached:end])
            self.depth -= 1

    def _restore(self, given_up: Abandoned) -> None:
        """Add the rows of the element that was given up: nothing else took its bytes, so it is what is wrong here."""
        self.abandoned = None
        mark, end = len(self.rows), max((row.end for row in given_up.rows), default=given_up.position)
        depth = min((row.depth for row in given_up.rows), default=0)
        self.rows.extend(given_up.rows)
        self.errors.append(given_up.error)
        for at in range(mark - 1, -1, -1):
            row = self.rows[at]
            if row is None or depth == 0 or row.space != self.space:
                return
            if row.depth < depth and not row.leaf:
                depth = row.depth
                self.rows[at] = row._replace(end=max(end, row.end), ok=False)

    def _reached(self) -> int:
        """Return the stream position after the last row of this space."""
        for row in reversed(self.rows):
            if row is not None and row.space == self.space and row.unit == self.unit:
                return int(row.end) - self.base
        return 0

    def fail(self, error: BaseException, path: str, start: int, end: int) -> None:
        """Add a row with the error's text for the innermost field that ends with an exception."""
        if self.failing is error:
            return
        data = self.data[start:end] if self.bits is None else None
        self.leaf(path, start, max(start, end), data, self._blame(error, path, start), False)

    def _blame(self, error: BaseException, path: str, position: int) -> str:
        self.failing = error
        message, finding_id = why(error)
        at = self.base + (position if self.bits is None else self.bits + position // 8)
        self.reason = TraceError(path, at, message, finding_id, self.space)
        return message

    def forgive(self, error: BaseException, position: int) -> None:
        """Keep the error of a field whose content is broken; the parse continues after the field."""
        if self.failing is not error or self.reason is None:
            self._blame(error, self.prefix[:-1], position)
        assert self.reason is not None
        self.errors.append(self.reason)
        self.failing = self.reason = None

    def give_up(self, error: BaseException, mark: int, position: int) -> None:
        """Remove and keep the rows of an optional element that did not parse."""
        if self.recorder is not None:
            self.recorder.spoiled = True
        if self.failing is not error or self.reason is None:
            self._blame(error, self.prefix[:-1], position)
        assert self.reason is not None
        cut = [row for row in self.rows[mark:] if row is not None]
        self.abandoned = Abandoned(self.space, self.base + position, cut, self.reason)
        del self.rows[mark:]
        self.failing = self.reason = None

    def element(self, index: int, subcon: Construct, stream: Any, context: Any) -> Any:
        """Parse element `index` of an array."""
        if len(self.rows) > self.max_rows:
            raise MalformedError(f"more than {self.max_rows:,} fields", None, "count-out-of-bounds")
        path, shapes = f"{self.prefix[:-1]}[{index}]", getattr(subcon, "shapes", None)
        if shapes is None or self.bits is not None or self.recorder is not None:
            return self.node(path, subcon._parsereport, stream, context)
        start = stream.tell()
        shape = shapes.of(self.data, start, self.depth)
        if shape is not None and len(self.rows) + len(shape) <= self.max_rows:
            place = (self.data, start, self.base + start, path, self.unit, self.space)
            if self.folds:
                self.rows.append(fold(shape, *place))
                self.max_rows -= len(shape) - 1
            else:
                self.rows += shape.rows(*place)
            stream.seek(start + shape.size)
            return Unparsed(subcon, self.data, start, context)
        if not shapes.learning:
            return self.node(path, subcon._parsereport, stream, context)
        return self._learned(shapes, path, subcon, stream, context)

    def _learned(self, shapes: Shapes, path: str, subcon: Construct, stream: Any, context: Any) -> Any:
        """Parse an element and learn its shape, for elements that are laid out like it."""
        start, mark, wrong = stream.tell(), len(self.rows), len(self.errors)
        recorder = self.recorder = Recorder(mark)
        try:
            value = self.node(path, subcon._parsereport, stream, context)
        finally:
            self.recorder = None
        if len(self.errors) == wrong:
            shapes.learn(self.data, start, self.rows[mark:], self.base, recorder)
        return value

    def expand(self, detail: Construct, content: bytes, start: int, context: Any) -> None:
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
            self.fail(error, f"{self.prefix}unmapped".lstrip("."), stream.tell(), len(content))
            self.forgive(error, stream.tell())
        finally:
            self.data, self.base = outer
            if recorder is not None:
                recorder.inside -= 1

    def unpack(self, subcon: Construct, codec: Any, name: str, packed: bytes, start: int, context: Any) -> None:
        """Decompress the rest of a field and parse it in a new address space, which is named after the field."""
        field = self.prefix[:-1]
        here = f"{self.prefix}packed"
        if not self.unpacks:
            self.leaf(here, start, start + len(packed), packed)
            return
        try:
            limits = replace(self.limits, max_inflate=max(self.limits.max_inflate - self.inflated, 0))
            place = (self.base + start,) if getattr(codec, "located", False) else ()
            content = bytes(codec(memoryview(packed), limits, *place))
        except (CodecError, ValueError, ArithmeticError, RuntimeError) as error:
            finding_id = getattr(error, "finding_id", "compression-error")
            self.leaf(here, start, start + len(packed), packed, f"{name}: {why(error)[0]}", False)
            self.errors.append(TraceError(here, self.base + start, why(error)[0], finding_id, self.space))
            return
        self.inflated += len(content)
        self.leaf(here, start, start + len(packed), packed, f"{name}, {len(content):,} bytes unpacked")
        self.spaces.append(Space(field, 0, content))
        outer = self.unit, self.space, self.base, self.data
        self.unit, self.space, self.base, self.data = "decompressed", field, 0, content
        try:
            self.expand(subcon, content, 0, context)
            self.depth -= 1
            self._fill_tail(field, len(content), "unmapped")
        finally:
            self.depth += 1
            self.unit, self.space, self.base, self.data = outer

    def parts(self, parts: Iterable[Part], start: int, end: int) -> None:
        """Add the rows of a field that names its own parts; on an error the remaining bytes become one row with its
        text.

        Raises:
            MalformedError: from the parts, or because they make no progress or are too many.
        """
        open_: list[Opened] = []
        stem, reached = self.prefix[:-1], start
        base, unit, space, outer, rows = self.base, self.unit, self.space, self.depth - 1, self.rows
        innermost, still, most = -1, 0, self.max_rows
        try:
            for path, level, first, last, value, meaning in parts:
                if level <= innermost:
                    self._close_parts(open_, level, reached, True)
                    innermost = open_[-1][0] if open_ else -1
                path = stem + path if stem else path[1:] if path[:1] == "." else path
                if last is None:
                    open_.append((level, len(rows), path, first, value, meaning))
                    rows.append(None)
                    innermost = level
                elif last > reached:
                    depth, low, high = outer + level, base + first, base + last
                    made = (path, low, high, value, meaning, unit, space, None, depth, True, True)
                    rows.append(_row(FieldRow, made))
                    reached, still = last, 0
                    if len(rows) <= most:
                        continue
                still += 1
                if len(rows) > most or still > 2 * self.limits.max_depth + 2:
                    raise MalformedError("too many parts for so few bytes", None, "count-out-of-bounds")
        except Exception as error:
            level, path = (open_[-1][0], open_[-1][2]) if open_ else (0, stem)
            self.depth += level
            self.fail(error, f"{path}.unmapped".lstrip("."), reached, end)
            self.depth -= level
            reached = max(reached, end)
            raise
        finally:
            self._close_parts(open_, 0, reached, self.failing is None)

    def _close_parts(self, open_: list[Opened], level: int, end: int, ok: bool) -> None:
        """Add the rows of the containers that end before a part of this level."""
        rows, base, outer, unit, space = self.rows, self.base, self.depth - 1, self.unit, self.space
        while open_ and open_[-1][0] >= level:
            own, at, path, start, value, meaning = open_.pop()
            if at == len(rows) - 1:  # a container of no bytes
                del rows[at]
                continue
            low, high = base + start, base + (end if end > start else start)
            made = (path, low, high, value, meaning, unit, space, None, outer + own, False, ok)
            rows[at] = _row(FieldRow, made)

    def find(self, names: list[str], near: tuple[int, ...] = ()) -> int:
        """Return the index of the row that an expression names, seen from the current structure; -1 = there is none.

        Args:
            hints: Likely indexes, from the first row or (negative) from the last one.
        """
        stem = self.prefix[:-1]
        while names and names[0] == "_":
            stem, names = stem.rpartition(".")[0], names[1:]
        wanted = ".".join([stem, *names] if stem else names)
        rows, size = self.rows, len(self.rows)
        for at in near:
            if -size <= at < size and (row := rows[at]) is not None and row[0] == wanted:
                return at % size
        return next((at for at in range(size - 1, -1, -1) if (row := rows[at]) is not None and row[0] == wanted), -1)

    def judge(self, names: list[str], verified: Verified, near: tuple[int, ...]) -> tuple[int, ...]:
        """Write the verdict into the row of the stored checksum; take and return hints for that row (see
        `find_row`).
        """
        at = self.find(names, near)
        words = checksum_words(verified, self.base)
        wrong = verified.ok is False
        if at >= 0:
            row = self.rows[at]
            made = (*row[:3], HexInt(verified.stored), words, *row[5:10], row.ok and not wrong)
            self.rows[at] = _row(FieldRow, made)
        if wrong:
            path, position = (row.path, row.start) if at >= 0 else (self.prefix[:-1], self.base + verified.end)
            message = f"stored {HexInt(verified.stored)!r}, {words.removeprefix('WRONG, ')}"
            self.errors.append(TraceError(path, position, message, "checksum-mismatch", self.space))
        return (at, at - len(self.rows)) if at >= 0 else near
