"""Table definitions that result from the statements of a log and of --schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.format_api.row_output_interfaces import qualify_name, split_schema_files, split_table_name
from binlogtool.formats.binlog_events.ddl.column_definitions import (
    TableDefinition,
    apply_alter_table,
    find_charset,
    parse_create_table,
)
from binlogtool.formats.binlog_events.ddl.parse_ddl import DATABASE, SEQUENCE, TABLE, ParsedDdl, parse_ddl
from binlogtool.formats.binlog_events.ddl.split_sql_statements import (
    QUOTED_NAME,
    SqlWord,
    StatementReader,
    qualify_parsed_name,
    split_statements,
)
from binlogtool.formats.binlog_events.ddl.table_dependencies import TableDependencies

# --- Definitions of a log's tables by its statements ---

MAX_TABLES, MAX_COLUMNS = 100_000, 1_000_000
"""Maximum number of tables that are tracked, and of their columns in total."""

_MAX_CACHED_LENGTH = 16 << 10
"""Maximum length of a statement whose definition is cached, in characters."""

_SEQUENCE_COLUMNS = """CREATE TABLE s (next_not_cached_value BIGINT, minimum_value BIGINT, maximum_value BIGINT,
start_value BIGINT, increment BIGINT, cache_size BIGINT UNSIGNED, cycle_option TINYINT UNSIGNED, cycle_count BIGINT)"""
"""Columns of a sequence to which CREATE SEQUENCE gives no type."""

_DATABASE_OPTIONS = ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "UPGRADE")
UNDECLARED = ""
"""State of a table that exists although nothing declares its columns."""


class DdlStatement(msgspec.Struct, frozen=True, array_like=True):
    """Statement of the log that may concern tables.

    `database`: the default database. `thread`: thread id of the session. `failed`: it was logged with an error code.
    `charset`: the server's default, for databases created without one.
    """

    database: str
    text: str
    thread: int = 0
    failed: bool = False
    charset: str | None = None


SKIPPED_PART = DdlStatement("", "")
"""In a list of statements: a part of the log was skipped here, which may have contained statements."""


class TableDefinitions(msgspec.Struct):
    """Tables by full name: a definition, or the reason why there is none (`UNDECLARED`, or an unsupported statement).

    `databases`: default character sets by database. `sequences`: the tables that are sequences. `temporary`: tables of
    one session, by thread and full name; only statements of this session refer to them. `conflicts`: number of
    statements that no server could have run on these tables. `fold`: names are compared in lower case. `has_capitals`:
    some name has capitals. `given`: the statements are those of --schema. `columns`: total number of columns in all
    definitions.
    """

    tables: dict[str, TableDefinition | str] = msgspec.field(default_factory=dict)
    databases: dict[str, str] = msgspec.field(default_factory=dict)
    sequences: set[str] = msgspec.field(default_factory=set)
    temporary: set[tuple[int, str]] = msgspec.field(default_factory=set)
    lost: str = ""
    conflicts: int = 0
    fold: bool = False
    given: bool = False
    has_capitals: bool = False
    columns: int = 0
    dependencies: TableDependencies = msgspec.field(default_factory=TableDependencies)

    def apply_statement(self, statement: DdlStatement) -> None:
        """Apply one statement."""
        if statement == SKIPPED_PART:
            self.tables = {name: _mark_as_assumed(state) for name, state in self.tables.items()}
            return
        ddl = parse_ddl(statement.text, statement.database)
        self.dependencies.apply_statement(ddl)
        try:
            if ddl.kind == DATABASE:
                self._apply_database_ddl(ddl, statement)
            elif ddl.kind == SEQUENCE and ddl.verb != "DROP":
                self._apply_sequence(ddl)
            elif ddl.kind in (TABLE, SEQUENCE):
                _TABLE_STATEMENTS[ddl.verb](self, ddl, statement)
        except UsageError:
            self._mark_named_tables_uncertain(ddl)

    def get_definition_or_reason(self, name: str) -> TableDefinition | str:
        """Return the definition of a table by full name, or the reason why there is none.

        If no statement names its database, it is found by its bare name.
        """
        key = self._table_key(name)
        if key not in self.tables:
            key = qualify_name("", split_table_name(key)[1])
        return self.tables.get(key, self.lost)

    def forget_logged_definitions(self, reason: str) -> None:
        """Drop all definitions except those of --schema that no statement changed: statements may be missing."""
        self.tables = {k: v for k, v in self.tables.items() if isinstance(v, TableDefinition) and v.given}
        self.columns = sum(map(_column_count, self.tables.values()))
        self.lost = reason

    def copy(self) -> TableDefinitions:
        """Return an independent copy."""
        return replace(
            self, tables=dict(self.tables), databases=dict(self.databases), sequences=set(self.sequences),
            temporary=set(self.temporary), dependencies=self.dependencies.copy(),
        )  # fmt: skip

    def copy_with_lowercase_names(self) -> TableDefinitions:
        """Return a copy with names in lower case, as servers with lower_case_table_names compare them."""
        copy = replace(self.copy(), fold=True)
        for name in [name for name in copy.tables if name != name.lower()]:
            copy.tables.setdefault(name.lower(), copy.tables[name])
            del copy.tables[name]
        copy.databases = {name.lower(): charset for name, charset in copy.databases.items()}
        return copy

    # -- names ---------------------------------------------------------------------------------------------------------

    def _table_key(self, name: str) -> str:
        """Return the key under which a table is stored."""
        if self.fold:
            return name.lower()
        self.has_capitals = self.has_capitals or name != name.lower()
        return name

    def _store_definition(self, name: str, definition: TableDefinition | str) -> None:
        """Store the state of a table, within the limits."""
        self.sequences.discard(name)
        size = self.columns + _column_count(definition) - _column_count(self.tables.get(name, UNDECLARED))
        if size <= MAX_COLUMNS and (name in self.tables or len(self.tables) < MAX_TABLES):
            self.tables[name], self.columns = definition, size
        else:
            self.remove_definition(name)
            self.lost = "the log has more tables and columns than are tracked"

    def remove_definition(self, name: str) -> None:
        """Remove the definition of a table."""
        self.columns -= _column_count(self.tables.pop(name, UNDECLARED))

    def _drop_table(self, name: str) -> None:
        """Remove a table's definition; if `--schema` has one for the bare name, store UNDECLARED instead, which hides
        it.
        """
        self.sequences.discard(name)
        bare = qualify_name("", split_table_name(name)[1])
        if bare in self.tables and bare != name:
            self._store_definition(name, UNDECLARED)  # hides the definition that --schema has for this name
        else:
            self.remove_definition(name)

    def _mark_named_tables_uncertain(self, ddl: ParsedDdl) -> None:
        """Mark the tables that an unreadable statement may concern as uncertain."""
        name = ddl.altered or ddl.created
        if name is None:
            self.forget_logged_definitions("a statement in the log that defines tables cannot be parsed")
        else:
            self._store_definition(
                self._table_key(name), "a statement in the log that defines this table cannot be parsed"
            )

    # -- statements ----------------------------------------------------------------------------------------------------

    def _apply_database_ddl(self, ddl: ParsedDdl, statement: DdlStatement) -> None:
        """Apply CREATE, ALTER or DROP DATABASE."""
        database = self._table_key(ddl.names[0])
        if ddl.verb == "DROP":
            for name in [name for name in self.tables if split_table_name(name)[0] == database]:
                self._drop_table(name)
            self.databases.pop(database, None)
            return
        charset = find_charset(_get_clause_words(ddl)) or (statement.charset if ddl.verb == "CREATE" else None)
        if charset is not None and not (statement.failed and ddl.verb == "CREATE"):
            self.databases[database] = charset

    def _apply_sequence(self, ddl: ParsedDdl) -> None:
        """Apply CREATE or ALTER SEQUENCE."""
        for name in map(self._table_key, ddl.names):
            if ddl.verb == "CREATE" or name not in self.sequences:
                self._store_definition(name, parse_sequence_definition(ddl.text if ddl.verb == "CREATE" else ""))
                self.sequences.add(name)

    def _apply_create_table(self, ddl: ParsedDdl, statement: DdlStatement) -> None:
        """Apply CREATE TABLE."""
        _get_clause_words(ddl)
        name = self._table_key(ddl.names[0])
        if ddl.is_temporary:
            self.temporary.add((statement.thread, name))
            return
        if statement.failed:
            self._store_definition(name, "a CREATE TABLE of this table failed")
            return
        has_file = name in self.tables
        if has_file and ddl.is_conditional:
            return
        self.conflicts += has_file and not ddl.replaces
        self._store_definition(name, self._build_created_definition(ddl, statement, name))

    def _build_created_definition(self, ddl: ParsedDdl, statement: DdlStatement, name: str) -> TableDefinition | str:
        """Return the definition for a CREATE TABLE, or the reason why there is none."""
        if ddl.clauses.like_source is not None:
            source_name = self._table_key(ddl.clauses.like_source)
            if (statement.thread, source_name) in self.temporary:
                return "it was created LIKE a temporary table"
            source = self.get_definition_or_reason(source_name)
            if isinstance(source, str):
                return source or "it was created LIKE a table whose columns are unknown"
            return replace(source, given=self.given)
        charset = self.databases.get(self._table_key(split_table_name(name)[0]))
        try:
            definition = parse_create_table_text(ddl.text, charset)
        except UsageError as error:
            return f"its CREATE TABLE is not supported: {error}"
        if definition is None:
            return "its CREATE TABLE does not declare all of its columns"
        return replace(definition, given=self.given)

    def _apply_drop_table(self, ddl: ParsedDdl, statement: DdlStatement) -> None:
        """Apply DROP TABLE or DROP SEQUENCE."""
        for name in map(self._table_key, ddl.names):
            if (statement.thread, name) in self.temporary:
                self.temporary.discard((statement.thread, name))
            elif not ddl.is_temporary:
                self._drop_table(name)

    def _apply_alter_table(self, ddl: ParsedDdl, statement: DdlStatement) -> None:
        """Apply ALTER TABLE."""
        _get_clause_words(ddl)
        name, clauses = self._table_key(ddl.names[0]), ddl.clauses.items
        before = self.get_definition_or_reason(name)
        new_names = [self._table_key(new_name) for _, new_name in ddl.clauses.renames]
        if (statement.thread, name) in self.temporary:
            self.temporary.discard((statement.thread, name))
            self.temporary |= {(statement.thread, new_names[-1] if new_names else name)}
            return
        after = before
        if statement.failed:
            after = "an ALTER TABLE of this table failed" if isinstance(before, TableDefinition) else before
        elif isinstance(before, TableDefinition):
            try:
                after = apply_alter_table(before, clauses)
            except UsageError as error:
                self.conflicts += 1
                after = f"an ALTER TABLE in the log does not fit the table's definition: {error}"
                after += "; --schema must define it as it was before the first log" if before.given else ""
        self._store_definition(name, after)
        for other in new_names:
            self._rename_table(name, other)
        self._apply_convert_partition(clauses, after, statement.database)

    def _apply_convert_partition(
        self, clauses: Sequence[list[SqlWord]], after: TableDefinition | str, database: str
    ) -> None:
        """Apply MariaDB's CONVERT PARTITION p TO TABLE x (creates x) and CONVERT TABLE x TO PARTITION (drops x)."""
        for clause in clauses:
            heads = [word.upper for word in clause]
            if heads[:1] != ["CONVERT"]:
                continue
            reader = StatementReader.from_words(clause)
            reader.at = 1
            if reader.skip_words_if_next("TABLE"):
                self._drop_table(self._table_key(qualify_parsed_name(reader.read_table_name(), database)))
            elif "TABLE" in heads:
                reader.at = heads.index("TABLE") + 1
                self._store_definition(self._table_key(qualify_parsed_name(reader.read_table_name(), database)), after)

    def _apply_rename_table(self, ddl: ParsedDdl, statement: DdlStatement) -> None:
        """Apply RENAME TABLE."""
        _get_clause_words(ddl)
        for old_name, new_name in ddl.clauses.renames:
            old, new = self._table_key(old_name), self._table_key(new_name)
            if (statement.thread, old) in self.temporary:
                self.temporary.discard((statement.thread, old))
                self.temporary.add((statement.thread, new))
            elif statement.failed:
                self._store_definition(old, "a RENAME TABLE of this table failed")
                self._store_definition(new, "a RENAME TABLE of this table failed")
            else:
                self._rename_table(old, new)

    def _apply_truncate_table(self, ddl: ParsedDdl, statement: DdlStatement) -> None:
        """Apply TRUNCATE TABLE, which changes no definition."""

    def _rename_table(self, old: str, new: str) -> None:
        """Move a definition to another name."""
        if old == new:
            return
        state, is_sequence = self.get_definition_or_reason(old), old in self.sequences
        self.conflicts += self.tables.get(new, UNDECLARED) != UNDECLARED
        self._drop_table(old)
        self._store_definition(new, state)
        if is_sequence:
            self.sequences.add(new)


_TABLE_STATEMENTS = {
    "CREATE": TableDefinitions._apply_create_table,
    "DROP": TableDefinitions._apply_drop_table,
    "ALTER": TableDefinitions._apply_alter_table,
    "RENAME": TableDefinitions._apply_rename_table,
    "TRUNCATE": TableDefinitions._apply_truncate_table,
}


def _get_clause_words(ddl: ParsedDdl) -> Sequence[SqlWord]:
    """Return the words after the name. Raises UsageError: the statement cannot be read."""
    if ddl.clauses.error:
        raise UsageError(ddl.clauses.error)
    return ddl.clauses.words


def _column_count(definition: TableDefinition | str) -> int:
    """Return the number of columns of a definition."""
    return 0 if isinstance(definition, str) else len(definition.columns)


def has_capital_names(statement: DdlStatement) -> bool:
    """Return whether a statement names a table or database that is not in lower case."""
    if statement.text == statement.text.lower() and statement.database == statement.database.lower():
        return False
    scratch = TableDefinitions()
    scratch.apply_statement(statement)
    return scratch.has_capitals


def parse_create_table_text(sql: str, default_charset: str | None = None) -> TableDefinition | None:
    """Return the table that a CREATE TABLE declares; None if it does not declare all columns.

    Recent results are cached, because planning, proving and verifying a repair read the same statements.

    Args:
        default_charset: default character set for tables that name none.

    Raises:
        UsageError: the statement is not supported.
    """
    parse = _parse_definition_uncached if len(sql) > _MAX_CACHED_LENGTH else _parse_definition_cached
    return parse(sql, default_charset)


def _parse_definition_uncached(sql: str, charset: str | None) -> TableDefinition | None:
    """Parse a CREATE TABLE."""
    return parse_create_table(parse_ddl(sql, ""), 1, charset)


_parse_definition_cached = lru_cache(256)(_parse_definition_uncached)


def parse_sequence_definition(sql: str) -> TableDefinition | str:
    """Return the table of a CREATE SEQUENCE; with a declared type its columns have that type (MariaDB 11.5)."""
    upper_words = sql.upper().split()
    if "AS" in upper_words:
        return "it is a sequence with a declared type"
    return parse_create_table_text(_SEQUENCE_COLUMNS) or UNDECLARED


def _mark_as_assumed(state: TableDefinition | str) -> TableDefinition | str:
    """Return the state of a table after a skipped part of the log; the user vouches for --schema."""
    return state if isinstance(state, str) or state.given else replace(state, assumed=True)


# --- Statements of --schema ---

_USE = re.compile(rf"\s*USE\s+({QUOTED_NAME}|\S+)\s*\Z", re.IGNORECASE)


class _SchemaTable(NamedTuple):
    """A table that a file of --schema defines: the place, and the definition at the end of the file."""

    place: str
    state: TableDefinition | str | None


def _iter_statements_with_default_database(sql: str) -> Iterator[tuple[int, DdlStatement]]:
    """Yield (line, statement) of a script, each with its default database; "" if the script does not say.

    Raises:
        UsageError: the script does not follow the lexical rules; the message names the line.
    """
    database = ""
    for statement in split_statements(sql):
        use = _USE.match(statement.text)
        if use is not None:
            database = use[1].strip("`").replace("``", "`")
        else:
            yield statement.line, DdlStatement(database, statement.text)


@lru_cache(8)
def parse_schema_script(schema_sql: str) -> TableDefinitions:
    """Return the definitions after these statements; copy the result before changing it.

    `schema_sql`: the text of one file, or of several as `join_schema_files` joins them.

    Raises:
        UsageError: there is no CREATE TABLE, one is not supported, or two define one table differently; the message
            names the lines.
    """
    definitions, defined = TableDefinitions(given=True), dict[str, _SchemaTable]()
    try:
        for name, text in split_schema_files(schema_sql):
            _apply_schema_file(definitions, name, text, defined)
    except UsageError as error:
        raise UsageError(f"--schema: {error}") from None
    definitions.given, definitions.conflicts = False, 0
    return definitions


def _apply_schema_file(definitions: TableDefinitions, name: str, sql: str, defined: dict[str, _SchemaTable]) -> None:
    """Apply the statements of one file of --schema.

    `name`: its name; "" if it is the only one. `defined`: tables of earlier files; those of this file are added.

    Raises:
        UsageError: see `parse_schema_script`.
    """
    try:
        parsed = [(parse_ddl(statement.text, ""), statement.line) for statement in split_statements(sql)]
        creating = [one for one in parsed if one[0].is_create_table]
        if not creating:
            raise UsageError("the file has no CREATE TABLE statement (`mysqldump --no-data` writes them)")
        for create_table, line in creating:
            parse_create_table(create_table, line)
        statements = list(_iter_statements_with_default_database(sql))
    except UsageError as error:
        raise UsageError(f"{name}: {error}" if name else str(error)) from None
    created = dict[str, str]()
    for line, ddl in statements:
        create = parse_ddl(ddl.text, ddl.database)
        table = create.created
        if table is not None and table not in created and table in defined:
            definitions.remove_definition(table)
        before = None if table is None else definitions.tables.get(table)
        definitions.apply_statement(ddl)
        if table is None:
            continue
        place = f"{name} line {line}" if name else f"line {line}"
        if before is not None and definitions.tables.get(table) != before and not create.replaces:
            raise _conflicting_definitions_error(table, created[table], place)
        created[table] = place
    for table, place in created.items():
        state = definitions.tables.get(table)
        if table in defined and defined[table].state != state:
            raise _conflicting_definitions_error(table, defined[table].place, place)
        defined[table] = _SchemaTable(place, state)


def _conflicting_definitions_error(table: str, first: str, second: str) -> UsageError:
    """Return the error for a table that --schema defines twice."""
    database, bare_name = split_table_name(table)
    remedy = "keep the definition from before the first log"
    if not database:
        remedy += ", or put `USE DATABASE;` before each if these are tables of two databases"
    return UsageError(f"{first} and {second} define the table {table if database else bare_name} differently; {remedy}")
