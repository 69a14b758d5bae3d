"""Definitions of a log's tables by its statements: CREATE, ALTER, RENAME and DROP TABLE in order."""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.alter import Name, Reading, new_table_name, renamed_pairs, selects
from binlogtool.formats.binlog_events.ddl.columns import Definition, altered_definition
from binlogtool.formats.binlog_events.ddl.create_table import CreateTable
from binlogtool.formats.binlog_events.ddl.tables import altered, created, key_of
from binlogtool.formats.binlog_events.ddl.types import charset_of_words
from binlogtool.formats.binlog_events.ddl.words import Statement, Word, after_gap, statements
from binlogtool.formats.table_names import full_name, parts_of

MOST_TABLES, MOST_COLUMNS = 100_000, 1_000_000
"""Tables that are followed, and columns of all of them together."""

_LONG = 16 << 10
"""Characters of a statement that is not worth its place among the remembered ones."""

_SEQUENCE_COLUMNS = """CREATE TABLE s (next_not_cached_value BIGINT, minimum_value BIGINT, maximum_value BIGINT,
start_value BIGINT, increment BIGINT, cache_size BIGINT UNSIGNED, cycle_option TINYINT UNSIGNED, cycle_count BIGINT)"""
"""Those of CREATE SEQUENCE without a type of its own."""

UNDECLARED = ""
"""In place of a definition: the table is there, and nothing says what its columns are."""


class DdlStatement(msgspec.Struct, frozen=True, array_like=True):
    """Statement of the log that may be about tables.

    `database`: the default one. `thread`: of the session. `failed`: it was logged with an error code.
    `charset`: the server's default, for databases created without one.
    """

    database: str
    text: str
    thread: int = 0
    failed: bool = False
    charset: str | None = None


class Definitions(msgspec.Struct):
    """Tables by full name: a definition, or the reason why there is none (`UNDECLARED`, or an unsupported
    statement).

    `databases`: their default character sets. `sequences`: the tables that are sequences. `temporary`: tables
    of one session, by its thread and full name; statements of that session refer to them. `conflicts`: number
    of statements that no server could have run on these tables. `fold`: names are compared in lower case.
    `has_capitals`: some name has capitals. `given`: the statements are those of --schema. `columns`: of all
    definitions together.
    """

    tables: dict[str, Definition | str] = msgspec.field(default_factory=dict)
    databases: dict[str, str] = msgspec.field(default_factory=dict)
    sequences: set[str] = msgspec.field(default_factory=set)
    temporary: set[tuple[int, str]] = msgspec.field(default_factory=set)
    lost: str = ""
    conflicts: int = 0
    fold: bool = False
    given: bool = False
    has_capitals: bool = False
    columns: int = 0

    def learn(self, statement: DdlStatement) -> None:
        """Apply one statement."""
        try:
            read = Reading(statement.text)
        except UsageError:
            self._lose_named(statement)
            return
        word = read.next
        try:
            if word == "CREATE":
                self._create(read, statement)
            elif word == "DROP":
                self._drop(read, statement)
            elif word == "ALTER":
                self._alter(read, statement)
            elif word == "RENAME":
                self._rename(read, statement)
        except UsageError:
            self._lose_named(statement)

    def of(self, name: str) -> Definition | None:
        """Return the table with a full name; if no statement names its database, the one with its bare name.

        Raises:
            UsageError: its columns are not certain; the message says why.
        """
        found = self.state(name)
        if isinstance(found, str):
            if found:
                raise UsageError(found)
            return None
        return found

    def state(self, name: str) -> Definition | str:
        """Return the definition of a table, or why there is none."""
        key = self._key(name)
        if key not in self.tables:
            key = full_name("", parts_of(key)[1])
        return self.tables.get(key, self.lost)

    def lose(self, reason: str) -> None:
        """Drop all definitions but those of --schema that no statement changed: statements may be missing."""
        self.tables = {k: v for k, v in self.tables.items() if isinstance(v, Definition) and v.given}
        self.columns = sum(map(_size, self.tables.values()))
        self.lost = reason

    def copy(self) -> Definitions:
        """Return an independent copy."""
        return replace(
            self, tables=dict(self.tables), databases=dict(self.databases), sequences=set(self.sequences),
            temporary=set(self.temporary),
        )  # fmt: skip

    def folded(self) -> Definitions:
        """Return a copy with names in lower case, as servers with lower_case_table_names compare them."""
        own = replace(self.copy(), fold=True)
        for name in [name for name in own.tables if name != name.lower()]:
            own.tables.setdefault(name.lower(), own.tables[name])
            del own.tables[name]
        own.databases = {name.lower(): charset for name, charset in own.databases.items()}
        return own

    # -- names ---------------------------------------------------------------------------------------------------------

    def _key(self, name: str) -> str:
        """Return the name under which a table is stored."""
        if self.fold:
            return name.lower()
        self.has_capitals = self.has_capitals or name != name.lower()
        return name

    def _full(self, name: Name, database: str) -> str:
        """Return the key of a table named in a statement."""
        return self._key(full_name(*name) if len(name) > 1 else full_name(database, name[0]))

    def _put(self, name: str, definition: Definition | str) -> None:
        """Store the state of a table, within the limits."""
        self.sequences.discard(name)
        size = self.columns + _size(definition) - _size(self.tables.get(name, UNDECLARED))
        if size <= MOST_COLUMNS and (name in self.tables or len(self.tables) < MOST_TABLES):
            self.tables[name], self.columns = definition, size
        else:
            self._take_out(name)
            self.lost = "the log has more tables and columns than are followed"

    def _take_out(self, name: str) -> None:
        """Delete a table."""
        self.columns -= _size(self.tables.pop(name, UNDECLARED))

    def _remove(self, name: str) -> None:
        """Drop a table."""
        self.sequences.discard(name)
        bare = full_name("", parts_of(name)[1])
        if bare in self.tables and bare != name:
            self._put(name, UNDECLARED)  # hides the definition that --schema has for this name
        else:
            self._take_out(name)

    def _lose_named(self, statement: DdlStatement) -> None:
        """Mark the tables that an unreadable statement may be about as uncertain."""
        about = altered(statement.text, statement.database)
        name = created(statement.text, statement.database) if about is None else about[0]
        if name is None:
            self.lose("a statement of the log about tables cannot be read")
        else:
            self._put(self._key(name), "a statement of the log about it cannot be read")

    # -- statements ----------------------------------------------------------------------------------------------------

    def _create(self, read: Reading, statement: DdlStatement) -> None:
        """Apply CREATE DATABASE, SEQUENCE or TABLE."""
        read.passes("CREATE")
        replaces = read.passes("OR", "REPLACE")
        temporary = read.passes("TEMPORARY")
        if read.passes("DATABASE") or read.passes("SCHEMA"):
            self._create_database(read, statement)
        elif read.passes("SEQUENCE"):
            read.passes("IF", "NOT", "EXISTS")
            name = self._full(read.name(), statement.database)
            self._put(name, sequence_definition(statement.text))
            self.sequences.add(name)
        elif read.passes("TABLE"):
            if_missing = read.passes("IF", "NOT", "EXISTS")
            name = self._full(read.name(), statement.database)
            if temporary:
                self.temporary.add((statement.thread, name))
                return
            if statement.failed:
                self._put(name, "a CREATE TABLE of it failed")
                return
            is_there = name in self.tables
            if is_there and if_missing:
                return
            self.conflicts += is_there and not replaces
            self._put(name, self._created(read, statement, name))

    def _created(self, read: Reading, statement: DdlStatement, name: str) -> Definition | str:
        """Return the definition of the table whose name was read."""
        if read.passes("LIKE") or read.passes("(", "LIKE"):
            name = self._full(read.name(), statement.database)
            if (statement.thread, name) in self.temporary:
                return "it was created LIKE a temporary table"
            source = self.state(name)
            if isinstance(source, str):
                return source or "it was created LIKE a table whose columns are not known"
            return replace(source, given=self.given)
        charset = self.databases.get(self._key(parts_of(name)[0]))
        try:
            made = defined(statement.text, charset)
        except UsageError as error:
            return f"its CREATE TABLE cannot be followed: {error}"
        if made is None:
            return "its CREATE TABLE does not declare all of its columns"
        made = replace(made, given=self.given)
        before = self.tables.get(name)
        if self.given and not parts_of(name)[0] and isinstance(before, Definition) and before != made:
            return f"--schema has two tables {parts_of(name)[1]!r} and no database for them"
        return made

    def _create_database(self, read: Reading, statement: DdlStatement) -> None:
        """Apply CREATE DATABASE."""
        read.passes("IF", "NOT", "EXISTS")
        name = self._key(read.name()[0])
        charset = charset_of_words(read.words[read.at :]) or statement.charset
        if charset is not None and not statement.failed:
            self.databases[name] = charset

    def _drop(self, read: Reading, statement: DdlStatement) -> None:
        """Apply DROP DATABASE, TABLE or SEQUENCE."""
        read.passes("DROP")
        temporary = read.passes("TEMPORARY")
        if read.passes("DATABASE") or read.passes("SCHEMA"):
            read.passes("IF", "EXISTS")
            home = self._key(read.name()[0])
            for name in [name for name in self.tables if parts_of(name)[0] == home]:
                self._remove(name)
            self.databases.pop(home, None)
        elif read.passes("TABLE") or read.passes("TABLES") or read.passes("SEQUENCE"):
            read.passes("IF", "EXISTS")
            while read.next or read.at < len(read.words):
                name = self._full(read.name(), statement.database)
                if (statement.thread, name) in self.temporary:
                    self.temporary.discard((statement.thread, name))
                elif not temporary:
                    self._remove(name)
                if not read.passes(","):
                    break

    def _alter(self, read: Reading, statement: DdlStatement) -> None:
        """Apply ALTER DATABASE, SEQUENCE or TABLE."""
        read.passes("ALTER")
        if read.passes("DATABASE") or read.passes("SCHEMA"):
            words = read.words[read.at :]
            named = bool(words) and words[0].upper not in ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "UPGRADE")
            charset = charset_of_words(words)
            if charset is not None:
                self.databases[self._key(words[0].text if named else statement.database)] = charset
            return
        if read.passes("SEQUENCE"):
            read.passes("IF", "EXISTS")
            name = self._full(read.name(), statement.database)
            if name not in self.sequences:
                self._put(name, sequence_definition(""))
                self.sequences.add(name)
            return
        while read.next in ("ONLINE", "IGNORE"):
            read.at += 1
        if not read.passes("TABLE"):
            return
        read.passes("IF", "EXISTS")
        name = self._full(read.name(), statement.database)
        read.waits()
        before = self.state(name)
        clauses = list(read.clauses())
        new = [self._full(other, statement.database) for other in map(new_table_name, clauses) if other is not None]
        if (statement.thread, name) in self.temporary:
            self.temporary.discard((statement.thread, name))
            self.temporary |= {(statement.thread, new[-1] if new else name)}
            return
        after = before
        if statement.failed:
            after = "an ALTER TABLE of it failed" if isinstance(before, Definition) else before
        elif isinstance(before, Definition):
            try:
                after = altered_definition(before, clauses)
            except UsageError as error:
                self.conflicts += 1
                after = f"the log's ALTER TABLE does not fit its definition: {error}"
                after += "; --schema must say what it was before the first log" if before.given else ""
        self._put(name, after)
        for other in new:
            self._move(name, other)
        self._move_partitions(clauses, name, after, statement.database)

    def _move_partitions(self, clauses: list[list[Word]], name: str, after: Definition | str, database: str) -> None:
        """Apply MariaDB's CONVERT PARTITION p TO TABLE x (creates a table) and CONVERT TABLE x TO PARTITION (drops
        it).
        """
        for clause in clauses:
            heads = [word.upper for word in clause]
            if heads[:1] != ["CONVERT"]:
                continue
            read = Reading.of(clause)
            read.at = 1
            if read.passes("TABLE"):
                self._remove(self._full(read.name(), database))
            elif "TABLE" in heads:
                read.at = heads.index("TABLE") + 1
                self._put(self._full(read.name(), database), after)

    def _rename(self, read: Reading, statement: DdlStatement) -> None:
        """Apply RENAME TABLE."""
        if not (read.passes("RENAME", "TABLE") or read.passes("RENAME", "TABLES")):
            return
        for one, other in renamed_pairs(read):
            old, new = self._full(one, statement.database), self._full(other, statement.database)
            if (statement.thread, old) in self.temporary:
                self.temporary.discard((statement.thread, old))
                self.temporary.add((statement.thread, new))
            elif statement.failed:
                self._put(old, "a RENAME TABLE of it failed")
                self._put(new, "a RENAME TABLE of it failed")
            else:
                self._move(old, new)

    def _move(self, old: str, new: str) -> None:
        """Move a definition to another name."""
        if old == new:
            return
        state, is_sequence = self.state(old), old in self.sequences
        self.conflicts += self.tables.get(new, UNDECLARED) != UNDECLARED
        self._remove(old)
        self._put(new, state)
        if is_sequence:
            self.sequences.add(new)


def _size(definition: Definition | str) -> int:
    """Return the number of columns of a definition."""
    return 0 if isinstance(definition, str) else len(definition.columns)


def names_in_capitals(statement: DdlStatement) -> bool:
    """Return whether a statement names a table or database that is not in lower case."""
    if statement.text == statement.text.lower() and statement.database == statement.database.lower():
        return False
    alone = Definitions()
    alone.learn(statement)
    return alone.has_capitals


def defined(sql: str, charset: str | None = None) -> Definition | None:
    """Return the table of a CREATE TABLE; None if the statement does not declare all of its columns.

    The last ones are cached: a plan, its proof and the verify after it read the same statements.

    Args:
        charset: of tables that name none.

    Raises:
        UsageError: the statement is not supported.
    """
    return _defined(sql, charset) if len(sql) > _LONG else _remembered(sql, charset)


def _defined(sql: str, charset: str | None) -> Definition | None:
    """Parse a CREATE TABLE."""
    statement = next(iter(statements(sql[after_gap(sql) :])), Statement(1, ""))
    table = CreateTable(statement, charset)
    if table.columns is None or selects(statement.text):
        return None
    key = key_of(statement.text)
    parts = () if key is None else tuple(((table.columns[at].name or "").lower(), size) for at, size in key.parts)
    return Definition(table.columns, parts, table.charset, table.versioned)


_remembered = lru_cache(256)(_defined)


def sequence_definition(sql: str) -> Definition | str:
    """Return the table of a CREATE SEQUENCE; one with a declared type has columns of that type (MariaDB 11.5)."""
    words = sql.upper().split()
    if "AS" in words:
        return "it is a sequence of a type of its own"
    return defined(_SEQUENCE_COLUMNS) or UNDECLARED
