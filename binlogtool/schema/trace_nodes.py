"""Construct classes that add rows while they parse. They replace the originals in a copy of the schema
(`trace_clone`).

Each works as the class that it replaces when it is parsed without a `Trace`.
"""

from __future__ import annotations

import io
from typing import Any

from construct import (
    Check,
    CheckError,
    ExplicitError,
    FlagsEnum,
    IfThenElse,
    Peek,
    Pointer,
    Renamed,
    Select,
    SelectError,
    StopFieldError,
    StringEncoded,
    Subconstruct,
    evaluate,
)

from binlogtool.formats.fields import ChecksumResult, CompressedSchema, CrcCheck, Magic, MalformedError, NestedSchema
from binlogtool.schema.annotation import FieldRow, HexInt
from binlogtool.schema.trace_state import Trace
from binlogtool.schema.trace_words import PLAIN_TYPES, NamedNumber, format_missing_bytes

_make_row = tuple.__new__

MAX_CACHED_FLAGS = 64
"""Values of flags that are kept with what they mean."""


class TracedNode(Renamed):  # type: ignore[misc]
    """A named field that may have children."""

    filler = "unmapped"
    read: Any

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if path.__class__ is not Trace:
            return self.read(stream, context, path)
        return path.parse_node(path.prefix + self.name, self.read, stream, context, self.filler)


class TracedLeaf(Renamed):  # type: ignore[misc]
    """A named field without children.

    Attributes:
        read: The parser of its subcon.
        local: It reads its own bytes only.
    """

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
            ):  # most fields; `Trace.leaf` says the same in general
                base, name = path.base, path.prefix + self.name
                made = (name, base + start, base + end, value, "", path.unit, path.space, None, path.depth, True, True)
                path.rows.append(_make_row(FieldRow, made))
            else:
                path.add_leaf(path.prefix + self.name, start, end, value)
        return value


class TracedTell(Renamed):  # type: ignore[misc]
    """A named stream position."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return stream.tell()


class TracedByteless(TracedLeaf):
    """A named field without bytes: it has a row only when it fails."""

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
    """A field without a name: one row called `label` if its bytes have no rows of their own."""

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
    """Text with its own length field: the row of the text shows text, not bytes."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        text = super()._parse(stream, context, path)
        if path.__class__ is Trace and path.rows and path.rows[-1] is not None:
            row = path.rows[-1]
            if row.path == f"{path.prefix}value":
                path.rows[-1] = row._replace(value=text)
        return text


class UntracedPeek(Peek):  # type: ignore[misc]
    """A look-ahead: no rows."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return super()._parse(stream, context, str(path))


class UntracedPointer(Pointer):  # type: ignore[misc]
    """A field at another position of the stream: no rows, because they would not be in file order."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return super()._parse(stream, context, str(path))


class TracedSelect(Select):  # type: ignore[misc]
    """The first alternative that parses; the rows of the others are removed."""

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
    """A field whose content has no positions in the file (swapped, restreamed, computed): no rows below it."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return self.subcon._parsereport(stream, context, str(path))


class TracedFlags(FlagsEnum):  # type: ignore[misc]
    """Flags that keep their number.

    Attributes:
        seen: The last values with their decoded names.
    """

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
    """One of two parts.

    Attributes:
        reads: The parsers for False and for True.
    """

    reads: tuple[Any, Any]

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        test = self.condfunc
        return self.reads[bool(test(context) if callable(test) else test)](stream, context, path)


class TracedNamedMagic(Magic):
    """A magic whose value carries its name."""

    known: dict[int, NamedNumber]

    def _parse(self, stream: Any, context: Any, path: Any) -> int:
        return self.known[super()._parse(stream, context, path)]


def make_named_values(names: dict[int, str]) -> dict[int, NamedNumber]:
    """Return the values of a magic, each with its name."""
    named_values = {value: NamedNumber(value) for value in names}
    for value, label in names.items():
        named_values[value].label, named_values[value].shown = label, HexInt(value) if value >> 8 else value
    return named_values


class TracedCrcCheck(CrcCheck):
    """A checksum that writes its verdict into the row of the stored value.

    Attributes:
        stored_names: The path to the stored value.
        row_hints: Where that row was the last time, from the first and from the last row.
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
        verified = self.compare(context, path.data[start:end], start, end)
        self.row_hints = path.mark_checksum(self.stored_names, verified, self.row_hints)
        return verified


class TracedCheck(Check):  # type: ignore[misc]
    """A check that marks the field that it fails on.

    Attributes:
        said: The condition in words.
        about: The fields in it.
    """

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
    """A field type that names its own parts (`Traceable`)."""

    def __init__(self, subcon: Any) -> None:
        super().__init__(subcon)
        self.fills_stream = getattr(subcon, "fills_stream", False)
        self.parts = getattr(subcon, "trace_parts", subcon.trace_rows)

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
            path.keep_error(error, start)
        return value


class TracedNested(NestedSchema):
    """A sized field: its bytes (`read`, which adds no rows), then their own schema over exactly these bytes."""

    read: Any

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        value = self.read(stream, context, path)
        if path.__class__ is Trace and isinstance(value, bytes) and value:
            path.parse_nested(self.detail, value, stream.tell() - len(value), context)
        return value


class TracedCompressed(CompressedSchema):
    """Compressed bytes: their row, then the decompressed ones in an address space of their own."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        start = stream.tell()
        packed = stream.read()
        if path.__class__ is Trace and packed:
            path.parse_compressed(self.subcon, self.codec, self.codec_name, packed, start, context)
        return packed
