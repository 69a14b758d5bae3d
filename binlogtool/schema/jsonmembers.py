"""What the members of a record are made from by compiled code: columns, tables of texts, and the calls of kernels.

The generated functions (`schema.jsonlines`, `schema.jsoncells`) go over the records of a batch; the beginning of their
loop, which loads what the kernels of the format ask for, is made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from binlogtool.formats.base import Batch, Column, JsonLine, JsonMember, Kernel, Layout, Quote
from binlogtool.formats.jsontext import NO_ROOM, name_table, text_table
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
NOTES = 256
ENVELOPE = ("type", "seq", "time", "object", "origin", "txn")
NONE, RIGHT = 0, 1
_FRAME = ("offset", "end", "checksum")
PLACES = "buf, records, frames, spans, tables, words"
"""The first parameters of a generated function: addresses of the arena, of columns, of tables and of constant texts."""

D_co = TypeVar("D_co", covariant=True)


class Written(NamedTuple, Generic[D_co]):
    """Records up to `reached` (exclusive) are in `data`, which is valid until the next call.

    refused: the record `reached` is not ours; else there was no more room, or nothing left to write.
    """

    data: D_co
    reached: int
    refused: bool


class Slot(NamedTuple):
    """A member that the format's own kernel writes. table: its kernel uses a table of texts."""

    name: str
    kernel: Kernel
    columns: tuple[str, ...]
    table: bool


class Shape(NamedTuple):
    """What a generated function depends on.

    algorithm, stored: the checksum's name, and the column of its stored value. start: the column with the start of a
    frame's rows; None = the frames are the records.
    """

    slots: tuple[Slot, ...]
    algorithm: str | None
    stored: str
    start: str | None


class Members:
    """The members of one file's records that compiled code is to write. wanted: of `body` and the extras."""

    def __init__(self, line: JsonLine, layout: Layout, quote: Quote, *, body: bool = True, extras: bool = True) -> None:
        members = [(name, getattr(line, name)) for name in (*ENVELOPE, *(["body"] if body else ()))]
        members += line.extras if extras else ()
        slots = tuple(Slot(name, m.kernel, m.columns, _has_table(m)) for name, m in members)
        checksum, rows = layout.frame.checksum, layout.rows
        algorithm = None if checksum is None or layout.frame.stored is None else checksum.name
        self.shape = Shape(slots, algorithm, layout.frame.stored or "", None if rows is None else rows.start)
        self._derive = line.derive
        self._compile = NumbaBackend().compile
        self._texts = [Texts(member, quote) for _, member in members if _has_table(member)]

    @property
    def too_many(self) -> bool:
        """So many texts that making a table anew could cost more than compiled code saves."""
        return any(texts.too_many for texts in self._texts)

    def places(self, batch: Batch, source: RecordSource) -> Places | None:
        """What a function needs of a batch, as long as the batch is valid; None if the batch is not ours."""
        derived = {} if self._derive is None else self._derive(batch, self._compile)
        return None if derived is None else Places(batch, source, derived)

    def tables(self) -> list[NDArray[np.uint8]]:
        """The tables as they must be now."""
        return [texts.table() for texts in self._texts]


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
            self._kept, self._table = table, padded(table)
        return self._table


class Places:
    """Where the arena and the columns of a batch lie in memory; keeps them there."""

    def __init__(self, batch: Batch, source: RecordSource, derived: Mapping[str, Column]) -> None:
        arena = np.frombuffer(batch.arena, np.uint8)
        columns = {**batch.records.columns, **derived}
        records = [_column(columns[name]) for name in source.columns]
        frames = [_column(batch.frames[name]) for name in source.frame_columns]
        spans = [] if batch.rows is None else [_column(batch.span_starts), np.frombuffer(bytes(batch.packed), np.uint8)]
        self.arrays = (arena.ctypes.data, addresses(records), addresses(frames), addresses(spans))
        self.numbers = (batch.base, batch.first_record)
        self._kept = (arena, records, frames, spans)


def _column(values: Any) -> NDArray[np.int64]:
    return np.ascontiguousarray(values, np.int64)


def padded(text: bytes) -> NDArray[np.uint8]:
    """The bytes, with room behind them for copies in steps of eight."""
    return np.frombuffer(text + bytes(PAD), np.uint8)


def addresses(arrays: Sequence[Any]) -> NDArray[np.int64]:
    """Where each array begins."""
    return np.array([array.ctypes.data for array in arrays], np.int64)


class RecordSource:
    """The source of a function whose loop goes over records; what it does with each of them comes from elsewhere."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        start = shape.start
        asked = [name for slot in shape.slots for name in slot.columns]
        self.columns = tuple(dict.fromkeys([*(("span",) if start else ()), "offset", "end", *asked]))
        more = [name for name in (shape.stored if shape.algorithm else None, start) if name is not None]
        self.frame_columns = tuple(dict.fromkeys([*_FRAME, *more]))
        self.line = Lines()
        self.words = b""
        self._tables = [slot for slot in shape.slots if slot.table]
        self._kernels = KernelTexts(KERNEL, LOADS, STORES, CONSTANT)

    def text(self) -> str:
        """The module with all that was written so far."""
        return f"{HEAD}{self._kernels.text()}\n{self.line.text()}"

    def load_columns(self) -> None:
        """Before the loop: the addresses of the columns."""
        for k in range(len(self.columns)):
            self.line(f"records{k} = records[{k}]")
        for k in range(len(self.frame_columns)):
            self.line(f"frames{k} = frames[{k}]")

    def load_values(self) -> None:
        """What stands in the columns for record `i`: r0.. of the record, f0.. of its frame; offset, size, inside."""
        line, start = self.line, self.shape.start
        for k in range(len(self.columns)):
            line(f"r{k} = load_i8_native(records{k} + 8 * i)")
        line(f"span = {self.record('span') if start else 'i'}")
        for k in range(len(self.frame_columns)):
            line(f"f{k} = load_i8_native(frames{k} + 8 * span)")
        line(f"offset = base + {self.of_frame('offset')}")
        line(f"size = {self.record('end')} - {self.record('offset')}")
        if start is not None:
            line(f"inside = {self.record('offset')} - load_i8_native(spans[0] + 8 * span)")
            line("packed = load_u1(spans[1] + span)")
            line("if packed == 0:")
            with line.indented():
                line(f"offset = base + {self.of_frame(start)} + inside")

    def record(self, name: str) -> str:
        """The variable with a column's value of the record."""
        return f"r{self.columns.index(name)}"

    def of_frame(self, name: str) -> str:
        """The variable with a column's value of the frame."""
        return f"f{self.frame_columns.index(name)}"

    @property
    def taken(self) -> str:
        """The bytes of the file that the record takes: its container's, where that is packed."""
        if self.shape.start is None:
            return "size"
        return f"size if packed == 0 else {self.of_frame('end')} - {self.of_frame('offset')}"

    @property
    def checksum_state(self) -> str:
        """The variable that says whether the checksum was there, and right."""
        return self.of_frame("checksum")

    @property
    def stored(self) -> str:
        """The variable with the stored checksum."""
        return self.of_frame(self.shape.stored)

    def member(self, slot: Slot, out: str, o: str) -> str:
        """The call of a member's kernel."""
        table = f"tables[{self._tables.index(slot)}]" if slot.table else "0"
        values = "".join(f", {self.record(column)}" for column in slot.columns)
        return self.call(slot.kernel, f"buf, {table}, notes, {out}, {o}, z{values}")

    def call(self, kernel: Kernel, arguments: str) -> str:
        """The call of any kernel."""
        return f"{self._kernels.add(kernel)}({arguments})"

    def copy(self, text: bytes, out: str, o: str) -> None:
        """Writes constant text; no room ends the loop."""
        start, size = len(self.words), len(text)
        self.words += text
        self.copy_from(f"words + {start}", CONSTANT.format(size), out, o)

    def copy_from(self, source: str, size: str, out: str, o: str) -> None:
        """Writes what lies somewhere in memory; no room ends the loop."""
        self.stop_if(f"{size} + {PAD} > z - {o}", o, NO_ROOM)
        self.line(f"{o} += copy({source}, {out} + {o}, {size})")

    def stop_if(self, test: str, o: str, why: int | None = None) -> None:
        """Leaves the loop with the reason in `o`; what was written of this record does not count."""
        self.line(f"if {test}:")
        with self.line.indented():
            if why is not None:
                self.line(f"{o} = int64({why})")
            self.line("break")


def loaded(source: str, *rest: Any) -> Any:
    """The compiled function `write`. What was kept of it may be damaged: then it is compiled anew.

    rest: arguments behind the arena and the addresses of columns and tables, of the right types, for no record at all.
    """
    module = generate.load(source, _depends_on())
    nothing = (0, *[np.zeros(64, np.int64)] * 4, *rest)
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
