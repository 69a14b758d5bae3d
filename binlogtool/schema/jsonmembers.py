"""Inputs of the generated functions that write members of records: columns, tables of texts, calls of kernels.

The generated functions (`schema.jsonlines`, `schema.jsoncells`) loop over the records of a batch; the beginning of
the
loop, which loads what the kernels of the format need, is generated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

from binlogtool.formats.checksums import CRC32
from binlogtool.formats.crc32 import crc_of
from binlogtool.formats.jsonline import JsonBodies, JsonLine, JsonMember, Quote
from binlogtool.formats.jsontext import NO_ROOM, name_table, text_table
from binlogtool.formats.layouts import Batch, Column, Kernel, Layout, RecordPlaces
from binlogtool.schema import identity
from binlogtool.schema.json_bodies import body_text
from binlogtool.schema.library import Entry, Held, integers
from binlogtool.schema.native_backend import native_backend
from binlogtool.schema.source_text import Lines

PAD = 8
"""Bytes behind both places of a copy that must be there."""

MOST_NAMES = 4096
NOTES = 256
ENVELOPE = ("type", "seq", "time", "object", "origin", "txn")
NONE, RIGHT, ABSENT = range(3)
"""What the column `checksum` says of a frame; ABSENT: the writer did not compute it."""

_FRAME = ("offset", "end", "checksum")
_PLACE = "place."
_PLACES = tuple(_PLACE + name for name in RecordPlaces._fields)
PLACES = "buf, records, frames, spans, tables, words"
"""The first parameters of a generated function: addresses of the arena, of columns, of tables and of constant texts."""

D_co = TypeVar("D_co", covariant=True)


class Written(NamedTuple, Generic[D_co]):
    """The output for the records before `next_record`; `data` is valid until the next call.

    Attributes:
        refused: Compiled code cannot write the record `next_record`; else there was no more space, or nothing left to
            write.
    """

    data: D_co
    reached: int
    refused: bool


class Slot(NamedTuple):
    """A member that the format writes.

    Attributes:
        table: Its kernel uses a table of texts.
        bodies: See `JsonMember`.
    """

    name: str
    kernel: Kernel
    columns: tuple[str, ...]
    table: bool
    bodies: JsonBodies | None = None


class Shape(NamedTuple):
    """Everything that a generated function depends on.

    Attributes:
        algorithm: Name of the checksum; stored: the column of its stored value.
        covered: The columns with the range of a CRC-32, where compiled code also handles frames that have none.
        start: The column with the start of a frame's rows; None = the frames are the records.
        inside: See `JsonLine`.
    """

    slots: tuple[Slot, ...]
    algorithm: str | None
    stored: str
    covered: tuple[str, str] | None
    start: str | None
    inside: bool = False


class Members:
    """The members of one file's records that compiled code writes.

    Args:
        body, extras: Write these members.
    """

    def __init__(self, line: JsonLine, layout: Layout, quote: Quote, *, body: bool = True, extras: bool = True) -> None:
        self.shape = shape_of(line, layout, body=body, extras=extras)
        self._derive = line.derive
        native = native_backend()
        self._compile = (lambda kernel: kernel) if native is None else native.compile
        members = _members(line, body, extras)
        self._texts = [Texts(member, quote) for _, member in members if _has_table(member)]

    @property
    def too_many(self) -> bool:
        """True if rebuilding a table of texts could cost more than compiled code saves."""
        return any(texts.too_many for texts in self._texts)

    def places(self, batch: Batch, source: RecordSource) -> Places | None:
        """Return the addresses that a function needs, valid as long as the batch; None if compiled code cannot handle
        the batch.
        """
        if source.function is None:
            return None
        derived = {} if self._derive is None else self._derive(batch, self._compile)
        return None if derived is None else Places(batch, source, derived)

    def tables(self) -> Addresses:
        """Return the up-to-date tables of texts."""
        return Addresses([texts.table() for texts in self._texts])


def shape_of(line: JsonLine, layout: Layout, *, body: bool = True, extras: bool = True) -> Shape:
    """Return what the functions for such records depend on."""
    slots = tuple(Slot(name, m.kernel, m.columns, _has_table(m), m.bodies) for name, m in _members(line, body, extras))
    checksum, rows = layout.frame.checksum, layout.rows
    algorithm = None if checksum is None or layout.frame.stored is None or line.inside else checksum.name
    covered = layout.frame.covered if checksum is CRC32 and rows is None else None
    start = None if rows is None else rows.start
    return Shape(slots, algorithm, layout.frame.stored or "", covered, start, line.inside)


def _members(line: JsonLine, body: bool, extras: bool) -> list[tuple[str, JsonMember]]:
    members = [(name, getattr(line, name)) for name in (*ENVELOPE, *(["body"] if body else ()))]
    return [*members, *(line.extras if extras else ())]


def _has_table(member: JsonMember) -> bool:
    return member.texts is not None or member.names is not None or member.table is not None


class Texts:
    """The table of texts of one member, rebuilt when the texts have changed."""

    def __init__(self, member: JsonMember, quote: Quote) -> None:
        self._own = None if member.table is None else partial(member.table, quote)
        self._kept: bytes | None = None
        texts = member.texts if member.names is None else member.names
        self._texts: Mapping[int, Any] = {} if texts is None else texts
        self._pack = text_table if member.names is None else name_table
        self._quote = lru_cache(maxsize=2 * MOST_NAMES)(quote)
        self._seen: Mapping[int, Any] | None = None
        self._table = b""

    @property
    def too_many(self) -> bool:
        """True if rebuilding the table could cost more than compiled code saves."""
        return len(self._texts) > MOST_NAMES

    def table(self) -> bytes:
        """Return the up-to-date table."""
        if self._own is not None:
            return self._given(self._own())
        if self._texts != self._seen:
            self._seen = dict(self._texts)
            self._table = self._pack({number: self._quote(text) for number, text in self._seen.items()})
        return self._table

    def _given(self, table: bytes) -> bytes:
        """Return a table that the format made itself, padded for copies in steps of eight bytes."""
        if table is not self._kept:
            self._kept, self._table = table, padded(table)
        return self._table


class Places:
    """The addresses of the arena and the columns of a batch; keeps them in place."""

    def __init__(self, batch: Batch, source: RecordSource, derived: Mapping[str, Column]) -> None:
        columns = {**batch.records.columns, **derived}
        if batch.places is not None:
            columns |= {_PLACE + name: column for name, column in batch.places._asdict().items()}
        spans = [] if batch.rows is None else [integers(batch.span_starts), bytes(batch.packed)]
        self._kept = (
            Held(batch.arena),
            Addresses([integers(columns[name]) for name in source.columns]),
            Addresses([integers(batch.frames[name]) for name in source.frame_columns]),
            Addresses(spans),
        )
        self.arrays = tuple(kept.address for kept in self._kept)
        self.numbers = (batch.base, batch.first_record)


class Marks:
    """Selects records from `first` on, a byte for each; None = all of them."""

    def __init__(self, marks: bytes | None, first: int) -> None:
        self._held = None if marks is None else Held(marks)
        self.address = 0 if self._held is None else self._held.address - first


class Addresses:
    """The addresses of several arrays, as an array of its own; keeps them in place."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays = [Held(array) for array in arrays]
        self._list = Held(integers([held.address for held in self._arrays]))
        self.address = self._list.address


def padded(text: bytes) -> bytes:
    """Return the bytes, padded for copies in steps of eight bytes."""
    return text + bytes(PAD)


class RecordSource:
    """Generates a function that loops over records; what it does with each is added from outside."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        start = shape.start
        asked = [name for slot in shape.slots for name in slot.columns]
        first = ("span",) if start else _PLACES if shape.inside else ()
        self.columns = tuple(dict.fromkeys([*first, "offset", "end", *asked]))
        checksum = (shape.stored, *(shape.covered or ())) if shape.algorithm else ()
        self.frame_columns = tuple(dict.fromkeys([*_FRAME, *checksum, *((start,) if start else ())]))
        self.line = Lines()
        self.words = b""
        self._tables = [slot for slot in shape.slots if slot.table]
        self.kernels = identity.KernelNames()
        self._helpers: dict[str, str] = {}
        self.function: Entry | None = None

    def text(self) -> str:
        """Return the function that was generated so far, after those that it calls."""
        return "\n".join([*self._helpers.values(), self.line.text()])

    @property
    def symbol(self) -> str:
        """The name of the function in the library."""
        return identity.symbol_of("write", self.text())

    def find(self) -> None:
        """Look the function up in the library; it stays None if the library does not have it."""
        native = native_backend()
        self.function = None if native is None else native.entry(self.symbol, 3, "lines of JSON")

    def load_columns(self) -> None:
        """Emit, before the loop, the addresses of the columns."""
        for k in range(len(self.columns)):
            self.line(f"records{k} = records[{k}]")
        for k in range(len(self.frame_columns)):
            self.line(f"frames{k} = frames[{k}]")

    def pass_over(self) -> None:
        """Emit, at the beginning of the loop, the test that skips records that the mask leaves out."""
        self.line("if marks != 0 and load_u1(marks + i) == 0:")
        with self.line.indented():
            self.line("i += 1")
            self.line("continue")

    def load_values(self) -> None:
        """Emit the values of record `i`: r0.. of the record, f0.. of its frame; offset, size, inside."""
        line, start = self.line, self.shape.start
        for k in range(len(self.columns)):
            line(f"r{k} = load_i8_native(records{k} + 8 * i)")
        line(f"span = {self.record('span') if start else 'i'}")
        for k in range(len(self.frame_columns)):
            line(f"f{k} = load_i8_native(frames{k} + 8 * span)")
        line(f"offset = base + {self.of_frame('offset')}")
        line(f"size = {self.record('end')} - {self.record('offset')}")
        if self.shape.inside:
            line(f"offset = {self.record(_PLACE + 'offset')}")
            line(f"inside = {self.record('offset')} - {self.record(_PLACE + 'start')}")
        if start is not None:
            line(f"inside = {self.record('offset')} - load_i8_native(spans[0] + 8 * span)")
            line("packed = load_u1(spans[1] + span)")
            line("if packed == 0:")
            with line.indented():
                line(f"offset = base + {self.of_frame(start)} + inside")

    def record(self, name: str) -> str:
        """Return the variable with a column's value of the record."""
        return f"r{self.columns.index(name)}"

    def of_frame(self, name: str) -> str:
        """Return the variable with a column's value of the frame."""
        return f"f{self.frame_columns.index(name)}"

    @property
    def taken(self) -> str:
        """Source of the bytes that the record takes in the file: those of its container, if that is packed."""
        if self.shape.inside:
            return self.record(_PLACE + "size")
        if self.shape.start is None:
            return "size"
        return f"size if packed == 0 else {self.of_frame('end')} - {self.of_frame('offset')}"

    @property
    def number(self) -> str:
        """Source of the number of the record, or of the one that it is inside of."""
        return self.record(_PLACE + "record") if self.shape.inside else "first + i"

    @property
    def inner(self) -> str:
        """Source of the test that the record is inside of another one, at `inside` with `size`; "0" if none is."""
        return "1" if self.shape.inside else "0" if self.shape.start is None else "packed != 0"

    @property
    def checksum_state(self) -> str:
        """The variable with the state of the checksum."""
        return self.of_frame("checksum")

    @property
    def stored(self) -> str:
        """The variable with the stored checksum."""
        return self.of_frame(self.shape.stored)

    @property
    def computed(self) -> str:
        """The call that computes the checksum of a frame without one."""
        low, high = map(self.of_frame, self.shape.covered or _FRAME[:2])
        return self.call(crc_of, f"buf, {low}, {high}, 0")

    def member(self, slot: Slot, out: str, o: str) -> str:
        """Return the call of a member's kernel."""
        table = f"tables[{self._tables.index(slot)}]" if slot.table else "0"
        values = "".join(f", {self.record(column)}" for column in slot.columns)
        name = self.kernels.add(slot.kernel)
        if slot.bodies is not None:
            name = self._of_bodies(slot, slot.bodies, name)
        return f"{name}(buf, {table}, notes, {out}, {o}, z{values})"

    def _of_bodies(self, slot: Slot, bodies: JsonBodies, kernel: str) -> str:
        """Generate the function that writes the bodies that have a schema and leaves all others to the kernel."""
        parameters = "buf, texts, notes, out, o, z" + "".join(f", c{k}" for k in range(len(slot.columns)))
        column = {name: f"c{k}" for k, name in enumerate(slot.columns)}
        line = Lines()
        for code, shown in bodies.of:
            name, text = body_text(shown, self.kernels)
            self._helpers[name] = text
            given = "".join(f", {column[dict(bodies.given)[one]]}" for one in shown.given)
            line(f"if {column[bodies.code]} == {code}:")
            with line.indented():
                line(f"return {name}(buf, {column[bodies.start]}, {column[bodies.end]}{given}, out, o, z)")
        line(f"return {kernel}({parameters})")
        name = identity.symbol_of("member", line.text())
        inside = "".join(f"    {one}\n" for one in line.text().splitlines())
        self._helpers[name] = f"def {name}({parameters}):\n{inside}"
        return name

    def call(self, kernel: Kernel, arguments: str) -> str:
        """Return the call of a kernel."""
        return f"{self.kernels.add(kernel)}({arguments})"

    def copy(self, text: bytes, out: str, o: str) -> None:
        """Emit constant text; the loop ends if there is no space."""
        start, size = len(self.words), len(text)
        self.words += text
        self.copy_from(f"words + {start}", str(size), out, o)

    def copy_from(self, source: str, size: str, out: str, o: str) -> None:
        """Emit a copy from memory; the loop ends if there is no space."""
        self.stop_if(f"{size} + {PAD} > z - {o}", o, NO_ROOM)
        self.line(f"{o} += copy({source}, {out} + {o}, {size})")

    def stop_if(self, test: str, o: str, why: int | None = None) -> None:
        """Emit a test that leaves the loop with a code in `o`; what was written of this record does not count."""
        self.line(f"if {test}:")
        with self.line.indented():
            if why is not None:
                self.line(f"{o} = {why}")
            self.line("break")
