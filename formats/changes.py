"""Changes of rows as a log tells them, in one shape for every format: what messages about changes are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.table_names import full_name
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.layouts import Batch

INSERT, UPDATE, DELETE = "insert", "update", "delete"
ROWS = (INSERT, UPDATE, DELETE)
TRUNCATE, DDL, BEGIN, END = "truncate", "ddl", "begin", "end"


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    type: SQL's word for it, in lower case: tinyint, smallint, mediumint, int, bigint, float, double, decimal, bit,
    enum, set, year, date, time, datetime, timestamp, char, varchar, binary, varbinary, text and blob (with tiny,
    medium, long in front), json, geometry, vector, uuid, inet4, inet6. size: bytes of the longest value, bits
    of BIT, digits of DECIMAL; 0 = not said. scale: digits behind the point, of seconds, too. values: the texts of an
    ENUM or SET. length: of the longest text, in characters; 0 = not said. geometry: SQL's word for the only kind that
    the column takes ("point"); "" = not said, or any. kind: its type in tables (`formats.tables`).
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


class Table(msgspec.Struct, frozen=True):
    """A table. key: the names of the columns of its primary key, in the key's order."""

    database: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """database.table, as no other table is called."""
        return full_name(self.database, self.name)

    @property
    def shown(self) -> str:
        """database.table, as logs show it."""
        return f"{self.database}.{self.name}"


class Transaction(msgspec.Struct, frozen=True):
    """A transaction as its beginning tells it; each has an object of its own. id: its GTID. file, offset: where it
    begins. time: of its commit, microseconds since 1970; None = the log does not say. thread: the session that did it.
    begun: does it say itself that it begins? A statement that is a transaction of its own may not.
    """

    id: str | None
    file: str
    offset: int
    time: int | None = None
    thread: int | None = None
    begun: bool = True


class Place(msgspec.Struct, frozen=True):
    """Where a change stands. offset, end: of its event in the file. row: its number in the event. time: of its
    transaction's commit, else of the event, microseconds since 1970. logged: of the event itself, in seconds. server:
    who made it. engine: the kind of server. query: the statement, if the log has it; each statement is an object of its
    own.
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


class Change(msgspec.Struct, frozen=True):
    """One change. kind: see above; BEGIN and END are those of a transaction. before, after: None = no such image.

    transaction: None = its beginning is not known. statement: the text of a DDL, which ran in `database`, or is about
    it; of an END the one that says so. action: create, alter, drop, rename or
    truncate, of the table, or of the database where there is none; "" = of something else. becomes: the table behind a
    change of its name. xid: of END.
    """

    kind: str
    place: Place
    transaction: Transaction | None = None
    table: Table | None = None
    before: Image | None = None
    after: Image | None = None
    database: str = ""
    statement: str = ""
    action: str = ""
    becomes: Table | None = None
    xid: int | None = None


class Told(msgspec.Struct, frozen=True):
    """What a record tells. changes: read when asked for; that raises as `Changes.records` does. findings: what is to be
    said of it. about: the only table that it changes, where its changes cannot be told; None = any may be."""

    changes: Iterator[Change] | Sequence[Change] = ()
    findings: tuple[Finding, ...] = ()
    about: Table | None = None


class Changes(Protocol):
    """Takes the changes out of the chosen records of a log in their order; one for all its files."""

    def records(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> Iterator[Told]:
        """What each of these records tells; to be taken one after the other."""

    def lost(self) -> None:
        """Records may be missing here: of what is open no beginning is known."""
