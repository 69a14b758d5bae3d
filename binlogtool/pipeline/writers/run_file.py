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
from binlogtool.log.body_json import finding_json
from binlogtool.log.open import Log
from binlogtool.log.parts import Part
from binlogtool.log.records import Block, Trouble
from binlogtool.log.select import Selection
from binlogtool.pipeline.account import Account
from binlogtool.pipeline.closing import is_damage
from binlogtool.pipeline.writers.table_form import Shape

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[int, str, int, int]
"""Generation, file, record, offset within the record (-1 = the row is the whole record)."""

_GROUP_ROWS, _GROUP_BYTES = 1 << 16, 32 << 20


class Adding(Protocol):
    """Writer of one run's file. rows: rows written so far. account: findings."""

    account: Account
    rows: int

    def add(self, log: Log, selection: Selection, part: Part, generation: int, closed: bool) -> None:
        """Write the records of a part of the log's only file. closed: nothing will follow the part."""

    def tell(self, file: str, format: str, found: Finding, generation: int) -> None:
        """Report a finding in place of records, as a row if the format has rows for that."""

    def close(self) -> None:
        """Complete the file."""

    def proven(self) -> str:
        """Compare the file on the disk with what was written, and return the figures as text.

        Raises:
            InputOutputError: they differ.
        """

    def keys(self) -> Iterator[Key]:
        """Yield the keys of all records, read from the disk."""


class Lines:
    """JSON lines as `dump` writes them. lines: encodes a block."""

    def __init__(self, path: Path, lines: Callable[[Block], bytes]) -> None:
        self.account, self.rows = Account(), 0
        self._path, self._lines = path, lines
        self._file, self._hash = path.open("xb"), hashlib.sha256()

    def add(self, log: Log, selection: Selection, part: Part, generation: int, closed: bool) -> None:
        """Write the records of a part; see `RunFileWriter`."""
        for one in log.blocks(selection, part=part):
            if isinstance(one, Trouble):
                self.account.add(one.file, finding_json(one.finding), damage=is_damage(one.finding, lambda: closed))
                continue
            for found in (found for findings in one.findings.values() for found in findings):
                self.account.add(one.file, finding_json(found), damage=False)
            self._write(self._lines(one), generation)
            self.rows += len(one)

    def _write(self, data: bytes, generation: int) -> None:
        """Write lines, each a JSON object, with the generation inserted as first member."""
        made = b"".join(b'{"generation":%d,%b' % (generation, line[1:]) for line in data.splitlines(keepends=True))
        self._hash.update(made)
        self._file.write(made)

    def tell(self, file: str, format: str, found: Finding, generation: int) -> None:
        """Add a finding to the tally only: lines are records."""
        self.account.add(file, finding_json(found), damage=False)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()

    def proven(self) -> str:
        """Compare the file with what was written; see `RunFileWriter`."""
        found, digest = 0, hashlib.sha256()
        with self._path.open("rb") as file:
            for line in file:
                found += 1
                digest.update(line)
        if digest.digest() != self._hash.digest():
            raise InputOutputError(f"{self._path}: what was read back is not what was written")
        if found != self.rows:
            raise InputOutputError(f"{self._path}: {self.rows:,} records were read, and {found:,} lines written")
        return f"{self.rows:,} records read, {found:,} lines with sha256 {digest.hexdigest()} counted in the output"

    def keys(self) -> Iterator[Key]:
        """Yield the keys of all lines; see `RunFileWriter`."""
        decode = msgspec.json.Decoder(_Line).decode
        with self._path.open("rb") as file:
            for line in map(decode, file):
                yield line.generation, line.file, line.record, -1 if line.inner is None else line.inner.offset


class _Inner(msgspec.Struct):
    offset: int


class _Line(msgspec.Struct):
    generation: int
    file: str
    record: int
    inner: _Inner | None = None


class Table:
    """Rows as in `binlogtool.pipeline.rows`, in any table format, written without Spark."""

    def __init__(self, path: Path, shape: Shape) -> None:
        import pyarrow as pa

        from binlogtool.pipeline import rows
        from binlogtool.pipeline.typed.table_files import opened

        self.account, self.rows = Account(), 0
        self._path, self._shape, self._text_bytes, self._told = path, shape, 0, 0
        self._schema = rows.SCHEMA.append(pa.field("generation", pa.int64()))
        self._held, self._held_rows, self._held_bytes = list[Any](), 0, 0
        self._file = opened(shape, path, self._schema)

    def add(self, log: Log, selection: Selection, part: Part, generation: int, closed: bool) -> None:
        """Write the records of a part; see `RunFileWriter`."""
        from binlogtool.pipeline import rows
        from binlogtool.pipeline.making import made_of

        file = log.files[0]
        for one in made_of(log, file.path, selection, part, rows.ALL):
            if isinstance(one, Block):
                self._take(rows.ALL.batches(one), generation)
            elif not isinstance(one, Trouble):
                self._take((one,), generation)
            elif is_damage(one.finding, lambda: closed):
                self._take((rows.ALL.damage(file.path, file.format.name, one.finding),), generation)
            else:
                self.account.add(one.file, finding_json(one.finding), damage=False)

    def tell(self, file: str, format: str, found: Finding, generation: int) -> None:
        """Write a DAMAGE row for the finding; see `RunFileWriter`."""
        from binlogtool.pipeline import rows

        self._take((rows.ALL.damage(file, format, found),), generation)
        self._told += 1

    def _take(self, batches: Iterable[pa.RecordBatch], generation: int) -> None:
        import pyarrow as pa

        for batch in batches:
            column = pa.repeat(pa.scalar(generation, pa.int64()), batch.num_rows)
            self._held.append(pa.RecordBatch.from_arrays([*batch.columns, column], schema=self._schema))
            self._held_rows += batch.num_rows
            self._held_bytes += batch.nbytes
            if self._held_rows >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
                self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._held:
            table = pa.Table.from_batches(self._held, self._schema)
            self._text_bytes += _text_bytes(table, self._shape)
            self._file.write(table)
            self.rows += table.num_rows
        self._held, self._held_rows, self._held_bytes = [], 0, 0

    def close(self) -> None:
        """Complete the file."""
        self._flush()
        self._file.close()

    def proven(self) -> str:
        """Compare the file with what was written; see `RunFileWriter`."""
        from binlogtool.pipeline.written import PartFile, count_part

        if not self.rows:
            return "no rows"
        size = self._path.stat().st_size
        found = count_part(PartFile(str(self._path.parent), self._path.name, size), self._shape)
        self.account.join(found.account)
        self.account.errors -= self._told
        if (found.rows, found.text_bytes) != (self.rows, self._text_bytes):
            text = f"{self.rows:,} rows with {self._text_bytes:,} bytes of text were written"
            raise InputOutputError(f"{self._path}: {text}, {found.rows:,} with {found.text_bytes:,} read back")
        return f"{self.rows:,} rows read, {found.rows:,} counted in the output, {found.text_bytes:,} bytes of text"

    def keys(self) -> Iterator[Key]:
        """Yield the keys of all rows; see `RunFileWriter`."""
        from binlogtool.pipeline.writers.readback import tables

        if not self.rows:
            return  # a file without rows may be invalid in its format
        for table in tables(self._shape.to, self._path, ("generation", "file", "record", "inner_offset")):
            for generation, file, record, inner in zip(*(one.to_pylist() for one in table.columns), strict=True):
                if record is not None:
                    yield generation, file, record, -1 if inner is None else inner


def _text_bytes(table: pa.Table, shape: Shape) -> int:
    import pyarrow.compute as compute

    from binlogtool.pipeline.writers.table_form import texts

    return sum(compute.sum(compute.binary_length(table[name])).as_py() or 0 for name in texts(shape))
