"""Table definitions that result from the statements of a log and of --schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from binlogtool.formats.binlog_events.ddl.statements import (
    QUOTED_NAME,
    SqlStatement,
    SqlWord,
    StatementReader,
    TableName,
    find_altered_table,
    find_created_table,
    find_new_table_name,
    iter_renamed_pairs,
    qualify_parsed_name,
    read_altered_name,
    skip_gap,
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
        self.dependencies.apply_statement(statement.text, statement.database)
        try:
            reader = StatementReader(statement.text)
        except UsageError:
            self._invalidate_named(statement)
            return
        word = reader.next_word
        try:
            if word == "CREATE":
                self._apply_create(reader, statement)
            elif word == "DROP":
                self._apply_drop(reader, statement)
            elif word == "ALTER":
                self._apply_alter(reader, statement)
            elif word == "RENAME":
                self._apply_rename(reader, statement)
        except UsageError:
            self._invalidate_named(statement)

    def get_state(self, name: str) -> TableDefinition | str:
        """Return the definition of a table by full name, or the reason why there is none.

        If no statement names its database, it is found by its bare name.
        """
        key = self._table_key(name)
        if key not in self.tables:
            key = qualify_name("", split_table_name(key)[1])
        return self.tables.get(key, self.lost)

    def invalidate(self, reason: str) -> None:
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

    def fold_names(self) -> TableDefinitions:
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

    def _qualify(self, name: TableName, database: str) -> str:
        """Return the key of a table as named in a statement."""
        return self._table_key(qualify_parsed_name(name, database))

    def _store(self, name: str, definition: TableDefinition | str) -> None:
        """Store the state of a table, within the limits."""
        self.sequences.discard(name)
        size = self.columns + _column_count(definition) - _column_count(self.tables.get(name, UNDECLARED))
        if size <= MAX_COLUMNS and (name in self.tables or len(self.tables) < MAX_TABLES):
            self.tables[name], self.columns = definition, size
        else:
            self.drop(name)
            self.lost = "the log has more tables and columns than are tracked"

    def drop(self, name: str) -> None:
        """Remove the definition of a table."""
        self.columns -= _column_count(self.tables.pop(name, UNDECLARED))

    def _drop_table(self, name: str) -> None:
        self.sequences.discard(name)
        bare = qualify_name("", split_table_name(name)[1])
        if bare in self.tables and bare != name:
            self._store(name, UNDECLARED)  # hides the definition that --schema has for this name
        else:
            self.drop(name)

    def _invalidate_named(self, statement: DdlStatement) -> None:
        """Mark the tables that an unreadable statement may concern as uncertain."""
        altered_table = find_altered_table(statement.text, statement.database)
        name = find_created_table(statement.text, statement.database) if altered_table is None else altered_table[0]
        if name is None:
            self.invalidate("a statement in the log that defines tables cannot be parsed")
        else:
            self._store(self._table_key(name), "a statement in the log that defines this table cannot be parsed")

    # -- statements ----------------------------------------------------------------------------------------------------

    def _apply_create(self, reader: StatementReader, statement: DdlStatement) -> None:
        """Apply CREATE DATABASE, SEQUENCE or TABLE."""
        reader.skip_words_if_next("CREATE")
        is_replace = reader.skip_words_if_next("OR", "REPLACE")
        is_temporary = reader.skip_words_if_next("TEMPORARY")
        if reader.skip_words_if_next("DATABASE") or reader.skip_words_if_next("SCHEMA"):
            self._apply_create_database(reader, statement)
        elif reader.skip_words_if_next("SEQUENCE"):
            reader.skip_words_if_next("IF", "NOT", "EXISTS")
            name = self._qualify(reader.read_name(), statement.database)
            self._store(name, parse_sequence(statement.text))
            self.sequences.add(name)
        elif reader.skip_words_if_next("TABLE"):
            if_missing = reader.skip_words_if_next("IF", "NOT", "EXISTS")
            name = self._qualify(reader.read_name(), statement.database)
            if is_temporary:
                self.temporary.add((statement.thread, name))
                return
            if statement.failed:
                self._store(name, "a CREATE TABLE of this table failed")
                return
            exists = name in self.tables
            if exists and if_missing:
                return
            self.conflicts += exists and not is_replace
            self._store(name, self._build_created(reader, statement, name))

    def _build_created(self, reader: StatementReader, statement: DdlStatement, name: str) -> TableDefinition | str:
        """Return the definition for a CREATE TABLE whose table name was read, or the reason why there is none."""
        if reader.skip_words_if_next("LIKE") or reader.skip_words_if_next("(", "LIKE"):
            name = self._qualify(reader.read_name(), statement.database)
            if (statement.thread, name) in self.temporary:
                return "it was created LIKE a temporary table"
            source = self.get_state(name)
            if isinstance(source, str):
                return source or "it was created LIKE a table whose columns are unknown"
            return replace(source, given=self.given)
        charset = self.databases.get(self._table_key(split_table_name(name)[0]))
        try:
            definition = parse_definition(statement.text, charset)
        except UsageError as error:
            return f"its CREATE TABLE is not supported: {error}"
        if definition is None:
            return "its CREATE TABLE does not declare all of its columns"
        return replace(definition, given=self.given)

    def _apply_create_database(self, reader: StatementReader, statement: DdlStatement) -> None:
        reader.skip_words_if_next("IF", "NOT", "EXISTS")
        name = self._table_key(reader.read_name()[0])
        charset = find_charset(reader.words[reader.at :]) or statement.charset
        if charset is not None and not statement.failed:
            self.databases[name] = charset

    def _apply_drop(self, reader: StatementReader, statement: DdlStatement) -> None:
        """Apply DROP DATABASE, TABLE or SEQUENCE."""
        reader.skip_words_if_next("DROP")
        is_temporary = reader.skip_words_if_next("TEMPORARY")
        if reader.skip_words_if_next("DATABASE") or reader.skip_words_if_next("SCHEMA"):
            reader.skip_words_if_next("IF", "EXISTS")
            database = self._table_key(reader.read_name()[0])
            for name in [name for name in self.tables if split_table_name(name)[0] == database]:
                self._drop_table(name)
            self.databases.pop(database, None)
        elif (
            reader.skip_words_if_next("TABLE")
            or reader.skip_words_if_next("TABLES")
            or reader.skip_words_if_next("SEQUENCE")
        ):
            reader.skip_words_if_next("IF", "EXISTS")
            while reader.next_word or reader.at < len(reader.words):
                name = self._qualify(reader.read_name(), statement.database)
                if (statement.thread, name) in self.temporary:
                    self.temporary.discard((statement.thread, name))
                elif not is_temporary:
                    self._drop_table(name)
                if not reader.skip_words_if_next(","):
                    break

    def _apply_alter(self, reader: StatementReader, statement: DdlStatement) -> None:
        """Apply ALTER DATABASE, SEQUENCE or TABLE."""
        reader.skip_words_if_next("ALTER")
        if reader.skip_words_if_next("DATABASE") or reader.skip_words_if_next("SCHEMA"):
            remaining_words = reader.words[reader.at :]
            has_name = bool(remaining_words) and remaining_words[0].upper not in _DATABASE_OPTIONS
            charset = find_charset(remaining_words)
            if charset is not None:
                self.databases[self._table_key(remaining_words[0].text if has_name else statement.database)] = charset
            return
        if reader.skip_words_if_next("SEQUENCE"):
            reader.skip_words_if_next("IF", "EXISTS")
            name = self._qualify(reader.read_name(), statement.database)
            if name not in self.sequences:
                self._store(name, parse_sequence(""))
                self.sequences.add(name)
            return
        reader.at = 0
        table = read_altered_name(reader)
        if table is None:
            return
        name = self._qualify(table, statement.database)
        before = self.get_state(name)
        clauses = list(reader.iter_clauses())
        new_names = [
            self._qualify(other, statement.database) for other in map(find_new_table_name, clauses) if other is not None
        ]
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
        self._store(name, after)
        for other in new_names:
            self._rename_table(name, other)
        self._apply_convert_partition(clauses, after, statement.database)

    def _apply_convert_partition(
        self, clauses: list[list[SqlWord]], after: TableDefinition | str, database: str
    ) -> None:
        """Apply MariaDB's CONVERT PARTITION p TO TABLE x (creates x) and CONVERT TABLE x TO PARTITION (drops x)."""
        for clause in clauses:
            heads = [word.upper for word in clause]
            if heads[:1] != ["CONVERT"]:
                continue
            reader = StatementReader.from_words(clause)
            reader.at = 1
            if reader.skip_words_if_next("TABLE"):
                self._drop_table(self._qualify(reader.read_name(), database))
            elif "TABLE" in heads:
                reader.at = heads.index("TABLE") + 1
                self._store(self._qualify(reader.read_name(), database), after)

    def _apply_rename(self, reader: StatementReader, statement: DdlStatement) -> None:
        """Apply RENAME TABLE."""
        if not (reader.skip_words_if_next("RENAME", "TABLE") or reader.skip_words_if_next("RENAME", "TABLES")):
            return
        for old_name, new_name in iter_renamed_pairs(reader):
            old, new = self._qualify(old_name, statement.database), self._qualify(new_name, statement.database)
            if (statement.thread, old) in self.temporary:
                self.temporary.discard((statement.thread, old))
                self.temporary.add((statement.thread, new))
            elif statement.failed:
                self._store(old, "a RENAME TABLE of this table failed")
                self._store(new, "a RENAME TABLE of this table failed")
            else:
                self._rename_table(old, new)

    def _rename_table(self, old: str, new: str) -> None:
        """Move a definition to another name."""
        if old == new:
            return
        state, is_sequence = self.get_state(old), old in self.sequences
        self.conflicts += self.tables.get(new, UNDECLARED) != UNDECLARED
        self._drop_table(old)
        self._store(new, state)
        if is_sequence:
            self.sequences.add(new)


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


def parse_definition(sql: str, charset: str | None = None) -> TableDefinition | None:
    """Return the table that a CREATE TABLE declares; None if it does not declare all columns.

    Recent results are cached, because planning, proving and verifying a repair read the same statements.

    Args:
        charset: default character set for tables that name none.

    Raises:
        UsageError: the statement is not supported.
    """
    return (
        _parse_definition_uncached(sql, charset)
        if len(sql) > _MAX_CACHED_LENGTH
        else _parse_definition_cached(sql, charset)
    )


def _parse_definition_uncached(sql: str, charset: str | None) -> TableDefinition | None:
    """Parse a CREATE TABLE."""
    return parse_create_table(next(iter(split_statements(sql[skip_gap(sql) :])), SqlStatement(1, "")), charset)


_parse_definition_cached = lru_cache(256)(_parse_definition_uncached)


def parse_sequence(sql: str) -> TableDefinition | str:
    """Return the table of a CREATE SEQUENCE; with a declared type its columns have that type (MariaDB 11.5)."""
    upper_words = sql.upper().split()
    if "AS" in upper_words:
        return "it is a sequence with a declared type"
    return parse_definition(_SEQUENCE_COLUMNS) or UNDECLARED


def _mark_as_assumed(state: TableDefinition | str) -> TableDefinition | str:
    """Return the state of a table after a skipped part of the log; the user vouches for --schema."""
    return state if isinstance(state, str) or state.given else replace(state, assumed=True)


# --- Statements of --schema ---

_CREATE = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b", re.IGNORECASE)
_REPLACE = re.compile(r"CREATE\s+OR\s", re.IGNORECASE)
_USE = re.compile(rf"\s*USE\s+({QUOTED_NAME}|\S+)\s*\Z", re.IGNORECASE)


class _Defined(NamedTuple):
    """A table that a file of --schema defines: the place, and the definition at the end of the file."""

    place: str
    state: TableDefinition | str | None


def _iter_schema_statements(sql: str) -> Iterator[tuple[int, DdlStatement]]:
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
def parse_schema(sql: str) -> TableDefinitions:
    """Return the definitions after these statements; copy the result before changing it.

    `sql`: the text of one file, or of several as `join_schema_files` joins them.

    Raises:
        UsageError: there is no CREATE TABLE, one is not supported, or two define one table differently; the message
            names the lines.
    """
    definitions, defined = TableDefinitions(given=True), dict[str, _Defined]()
    try:
        for name, text in split_schema_files(sql):
            _apply_schema_file(definitions, name, text, defined)
    except UsageError as error:
        raise UsageError(f"--schema: {error}") from None
    definitions.given, definitions.conflicts = False, 0
    return definitions


def _apply_schema_file(definitions: TableDefinitions, name: str, sql: str, defined: dict[str, _Defined]) -> None:
    """Apply the statements of one file of --schema.

    `name`: its name; "" if it is the only one. `defined`: tables of earlier files; those of this file are added.

    Raises:
        UsageError: see `parse_schema`.
    """
    try:
        creating = [one for one in split_statements(sql) if _CREATE.match(one.text)]
        if not creating:
            raise UsageError("the file has no CREATE TABLE statement (`mysqldump --no-data` writes them)")
        for statement in creating:
            parse_create_table(statement)
        statements = list(_iter_schema_statements(sql))
    except UsageError as error:
        raise UsageError(f"{name}: {error}" if name else str(error)) from None
    created = dict[str, str]()
    for line, ddl in statements:
        table = find_created_table(ddl.text, ddl.database) if _CREATE.match(ddl.text) else None
        if table is not None and table not in created and table in defined:
            definitions.drop(table)
        before = None if table is None else definitions.tables.get(table)
        definitions.apply_statement(ddl)
        if table is None:
            continue
        place = f"{name} line {line}" if name else f"line {line}"
        if before is not None and definitions.tables.get(table) != before and not _REPLACE.match(ddl.text):
            raise _different_definitions(table, created[table], place)
        created[table] = place
    for table, place in created.items():
        state = definitions.tables.get(table)
        if table in defined and defined[table].state != state:
            raise _different_definitions(table, defined[table].place, place)
        defined[table] = _Defined(place, state)


def _different_definitions(table: str, first: str, second: str) -> UsageError:
    """Return the error for a table that --schema defines twice."""
    database, bare_name = split_table_name(table)
    remedy = "keep the definition from before the first log"
    if not database:
        remedy += ", or put `USE DATABASE;` before each if these are tables of two databases"
    return UsageError(f"{first} and {second} define the table {table if database else bare_name} differently; {remedy}")
