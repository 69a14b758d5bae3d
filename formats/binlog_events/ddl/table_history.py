"""History of a log's table definitions: --schema at its beginning, then the log's own DDL.

All readers (records, scripts, tables, messages) take names, types, character sets and keys of columns from
it where the log's TABLE_MAP events lack them. Statements are applied only when the first table map without
names needs them: most logs never do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.ddl.kernels import may_declare
from binlogtool.formats.binlog_events.events.decoding import query_parts
from binlogtool.formats.binlog_events.rows.table_map import TableMap, fits
from binlogtool.formats.binlog_events.wire.compression import block_pieces, declared_size, unpack_block
from binlogtool.formats.detecting import Head
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import CodecError
from binlogtool.limits import MIB, Limits

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.ddl.columns import Definition
    from binlogtool.formats.binlog_events.ddl.definitions import DdlStatement, Definitions

MOST_TEXT = 4 * MIB
"""Bytes of statements that wait to be followed, and of the longest one."""

_UNREADABLE = "a statement of the log that may be about tables cannot be read"


class TableHistory(msgspec.Struct):
    """Definitions from the statements of a log in order.

    `schema`: the text of --schema. `load_earlier_state`: returns what the files before this one hand over, as
    `export_state` returns it; called only when needed. `server_version`: version of the server that wrote the
    log.
    """

    schema: str | None = None
    earlier: Callable[[], Any] | None = None
    server: str = ""
    pending: list[DdlStatement] = msgspec.field(default_factory=list)
    size: int = 0
    _definitions: Definitions | None = None
    _folded: Definitions | None = None
    _is_case_sensitive: bool = False
    _carried: Any = None
    """What `carried` gave last; None = it is to be made anew."""

    def learn(self, code: int, body: memoryview) -> bool:
        """Add the body of a QUERY event; return whether definitions may differ from now on."""
        if code == EventType.QUERY and not may_declare(body, 0, len(body)):
            return False
        try:
            found = _statement(code, bytes(body), self.server)
        except (MalformedError, CodecError):
            self.forget(_UNREADABLE)
            return True
        if found is not None:
            self.take(found)
        return found is not None

    def take(self, statement: DdlStatement) -> None:
        """Add one statement."""
        self._carried = None
        self.pending.append(statement)
        self.size += len(statement.database) + len(statement.text)
        if self.size > MOST_TEXT:
            self.follow()

    def forget(self, reason: str = "") -> None:
        """Discard what is known: a part of the log was skipped, and perhaps a statement with it.

        Args:
            reason: reported for tables from now on.
        """
        if self.schema is not None or reason:
            self.follow().lose(reason)
        else:
            self.pending, self.size, self.earlier, self._definitions = [], 0, None, None
        self._folded = self._carried = None

    # -- state ---------------------------------------------------------------------------------------------------------

    def carried(self) -> Any:
        """Return the current state for JSON; None for the state without any statement."""
        if self._carried is None:
            if self._definitions is None and self.earlier is None:
                self._carried = [msgspec.to_builtins(one) for one in self.pending] or None
            else:
                made = {"definitions": self.follow(), "folded": self._folded, "sensitive": self._is_case_sensitive}
                self._carried = msgspec.to_builtins(made, order="deterministic")
        return self._carried

    def continue_from(self, other: TableHistory) -> None:
        """Start with the state of another history, which has read the preceding file to its end."""
        own, self._carried = other.apart(), None
        self.earlier, self.pending, self.size = own.earlier, own.pending, own.size
        self._definitions, self._folded, self._is_case_sensitive = own._definitions, own._folded, own._is_case_sensitive

    def resume(self, carried: Any) -> None:
        """Continue with a state that `export_state` returned."""
        from binlogtool.formats.binlog_events.ddl.definitions import DdlStatement, Definitions

        self.pending, self.size, self.earlier, self._definitions, self._folded = [], 0, None, None, None
        self._carried = None
        if isinstance(carried, dict):
            self._definitions = msgspec.convert(carried["definitions"], Definitions)
            self._folded = msgspec.convert(carried["folded"], Definitions | None)
            self._is_case_sensitive = bool(carried["sensitive"])
            return
        for one in carried or ():
            self.take(msgspec.convert(one, DdlStatement))

    def apart(self) -> TableHistory:
        """Return an independent copy."""
        own = msgspec.structs.replace(self, pending=list(self.pending))
        own._definitions = None if self._definitions is None else self._definitions.copy()
        own._folded = None if self._folded is None else self._folded.copy()
        return own

    def follow(self) -> Definitions:
        """Apply pending statements and return the definitions at this point.

        Raises:
            UsageError: a statement of --schema is not supported.
        """
        from binlogtool.formats.binlog_events.ddl.definitions import Definitions, names_in_capitals

        if self.earlier is not None:
            own, before = self.pending, self.earlier()
            self.resume(before)
            self.follow()
            self.pending = own
        if self._definitions is None:
            from binlogtool.formats.binlog_events.ddl.schema_sql import schema_definitions

            self._definitions = Definitions() if self.schema is None else schema_definitions(self.schema).copy()
        definitions = self._definitions
        pending, self.pending, self.size = self.pending, [], 0
        for statement in pending:
            if self._folded is None and not self._is_case_sensitive and names_in_capitals(statement):
                self._folded = definitions.folded()
            definitions.learn(statement)
            if self._folded is not None:
                self._folded.learn(statement)
        return definitions

    # -- maps ----------------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """True if no statement was added and there is no --schema."""
        return not self.pending and self.schema is None and self.earlier is None and self._definitions is None

    def of(self, table: TableMap) -> TableMap:
        """Add to a table map what its log leaves open: names, types, character sets, the key.

        The map itself is returned where nothing is defined. Without names, and with the reason in `uncertain`, it
        is returned where the definition is not certain or cannot be this table's.

        Raises:
            UsageError: a statement of --schema is not supported.
        """
        if self.is_empty:
            return table
        named = all(column.name is not None for column in table.columns)
        if named and self.schema is None:
            return table
        definition = self.definition(table)
        if isinstance(definition, str):
            text = f"the names of the columns of {table.qualified_name} are not certain: {definition}"
            return replace(table, uncertain=text, memo={}) if definition and not named else table
        why = _misfit(table, definition)
        if why:
            return replace(table, uncertain=why, memo={})
        made = named_columns(table, definition) if named else table.with_hints(definition.columns)
        return with_key(replace(made, declared=not (named or definition.given), memo={}), definition)

    def definition(self, table: TableMap) -> Definition | str:
        """Return the definition of a table map's table, or why there is none ("" if no statement defines it)."""
        exact = self.follow()
        if table.database != table.database.lower() or table.table != table.table.lower():
            # lower_case_table_names=1 stores names in lower case
            self._is_case_sensitive, self._folded, self._carried = True, None, None
        own = exact.state(table.full_name)
        folded = self._folded
        if folded is None or (other := folded.state(table.full_name)) == own:
            return own
        if folded.conflicts > exact.conflicts:
            return own
        if folded.conflicts < exact.conflicts:
            return other
        if _is_spelled_otherwise(exact, table.full_name) or (own and isinstance(own, str)):
            return "statements name two tables whose names differ in case alone"
        return other


def _is_spelled_otherwise(exact: Definitions, name: str) -> bool:
    """Return whether statements define a table whose name differs only in case."""
    from binlogtool.formats.binlog_events.ddl.columns import Definition

    own = isinstance(exact.state(name), Definition)
    return own and any(
        isinstance(state, Definition) and other != name and other.lower() == name
        for other, state in exact.tables.items()
    )


def _misfit(table: TableMap, definition: Definition) -> str:
    """Return why a definition cannot be that of a table map; "" if it can."""
    source = "--schema gives" if definition.given else "the log's DDL gives"
    if len(definition.columns) != len(table.columns):
        return f"{source} {table.qualified_name} {len(definition.columns)} columns, the log {len(table.columns)}"
    for place, (column, hint) in enumerate(zip(table.columns, definition.columns, strict=True), 1):
        if not fits(column, hint):
            return f"{source} column {place} of {table.qualified_name} ({hint.name}) another type than the log's"
    return ""


def earlier_definitions(head: Head, goes_on: Callable[[str, str], bool]) -> Callable[[], Any] | None:
    """Return the function that loads the state handed over by the preceding files; None if nothing is known of
    them.

    Args:
        is_next_file: whether the file of the second name follows the one of the first name in the same log.
    """
    earlier = head.earlier
    if earlier is None or not goes_on(earlier.name, head.name):
        return None
    return earlier.carried


def named_columns(table: TableMap, definition: Definition) -> TableMap:
    """Add to a table map with column names what the log lacks about them, looked up by name."""
    hints = {(hint.name or "").lower(): hint for hint in definition.columns}
    columns = []
    for column in table.columns:
        hint = hints.get((column.name or "").lower())
        if hint is not None and fits(column, hint):
            column = msgspec.structs.replace(column, logical=hint.logical, generated=hint.generated)
        columns.append(column)
    return replace(table, columns=tuple(columns), memo={})


def with_key(table: TableMap, definition: Definition) -> TableMap:
    """Add the primary key of a definition to a table map without one, if it has all of its columns."""
    names = [(column.name or "").lower() for column in table.columns]
    if table.primary_key is not None or not definition.key or any(name not in names for name, _ in definition.key):
        return table
    return replace(table, primary_key=tuple((names.index(name), size) for name, size in definition.key), memo={})


def _statement(code: int, body: bytes, server: str) -> DdlStatement | None:
    """Read a statement if it can be about a table; None otherwise.

    Raises:
        MalformedError, DecompressionError: it cannot be read.
    """
    from binlogtool.formats.binlog_events.ddl.definitions import DdlStatement
    from binlogtool.formats.binlog_events.ddl.executable_comments import executed_text
    from binlogtool.formats.binlog_events.ddl.modes import usual_text  # imported late: few logs declare tables
    from binlogtool.formats.binlog_events.ddl.tables import may_define
    from binlogtool.formats.binlog_events.values.charsets import charset_of
    from binlogtool.formats.binlog_events.wire.status import status_values

    parts, packed = query_parts(body), code == EventType.QUERY_COMPRESSED
    start = next(block_pieces(parts.sql, Limits()), b"") if packed else parts.sql
    if not may_define(start):
        return None
    if packed and declared_size(parts.sql) > MOST_TEXT:
        raise MalformedError("a statement is longer than all that is kept")
    text = usual_text(unpack_block(parts.sql, Limits()) if packed else parts.sql, parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MalformedError("a statement is no text of its character set") from None
    status, text = status_values(parts.status_vars), executed_text(text, server)
    charset = charset_of(status["charset"]["server"]) if "charset" in status else None
    database = parts.db.decode("utf-8", "backslashreplace")
    return DdlStatement(database, text, parts.thread_id, parts.error_code != 0, charset)
