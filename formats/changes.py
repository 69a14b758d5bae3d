"""Row changes in one shape for every format: the input of change messages (Debezium, Maxwell, Canal)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.table_names import qualify_name
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.layouts import Batch

INSERT, UPDATE, DELETE = "insert", "update", "delete"
ROW_KINDS = (INSERT, UPDATE, DELETE)
TRUNCATE, DDL, BEGIN, END = "truncate", "ddl", "begin", "end"


class SqlColumn(msgspec.Struct, frozen=True):
    """A column of a table, with its SQL type.

    Args:
        type: SQL type name in lower case: tinyint, smallint, mediumint, int, bigint, float, double, decimal, bit,
            enum,
            set, year, date, time, datetime, timestamp, char, varchar, binary, varbinary, text and blob (with tiny,
            medium, long in front), json, geometry, vector, uuid, inet4, inet6.
        size: bytes of the longest value, bits of BIT, digits of DECIMAL; 0 = unknown.
        scale: digits after the decimal point, also of seconds.
        values: texts of an ENUM or SET.
        length: characters of the longest text; 0 = unknown.
        geometry: SQL name of the only geometry type that the column takes ("point"); "" = unknown, or any.
        kind: its type in exported tables (`formats.tables`).
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
    """A table. key: names of the columns of its primary key, in the key's order."""

    database: str
    name: str
    columns: tuple[SqlColumn, ...]
    key: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The unique name database.table; see `table_names.qualify_name`."""
        return qualify_name(self.database, self.name)

    @property
    def display_name(self) -> str:
        """The name database.table as logs show it, unquoted."""
        return f"{self.database}.{self.name}"


class ChangeTransaction(msgspec.Struct, frozen=True):
    """A transaction as its first event describes it; one object per transaction.

    Args:
        id: GTID.
        file, offset: where it begins.
        time: of its commit, microseconds since 1970; None = not in the log.
        thread: id of the session.
        has_begin: it has an explicit begin event; a statement that is a transaction of its own may have none.
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
        offset, end: of its event in the file.
        row: number of the row in the event.
        time: of the transaction's commit, else of the event, microseconds since 1970.
        logged: of the event itself, in seconds.
        server: id of the server that made it.
        engine: kind of server.
        query: the statement, if the log has it; one object per statement.
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


Image = Mapping[str, Any]
"""Column -> value, as `dump` shows it; a column that is not in the log is not in it."""


class ChangeEvent(msgspec.Struct, frozen=True):
    """One change.

    Args:
        kind: one of the constants of this module; BEGIN and END are those of a transaction.
        place: its position and origin.
        transaction: None = its beginning is not known.
        before, after: row images; None = no such image.
        database: the default database of the statement, or the one that it is about.
        statement: text of a DDL statement; for END, the statement that ends the transaction.
        action: "create", "alter", "drop", "rename" or "truncate", of the table (or of the database if there is no
            table); "" = of something else.
        becomes: the table after a rename.
        xid: of END.
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
        changes: read lazily; that raises as `ChangeReader.read_records` does.
        findings: about the record.
        about: the only table that the record changes, where its changes are not known; None = it may be any.
    """

    changes: Iterator[ChangeEvent] | Sequence[ChangeEvent] = ()
    findings: tuple[Finding, ...] = ()
    about: SqlTable | None = None


class ChangeReader(Protocol):
    """Extract changes from the selected records of a log, in their order; one reader for all its files."""

    def read_records(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordChanges]:
        """Yield the changes of each of these records; to be consumed in order."""

    def note_gap(self) -> None:
        """Note that records may be missing here: the beginnings of open transactions are unknown afterwards."""
