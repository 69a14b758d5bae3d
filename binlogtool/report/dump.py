"""Writers for records: JSON, text, CSV, raw bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Protocol

import msgspec

from binlogtool.log.body_json import BodyEncoder
from binlogtool.log.longvalues import Filler
from binlogtool.log.plain import Style, TimeText, safe_json
from binlogtool.log.records import Block, Inner, Record
from binlogtool.render.escape import escape, escape_json
from binlogtool.report.records import FieldLines, RecordLines, member


class Writer(Protocol):
    """Encodes blocks of records in one output format."""

    def block(self, block: Block) -> bytes:
        """Return the output for one block."""

    def end(self) -> bytes:
        """Return what follows the last block."""


def filler(form: str, bytes_form: str) -> Filler:
    """Return the object that inserts long values into the output of a writer."""
    return Filler(Style(bytes_form), doubled=form == "csv")


class JsonLinesWriter:
    """`-O jsonl`: one object per line."""

    def __init__(self, lines: FieldLines) -> None:
        self._lines = lines

    def block(self, block: Block) -> bytes:
        """Return one line per record."""
        return self._lines.lines(block)

    def end(self) -> bytes:
        """Return nothing."""
        return b""


class JsonWriter:
    """`-O json`: one document; its records are the lines of `-O jsonl`."""

    def __init__(self, lines: FieldLines) -> None:
        self._lines = lines
        self._start = b'{"schema":"binlogtool/record/1","records":['

    def block(self, block: Block) -> bytes:
        """Return the records, separated by commas."""
        records = self._lines.lines(block).rstrip(b"\n").replace(b"\n", b",\n")
        if not records:
            return b""
        start, self._start = self._start, b","
        return start + b"\n" + records

    def end(self) -> bytes:
        """Return the end of the document."""
        return (self._start if self._start != b"," else b"") + b"\n]}\n"


class Cells(msgspec.Struct, frozen=True):
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


COLUMNS = tuple(Cells.__struct_fields__)
"""The columns of CSV and tables."""


class CellMaker:
    """Formats blocks as cells. All text of the data is escaped; bodies are JSON."""

    def __init__(self, style: Style) -> None:
        self._lines = RecordLines(style)
        self._bodies = BodyEncoder(style)
        self._time = TimeText()

    def rows(self, block: Block, columns: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the named cells of each record; a name that is not a column is a path in the record as JSON
        (`body.tuple`).
        """
        inside = [name for name in columns if name not in COLUMNS]
        records = self._lines.values(block) if inside else repeat({})
        for cells, record in zip(self.cells(block), records, strict=False):
            yield [self._inside(record, name) if name in inside else getattr(cells, name) for name in columns]

    def _inside(self, record: dict[str, Any], path: str) -> str:
        """Return the value at a path: text unchanged, everything else as JSON, "" where there is none."""
        value = member(record, path)
        return _word(value) if value is None or isinstance(value, str) else self._body(value)

    def cells(self, block: Block) -> Iterator[Cells]:
        """Yield the cells of each record."""
        file = escape(block.file)
        for r in block:
            yield Cells(
                file, r.offset, r.size, r.record, escape(r.type), _word(r.seq), self._time(r.time) or "",
                _word(r.object), _word(r.origin), _word(r.txn), _verdict(r),
                "" if r.body is None else self._body(r.body),
            )  # fmt: skip

    def _body(self, body: Any) -> str:
        return escape_json(safe_json(bytes(self._bodies.one(body))).decode("utf-8"))


def _word(value: object) -> str:
    return "" if value is None else escape(str(value))


def _verdict(r: Record) -> str:
    """Return the verdict on the checksum; UNPROVEN marks a record whose content cannot be decoded."""
    if any(found.id == "payload-undecodable" and "inner_offset" in found.facts for found in r.findings):
        return "UNPROVEN"
    return "" if r.checksum is None else {True: "ok", False: "BAD", None: "absent"}[r.checksum.ok]


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
        style: Style,
        *,
        offsets: bool = True,
        hex_bytes: bool = False,
        headings: bool = False,
        hold: bool = True,
        fields: Sequence[str] = (),
    ) -> None:
        self._cells = CellMaker(style)
        self._fields = tuple(fields)
        self._offsets = offsets
        self._hex = hex_bytes
        self._file: str | None = None if headings else ""
        self._headings = headings
        self._units = _Units()
        self._hold = hold

    def block(self, block: Block) -> bytes:
        """Return the lines of one block."""
        out: list[str] = []
        if self._headings and block.file != self._file:
            self._file = block.file
            out += self._units.end()
            out.append(f"# {escape(block.file)} ({block.format})")
        if self._fields:
            return _joined([*out, *("\t".join(map(str, row)) for row in self._cells.rows(block, self._fields))])
        for i, cells in enumerate(self._cells.cells(block)):
            lines = [self._line(cells, block.inner[i])]
            lines += [f"  ! {f.id}: {escape(f.message)}" for f in block.findings.get(i, ())]
            if self._hex and block.raw is not None:
                lines += _hex_lines(block.raw[i])
            out += self._units.add(cells.txn, lines)
        return _joined(out if self._hold else [*out, *self._units.release()])

    def _line(self, c: Cells, inner: Inner | None) -> str:
        place, size = f"0x{c.offset:08x}", c.size
        if inner is not None:
            place, size = f"{place}+0x{inner.offset:x}", inner.size
        where = f"{place} {size:>6} " if self._offsets else ""
        bad = " CHECKSUM-BAD" if c.checksum == "BAD" else ""
        return f"{where}{c.type:<10} {c.seq or '-':>8} {c.time or '-':<27} {c.object or '-'}{bad} : {c.body}".rstrip()

    def end(self) -> bytes:
        """Return the record that was held back."""
        return _joined(self._units.release())


class _Units:
    """Puts the lines of each transaction of several records between a heading and an empty line."""

    def __init__(self) -> None:
        self._txn = ""
        self._open = False
        self._waiting: list[str] = []

    def add(self, txn: str, lines: list[str]) -> list[str]:
        """Add a record; return the lines to print now. Those of the first record of a transaction are held back."""
        if txn and txn == self._txn:
            heading = [] if self._open else [f"# transaction {txn}"]
            self._open = True
            return [*heading, *self.release(), *lines]
        before = self.end()
        self._txn, self._waiting = txn, lines
        return before if txn else [*before, *self.release()]

    def release(self) -> list[str]:
        """Return the lines that were held back."""
        lines, self._waiting = self._waiting, []
        return lines

    def end(self) -> list[str]:
        """Return the last lines of the transaction."""
        lines = self.release() + ([""] if self._open else [])
        self._txn, self._open = "", False
        return lines


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{text}\n" for text in lines).encode("utf-8", "backslashreplace")


def _hex_lines(data: bytes) -> Iterator[str]:
    return (f"  {i:08x}  {data[i : i + 16].hex(' ')}" for i in range(0, len(data), 16))


class CsvWriter:
    """`-O csv`: a heading, then one row per record; the body is a cell of JSON.

    Args:
        neutral: Cells that a spreadsheet would take for a formula get a leading apostrophe.
    """

    def __init__(self, style: Style, *, neutral: bool = False, columns: tuple[str, ...] = ()) -> None:
        self._cells = CellMaker(style)
        self._neutral = neutral
        self._columns = columns or COLUMNS
        self._started = False

    def block(self, block: Block) -> bytes:
        """Return the rows of one block."""
        rows = [[self._cell(value) for value in row] for row in self._cells.rows(block, self._columns)]
        head, self._started = ([] if self._started else [list(self._columns)]), True
        return csv_bytes([*head, *rows])

    def _cell(self, value: Any) -> Any:
        return neutralised(value) if self._neutral and isinstance(value, str) else value

    def end(self) -> bytes:
        """Return the heading, if there was no record."""
        return b"" if self._started else csv_bytes([list(self._columns)])


def csv_bytes(rows: list[list[Any]]) -> bytes:
    """Encode rows as CSV with LF line ends."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "backslashreplace")


def neutralised(text: str) -> str:
    """Return the cell, with a leading apostrophe where a spreadsheet would start a formula."""
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") and text else text


class RawWriter:
    """`-O raw`: the exact bytes of the records, one after the other."""

    def block(self, block: Block) -> bytes:
        """Return the bytes of the records."""
        return b"".join(block.raw or ())

    def end(self) -> bytes:
        """Return nothing."""
        return b""
