"""Tables of a log in one shape for every format: their columns, and the rows in its records.

A type is an SQL type name: boolean, int (32 bits), bigint (64), float (32), double, decimal(p,s) of at most 38 digits,
string, binary, date, timestamp (an instant, microseconds, UTC), timestamp_ntz (the same without a zone), array<string>,
array<double>, `JSON`, `GEOMETRY`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.table_names import qualify_name
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.layouts import Batch, Kernel

GEOMETRY = "struct<srid:bigint,wkb:binary>"
JSON = "json"
"""Text of JSON: a null of JSON is the text `null`, a string has its quotes."""
MAX_DECIMAL_DIGITS = 38
"""Of a decimal; one with more is text."""
TUPLE = "tuple"
"""The only column of a table of which nothing is known: each row as JSON."""


class TableColumn(msgspec.Struct, frozen=True):
    """A column: its name and its type.

    widest_type: the type that holds every allowed value, where `type` holds the usual ones; "" = `type` holds all.
    """

    name: str
    type: str
    widest_type: str = ""


class TableSchema(msgspec.Struct, frozen=True):
    """A table as the log describes it at some position; another description is another object.

    Args:
        key: names of the columns of its primary key; () = not known.
        ids: other identifiers that records use for it (its number).
        display_name: name in records, which several tables may share; "" = `name`.
    """

    name: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    display_name: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All names that select it."""
        return (self.name, *self.ids, self.display_name) if self.display_name else (self.name, *self.ids)

    def is_same_table(self, other: TableSchema) -> bool:
        """Return True if both are the same table, which may have been renamed."""
        return self.name == other.name or not set(self.ids).isdisjoint(other.ids)


def make_database_table(
    database: str, table: str, columns: tuple[TableColumn, ...], key: tuple[str, ...] = ()
) -> TableSchema:
    """Create a table of a database, with its unique name."""
    name, display_name = qualify_name(database, table), f"{database}.{table}"
    return TableSchema(name, columns, key, display_name="" if display_name == name else display_name)


Image = Mapping[str, Any]
"""Column -> value, as `dump` shows it; a column that the log does not have is not in it."""


def pad_binary(size: int, value: Any) -> Any:
    """Pad the value of a BINARY column to `size` bytes: a log may leave out trailing zero bytes."""
    return value.ljust(size, b"\0") if isinstance(value, bytes) else value


def pad_image(image: Image | None, sizes: Mapping[str, int]) -> Image | None:
    """Pad the BINARY columns of a row image. sizes: column -> bytes."""
    if image is None or not sizes:
        return image
    return {name: pad_binary(sizes[name], value) if name in sizes else value for name, value in image.items()}


class TableRow(NamedTuple):
    """One changed row.

    Args:
        op: INSERT, UPDATE, DELETE, or the format's own name for it.
        before, after: row images; None = there is none.
        key, operations: of a change that the log has without images.
    """

    table: TableSchema
    op: str
    before: Image | None
    after: Image | None
    key: Any = None
    operations: Any = None


_VALUE_BYTES, _ROW_BYTES = 64, 512
"""Memory of a decoded value beside the bytes of a text, and of what a row has beside its values."""


def estimate_row_bytes(row: TableRow) -> int:
    """Estimate the memory of a decoded row, in bytes."""
    images = (image.values() for image in (row.before, row.after) if image)
    return (
        _ROW_BYTES
        + sum(map(estimate_value_bytes, chain(*images)))
        + estimate_value_bytes(row.key)
        + estimate_value_bytes(row.operations)
    )


def estimate_value_bytes(value: Any) -> int:
    """Estimate the memory of a decoded value, in bytes."""
    if isinstance(value, str | bytes):
        return _VALUE_BYTES + len(value)
    if isinstance(value, Mapping):
        return _VALUE_BYTES + sum(map(estimate_value_bytes, chain(value, value.values())))
    if isinstance(value, list | tuple):
        return _VALUE_BYTES + sum(map(estimate_value_bytes, value))
    return _VALUE_BYTES


class ColumnCells(NamedTuple):
    """Cells of one column of one image.

    Args:
        values: 64-bit integers; the bits of a double or (in 32 bits) of a float; days; microseconds; for `wide`
            decimals two per cell, the low half first; for texts the end of each in `data`, after the start of the
            first.
        valid: one byte per cell, 0 = NULL.
        texts: meaning of the numbers of an ENUM (from 1 on, 0 = "") or of the bits of a SET.
        leaf: decodes a value, as `dump` shows it, from its bytes in `data`; raises as a format's bodies do.
    """

    values: memoryview
    valid: memoryview
    data: memoryview | None
    wide: bool = False
    texts: Sequence[str] | None = None
    leaf: Callable[[bytes, Limits], Any] | None = None


class CellBuffer(Protocol):
    """Rows stored as columns of memory."""

    table: TableSchema

    def read_column(self, index: int, side: int, start: int, stop: int) -> ColumnCells:
        """Return the cells of a column in the image before (side 0) or after (1), of the rows `[start, stop)`."""


class CellSlice(NamedTuple):
    """The rows `[start, start + size)` of a cell buffer, which does not change any more.

    Args:
        sides: 1 = rows have an image before, 2 = one after, 3 = both.
        absent: (0 = before, 1 = after; number of a column) of columns that the log does not have for these rows.
    """

    buffer: CellBuffer
    start: int
    size: int
    sides: int
    absent: Sequence[tuple[int, int]] = ()


class RecordTableRows(msgspec.Struct, frozen=True):
    """The rows of one record, and what it says about tables.

    Args:
        rows: in the record's order.
        findings: about the record.
        described: tables that it describes.
        time: of the rows, microseconds since 1970, where it is more exact than that of the record.
        begins: a transaction begins here; one whose end was not seen has none.
        ends: the transaction of the last row ends here.
        remark: what it does to tables, as text.
        cells: several rows, in place of `rows`.
        changes: the only table that it is known to change, where its rows are not known; None = it may be any.
        emptied: tables that lose all their rows here, as rows without images; op is the statement, TRUNCATE or DROP.
    """

    rows: Sequence[TableRow] = ()
    findings: tuple[Finding, ...] = ()
    described: Sequence[TableSchema] = ()
    time: int | None = None
    begins: bool = False
    ends: bool = False
    remark: str = ""
    cells: CellSlice | None = None
    changes: TableSchema | None = None
    emptied: Sequence[TableRow] = ()


NO_ROWS = RecordTableRows()
TRANSACTION_BEGINS = RecordTableRows(begins=True)


class CellRun(NamedTuple):
    """Consecutive rows of one table from some of the events of `EventRows`.

    Args:
        start: the first row.
        event_numbers: numbers of the events; the rows of each follow those of the one before.
    """

    buffer: CellBuffer
    start: int
    event_numbers: Sequence[int]


class EventRows(NamedTuple):
    """The content of consecutive records, if it is only rows as cells, ends of transactions and table descriptions.

    Args:
        described: tables that were not described before.
        closes: the transaction that was open before ends here, before any row of these.
        begins: another one begins here instead, so that the open one has no end.
        open: the transaction of the last row has not ended.
        runs: all rows; those of a table in log order.
        record_indexes: for each record with rows of a selected table, its number in the batch; likewise the arrays
            below.
        offsets: where it begins, from the start of the batch's window.
        row_counts: how many rows it has.
        kind_indexes: index in `kinds`: the sides and absent columns, as in `CellSlice`.
        times: microseconds since 1970, -1 = not known.
        origins: as in the envelope.
        owners: which of the transactions in `sources` it belongs to, each as (`txn`, `seq`) of the envelope.
        commits: 1 = its last row is the last one of the transaction, whose end was read.
    """

    described: Sequence[TableSchema]
    closes: bool
    begins: bool
    open: bool
    runs: Sequence[CellRun]
    record_indexes: array[int]
    offsets: array[int]
    row_counts: array[int]
    kind_indexes: array[int]
    times: array[int]
    origins: array[int]
    owners: array[int]
    serials: array[int]
    commits: array[int]
    kinds: Sequence[tuple[int, Sequence[tuple[int, int]]]]
    sources: Sequence[tuple[str | None, int | None]]


class TableReader(Protocol):
    """Extract rows from the selected records of a log, in their order; one reader for all its files."""

    def read_records(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; to be consumed in order."""

    def add_known_tables(self, tables: Iterable[TableSchema]) -> None:
        """Take descriptions of tables from other files; they apply where the records' own file has none."""

    def limit_to(self, is_selected: Callable[[TableSchema], bool]) -> None:
        """Allow the reader to leave out the rows of other tables; their descriptions are still reported."""

    def note_gap(self) -> None:
        """Note that records may be missing here."""


@runtime_checkable
class CompiledTableReader(Protocol):
    """A `TableReader` that has compiled code for many records at once."""

    def read_events(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> tuple[EventRows | None, int]:
        """Return the content of the first of these records, and the next record, which needs `read_records`."""


class TableSupport(msgspec.Struct, frozen=True):
    """How the tables of a format's logs are read.

    Args:
        make_reader: creates a reader.
        make_compiled_reader: creates one that may use compiled code, made by its argument.
        types, objects: only records of these types, and about these objects beside the table itself, describe tables;
            () = any.
        older: the files before a file in its directory describe its tables, too, back to one with such a name
            (fnmatch); () = each file is complete.
        operations: a change can be a key and operations, without images.
        transactions: a log says where a transaction ends.
        statements: records that are about no object may change or empty a table.
    """

    make_reader: Callable[[], TableReader]
    types: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    older: tuple[str, ...] = ()
    operations: bool = False
    transactions: bool = True
    statements: bool = False
    make_compiled_reader: Callable[[Callable[[Kernel], Kernel]], TableReader] | None = None
