"""The JSON line of an entry in compiled code: the kernel of each member."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any

from binlogtool.formats.drizzle.codes import EntryType
from binlogtool.formats.drizzle.meaning import STATEMENT_NAMES, TIMESTAMP_UNITS
from binlogtool.formats.drizzle.protobuf import tables
from binlogtool.formats.drizzle.protobuf.jsonlines import (
    DERIVED_COLUMNS,
    MANY_KINDS,
    derive_entry_columns,
    put_body_member,
    put_object_member,
    put_time_member,
)
from binlogtool.formats.jsonline import JsonLine, JsonMember
from binlogtool.formats.jsontext import put_text_member, put_unsigned_member
from binlogtool.formats.layouts import Batch, Column, Kernel

_TYPE_NAMES = {**STATEMENT_NAMES, MANY_KINDS: EntryType.TRANSACTION.name}
_OBJECT_COLUMNS = ("kind", "first_at", "first_end", "second_at", "second_end")


class EntryColumnDeriver:
    """Derives the columns that follow from the messages of a batch."""

    def __init__(self) -> None:
        self._out = memoryview(array("q"))

    def __call__(self, batch: Batch, compile_: Callable[[Kernel], Kernel]) -> Mapping[str, Column]:
        """See `JsonLine.derive`."""
        count, frames = batch.frames.count, batch.frames
        if len(self._out) < len(DERIVED_COLUMNS) * count:
            self._out = memoryview(array("q", bytes(8 * len(DERIVED_COLUMNS) * count)))
        arguments = (frames[name] for name in ("type", "message_start", "message_end"))
        compile_(derive_entry_columns)(batch.window, tables.create_rules(), *arguments, self._out, count)
        return {name: self._out[k * count : (k + 1) * count] for k, name in enumerate(DERIVED_COLUMNS)}


def _get_texts(_quote: Any) -> bytes:
    return tables.create_texts()


def create_json_line(_context: object) -> JsonLine:
    """Return the members of the line of an entry."""
    return JsonLine(
        type=JsonMember(put_text_member, ("kind",), texts=_TYPE_NAMES),
        seq=JsonMember(put_unsigned_member, ("number",)),
        time=JsonMember(put_time_member, ("time",)),
        object=JsonMember(put_object_member, _OBJECT_COLUMNS),
        origin=JsonMember(put_unsigned_member, ("server",)),
        txn=JsonMember(put_unsigned_member, ("number",)),
        body=JsonMember(put_body_member, ("kind", "message_start", "message_end"), table=_get_texts),
        extras=(("timestamp_unit", JsonMember(put_text_member, ("unit",), texts=TIMESTAMP_UNITS)),),
        depth=1 + tables.compute_depth(),
        derive=EntryColumnDeriver(),
    )
