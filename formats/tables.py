"""The tables of a log, in one shape for every format: their columns, and the rows that its records tell of them.

A type is a word of SQL: boolean, int (32 bits), bigint (64), float (32), double, decimal(p,s) of at most 38 digits,
string, binary, date, timestamp (an instant, microseconds, UTC), timestamp_ntz (the same without a zone),
array<string>, array<double>, `JSON`, `GEOMETRY`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.table_names import full_name
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.layouts import Batch, Kernel

GEOMETRY = "struct<srid:bigint,wkb:binary>"
JSON = "json"
"""Text of JSON: a null of JSON is the text `null`, a string has its quotes."""
MOST_DIGITS = 38
"""Of a decimal; one with more is text."""
TUPLE = "tuple"
"""The only column of a table of which nothing is known: each row as JSON."""


class Column(msgspec.Struct, frozen=True):
    """A column: its name, and its type (see above). most: the type that holds all that is allowed in it, where `type`
    holds what is usual; "" = it holds all."""

    name: str
    type: str
    most: str = ""


class Table(msgspec.Struct, frozen=True):
    """A table as the log describes it at some place; another description is another object.

    key: the names of the columns of its primary key; () = not known. ids: what else records call it (its number).
    shown: what records call it, where other tables may be called so, too; "" = its name.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    shown: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """By which it is chosen."""
        return (self.name, *self.ids, self.shown) if self.shown else (self.name, *self.ids)

    def is_same(self, other: Table) -> bool:
        """Is it one table with another one, which may have been renamed?"""
        return self.name == other.name or not set(self.ids).isdisjoint(other.ids)


def in_database(database: str, table: str, columns: tuple[Column, ...], key: tuple[str, ...] = ()) -> Table:
    """A table of a database, by the name that no other one has."""
    name, shown = full_name(database, table), f"{database}.{table}"
    return Table(name, columns, key, shown="" if shown == name else shown)


Image = Mapping[str, Any]
"""Column -> value, as `dump` shows it; a column that the log does not have is not in it."""


def padded(size: int, value: Any) -> Any:
    """A value of a BINARY column of so many bytes: a log may leave out the zero bytes at its end."""
    return value.ljust(size, b"\0") if isinstance(value, bytes) else value


def filled_up(image: Image | None, sizes: Mapping[str, int]) -> Image | None:
    """An image whose BINARY columns have all their bytes. sizes: of those columns."""
    if image is None or not sizes:
        return image
    return {name: padded(sizes[name], value) if name in sizes else value for name, value in image.items()}


class Row(NamedTuple):
    """One changed row. op: INSERT, UPDATE, DELETE, or what the format calls it. before, after: None = there is no such
    image. key, operations: of a change that the log tells without images."""

    table: Table
    op: str
    before: Image | None
    after: Image | None
    key: Any = None
    operations: Any = None


_VALUE_BYTES, _ROW_BYTES = 64, 512
"""Memory of a decoded value beside the bytes of a text, and of what a row has beside its values."""


def row_bytes(row: Row) -> int:
    """Estimate the memory of a decoded row, in bytes."""
    images = (image.values() for image in (row.before, row.after) if image)
    return _ROW_BYTES + sum(map(value_bytes, chain(*images))) + value_bytes(row.key) + value_bytes(row.operations)


def value_bytes(value: Any) -> int:
    """Estimate the memory of a decoded value, in bytes."""
    if isinstance(value, str | bytes):
        return _VALUE_BYTES + len(value)
    if isinstance(value, Mapping):
        return _VALUE_BYTES + sum(map(value_bytes, chain(value, value.values())))
    if isinstance(value, list | tuple):
        return _VALUE_BYTES + sum(map(value_bytes, value))
    return _VALUE_BYTES


class ColumnCells(NamedTuple):
    """Cells of one column of one image. valid: a byte for each, 0 = NULL.

    values: integers of 64 bits; the bits of a double or (in 32 bits) of a float; days; microseconds; of `wide` decimals
    two for each, the low half first; of texts where each ends in `data`, after a first one where they begin. texts:
    what the numbers of an ENUM (from 1 on, 0 = "") or the bits of a SET stand for. leaf: makes a value, as `dump` shows
    it, of the bytes in `data`; it raises as a format's bodies do.
    """

    values: memoryview
    valid: memoryview
    data: memoryview | None
    wide: bool = False
    texts: Sequence[str] | None = None
    leaf: Callable[[bytes, Limits], Any] | None = None


class CellRows(Protocol):
    """Rows in columns of memory."""

    table: Table

    def column(self, index: int, side: int, start: int, stop: int) -> ColumnCells:
        """The cells of a column in the image before (0) or after (1), of the rows `[start, stop)`."""


class Cells(NamedTuple):
    """The rows `[start, start + size)` of some columns of memory; they stay as they are.

    sides: 1 = they have an image before, 2 = one after, 3 = both. absent: (0 = before, 1 = after; number of a column)
    that the log does not have of them.
    """

    filled: CellRows
    start: int
    size: int
    sides: int
    absent: Sequence[tuple[int, int]] = ()


class Told(msgspec.Struct, frozen=True):
    """What a record tells. rows: in its order. cells: more than one row in place of these. findings: what is to be said
    of it.

    described: tables that it describes. time: of the rows, microseconds since 1970, where the record's own is not as
    exact. begins: a transaction begins here: if the end of the one before was not told, it has none. ends: that of the
    last row ends here. remark: what it does to tables, in words.
    changes: the only table that it names to be changed, where its rows cannot be told; None = any may be. emptied:
    tables that lose all their rows here, as rows without images; op is the statement, TRUNCATE or DROP.
    """

    rows: Sequence[Row] = ()
    findings: tuple[Finding, ...] = ()
    described: Sequence[Table] = ()
    time: int | None = None
    begins: bool = False
    ends: bool = False
    remark: str = ""
    cells: Cells | None = None
    changes: Table | None = None
    emptied: Sequence[Row] = ()


NOTHING = Told()
BEGINS = Told(begins=True)


class CellRun(NamedTuple):
    """Rows of one table that some of the events of `Events` tell, one behind the other.

    start: the first row. picks: numbers of the events, each of which has its rows behind those of the one before.
    """

    filled: CellRows
    start: int
    picks: Sequence[int]


class Events(NamedTuple):
    """What a run of records tells, where that is rows as cells, ends of transactions and descriptions alone.

    described: tables that were not described before. closes: the transaction that was open before ends here, and no row
    of these stands in front of that. begins: another one begins here instead, so that one has no end. open: that of the
    last row has not ended. runs: all rows; those of a table in the order of the log.

    Of each record with rows of a table that is wanted: which: its number in the batch. places: where it stands, from
    the start of the batch's window. sizes: how many rows it has. layouts: which of `kinds` they are of: the sides and
    what is absent, as in `Cells`. times: microseconds since 1970, -1 = not known. origins: as in the envelope. owners:
    which of `transactions` it is of, each of these as (`txn`, `seq`) of the envelope. commits: 1 = its last row is the
    last one of the transaction, whose end was read.
    """

    described: Sequence[Table]
    closes: bool
    begins: bool
    open: bool
    runs: Sequence[CellRun]
    which: array[int]
    places: array[int]
    sizes: array[int]
    layouts: array[int]
    times: array[int]
    origins: array[int]
    owners: array[int]
    serials: array[int]
    commits: array[int]
    kinds: Sequence[tuple[int, Sequence[tuple[int, int]]]]
    sources: Sequence[tuple[str | None, int | None]]


class TableReader(Protocol):
    """Takes the rows out of the chosen records of a log in their order; one for all its files."""

    def records(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> Iterator[Told]:
        """What each of these records tells; to be taken one after the other."""

    def know(self, tables: Iterable[Table]) -> None:
        """What other files say of tables. Records are named by it where their own file says nothing."""

    def only(self, wants: Callable[[Table], bool]) -> None:
        """The rows of other tables may be left out, where that spares work; that there is the table is told."""

    def lost(self) -> None:
        """Records may be missing here."""


@runtime_checkable
class EventReader(Protocol):
    """A `TableReader` that has compiled code for many records at once."""

    def events(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> tuple[Events | None, int]:
        """What the first ones of these records tell, and where that ends: the next one is for `records`."""


class Tables(msgspec.Struct, frozen=True):
    """The tables of a format's logs.

    read: starts a reader. compiled: one that may use compiled code, made by its argument. types, objects: records of
    these types, and about these objects beside the table's own, are all that describe tables; () = any. older: the
    files that stand before a file in its directory describe its tables, too, back to one of these names (fnmatch); ()
    = each file says all itself. operations: a change can be told by a key and operations. transactions: does a log tell
    where one ends? statements: records that are about no object may change or empty a table.
    """

    read: Callable[[], TableReader]
    types: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    older: tuple[str, ...] = ()
    operations: bool = False
    transactions: bool = True
    statements: bool = False
    compiled: Callable[[Callable[[Kernel], Kernel]], TableReader] | None = None
