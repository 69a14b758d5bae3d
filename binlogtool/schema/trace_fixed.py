"""Traced numbers of a fixed layout, the most frequent fields, read without construct's stack of calls."""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import Any

from binlogtool.schema.annotation import FieldRow
from binlogtool.schema.trace_nodes import TracedLeaf
from binlogtool.schema.trace_state import Trace
from binlogtool.schema.trace_words import NamedNumber

_make_row = tuple.__new__


class TracedNumber(TracedLeaf):
    """A named number of a fixed layout."""

    unpack: Any
    size: int
    code: str
    """How `struct` writes it, without the byte order; "" where that is not little-endian."""

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
    """Neighbouring numbers of one byte order, read at once."""

    def __init__(self, members: list[TracedNumber], layout: struct.Struct) -> None:
        self._members, self._layout = members, layout
        ends = tuple(accumulate(member.size for member in members))
        self._codes = [member.code for member in members] if all(member.code for member in members) else []
        self._places = tuple(zip((member.name for member in members), (0, *ends), ends, strict=False))

    def __call__(self, stream: Any, context: Any, path: Any) -> Any:
        """Return their values, in order; if bytes are missing, the first number that does not fit raises."""
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
    """A named magic of a fixed layout.

    Attributes:
        known: Number -> the value with its name.
    """

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
