"""Construct classes that record one row per field while they parse.

Without a `Trace`, each class parses like the class that it replaces.
"""

from __future__ import annotations

import io
import operator
import re
import struct
from itertools import accumulate
from typing import Any

from construct import (
    Array,
    Check,
    CheckError,
    Construct,
    Container,
    ExplicitError,
    FlagsEnum,
    GreedyRange,
    IfThenElse,
    ListContainer,
    Peek,
    Pointer,
    RangeError,
    Renamed,
    RepeatUntil,
    Select,
    SelectError,
    StopFieldError,
    StringEncoded,
    Struct,
    Subconstruct,
    evaluate,
)
from construct.expr import BinExpr, Path, UniExpr

from binlogtool.format_api.schema_fields import (
    ChecksumResult,
    CompressedSchema,
    CrcCheck,
    Magic,
    MalformedError,
    NestedSchema,
)
from binlogtool.schema.annotated_parse_state import (
    PLAIN_TYPES,
    NamedNumber,
    RecordingContext,
    Trace,
    find_field_paths,
    format_missing_bytes,
)
from binlogtool.schema.annotation_types import FieldRow, HexInt

# --- Construct classes that add rows while they parse ---

_make_row = tuple.__new__

MAX_CACHED_FLAGS = 64
"""Maximum number of flag values that are cached with their decoded names."""


class TracedNode(Renamed):  # type: ignore[misc]
    """Named field that may have children."""

    filler = "unmapped"
    read: Any

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if path.__class__ is not Trace:
            return self.read(stream, context, path)
        return path.parse_node(path.prefix + self.name, self.read, stream, context, self.filler)


class TracedLeaf(Renamed):  # type: ignore[misc]
    """Named field without children. read: the parse function of its subcon. local: it reads only its own bytes."""

    read: Any
    local = False

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if path.__class__ is not Trace:
            return self.read(stream, context, path)
        if path.recorder is not None and not (self.local or path.recorder.inside):
            path.recorder.spoiled = True
        start = stream.tell()
        try:
            value = self.read(stream, context, path)
        except Exception as error:
            path.add_failed_row(error, path.prefix + self.name, start, stream.tell())
            raise
        end = stream.tell()
        if end > start:
            if (
                path.bits is None and value.__class__ in PLAIN_TYPES
            ):  # fast path for most fields; `Trace.add_leaf` is the general one
                base, name = path.base, path.prefix + self.name
                made = (name, base + start, base + end, value, "", path.unit, path.space, None, path.depth, True, True)
                path.rows.append(_make_row(FieldRow, made))
            else:
                path.add_leaf(path.prefix + self.name, start, end, value)
        return value


class TracedByteless(TracedLeaf):
    """Named field without bytes, which has a row only when it fails."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        try:
            return self.read(stream, context, path)
        except StopFieldError:
            raise
        except Exception as error:
            if path.__class__ is Trace:
                path.add_failed_row(error, path.prefix + self.name, stream.tell(), stream.tell())
            raise


class TracedUnnamed(Subconstruct):  # type: ignore[misc]
    """Field without a name: one row called `label` if its parts add no rows."""

    label: str

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if path.__class__ is not Trace:
            return self.subcon._parsereport(stream, context, path)
        row_count, start = len(path.rows), stream.tell()
        try:
            value = self.subcon._parsereport(stream, context, path)
        except StopFieldError:
            raise
        except Exception as error:
            if len(path.rows) == row_count:
                path.add_failed_row(error, path.prefix + self.label, start, stream.tell())
            raise
        end = stream.tell()
        if end > start and len(path.rows) == row_count:
            path.add_leaf(path.prefix + self.label, start, end, value if value is not None else path.data[start:end])
        return value


class TracedString(StringEncoded):  # type: ignore[misc]
    """Text with its own length field; its row shows text, not bytes."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        text = super()._parse(stream, context, path)
        if path.__class__ is Trace and path.rows and path.rows[-1] is not None:
            row = path.rows[-1]
            if row.path == f"{path.prefix}value":
                path.rows[-1] = row._replace(value=text)
        return text


class UntracedPeek(Peek):  # type: ignore[misc]
    """Look-ahead, which adds no rows."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return super()._parse(stream, context, str(path))


class UntracedPointer(Pointer):  # type: ignore[misc]
    """Field at another position of the stream; it adds no rows, because they would not be in file order."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return super()._parse(stream, context, str(path))


class TracedSelect(Select):  # type: ignore[misc]
    """First alternative that parses; the rows of failed alternatives are removed."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        traced = path.__class__ is Trace
        mark = len(path.rows) if traced else 0
        start = stream.tell()
        for subcon in self.subcons:
            try:
                return subcon._parsereport(stream, context, path)
            except ExplicitError:
                raise
            except Exception as error:
                stream.seek(start)
                if traced:
                    path.abandon_element(error, mark, start)
        raise SelectError("none of the alternatives fits")


class TracedBits(Subconstruct):  # type: ignore[misc]
    """Bit fields: `subcon` reads a stream of bits, of `size` bytes."""

    size: int
    decode: Any

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        start = stream.tell()
        data = stream.read(self.size)
        if len(data) != self.size:
            raise MalformedError(format_missing_bytes(self.size, len(data)), None, "length-out-of-bounds")
        if path.__class__ is not Trace:
            return self.subcon._parsereport(io.BytesIO(self.decode(data)), context, path)
        outer, path.bits = path.bits, start
        try:
            return self.subcon._parsereport(io.BytesIO(self.decode(data)), context, path)
        finally:
            path.bits = outer


class UntracedField(Subconstruct):  # type: ignore[misc]
    """Field whose content has no positions in the file (swapped, restreamed, computed), so it has no child rows."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return self.subcon._parsereport(stream, context, str(path))


class TracedFlags(FlagsEnum):  # type: ignore[misc]
    """Flags that keep their number. seen: cache of values with their decoded names."""

    seen: dict[int, Any]

    def _decode(self, obj: Any, context: Any, path: Any) -> Any:
        if path.__class__ is not Trace or not isinstance(obj, int):
            return super()._decode(obj, context, path)
        path.flags = obj, self.flags
        decoded = self.seen.get(obj)
        if decoded is None:
            if len(self.seen) >= MAX_CACHED_FLAGS:
                self.seen.clear()
            decoded = self.seen[obj] = super()._decode(obj, context, path)
        return decoded


class TracedBranch(IfThenElse):  # type: ignore[misc]
    """Choice between two parts. reads: the parse functions for False and for True."""

    reads: tuple[Any, Any]

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        test = self.condfunc
        return self.reads[bool(test(context) if callable(test) else test)](stream, context, path)


class TracedNamedMagic(Magic):
    """Magic whose value has a name."""

    known: dict[int, NamedNumber]

    def _parse(self, stream: Any, context: Any, path: Any) -> int:
        return self.known[super()._parse(stream, context, path)]


def make_named_values(names: dict[int, str]) -> dict[int, NamedNumber]:
    """Return number -> the same number with its name, for the values of a magic."""
    named_values = {value: NamedNumber(value) for value in names}
    for value, label in names.items():
        named_values[value].label, named_values[value].shown = label, HexInt(value) if value >> 8 else value
    return named_values


class TracedCrcCheck(CrcCheck):
    """Checksum check that writes its verdict into the row of the stored value.

    Attributes:
        stored_names: The path to the stored value.
        row_hints: Last index of that row, counted from the first and from the last row.
    """

    stored_names: list[str]
    row_hints: tuple[int, ...] = ()

    def _parse(self, stream: Any, context: Any, path: Any) -> ChecksumResult:
        if path.__class__ is not Trace:
            return super()._parse(stream, context, path)
        start, end = evaluate(self.start, context), evaluate(self.end, context)
        if not 0 <= start <= end <= len(path.data):
            raise MalformedError(
                format_missing_bytes(end - start, max(len(path.data) - start, 0)), None, "length-out-of-bounds"
            )
        verified = self.compare_with_stored(context, path.data[start:end], start, end)
        self.row_hints = path.mark_checksum(self.stored_names, verified, self.row_hints)
        return verified


class TracedCheck(Check):  # type: ignore[misc]
    """Check that marks the field on which it fails. said: text of the condition. about: the fields in it."""

    said: str
    about: list[list[str]]

    def _parse(self, stream: Any, context: Any, path: Any) -> None:
        if evaluate(self.func, context):
            return
        error = CheckError(f"must hold: {self.said}")
        if path.__class__ is Trace:
            blamed = next((at for names in self.about if (at := path.find_row(names)) >= 0), -1)
            if blamed >= 0:
                row = path.rows[blamed]
                message = path._note_error(error, row.path, row.start - path.base)
                path.rows[blamed] = row._replace(ok=False, meaning=message)
        raise error


class TracedParts(Subconstruct):  # type: ignore[misc]
    """Field type that lists its own parts (`Traceable`)."""

    def __init__(self, subcon: Any) -> None:
        super().__init__(subcon)
        self.fills_stream = getattr(subcon, "fills_stream", False)
        self.parts = getattr(subcon, "trace_plain_parts", subcon.trace_rows)

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if path.__class__ is not Trace:
            return self.subcon._parsereport(stream, context, path)
        start, parts = stream.tell(), self.parts
        if self.fills_stream:
            end = stream.seek(0, 2)
            path.add_parts(parts(path.data, start, end, path.limits), start, end)
            return None
        try:
            value = self.subcon._parsereport(stream, context, path)
        except Exception:
            end = stream.seek(0, 2)
            path.add_parts(parts(path.data, start, end, path.limits), start, end)
            raise
        end = stream.tell()
        try:
            path.add_parts(parts(path.data, start, end, path.limits), start, end)
        except Exception as error:
            path.record_error_and_continue(error, start)
        return value


class TracedNested(NestedSchema):
    """Sized field: its bytes are read (`read` adds no rows), then parsed with their own schema."""

    read: Any

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        value = self.read(stream, context, path)
        if path.__class__ is Trace and isinstance(value, bytes) and value:
            path.parse_nested(self.detail, value, stream.tell() - len(value), context)
        return value


class TracedCompressed(CompressedSchema):
    """Compressed bytes: their row, then the rows of the decompressed bytes in a new address space."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        start = stream.tell()
        packed = stream.read()
        if path.__class__ is Trace and packed:
            path.parse_compressed(self.subcon, self.codec, self.codec_name, packed, start, context)
        return packed


# --- Arrays that add rows while they parse ---

MAX_EMPTY_ELEMENTS = 1024
"""Maximum number of successive elements without bytes in an array."""


def _parse_element(subcon: Construct, index: int, stream: Any, context: Any, path: Any) -> Any:
    context._build_index = index
    if path.__class__ is Trace:
        return path.parse_element(index, subcon, stream, context)
    return subcon._parsereport(stream, context, path)


class TracedArray(Array):  # type: ignore[misc]
    """Counted array; the number of successive elements without bytes is limited."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        count = evaluate(self.count, context)
        if not count >= 0:
            raise RangeError(f"invalid count {count}")
        values, empty_elements = ListContainer(), 0
        for index in range(count):
            element_start = stream.tell()
            value = _parse_element(self.subcon, index, stream, context, path)
            if not self.discard:
                values.append(value)
            empty_elements = empty_elements + 1 if stream.tell() == element_start else 0
            if empty_elements > MAX_EMPTY_ELEMENTS:
                raise MalformedError(f"{count:,} elements without bytes", None, "count-out-of-bounds")
        return values


class TracedRepeatUntil(RepeatUntil):  # type: ignore[misc]
    """Array that ends with a marked element; each element must have bytes."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        values, index = ListContainer(), 0
        while True:
            element_start = stream.tell()
            value = _parse_element(self.subcon, index, stream, context, path)
            values.append(value)
            if self.predicate(value, values, context) if callable(self.predicate) else self.predicate:
                return values
            if stream.tell() == element_start:
                raise MalformedError("an element takes no bytes", None, "count-out-of-bounds")
            index += 1


class TracedGreedyRange(GreedyRange):  # type: ignore[misc]
    """Array of as many elements as can be parsed; each element must have bytes."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        values, index, row_count = ListContainer(), 0, 0
        is_traced = path.__class__ is Trace
        if (
            is_traced and path.recorder is not None and not path.recorder.inside
        ):  # reads to the end of the stream, wherever that is
            path.recorder.spoiled = True
        while _has_bytes_left(stream):
            element_start = stream.tell()
            if is_traced:
                row_count = len(path.rows)
            try:
                value = _parse_element(self.subcon, index, stream, context, path)
            except (StopFieldError, ExplicitError) as stop:
                if isinstance(stop, ExplicitError):
                    raise
                break
            except Exception as error:
                stream.seek(element_start)
                if is_traced:
                    path.abandon_element(error, row_count, element_start)
                break
            if stream.tell() == element_start:
                break
            values.append(value)
            index += 1
        return values


def _has_bytes_left(stream: Any) -> bool:
    position = stream.tell()
    more = bool(stream.read(1))
    stream.seek(position)
    return more


# --- Traced numbers of a fixed layout ---


class TracedNumber(TracedLeaf):
    """Named number of a fixed layout."""

    unpack: Any
    size: int
    code: str
    """Format character of `struct`, without the byte order; "" if the number is not little-endian."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if path.__class__ is not Trace or path.bits is not None:
            return super()._parse(stream, context, path)
        start = stream.tell()
        data = stream.read(self.size)
        if len(data) != self.size:
            stream.seek(start)
            return super()._parse(stream, context, path)
        (value,) = self.unpack(data)
        if path.recorder is not None and self.code:
            path.recorder.free.append((len(path.rows), self.code))
        first, name = path.base + start, path.prefix + self.name
        made = (name, first, first + self.size, value, "", path.unit, path.space, None, path.depth, True, True)
        path.rows.append(_make_row(FieldRow, made))
        return value


class TracedNumberRun:
    """Neighbouring numbers of the same byte order, read together."""

    def __init__(self, members: list[TracedNumber], layout: struct.Struct) -> None:
        self._members, self._layout = members, layout
        ends = tuple(accumulate(member.size for member in members))
        self._codes = [member.code for member in members] if all(member.code for member in members) else []
        self._places = tuple(zip((member.name for member in members), (0, *ends), ends, strict=False))

    def __call__(self, stream: Any, context: Any, path: Any) -> Any:
        """Return the values in order; if bytes are missing, raise the error of the first number that does not fit."""
        start, size = stream.tell(), self._layout.size
        data = stream.read(size) if path.__class__ is Trace and path.bits is None else b""
        if len(data) != size:
            stream.seek(start)
            return [member._parse(stream, context, path) for member in self._members]
        values = self._layout.unpack(data)
        if path.recorder is not None and self._codes:
            path.recorder.free += enumerate(self._codes, len(path.rows))
        at, stem, unit, space, depth = path.base + start, path.prefix, path.unit, path.space, path.depth
        path.rows += [
            _make_row(FieldRow, (stem + name, at + first, at + last, value, "", unit, space, None, depth, True, True))
            for (name, first, last), value in zip(self._places, values, strict=True)
        ]
        return values


class TracedMagic(TracedNumber):
    """Named magic of a fixed layout. known: number -> the same number with its name."""

    known: dict[int, NamedNumber]

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if path.__class__ is Trace and path.bits is None:
            start = stream.tell()
            data = stream.read(self.size)
            value = self.known.get(self.unpack(data)[0]) if len(data) == self.size else None
            if value is not None:
                first, name = path.base + start, path.prefix + self.name
                span = (name, first, first + self.size, value.shown, value.label)
                path.rows.append(_make_row(FieldRow, (*span, path.unit, path.space, None, path.depth, True, True)))
                return value
            stream.seek(start)
        return TracedLeaf._parse(self, stream, context, path)


# --- Fast versions of what an annotated parse uses in every record ---

_PLAIN_PATH = re.compile(r"this(\['\w+'\])+")


def compile_this_expression(expression: Any) -> Any:
    """Return a plain function for a `this` expression; return anything else unchanged."""
    match expression:
        case Path() if _PLAIN_PATH.fullmatch(repr(expression)):
            return _compile_path(*find_field_paths(expression)[0])
        case BinExpr():
            return _compile_binary(
                expression.op, compile_this_expression(expression.lhs), compile_this_expression(expression.rhs)
            )
        case UniExpr() if callable(operand := compile_this_expression(expression.operand)):
            op = expression.op
            return lambda this: op(operand(this))
    return expression


def _compile_path(first: str, *names: str) -> Any:
    if not names:
        return operator.itemgetter(first)
    if len(names) == 1:
        (second,) = names
        return lambda this: this[first][second]
    inner = _compile_path(*names)
    return lambda this: inner(this[first])


def _compile_binary(op: Any, left_operand: Any, right_operand: Any) -> Any:
    if not callable(left_operand):
        return lambda this: op(left_operand, right_operand(this) if callable(right_operand) else right_operand)
    if not callable(right_operand):
        return lambda this: op(left_operand(this), right_operand)
    return lambda this: op(left_operand(this), right_operand(this))


class FastContext(dict[Any, Any]):
    """Context for the expressions of a structure: like a `Container`, but without its slow tracking of the order."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    __setattr__ = dict.__setitem__


class TracedStruct(Struct):  # type: ignore[misc]
    """Structure that adds the rows of its members.

    Attributes:
        steps: Name and parse function of each member, or names of several members that one function parses.
    """

    steps: tuple[tuple[str | tuple[str, ...] | None, Any], ...]

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        values, get = Container(_io=stream), dict.get
        recorder = getattr(path, "recorder", None)
        inner: Any = (FastContext if recorder is None else RecordingContext)(
            _=context, _params=get(context, "_params"), _root=None, _parsing=get(context, "_parsing"),
            _building=get(context, "_building"), _sizing=get(context, "_sizing"), _subcons=self._subcons, _io=stream,
            _index=get(context, "_index"),
        )  # fmt: skip
        if recorder is not None:
            inner.recorder, inner.stem = recorder, path.prefix
        inner["_root"] = get(context, "_root", inner)
        try:
            for name, read in self.steps:
                value = read(stream, inner, path)
                if name.__class__ is tuple:
                    dict.update(values, zip(name, value, strict=True))
                    dict.update(inner, zip(name, value, strict=True))
                elif name:
                    values[name] = inner[name] = value
        except StopFieldError:
            pass
        finally:
            inner["_root"] = None  # without a cycle its memory is freed at once
        return values
