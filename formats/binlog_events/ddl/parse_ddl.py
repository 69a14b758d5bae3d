"""Parse CREATE, ALTER, DROP, TRUNCATE and RENAME: which object, which tables, what happens to their rows and names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

import msgspec

from binlogtool.errors import UsageError
from binlogtool.format_api.row_output_interfaces import split_table_name
from binlogtool.formats.binlog_events.ddl.split_sql_statements import (
    DDL_VERB,
    MAX_CACHED_LENGTH,
    QUOTED_NAME,
    TABLE_OPTIONS,
    TABLE_PATTERN,
    SqlWord,
    StatementReader,
    TableName,
    find_next_word_offset,
    qualify_parsed_name,
    qualify_table_name,
    unquote_sql_name,
)

TABLE, SEQUENCE, DATABASE, TRIGGER, INDEX = "TABLE", "SEQUENCE", "DATABASE", "TRIGGER", "INDEX"
"""Kinds of objects that contain rows, contain tables, or belong to a table."""

_QUOTED = rf"{QUOTED_NAME}|'[^']*'|\"[^\"]*\""
_NAME = re.compile(rf"{_QUOTED}|[\w$]+")
_OPTION = re.compile(
    rf"OR\s+REPLACE\b|TEMPORARY\b|DEFINER\s*=\s*(?:[^\s`'\"*]|{_QUOTED})+|ALGORITHM\s*=\s*\S+|SQL\s+SECURITY\s+\w+"
    r"|(?:AGGREGATE|ONLINE|OFFLINE|IGNORE|UNIQUE|FULLTEXT|SPATIAL|VECTOR)\b",
    re.IGNORECASE,
)
"""Words between the verb and the kind of object."""
_WORD = re.compile(r"\w+")
_TABLE = re.compile(r"TABLES?\b", re.IGNORECASE)
_IF_EXISTS = re.compile(r"IF\s+(?:NOT\s+)?EXISTS\b", re.IGNORECASE)
_WAIT = re.compile(r"WAIT\s+\w+|NOWAIT\b", re.IGNORECASE)
_TO = re.compile(r"TO\b", re.IGNORECASE)
_DOT, _COMMA = re.compile(r"\."), re.compile(",")
_INDEX_TABLE = re.compile(rf".*?\bON\s+{TABLE_PATTERN}", re.IGNORECASE | re.DOTALL)
_TRIGGER_TABLE = re.compile(
    r"(?:BEFORE|AFTER)\s+(?:INSERT|UPDATE|DELETE)(?:\s+OR\s+(?:INSERT|UPDATE|DELETE))*\s+ON\s+" + TABLE_PATTERN,
    re.IGNORECASE,
)
_OWNER_PATTERNS = {INDEX: _INDEX_TABLE, TRIGGER: _TRIGGER_TABLE}
_KINDS = {"TABLES": TABLE, "SCHEMA": DATABASE}
_KINDS_WITHOUT_TABLE = frozenset((
    DATABASE, TRIGGER, "PROCEDURE", "FUNCTION", "PACKAGE", "EVENT", "VIEW", "USER", "ROLE", "SERVER", "TABLESPACE",
    "UNDO", "RESOURCE", "REFERENCE", "INSTANCE", "LOGFILE",
))  # fmt: skip
_OTHER_STATEMENT = re.compile(
    r"(?:GRANT|REVOKE|SET|FLUSH|ANALYZE|OPTIMIZE|REPAIR|CHECK|CACHE|INSTALL|UNINSTALL|USE)\b", re.IGNORECASE
)
_DATABASE_OPTIONS = re.compile(r"(?:CHARACTER|CHARSET|COLLATE|DEFAULT|UPGRADE)\b", re.IGNORECASE)
_ENGINE = re.compile(r"\bENGINE(?:\s*=)?\s*['\"`]?(\w+)", re.IGNORECASE)
_NON_TRANSACTIONAL_ENGINES = frozenset(
    {"MYISAM", "ARIA", "MEMORY", "HEAP", "CSV", "ARCHIVE", "MERGE", "MRG_MYISAM", "BLACKHOLE", "S3"}
)
_KEY_CHANGES = re.compile(r"\b(?:PRIMARY|DROP|FIRST|AFTER|MODIFY|CHANGE|RENAME)\b", re.IGNORECASE)
_MAX_SEARCHED = 1 << 20
_NO_NAME = "the statement has no name where one is expected"

_KEPT_BY_INDEX_WORDS = frozenset(("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "CONSTRAINT"))
_RENAME_OBJECTS = frozenset(("COLUMN", "INDEX", "KEY"))


class DdlClauses(msgspec.Struct, frozen=True):
    """Clauses after the name in CREATE, ALTER or RENAME.

    Attributes:
        error: why the statement cannot be read; "" if it can.
        words: the words after the name.
        items: of ALTER TABLE, its clauses.
        renames: (old, new) full names of tables, in order.
        exchanged: the table that EXCHANGE PARTITION ... WITH TABLE changes in addition.
        like_source: the table whose definition CREATE TABLE ... LIKE copies.
        has_select: CREATE TABLE ... SELECT, which also inserts rows.
        keeps_rows: ALTER TABLE leaves all rows of the table, their columns and key unchanged.
    """

    error: str = ""
    words: Sequence[SqlWord] = ()
    items: Sequence[list[SqlWord]] = ()
    renames: tuple[tuple[str, str], ...] = ()
    exchanged: str | None = None
    like_source: str | None = None
    has_select: bool = False
    keeps_rows: bool = True


class ParsedDdl(msgspec.Struct, frozen=True, dict=True):
    """Definitions and tables that one statement creates, changes, empties or drops.

    Names of tables are full names ("database.table").

    Attributes:
        verb: CREATE, ALTER, DROP, TRUNCATE or RENAME; "" for other statements, which have no further attributes.
        kind: what it is about: TABLE, DATABASE, TRIGGER, VIEW, ...
        names: the tables, sequences, database or trigger that it names; for RENAME, the first one.
        owner: the table of an index or a trigger.
        rest: offset of the text after the names.
        has_no_table: it defines something other than tables (users, functions), or it defines nothing.
    """

    text: str
    database: str
    verb: str = ""
    kind: str = ""
    names: tuple[str, ...] = ()
    owner: str | None = None
    rest: int = 0
    is_temporary: bool = False
    is_conditional: bool = False
    replaces: bool = False
    has_no_table: bool = False

    # -- tables --------------------------------------------------------------------------------------------------------

    @property
    def created(self) -> str | None:
        """Table that a CREATE TABLE creates for all sessions."""
        return self._get_name("CREATE", TABLE)

    @property
    def is_create_table(self) -> bool:
        """True for a CREATE TABLE for all sessions, even if its name is missing."""
        return (self.verb, self.kind, self.is_temporary) == ("CREATE", TABLE, False)

    @property
    def altered(self) -> str | None:
        """Table that an ALTER TABLE changes."""
        return self._get_name("ALTER", TABLE)

    @property
    def dropped_database(self) -> str | None:
        """Database that the statement drops."""
        return self._get_name("DROP", DATABASE)

    def _get_name(self, verb: str, kind: str) -> str | None:
        matches = (self.verb, self.kind) == (verb, kind) and not self.is_temporary
        return self.names[0] if matches and self.names else None

    @property
    def is_truncate(self) -> bool:
        """True if the statement empties a table that remains."""
        return self.verb == "TRUNCATE"

    @property
    def tables_losing_rows(self) -> tuple[str, ...]:
        """Tables that the statement drops, empties or replaces."""
        removes_rows = self.verb in ("DROP", "TRUNCATE") or (self.verb == "CREATE" and self.replaces)
        return self.names if removes_rows and self.kind == TABLE and not self.is_temporary else ()

    @property
    def renames(self) -> tuple[tuple[str, str], ...]:
        """(old, new) names of the tables that the statement renames, in order; () if it cannot be read."""
        return self.clauses.renames if self.verb in ("ALTER", "RENAME") else ()

    @property
    def dropped_or_replaced(self) -> tuple[str, ...]:
        """Tables that exist no longer, or anew."""
        return () if self.is_truncate else self.tables_losing_rows

    def list_affected_tables(self) -> list[str]:
        """Return all tables and sequences that the statement creates, changes, empties, drops or renames."""
        names = [*self.tables_losing_rows, self.created, self.altered, self.owner if self.kind == INDEX else None]
        names += self.names if self.kind == SEQUENCE and not self.is_temporary else ()
        names += [name for pair in self.renames for name in pair]
        names += [self.clauses.exchanged] if self.verb == "ALTER" else ()
        return list(dict.fromkeys(name for name in names if name is not None))

    # -- definitions ---------------------------------------------------------------------------------------------------

    @property
    def may_change_key(self) -> bool:
        """True if an ALTER TABLE may change the key of its table."""
        return _KEY_CHANGES.search(self.text) is not None

    @property
    def can_engine_roll_back(self) -> bool | None:
        """Return whether the engine that CREATE TABLE or ALTER TABLE names can roll back; None if none is named."""
        if self.created is None and self.altered is None:
            return None
        engine = _ENGINE.search(self.text, self.rest, self.rest + _MAX_SEARCHED)
        return None if engine is None else engine[1].upper() not in _NON_TRANSACTIONAL_ENGINES

    @cached_property
    def clauses(self) -> DdlClauses:
        """Return the clauses after the name; read when first used."""
        try:
            return _read_clauses(self)
        except UsageError as error:
            return DdlClauses(str(error))


# --- The head: verb, kind, names ---


def parse_ddl(sql: str, default_database: str) -> ParsedDdl:
    """Parse a statement; `default_database`: the default database in which it ran."""
    return (_parse_cached if len(sql) <= MAX_CACHED_LENGTH else _parse_ddl_uncached)(sql, default_database)


class _StatementHeadReader:
    """Reader of the first words of a statement; skips comments between them."""

    def __init__(self, sql: str, database: str) -> None:
        self.sql, self.database, self.at = sql, database, find_next_word_offset(sql)

    def skip_if_match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match a pattern and move after it."""
        matched = pattern.match(self.sql, self.at)
        if matched is not None:
            self.at = find_next_word_offset(self.sql, matched.end())
        return matched

    def read_name_parts(self) -> TableName:
        """Read a name, with the name of a database before it or without; () if there is none."""
        first = self.skip_if_match(_NAME)
        second = self.skip_if_match(_NAME) if first is not None and self.skip_if_match(_DOT) is not None else None
        return tuple(unquote_sql_name(one[0]) for one in (first, second) if one is not None)

    def read_full_table_name(self) -> str | None:
        """Read the full name of a table; None if there is none."""
        parts = self.read_name_parts()
        return qualify_parsed_name(parts, self.database) if parts else None

    def iter_table_names(self) -> Iterator[str]:
        """Read the full names of a list of tables."""
        while (name := self.read_full_table_name()) is not None:
            yield name
            if self.skip_if_match(_COMMA) is None:
                return

    def read_renames(self) -> Iterator[tuple[str, str]]:
        """Read the pairs of RENAME TABLE. Raises UsageError: a name or TO is missing."""
        while True:
            old_name = self.read_full_table_name()
            self.skip_if_match(_WAIT)
            if old_name is not None and self.skip_if_match(_TO) is None:
                raise UsageError("RENAME TABLE has no TO")
            new_name = self.read_full_table_name()
            if old_name is None or new_name is None:
                raise UsageError(_NO_NAME)
            yield old_name, new_name
            if self.skip_if_match(_COMMA) is None:
                return


def _parse_ddl_uncached(sql: str, default_database: str) -> ParsedDdl:
    """Parse a statement."""
    reader = _StatementHeadReader(sql, default_database)
    verb_word = reader.skip_if_match(DDL_VERB)
    if verb_word is None:
        return ParsedDdl(sql, default_database, has_no_table=reader.skip_if_match(_OTHER_STATEMENT) is not None)
    verb, options = verb_word[1].upper(), list[str]()
    while verb in ("CREATE", "ALTER", "DROP") and (option := reader.skip_if_match(_OPTION)) is not None:
        options.append(option[0].upper())
    if verb == "TRUNCATE":
        reader.skip_if_match(_TABLE)
        kind = TABLE
    else:
        kind_word = reader.skip_if_match(_WORD)
        kind = "" if kind_word is None else kind_word[0].upper()
        kind = _KINDS.get(kind, kind)
    is_conditional = reader.skip_if_match(_IF_EXISTS) is not None
    start, owner, names = reader.at, None, tuple[str, ...]()
    if kind == DATABASE:
        names = (_read_database_name(reader, default_database),)
    elif kind in (TABLE, SEQUENCE) and verb == "DROP":
        names = tuple(reader.iter_table_names())
    elif kind in (TABLE, SEQUENCE, INDEX, TRIGGER) and (parts := reader.read_name_parts()):
        matched = reader.skip_if_match(_OWNER_PATTERNS[kind]) if kind in _OWNER_PATTERNS else None
        owner = None if matched is None else qualify_table_name(matched["table"], default_database)
        is_owned = owner is not None and kind == TRIGGER
        names = (qualify_parsed_name(parts, split_table_name(owner)[0] if is_owned and owner else default_database),)
    return ParsedDdl(
        sql, default_database, verb, kind, names, owner, start if verb == "RENAME" else reader.at,
        "TEMPORARY" in options,
        is_conditional, any(option.startswith("OR") for option in options),
        kind in _KINDS_WITHOUT_TABLE and (verb != "RENAME" or kind == "USER"),
    )  # fmt: skip


_parse_cached = lru_cache(maxsize=64)(_parse_ddl_uncached)
"""Cached form for short statements, which several readers of one log parse."""


def _read_database_name(reader: _StatementHeadReader, default_database: str) -> str:
    """Read the name of a database; ALTER DATABASE without a name changes the default database."""
    if _DATABASE_OPTIONS.match(reader.sql, reader.at) or (name := reader.skip_if_match(_NAME)) is None:
        return default_database
    return unquote_sql_name(name[0])


# --- Clauses ---


def _read_clauses(ddl: ParsedDdl) -> DdlClauses:
    """Read what follows the name. Raises UsageError: the statement cannot be read."""
    if ddl.verb == "RENAME" and ddl.kind == TABLE:
        reader = _StatementHeadReader(ddl.text, ddl.database)
        reader.at = ddl.rest
        return DdlClauses(renames=tuple(reader.read_renames()))
    if ddl.verb not in ("CREATE", "ALTER") or ddl.kind not in (TABLE, DATABASE):
        return DdlClauses()
    if not ddl.names:
        raise UsageError(_NO_NAME)
    head_lines = ddl.text.count("\n", find_next_word_offset(ddl.text), ddl.rest)
    words = StatementReader(ddl.verb + "\n" * head_lines + " " + ddl.text[ddl.rest :]).words[1:]
    rest = StatementReader.from_words(words)
    if ddl.kind == DATABASE:
        return DdlClauses(words=words)
    if ddl.verb == "CREATE":
        source = (
            _read_full_name(rest, ddl)
            if rest.skip_words_if_next("LIKE") or rest.skip_words_if_next("(", "LIKE")
            else None
        )
        return DdlClauses(words=words, like_source=source, has_select=any(word.upper == "SELECT" for word in words))
    rest.skip_wait_option()
    items = list(rest.iter_clauses())
    new_names = [name for name in map(_find_new_table_name, items) if name is not None]
    exchanged = None
    if rest.skip_words_if_next("EXCHANGE", "PARTITION"):
        rest.at += 1
        exchanged = _read_full_name(rest, ddl) if rest.skip_words_if_next("WITH", "TABLE") else None
    return DdlClauses(
        words=words,
        items=items,
        renames=tuple((ddl.names[0], qualify_parsed_name(name, ddl.database)) for name in new_names),
        exchanged=exchanged,
        keeps_rows=all(map(_is_row_preserving_clause, items)),
    )


def _read_full_name(reader: StatementReader, ddl: ParsedDdl) -> str:
    return qualify_parsed_name(reader.read_table_name(), ddl.database)


def _find_new_table_name(clause: Sequence[SqlWord]) -> TableName | None:
    """Return the new table name in a clause RENAME [TO | AS | =] of ALTER TABLE; None for other clauses.

    Raises:
        UsageError: the clause has no name.
    """
    heads = [word.upper for word in clause[:2]]
    if heads[:1] != ["RENAME"] or heads[1:] in ([one] for one in _RENAME_OBJECTS):
        return None
    reader = StatementReader.from_words(clause)
    reader.at = 2 if heads[1:] in (["TO"], ["AS"], ["="]) else 1
    if reader.at >= len(clause):
        raise UsageError("ALTER TABLE ... RENAME has no name")
    return reader.read_table_name()


def _is_row_preserving_clause(clause: Sequence[SqlWord]) -> bool:
    """Return whether a clause of ALTER TABLE leaves rows, columns and key unchanged."""
    heads = [word.upper for word in clause if word.upper not in ("IF", "NOT", "EXISTS")][:3] + [""] * 3
    first, second = heads[:2]
    if first == "RENAME":
        return second != "COLUMN"
    if first == "ADD":
        adds_primary_key = second == "CONSTRAINT" and "PRIMARY" in [word.upper for word in clause[:4]]
        return second in (*_KEPT_BY_INDEX_WORDS, "PARTITION") and not adds_primary_key
    if first == "DROP":
        return second in _KEPT_BY_INDEX_WORDS
    return first in TABLE_OPTIONS or not clause
