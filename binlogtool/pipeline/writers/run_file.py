"""The file that one `--append` run adds: JSON lines, or a table; and its row keys, read back from the disk.

Rows have one member more than those of other conversions: `generation`, the number of earlier files that had the
name.
(generation, file, record, offset within the record) is the key of a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from binlogtool.errors import InputOutputError
from binlogtool.findings import Finding
from binlogtool.log.body_json import finding_to_value
from binlogtool.log.open import LogReader
from binlogtool.log.parts import FilePart
from binlogtool.log.records import FileFinding, RecordBlock
from binlogtool.log.select import Selection
from binlogtool.pipeline.account import FindingTally
from binlogtool.pipeline.closing import is_damage
from binlogtool.pipeline.writers.table_form import TableFileOptions

if TYPE_CHECKING:
    import pyarrow as pa

RowKeyTuple = tuple[int, str, int, int]
"""Generation, file, record, offset within the record (-1 = the row is the whole record)."""

_MAX_GROUP_ROWS, _MAX_GROUP_BYTES = 1 << 16, 32 << 20


class RunFileWriter(Protocol):
    """Writer of one run's file. rows: rows written so far. finding_tally: findings."""

    finding_tally: FindingTally
    rows: int

    def write_part(self, log: LogReader, selection: Selection, part: FilePart, generation: int, closed: bool) -> None:
        """Write the records of a part of the log's only file. closed: nothing will follow the part."""

    def write_finding(self, file: str, format: str, file_finding: Finding, generation: int) -> None:
        """Report a finding in place of records, as a row if the format has rows for that."""

    def close(self) -> None:
        """Complete the file."""

    def check_output(self) -> str:
        """Compare the file on the disk with what was written, and return the figures as text.

        Raises:
            InputOutputError: they differ.
        """

    def read_keys(self) -> Iterator[RowKeyTuple]:
        """Yield the keys of all records, read from the disk."""


class JsonlRunFile:
    """JSON lines as `dump` writes them. encode: encodes a block."""

    def __init__(self, path: Path, encode: Callable[[RecordBlock], bytes]) -> None:
        self.finding_tally, self.rows = FindingTally(), 0
        self._path, self._encode = path, encode
        self._file, self._hash = path.open("xb"), hashlib.sha256()

    def write_part(self, log: LogReader, selection: Selection, part: FilePart, generation: int, closed: bool) -> None:
        """Write the records of a part; see `RunFileWriter`."""
        for part_content in log.blocks(selection, part=part):
            if isinstance(part_content, FileFinding):
                self.finding_tally.add(
                    part_content.file,
                    finding_to_value(part_content.finding),
                    damage=is_damage(part_content.finding, lambda: closed),
                )
                continue
            for finding in (found for findings in part_content.findings.values() for found in findings):
                self.finding_tally.add(part_content.file, finding_to_value(finding), damage=False)
            self._write_lines(self._encode(part_content), generation)
            self.rows += len(part_content)

    def _write_lines(self, data: bytes, generation: int) -> None:
        """Write lines, each a JSON object, with the generation inserted as first member."""
        extended = b"".join(b'{"generation":%d,%b' % (generation, line[1:]) for line in data.splitlines(keepends=True))
        self._hash.update(extended)
        self._file.write(extended)

    def write_finding(self, file: str, format: str, file_finding: Finding, generation: int) -> None:
        """Add a finding to the tally only: lines are records."""
        self.finding_tally.add(file, finding_to_value(file_finding), damage=False)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()

    def check_output(self) -> str:
        """Compare the file with what was written; see `RunFileWriter`."""
        line_count, digest = 0, hashlib.sha256()
        with self._path.open("rb") as file:
            for line in file:
                line_count += 1
                digest.update(line)
        if digest.digest() != self._hash.digest():
            raise InputOutputError(f"{self._path}: what was read back is not what was written")
        if line_count != self.rows:
            raise InputOutputError(f"{self._path}: {self.rows:,} records were read, and {line_count:,} lines written")
        return (
            f"{self.rows:,} records read, {line_count:,} lines with sha256 {digest.hexdigest()} counted in the output"
        )

    def read_keys(self) -> Iterator[RowKeyTuple]:
        """Yield the keys of all lines; see `RunFileWriter`."""
        decode = msgspec.json.Decoder(_LineKey).decode
        with self._path.open("rb") as file:
            for line in map(decode, file):
                yield line.generation, line.file, line.record, -1 if line.inner is None else line.inner.offset


class _InnerRange(msgspec.Struct):
    offset: int


class _LineKey(msgspec.Struct):
    generation: int
    file: str
    record: int
    inner: _InnerRange | None = None


class TableRunFile:
    """Rows as in `binlogtool.pipeline.rows`, in any table format, written without Spark."""

    def __init__(self, path: Path, file_options: TableFileOptions) -> None:
        import pyarrow as pa

        from binlogtool.pipeline import rows
        from binlogtool.pipeline.typed.table_files import create_table_file

        self.finding_tally, self.rows = FindingTally(), 0
        self._path, self._file_options, self._text_bytes, self._finding_rows = path, file_options, 0, 0
        self._schema = rows.SCHEMA.append(pa.field("generation", pa.int64()))
        self._pending, self._pending_rows, self._pending_bytes = list[Any](), 0, 0
        self._file = create_table_file(file_options, path, self._schema)

    def write_part(self, log: LogReader, selection: Selection, part: FilePart, generation: int, closed: bool) -> None:
        """Write the records of a part; see `RunFileWriter`."""
        from binlogtool.pipeline import rows
        from binlogtool.pipeline.making import read_row_parts

        file = log.files[0]
        for part_content in read_row_parts(log, file.path, selection, part, rows.DEFAULT_LAYOUT):
            if isinstance(part_content, RecordBlock):
                self._add_batches(rows.DEFAULT_LAYOUT.build_batches(part_content), generation)
            elif not isinstance(part_content, FileFinding):
                self._add_batches((part_content,), generation)
            elif is_damage(part_content.finding, lambda: closed):
                self._add_batches(
                    (rows.DEFAULT_LAYOUT.build_damage_batch(file.path, file.format.name, part_content.finding),),
                    generation,
                )
            else:
                self.finding_tally.add(part_content.file, finding_to_value(part_content.finding), damage=False)

    def write_finding(self, file: str, format: str, file_finding: Finding, generation: int) -> None:
        """Write a DAMAGE row for the finding; see `RunFileWriter`."""
        from binlogtool.pipeline import rows

        self._add_batches((rows.DEFAULT_LAYOUT.build_damage_batch(file, format, file_finding),), generation)
        self._finding_rows += 1

    def _add_batches(self, batches: Iterable[pa.RecordBatch], generation: int) -> None:
        import pyarrow as pa

        for batch in batches:
            column = pa.repeat(pa.scalar(generation, pa.int64()), batch.num_rows)
            self._pending.append(pa.RecordBatch.from_arrays([*batch.columns, column], schema=self._schema))
            self._pending_rows += batch.num_rows
            self._pending_bytes += batch.nbytes
            if self._pending_rows >= _MAX_GROUP_ROWS or self._pending_bytes >= _MAX_GROUP_BYTES:
                self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._pending:
            table = pa.Table.from_batches(self._pending, self._schema)
            self._text_bytes += _count_text_bytes(table, self._file_options)
            self._file.write(table)
            self.rows += table.num_rows
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def close(self) -> None:
        """Complete the file."""
        self._flush()
        self._file.close()

    def check_output(self) -> str:
        """Compare the file with what was written; see `RunFileWriter`."""
        from binlogtool.pipeline.written import PartFile, count_part

        if not self.rows:
            return "no rows"
        size = self._path.stat().st_size
        counts = count_part(PartFile(str(self._path.parent), self._path.name, size), self._file_options)
        self.finding_tally.merge(counts.finding_tally)
        self.finding_tally.errors -= self._finding_rows
        if (counts.rows, counts.text_bytes) != (self.rows, self._text_bytes):
            text = f"{self.rows:,} rows with {self._text_bytes:,} bytes of text were written"
            raise InputOutputError(f"{self._path}: {text}, {counts.rows:,} with {counts.text_bytes:,} read back")
        return f"{self.rows:,} rows read, {counts.rows:,} counted in the output, {counts.text_bytes:,} bytes of text"

    def read_keys(self) -> Iterator[RowKeyTuple]:
        """Yield the keys of all rows; see `RunFileWriter`."""
        from binlogtool.pipeline.writers.readback import read_tables

        if not self.rows:
            return  # a file without rows may be invalid in its format
        for table in read_tables(self._file_options.to, self._path, ("generation", "file", "record", "inner_offset")):
            for generation, file, record, inner in zip(*(one.to_pylist() for one in table.columns), strict=True):
                if record is not None:
                    yield generation, file, record, -1 if inner is None else inner


def _count_text_bytes(table: pa.Table, file_options: TableFileOptions) -> int:
    import pyarrow.compute as compute

    from binlogtool.pipeline.writers.table_form import stored_text_columns

    return sum(
        compute.sum(compute.binary_length(table[name])).as_py() or 0 for name in stored_text_columns(file_options)
    )
