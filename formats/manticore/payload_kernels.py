"""Integers and texts of variable length in payloads, and skipping of whole payloads, as kernels.

Source: `docs/spec/manticore.md#zint`.

Document ids have 8 bytes, or 4 if binlog.meta has id64=0 (`DocID_t` of that build). Source: Sphinx 2.0.9,
`BinlogWriter_c::ZipOffset`, `RtBinlog_c`.

Each kernel returns the position after the value, SHORT or MALFORMED. Every count is compared with the number of
remaining bytes before it is used.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from construct import (
    Array,
    Bytes,
    Check,
    Construct,
    FormatField,
    IfThenElse,
    Struct,
    Subconstruct,
    Switch,
    stream_read,
    stream_seek,
    stream_tell,
    stream_write,
)

from binlogtool.format_api.lazy_import import LazyRef
from binlogtool.format_api.schema_fields import (
    MAX_VARINT_SIZE,
    SHORT,
    UINT64_MASK,
    Int64s,
    LeafFormat,
    MalformedError,
    MutableInt64s,
    RecordKernel,
    ScalarForm,
    ScalarKernel,
    TracePart,
    UInt8s,
    Varint,
    WideVarint,
    kernel,
    load_uint32,
    read_varint,
    varint_size,
)
from binlogtool.limits import Limits

# --- zint ---


@kernel()
def read_zint(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Read a zint: (low 64 bits, next position); the position is SHORT, or MALFORMED after ten bytes."""
    if limit - pos > 2:  # the frequent case: up to three bytes
        value = buf[pos]
        if value < 128:
            return value, pos + 1
        byte = buf[pos + 1]
        if byte < 128:
            return (value & 127) << 7 | byte, pos + 2
        third = buf[pos + 2]
        if third < 128:
            return (value & 127) << 14 | (byte & 127) << 7 | third, pos + 3
    value = 0
    stop = pos + 10
    while pos < limit:
        byte = buf[pos]
        pos += 1
        value = (value & 0x1FFFFFFFFFFFFFF) << 7 | byte & 127
        if byte < 128:
            return value, pos
        if pos == stop:
            return 0, -2
    return 0, -1


@kernel(read_zint)
def read_zint32(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Read a zint as a signed number of 32 bits."""
    value, pos = read_zint(buf, pos, limit)
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000, pos


def build_zint(value: int) -> bytes:
    """Encode a value as the shortest zint, or in the stored width of a `WideVarint`."""
    rest, width = int(value) & UINT64_MASK, getattr(value, "width", varint_size(value))
    groups = [rest >> 7 * at & 127 for at in range(width)]
    return bytes([group | 128 for group in groups[:0:-1]] + groups[:1])


class Zint(Construct):  # type: ignore[misc]
    """Construct type of a zint. A form longer than needed is kept (`WideVarint`).

    Args:
        bits: number of bits that are kept.
        signed: the value is a two's complement number.
    """

    def __init__(self, bits: int = 64, signed: bool = False) -> None:
        super().__init__()
        self.bits, self.signed = bits, signed
        read = read_zint32 if bits == 32 else read_zint
        self.kernel = ScalarKernel(read, (ScalarForm(0, 127),), unsigned=not signed)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = bytearray()
        while not data or data[-1] >= 128:
            if len(data) == MAX_VARINT_SIZE:
                raise MalformedError(f"a zint has at most {MAX_VARINT_SIZE} bytes", path, "varint-overlong")
            data += stream_read(stream, 1, path)
        value = read_zint(data, 0, len(data))[0] & UINT64_MASK
        wide = len(data) != varint_size(value)
        if self.signed:
            value = ((value & (1 << self.bits) - 1) ^ 1 << self.bits - 1) - (1 << self.bits - 1)
        return WideVarint(value, len(data)) if wide else value

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        is_negative = self.signed and obj < 0 and not isinstance(obj, WideVarint)
        data = build_zint(obj & (1 << self.bits) - 1 if is_negative else obj)
        stream_write(stream, data, len(data), path)
        return obj


# --- Numbers of versions 2 to 4 (Sphinx up to 2.0) ---

LAST_LOW_VERSION = 4
"""Last version whose numbers are stored lowest bits first."""


# --- Kernels for sequences of numbers and for vectors ---


@kernel(read_zint, read_varint)
def read_number(buf: UInt8s, pos: int, limit: int, version: int) -> tuple[int, int]:
    """Read a number in the encoding of a version: (value, next position)."""
    if version <= 4:
        return read_varint(buf, pos, limit)
    return read_zint(buf, pos, limit)


@kernel(read_number)
def skip_numbers(buf: UInt8s, pos: int, limit: int, count: int, version: int) -> int:
    """Skip `count` numbers."""
    for _ in range(count):
        _value, pos = read_number(buf, pos, limit, version)
        if pos < 0:
            return pos
    return pos


@kernel(read_number)
def read_vector_count_and_skip(buf: UInt8s, pos: int, limit: int, width: int, version: int) -> tuple[int, int]:
    """Read the count of a vec(width) and skip its elements: (count, end)."""
    count, pos = read_number(buf, pos, limit, version)
    if pos < 0:
        return 0, pos
    if count < 0 or count > (limit - pos) // width:
        return 0, -1
    return count, pos + count * width


@kernel(read_vector_count_and_skip)
def skip_vector(buf: UInt8s, pos: int, limit: int, width: int, version: int) -> int:
    """Skip a vec(width)."""
    _count, pos = read_vector_count_and_skip(buf, pos, limit, width, version)
    return pos


# --- Kernels that skip whole payloads ---


# Instructions of a skip table, four integers each: the instruction, a register, a size and a place.
END, READ, NUMBERS, BYTES, REPEAT, IF, SWITCH = range(7)
"""READ: a number to the register. NUMBERS, BYTES, REPEAT: as often as the register says (-1 = once): `place` numbers,
`size` bytes, the program at `place`, whose elements have `size` bytes or more. IF: the program at `place`, unless the
register is 0. SWITCH: `size` pairs of value and program at `place`."""

ZINT, VARINT = 0, -1
"""Sizes of numbers that contain their own length."""


@kernel(read_zint, read_varint, load_uint32)
def read_sized_number(buf: UInt8s, pos: int, limit: int, size: int) -> tuple[int, int]:
    """Read a zint, a varint, or a number of 1 or 4 bytes."""
    if size == ZINT:
        return read_zint(buf, pos, limit)
    if size == VARINT:
        return read_varint(buf, pos, limit)
    if limit - pos < size:
        return 0, -1
    return (load_uint32(buf, pos) if size == 4 else buf[pos] + 0), pos + size


@kernel(read_sized_number)
def skip_fields_by_program(buf: UInt8s, pos: int, limit: int, skip_table: Int64s, program_at: int) -> int:
    """Skip the fields that the program at `table[program_at]` describes (see `SkipTable`)."""
    first = 0
    second = 0
    while skip_table[program_at] != END:
        instruction = skip_table[program_at] + 0
        register = skip_table[program_at + 1] + 0
        size = skip_table[program_at + 2] + 0
        place = skip_table[program_at + 3] + 0
        program_at += 4
        count = 1
        if register >= 0:
            count = first if register == 0 else second
        if instruction == READ:
            count, pos = read_sized_number(buf, pos, limit, size)
            if register == 0:
                first = count
            else:
                second = count
        elif instruction == IF:
            if count != 0:
                pos = skip_fields_by_program(buf, pos, limit, skip_table, place)
        elif instruction == SWITCH:
            stop = place + 2 * size
            while place < stop and skip_table[place] != count:
                place += 2
            if place == stop:
                return -2
            pos = skip_fields_by_program(buf, pos, limit, skip_table, skip_table[place + 1] + 0)
        elif count < 0 or count > (limit - pos) // (place if instruction == NUMBERS else size):
            return -1
        elif instruction == BYTES:
            pos += count * size
        elif instruction == NUMBERS:
            for _ in range(count * place):
                _value, pos = read_sized_number(buf, pos, limit, size)
                if pos < 0:
                    return pos
        else:
            for _ in range(count):
                pos = skip_fields_by_program(buf, pos, limit, skip_table, place)
                if pos < 0:
                    return pos
        if pos < 0:
            return pos
    return pos


@kernel(skip_fields_by_program)
def read_skipped(buf: UInt8s, pos: int, limit: int, table: Int64s, out: MutableInt64s, at: int) -> int:
    """Skip the fields of the program of a table, as a record kernel without columns."""
    return skip_fields_by_program(buf, pos, limit, table, table[0] + 0)


@kernel(skip_vector, load_uint32)
def skip_text(buf: UInt8s, pos: int, limit: int, version: int) -> int:
    """Skip a zstring (versions up to 4, and from 15 on) or a dstring."""
    if version >= 15 or version <= 4:
        return skip_vector(buf, pos, limit, 1, version)
    return pos + 4 + load_uint32(buf, pos) if limit - pos >= 4 and load_uint32(buf, pos) <= limit - pos - 4 else -1


@kernel(load_uint32)
def find_settings_end_by_checksum(buf: UInt8s, start: int, pos: int, limit: int) -> int:
    """Return the end of opaque bytes that start at `pos`: the position of a right checksum of `[start, end)`.

    In the first 4096 bytes, every position up to the next `TXN!` is tried; after that only the first few positions
    where a record could follow, so that no file can make this slow.
    """
    crc = 0xFFFFFFFF
    checked_end = start
    tries = 0
    last = limit if limit - pos < 262144 else pos + 262144
    for q in range(pos, last - 3):
        record_follows = q + 8 <= limit and buf[q + 4] == 84 and load_uint32(buf, q + 4) == 0x214E5854
        if record_follows or q + 4 == limit or (tries == 0 and q - pos < 4096):
            while checked_end < q:
                crc ^= buf[checked_end]
                checked_end += 1
                for _ in range(8):
                    crc = crc >> 1 ^ 0xEDB88320 if crc & 1 else crc >> 1
            if crc ^ 0xFFFFFFFF == load_uint32(buf, q):
                return q
            tries += record_follows
            if tries == 8:
                return -2
    return -1 if last == limit else -2


@kernel(read_number, skip_fields_by_program, find_settings_end_by_checksum)
def read_v2_to_v14_body_columns(buf: UInt8s, pos: int, limit: int, table: Int64s, out: MutableInt64s, at: int) -> int:
    """Read a body of versions 2 to 14 to the columns id, tid, time. The op is the byte before it.

    Args:
        table: the version, and by op the place of the program for its fields that are no columns; 0 = none.
    """
    op = int(buf[pos - 1])
    version = table[0] + 0
    program = table[op] + 0 if 0 < op <= 8 else 0
    start = pos - 1
    out[at] = 0
    out[at + 1] = 0
    out[at + 2] = 0
    if op == 4:
        return skip_fields_by_program(buf, pos, limit, table, program)
    out[at], pos = read_number(buf, pos, limit, version)
    if pos >= 0 and op == 3:
        pos = skip_fields_by_program(buf, pos, limit, table, program)
    if pos < 0:
        return pos
    tid, pos = read_number(buf, pos, limit, version)
    if pos < 0:
        return pos
    time, pos = read_number(buf, pos, limit, version)
    if pos < 0:
        return pos
    out[at + 1] = tid
    out[at + 2] = time
    if op == 3:
        return pos
    if op == 5 and version > 4:
        return find_settings_end_by_checksum(buf, start, pos, limit)
    if program != 0:
        return skip_fields_by_program(buf, pos, limit, table, program)
    return -2 if version <= 4 else pos


# --- Field types ---

MAX_PARTS = 4096
"""Maximum number of elements of one vector that get separate rows in the annotated hexdump."""

_CODES = {4: "I", 8: "q"}
_ZINT, _LOW_ZINT = Zint(), Varint()


_TEXT_TABLE = LazyRef("manticore.json_line_kernels:words")


def _create_leaf(
    put: str, *given: str, constant: int | None = None, members: bool = False, table: LazyRef | None = _TEXT_TABLE
) -> LeafFormat:
    return LeafFormat(
        None,
        LazyRef(f"manticore.json_line_kernels:{put}"),
        text_table=table,
        constant=constant,
        context_fields=given,
        writes_members=members,
    )


DWORDS, QWORDS = (_create_leaf("write_json_vector", constant=width, table=None) for width in (4, 8))
"""Meaning of the elements of a vec(4) and a vec(8)."""

ROWS, STORED = (
    _create_leaf("write_json_row_document_ids", "rows", members=True),
    _create_leaf("write_json_docstore_size"),
)
"""Meanings. Dwords of rows: number of dwords, dwords per row, document ids. Stored documents: number and size."""

KIND = _create_leaf("write_json_attribute_type", members=True)
"""Meaning of an attribute type: its name."""

_UPDATE_FIELDS = ("count", "attributes", "pool", "docids")
BLOBS, OLD_BLOBS = (
    _create_leaf("write_json_blobs_and_documents", *_UPDATE_FIELDS, "row_offsets", constant=version, members=True)
    for version in (15, 14)
)
LAST_OFFSETS = _create_leaf("write_json_offsets_and_documents", *_UPDATE_FIELDS, members=True)
"""The last field of an update (also before versions 15 and 10), followed by the new values of each document."""


class Vector(Construct):  # type: ignore[misc]
    """Construct type of vec(width): a zint count, then the elements (`docs/spec/manticore.md#strings-and-vectors`).

    The value is bytes for width 1, else an array of unsigned dwords or signed qwords. `low`: the count is encoded as in
    versions 2 to 4.
    """

    def __init__(self, width: int, *, low: bool = False) -> None:
        super().__init__()
        self.width = width
        self.count = _LOW_ZINT if low else _ZINT
        self.kernel = ScalarKernel(read_vector_count_and_skip, arguments=(width, LAST_LOW_VERSION + (not low)))

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        count = self.count._parse(stream, context, path)
        position = stream_tell(stream, path)
        bytes_left = stream_seek(stream, 0, 2, path) - position
        stream_seek(stream, position, 0, path)
        if count > bytes_left // self.width:
            text = f"{count:,} elements of {self.width} bytes declared, {bytes_left:,} bytes left"
            raise MalformedError(text, path, "count-out-of-bounds")
        data = stream_read(stream, count * self.width, path)
        if self.width == 1:
            return VectorBytes.with_count(data, count)
        return VectorValues.with_count(_CODES[self.width], data, count)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = bytes(obj) if self.width == 1 else struct.pack(f"<{len(obj)}{_CODES[self.width]}", *obj)
        self.count._build(getattr(obj, "declared", len(obj)), stream, context, path)
        stream_write(stream, data, len(data), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield the count, then the elements; bytes, and very many elements, are a single row."""
        position = start
        while position < end - 1 and data[position] >= 128 and position - start < 9:
            position += 1
        count = self.count.parse(data[start : position + 1])
        yield TracePart(".count", 1, start, position + 1, int(count))
        position += 1
        if count > (end - position) // self.width:
            text = f"{count:,} elements of {self.width} bytes declared, {end - position:,} bytes left"
            raise MalformedError(text, None, "count-out-of-bounds")
        if self.width == 1 or count > MAX_PARTS:
            yield TracePart(".data", 1, position, end, data[position:end])
            return
        for index, (value,) in enumerate(struct.iter_unpack("<" + _CODES[self.width], data[position:end])):
            yield TracePart(f"[{index}]", 1, position + index * self.width, position + (index + 1) * self.width, value)


class VectorValues(array):  # type: ignore[type-arg]
    """Elements of a vector; `declared` is the count as stored."""

    declared: int

    @classmethod
    def with_count(cls, code: str, data: bytes, declared: int) -> VectorValues:
        """Create the elements with their count."""
        values = cls(code, data)
        if sys.byteorder == "big":
            values.byteswap()
        values.declared = declared
        return values


class VectorBytes(bytes):
    """Bytes of a vec(1); `declared` is the count as stored."""

    declared: int

    @classmethod
    def with_count(cls, data: bytes, declared: int) -> VectorBytes:
        """Create the bytes with their count."""
        values = cls(data)
        values.declared = declared
        return values


class KernelScanned(Subconstruct):  # type: ignore[misc]
    """Construct that is parsed by its schema, but skipped by a kernel when only its end is needed."""

    def __init__(self, subcon: Construct, make_kernel: Callable[[], RecordKernel]) -> None:
        super().__init__(subcon)
        self._make_kernel = make_kernel

    @cached_property
    def kernel(self) -> RecordKernel:
        """The kernel."""
        return self._make_kernel()


class KernelSkipped(Construct):  # type: ignore[misc]
    """Construct type of the bytes that a schema describes, found by the skip table made of it."""

    def __init__(self, schema: Construct) -> None:
        super().__init__()
        self.schema = schema

    @cached_property
    def table(self) -> tuple[int, ...]:
        """The skip table."""
        return create_skip_table(self.schema)

    @property
    def kernel(self) -> RecordKernel:
        """The kernel for scanners, where they do not skip the whole body with a kernel of their own."""
        return RecordKernel(read_skipped, (), self.table)

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        position = stream_tell(stream, path)
        data = stream.read()
        end = skip_fields_by_program(data, 0, len(data), self.table, self.table[0])
        if end < 0:
            stream_seek(stream, position, 0, path)
            problem = "ends after the available bytes" if end == SHORT else "is not what the format allows"
            raise MalformedError(f"the payload {problem}", path)
        stream_seek(stream, position + end, 0, path)
        return bytes(data[:end])

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream_write(stream, obj, len(obj), path)
        return obj


def create_skip_table(schema: Construct) -> tuple[int, ...]:
    """Create the table of one program; its first integer is the place of the program."""
    table = SkipTable([0])
    table.numbers[0] = table.add_schema_program(schema)
    return tuple(table.numbers)


class SkipTable:
    """Builder of a skip table; equal programs are stored once. numbers: the table, to which programs are appended."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers, self._places = numbers, dict[tuple[int, ...], int]()

    def add_schema_program(self, schema: Construct) -> int:
        """Add the program of a schema; return its place."""
        return self.append_program(SkipProgram(self, schema).lines)

    def append_program(self, lines: list[list[int]]) -> int:
        """Append a program; return its place."""
        program = (*(number for line in lines for number in line), END)
        if program not in self._places:
            self._places[program] = len(self.numbers)
            self.numbers += program
        return self._places[program]


class SkipProgram:
    """The program of a skip table for a schema of numbers, vectors, counted arrays and conditions.

    Checks of values are left out. Two registers hold the numbers that later fields refer to.

    Attributes:
        min_size: bytes that the fields have at least.
    """

    def __init__(self, table: SkipTable, schema: Construct) -> None:
        self._table, self._lines, self._registers_used = table, list[list[int]](), 0
        self._sources: list[tuple[int, int]] = []
        self.min_size = self._add_field_instructions(schema, {})
        for user, source in self._sources:
            register = self._lines[source][1]
            if any(line[:2] == [READ, register] for line in self._lines[source + 1 : user]):
                raise ValueError("a schema with more than two numbers that later fields refer to at once")

    @property
    def lines(self) -> list[list[int]]:
        """The instructions, successive numbers and bytes joined."""
        lines = list[list[int]]()
        for line in self._lines:
            last = lines[-1] if lines and lines[-1][:2] == line[:2] and line[1] < 0 else None
            if last is not None and line[0] == NUMBERS and last[2] == line[2]:
                last[3] += line[3]
            elif last is not None and line[0] == BYTES:
                last[2] += line[2]
            else:
                lines.append([*line])
        return lines

    def _add_field_instructions(self, node: Construct, names: dict[str, int]) -> int:
        """Add the instructions of a field; return the bytes that it has at least. names: lines of the fields before."""
        while isinstance(node, Subconstruct) and not isinstance(node, Array):
            node = node.subcon
        if isinstance(node, Struct):
            return self._add_members(node)
        if isinstance(node, Zint | Varint):
            self._lines.append([NUMBERS, -1, ZINT if isinstance(node, Zint) else VARINT, 1])
            return 1
        if isinstance(node, Vector):
            size = self._add_field_instructions(node.count, names)
            self._add_counted_instruction(BYTES, len(self._lines) - 1, node.width)
            return size
        if isinstance(node, FormatField):
            self._lines.append([BYTES, -1, node.sizeof(), 0])
            return int(node.sizeof())
        if isinstance(node, Array):
            self._add_array(names[node.count._Path__field], node.subcon)
        elif isinstance(node, Bytes):
            self._add_counted_instruction(BYTES, names[node.length._Path__field], 1)
        elif isinstance(node, IfThenElse):
            place = self._table.add_schema_program(node.thensubcon)
            self._add_counted_instruction(IF, names[node.condfunc.lhs._Path__field], 0, place)
        elif isinstance(node, Switch):
            cases = [(value, self._table.add_schema_program(case)) for value, case in node.cases.items()]
            self._add_counted_instruction(
                SWITCH, names[node.keyfunc._Path__field], len(cases), len(self._table.numbers)
            )
            self._table.numbers += [number for case in cases for number in case]
        elif not isinstance(node, Check):
            raise TypeError(node)
        return 0

    def _add_members(self, struct_: Struct) -> int:
        names, size = dict[str, int](), 0
        for member in struct_.subcons:
            names[member.name] = len(self._lines)
            size += self._add_field_instructions(member, names)
        return size

    def _add_array(self, source: int, element: Construct) -> None:
        program = SkipProgram(self._table, element)
        lines = program.lines
        if len(lines) == 1 and lines[0][1] < 0:
            self._add_counted_instruction(lines[0][0], source, *lines[0][2:])
        else:
            self._add_counted_instruction(REPEAT, source, program.min_size, self._table.append_program(lines))

    def _add_counted_instruction(self, instruction: int, count_line: int, size: int, place: int = 0) -> None:
        """Add an instruction that takes its count from the number that line `count_line` reads."""
        line = self._lines[count_line]
        if line[0] != READ:
            self._lines[count_line] = line = [READ, self._registers_used % 2, line[2], 0]
            self._registers_used += 1
        self._sources.append((len(self._lines), count_line))
        self._lines.append([instruction, line[1], size, place])


class ReconfigureSettings(Construct):  # type: ignore[misc]
    """Construct type of the opaque bytes of RECONFIGURE, up to a right checksum followed by a record or the end.

    In the schema it must follow the op byte and the zints `id`, `tid` and `time`.
    """

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        position = stream_tell(stream, path)
        size = 1 + sum(getattr(value, "width", varint_size(value)) for value in (context.id, context.tid, context.time))
        stream_seek(stream, position - size, 0, path)
        data = stream.read()
        end = find_settings_end_by_checksum(data, 0, size, len(data))
        if end < 0:
            stream_seek(stream, position, 0, path)
            raise MalformedError("no end of the settings with a right checksum", path)
        stream_seek(stream, position - size + end, 0, path)
        return bytes(data[size:end])

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream_write(stream, obj, len(obj), path)
        return obj
