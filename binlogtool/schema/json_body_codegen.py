"""Generate code that writes the members of records and their bodies as JSON.

A function `body(buf, p, n, …, out, o, z)` writes the body at `buf[p:n]` and returns the same as kernels that write JSON
(`format_api.json_text_kernels`). It refuses a truncated body; the general writer reports the error. It first reads all
fields, then writes them; a list is read again for that, element by element, so that long lists take no memory. Constant
texts are stored eight bytes at a time.

The functions of `schema.json_line_codegen` loop over the records of a batch; the beginning of the loop, which loads the
inputs of the format's kernels, is generated here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

from binlogtool.format_api.format import JsonBodies, JsonEncoder, JsonLine, JsonMember
from binlogtool.format_api.json_text_kernels import (
    NO_SPACE,
    UNSUPPORTED,
    build_name_table,
    build_text_table,
    write_json_bytes,
    write_json_signed,
    write_json_unsigned,
)
from binlogtool.format_api.layout import CRC32, Batch, Column, Kernel, LogFileLayout, RecordPositions, compute_crc32
from binlogtool.format_api.schema_fields import BodySchema, LeafFormat
from binlogtool.schema import native_library
from binlogtool.schema.backends import compile_generated_function, get_native_backend
from binlogtool.schema.kernel_body_codegen import MachineBodyGenerator
from binlogtool.schema.lower_body_schema import (
    ArgumentNumber,
    OutputBytes,
    OutputEnum,
    OutputGroup,
    OutputList,
    OutputMember,
    OutputNumber,
    OutputTitle,
    ShownValue,
    list_shown_members,
    lower_body,
)
from binlogtool.schema.lower_frame_schema import UnlowerableError
from binlogtool.schema.native_library import NativeFunction, PinnedMemory, as_int64_memory
from binlogtool.schema.schema_operations import (
    MACHINE,
    Num,
    Repeat,
    SourceLines,
    format_value_source,
    iter_operations,
    wrap_int64,
)

# --- Generated code that writes bodies as JSON ---

_MAX_NUMBER_SIZE = 25
"""Maximum bytes of a number, including working space."""


def generate_json_body(body_schema: BodySchema, kernels: native_library.KernelNames) -> tuple[str, str]:
    """Return the name of the function, which contains the hash of its text, and the text with the tables that it uses.

    Raises:
        UnlowerableError: a part of the body has no compiled form.
    """
    generator = _JsonBodyGenerator(body_schema, kernels)
    name = native_library.make_symbol("body", generator.line.join())
    parameters = ", ".join(["buf", "p", "n", *body_schema.parameters, "out", "o", "z"])
    function_body = "".join(f"    {line}\n" for line in generator.line.join().splitlines())
    tables = "".join(f"{table} = {words}\n" for table, words in generator.tables.items())
    return name, f"{tables}def {name}({parameters}):\n{function_body}"


def generate_json_kernel(body_schema: BodySchema, kernels: native_library.KernelNames) -> str:
    """Return the text of the kernel that writes a body (`schema_fields.make_json_kernel`)."""
    name, text = generate_json_body(body_schema, kernels)
    if not text.startswith(f"def {name}("):
        raise UnlowerableError("", "a kernel has no tables")
    return text.replace(name, "write", 1)


def make_json_function(body_schema: BodySchema) -> Kernel:
    """Return the kernel that writes a body as JSON, as a Python function."""
    return compile_generated_function(lambda kernels: generate_json_kernel(body_schema, kernels), "write")


class _JsonBodyGenerator(MachineBodyGenerator):
    """Generator of the lines of the function."""

    def __init__(self, body_schema: BodySchema, kernels: native_library.KernelNames) -> None:
        body = lower_body(body_schema.schema)
        members = list_shown_members(body_schema, body)
        super().__init__(body, members, kernels)
        self._pending: list[bytes | str] = []
        self._lists = {op.path: op for op in iter_operations(body.ops) if isinstance(op, Repeat)}
        self.tables: dict[str, str] = {}
        self.emit_operations(body.ops)
        self._emit_object(members)
        self._emit_pending()
        self.line("return o")

    # -- writing -----------------------------------------------------------------------------------------------------

    def _emit_object(self, members: tuple[OutputMember, ...], *, is_list: bool = False) -> None:
        """Emit an object or a list; if its first member may be absent, a comma follows each, but not the last one."""
        ends_with_comma, test = bool(members) and members[0].test is not None, None
        self._append_text(b"[" if is_list else b"{")
        for index, member in enumerate(members):
            if member.test != test:
                self._emit_pending()
            test = member.test
            if test is None:
                self._emit_member(member, index > 0 and not ends_with_comma, ends_with_comma, is_list)
                continue
            self.line(f"if {self.format_test(test)}:")
            with self.line.indent():
                self._emit_member(member, index > 0 and not ends_with_comma, ends_with_comma, is_list)
                self._emit_pending()
        if ends_with_comma:
            self._emit_pending()
            self.line("if load_u1(out + o - 1) == 44:")
            with self.line.indent():
                self.line("o -= 1")
        self._append_text(b"]" if is_list else b"}")

    def _emit_member(self, member: OutputMember, comma_before: bool, comma_after: bool, is_list: bool) -> None:
        leaf = member.value.leaf if isinstance(member.value, OutputBytes) else None
        is_named = not is_list and (leaf is None or not leaf.writes_members)
        name = json.dumps(member.name).encode() + b":" if is_named else b""
        self._append_text(b"," * comma_before + name)
        self._emit_value(member.value)
        self._append_text(b"," * comma_after)

    def _emit_value(self, value: ShownValue | ArgumentNumber) -> None:
        match value:
            case OutputNumber():
                self._pending.append(self._format_number_call(value))
            case ArgumentNumber(name=name):
                self._pending.append(f"{self.kernels.add_kernel(write_json_unsigned)}({name}, out, o, z)")
            case OutputEnum():
                self._emit_enum(value)
            case OutputBytes(path=path, leaf=leaf, given=given):
                self._emit_leaf(self.names[path], leaf, given)
            case OutputGroup(members=members, is_list=is_list):
                self._emit_object(members, is_list=is_list)
            case OutputTitle(parts=None):
                self._append_text(b"null")
            case OutputTitle(parts=parts):
                self._emit_title(parts or ())
            case OutputList(path=path, element=element):
                self._emit_list(self._lists[path], element)

    def _emit_list(self, op: Repeat, element: ShownValue) -> None:
        self._append_text(b"[")
        self._emit_pending()
        self.emit_elements(op, partial(self._emit_element, element))
        self.line(f"if {self.names[op.path]}_n > 0:")
        with self.line.indent():
            self.line("o -= 1")  # the comma after the last element
        self._append_text(b"]")

    def _emit_element(self, element: ShownValue) -> None:
        self._emit_value(element)
        self._append_text(b",")
        self._emit_pending()

    def _format_number_call(self, value: OutputNumber | OutputEnum) -> str:
        put = write_json_signed if value.signed else write_json_unsigned
        return f"{self.kernels.add_kernel(put)}({self.names[value.path]}, out, o, z)"

    def _emit_enum(self, value: OutputEnum) -> None:
        self._emit_pending()
        for index, (number, name) in enumerate(value.names):
            self.line(f"{'el' if index else ''}if {self.names[value.path]} == {number}:")
            with self.line.indent():
                self._append_text(json.dumps(name).encode())
                self._emit_pending()
        self.line("else:")
        with self.line.indent():
            self._pending.append(self._format_number_call(value))
            self._emit_pending()

    def _emit_title(self, parts: Iterable[str | OutputNumber | OutputBytes | ArgumentNumber]) -> None:
        self._append_text(b'"')
        for part in parts:
            if isinstance(part, str):
                self._append_text(json.dumps(part)[1:-1].encode())
            elif isinstance(part, OutputBytes):
                if part.leaf is None or not part.leaf.unquoted:
                    raise UnlowerableError(part.path, "it has no text without quotes")
                self._emit_put(self.names[part.path], part.leaf)
            else:
                self._emit_value(part)
        self._append_text(b'"')

    def _emit_leaf(self, name: str, leaf: LeafFormat | None, given: tuple[tuple[str, bool], ...]) -> None:
        quote = b'"' if leaf is not None and leaf.unquoted else b""
        self._append_text(quote)
        self._emit_put(name, leaf, given)
        self._append_text(quote)

    def _emit_put(self, name: str, leaf: LeafFormat | None, given: tuple[tuple[str, bool], ...] = ()) -> None:
        if leaf is not None and leaf.json_kernel is None:
            raise UnlowerableError(name, "only the general writer writes it")
        put = write_json_bytes if leaf is None or leaf.json_kernel is None else leaf.json_kernel.value
        self._emit_pending()
        table = (
            f"{self._add_table(leaf.text_table.value)}, " if leaf is not None and leaf.text_table is not None else ""
        )
        values = "" if leaf is None or leaf.constant is None else f"{leaf.constant}, "
        values += "".join(f"{self.names[path]}{'' if is_number else '_a'}, " for path, is_number in given)
        self.line(f"o = {self.kernels.add_kernel(put)}(buf, {name}_a, {name}_z, {table}{values}out, o, z)")
        self.emit_return_if("o < 0", "o")

    def _add_table(self, table: bytes) -> str:
        """Add constant bytes, stored as integers of eight bytes; return their name."""
        words = memoryview(table + bytes(-len(table) % 8)).cast("q").tolist()
        name = native_library.make_symbol("TABLE", repr(words))
        self.tables[name] = repr(words)
        return name

    def _append_text(self, text: bytes) -> None:
        if self._pending and isinstance(self._pending[-1], bytes):
            self._pending[-1] += text
        elif text:
            self._pending.append(text)

    def _emit_pending(self) -> None:
        """Emit the pending texts and numbers after one check of the output space."""
        if not self._pending:
            return
        needed = sum(len(one) if isinstance(one, bytes) else _MAX_NUMBER_SIZE for one in self._pending) + 8
        self.emit_return_if(f"z - o < {needed}", "-1")
        for one in self._pending:
            if isinstance(one, str):
                self.line(f"o = {one}")
                continue
            for k in range(0, len(one), 8):
                word = wrap_int64(int.from_bytes(one[k : k + 8], "little"))
                where = f"out + o + {k}" if k else "out + o"
                self.line(f"store_i8_little({where}, {format_value_source(Num(word), {}, MACHINE)})")
            self.line(f"o += {len(one)}")
        self._pending = []


# --- Inputs of the generated functions that write members of records ---

COPY_PADDING = 8
"""Number of bytes that must be readable and writable after source and target of a copy."""

MAX_TABLE_TEXTS = 4096
NOTES_SIZE = 256
ENVELOPE = ("type", "seq", "time", "object", "origin", "txn")
CHECKSUM_NONE, CHECKSUM_RIGHT, CHECKSUM_ABSENT = range(3)
"""Values of the column `checksum` of frames; CHECKSUM_ABSENT: the writer did not compute it."""

_FRAME_COLUMNS = ("offset", "end", "checksum")
_POSITION_PREFIX = "place."
_POSITION_COLUMNS = tuple(_POSITION_PREFIX + name for name in RecordPositions._fields)
BATCH_PARAMETERS = "buf, records, frames, spans, tables, words"
"""First parameters of a generated function: addresses of the arena, of columns, of tables and of constant texts."""

D_co = TypeVar("D_co", covariant=True)


class WrittenRecords(NamedTuple, Generic[D_co]):
    """Output for the records before `next_record`; `data` is valid until the next call.

    Attributes:
        refused: True if compiled code cannot write the record `next_record`; else there was no more space, or no more
            record.
    """

    data: D_co
    next_record: int
    refused: bool


class MemberSlot(NamedTuple):
    """Member that the format writes. table: True if its kernel uses a table of texts. bodies: see `JsonMember`."""

    name: str
    kernel: Kernel | None
    columns: tuple[str, ...]
    table: bool
    bodies: JsonBodies | None = None


class MemberShape(NamedTuple):
    """All properties that a generated function depends on.

    Attributes:
        algorithm: Name of the checksum; stored: the column of its stored value.
        covered: The columns with the range of a CRC-32, if compiled code also handles frames without a checksum.
        start: The column with the start of a frame's rows; None = the frames are the records.
        inside: See `JsonLine`.
    """

    slots: tuple[MemberSlot, ...]
    algorithm: str | None
    stored: str
    covered: tuple[str, str] | None
    start: str | None
    inside: bool = False


class CompiledMembers:
    """Members of one file's records that compiled code writes. body, extras: whether to write these members."""

    def __init__(
        self, line: JsonLine, layout: LogFileLayout, quote: JsonEncoder, *, body: bool = True, extras: bool = True
    ) -> None:
        self.shape = make_member_shape(line, layout, body=body, extras=extras)
        self._derive = line.derive
        native = get_native_backend()
        self._compile = (lambda kernel: kernel) if native is None else native.compile_kernel
        members = _list_members(line, body, extras)
        self._texts = [TextTable(member, quote) for _, member in members if _has_table(member)]

    @property
    def has_too_many_texts(self) -> bool:
        """True if rebuilding a table of texts could cost more than compiled code saves."""
        return any(texts.is_too_large for texts in self._texts)

    def get_batch_addresses(self, batch: Batch, code: RecordLoopCode) -> BatchAddresses | None:
        """Return the addresses that a function needs, valid as long as the batch.

        None if compiled code cannot handle the batch.
        """
        if code.function is None:
            return None
        derived = {} if self._derive is None else self._derive(batch, self._compile)
        return None if derived is None else BatchAddresses(batch, code, derived)

    def build_tables(self) -> ArrayAddresses:
        """Return the current tables of texts."""
        return ArrayAddresses([texts.build_current_table() for texts in self._texts])


def make_member_shape(line: JsonLine, layout: LogFileLayout, *, body: bool = True, extras: bool = True) -> MemberShape:
    """Return the shape of the members for these records."""
    slots = tuple(
        MemberSlot(name, m.kernel, m.columns, _has_table(m), m.bodies) for name, m in _list_members(line, body, extras)
    )
    checksum, rows = layout.frame.checksum, layout.rows
    algorithm = None if checksum is None or layout.frame.stored is None or line.inside else checksum.name
    covered = layout.frame.covered if checksum is CRC32 and rows is None else None
    start = None if rows is None else rows.start
    return MemberShape(slots, algorithm, layout.frame.stored or "", covered, start, line.inside)


def _list_members(line: JsonLine, body: bool, extras: bool) -> list[tuple[str, JsonMember]]:
    members = [(name, getattr(line, name)) for name in (*ENVELOPE, *(["body"] if body else ()))]
    return [*members, *(line.extras if extras else ())]


def _has_table(member: JsonMember) -> bool:
    return member.texts is not None or member.names is not None or member.table is not None


class TextTable:
    """Table of the texts of one member, rebuilt when the texts have changed."""

    def __init__(self, member: JsonMember, quote: JsonEncoder) -> None:
        self._make_table = None if member.table is None else partial(member.table, quote)
        self._raw_table: bytes | None = None
        texts = member.texts if member.names is None else member.names
        self._texts: Mapping[int, Any] = {} if texts is None else texts
        self._pack = build_text_table if member.names is None else build_name_table
        self._quote = lru_cache(maxsize=2 * MAX_TABLE_TEXTS)(quote)
        self._packed_texts: Mapping[int, Any] | None = None
        self._table = b""

    @property
    def is_too_large(self) -> bool:
        """True if rebuilding the table could cost more than compiled code saves."""
        return len(self._texts) > MAX_TABLE_TEXTS

    def build_current_table(self) -> bytes:
        """Return the current table."""
        if self._make_table is not None:
            return self._pad_table(self._make_table())
        if self._texts != self._packed_texts:
            self._packed_texts = dict(self._texts)
            self._table = self._pack({number: self._quote(text) for number, text in self._packed_texts.items()})
        return self._table

    def _pad_table(self, table: bytes) -> bytes:
        """Return a table made by the format, padded for copies in steps of eight bytes."""
        if table is not self._raw_table:
            self._raw_table, self._table = table, pad_for_copy(table)
        return self._table


class BatchAddresses:
    """Addresses of the arena and the columns of a batch; it pins them in memory."""

    def __init__(self, batch: Batch, code: RecordLoopCode, derived: Mapping[str, Column]) -> None:
        columns = {**batch.records.columns, **derived}
        if batch.positions is not None:
            columns |= {_POSITION_PREFIX + name: column for name, column in batch.positions._asdict().items()}
        spans = [] if batch.rows is None else [as_int64_memory(batch.span_starts), bytes(batch.packed)]
        self._pinned = (
            PinnedMemory(batch.arena),
            ArrayAddresses([as_int64_memory(columns[name]) for name in code.columns]),
            ArrayAddresses([as_int64_memory(batch.frames[name]) for name in code.frame_columns]),
            ArrayAddresses(spans),
        )
        self.arrays = tuple(kept.address for kept in self._pinned)
        self.numbers = (batch.base, batch.first_record)


class RecordMask:
    """Mask of selected records from `first` on, a byte for each; None = all."""

    def __init__(self, mask: bytes | None, first: int) -> None:
        self._pinned = None if mask is None else PinnedMemory(mask)
        self.address = 0 if self._pinned is None else self._pinned.address - first


class ArrayAddresses:
    """Array of the addresses of several arrays; it pins them in memory."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays = [PinnedMemory(array) for array in arrays]
        self._list = PinnedMemory(as_int64_memory([held.address for held in self._arrays]))
        self.address = self._list.address


def pad_for_copy(text: bytes) -> bytes:
    """Return the bytes, padded for copies in steps of eight bytes."""
    return text + bytes(COPY_PADDING)


class RecordLoopCode:
    """Generator of a function that loops over records (`emit_record_loop`); the caller adds the body of the loop."""

    def __init__(self, shape: MemberShape) -> None:
        self.shape = shape
        start = shape.start
        slot_columns = [name for slot in shape.slots for name in slot.columns]
        position_columns = ("span",) if start else _POSITION_COLUMNS if shape.inside else ()
        self.columns = tuple(dict.fromkeys([*position_columns, "offset", "end", *slot_columns]))
        checksum = (shape.stored, *(shape.covered or ())) if shape.algorithm else ()
        self.frame_columns = tuple(dict.fromkeys([*_FRAME_COLUMNS, *checksum, *((start,) if start else ())]))
        self.line = SourceLines()
        self.words = b""
        self._tables = [slot for slot in shape.slots if slot.table]
        self.kernels = native_library.KernelNames()
        self._helpers: dict[str, str] = {}
        self.function: NativeFunction | None = None

    def format_text(self) -> str:
        """Return the text of the function so far, preceded by the functions that it calls."""
        return "\n".join([*self._helpers.values(), self.line.join()])

    @property
    def symbol(self) -> str:
        """Name of the function in the library."""
        return native_library.make_symbol("write", self.format_text())

    @contextmanager
    def emit_record_loop(
        self, parameters: str, prelude: Iterable[str], count: str, *, masked: bool = True
    ) -> Iterator[None]:
        """Emit the function `write`; its loop over the records has the body that the `with` block emits.

        At the end, the function is looked up in the library; `function` stays None if the library lacks it.

        Args:
            parameters: those after BATCH_PARAMETERS, up to the end of the output.
            prelude: lines before the loop.
            count: the variable to return after `i`: what the complete records have written.
            masked: records that are not in the mask are skipped.
        """
        line = self.line
        line(f"def write({BATCH_PARAMETERS}, {parameters}, base, first, i, stop):")
        with line.indent():
            for kind, columns in (("records", self.columns), ("frames", self.frame_columns)):
                for k in range(len(columns)):
                    line(f"{kind}{k} = {kind}[{k}]")
            for one in prelude:
                line(one)
            line("while i < stop:")
            with line.indent():
                if masked:
                    line("if marks != 0 and load_u1(marks + i) == 0:")
                    with line.indent():
                        line("i += 1")
                        line("continue")
                self._emit_load_values()
                yield
                line("i += 1")
            line(f"return i, {count}, min(o, 0)")
        native = get_native_backend()
        self.function = None if native is None else native.find_function(self.symbol, 3, "lines of JSON")

    def _emit_load_values(self) -> None:
        """Emit the loads of the values of record `i`: r0.. of the record, f0.. of its frame; offset, size, inside."""
        line, start = self.line, self.shape.start
        for k in range(len(self.columns)):
            line(f"r{k} = load_i8_native(records{k} + 8 * i)")
        line(f"span = {self.record_variable('span') if start else 'i'}")
        for k in range(len(self.frame_columns)):
            line(f"f{k} = load_i8_native(frames{k} + 8 * span)")
        line(f"offset = base + {self.frame_variable('offset')}")
        line(f"size = {self.record_variable('end')} - {self.record_variable('offset')}")
        if self.shape.inside:
            line(f"offset = {self.record_variable(_POSITION_PREFIX + 'offset')}")
            line(f"inside = {self.record_variable('offset')} - {self.record_variable(_POSITION_PREFIX + 'start')}")
        if start is not None:
            line(f"inside = {self.record_variable('offset')} - load_i8_native(spans[0] + 8 * span)")
            line("packed = load_u1(spans[1] + span)")
            line("if packed == 0:")
            with line.indent():
                line(f"offset = base + {self.frame_variable(start)} + inside")

    def record_variable(self, name: str) -> str:
        """Return the variable with a column's value of the record."""
        return f"r{self.columns.index(name)}"

    def frame_variable(self, name: str) -> str:
        """Return the variable with a column's value of the frame."""
        return f"f{self.frame_columns.index(name)}"

    @property
    def size_source(self) -> str:
        """Source of the record's size in the file: that of its container, if the container is packed."""
        if self.shape.inside:
            return self.record_variable(_POSITION_PREFIX + "size")
        if self.shape.start is None:
            return "size"
        return f"size if packed == 0 else {self.frame_variable('end')} - {self.frame_variable('offset')}"

    @property
    def number_source(self) -> str:
        """Source of the number of the record, or of its container."""
        return self.record_variable(_POSITION_PREFIX + "record") if self.shape.inside else "first + i"

    @property
    def is_inner_source(self) -> str:
        """Source of the test whether the record is inside another, at `inside` with `size`; "0" if no record is."""
        return "1" if self.shape.inside else "0" if self.shape.start is None else "packed != 0"

    @property
    def checksum_state(self) -> str:
        """Variable with the state of the checksum."""
        return self.frame_variable("checksum")

    @property
    def stored_checksum(self) -> str:
        """Variable with the stored checksum."""
        return self.frame_variable(self.shape.stored)

    @property
    def computed_checksum(self) -> str:
        """Call that computes the checksum of a frame that stores none."""
        low, high = map(self.frame_variable, self.shape.covered or _FRAME_COLUMNS[:2])
        return self.format_call(compute_crc32, f"buf, {low}, {high}")

    def format_member_call(self, slot: MemberSlot, out: str, o: str) -> str:
        """Return the call of a member's kernel."""
        table = f"tables[{self._tables.index(slot)}]" if slot.table else "0"
        values = "".join(f", {self.record_variable(column)}" for column in slot.columns)
        name = "" if slot.kernel is None else self.kernels.add_kernel(slot.kernel)
        if slot.bodies is not None:
            name = self._generate_body_member(slot, slot.bodies, name)
        return f"{name}(buf, {table}, notes, {out}, {o}, z{values})"

    def _generate_body_member(self, slot: MemberSlot, bodies: JsonBodies, kernel: str) -> str:
        """Generate the function that writes bodies with a schema; the kernel, if any, writes all other bodies."""
        parameters = "buf, texts, notes, out, o, z" + "".join(f", c{k}" for k in range(len(slot.columns)))
        column = {name: f"c{k}" for k, name in enumerate(slot.columns)}
        line = SourceLines()
        for code, shown in bodies.by_code:
            name, text = generate_json_body(shown, self.kernels)
            self._helpers[name] = text
            arguments = "".join(f", {column[dict(bodies.parameters)[one]]}" for one in shown.parameters)
            line(f"if {column[bodies.code]} == {code}:")
            with line.indent():
                line(f"return {name}(buf, {column[bodies.start]}, {column[bodies.end]}{arguments}, out, o, z)")
        line(f"return {kernel}({parameters})" if kernel else f"return {UNSUPPORTED}")
        name = native_library.make_symbol("member", line.join())
        function_body = "".join(f"    {one}\n" for one in line.join().splitlines())
        self._helpers[name] = f"def {name}({parameters}):\n{function_body}"
        return name

    def format_call(self, kernel: Kernel, arguments: str) -> str:
        """Return the call of a kernel."""
        return f"{self.kernels.add_kernel(kernel)}({arguments})"

    def emit_copy_text(self, text: bytes, out: str, o: str) -> None:
        """Emit code that writes constant text; it leaves the loop when the output is full."""
        start, size = len(self.words), len(text)
        self.words += text
        self.emit_copy(f"words + {start}", str(size), out, o)

    def emit_copy(self, source: str, size: str, out: str, o: str) -> None:
        """Emit code that copies memory; it leaves the loop when the output is full."""
        self.emit_stop_if(f"{size} + {COPY_PADDING} > z - {o}", o, NO_SPACE)
        self.line(f"{o} += copy({source}, {out} + {o}, {size})")

    def emit_stop_if(self, test: str, o: str, code: int | None = None) -> None:
        """Emit a test that leaves the loop with a code in `o`; the partial output for this record is discarded."""
        self.line(f"if {test}:")
        with self.line.indent():
            if code is not None:
                self.line(f"{o} = {code}")
            self.line("break")
