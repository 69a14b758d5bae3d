"""Write records as JSON (by compiled code where possible), text cells, CSV, SQL or raw bytes.

The columns of a block become structs that msgspec encodes in C; for the bodies see `core.decode_batches`.
"""

from __future__ import annotations

import codecs
import csv
import functools
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from binlogtool.core.decode_batches import BlockDecoder, CompiledRunWriter, LongValueWriter
from binlogtool.core.record_and_selection_types import Record, RecordBlock, RecordChecksum, SqlFragment
from binlogtool.core.record_filter import RecordRange
from binlogtool.errors import format_name_suggestions
from binlogtool.findings import Finding, finding_to_value
from binlogtool.format_api.encode_json import (
    DEFAULT_STYLE,
    BodyEncoder,
    JsonStyle,
    TimeFormatter,
    encode_json,
    encode_json_lines,
    escape_invisible_characters,
    format_partial_json_update,
    to_json_bytes,
    to_json_text,
)
from binlogtool.format_api.format import JsonLine, LongValue, RecordDescriber, RecordText, RowChange, RowChanges
from binlogtool.report.format_numbers_and_names import format_count
from binlogtool.terminal.escape_and_fold_text import escape, escape_json

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
            return escape_invisible_characters(encode_json_lines(structs))
        except (UnicodeEncodeError, TypeError, OverflowError):
            return escape_invisible_characters(b"".join(map(self._encode_line, structs)))

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
                _define_extended_record_struct(tuple(extras)),
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
                self._bodies.encode_each_body(block.bodies) if block.bodies else repeat(None, count),
                repeat((), count),
                repeat(msgspec.UNSET, count),
                *(self._bodies.encode_each_body(column) for column in extras.values()),
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
            struct.body = self._bodies.encode_any_body(struct.body)
        values = [getattr(struct, field) for field in struct.__struct_fields__]
        named = zip(struct.__struct_encode_fields__, values, strict=True)
        members = {name: value for name, value in named if value is not msgspec.UNSET}
        for name in members.keys() - {"file", "body", "checksum", "findings", "inner"}:
            if not isinstance(members[name], msgspec.Raw):
                members[name] = self._style.to_json_value(members[name])
        return encode_json(members) + b"\n"


@functools.lru_cache(256)
def _define_extended_record_struct(extra_member_names: tuple[str, ...]) -> Callable[..., RecordJson]:
    """Return `RecordJson` with additional members of any names."""
    if not extra_member_names:
        return RecordJson
    fields = [(f"extra_{i}", Any, msgspec.UNSET) for i in range(len(extra_member_names))]
    renamed = {f"extra_{i}": name for i, name in enumerate(extra_member_names)}
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
        return escape_invisible_characters(encode_json_lines(self.to_values(block)))

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
        self._compiled = CompiledRunWriter(_make_line_writer)

    def encode_ranges(self, parts: Iterable[RecordRange | T]) -> Iterator[EncodedLines | RecordBlock | T]:
        """Yield the same parts, with record ranges replaced by lines and blocks."""
        for part in parts:
            if isinstance(part, RecordRange):
                yield from self.encode_range(part)
            else:
                yield part

    def encode_range(self, record_range: RecordRange) -> Iterator[EncodedLines | RecordBlock]:
        """Yield the records of a range in order: finished lines, and blocks for the general encoder."""
        for part in self._compiled.write_range(record_range):
            if isinstance(part, RecordBlock):
                yield part
            else:
                place = record_range.batch.container_position(
                    record_range.find_last_selected_index(part.start, part.stop)
                )
                yield EncodedLines(
                    record_range.decoder.file,
                    record_range.list_selected_record_numbers(part.start, part.stop),
                    (place.offset,),
                    part.data,
                )


def _make_line_writer(json_line: JsonLine, blocks: BlockDecoder) -> LineWriter:
    from binlogtool.schema.json_line_codegen import LineWriter

    line_start = b'{"file":' + to_json_bytes(DEFAULT_STYLE.text_value(blocks.file)) + b',"offset":'
    return LineWriter(json_line, blocks.layout, line_start, to_json_bytes)


# --- Writers for records ---


class RecordEncoder:
    """Writer of record blocks in one output format."""

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the output for one block."""
        raise NotImplementedError

    def finish(self) -> bytes:
        """Return the output after the last block."""
        return b""


def make_value_filler(form: str, bytes_form: str) -> LongValueWriter:
    """Return the object that inserts long values into the output of a writer."""
    return LongValueWriter(JsonStyle(bytes_form), doubles_quotes=form == "csv")


class JsonLinesWriter(RecordEncoder):
    """`-O jsonl`: one object per line."""

    def __init__(self, encoder: FieldJsonEncoder) -> None:
        self._encoder = encoder

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return one line per record."""
        return self._encoder.encode_lines(block)


class JsonWriter(RecordEncoder):
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
                _format_checksum_verdict(record),
                "" if record.body is None else self._format_body(record.body),
            )  # fmt: skip

    def _format_body(self, body: Any) -> str:
        return escape_json(escape_invisible_characters(bytes(self._bodies.encode_any_body(body))).decode("utf-8"))


def _format_cell(value: object) -> str:
    return "" if value is None else escape(str(value))


def _format_checksum_verdict(record: Record) -> str:
    """Return the verdict on the checksum; UNPROVEN marks a record whose content cannot be decoded."""
    if any(found.id == "payload-undecodable" and "inner_offset" in found.facts for found in record.findings):
        return "UNPROVEN"
    return "" if record.checksum is None else {True: "ok", False: "BAD", None: "absent"}[record.checksum.ok]


class CsvWriter(RecordEncoder):
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


class RawWriter(RecordEncoder):
    """`-O raw`: the exact bytes of the records, one after the other."""

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the bytes of the records."""
        return b"".join(block.raw or ())


# --- Writer for `-O sql` ---


class SqlWriter(RecordEncoder):
    """`-O sql`: the statements unchanged, except that control characters are escaped for a terminal."""

    def __init__(self, *, terminal: bool = False) -> None:
        self._terminal = terminal

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the statements of one block; a record without one becomes a comment."""
        return bytes(self.escape_script_if_terminal(b"".join(self._encode_record(block, i) for i in range(len(block)))))

    def _encode_record(self, block: RecordBlock, i: int) -> bytes:
        comments = "".join(
            f"# {found.id} at {block.offset[i]}: {escape(found.message)}\n" for found in block.findings.get(i, ())
        )
        return comments.encode("utf-8", "backslashreplace") + (block.bodies[i] or b"")

    def escape_script_if_terminal(self, script_text: bytes | memoryview) -> bytes | memoryview:
        """Return a piece of the script for output."""
        if not self._terminal:
            return script_text
        lines = bytes(script_text).decode("utf-8", "surrogateescape").split("\n")
        return "\n".join(map(escape, lines)).encode("utf-8", "backslashreplace")


# --- Names in `--fields` that no record has ---

_BODY = "body"
_MAX_KNOWN_NAMES = 1000


class UnknownFieldDetector:
    """Comparison of the requested fields below `body` with the members of the bodies."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._pending = {field: field.split(".")[1:] for field in fields if field.startswith(_BODY + ".")}
        self._count = len(fields)
        self._records = 0
        self._known = set[str]()

    def remember_block_members(self, block: RecordBlock) -> None:
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
    def unknown_field_warnings(self) -> list[str]:
        """Warnings, one for each field that no record has."""
        if not self._records or not self._known:
            return []
        known = {f"{_BODY}.{name}" for name in self._known}
        return [
            f"--fields {field}: no selected record has this member{format_name_suggestions(field, known)}"
            for field in self._pending
        ]

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


# --- `dump -O text`: records as readable text: a header line, then row changes as a diff, and statements as SQL ---

MAX_VALUE_LENGTH = 200
"""Maximum characters of a value; longer values are cut unless everything is requested."""
MAX_VALUE_BYTES = 100
MAX_STATEMENT_LENGTH = 4_000
MAX_OBJECT_LENGTH = 64
_OBJECT_START, _OBJECT_END = 16, 8
"""Characters shown at the start and end of a longer object name: eblob's keys are hashes of 128 characters."""

_SIGN_STYLES = {"+": "good", "-": "error", "~": "warning"}


class TextOptions(msgspec.Struct, frozen=True):
    """Options of the text output.

    Args:
        offsets: Show the position of each record.
        hex_bytes: Show the bytes of each record.
        headings: Name the file before its records.
        everything: Cut no value, hide no member.
        fold: Leave out records without information about data; the last line counts them.
        fields: Show only these members, separated by tabs.
        ascii_only: Use no arrows and ellipses.
        paint: Function that colours a text: (text, style name) -> text.
    """

    offsets: bool = True
    hex_bytes: bool = False
    headings: bool = False
    everything: bool = False
    fold: bool = True
    fields: tuple[str, ...] = ()
    ascii_only: bool = False
    paint: Callable[[str, str], str] | None = None


_DEFAULT_OPTIONS = TextOptions()


class TextWriter(RecordEncoder):
    """Writer of record blocks as readable text."""

    def __init__(self, style: JsonStyle, options: TextOptions = _DEFAULT_OPTIONS) -> None:
        self._style = style
        self._options = options
        self._values = SqlLiteralFormatter(style, everything=options.everything, ascii_only=options.ascii_only)
        self._time = TimeFormatter()
        self._file: str | None = None
        self._txn: Any = None
        self._records_of_txn = 0
        self._folded = Counter[str]()
        self._format = ""
        self._describe: RecordDescriber = describe_any

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the lines of one block."""
        lines: list[str] = []
        if block.file != self._file:
            self._file, self._records_of_txn = block.file, 0
            if self._options.headings:
                lines.append(self._paint(f"# {escape(block.file)} ({block.format})", "note"))
        if self._options.fields:
            rows = CellFormatter(self._style).format_rows(block, self._options.fields)
            return _encode_lines([*lines, *("\t".join(map(str, row)) for row in rows)])
        if block.format != self._format:
            self._format, self._describe = block.format, load_describer(block.format)
        self._values.long_values = block.long_values
        times = self._time.format_column(block.envelope.time)
        bodies = block.bodies or [None] * len(block)
        for i, (time, body) in enumerate(zip(times, bodies, strict=True)):
            text = describe_body(self._describe, block.envelope.type[i], body, self._options.everything)
            if text.is_noise and self._options.fold and i not in block.findings:
                self._folded[block.envelope.type[i]] += 1
                continue
            self._add_record(lines, block, i, time or "-", text)
        return _encode_lines(lines)

    def finish(self) -> bytes:
        """Return the line with the number of records left out."""
        if not self._folded:
            return b""
        parts = ", ".join(f"{format_count(count)} {escape(name)}" for name, count in self._folded.most_common())
        total = sum(self._folded.values())
        what = "1 record is" if total == 1 else f"{format_count(total)} records are"
        return _encode_lines([self._paint(f"# {what} not shown: {parts}; -v shows all", "note")])

    def _paint(self, text: str, style: str) -> str:
        return text if self._options.paint is None else self._options.paint(text, style)

    def _add_record(self, lines: list[str], block: RecordBlock, i: int, time: str, text: RecordText) -> None:
        """Add the lines of one record; an empty line ends a transaction of several records."""
        txn = block.envelope.txn[i]
        if txn != self._txn:
            if self._records_of_txn > 1:
                lines.append("")
            self._txn, self._records_of_txn = txn, 0
        self._records_of_txn += txn is not None
        lines.append(self._format_record_line(block, i, time, text))
        paint = self._options.paint
        if text.changes:
            table = block.envelope.object[i]
            for changes in text.changes:
                if changes.table and changes.table != table:
                    table = changes.table
                    lines.append(f"  {escape(table)}")
                rows = self._values.format_changes(changes)
                lines += rows if paint is None else (paint(row, _SIGN_STYLES.get(row[2], "")) for row in rows)
        for statement in text.statements:
            lines += self._values.format_statement(statement)
        for finding in block.findings.get(i, ()):
            lines.append(self._paint(f"  ! {finding.id}: {escape(finding.message)}", "error"))
        if self._options.hex_bytes and block.raw is not None:
            lines += _format_hex_lines(block.raw[i])

    def _format_record_line(self, block: RecordBlock, record_index: int, time: str, record_text: RecordText) -> str:
        """Return the first line of a record: time, type, transaction, object, checksum verdict and members."""
        envelope, inner, checksum = block.envelope, block.inner[record_index], block.checksum[record_index]
        name, txn, seq = envelope.object[record_index], envelope.txn[record_index], envelope.seq[record_index]
        place = f"0x{block.offset[record_index]:08x}"
        if inner is not None:
            place = f"{place}+0x{inner.offset:x}"
        kind = f"{escape(envelope.type[record_index]):<14}"
        if self._options.paint is not None:
            place, kind = self._options.paint(place, "dim"), self._options.paint(kind, "note")
        short_time = f"{time[:-8]}Z" if time.endswith(".000000Z") else time
        parts = [short_time, kind, self._format_transaction(txn, seq)]
        if self._options.offsets:
            parts.insert(0, place)
        if name is not None:
            parts.append(self._format_object(name))
        if checksum is not None and checksum.ok is False:
            parts.append(self._paint("CHECKSUM-BAD", "error"))
        if record_text.note:
            parts.append(escape(record_text.note))
        if self._options.everything:
            size = block.size[record_index] if inner is None else inner.size
            known = {
                "size": size,
                "record": block.record[record_index],
                "seq": seq,
                "origin": envelope.origin[record_index],
            }
            parts += (f"{label}={escape(str(value))}" for label, value in known.items() if value is not None)
        parts += self._values.format_members(record_text.members)
        extras = block.extras[record_index] if block.extras and self._options.everything else None
        if extras:
            parts += self._values.format_members(extras)
        return " ".join(parts).rstrip()

    def _format_transaction(self, txn: Any, seq: Any) -> str:
        """Format the transaction and the sequence number, or only one if the other adds nothing."""
        if txn is None:
            return "-" if seq is None else str(seq)
        text = escape(str(txn))
        if seq is None or text == str(seq) or text.endswith((f"-{seq}", f":{seq}")):
            return text
        return f"{seq} (transaction {text})"

    def _format_object(self, name: object) -> str:
        text = escape(str(name))
        if len(text) <= MAX_OBJECT_LENGTH or self._options.everything:
            return text
        return f"{text[:_OBJECT_START]}{self._values.ellipsis}{text[-_OBJECT_END:]}"


def describe_body(describe: RecordDescriber, type_name: str, body: Any, everything: bool) -> RecordText:
    """Describe the body of a record of any shape."""
    if body is None or isinstance(body, Finding):
        return RecordText()
    if not isinstance(body, Mapping):
        return RecordText(changes=(RowChanges(({"after": body},)),))
    try:
        return describe(type_name, body, everything)
    except (AttributeError, KeyError, TypeError, ValueError):  # a body of another shape is shown unchanged
        return RecordText(body)


def load_describer(format_name: str) -> RecordDescriber:
    """Return the describer of a format's records."""
    from binlogtool import formats

    start = formats.load_format(format_name).output.start_record_text
    return describe_any if start is None else start()


def describe_any(_type_name: str, body: Mapping[str, Any], _everything: bool) -> RecordText:
    """Describe a record of a format without a describer of its own."""
    return RecordText(body)


def _encode_lines(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace") if lines else b""


def _format_hex_lines(data: bytes) -> Iterator[str]:
    return (f"  {i:08x}  {data[i : i + 16].hex(' ')}" for i in range(0, len(data), 16))


# --- Values, row changes and statements ---


class SqlLiteralFormatter:
    """Formatter of values as SQL literals.

    long_values: values extracted from the bodies of the current block, by placeholder.
    """

    def __init__(self, style: JsonStyle, *, everything: bool, ascii_only: bool = False) -> None:
        self._style = style
        self._arrow, self.ellipsis = ("->", "...") if ascii_only else ("→", "…")
        self._bodies = BodyEncoder(style)
        self._everything = everything
        self.long_values: Mapping[str, LongValue] = {}

    def format_literal(self, value: Any) -> str:
        """Format one value."""
        kind = type(value)
        if kind is str:
            if value.isascii() and value.isprintable() and len(value) <= MAX_VALUE_LENGTH and "'" not in value:
                if value in self.long_values:
                    return self._format_long(self.long_values[value], value)
                return f"'{value}'"
            return self._format_text(value)
        if kind is int:
            return str(value)
        if value is None:
            return "NULL"
        if kind is bytes:
            return self._format_bytes(value)
        long_value = self._find_long_value(value)
        return self._cut(self._format_nested(value)) if long_value is None else self._format_long(long_value, value)

    def format_members(self, members: Mapping[str, Any]) -> list[str]:
        """Format members as name=value."""
        return [f"{escape(str(name))}={self.format_literal(value)}" for name, value in members.items()]

    def format_changes(self, changes: RowChanges) -> Iterable[str]:
        """Yield a line per row change."""
        return (f"  {self._format_change(row, changes)}" for row in changes.rows)

    def format_statement(self, statement: Any) -> list[str]:
        """Return the lines of an SQL text; bytes that are not text are escaped."""
        long_value = self._find_long_value(statement)
        if long_value is not None and self._everything:
            return [f"    {self.format_literal(statement)}"]
        start, length = (
            self._take_start(statement)
            if long_value is None
            else _read_long_value_start(long_value, MAX_STATEMENT_LENGTH)
        )
        text = start if isinstance(start, str) else start.decode("utf-8", "backslashreplace")
        lines = [f"    {escape(line.expandtabs(4))}" for line in text.rstrip().split("\n")]
        if length > len(start):
            unit = "characters" if isinstance(start, str) else "bytes"
            lines[-1] += f"{self.ellipsis} ({format_count(length - len(start))} more {unit}; -v shows them)"
        return lines

    def _take_start(self, statement: Any) -> tuple[str | bytes, int]:
        value = statement if isinstance(statement, str | bytes) else self._format_nested(statement)
        return value if self._everything else value[:MAX_STATEMENT_LENGTH], len(value)

    def _find_long_value(self, value: Any) -> LongValue | None:
        """Return the long value that a placeholder represents; None for other values."""
        if not self.long_values:
            return None
        marked = value.get("$bytes") if isinstance(value, Mapping) and len(value) == 1 else value
        return self.long_values.get(marked) if isinstance(marked, str) else None

    def _format_change(self, row: RowChange, changes: RowChanges) -> str:
        key, before, after = row.get("key"), row.get("before"), row.get("after")
        if key is not None:
            text, operations = self._format_image(key, changes), row.get("operations")
            if after is not None and before is not None:
                return f"~ {' '.join((text, *self._format_differences(before, after, changes)))}"
            if after is not None:
                return f"~ {text}: {self._format_image(after, changes)}"
            if operations is not None:
                steps = operations if isinstance(operations, list | tuple) else (operations,)
                return f"~ {' '.join((text, *map(self.format_literal, steps)))}"
            return f"- {text}"
        if before is None:
            return f"+ {self._format_image(after, changes)}"
        if after is None:
            return f"- {self._format_image(before, changes)}"
        return f"~ {' '.join(self._format_update(before, after, changes))}"

    def _format_image(self, image: Any, changes: RowChanges) -> str:
        if isinstance(image, Mapping):
            return " ".join(self._format_columns(image, _order_key_columns_first(image, changes.key), changes))
        if isinstance(image, list | tuple):
            return f"[{', '.join(map(self.format_literal, image))}]"
        return self.format_literal(image)

    def _format_columns(self, image: Mapping[str, Any], names: Iterable[str], changes: RowChanges) -> list[str]:
        return [f"{escape(name)}={self._format_column(name, image[name], changes)}" for name in names]

    def _format_column(self, name: str, value: Any, changes: RowChanges) -> str:
        if type(value) is dict and (json_changes := format_partial_json_update(name, value)) is not None:
            return self._cut(escape(json_changes))
        return escape(value) if name in changes.numbers and type(value) is str else self.format_literal(value)

    def _format_update(self, before: Any, after: Any, changes: RowChanges) -> list[str]:
        """Format an update: the columns that identify the row, then those that differ.

        Without a key, all unchanged columns identify the row.
        """
        if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
            return [self._format_image(before, changes), self._arrow, self._format_image(after, changes)]
        if changes.key and not any(name in before for name in changes.key):
            same: Iterable[str] = ()
        elif changes.key and not self._everything:
            same = [name for name in changes.key if name in before]
        else:
            same = [
                name
                for name in _order_key_columns_first(before, changes.key)
                if name in changes.key or name not in after or after[name] == before[name]
            ]
        return [*self._format_columns(before, same, changes), *self._format_differences(before, after, changes)]

    def _format_differences(self, before: Any, after: Any, changes: RowChanges) -> list[str]:
        if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
            return [self._format_image(before, changes), self._arrow, self._format_image(after, changes)]
        parts = []
        for name in _order_key_columns_first(after, changes.key):
            json_changes = format_partial_json_update(name, after[name])
            if json_changes == name:  # no change
                continue
            if name not in before or json_changes is not None:
                parts += self._format_columns(after, (name,), changes)
            elif before[name] != after[name]:
                old, new = (self._format_column(name, image[name], changes) for image in (before, after))
                parts.append(f"{escape(name)}: {old} {self._arrow} {new}")
        return parts or ["(no difference)"]

    def _format_text(self, text: str) -> str:
        return self._quote_text(text if self._everything else text[:MAX_VALUE_LENGTH]) + self._count_rest(len(text))

    def _format_bytes(self, data: bytes) -> str:
        shown = data if self._everything else data[:MAX_VALUE_BYTES]
        return self._quote_bytes(shown) + self._count_rest(len(data), MAX_VALUE_BYTES, "bytes")

    def _quote_text(self, text: str) -> str:
        return f"""'{escape(text).replace("'", "''")}'"""

    def _quote_bytes(self, data: bytes) -> str:
        prefix = "x" if self._style.bytes_form == "hex" else self._style.bytes_form
        return f"{prefix}'{escape(self._style.encode_bytes(data))}'"

    def _count_rest(self, length: int, shown: int = MAX_VALUE_LENGTH, unit: str = "characters") -> str:
        return (
            ""
            if self._everything or length <= shown
            else f"{self.ellipsis} ({format_count(length - shown)} more {unit})"
        )

    def _format_long(self, value: LongValue, placeholder: Any) -> str:
        """Format a long value: its start, or its placeholder as JSON, which is later replaced by the whole value."""
        if self._everything:
            return to_json_text(placeholder)
        start, length = _read_long_value_start(value, MAX_VALUE_LENGTH)
        if isinstance(start, bytes):
            start = start[:MAX_VALUE_BYTES]
            return self._quote_bytes(start) + self._count_rest(length, MAX_VALUE_BYTES, "bytes")
        return self._quote_text(start) + self._count_rest(length)

    def _format_nested(self, value: Any) -> str:
        return escape_json(escape_invisible_characters(bytes(self._bodies.encode_any_body(value))).decode("utf-8"))

    def _cut(self, text: str) -> str:
        rest = len(text) - MAX_VALUE_LENGTH
        if self._everything or rest <= 0:
            return text
        return f"{text[:MAX_VALUE_LENGTH]}{self.ellipsis} ({format_count(rest)} more characters)"


def _read_long_value_start(value: LongValue, max_length: int) -> tuple[str | bytes, int]:
    """Return the first characters (or bytes) of a long value, and its total length."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    start: str | bytes | None = None
    length = 0
    for piece in value.pieces():
        part = decode(piece) if value.is_text else bytes(piece)
        length += len(part)
        if start is None or len(start) < max_length:
            start = part[:max_length] if start is None else (start + part)[:max_length]  # type: ignore[operator]
    return start or "", length


def _order_key_columns_first(image: Mapping[str, Any], key_columns: tuple[str, ...]) -> Iterable[str]:
    """Return the column names of a row image, the key columns first."""
    if not key_columns:
        return image
    return [*(name for name in key_columns if name in image), *(name for name in image if name not in key_columns)]
