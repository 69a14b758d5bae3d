"""Make table cells straight from the columns of a batch, with generated code that is compiled when the package is
built.

The kernels are those of the JSON lines (`jsonline.JsonLine`), so a cell has the value that `dump` shows: texts lose
their quotes, numbers and times are parsed back from the digits that were just written, and bodies stay JSON.
"""

from __future__ import annotations

import json
from functools import lru_cache

import msgspec

from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonline import JsonLine, Quote
from binlogtool.formats.jsonnumbers import put_hex8
from binlogtool.formats.jsontext import NOT_MINE
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.formats.room import words
from binlogtool.schema.jsonmembers import (
    ABSENT,
    NONE,
    NOTES,
    PLACES,
    RIGHT,
    Addresses,
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

ROOM = 4 << 20
"""Bytes of text in one column at most."""

NUMBERS = ("record", "offset", "size", "inner_offset", "inner_size", "seq", "time", "origin", "checksum_ok")
TEXTS = ("type", "object", "txn", "checksum_stored", "checksum_computed", "body", "extras")
_JSON = ("body", "extras")
_PARAMETERS = f"{PLACES}, marks, notes, texts, ends, valid, numbers, z, base, first, i, stop"


class Cells(msgspec.Struct, frozen=True):
    """Columns of `count` records, valid until the next ones are made.

    Attributes:
        numbers: By name of NUMBER_COLUMNS.
        texts: By name of TEXT_COLUMNS, the bytes of all cells, and where each ends, after a first 0.
        valid: By name of either, 1 where there is a value.
    """

    count: int
    numbers: dict[str, memoryview]
    texts: dict[str, tuple[memoryview, memoryview]]
    valid: dict[str, memoryview]


class CellWriter:
    """Makes the cells of the records of one file.

    Args:
        rows: Most records at a time.
        body, extras: Make these columns.
    """

    def __init__(
        self, line: JsonLine, layout: Layout, quote: Quote, rows: int, *, body: bool = True, extras: bool = True
    ) -> None:
        self._members = Members(line, layout, quote, body=body, extras=extras)
        self._plan = _planned(self._members.shape)
        self._rows = rows
        self._held = [Held(padded(self._plan.source.words)), Held(words(NOTES))]
        self._numbers = {name: words(rows) for name in NUMBERS}
        self._texts = {name: words(ROOM >> 3).cast("B") for name in TEXTS}
        self._ends = {name: words(rows + 1) for name in TEXTS}
        self._valid = {name: memoryview(bytearray(rows)) for name in (*NUMBERS, *TEXTS)}
        kept = (self._texts, self._ends, self._valid, self._numbers)
        self._places = [Addresses(list(arrays.values())) for arrays in kept]

    def places(self, batch: Batch) -> Places | None:
        """Return the addresses that `write` needs, valid as long as the batch; None if compiled code cannot handle
        the batch.
        """
        return self._members.places(batch, self._plan.source)

    def write(self, places: Places, start: int, stop: int, marks: bytes | None = None) -> Written[Cells]:
        """Make the cells of as many of the records `[start, stop)` of a batch as fit.

        Args:
            mask: See `RecordMask`.
        """
        if self._members.too_many:
            return Written(self._cells(0), start, True)
        function, tables = self._plan.source.function, self._members.tables()
        assert function is not None
        constant, notes = (held.address for held in self._held)
        made = [place.address for place in self._places]
        meant = Marks(marks, start)
        reached, why, count = function(
            *places.arrays, tables.address, constant, meant.address, notes, *made, ROOM, *places.numbers, start,
            min(stop, start + self._rows),
        )  # fmt: skip
        refused = why == NOT_MINE or (why < 0 and reached == start)
        return Written(self._cells(count), reached, refused)

    def _cells(self, count: int) -> Cells:
        return Cells(
            count,
            {name: values[:count] for name, values in self._numbers.items()},
            {name: (self._texts[name], ends[: count + 1]) for name, ends in self._ends.items()},
            {name: valid[:count] for name, valid in self._valid.items()},
        )


# -- values out of their texts -----------------------------------------------------------------------------------------


@kernel()
def unquoted(buf: UInt8s, out: MutableUInt8s, o: int, end: int) -> int:
    """Remove the quotes of the text at `out[o:end]` (read through `buf`); return its new end, or NOT_MINE if it has
    escapes.
    """
    end -= 2
    for p in range(o, end):
        byte = buf[p + 1] + 0
        if byte == 92:
            return -2
        out[p] = byte
    return end


@kernel()
def number_at(buf: UInt8s, p: int, end: int) -> int:
    """Parse the decimal number at `buf[p:end]`; return -1 if it is negative or too large."""
    value = 0
    if end - p > 18:
        return -1
    while p < end:
        digit = buf[p] - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
        p += 1
    return value


@kernel(number_at)
def time_at(buf: UInt8s, p: int) -> int:
    """Parse the quoted RFC 3339 time at `buf[p]`, as `put_time` writes it, to microseconds since 1970-01-01."""
    year = number_at(buf, p + 1, p + 5)
    month = number_at(buf, p + 6, p + 8)
    if month < 3:
        month += 12
        year -= 1
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5
    days += number_at(buf, p + 9, p + 11) - 719469
    seconds = number_at(buf, p + 12, p + 14) * 3600 + number_at(buf, p + 15, p + 17) * 60
    seconds += number_at(buf, p + 18, p + 20) + days * 86400
    return seconds * 1000000 + number_at(buf, p + 21, p + 27)


# -- the function ------------------------------------------------------------------------------------------------------


class Plan:
    """The generated function that makes cells. Each text goes after that of the record before; e0.. are their ends."""

    def __init__(self, shape: Shape) -> None:
        self.source = RecordSource(shape)
        self._slots = {slot.name: slot for slot in shape.slots}
        self._extras = [slot for slot in shape.slots if slot.name not in (*TEXTS, *NUMBERS)]
        self._function()
        self.source.find()

    def _function(self) -> None:
        line = self.source.line
        line(f"def write({_PARAMETERS}):")
        with line.indented():
            self.source.load_columns()
            for name, number in (*_numbered("texts"), *_numbered("ends"), *_numbered("valid"), *_numbered("numbers")):
                line(f"{name} = {number}")
            line("row = o = 0")
            for k in range(len(TEXTS)):
                line(f"e{k} = 0")
            line("while i < stop:")
            with line.indented():
                self.source.pass_over()
                self.source.load_values()
                self._cells()
                self._keep()
            line("return i, min(o, 0), row")

    def _cells(self) -> None:
        self._number("record", self.source.number)
        self._number("offset", "offset")
        self._number("size", self.source.taken)
        inner = self.source.inner
        self._number("inner_offset", "inside" if inner != "0" else "0", inner)
        self._number("inner_size", "size", inner)
        for name in ("seq", "time", "origin"):
            self._read(name)
        for name in ("type", "object", "txn"):
            self._text(name)
        self._checksum()
        for name in _JSON:
            self._json(name)

    def _keep(self) -> None:
        """Emit the end of a record: everything that was written counts."""
        line = self.source.line
        line("row += 1")
        for k in range(len(TEXTS)):
            line(f"e{k} = n{k}")
            line(f"store_i8_native(ends{k} + 8 * row, e{k})")
        line("i += 1")

    def _number(self, name: str, value: str, valid: str = "1") -> None:
        k = NUMBERS.index(name)
        self.source.line(f"store_i8_native(numbers{k} + 8 * row, {value})")
        self._valid(name, valid)

    def _valid(self, name: str, value: str) -> None:
        self.source.line(f"store_u1(valid{(*NUMBERS, *TEXTS).index(name)} + row, {value})")

    def _put(self, slot: Slot, k: int, start: str) -> None:
        """Emit the member's JSON at `start` of text column `k`, up to `o`."""
        self.source.line(f"o = {self.source.member(slot, f'texts{k}', start)}")
        self.source.stop_if("o < 0", "o")

    def _read(self, name: str) -> None:
        """Emit a number or a time: its text goes where the next body will overwrite it."""
        line, k = self.source.line, TEXTS.index("body")
        self._put(self._slots[name], k, f"e{k}")
        line(f"there = load_u1(texts{k} + e{k}) != 110")  # not null
        line("value = 0")
        line("if there:")
        with line.indented():
            if name == "time":
                line(f"value = {self.source.call(time_at, f'texts{k}, e{k}')}")
            else:
                line(f"value = {self.source.call(number_at, f'texts{k}, e{k}, o')}")
                self.source.stop_if("value < 0", "o", NOT_MINE)
        self._number(name, "value", "there")

    def _text(self, name: str) -> None:
        line, k = self.source.line, TEXTS.index(name)
        self._put(self._slots[name], k, f"e{k}")
        line(f"there = load_u1(texts{k} + e{k}) != 110")
        line(f"n{k} = o if there else e{k}")
        line(f"if load_u1(texts{k} + e{k}) == 34:")  # a text, not a number
        with line.indented():
            line(f"n{k} = {self.source.call(unquoted, f'texts{k}, texts{k}, e{k}, o')}")
            self.source.stop_if(f"n{k} < 0", "o", NOT_MINE)
        self._valid(name, "there")

    def _checksum(self) -> None:
        source, state, values = self.source, self.source.checksum_state, ("0", "0")
        source.line("there = 0")
        if source.shape.algorithm is not None:
            source.line(f"there = {state} != {NONE}")
            source.line(f"computed = {source.stored}")
            source.line(f"if {state} == {ABSENT}:")
            with source.line.indented():
                if source.shape.covered is None:
                    source.stop_if("True", "o", NOT_MINE)
                else:
                    source.line(f"computed = {source.computed}")
            values = (source.stored, "computed")
        for name, value in zip(("checksum_stored", "checksum_computed"), values, strict=True):
            k = TEXTS.index(name)
            source.line(f"n{k} = e{k}")
            source.line("if there:")
            with source.line.indented():
                source.line(f"n{k} = {source.call(put_hex8, f'{value}, texts{k}, e{k}, z')}")
                source.line(f"o = n{k}")
                source.stop_if("o < 0", "o")
            self._valid(name, "there")
        self._number("checksum_ok", "there", f"{state} == {RIGHT}")

    def _json(self, name: str) -> None:
        k = TEXTS.index(name)
        slot = self._slots.get(name)
        if slot is not None:
            self._put(slot, k, f"e{k}")
        elif name == "extras" and self._extras:
            self._object(k)
        else:
            self.source.line(f"o = e{k}")
        self.source.line(f"there = o > e{k} and load_u1(texts{k} + e{k}) != 110")
        self.source.line(f"n{k} = o if there else e{k}")
        self._valid(name, "there")

    def _object(self, k: int) -> None:
        """Emit the additional members of the format as one JSON object."""
        self.source.line(f"o = e{k}")
        before = "{"
        for slot in self._extras:
            self.source.copy(f"{before}{json.dumps(slot.name)}:".encode(), f"texts{k}", "o")
            self._put(slot, k, "o")
            before = ","
        self.source.copy(b"}", f"texts{k}", "o")


def _numbered(array: str) -> list[tuple[str, str]]:
    """Return a variable for each element of an array of addresses."""
    counts = {"texts": TEXTS, "ends": TEXTS, "valid": (*NUMBERS, *TEXTS), "numbers": NUMBERS}
    return [(f"{array}{k}", f"{array}[{k}]") for k in range(len(counts[array]))]


@lru_cache(maxsize=16)
def _planned(shape: Shape) -> Plan:
    return Plan(shape)
