"""History of a log's table definitions: --schema at its beginning, then the log's own DDL.

All readers (records, scripts, tables, messages) take names, types, character sets and keys of columns from it if the
log's TABLE_MAP events lack them. Statements are applied only when a table map without names needs them, which is rare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.format_api.format import FileHead
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.event_schemas import parse_query
from binlogtool.formats.binlog_events.rows.table_map import TableMap, matches_hint
from binlogtool.formats.binlog_events.transactions.boundaries import is_possible_ddl
from binlogtool.formats.binlog_events.wire_format import EventType, iter_block_pieces, read_declared_size, unpack_block
from binlogtool.limits import MIB, Limits

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.ddl.column_definitions import TableDefinition
    from binlogtool.formats.binlog_events.ddl.table_definitions import DdlStatement, TableDefinitions


MAX_PENDING_BYTES = 4 * MIB
"""Maximum total size of pending statements, and of a single one, in bytes."""

_UNREADABLE_STATEMENT = "a statement in the log that may define tables cannot be parsed"


class TableHistory(msgspec.Struct):
    """Table definitions that result from the statements of a log, in order.

    `schema`: the text of --schema. `load_earlier_state`: returns the state that the preceding files hand over, as from
    `export_state`; called only when needed. `server_version`: version of the server that wrote the log.
    """

    schema: str | None = None
    load_earlier_state: Callable[[], Any] | None = None
    server_version: str = ""
    pending: list[DdlStatement] = msgspec.field(default_factory=list)
    size: int = 0
    _definitions: TableDefinitions | None = None
    _folded: TableDefinitions | None = None
    _is_case_sensitive: bool = False
    _carried: Any = None
    """Cached result of `carried`; None if it is outdated."""
    _start: tuple[Callable[[], Any] | None, Any] = (None, None)
    """State at the start of the part that is read, or the function that loads this state; None = no state."""

    def __post_init__(self) -> None:
        if self._start == (None, None):
            self._start = (self.load_earlier_state, None)

    def copy_start(self) -> TableHistory:
        """Return a history with the state at the start of the part that is read."""
        load_state, state = self._start
        result = TableHistory(self.schema, load_state, self.server_version)
        if state is not None:
            result.import_state(state)
        return result

    def add_query(self, code: int, body: memoryview) -> bool:
        """Add the body of a QUERY event; return whether definitions may differ from now on."""
        if code == EventType.QUERY and not is_possible_ddl(body, 0, len(body)):
            return False
        try:
            statement = _read_statement(code, bytes(body), self.server_version)
        except (MalformedError, DecompressionError):
            self.discard(_UNREADABLE_STATEMENT)
            return True
        if statement is not None:
            self.add_statement(statement)
        return statement is not None

    def add_statement(self, statement: DdlStatement) -> None:
        """Add one statement."""
        self._carried = None
        self.pending.append(statement)
        self.size += len(statement.database) + len(statement.text)
        if self.size > MAX_PENDING_BYTES:
            self.get_definitions()

    def discard(self, reason: str = "") -> None:
        """Discard all definitions: a part of the log was skipped, which may have contained statements.

        `reason`: text that is reported for tables from now on.
        """
        if self.schema is not None or reason:
            self.get_definitions().invalidate(reason)
        else:
            self.pending, self.size, self.load_earlier_state, self._definitions = [], 0, None, None
        self._folded = self._carried = None

    # -- state ---------------------------------------------------------------------------------------------------------

    def export_state(self) -> Any:
        """Return the current state for JSON; None if there were no statements."""
        if self._carried is None:
            if self._definitions is None and self.load_earlier_state is None:
                self._carried = [msgspec.to_builtins(one) for one in self.pending] or None
            else:
                state = {
                    "definitions": self.get_definitions(),
                    "folded": self._folded,
                    "sensitive": self._is_case_sensitive,
                }
                self._carried = msgspec.to_builtins(state, order="deterministic")
        return self._carried

    def continue_from(self, other: TableHistory) -> None:
        """Start with the state of another history that has read the preceding file to its end."""
        copy, self._carried = other.copy(), None
        self.load_earlier_state, self.pending, self.size = copy.load_earlier_state, copy.pending, copy.size
        self._definitions, self._folded, self._is_case_sensitive = (
            copy._definitions,
            copy._folded,
            copy._is_case_sensitive,
        )

    def import_state(self, state: Any) -> None:
        """Restore a state from `export_state`."""
        from binlogtool.formats.binlog_events.ddl.table_definitions import DdlStatement, TableDefinitions

        self.pending, self.size, self.load_earlier_state, self._definitions, self._folded = [], 0, None, None, None
        self._carried, self._start = None, (None, state)
        if isinstance(state, dict):
            self._definitions = msgspec.convert(state["definitions"], TableDefinitions)
            self._folded = msgspec.convert(state["folded"], TableDefinitions | None)
            self._is_case_sensitive = bool(state["sensitive"])
            return
        for statement in state or ():
            self.add_statement(msgspec.convert(statement, DdlStatement))

    def copy(self) -> TableHistory:
        """Return an independent copy."""
        result = msgspec.structs.replace(self, pending=list(self.pending))
        result._definitions = None if self._definitions is None else self._definitions.copy()
        result._folded = None if self._folded is None else self._folded.copy()
        return result

    def get_definitions(self) -> TableDefinitions:
        """Apply pending statements and return the definitions at this point.

        Raises:
            UsageError: a statement of --schema is not supported.
        """
        from binlogtool.formats.binlog_events.ddl.table_definitions import TableDefinitions, has_capital_names

        if self.load_earlier_state is not None:
            own_pending, earlier_state = self.pending, self.load_earlier_state()
            self.import_state(earlier_state)
            self.get_definitions()
            self.pending = own_pending
        if self._definitions is None:
            from binlogtool.formats.binlog_events.ddl.table_definitions import parse_schema

            self._definitions = TableDefinitions() if self.schema is None else parse_schema(self.schema).copy()
        definitions = self._definitions
        pending, self.pending, self.size = self.pending, [], 0
        for statement in pending:
            if self._folded is None and not self._is_case_sensitive and has_capital_names(statement):
                self._folded = definitions.fold_names()
            definitions.apply_statement(statement)
            if self._folded is not None:
                self._folded.apply_statement(statement)
        return definitions

    # -- maps ----------------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """True if no statement was added and there is no --schema."""
        return (
            not self.pending and self.schema is None and self.load_earlier_state is None and self._definitions is None
        )

    def complete_table_map(self, table: TableMap) -> TableMap:
        """Add to a table map the facts that the log omits: names, types, character sets, the key.

        If nothing defines the table, the map itself is returned. If the definition is uncertain or cannot be that of
        this table, the map is returned without names and with the reason in `uncertain`.

        Raises:
            UsageError: a statement of --schema is not supported.
        """
        if self.is_empty:
            return table
        has_names = all(column.name is not None for column in table.columns)
        if has_names and self.schema is None:
            return table
        definition = self.find_definition(table)
        if isinstance(definition, str):
            message = f"the names of the columns of {table.qualified_name} are not certain: {definition}"
            return replace(table, uncertain=message, memo={}) if definition and not has_names else table
        reason = _find_mismatch(table, definition)
        if reason:
            return replace(table, uncertain=reason, memo={})
        completed = add_column_details(table, definition) if has_names else table.with_hints(definition.columns)
        return add_primary_key(replace(completed, declared=not (has_names or definition.given), memo={}), definition)

    def find_definition(self, table: TableMap) -> TableDefinition | str:
        """Return the definition of a table map's table, or why there is none ("" if no statement defines it)."""
        exact = self.get_definitions()
        if table.database != table.database.lower() or table.table != table.table.lower():
            # lower_case_table_names=1 stores names in lower case
            self._is_case_sensitive, self._folded, self._carried = True, None, None
        exact_state = exact.get_state(table.full_name)
        folded = self._folded
        if folded is None or (folded_state := folded.get_state(table.full_name)) == exact_state:
            return exact_state
        if folded.conflicts > exact.conflicts:
            return exact_state
        if folded.conflicts < exact.conflicts:
            return folded_state
        if _has_other_spelling(exact, table.full_name) or (exact_state and isinstance(exact_state, str)):
            return "statements name two tables whose names differ only in case"
        return folded_state


def _has_other_spelling(exact: TableDefinitions, name: str) -> bool:
    """Return whether statements define a table whose name differs from this one only in case."""
    from binlogtool.formats.binlog_events.ddl.column_definitions import TableDefinition

    is_defined = isinstance(exact.get_state(name), TableDefinition)
    return is_defined and any(
        isinstance(state, TableDefinition) and other != name and other.lower() == name
        for other, state in exact.tables.items()
    )


def _find_mismatch(table: TableMap, definition: TableDefinition) -> str:
    """Return why a definition cannot belong to this table map; "" if it can."""
    source = "--schema gives" if definition.given else "the log's DDL gives"
    if len(definition.columns) != len(table.columns):
        return f"{source} {table.qualified_name} {len(definition.columns)} columns, the log {len(table.columns)}"
    for number, (column, hint) in enumerate(zip(table.columns, definition.columns, strict=True), 1):
        if not matches_hint(column, hint):
            given = f"column {number} of {table.qualified_name} ({hint.name})"
            if not hint.types or column.type in hint.types:
                return f"{source} {given} another type than the log's {column.type_name}"
            types = " or ".join(msgspec.structs.replace(column, type=one).type_name for one in sorted(hint.types))
            return f"{source} {given} the type {types}, the log {column.type_name}"
    return ""


def find_earlier_state(
    head: FileHead, format_name: str, is_next_file: Callable[[str, str], bool]
) -> Callable[[], Any] | None:
    """Return a function that loads the state from the preceding files; None if no preceding file is known.

    `is_next_file`: returns whether the second file directly follows the first one in the same log.
    """
    earlier = head.preceding
    if earlier is None or not is_next_file(earlier.last_name, head.name):
        return None
    return partial(earlier.compute_state, format_name)


def add_column_details(table: TableMap, definition: TableDefinition) -> TableMap:
    """Add facts that the log lacks to the columns of a table map, looked up by column name."""
    hints = {(hint.name or "").lower(): hint for hint in definition.columns}
    columns = []
    for column in table.columns:
        hint = hints.get((column.name or "").lower())
        if hint is not None and matches_hint(column, hint):
            column = msgspec.structs.replace(column, logical=hint.logical, generated=hint.generated)
        columns.append(column)
    return replace(table, columns=tuple(columns), memo={})


def add_primary_key(table: TableMap, definition: TableDefinition) -> TableMap:
    """Add the primary key of a definition to a table map without a key, if the map has all its columns."""
    names = [(column.name or "").lower() for column in table.columns]
    if table.primary_key is not None or not definition.key or any(name not in names for name, _ in definition.key):
        return table
    return replace(table, primary_key=tuple((names.index(name), size) for name, size in definition.key), memo={})


def _read_statement(code: int, body: bytes, server: str) -> DdlStatement | None:
    """Read a statement if it may concern a table; None otherwise.

    Raises:
        MalformedError, DecompressionError: it cannot be read.
    """
    from binlogtool.formats.binlog_events.ddl.statements import (
        may_be_table_statement,
        normalize_statement,  # imported late: few logs declare tables
        strip_ignored_comments,
    )
    from binlogtool.formats.binlog_events.ddl.table_definitions import DdlStatement
    from binlogtool.formats.binlog_events.status_variables import decode_status_variables
    from binlogtool.formats.binlog_events.values.column_types import charset_of_collation

    parts, is_compressed = parse_query(body), code == EventType.QUERY_COMPRESSED
    start = next(iter_block_pieces(parts.sql, Limits()), b"") if is_compressed else parts.sql
    if not may_be_table_statement(start):
        return None
    if is_compressed and read_declared_size(parts.sql) > MAX_PENDING_BYTES:
        raise MalformedError("a statement exceeds the size limit of pending statements")
    text = normalize_statement(unpack_block(parts.sql, Limits()) if is_compressed else parts.sql, parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MalformedError("a statement is not valid text in its character set") from None
    status, text = decode_status_variables(parts.status_vars), strip_ignored_comments(text, server)
    charset = charset_of_collation(status["charset"]["server"]) if "charset" in status else None
    database = parts.db.decode("utf-8", "backslashreplace")
    return DdlStatement(database, text, parts.thread_id, parts.error_code != 0, charset)
