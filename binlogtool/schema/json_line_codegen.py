"""Generate code that writes JSON lines, table cells and single members from the columns of a batch.

One function writes whole records as long as it can: members that every format has inline, other members by the format's
kernels (`format_api.format.JsonLine`). It stops at the first record that it cannot write, and discards the partial
output for this record.

Cells and members come from the same kernels, so their values are those that `dump` shows: in cells, texts have no
quotes, numbers and times are parsed back from the digits that were just written, and bodies remain JSON. Conditions are
evaluated on members, which are selected when the function is called.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from binlogtool.format_api.format import JsonEncoder, JsonLine, JsonMember
from binlogtool.format_api.json_text_kernels import UNSUPPORTED, write_json_unsigned, write_uint32_hex
from binlogtool.format_api.layout import Batch, Kernel, LogFileLayout, zeroed_int64
from binlogtool.format_api.schema_fields import MutableUInt8s, UInt8s, kernel
from binlogtool.schema.json_body_codegen import (
    CHECKSUM_ABSENT,
    CHECKSUM_NONE,
    CHECKSUM_RIGHT,
    NOTES_SIZE,
    ArrayAddresses,
    BatchAddresses,
    CompiledMembers,
    MemberShape,
    MemberSlot,
    RecordLoopCode,
    RecordMask,
    WrittenRecords,
    pad_for_copy,
)
from binlogtool.schema.native_library import PinnedMemory

# --- Generated code that writes JSON lines ---

LINE_BUFFER_SIZE = 1 << 20
_LINE_PARAMETERS = "marks, head, head_size, notes, out, z"


class RecordWriter:
    """Writer that calls a generated function for the records of one file."""

    def __init__(self, members: CompiledMembers, source: RecordLoopCode) -> None:
        self._members, self._source = members, source
        self._constant, self._notes = PinnedMemory(pad_for_copy(source.words)), PinnedMemory(zeroed_int64(NOTES_SIZE))

    def prepare_batch(self, batch: Batch) -> BatchAddresses | None:
        """Return the addresses that `write` needs, valid as long as the batch.

        None if compiled code cannot handle the batch.
        """
        return self._members.get_batch_addresses(batch, self._source)

    def _call_generated_function(
        self, addresses: BatchAddresses, own_arguments: tuple[int, ...], output_size: int, start: int, stop: int
    ) -> WrittenRecords[int]:
        """Call the function for the records `[start, stop)`. own_arguments: its arguments between `words` and `z`."""
        if self._members.has_too_many_texts:
            return WrittenRecords(0, start, True)
        function, tables = self._source.function, self._members.build_tables()
        assert function is not None
        next_record, count, code = function(
            *addresses.arrays,
            tables.address,
            self._constant.address,
            *own_arguments,
            output_size,
            *addresses.numbers,
            start,
            stop,
        )
        return WrittenRecords(count, next_record, code == UNSUPPORTED or (code < 0 and next_record == start))


class LineWriter(RecordWriter):
    """Writer of the records of one file as lines. head: the start of each line, up to and including `"offset":`."""

    def __init__(self, line: JsonLine, layout: LogFileLayout, head: bytes, quote: JsonEncoder) -> None:
        members = CompiledMembers(line, layout, quote)
        super().__init__(members, _make_line_code(members.shape).source)
        self._out = bytearray(LINE_BUFFER_SIZE)
        self._pinned = [PinnedMemory(one) for one in (pad_for_copy(head), self._out)]
        self._size = len(head)

    def write(
        self, addresses: BatchAddresses, start: int, stop: int, mask: bytes | None = None
    ) -> WrittenRecords[memoryview]:
        """Write as many of the records `[start, stop)` of a batch as fit. mask: see `RecordMask`."""
        record_mask, (head, out) = RecordMask(mask, start), (held.address for held in self._pinned)
        own = (record_mask.address, head, self._size, self._notes.address, out)
        written = self._call_generated_function(addresses, own, LINE_BUFFER_SIZE, start, stop)
        return WrittenRecords(memoryview(self._out)[: written.data], written.next_record, written.refused)


class LineCode:
    """Generated function that writes lines."""

    def __init__(self, shape: MemberShape) -> None:
        self.source = RecordLoopCode(shape)
        self._literal = b""
        with self.source.emit_record_loop(_LINE_PARAMETERS, ("done = o = 0",), "done"):
            self._emit_members()
            self.source.line("done = o")

    def _emit_members(self) -> None:
        """Emit the members in the documented order."""
        self.source.emit_copy("head", "head_size", "out", "o")
        self._emit_kernel_call(write_json_unsigned, "offset")
        self._append_text(',"size":')
        self._emit_kernel_call(write_json_unsigned, self.source.size_source)
        self._append_text(',"record":')
        self._emit_kernel_call(write_json_unsigned, self.source.number_source)
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
            self._emit_kernel_call(write_json_unsigned, "inside")
            self._append_text(',"size":')
            self._emit_kernel_call(write_json_unsigned, "size")
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
            self._emit_kernel_call(write_uint32_hex, self.source.stored_checksum)
            self._append_text('","computed":"')
            self._emit_kernel_call(write_uint32_hex, computed)
            self._append_text(f'","ok":{ok}}}')
            self._emit_pending()

    def _emit_member(self, slot: MemberSlot) -> None:
        self._append_text(f",{json.dumps(slot.name)}:")
        self._emit_call(self.source.format_member_call(slot, "out", "o"))

    def _emit_kernel_call(self, kernel: Kernel, value: str) -> None:
        self._emit_call(self.source.format_call(kernel, f"{value}, out, o, z"))

    def _emit_call(self, call: str) -> None:
        """Emit a call that writes to the output."""
        self._emit_pending()
        self.source.line(f"o = {call}")
        self.source.emit_stop_if("o < 0", "o")

    def _append_text(self, text: str) -> None:
        """Append constant text, which is emitted together with the next output."""
        self._literal += text.encode()

    def _emit_pending(self) -> None:
        if self._literal:
            literal, self._literal = self._literal, b""
            self.source.emit_copy_text(literal, "out", "o")


_make_line_code = lru_cache(maxsize=16)(LineCode)


# --- Generated code that writes table cells ---

CELL_BUFFER_SIZE = 4 << 20
"""Maximum bytes of text in one column."""

NUMBER_COLUMNS = ("record", "offset", "size", "inner_offset", "inner_size", "seq", "time", "origin", "checksum_ok")
TEXT_COLUMNS = ("type", "object", "txn", "checksum_stored", "checksum_computed", "body", "extras")
_ALL_COLUMNS = (*NUMBER_COLUMNS, *TEXT_COLUMNS)
_JSON_COLUMNS = ("body", "extras")
_CELL_PARAMETERS = "marks, notes, texts, ends, valid, numbers, z"


class CellColumns(msgspec.Struct, frozen=True):
    """Columns of `count` records, valid until the next columns are made.

    Attributes:
        numbers: Name in NUMBER_COLUMNS -> the values.
        texts: Name in TEXT_COLUMNS -> the bytes of all cells, and the ends of the cells, after a first 0.
        valid: Name of a column -> a byte per cell, 1 if there is a value.
    """

    count: int
    numbers: dict[str, memoryview]
    texts: dict[str, tuple[memoryview, memoryview]]
    valid: dict[str, memoryview]


class CellWriter(RecordWriter):
    """Writer of the cells of one file's records. rows: maximum records per call. body, extras: make these."""

    def __init__(
        self,
        line: JsonLine,
        layout: LogFileLayout,
        quote: JsonEncoder,
        rows: int,
        *,
        body: bool = True,
        extras: bool = True,
    ) -> None:
        members = CompiledMembers(line, layout, quote, body=body, extras=extras)
        super().__init__(members, _make_cell_code(members.shape).source)
        self._rows = rows
        self._numbers = {name: zeroed_int64(rows) for name in NUMBER_COLUMNS}
        self._texts = {name: zeroed_int64(CELL_BUFFER_SIZE >> 3).cast("B") for name in TEXT_COLUMNS}
        self._ends = {name: zeroed_int64(rows + 1) for name in TEXT_COLUMNS}
        self._valid = {name: memoryview(bytearray(rows)) for name in _ALL_COLUMNS}
        column_groups = (self._texts, self._ends, self._valid, self._numbers)
        self._addresses = [ArrayAddresses(list(arrays.values())) for arrays in column_groups]

    def write(
        self, addresses: BatchAddresses, start: int, stop: int, mask: bytes | None = None
    ) -> WrittenRecords[CellColumns]:
        """Make the cells of as many of the records `[start, stop)` of a batch as fit. mask: see `RecordMask`."""
        record_mask = RecordMask(mask, start)
        own = (record_mask.address, self._notes.address, *(place.address for place in self._addresses))
        written = self._call_generated_function(addresses, own, CELL_BUFFER_SIZE, start, min(stop, start + self._rows))
        return WrittenRecords(self._slice_columns(written.data), written.next_record, written.refused)

    def _slice_columns(self, count: int) -> CellColumns:
        return CellColumns(
            count,
            {name: values[:count] for name, values in self._numbers.items()},
            {name: (self._texts[name], ends[: count + 1]) for name, ends in self._ends.items()},
            {name: valid[:count] for name, valid in self._valid.items()},
        )


# -- values out of their texts -----------------------------------------------------------------------------------------


@kernel()
def strip_quotes_unless_escaped(buf: UInt8s, out: MutableUInt8s, o: int, end: int) -> int:
    """Remove the quotes of the text at `out[o:end]` (read through `buf`).

    Return its new end, or UNSUPPORTED if the text contains escapes.
    """
    end -= 2
    for p in range(o, end):
        byte = buf[p + 1] + 0
        if byte == 92:
            return -2
        out[p] = byte
    return end


@kernel()
def parse_unsigned_decimal(buf: UInt8s, p: int, end: int) -> int:
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


@kernel(parse_unsigned_decimal)
def parse_json_time_to_microseconds(buf: UInt8s, p: int) -> int:
    """Parse the quoted RFC 3339 time at `buf[p]`, as `write_json_time` writes it, to microseconds since 1970-01-01."""
    year = parse_unsigned_decimal(buf, p + 1, p + 5)
    month = parse_unsigned_decimal(buf, p + 6, p + 8)
    if month < 3:
        month += 12
        year -= 1
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5
    days += parse_unsigned_decimal(buf, p + 9, p + 11) - 719469
    seconds = parse_unsigned_decimal(buf, p + 12, p + 14) * 3600 + parse_unsigned_decimal(buf, p + 15, p + 17) * 60
    seconds += parse_unsigned_decimal(buf, p + 18, p + 20) + days * 86400
    return seconds * 1000000 + parse_unsigned_decimal(buf, p + 21, p + 27)


# -- the function ------------------------------------------------------------------------------------------------------


class CellCode:
    """Generated function that makes cells. Each text comes after that of the previous record; e0.. are their ends."""

    def __init__(self, shape: MemberShape) -> None:
        self.source = RecordLoopCode(shape)
        self._slots = {slot.name: slot for slot in shape.slots}
        self._extras = [slot for slot in shape.slots if slot.name not in _ALL_COLUMNS]
        arrays = {"texts": TEXT_COLUMNS, "ends": TEXT_COLUMNS, "valid": _ALL_COLUMNS, "numbers": NUMBER_COLUMNS}
        prelude = [f"{name}{k} = {name}[{k}]" for name, columns in arrays.items() for k in range(len(columns))]
        prelude += ["row = o = 0", *(f"e{k} = 0" for k in range(len(TEXT_COLUMNS)))]
        with self.source.emit_record_loop(_CELL_PARAMETERS, prelude, "row"):
            self._emit_cells()
            self._emit_record_end()

    def _emit_cells(self) -> None:
        self._emit_number("record", self.source.number_source)
        self._emit_number("offset", "offset")
        self._emit_number("size", self.source.size_source)
        inner = self.source.is_inner_source
        self._emit_number("inner_offset", "inside" if inner != "0" else "0", inner)
        self._emit_number("inner_size", "size", inner)
        for name in ("seq", "time", "origin"):
            self._emit_parsed_number(name)
        for name in ("type", "object", "txn"):
            self._emit_text(name)
        self._emit_checksum()
        for name in _JSON_COLUMNS:
            self._emit_json(name)

    def _emit_record_end(self) -> None:
        """Emit the end of a record, which makes its output valid."""
        line = self.source.line
        line("row += 1")
        for k in range(len(TEXT_COLUMNS)):
            line(f"e{k} = n{k}")
            line(f"store_i8_native(ends{k} + 8 * row, e{k})")

    def _emit_number(self, name: str, value: str, valid: str = "1") -> None:
        k = NUMBER_COLUMNS.index(name)
        self.source.line(f"store_i8_native(numbers{k} + 8 * row, {value})")
        self._emit_valid(name, valid)

    def _emit_valid(self, name: str, value: str) -> None:
        self.source.line(f"store_u1(valid{_ALL_COLUMNS.index(name)} + row, {value})")

    def _emit_member(self, slot: MemberSlot, k: int, start: str) -> None:
        """Emit the member's JSON at `start` of text column `k`, up to `o`."""
        self.source.line(f"o = {self.source.format_member_call(slot, f'texts{k}', start)}")
        self.source.emit_stop_if("o < 0", "o")

    def _emit_parsed_number(self, name: str) -> None:
        """Emit a number or a time; its text is written where the next body will overwrite it."""
        line, k = self.source.line, TEXT_COLUMNS.index("body")
        self._emit_member(self._slots[name], k, f"e{k}")
        line(f"there = load_u1(texts{k} + e{k}) != 110")  # not null
        line("value = 0")
        line("if there:")
        with line.indent():
            if name == "time":
                line(f"value = {self.source.format_call(parse_json_time_to_microseconds, f'texts{k}, e{k}')}")
            else:
                line(f"value = {self.source.format_call(parse_unsigned_decimal, f'texts{k}, e{k}, o')}")
                self.source.emit_stop_if("value < 0", "o", UNSUPPORTED)
        self._emit_number(name, "value", "there")

    def _emit_text(self, name: str) -> None:
        line, k = self.source.line, TEXT_COLUMNS.index(name)
        self._emit_member(self._slots[name], k, f"e{k}")
        line(f"there = load_u1(texts{k} + e{k}) != 110")
        line(f"n{k} = o if there else e{k}")
        line(f"if load_u1(texts{k} + e{k}) == 34:")  # a text, not a number
        with line.indent():
            line(f"n{k} = {self.source.format_call(strip_quotes_unless_escaped, f'texts{k}, texts{k}, e{k}, o')}")
            self.source.emit_stop_if(f"n{k} < 0", "o", UNSUPPORTED)
        self._emit_valid(name, "there")

    def _emit_checksum(self) -> None:
        source, state, values = self.source, self.source.checksum_state, ("0", "0")
        source.line("there = 0")
        if source.shape.algorithm is not None:
            source.line(f"there = {state} != {CHECKSUM_NONE}")
            source.line(f"computed = {source.stored_checksum}")
            source.line(f"if {state} == {CHECKSUM_ABSENT}:")
            with source.line.indent():
                if source.shape.covered is None:
                    source.emit_stop_if("True", "o", UNSUPPORTED)
                else:
                    source.line(f"computed = {source.computed_checksum}")
            values = (source.stored_checksum, "computed")
        for name, value in zip(("checksum_stored", "checksum_computed"), values, strict=True):
            k = TEXT_COLUMNS.index(name)
            source.line(f"n{k} = e{k}")
            source.line("if there:")
            with source.line.indent():
                source.line(f"n{k} = {source.format_call(write_uint32_hex, f'{value}, texts{k}, e{k}, z')}")
                source.line(f"o = n{k}")
                source.emit_stop_if("o < 0", "o")
            self._emit_valid(name, "there")
        self._emit_number("checksum_ok", "there", f"{state} == {CHECKSUM_RIGHT}")

    def _emit_json(self, name: str) -> None:
        k = TEXT_COLUMNS.index(name)
        slot = self._slots.get(name)
        if slot is not None:
            self._emit_member(slot, k, f"e{k}")
        elif name == "extras" and self._extras:
            self._emit_extras(k)
        else:
            self.source.line(f"o = e{k}")
        self.source.line(f"there = o > e{k} and load_u1(texts{k} + e{k}) != 110")
        self.source.line(f"n{k} = o if there else e{k}")
        self._emit_valid(name, "there")

    def _emit_extras(self, k: int) -> None:
        """Emit the additional members of the format as one JSON object."""
        self.source.line(f"o = e{k}")
        separator = "{"
        for slot in self._extras:
            self.source.emit_copy_text(f"{separator}{json.dumps(slot.name)}:".encode(), f"texts{k}", "o")
            self._emit_member(slot, k, "o")
            separator = ","
        self.source.emit_copy_text(b"}", f"texts{k}", "o")


_make_cell_code = lru_cache(maxsize=16)(CellCode)


# --- Generated code that writes a few JSON members ---

PICK_BUFFER_SIZE = 1 << 20
_PICK_PARAMETERS = "asked, notes, out, z"


class MemberListWriter(RecordWriter):
    """Writer of a list of members for each record of one file, one line per record.

    Args:
        names: Names of the members.
        body: The kernel of the member `body`.
    """

    def __init__(
        self, line: JsonLine, layout: LogFileLayout, quote: JsonEncoder, names: Iterable[str], body: JsonMember
    ) -> None:
        members = CompiledMembers(replace(line, body=body), layout, quote, extras=False)
        code = _make_pick_code(members.shape)
        super().__init__(members, code.source)
        self.order = tuple(name for name in code.names if name in frozenset(names))
        self._member_bits = sum(1 << code.names.index(name) for name in self.order)
        self._out = bytearray(PICK_BUFFER_SIZE)
        self._pinned_output = PinnedMemory(self._out)

    def write(self, addresses: BatchAddresses, start: int, stop: int) -> WrittenRecords[memoryview]:
        """Write the members of as many of the records `[start, stop)` of a batch as fit."""
        own = (self._member_bits, self._notes.address, self._pinned_output.address)
        written = self._call_generated_function(addresses, own, PICK_BUFFER_SIZE, start, stop)
        return WrittenRecords(memoryview(self._out)[: written.data], written.next_record, written.refused)


class MemberListCode:
    """Generated function that writes lists of members. names: the order of the members."""

    def __init__(self, shape: MemberShape) -> None:
        self.source = RecordLoopCode(shape)
        numbers = {"record": self.source.number_source, "offset": "offset", "size": self.source.size_source}
        calls = {
            name: self.source.format_call(write_json_unsigned, f"{value}, out, o, z") for name, value in numbers.items()
        }
        calls |= {slot.name: self.source.format_member_call(slot, "out", "o") for slot in shape.slots}
        self.names = tuple(calls)
        line = self.source.line
        with self.source.emit_record_loop(_PICK_PARAMETERS, ("done = o = 0",), "done", masked=False):
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


_make_pick_code = lru_cache(maxsize=16)(MemberListCode)
