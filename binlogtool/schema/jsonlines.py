"""Lines of JSON straight from the columns of a batch: generated source compiled by numba.

One function writes whole records as long as it can: the members that every format has are written here, the others by
the format's kernels (`formats.base.JsonLine`). It stops at the first record that is not its own; what it has written of
that one is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from binlogtool.formats.base import Batch, JsonLine, JsonMember, Kernel, Layout
from binlogtool.formats.jsontext import NO_ROOM, NOT_MINE, name_table, put_hex8, put_unsigned, text_table
from binlogtool.schema import crc_kernels, generate, store_kernels
from binlogtool.schema.kernel_source import KernelTexts
from binlogtool.schema.source import Lines
from binlogtool.schema.store_kernels import PAD

Quote = Callable[[str | None], bytes]
"""A text (or None) as JSON, in the words of the general writer."""

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
STORES = {"out": "store_u1(out + ({}), int64({}))", "notes": "store_i8_native(notes + 8 * ({}), int64({}))"}

ROOM = 1 << 20
NOTES = 256
_RIGHT = 1
_FRAME = ("offset", "end", "checksum")
_ENVELOPE = ("type", "seq", "time", "object", "origin", "txn")


class Written(NamedTuple):
    """Records up to `reached` (exclusive) are in `data`, which is valid until the next call.

    refused: the record `reached` is not ours; else there was no more room, or nothing left to write.
    """

    data: memoryview
    reached: int
    refused: bool


class LineWriter:
    """Writes the records of one file. head: the line up to and with `"offset":`."""

    def __init__(self, line: JsonLine, layout: Layout, head: bytes, quote: Quote) -> None:
        self._plan = Plan(line, layout)
        self._write = _loaded(self._plan.source())
        self._texts = [Texts(member, quote) for member in self._plan.tables]
        self._words, self._head = _padded(self._plan.words), _padded(head)
        self._size = len(head)
        self._out = np.empty(ROOM, np.uint8)
        self._notes = np.zeros(NOTES, np.int64)

    def places(self, batch: Batch) -> Places:
        """What `write` needs of a batch, as long as the batch is valid."""
        return Places(batch, self._plan)

    def write(self, places: Places, start: int, stop: int) -> Written:
        """As many of the records `[start, stop)` of a batch as there is room for."""
        tables = [texts.table() for texts in self._texts]
        reached, size, why = self._write(
            *places.arrays, _addresses(tables), self._words.ctypes.data, self._head.ctypes.data, self._size,
            self._notes.ctypes.data, self._out.ctypes.data, ROOM, *places.numbers, start, stop,
        )  # fmt: skip
        refused = why == NOT_MINE or (why == NO_ROOM and reached == start)
        return Written(self._out.data[:size], reached, refused)


class Places:
    """Where the arena and the columns of a batch lie in memory; keeps them there."""

    def __init__(self, batch: Batch, plan: Plan) -> None:
        arena = np.frombuffer(batch.arena, np.uint8)
        records = [_column(batch.records[name]) for name in plan.columns]
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


class Texts:
    """The table of texts of one member, made anew when the texts have changed."""

    def __init__(self, member: JsonMember, quote: Quote) -> None:
        self._member, self._quote = member, quote
        self._seen: Mapping[int, Any] | None = None
        self._table = np.zeros(0, np.uint8)

    def table(self) -> NDArray[np.uint8]:
        """The table as it must be now."""
        named = self._member.names is not None
        texts: Mapping[int, Any] = (self._member.names if named else self._member.texts) or {}
        if texts != self._seen:
            quoted = {number: self._quote(text) for number, text in texts.items()}
            self._table = np.frombuffer((name_table if named else text_table)(quoted), np.uint8)
            self._seen = dict(texts)
        return self._table


class Plan:
    """The source of the function that writes a line, and what it must be given."""

    def __init__(self, line: JsonLine, layout: Layout) -> None:
        self.line, self.frame, self.rows = line, layout.frame, layout.rows
        members = [line.type, line.seq, line.time, line.object, line.origin, line.txn, line.body]
        members += [member for _, member in line.extras]
        asked = [name for member in members for name in member.columns]
        self.columns = tuple(dict.fromkeys([*(("span",) if self.rows else ()), "offset", "end", *asked]))
        more = (self.frame.stored if self.frame.checksum else None, self.rows.start if self.rows else None)
        self.frame_columns = tuple(dict.fromkeys([*_FRAME, *(name for name in more if name is not None)]))
        self.tables = [member for member in members if member.texts is not None or member.names is not None]
        self._kernels = KernelTexts(KERNEL, LOADS, STORES)
        self._lines = Lines()
        self._literal = b""
        self.words = b""

    def source(self) -> str:
        """The module with the function `write`."""
        line = self._lines
        line("@njit(cache=True, nogil=True)")
        line("def write(buf, records, frames, spans, tables, words, head, head_size, notes, out, z, base, first, i, stop):")
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
        line(f"span = {self._record('span') if self.rows else 'i'}")
        for k in range(len(self.frame_columns)):
            line(f"f{k} = load_i8_native(frames{k} + 8 * span)")
        line(f"offset = base + {self._of_frame('offset')}")
        line(f"size = {self._record('end')} - {self._record('offset')}")
        if self.rows is not None:
            line(f"inside = {self._record('offset')} - load_i8_native(spans[0] + 8 * span)")
            line("packed = load_u1(spans[1] + span)")
            line("if packed == 0:")
            with line.indented():
                line(f"offset = base + {self._of_frame(self.rows.start)} + inside")

    def _record(self, name: str) -> str:
        return f"r{self.columns.index(name)}"

    def _of_frame(self, name: str) -> str:
        return f"f{self.frame_columns.index(name)}"

    def _members(self) -> None:
        """The members in the order of the contract."""
        frame_size = f"{self._of_frame('end')} - {self._of_frame('offset')}"
        self._copy("head", "head_size")
        self._put(put_unsigned, "offset")
        self._text(',"size":')
        self._put(put_unsigned, f"size if packed == 0 else {frame_size}" if self.rows else "size")
        self._text(',"record":')
        self._put(put_unsigned, "first + i")
        for name in _ENVELOPE:
            self._member(name, getattr(self.line, name))
        self._checksum()
        self._member("body", self.line.body)
        self._text(',"findings":[]')
        if self.rows is not None:
            self._inner()
        for name, member in self.line.extras:
            self._member(name, member)
        self._text("}\n")
        self._flush()

    def _inner(self) -> None:
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
        if self.frame.checksum is None or self.frame.stored is None:
            self._text(',"checksum":null')
            return
        self._stop_if(f"{self._of_frame('checksum')} != {_RIGHT}", NOT_MINE)
        self._text(f',"checksum":{{"algorithm":"{self.frame.checksum.name}","stored":"')
        self._put(put_hex8, self._of_frame(self.frame.stored))
        self._text('","computed":"')
        self._put(put_hex8, self._of_frame(self.frame.stored))
        self._text('","ok":true}')

    def _member(self, name: str, member: JsonMember) -> None:
        self._text(f",{json.dumps(name)}:")
        table = f"tables[{self.tables.index(member)}]" if member in self.tables else "0"
        values = "".join(f", {self._record(column)}" for column in member.columns)
        self._step(f"{self._kernels.add(member.kernel)}(buf, {table}, notes, out, o, z{values})")

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
            self._copy(f"words + {start}", str(size))

    def _copy(self, source: str, size: str) -> None:
        self._stop_if(f"{size} + {PAD} > z - o", NO_ROOM)
        self._lines(f"o += copy({source}, out + o, {size})")


@lru_cache(maxsize=16)
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
