"""Write JSON lines straight from the columns of a batch, with generated code that is compiled when the package is
built.

One function writes whole records as long as it can: the members that every format has inline, the others by the
format's
kernels (`jsonline.JsonLine`). It stops at the first record that it cannot write, and discards what it wrote of it.
"""

from __future__ import annotations

import json
from functools import lru_cache

from binlogtool.formats.jsonline import JsonLine, Quote
from binlogtool.formats.jsonnumbers import put_hex8, put_unsigned
from binlogtool.formats.jsontext import NOT_MINE
from binlogtool.formats.layouts import Batch, Kernel, Layout
from binlogtool.formats.room import words
from binlogtool.schema.jsonmembers import (
    ABSENT,
    NONE,
    NOTES,
    PLACES,
    RIGHT,
    Marks,
    Members,
    Places,
    RecordSource,
    Shape,
    Slot,
    Written,
    padded,
)
from binlogtool.schema.library import Held

ROOM = 1 << 20
_PARAMETERS = f"{PLACES}, marks, head, head_size, notes, out, z, base, first, i, stop"


class LineWriter:
    """Writes the records of one file.

    Args:
        head: The start of each line, up to and with `"offset":`.
    """

    def __init__(self, line: JsonLine, layout: Layout, head: bytes, quote: Quote) -> None:
        self._members = Members(line, layout, quote)
        self._plan = _planned(self._members.shape)
        self._out = bytearray(ROOM)
        self._held = [Held(one) for one in (padded(self._plan.source.words), padded(head), words(NOTES), self._out)]
        self._size = len(head)

    def places(self, batch: Batch) -> Places | None:
        """Return the addresses that `write` needs, valid as long as the batch; None if compiled code cannot handle
        the batch.
        """
        return self._members.places(batch, self._plan.source)

    def write(self, places: Places, start: int, stop: int, marks: bytes | None = None) -> Written[memoryview]:
        """Write as many of the records `[start, stop)` of a batch as fit.

        Args:
            mask: See `RecordMask`.
        """
        if self._members.too_many:
            return Written(memoryview(b""), start, True)
        function, tables = self._plan.source.function, self._members.tables()
        assert function is not None
        constant, head, notes, out = (held.address for held in self._held)
        meant = Marks(marks, start)
        reached, size, why = function(
            *places.arrays,
            tables.address,
            constant,
            meant.address,
            head,
            self._size,
            notes,
            out,
            ROOM,
            *places.numbers,
            start,
            stop,
        )
        refused = why == NOT_MINE or (why < 0 and reached == start)
        return Written(memoryview(self._out)[:size], reached, refused)


class Plan:
    """The generated function that writes lines."""

    def __init__(self, shape: Shape) -> None:
        self.source = RecordSource(shape)
        self._literal = b""
        self._function()
        self.source.find()

    def _function(self) -> None:
        """The function `write`."""
        line = self.source.line
        line(f"def write({_PARAMETERS}):")
        with line.indented():
            self.source.load_columns()
            line("done = o = 0")
            line("while i < stop:")
            with line.indented():
                self.source.pass_over()
                self.source.load_values()
                self._members()
                line("done = o")
                line("i += 1")
            line("return i, done, min(o, 0)")

    def _members(self) -> None:
        """Emit the members in the order of the contract."""
        self.source.copy_from("head", "head_size", "out", "o")
        self._put(put_unsigned, "offset")
        self._text(',"size":')
        self._put(put_unsigned, self.source.taken)
        self._text(',"record":')
        self._put(put_unsigned, self.source.number)
        for slot in self.source.shape.slots:
            if slot.name == "body":
                self._checksum()
            self._member(slot)
            if slot.name == "body":
                self._text(',"findings":[]')
                self._inner()
        self._text("}\n")
        self._flush()

    def _inner(self) -> None:
        if self.source.inner == "0":
            return
        self._flush()
        self.source.line(f"if {self.source.inner}:")
        with self.source.line.indented():
            self._text(',"inner":{"offset":')
            self._put(put_unsigned, "inside")
            self._text(',"size":')
            self._put(put_unsigned, "size")
            self._text("}")
            self._flush()

    def _checksum(self) -> None:
        source, algorithm = self.source, self.source.shape.algorithm
        if algorithm is None:
            self._text(',"checksum":null')
            return
        self._flush()
        source.line(f"if {source.checksum_state} == {RIGHT}:")
        self._compared(algorithm, source.stored, "true")
        if source.shape.covered is not None:
            source.line(f"elif {source.checksum_state} == {ABSENT}:")
            self._compared(algorithm, source.computed, "null")
        source.line("else:")
        with source.line.indented():
            source.stop_if(f"{source.checksum_state} != {NONE}", "o", NOT_MINE)
            self._text(',"checksum":null')
            self._flush()

    def _compared(self, algorithm: str, computed: str, ok: str) -> None:
        with self.source.line.indented():
            self._text(f',"checksum":{{"algorithm":{json.dumps(algorithm)},"stored":"')
            self._put(put_hex8, self.source.stored)
            self._text('","computed":"')
            self._put(put_hex8, computed)
            self._text(f'","ok":{ok}}}')
            self._flush()

    def _member(self, slot: Slot) -> None:
        self._text(f",{json.dumps(slot.name)}:")
        self._step(self.source.member(slot, "out", "o"))

    def _put(self, kernel: Kernel, value: str) -> None:
        self._step(self.source.call(kernel, f"{value}, out, o, z"))

    def _step(self, call: str) -> None:
        """Emit a call that writes something."""
        self._flush()
        self.source.line(f"o = {call}")
        self.source.stop_if("o < 0", "o")

    def _text(self, text: str) -> None:
        """Append constant text, which is emitted when something else is written."""
        self._literal += text.encode()

    def _flush(self) -> None:
        if self._literal:
            literal, self._literal = self._literal, b""
            self.source.copy(literal, "out", "o")


@lru_cache(maxsize=16)
def _planned(shape: Shape) -> Plan:
    return Plan(shape)
