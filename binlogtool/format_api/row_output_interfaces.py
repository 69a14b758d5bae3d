"""Tables, row changes, SQL scripts and whole transactions that formats make from records, in one shape for all formats.

A type is an SQL type name: boolean, int (32 bits), bigint (64), float (32), double, decimal(p,s) of at most 38 digits,
string, binary, date, timestamp (an instant, microseconds, UTC), timestamp_ntz (the same without a zone), array<string>,
array<double>, `JSON`, `GEOMETRY`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from binlogtool.findings import Finding
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.format_api.format import BodyWithFindings
    from binlogtool.format_api.layout import Batch, FlatRecords, Kernel


# --- Unique full names of tables ---

_PARTS = re.compile(r"(`(?:[^`]|``)*`|[^.]*)\.(.*)", re.DOTALL)


def qualify_name(database: str, table: str) -> str:
    """Return database.table; a part with a dot, or with a leading backtick, is quoted as in a statement."""
    if "." not in database and "." not in table and database[:1] != "`" and table[:1] != "`":
        return f"{database}.{table}"
    return f"{_quote_part(database)}.{_quote_part(table)}"


def split_table_name(name: str) -> tuple[str, str]:
    """Split a full name into database and table."""
    match = _PARTS.fullmatch(name)
    return ("", _unquote_part(name)) if match is None else (_unquote_part(match[1]), _unquote_part(match[2]))


def unquote_name(name: str) -> str:
    """Return a full name without quotes, as logs show it."""
    return ".".join(split_table_name(name))


def _quote_part(part: str) -> str:
    return "`" + part.replace("`", "``") + "`" if "." in part or part[:1] == "`" else part


def _unquote_part(part: str) -> str:
    return part[1:-1].replace("``", "`") if part[:1] == "`" else part


# --- Several files of CREATE TABLE statements as one text ---

_SCHEMA_FILE = re.compile(r"^-- file of --schema: (.*)$", re.MULTILINE)


def join_schema_files(files: Sequence[tuple[str, str]]) -> str:
    """Join the texts of several files of --schema, each after a comment with its name. files: (name, text)."""
    return "".join(f"-- file of --schema: {' '.join(name.splitlines())}\n{text}\n" for name, text in files)


def split_schema_files(sql: str) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each file that `join_schema_files` joined; the name is "" for a text that is one file."""
    if not sql.startswith("-- file of --schema: "):
        yield "", sql
        return
    _, *parts = _SCHEMA_FILE.split(sql)
    yield from zip(parts[::2], (text[1:] for text in parts[1::2]), strict=True)


# --- Tables of a log in one shape for every format ---

GEOMETRY = "struct<srid:bigint,wkb:binary>"
JSON = "json"
"""Column type of JSON text: a JSON null is the text `null`, a string has its quotes."""
MAX_DECIMAL_DIGITS = 38
"""Maximum number of digits of a decimal; decimals with more digits are exported as text."""
TUPLE = "tuple"
"""Name of the only column, with each row as JSON, of a table whose columns are unknown."""


class TableColumn(msgspec.Struct, frozen=True):
    """Column of a table: its name and its type.

    widest_type: the type for every allowed value, if `type` is only for the usual values; "" = `type` is for all.
    """

    name: str
    type: str
    widest_type: str = ""


class TableSchema(msgspec.Struct, frozen=True):
    """Table as the log describes it at some position; another description is another object.

    Args:
        key: names of the columns of its primary key; () = unknown.
        ids: other identifiers that records use for it (its number).
        display_name: name shown in records, which several tables may share; "" = `name`.
        is_partial: the log does not define the table; the columns are those that its records have had so far.
    """

    name: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    display_name: str = ""
    is_partial: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which the table can be selected."""
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
"""Row image: column -> value, as `dump` shows it; columns that are not in the log are absent."""


def pad_binary(size: int, value: Any) -> Any:
    """Pad the value of a BINARY column to `size` bytes: a log may leave out trailing zero bytes."""
    return value.ljust(size, b"\0") if isinstance(value, bytes) else value


def pad_binary_columns(image: Image | None, sizes: Mapping[str, int]) -> Image | None:
    """Pad the BINARY columns of a row image. sizes: column -> bytes."""
    if image is None or not sizes:
        return image
    return {name: pad_binary(sizes[name], value) if name in sizes else value for name, value in image.items()}


class TableRow(NamedTuple):
    """One changed row.

    Args:
        op: INSERT, UPDATE, DELETE, or the format's own name for it.
        before, after: row images; None = no image.
        key, operations: key and operations of a change that was logged without images.
    """

    table: TableSchema
    op: str
    before: Image | None
    after: Image | None
    key: Any = None
    operations: Any = None


_VALUE_BYTES, _ROW_BYTES = 64, 512
"""Memory, in bytes, of a decoded value in addition to the bytes of a text, and of a row in addition to its values."""


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
        valid: one byte per cell: 0 = NULL, 1 = a value, 2 = the raw bytes of a value that `decode_raw` decodes: a text,
            or a little-endian number.
        decode_raw: function that decodes a value, as `dump` shows it, from its raw bytes; it raises like the decoding
            of bodies.
        raw_bytes: size of a raw number.
        texts: meaning of the numbers of an ENUM (from 1 on, 0 = "") or of the bits of a SET.
    """

    values: memoryview
    valid: memoryview
    data: memoryview | None
    decode_raw: Callable[[bytes, Limits], Any]
    raw_bytes: int = 0
    wide: bool = False
    texts: Sequence[str] | None = None

    def iter_raw(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number of the cell, raw bytes) for each cell with raw bytes."""
        flags, step = bytes(self.valid), 1 + self.wide
        at = flags.find(2)
        while at >= 0:
            if self.data is not None:
                yield at, bytes(self.data[self.values[at] : self.values[at + 1]])
            else:
                yield at, (self.values[step * at] & (1 << 64) - 1).to_bytes(8, "little")[: self.raw_bytes]
            at = flags.find(2, at + 1)


class CellBuffer(Protocol):
    """Rows stored as columns of memory."""

    table: TableSchema

    @property
    def size_in_bytes(self) -> int:
        """Approximate memory of all rows, in bytes."""

    def read_column(self, index: int, side: int, start: int, stop: int) -> ColumnCells:
        """Return the cells of a column in the before image (side 0) or after image (1), of the rows `[start, stop)`."""


class CellSlice(NamedTuple):
    """The rows `[start, start + size)` of a cell buffer that no longer changes.

    Args:
        sides: 1 = rows have a before image, 2 = an after image, 3 = both.
        absent: (0 = before or 1 = after, number of the column) of columns that are not in the log for these rows.
    """

    buffer: CellBuffer
    start: int
    size: int
    sides: int
    absent: Sequence[tuple[int, int]] = ()


class RecordTableRows(msgspec.Struct, frozen=True):
    """Rows of one record, and its information about tables.

    Args:
        rows: the rows, in the record's order.
        findings: findings about the record.
        described: tables that the record describes.
        time: time of the rows, microseconds since 1970, if it is more exact than that of the record.
        begins: a transaction begins here; an earlier one whose end was not seen has no end.
        ends: the transaction of the last row ends here.
        remark: text about what the record does to tables.
        cells: several rows, instead of `rows`.
        changes: the only table that the record is known to change, if its rows are unknown; None = it may be any table.
        emptied: tables that lose all their rows here, as rows without images; op is the statement, TRUNCATE or DROP.
        dropped_database: database whose tables are dropped here; "" = none.
        renamed: (old, new) names of tables that are renamed here, in order.
        reason: why compiled code did not decode the rows together with those of other records, as text about the rows.
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
    dropped_database: str = ""
    renamed: Sequence[tuple[str, str]] = ()
    reason: str = ""


NO_ROWS = RecordTableRows()
TRANSACTION_BEGINS = RecordTableRows(begins=True)


class CellRun(NamedTuple):
    """Consecutive rows of one table from some of the events of `EventRows`.

    Args:
        start: index of the first row.
        event_numbers: numbers of the events; the rows of each event follow those of the previous event.
    """

    buffer: CellBuffer
    start: int
    event_numbers: Sequence[int]


class EventRows(NamedTuple):
    """Content of consecutive records, if it consists only of rows as cells, ends of transactions and table
    descriptions.

    Args:
        described: newly described tables.
        closes: the transaction that was already open ends here, before any of these rows.
        begins: another transaction begins here instead, so that the open one has no end.
        open: the transaction of the last row has not ended.
        runs: all rows; those of a table in log order.
        record_indexes: for each record with rows of a selected table, its index in the batch; the following arrays also
            have one entry per such record.
        offsets: its offset from the start of the batch's window.
        row_counts: its number of rows.
        kind_indexes: index in `kinds`: the sides and absent columns, as in `CellSlice`.
        times: microseconds since 1970, -1 = unknown.
        origins: as in the envelope.
        owners: index of its transaction in `sources`, each of which is (`txn`, `seq`) of the envelope.
        commits: 1 = its last row is the last row of the transaction, whose end was read.
        groups: number of its transaction among these records.
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
    groups: array[int]
    kinds: Sequence[tuple[int, Sequence[tuple[int, int]]]]
    sources: Sequence[tuple[str | None, int | None]]


class TableReader:
    """Extract rows from the selected records of a log, in their order; one reader for all its files.

    A format overrides `read_records`, and other methods where it needs to.
    """

    def read_records(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; the records must be passed and consumed in order."""
        raise NotImplementedError

    def add_known_tables(self, tables: Iterable[TableSchema]) -> None:
        """Add descriptions of tables from other files; they apply if the records' own file has none."""

    def limit_to_tables(self, is_selected: Callable[[TableSchema], bool]) -> None:
        """Allow the reader to leave out the rows of other tables; their descriptions are still reported."""

    def note_missing_records(self) -> None:
        """Handle a gap: records may be missing here."""


@runtime_checkable
class CompiledTableReader(Protocol):
    """`TableReader` with compiled code for many records at once."""

    def read_rows_until_unsupported(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits, marks: bytes | None = None
    ) -> tuple[EventRows | None, int]:
        """Return the content of the first of these records, and the index of the next record, which needs
        `read_records`.

        Args:
            marks: a byte for each record from `start` on, 0 for records that are not selected; None = all are selected.
        """

    def read_column(self, context: Any, batch: Batch, name: str, start: int, stop: int) -> Sequence[Any]:
        """Return one column of the envelopes of these records."""

    def use_values_instead_of_cells(self) -> None:
        """Make `read_records` yield rows as values, not as cells."""


class TableSupport(msgspec.Struct, frozen=True):
    """Readers of the tables in a format's logs, and the records that they need.

    Args:
        make_reader: function that creates a reader.
        make_compiled_reader: function that creates a reader with compiled code, made by its argument.
        types, objects: only records of these types, and about these objects besides the table itself, describe tables;
            () = any.
        older: earlier files in a file's directory also describe its tables, back to a file with a name that matches
            (fnmatch); () = each file is complete.
        operations: a change can be a key and operations, without images.
        transactions: logs contain the ends of transactions.
        statements: records without an object may change or empty a table.
        emptied: records say which tables are emptied, dropped and renamed, and rows have keys.
    """

    make_reader: Callable[[], TableReader]
    types: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    older: tuple[str, ...] = ()
    operations: bool = False
    transactions: bool = True
    statements: bool = False
    emptied: bool = False
    make_compiled_reader: Callable[[Callable[[Kernel], Kernel]], TableReader] | None = None


# --- Row changes in one shape for every format ---

INSERT, UPDATE, DELETE = "insert", "update", "delete"
UNFINISHED_TRANSACTION = "{} has no end in the part read; its messages are included, though the server may roll it back"
"""Text of a finding about an exported transaction without end; its name is that of `ChangeReader.open_transaction`."""
ROW_KINDS = (INSERT, UPDATE, DELETE)
TRUNCATE, DDL, BEGIN, END = "truncate", "ddl", "begin", "end"


class SqlColumn(msgspec.Struct, frozen=True):
    """Column of a table, with its SQL type.

    Args:
        type: SQL type name in lower case: tinyint, smallint, mediumint, int, bigint, float, double, decimal, bit, enum,
            set, year, date, time, datetime, timestamp, char, varchar, binary, varbinary, text and blob (also with the
            prefixes tiny, medium and long), json, geometry, vector, or a type of one server only, as uuid.
        size: bytes of the longest value, bits of BIT, digits of DECIMAL; 0 = unknown.
        scale: digits after the decimal point, also of seconds.
        values: texts of an ENUM or SET.
        length: characters of the longest text; 0 = unknown.
        geometry: SQL name of the only geometry type that the column accepts ("point"); "" = unknown, or any.
        kind: its type in exported tables (`format_api.row_output_interfaces`).
    """

    name: str
    type: str
    nullable: bool = True
    unsigned: bool = False
    size: int = 0
    scale: int = 0
    values: tuple[str, ...] = ()
    length: int = 0
    geometry: str = ""
    kind: str = "string"


class SqlTable(msgspec.Struct, frozen=True):
    """Table with SQL types. key: names of the columns of its primary key, in the key's order."""

    database: str
    name: str
    columns: tuple[SqlColumn, ...]
    key: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Unique name database.table; see `qualify_name`."""
        return qualify_name(self.database, self.name)

    @property
    def display_name(self) -> str:
        """Name database.table as logs show it, unquoted."""
        return f"{self.database}.{self.name}"


class ChangeTransaction(msgspec.Struct, frozen=True):
    """Transaction as its first event describes it; there is one object per transaction.

    Args:
        id: GTID.
        file, offset: position of its beginning.
        time: time of its commit, microseconds since 1970; None = not in the log.
        thread: id of the session.
        has_begin: it has an explicit begin event; a statement that is a transaction by itself may have none.
    """

    id: str | None
    file: str
    offset: int
    time: int | None = None
    thread: int | None = None
    has_begin: bool = True


class ChangePosition(msgspec.Struct, frozen=True):
    """Position and origin of a change.

    Args:
        offset, end: range of its event in the file.
        row: number of the row in the event.
        time: time of the transaction's commit, else of the event, microseconds since 1970.
        logged: time of the event itself, in seconds.
        server: id of the server that made the change.
        engine: kind of server.
        query: the statement, if the log contains it; there is one object per statement.
    """

    file: str
    offset: int
    end: int
    server: int
    engine: str
    time: int | None = None
    logged: int | None = None
    row: int = 0
    query: str | None = None


class ChangeEvent(msgspec.Struct, frozen=True):
    """One change.

    Args:
        kind: one of the constants of this module; BEGIN and END are those of a transaction.
        place: its position and origin.
        transaction: its transaction; None = the beginning of the transaction is unknown.
        before, after: row images; None = no such image.
        database: the default database of the statement, or the database that it is about.
        statement: text of a DDL statement; for END, the statement that ends the transaction.
        action: "create", "alter", "drop", "rename" or "truncate", of the table (or of the database if there is no
            table); "" = another action.
        becomes: the table after a rename.
        xid: XID of an END.
    """

    kind: str
    place: ChangePosition
    transaction: ChangeTransaction | None = None
    table: SqlTable | None = None
    before: Image | None = None
    after: Image | None = None
    database: str = ""
    statement: str = ""
    action: str = ""
    becomes: SqlTable | None = None
    xid: int | None = None


class RecordChanges(msgspec.Struct, frozen=True):
    """The changes of one record.

    Args:
        changes: the changes, read lazily; reading raises as `ChangeReader.read_records` does.
        findings: findings about the record.
        about: the only table that the record changes, if its changes are unknown; None = it may be any table.
    """

    changes: Iterator[ChangeEvent] | Sequence[ChangeEvent] = ()
    findings: tuple[Finding, ...] = ()
    about: SqlTable | None = None


class ChangeRows(NamedTuple):
    """The rows of consecutive records as cells, with the facts that messages contain about them.

    Args:
        tables: that of each run.
        thread_texts: for each event, the number of the session as JSON.
        engine: "mysql" or "mariadb".
        file: name of the log file.
        base: offset in the file from which the offsets count.
        container_offset: offset in the file of the record that contains all of these; None = there is none.
    """

    events: EventRows
    tables: Sequence[SqlTable]
    thread_texts: Sequence[bytes]
    engine: str
    file: str
    base: int
    container_offset: int | None


EncodeRows = Callable[[ChangeRows], bytes | None]
"""Returns the lines for rows; None if it cannot encode them."""


class ChangeReader(Protocol):
    """Reader of the changes in the selected records of a log, in order; one reader for all its files."""

    def read_records(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordChanges]:
        """Yield the changes of each of these records; the records must be passed and consumed in order."""

    def encode_rows_until_unsupported(
        self,
        context: Any,
        batch: Batch,
        start: int,
        stop: int,
        limits: Limits,
        compile_kernel: Callable[[Kernel], Kernel],
        encode: EncodeRows,
    ) -> tuple[bytes, int]:
        """Return the lines for the first of these records, and the next record, which needs `read_records`."""

    def note_missing_records(self) -> None:
        """Note that records may be missing here: afterwards the beginnings of open transactions are unknown."""

    @property
    def open_transaction(self) -> str:
        """Name of the transaction whose end was not read; "" = there is none."""


# --- SQL scripts for a server ---


class DatabaseRenames(dict[str, str]):
    """New names of databases. seen: the databases of the log whose names were looked up so far."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def find_new_name(self, database: str) -> str | None:
        """Return the new name of a database of the log; None if it keeps its name."""
        if self and len(self.seen) < _MAX_SEEN:
            self.seen.add(database)
        return self.get(database)

    @property
    def unseen(self) -> list[str]:
        """The databases to rename that the log did not have so far."""
        return [name for name in self if name not in self.seen]


_MAX_SEEN = 10_000


class ScriptOptions(msgspec.Struct, frozen=True):
    """Options of an SQL script.

    Args:
        gtids: keep the GTIDs of the transactions.
        flashback: write statements that reverse the row changes; the caller must reverse the order of the texts that
            `ScriptWriter` returns.
        rename_databases: name -> the name to use instead.
        includes_table: "database.table" -> is the table written, or reversed? None = all are.
        rows: row changes as their original events ("exact"), or as INSERT, UPDATE and DELETE ("statements").
        comments: add comments about what the events change.
        only_databases: databases that are written; empty = all.
        stop_before: a statement; the script ends before the transaction that contains the first matching statement.
        sidecar_files: receiver of the files in the log; None = they are not written.
        skip_ddl: a flashback leaves out table definitions, and reports that.
        match_all: statements of a flashback find a row by all its columns, not by its primary key.
        row_filter: selects the rows to write or reverse; `includes_table` excludes tables of which it selects no row.
        is_partial: only some transactions or rows are selected: a flashback reports later changes of the selected rows.
    """

    gtids: bool = False
    flashback: bool = False
    rename_databases: DatabaseRenames = msgspec.field(default_factory=DatabaseRenames)
    includes_table: Callable[[str], bool] | None = None
    rows: str = "exact"
    comments: bool = False
    only_databases: frozenset[str] = frozenset()
    stop_before: str | None = None
    sidecar_files: SidecarFiles | None = None
    skip_ddl: bool = False
    match_all: bool = False
    row_filter: RowFilter | None = None
    is_partial: bool = False


class RowFilter(Protocol):
    """Filter of rows by a condition on them and their record."""

    @property
    def columns(self) -> frozenset[str]:
        """Columns that the condition refers to."""

    def select_rows(self, index: int, body: Callable[[], Any]) -> bool | Sequence[bool]:
        """Return for each row of a record whether it is selected; a single bool applies to all of them.

        Args:
            index: index of the record in the batch.
            body: function that decodes the record.
        """


class SidecarFiles(Protocol):
    """Files that a script needs beside it, with the data of LOAD DATA statements."""

    def add(self, name: str, data: bytes) -> None:
        """Append bytes to a file."""

    def path(self, name: str) -> str:
        """Return the path under which the script will find the file."""


class ScriptWriter(Protocol):
    """Writer of statements for a server from the selected records of a log, in order; one writer for all its files.

    A statement is written only when it is completely known. A client can execute the text line by line.
    """

    def make_record_texts(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> list[bytes | BodyWithFindings]:
        """Return the text for each of these records, b"" for none; `BodyWithFindings` if a statement is missing."""

    @property
    def stop_finding(self) -> Finding | None:
        """Finding with the reason why nothing more is written although the log continues; None = not stopped."""

    def write_until_unsupported(
        self,
        context: Any,
        batch: Batch | FlatRecords,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """Return the text for the first of these records, as far as compiled code supports them, and the next record.

        Args:
            batch: a batch, or a run of records with the records inside them; `start` and `stop` are indexes in it.
        """

    def note_unselected_records(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> None:
        """Note records that are not selected; called in log order with the other methods."""

    @property
    def row_changes(self) -> int | None:
        """Number of row changes written; None = not counted."""

    @property
    def is_empty(self) -> bool:
        """True if nothing from the log has been written so far."""

    @property
    def has_open_transaction(self) -> bool:
        """True if a selected transaction has begun and its end was not read."""

    def write_text_for_gap(self, what: str = "") -> bytes:
        """Return the text for a position where records may be missing: an open transaction must not be committed.

        what: description of the gap.
        """

    def finish(self) -> bytes:
        """Return the text after the last record."""

    def final_findings(self) -> Sequence[Finding]:
        """Return the findings that are known at the end."""


# --- Event groups ---


class PortableEventGroup(msgspec.Struct, frozen=True):
    """Events that a server wrote to its log in one step: a transaction, or an event outside of transactions.

    Args:
        offset, size: position in the file; for a transaction in several places, the position of its commit.
        record: number of the record at that position.
        type: type of the first event.
        txn, seq, time, origin: as in `EnvelopeColumns`.
        events: bytes of the events, in order, each with its header and without a checksum; sizes and positions in the
            headers may be those of another container.
    """

    offset: int
    size: int
    record: int
    type: str
    txn: str | None
    seq: int | None
    time: int | None
    origin: int | None
    events: tuple[bytes, ...]


class PriorGtids(NamedTuple):
    """Last transactions before this position, as (domain, server, number) in the log's order.

    is_complete: all of them are listed; otherwise only those since some earlier position.
    """

    gtids: tuple[tuple[int, int, int], ...]
    is_complete: bool


class EventGroupReader(Protocol):
    """Reader of the event groups in the batches of one file, in order; a finding replaces an incomplete group."""

    def read_groups(self, batch: Batch) -> Iterator[PortableEventGroup | PriorGtids | Finding]:
        """Yield the event groups of this batch that are known to be complete."""

    def skip_damage(self, start: int, end: int) -> Iterator[PortableEventGroup | Finding]:
        """Note that `[start, end)` of the file was skipped."""

    def finish(self) -> Iterator[PortableEventGroup | Finding]:
        """Yield the remaining groups at the end of the file."""
