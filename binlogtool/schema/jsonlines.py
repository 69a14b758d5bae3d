"""Lines of JSON straight from the columns of a batch: generated source compiled by numba.

One function writes whole records as long as it can: the members that every format has are written here, the others by
the format's kernels (`formats.base.JsonLine`). It stops at the first record that is not its own; what it has written of
that one is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from binlogtool.formats.base import Batch, Column, JsonLine, JsonMember, Kernel, Layout, Quote
from binlogtool.formats.jsonnumbers import put_hex8, put_unsigned
from binlogtool.formats.jsontext import NO_ROOM, NOT_MINE, name_table, text_table
from binlogtool.schema import crc_kernels, generate, store_kernels
from binlogtool.schema.kernel_source import KernelTexts
from binlogtool.schema.numba_backend import NumbaBackend
from binlogtool.schema.source import Lines
from binlogtool.schema.store_kernels import PAD

HEAD = """from numba import njit
from numpy import array, int64, uint64
from binlogtool.schema.crc_kernels import *
from binlogtool.schema.store_kernels import *

"""
KERNEL = "@njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)"
"""Kernels are called by compiled code only."""

LOADS = {
    "buf": "load_u1(buf + ({}))",
    "texts": "load_u1(texts + ({}))",
    "notes": "load_i8_native(notes + 8 * ({}))",
}
CONSTANT = "int64({})"
STORES = {"out": "store_u1(out + ({}), int64({}))", "notes": "store_i8_native(notes + 8 * ({}), int64({}))"}

MOST_NAMES = 4096
ROOM = 1 << 20
NOTES = 256
_PARAMETERS = "buf, records, frames, spans, tables, words, head, head_size, notes, out, z, base, first, i, stop"
_NONE, _RIGHT = 0, 1
_FRAME = ("offset", "end", "checksum")
_ENVELOPE = ("type", "seq", "time", "object", "origin", "txn")


class Written(NamedTuple):
    """Records up to `reached` (exclusive) are in `data`, which is valid until the next call.

    refused: the record `reached` is not ours; else there was no more room, or nothing left to write.
    """

    data: memoryview
    reached: int
    refused: bool


class Slot(NamedTuple):
    """A member that the format's own kernel writes. table: its kernel uses a table of texts."""

    name: str
    kernel: Kernel
    columns: tuple[str, ...]
    table: bool


class LineWriter:
    """Writes the records of one file. head: the line up to and with `"offset":`."""

    def __init__(self, line: JsonLine, layout: Layout, head: bytes, quote: Quote) -> None:
        members = [(name, getattr(line, name)) for name in (*_ENVELOPE, "body")]
        members += line.extras
        slots = tuple(Slot(name, m.kernel, m.columns, _has_table(m)) for name, m in members)
        checksum, rows = layout.frame.checksum, layout.rows
        algorithm = None if checksum is None or layout.frame.stored is None else checksum.name
        self._plan = _planned(slots, algorithm, layout.frame.stored or "", None if rows is None else rows.start)
        self._derive = line.derive
        self._compile = NumbaBackend().compile
        self._texts = [Texts(member, quote) for _, member in members if _has_table(member)]
        self._words, self._head = _padded(self._plan.words), _padded(head)
        self._size = len(head)
        self._out = np.empty(ROOM, np.uint8)
        self._notes = np.zeros(NOTES, np.int64)

    def places(self, batch: Batch) -> Places | None:
        """What `write` needs of a batch, as long as the batch is valid; None if the batch is not ours."""
        derived = {} if self._derive is None else self._derive(batch, self._compile)
        return None if derived is None else Places(batch, self._plan, derived)

    def write(self, places: Places, start: int, stop: int) -> Written:
        """As many of the records `[start, stop)` of a batch as there is room for."""
        if any(texts.too_many for texts in self._texts):
            return Written(self._out.data[:0], start, True)
        tables = [texts.table() for texts in self._texts]
        reached, size, why = self._plan.write(
            *places.arrays, _addresses(tables), self._words.ctypes.data, self._head.ctypes.data, self._size,
            self._notes.ctypes.data, self._out.ctypes.data, ROOM, *places.numbers, start, stop,
        )  # fmt: skip
        refused = why == NOT_MINE or (why < 0 and reached == start)
        return Written(self._out.data[:size], reached, refused)


class Places:
    """Where the arena and the columns of a batch lie in memory; keeps them there."""

    def __init__(self, batch: Batch, plan: Plan, derived: Mapping[str, Column]) -> None:
        arena = np.frombuffer(batch.arena, np.uint8)
        columns = {**batch.records.columns, **derived}
        records = [_column(columns[name]) for name in plan.columns]
        frames = [_column(batch.frames[name]) for name in plan.frame_columns]
        spans = [] if batch.rows is None else [_column(batch.span_starts), np.frombuffer(bytes(batch.packed), np.uint8)]
        self.arrays = (arena.ctypes.data, _addresses(records), _addresses(frames), _addresses(spans))
        self.numbers = (batch.base, batch.first_record)
        self._kept = (arena, records, frames, spans)


def _column(values: Any) -> NDArray[np.int64]:
    return np.ascontiguousarray(values, np.int64)


def _padded(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text + bytes(PAD), np.uint8)


def _addresses(arrays: list[Any]) -> NDArray[np.int64]:
    return np.array([array.ctypes.data for array in arrays], np.int64)


def _has_table(member: JsonMember) -> bool:
    return member.texts is not None or member.names is not None or member.table is not None


class Texts:
    """The table of texts of one member, made anew when the texts have changed."""

    def __init__(self, member: JsonMember, quote: Quote) -> None:
        self._own = None if member.table is None else partial(member.table, quote)
        self._kept: bytes | None = None
        texts = member.texts if member.names is None else member.names
        self._texts: Mapping[int, Any] = {} if texts is None else texts
        self._pack = text_table if member.names is None else name_table
        self._quote = lru_cache(maxsize=2 * MOST_NAMES)(quote)
        self._seen: Mapping[int, Any] | None = None
        self._table = np.zeros(0, np.uint8)

    @property
    def too_many(self) -> bool:
        """So many that making the table anew could cost more than compiled code saves."""
        return len(self._texts) > MOST_NAMES

    def table(self) -> NDArray[np.uint8]:
        """The table as it must be now."""
        if self._own is not None:
            return self._given(self._own())
        if self._texts != self._seen:
            self._seen = dict(self._texts)
            packed = self._pack({number: self._quote(text) for number, text in self._seen.items()})
            self._table = np.frombuffer(packed, np.uint8)
        return self._table

    def _given(self, table: bytes) -> NDArray[np.uint8]:
        """A table of the format's own, with room behind it for copies in steps of eight."""
        if table is not self._kept:
            self._kept, self._table = table, _padded(table)
        return self._table


class Plan:
    """The function that writes a line, and what it must be given.

    algorithm, stored: the checksum's name, and the column of its stored value. start: the column with the start of a
    frame's rows; None = the frames are the records.
    """

    def __init__(self, slots: tuple[Slot, ...], algorithm: str | None, stored: str, start: str | None) -> None:
        self._slots, self._algorithm, self._stored, self._start = slots, algorithm, stored, start
        asked = [name for slot in slots for name in slot.columns]
        self.columns = tuple(dict.fromkeys([*(("span",) if start else ()), "offset", "end", *asked]))
        more = [name for name in (stored if algorithm else None, start) if name is not None]
        self.frame_columns = tuple(dict.fromkeys([*_FRAME, *more]))
        self._tables = [slot for slot in slots if slot.table]
        self._kernels = KernelTexts(KERNEL, LOADS, STORES, CONSTANT)
        self._lines = Lines()
        self._literal = b""
        self.words = b""
        self.write = _loaded(self._source())

    def _source(self) -> str:
        """The module with the function `write`."""
        line = self._lines
        line("@njit(cache=True, nogil=True)")
        line(f"def write({_PARAMETERS}):")
        with line.indented():
            for k in range(len(self.columns)):
                line(f"records{k} = records[{k}]")
            for k in range(len(self.frame_columns)):
                line(f"frames{k} = frames[{k}]")
            line("done = o = int64(0)")
            line("while i < stop:")
            with line.indented():
                self._values()
                self._members()
                line("done = o")
                line("i += 1")
            line("return i, done, min(o, 0)")
        return f"{HEAD}{self._kernels.text()}\n{line.text()}"

    def _values(self) -> None:
        """What stands in the columns for this record: r0.. of the record, f0.. of its frame."""
        line = self._lines
        for k in range(len(self.columns)):
            line(f"r{k} = load_i8_native(records{k} + 8 * i)")
        line(f"span = {self._record('span') if self._start else 'i'}")
        for k in range(len(self.frame_columns)):
            line(f"f{k} = load_i8_native(frames{k} + 8 * span)")
        line(f"offset = base + {self._of_frame('offset')}")
        line(f"size = {self._record('end')} - {self._record('offset')}")
        if self._start is not None:
            line(f"inside = {self._record('offset')} - load_i8_native(spans[0] + 8 * span)")
            line("packed = load_u1(spans[1] + span)")
            line("if packed == 0:")
            with line.indented():
                line(f"offset = base + {self._of_frame(self._start)} + inside")

    def _record(self, name: str) -> str:
        return f"r{self.columns.index(name)}"

    def _of_frame(self, name: str) -> str:
        return f"f{self.frame_columns.index(name)}"

    def _members(self) -> None:
        """The members in the order of the contract."""
        container = f"{self._of_frame('end')} - {self._of_frame('offset')}"
        self._copy("head", "head_size")
        self._put(put_unsigned, "offset")
        self._text(',"size":')
        self._put(put_unsigned, f"size if packed == 0 else {container}" if self._start else "size")
        self._text(',"record":')
        self._put(put_unsigned, "first + i")
        for slot in self._slots:
            if slot.name == "body":
                self._checksum()
            self._member(slot)
            if slot.name == "body":
                self._text(',"findings":[]')
                self._inner()
        self._text("}\n")
        self._flush()

    def _inner(self) -> None:
        if self._start is None:
            return
        self._flush()
        self._lines("if packed != 0:")
        with self._lines.indented():
            self._text(',"inner":{"offset":')
            self._put(put_unsigned, "inside")
            self._text(',"size":')
            self._put(put_unsigned, "size")
            self._text("}")
            self._flush()

    def _checksum(self) -> None:
        if self._algorithm is None:
            self._text(',"checksum":null')
            return
        state = self._of_frame("checksum")
        self._flush()
        self._lines(f"if {state} == {_RIGHT}:")
        with self._lines.indented():
            self._text(f',"checksum":{{"algorithm":{json.dumps(self._algorithm)},"stored":"')
            self._put(put_hex8, self._of_frame(self._stored))
            self._text('","computed":"')
            self._put(put_hex8, self._of_frame(self._stored))
            self._text('","ok":true}')
            self._flush()
        self._lines("else:")
        with self._lines.indented():
            self._stop_if(f"{state} != {_NONE}", NOT_MINE)
            self._text(',"checksum":null')
            self._flush()

    def _member(self, slot: Slot) -> None:
        self._text(f",{json.dumps(slot.name)}:")
        table = f"tables[{self._tables.index(slot)}]" if slot.table else "0"
        values = "".join(f", {self._record(column)}" for column in slot.columns)
        self._step(f"{self._kernels.add(slot.kernel)}(buf, {table}, notes, out, o, z{values})")

    def _put(self, kernel: Kernel, value: str) -> None:
        self._step(f"{self._kernels.add(kernel)}({value}, out, o, z)")

    def _step(self, call: str) -> None:
        """Something written by a kernel."""
        self._flush()
        self._lines(f"o = {call}")
        self._stop_if("o < 0")

    def _stop_if(self, test: str, why: int | None = None) -> None:
        """Leaves the loop; what was written of this record does not count."""
        self._lines(f"if {test}:")
        with self._lines.indented():
            if why is not None:
                self._lines(f"o = int64({why})")
            self._lines("break")

    def _text(self, text: str) -> None:
        """Constant text, kept until something else is written."""
        self._literal += text.encode()

    def _flush(self) -> None:
        if self._literal:
            start, size = len(self.words), len(self._literal)
            self.words += self._literal
            self._literal = b""
            self._copy(f"words + {start}", CONSTANT.format(size))

    def _copy(self, source: str, size: str) -> None:
        self._stop_if(f"{size} + {PAD} > z - o", NO_ROOM)
        self._lines(f"o += copy({source}, out + o, {size})")


@lru_cache(maxsize=16)
def _planned(slots: tuple[Slot, ...], algorithm: str | None, stored: str, start: str | None) -> Plan:
    return Plan(slots, algorithm, stored, start)


def _loaded(source: str) -> Any:
    """The compiled function. What was kept of it may be damaged: then it is compiled anew."""
    module = generate.load(source, _depends_on())
    nothing = (0, *[np.zeros(64, np.int64)] * 4, *[0] * 10)
    try:
        module.write(*nothing)
    except Exception:
        generate.forget(module)
        module = generate.load(source, _depends_on())
        module.write(*nothing)
    return module.write


def _depends_on() -> str:
    sources = (Path(str(module.__file__)).read_text(encoding="utf-8") for module in (crc_kernels, store_kernels))
    return "\0".join((numba.__version__, np.__version__, *sources))
