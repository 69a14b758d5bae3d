"""Write a few members of each record as JSON, with generated code that is compiled when the package is built.

Conditions are evaluated on them. The kernels are those of the JSON lines (`jsonline.JsonLine`), so a member has the
value that `dump` shows. The members are selected when the function is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec.structs import replace

from binlogtool.formats.jsonline import JsonEncoder, JsonLine, JsonMember
from binlogtool.formats.jsonnumbers import put_unsigned
from binlogtool.formats.jsontext import UNSUPPORTED
from binlogtool.formats.layouts import Batch, LogFileLayout
from binlogtool.formats.room import zeroed_int64
from binlogtool.schema.jsonmembers import (
    BATCH_PARAMETERS,
    NOTES_SIZE,
    BatchAddresses,
    CompiledMembers,
    MemberShape,
    RecordLoopCode,
    WrittenRecords,
    pad_for_copy,
)
from binlogtool.schema.library import PinnedMemory

PICK_BUFFER_SIZE = 1 << 20
_PICK_PARAMETERS = f"{BATCH_PARAMETERS}, asked, notes, out, z, base, first, i, stop"


class MemberPicker:
    """Writes a list of members of each record of one file, one line per record.

    Args:
        names: The members.
        body: What makes the member `body`.
    """

    def __init__(
        self, line: JsonLine, layout: LogFileLayout, quote: JsonEncoder, names: Iterable[str], body: JsonMember
    ) -> None:
        self._members = CompiledMembers(replace(line, body=body), layout, quote, extras=False)
        self._code = _make_pick_code(self._members.shape)
        self.order = tuple(name for name in self._code.names if name in frozenset(names))
        self._member_bits = sum(1 << self._code.names.index(name) for name in self.order)
        self._out = bytearray(PICK_BUFFER_SIZE)
        self._pinned = [
            PinnedMemory(one) for one in (pad_for_copy(self._code.source.words), zeroed_int64(NOTES_SIZE), self._out)
        ]

    def locate_batch(self, batch: Batch) -> BatchAddresses | None:
        """Return the addresses that `write` needs, valid as long as the batch; None if compiled code cannot handle
        the batch.
        """
        return self._members.locate_batch(batch, self._code.source)

    def write(self, addresses: BatchAddresses, start: int, stop: int) -> WrittenRecords[memoryview]:
        """Write the members of as many of the records `[start, stop)` of a batch as fit."""
        if self._members.has_too_many_texts:
            return WrittenRecords(memoryview(b""), start, True)
        function, tables = self._code.source.function, self._members.build_tables()
        assert function is not None
        constant, notes, out = (held.address for held in self._pinned)
        next_record, size, code = function(
            *addresses.arrays,
            tables.address,
            constant,
            self._member_bits,
            notes,
            out,
            PICK_BUFFER_SIZE,
            *addresses.numbers,
            start,
            stop,
        )
        refused = code == UNSUPPORTED or (code < 0 and next_record == start)
        return WrittenRecords(memoryview(self._out)[:size], next_record, refused)


class PickCode:
    """The generated function that writes such lists.

    Attributes:
        names: The order of the members.
    """

    def __init__(self, shape: MemberShape) -> None:
        self.source = RecordLoopCode(shape)
        numbers = {"record": self.source.number_source, "offset": "offset", "size": self.source.size_source}
        calls = {name: self.source.format_call(put_unsigned, f"{value}, out, o, z") for name, value in numbers.items()}
        calls |= {slot.name: self.source.format_member_call(slot, "out", "o") for slot in shape.slots}
        self.names = tuple(calls)
        line = self.source.line
        line(f"def write({_PICK_PARAMETERS}):")
        with line.indent():
            self.source.emit_load_columns()
            line("done = o = 0")
            line("while i < stop:")
            with line.indent():
                self.source.emit_load_values()
                self.source.emit_copy_text(b"[", "out", "o")
                for k, call in enumerate(calls.values()):
                    line(f"if asked >> {k} & 1:")
                    with line.indent():
                        line(f"o = {call}")
                        self.source.emit_stop_if("o < 0", "o")
                        self.source.emit_copy_text(b",", "out", "o")
                line("o -= 1")
                self.source.emit_copy_text(b"]\n", "out", "o")
                line("done = o")
                line("i += 1")
            line("return i, done, min(o, 0)")
        self.source.find_compiled()


@lru_cache(maxsize=16)
def _make_pick_code(shape: MemberShape) -> PickCode:
    return PickCode(shape)
