"""Writers for records: JSON, text, CSV, raw bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Protocol

import msgspec

from binlogtool.log.body_json import BodyEncoder
from binlogtool.log.longvalues import LongValueWriter
from binlogtool.log.plain import JsonStyle, TimeFormatter, escape_unsafe
from binlogtool.log.records import InnerPosition, Record, RecordBlock
from binlogtool.render.escape import escape, escape_json
from binlogtool.report.records import FieldJsonEncoder, RecordJsonEncoder, find_member


class RecordWriter(Protocol):
    """Encodes blocks of records in one output format."""

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the output for one block."""

    def finish(self) -> bytes:
        """Return what follows the last block."""


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
    """One record as text cells, the same for text, table and CSV. The field names are the column names."""

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
"""The columns of CSV and tables."""


class CellFormatter:
    """Formats blocks as cells. All text of the data is escaped; bodies are JSON."""

    def __init__(self, style: JsonStyle) -> None:
        self._encoder = RecordJsonEncoder(style)
        self._bodies = BodyEncoder(style)
        self._time = TimeFormatter()

    def format_rows(self, block: RecordBlock, columns: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the named cells of each record; a name that is not a column is a path in the record as JSON
        (`body.tuple`).
        """
        paths = [name for name in columns if name not in COLUMNS]
        records = self._encoder.to_values(block) if paths else repeat({})
        for cells, record in zip(self.format_cells(block), records, strict=False):
            yield [self._format_member(record, name) if name in paths else getattr(cells, name) for name in columns]

    def _format_member(self, record: dict[str, Any], path: str) -> str:
        """Return the value at a path: text unchanged, everything else as JSON, "" where there is none."""
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


class TextWriter:
    """`-O text`: offset size type seq time object : summary, one line per record.

    A record inside another one has the offset of that one, `+`, and its own inside it. Successive records of one
    transaction are between `# transaction ID` and an empty line.

    Args:
        hold: A record may be held back until the next one, which shows if its transaction has more than one.
        fields: Only these, separated by tabs.
    """

    def __init__(
        self,
        style: JsonStyle,
        *,
        offsets: bool = True,
        hex_bytes: bool = False,
        headings: bool = False,
        hold: bool = True,
        fields: Sequence[str] = (),
    ) -> None:
        self._cells = CellFormatter(style)
        self._fields = tuple(fields)
        self._offsets = offsets
        self._hex = hex_bytes
        self._file: str | None = None if headings else ""
        self._headings = headings
        self._transactions = _TransactionHeadings()
        self._may_hold = hold

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the lines of one block."""
        lines_out: list[str] = []
        if self._headings and block.file != self._file:
            self._file = block.file
            lines_out += self._transactions.end_transaction()
            lines_out.append(f"# {escape(block.file)} ({block.format})")
        if self._fields:
            return _encode_lines(
                [*lines_out, *("\t".join(map(str, row)) for row in self._cells.format_rows(block, self._fields))]
            )
        for i, cells in enumerate(self._cells.format_cells(block)):
            lines = [self._format_line(cells, block.inner[i])]
            lines += [f"  ! {f.id}: {escape(f.message)}" for f in block.findings.get(i, ())]
            if self._hex and block.raw is not None:
                lines += _format_hex_lines(block.raw[i])
            lines_out += self._transactions.add(cells.txn, lines)
        return _encode_lines(lines_out if self._may_hold else [*lines_out, *self._transactions.release()])

    def _format_line(self, cells: RecordCells, inner: InnerPosition | None) -> str:
        place, size = f"0x{cells.offset:08x}", cells.size
        if inner is not None:
            place, size = f"{place}+0x{inner.offset:x}", inner.size
        where = f"{place} {size:>6} " if self._offsets else ""
        checksum_mark = " CHECKSUM-BAD" if cells.checksum == "BAD" else ""
        return (
            f"{where}{cells.type:<10} {cells.seq or '-':>8} {cells.time or '-':<27} "
            f"{cells.object or '-'}{checksum_mark} : {cells.body}"
        ).rstrip()

    def finish(self) -> bytes:
        """Return the record that was held back."""
        return _encode_lines(self._transactions.release())


class _TransactionHeadings:
    """Puts the lines of each transaction of several records between a heading and an empty line."""

    def __init__(self) -> None:
        self._txn = ""
        self._has_heading = False
        self._waiting: list[str] = []

    def add(self, txn: str, lines: list[str]) -> list[str]:
        """Add a record; return the lines to print now. Those of the first record of a transaction are held back."""
        if txn and txn == self._txn:
            heading = [] if self._has_heading else [f"# transaction {txn}"]
            self._has_heading = True
            return [*heading, *self.release(), *lines]
        before = self.end_transaction()
        self._txn, self._waiting = txn, lines
        return before if txn else [*before, *self.release()]

    def release(self) -> list[str]:
        """Return the lines that were held back."""
        lines, self._waiting = self._waiting, []
        return lines

    def end_transaction(self) -> list[str]:
        """Return the last lines of the transaction."""
        lines = self.release() + ([""] if self._has_heading else [])
        self._txn, self._has_heading = "", False
        return lines


def _encode_lines(lines: list[str]) -> bytes:
    return "".join(f"{text}\n" for text in lines).encode("utf-8", "backslashreplace")


def _format_hex_lines(data: bytes) -> Iterator[str]:
    return (f"  {i:08x}  {data[i : i + 16].hex(' ')}" for i in range(0, len(data), 16))


class CsvWriter:
    """`-O csv`: a heading, then one row per record; the body is a cell of JSON.

    Args:
        neutralize: Cells that a spreadsheet would take for a formula get a leading apostrophe.
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
        """Return the heading, if there was no record."""
        return b"" if self._started else encode_csv([list(self._columns)])


def encode_csv(rows: list[list[Any]]) -> bytes:
    """Encode rows as CSV with LF line ends."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "backslashreplace")


def neutralize_formula(text: str) -> str:
    """Return the cell, with a leading apostrophe where a spreadsheet would start a formula."""
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") and text else text


class RawWriter:
    """`-O raw`: the exact bytes of the records, one after the other."""

    def encode_block(self, block: RecordBlock) -> bytes:
        """Return the bytes of the records."""
        return b"".join(block.raw or ())

    def finish(self) -> bytes:
        """Return nothing."""
        return b""
