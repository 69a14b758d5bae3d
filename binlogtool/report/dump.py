"""Write records as JSON (by compiled code where possible), text cells, CSV, SQL or raw bytes.

The columns of a block become structs that msgspec encodes in C; for the bodies see `core.record_blocks`.
"""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from binlogtool.core.json_text import BodyEncoder, encode_json, encode_json_lines, finding_to_value, to_json_bytes
from binlogtool.core.record_blocks import BlockDecoder, CompiledSplitter, LongValueWriter
from binlogtool.core.record_filter import RecordRange
from binlogtool.core.record_selection import Record, RecordBlock, RecordChecksum, SqlFragment
from binlogtool.errors import suggest_names
from binlogtool.format_api.format import JsonLine
from binlogtool.format_api.json_values import DEFAULT_STYLE, JsonStyle, TimeFormatter, escape_unsafe
from binlogtool.terminal.escape import escape, escape_json

if TYPE_CHECKING:
    from binlogtool.schema.json_line_codegen import LineWriter


# --- Records as JSON (binlogtool/record/1) ---


class ChecksumJson(msgspec.Struct, frozen=True, gc=False):
    """The member `checksum`; values are hexadecimal, most significant digit first."""

    algorithm: str
    stored: str
    computed: str
    ok: bool | None


class InnerJson(msgspec.Struct, frozen=True, gc=False):
    """The member `inner`."""

    offset: int
    size: int


class RecordJson(msgspec.Struct, gc=False):
    """One JSON line; the members are in the documented order."""

    file: Any
    offset: int
    size: int
    record: int
    type: str
    seq: Any
    time: str | None
    object: Any
    origin: Any
    txn: Any
    checksum: ChecksumJson | None
    body: Any
    findings: Sequence[Any] = ()
    inner: InnerJson | msgspec.UnsetType | None = msgspec.UNSET


class RecordJsonEncoder:
    """Encoder of blocks as JSON lines."""

    def __init__(self, style: JsonStyle = DEFAULT_STYLE) -> None:
        self._style = style
        self._bodies = BodyEncoder(style)
        self._time = TimeFormatter()

    def encode_lines(self, block: RecordBlock) -> bytes:
        """Encode all records of the block."""
        structs = self.make_structs(block)
        try:
            return escape_unsafe(encode_json_lines(structs))
        except (UnicodeEncodeError, TypeError, OverflowError):
            return escape_unsafe(b"".join(map(self._encode_line, structs)))

    def to_values(self, block: RecordBlock) -> list[dict[str, Any]]:
        """Return all records of the block as parsed JSON."""
        return [msgspec.json.decode(text) for text in self.encode_lines(block).splitlines()]

    def make_structs(self, block: RecordBlock) -> list[RecordJson]:
        """Return the records as structs whose values msgspec can encode."""
        envelope, count = block.envelope, len(block)
        seq, txn, origin = envelope.seq, envelope.txn, envelope.origin
        extras = _collect_extra_columns(block.extras or ())
        records = list(
            map(
                _make_record_struct(tuple(extras)),
                repeat(self._style.text_value(block.file), count),
                block.offset,
                block.size,
                block.record,
                envelope.type,
                seq,
                self._time.format_column(envelope.time),
                envelope.object,
                origin,
                txn,
                iter_checksums(block.checksum),
                self._bodies.encode(block.bodies) if block.bodies else repeat(None, count),
                repeat((), count),
                repeat(msgspec.UNSET, count),
                *(self._bodies.encode(column) for column in extras.values()),
            )
        )
        for i, findings in block.findings.items():
            records[i].findings = [self._style.to_json_value(finding_to_value(f)) for f in findings]
        if any(block.inner):
            for struct, inner in zip(records, block.inner, strict=True):
                struct.inner = msgspec.UNSET if inner is None else InnerJson(*inner)
        return records

    def _encode_line(self, struct: RecordJson) -> bytes:
        if not isinstance(struct.body, msgspec.Raw):
            struct.body = self._bodies.encode_one(struct.body)
        values = [getattr(struct, field) for field in struct.__struct_fields__]
        named = zip(struct.__struct_encode_fields__, values, strict=True)
        members = {name: value for name, value in named if value is not msgspec.UNSET}
        for name in members.keys() - {"file", "body", "checksum", "findings", "inner"}:
            if not isinstance(members[name], msgspec.Raw):
                members[name] = self._style.to_json_value(members[name])
        return encode_json(members) + b"\n"


@functools.lru_cache(256)
def _make_record_struct(names: tuple[str, ...]) -> Callable[..., RecordJson]:
    """Return `RecordJson` with additional members of any names."""
    if not names:
        return RecordJson
    fields = [(f"extra_{i}", Any, msgspec.UNSET) for i in range(len(names))]
    renamed = {f"extra_{i}": name for i, name in enumerate(names)}
    defined: Any = msgspec.defstruct("RecordJson", fields, bases=(RecordJson,), gc=False, rename=renamed)
    record_class: Callable[..., RecordJson] = defined
    return record_class


def _collect_extra_columns(extras: Sequence[Mapping[str, Any] | None]) -> dict[str, list[Any]]:
    """Return the additional members as columns, by name; UNSET where a record lacks the member."""
    names = dict.fromkeys(name for members in extras if members for name in members)
    return {
        name: [members.get(name, msgspec.UNSET) if members else msgspec.UNSET for members in extras] for name in names
    }


def iter_checksums(column: Iterable[RecordChecksum | None]) -> Iterator[ChecksumJson | None]:
    """Yield the member `checksum` of each record; consecutive records of one frame share the object."""
    last: RecordChecksum | None = None
    checksum: ChecksumJson | None = None
    for checked in column:
        if checked is not last:
            last = checked
            checksum = (
                None
                if checked is None
                else ChecksumJson(checked.algorithm, f"{checked.stored:08x}", f"{checked.computed:08x}", checked.ok)
            )
        yield checksum


class FieldJsonEncoder:
    """Encoder of blocks as JSON lines with some of the members: `--fields`, `--no-offsets`.

    Args:
        fields: Top-level names, or paths into the body such as `body.tuple`; empty = all.
    """

    def __init__(self, encoder: RecordJsonEncoder, fields: Sequence[str] = (), offsets: bool = True) -> None:
        self._encoder = encoder
        self._fields = tuple(fields)
        self._dropped = () if offsets else ("offset", "size", "inner")

    def encode_lines(self, block: RecordBlock) -> bytes:
        """Encode all records of the block."""
        if not self._fields and not self._dropped:
            return self._encoder.encode_lines(block)
        return escape_unsafe(encode_json_lines(self.to_values(block)))

    def to_values(self, block: RecordBlock) -> list[dict[str, Any]]:
        """Return all records of the block as parsed JSON."""
        return [self._select_members(value) for value in self._encoder.to_values(block)]

    def _select_members(self, value: dict[str, Any]) -> dict[str, Any]:
        if self._fields:
            return {name: find_member(value, name) for name in self._fields}
        return {name: v for name, v in value.items() if name not in self._dropped}


def list_member_names() -> tuple[str, ...]:
    """Return the names of all members that a record of any format may have."""
    from binlogtool import formats

    extras = (name for known in formats.iter_formats() for name in known.output.extra_names)
    return tuple(dict.fromkeys((*RecordJson.__struct_fields__, *extras)))


def find_member(value: Any, path: str) -> Any:
    """Return the member at a path; None if there is none. Names that contain dots are also found."""
    if isinstance(value, Mapping):
        if path in value:
            return value[path]
        name, _, subpath = path.partition(".")
        return find_member(value.get(name), subpath) if subpath else None
    return None


# --- Records as JSON lines from compiled code ---

T = TypeVar("T")


class EncodedLines(SqlFragment):
    """Finished lines of some records of a file; the bytes are valid until the next lines are requested."""

    __slots__ = ()


class CompiledLineEncoder:
    """Encoder of record ranges as JSON lines by compiled code, in the default style only."""

    def __init__(self) -> None:
        self._compiled = CompiledSplitter(_make_line_writer)

    def encode_ranges(self, parts: Iterable[RecordRange | T]) -> Iterator[EncodedLines | RecordBlock | T]:
        """Yield the same parts, with record ranges replaced by lines and blocks."""
        for part in parts:
            if isinstance(part, RecordRange):
                yield from self.encode_range(part)
            else:
                yield part

    def encode_range(self, record_range: RecordRange) -> Iterator[EncodedLines | RecordBlock]:
        """Yield the records of a range in order: finished lines, and blocks for the general encoder."""
        for part in self._compiled.split_range(record_range):
            if isinstance(part, RecordBlock):
                yield part
            else:
                place = record_range.batch.container_position(record_range.last_selected(part.start, part.stop))
                yield EncodedLines(
                    record_range.decoder.file,
                    record_range.selected_numbers(part.start, part.stop),
                    (place.offset,),
                    part.data,
                )


def _make_line_writer(json_line: JsonLine, blocks: BlockDecoder) -> LineWriter:
    from binlogtool.schema.json_line_codegen import LineWriter

    line_start = b'{"file":' + to_json_bytes(DEFAULT_STYLE.text_value(blocks.file)) + b',"offset":'
    return LineWriter(json_line, blocks.layout, line_start, to_json_bytes)


# --- Writers for records ---


class RecordWriter(Protocol):
    """Writer of record blocks in one output format."""

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the output for one block."""

    def finish(self) -> bytes:
        """Return the output after the last block."""


def make_value_filler(form: str, bytes_form: str) -> LongValueWriter:
    """Return the object that inserts long values into the output of a writer."""
    return LongValueWriter(JsonStyle(bytes_form), doubles_quotes=form == "csv")


class JsonLinesWriter:
    """`-O jsonl`: one object per line."""

    def __init__(self, encoder: FieldJsonEncoder) -> None:
        self._encoder = encoder

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return one line per record."""
        return self._encoder.encode_lines(block)

    def finish(self) -> bytes:
        """Return nothing."""
        return b""


class JsonWriter:
    """`-O json`: one document; its records are the lines of `-O jsonl`."""

    def __init__(self, encoder: FieldJsonEncoder) -> None:
        self._encoder = encoder
        self._start = b'{"schema":"binlogtool/record/1","records":['

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the records, separated by commas."""
        records = self._encoder.encode_lines(block).rstrip(b"\n").replace(b"\n", b",\n")
        if not records:
            return b""
        start, self._start = self._start, b","
        return start + b"\n" + records

    def finish(self) -> bytes:
        """Return the end of the document."""
        return (self._start if self._start != b"," else b"") + b"\n]}\n"


class RecordCells(msgspec.Struct, frozen=True):
    """One record as text cells, shared by text, table and CSV. The field names are the column names."""

    file: str
    offset: int
    size: int
    record: int
    type: str
    seq: str
    time: str
    object: str
    origin: str
    txn: str
    checksum: str
    body: str


COLUMNS = tuple(RecordCells.__struct_fields__)
"""Column names of CSV and tables."""


class CellFormatter:
    """Formatter of blocks as cells. All text from the data is escaped; bodies are JSON."""

    def __init__(self, style: JsonStyle) -> None:
        self._encoder = RecordJsonEncoder(style)
        self._bodies = BodyEncoder(style)
        self._time = TimeFormatter()

    def format_rows(self, block: RecordBlock, columns: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the named cells of each record.

        A name that is no column is a path into the record's JSON (`body.tuple`).
        """
        paths = [name for name in columns if name not in COLUMNS]
        records = self._encoder.to_values(block) if paths else repeat({})
        for cells, record in zip(self.format_cells(block), records, strict=False):
            yield [self._format_member(record, name) if name in paths else getattr(cells, name) for name in columns]

    def _format_member(self, record: dict[str, Any], path: str) -> str:
        """Return the value at a path: text unchanged, other values as JSON, "" if there is none."""
        value = find_member(record, path)
        return _format_cell(value) if value is None or isinstance(value, str) else self._format_body(value)

    def format_cells(self, block: RecordBlock) -> Iterator[RecordCells]:
        """Yield the cells of each record."""
        file = escape(block.file)
        for record in block:
            yield RecordCells(
                file, record.offset, record.size, record.record, escape(record.type), _format_cell(record.seq),
                self._time(record.time) or "",
                _format_cell(record.object), _format_cell(record.origin), _format_cell(record.txn),
                _format_checksum(record),
                "" if record.body is None else self._format_body(record.body),
            )  # fmt: skip

    def _format_body(self, body: Any) -> str:
        return escape_json(escape_unsafe(bytes(self._bodies.encode_one(body))).decode("utf-8"))


def _format_cell(value: object) -> str:
    return "" if value is None else escape(str(value))


def _format_checksum(record: Record) -> str:
    """Return the verdict on the checksum; UNPROVEN marks a record whose content cannot be decoded."""
    if any(found.id == "payload-undecodable" and "inner_offset" in found.facts for found in record.findings):
        return "UNPROVEN"
    return "" if record.checksum is None else {True: "ok", False: "BAD", None: "absent"}[record.checksum.ok]


class CsvWriter:
    """`-O csv`: a heading, then one row per record; the body is a cell of JSON.

    Args:
        neutralize: Put an apostrophe before cells that a spreadsheet would take for formulas.
    """

    def __init__(self, style: JsonStyle, *, neutralize: bool = False, columns: tuple[str, ...] = ()) -> None:
        self._cells = CellFormatter(style)
        self._neutralize = neutralize
        self._columns = columns or COLUMNS
        self._started = False

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the rows of one block."""
        rows = [[self._format_cell(value) for value in row] for row in self._cells.format_rows(block, self._columns)]
        heading, self._started = ([] if self._started else [list(self._columns)]), True
        return encode_csv([*heading, *rows])

    def _format_cell(self, value: Any) -> Any:
        return neutralize_formula(value) if self._neutralize and isinstance(value, str) else value

    def finish(self) -> bytes:
        """Return the heading if no record was written, else nothing."""
        return b"" if self._started else encode_csv([list(self._columns)])


def encode_csv(rows: list[list[Any]]) -> bytes:
    """Encode rows as CSV with LF line ends."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "backslashreplace")


def neutralize_formula(text: str) -> str:
    """Return the cell, with an apostrophe before it if a spreadsheet would take it for a formula."""
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") and text else text


class RawWriter:
    """`-O raw`: the exact bytes of the records, one after the other."""

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the bytes of the records."""
        return b"".join(block.raw or ())

    def finish(self) -> bytes:
        """Return nothing."""
        return b""


# --- Writer for `-O sql` ---


class SqlWriter:
    """`-O sql`: the statements unchanged, except that control characters are escaped for a terminal."""

    def __init__(self, *, terminal: bool = False) -> None:
        self._terminal = terminal

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the statements of one block; a record without one becomes a comment."""
        return bytes(self.encode_text(b"".join(self._encode_record(block, i) for i in range(len(block)))))

    def _encode_record(self, block: RecordBlock, i: int) -> bytes:
        comments = "".join(
            f"# {found.id} at {block.offset[i]}: {escape(found.message)}\n" for found in block.findings.get(i, ())
        )
        return comments.encode("utf-8", "backslashreplace") + (block.bodies[i] or b"")

    def encode_text(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return a piece of the script for output."""
        if not self._terminal:
            return data
        lines = bytes(data).decode("utf-8", "surrogateescape").split("\n")
        return "\n".join(map(escape, lines)).encode("utf-8", "backslashreplace")

    def finish(self) -> bytes:
        """Return nothing."""
        return b""


# --- Names in `--fields` that no record has ---

_BODY = "body"
_MAX_KNOWN_NAMES = 1000


class FieldNameCheck:
    """Comparison of the requested fields below `body` with the members of the bodies."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._pending = {field: field.split(".")[1:] for field in fields if field.startswith(_BODY + ".")}
        self._count = len(fields)
        self._records = 0
        self._known = set[str]()

    def check_block(self, block: RecordBlock) -> None:
        """Check the next records."""
        if not self._pending:
            return
        self._records += len(block)
        for body in block.bodies:
            if isinstance(body, Mapping) and self._pending:
                found = [field for field, path in self._pending.items() if _has_member(body, path)]
                for field in found:
                    del self._pending[field]
                if len(self._known) < _MAX_KNOWN_NAMES:
                    self._known.update(map(str, body))

    @property
    def warnings(self) -> list[str]:
        """Warnings, one for each field that no record has."""
        if not self._records or not self._known:
            return []
        known = {f"{_BODY}.{name}" for name in self._known}
        return [f"--fields {field}: no chosen record has it{suggest_names(field, known)}" for field in self._pending]

    @property
    def are_all_unknown(self) -> bool:
        """True if no record has any of the fields."""
        return len(self._pending) == self._count


def _has_member(value: Any, path: Sequence[str]) -> bool:
    """Return True if there is a member at the path; names that contain dots are also found, see `find_member`."""
    for end in range(1, len(path) + 1):
        name = ".".join(path[:end])
        if isinstance(value, Mapping) and name in value:
            return end == len(path) or _has_member(value[name], path[end:]) or value[name] is None
    return False
