"""What the log's own CREATE and ALTER TABLE say of its tables, for rows whose maps say little.

Statements are kept as they are, and read when the first map without names asks: most logs never do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.ddl.kernels import may_declare
from binlogtool.formats.binlog_events.events.decoding import query_parts
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.wire.compression import block_pieces, declared_size, unpack_block
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import CodecError
from binlogtool.limits import MIB, Limits

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.ddl.knowledge import Knowledge

MOST_TEXT = MIB
"""Bytes of statements that are kept of one file: with more, nothing is taken from them."""

_START = 4096
"""Bytes of a statement that show what it is about."""

Statement = tuple[str, str]
"""The database that it ran in, and its text."""


class Declared(msgspec.Struct):
    """Follows the statements of one file in their order.

    given_up: there were too many, or one of them cannot be read: what is known may be wrong.
    """

    statements: list[Statement] = msgspec.field(default_factory=list)
    size: int = 0
    given_up: bool = False
    _read: int = 0
    _knowledge: Knowledge | None = None

    def learn(self, code: int, body: memoryview) -> bool:
        """A QUERY. True: what is known of tables may be another now."""
        if self.given_up or (code == EventType.QUERY and not may_declare(body, 0, len(body))):
            return False
        try:
            found = _statement(code, bytes(body))
        except (MalformedError, CodecError):
            return self.give_up()
        if found is None:
            return False
        self.statements.append(found)
        self.size += len(found[0]) + len(found[1])
        return self.give_up() if self.size > MOST_TEXT else True

    def give_up(self) -> bool:
        """Nothing is known from now on."""
        self.given_up = True
        self.forget()
        return True

    def forget(self) -> None:
        """A part of the log was passed over, and with it perhaps a statement."""
        self.statements, self.size, self._read, self._knowledge = [], 0, 0, None

    def carried(self) -> Any:
        """What holds here, for JSON."""
        return None if self.given_up else [list(one) for one in self.statements]

    def resume(self, carried: Iterable[Iterable[str]] | None) -> None:
        """It holds again."""
        self.forget()
        self.given_up = carried is None
        self.statements = [(database, text) for database, text in carried or ()]
        self.size = sum(len(database) + len(text) for database, text in self.statements)

    def of(self, table: TableMap) -> TableMap:
        """The map with what was declared, if it names no columns and these can be them; else the map itself."""
        if not self.statements or all(column.name is not None for column in table.columns):
            return table
        made = self._known().of(table)
        return table if made is table else replace(made, declared=True, memo={})

    def _known(self) -> Knowledge:
        from binlogtool.formats.binlog_events.ddl.knowledge import Knowledge

        if self._knowledge is None:
            self._knowledge = Knowledge()
        for database, text in self.statements[self._read :]:
            self._knowledge.take(text, database)
        self._read = len(self.statements)
        return self._knowledge

    def apart(self) -> Declared:
        """One that knows the same and goes its own way."""
        return Declared(list(self.statements), self.size, self.given_up)


def _statement(code: int, body: bytes) -> Statement | None:
    """The statement, if it can be about a table.

    Raises:
        MalformedError, CodecError: it cannot be read.
    """
    from binlogtool.formats.binlog_events.ddl.modes import usual_text  # few logs declare tables
    from binlogtool.formats.binlog_events.ddl.tables import about_tables

    parts, packed = query_parts(body), code == EventType.QUERY_COMPRESSED
    start = next(block_pieces(parts.sql, Limits()), b"") if packed else parts.sql
    if not about_tables(start[:_START].decode("latin-1")):
        return None
    if packed and declared_size(parts.sql) > MOST_TEXT:
        raise MalformedError("a statement is longer than all that is kept")
    text = usual_text(unpack_block(parts.sql, Limits()) if packed else parts.sql, parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MalformedError("a statement is no text of its character set") from None
    return parts.db.decode("utf-8", "backslashreplace"), text
