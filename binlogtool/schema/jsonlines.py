"""Write JSON lines straight from the columns of a batch, with generated code that is compiled when the package is
built.

One function writes whole records as long as it can: the members that every format has inline, the others by the
format's kernels (`jsonline.JsonLine`). It stops at the first record that it cannot write, and discards what it wrote of
it.
"""

from __future__ import annotations

import json
from functools import lru_cache

from binlogtool.formats.jsonline import JsonEncoder, JsonLine
from binlogtool.formats.jsonnumbers import put_hex8, put_unsigned
from binlogtool.formats.jsontext import UNSUPPORTED
from binlogtool.formats.layouts import Batch, Kernel, LogFileLayout
from binlogtool.formats.room import zeroed_int64
from binlogtool.schema.jsonmembers import (
    BATCH_PARAMETERS,
    CHECKSUM_ABSENT,
    CHECKSUM_NONE,
    CHECKSUM_RIGHT,
    NOTES_SIZE,
    BatchAddresses,
    CompiledMembers,
    MemberShape,
    MemberSlot,
    RecordLoopCode,
    RecordMask,
    WrittenRecords,
    pad_for_copy,
)
from binlogtool.schema.library import PinnedMemory

LINE_BUFFER_SIZE = 1 << 20
_LINE_PARAMETERS = f"{BATCH_PARAMETERS}, marks, head, head_size, notes, out, z, base, first, i, stop"


class LineWriter:
    """Writes the records of one file.

    Args:
        head: The start of each line, up to and with `"offset":`.
    """

    def __init__(self, line: JsonLine, layout: LogFileLayout, head: bytes, quote: JsonEncoder) -> None:
        self._members = CompiledMembers(line, layout, quote)
        self._code = _make_line_code(self._members.shape)
        self._out = bytearray(LINE_BUFFER_SIZE)
        self._pinned = [
            PinnedMemory(one)
            for one in (pad_for_copy(self._code.source.words), pad_for_copy(head), zeroed_int64(NOTES_SIZE), self._out)
        ]
        self._size = len(head)

    def locate_batch(self, batch: Batch) -> BatchAddresses | None:
        """Return the addresses that `write` needs, valid as long as the batch; None if compiled code cannot handle
        the batch.
        """
        return self._members.locate_batch(batch, self._code.source)

    def write(
        self, addresses: BatchAddresses, start: int, stop: int, mask: bytes | None = None
    ) -> WrittenRecords[memoryview]:
        """Write as many of the records `[start, stop)` of a batch as fit.

        Args:
            mask: See `RecordMask`.
        """
        if self._members.has_too_many_texts:
            return WrittenRecords(memoryview(b""), start, True)
        function, tables = self._code.source.function, self._members.build_tables()
        assert function is not None
        constant, head, notes, out = (held.address for held in self._pinned)
        record_mask = RecordMask(mask, start)
        next_record, size, code = function(
            *addresses.arrays,
            tables.address,
            constant,
            record_mask.address,
            head,
            self._size,
            notes,
            out,
            LINE_BUFFER_SIZE,
            *addresses.numbers,
            start,
            stop,
        )
        refused = code == UNSUPPORTED or (code < 0 and next_record == start)
        return WrittenRecords(memoryview(self._out)[:size], next_record, refused)


class LineCode:
    """The generated function that writes lines."""

    def __init__(self, shape: MemberShape) -> None:
        self.source = RecordLoopCode(shape)
        self._literal = b""
        self._emit_function()
        self.source.find_compiled()

    def _emit_function(self) -> None:
        """The function `write`."""
        line = self.source.line
        line(f"def write({_LINE_PARAMETERS}):")
        with line.indent():
            self.source.emit_load_columns()
            line("done = o = 0")
            line("while i < stop:")
            with line.indent():
                self.source.emit_skip_masked()
                self.source.emit_load_values()
                self._emit_members()
                line("done = o")
                line("i += 1")
            line("return i, done, min(o, 0)")

    def _emit_members(self) -> None:
        """Emit the members in the order of the contract."""
        self.source.emit_copy("head", "head_size", "out", "o")
        self._emit_kernel_call(put_unsigned, "offset")
        self._append_text(',"size":')
        self._emit_kernel_call(put_unsigned, self.source.size_source)
        self._append_text(',"record":')
        self._emit_kernel_call(put_unsigned, self.source.number_source)
        for slot in self.source.shape.slots:
            if slot.name == "body":
                self._emit_checksum()
            self._emit_member(slot)
            if slot.name == "body":
                self._append_text(',"findings":[]')
                self._emit_inner()
        self._append_text("}\n")
        self._emit_pending()

    def _emit_inner(self) -> None:
        if self.source.is_inner_source == "0":
            return
        self._emit_pending()
        self.source.line(f"if {self.source.is_inner_source}:")
        with self.source.line.indent():
            self._append_text(',"inner":{"offset":')
            self._emit_kernel_call(put_unsigned, "inside")
            self._append_text(',"size":')
            self._emit_kernel_call(put_unsigned, "size")
            self._append_text("}")
            self._emit_pending()

    def _emit_checksum(self) -> None:
        source, algorithm = self.source, self.source.shape.algorithm
        if algorithm is None:
            self._append_text(',"checksum":null')
            return
        self._emit_pending()
        source.line(f"if {source.checksum_state} == {CHECKSUM_RIGHT}:")
        self._emit_checksum_values(algorithm, source.stored_checksum, "true")
        if source.shape.covered is not None:
            source.line(f"elif {source.checksum_state} == {CHECKSUM_ABSENT}:")
            self._emit_checksum_values(algorithm, source.computed_checksum, "null")
        source.line("else:")
        with source.line.indent():
            source.emit_stop_if(f"{source.checksum_state} != {CHECKSUM_NONE}", "o", UNSUPPORTED)
            self._append_text(',"checksum":null')
            self._emit_pending()

    def _emit_checksum_values(self, algorithm: str, computed: str, ok: str) -> None:
        with self.source.line.indent():
            self._append_text(f',"checksum":{{"algorithm":{json.dumps(algorithm)},"stored":"')
            self._emit_kernel_call(put_hex8, self.source.stored_checksum)
            self._append_text('","computed":"')
            self._emit_kernel_call(put_hex8, computed)
            self._append_text(f'","ok":{ok}}}')
            self._emit_pending()

    def _emit_member(self, slot: MemberSlot) -> None:
        self._append_text(f",{json.dumps(slot.name)}:")
        self._emit_call(self.source.format_member_call(slot, "out", "o"))

    def _emit_kernel_call(self, kernel: Kernel, value: str) -> None:
        self._emit_call(self.source.format_call(kernel, f"{value}, out, o, z"))

    def _emit_call(self, call: str) -> None:
        """Emit a call that writes something."""
        self._emit_pending()
        self.source.line(f"o = {call}")
        self.source.emit_stop_if("o < 0", "o")

    def _append_text(self, text: str) -> None:
        """Append constant text, which is emitted when something else is written."""
        self._literal += text.encode()

    def _emit_pending(self) -> None:
        if self._literal:
            literal, self._literal = self._literal, b""
            self.source.emit_copy_text(literal, "out", "o")


@lru_cache(maxsize=16)
def _make_line_code(shape: MemberShape) -> LineCode:
    return LineCode(shape)
