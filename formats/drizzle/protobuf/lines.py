"""The JSON line of an entry in compiled code: the kernel of each member."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any

from binlogtool.formats.drizzle.codes import EntryType
from binlogtool.formats.drizzle.meaning import KINDS, UNITS
from binlogtool.formats.drizzle.protobuf import tables
from binlogtool.formats.drizzle.protobuf.jsonlines import (
    COLUMNS,
    MANY,
    body_member,
    object_member,
    survey,
    time_member,
)
from binlogtool.formats.jsonline import JsonLine, JsonMember
from binlogtool.formats.jsontext import text_member, unsigned_member
from binlogtool.formats.layouts import Batch, Column, Kernel

_TYPES = {**KINDS, MANY: EntryType.TRANSACTION.name}
_OBJECT = ("kind", "first_at", "first_end", "second_at", "second_end")


class Survey:
    """Derives the columns that follow from the messages of a batch."""

    def __init__(self) -> None:
        self._out = memoryview(array("q"))

    def __call__(self, batch: Batch, compile_: Callable[[Kernel], Kernel]) -> Mapping[str, Column]:
        """See `JsonLine.derive`."""
        count, frames = batch.frames.count, batch.frames
        if len(self._out) < len(COLUMNS) * count:
            self._out = memoryview(array("q", bytes(8 * len(COLUMNS) * count)))
        given = (frames[name] for name in ("type", "message_start", "message_end"))
        compile_(survey)(batch.window, tables.rules(), *given, self._out, count)
        return {name: self._out[k * count : (k + 1) * count] for k, name in enumerate(COLUMNS)}


def _texts(_quote: Any) -> bytes:
    return tables.texts()


def json_line(_context: object) -> JsonLine:
    """Return the members of the line of an entry."""
    return JsonLine(
        type=JsonMember(text_member, ("kind",), texts=_TYPES),
        seq=JsonMember(unsigned_member, ("number",)),
        time=JsonMember(time_member, ("time",)),
        object=JsonMember(object_member, _OBJECT),
        origin=JsonMember(unsigned_member, ("server",)),
        txn=JsonMember(unsigned_member, ("number",)),
        body=JsonMember(body_member, ("kind", "message_start", "message_end"), table=_texts),
        extras=(("timestamp_unit", JsonMember(text_member, ("unit",), texts=UNITS)),),
        depth=1 + tables.depth(),
        derive=Survey(),
    )
