"""Split SQL scripts into statements, and statements into words; read names and quoted texts from the words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

from binlogtool.errors import UsageError
from binlogtool.format_api.row_output_interfaces import qualify_name
from binlogtool.formats.binlog_events.event_schemas import QueryParts
from binlogtool.formats.binlog_events.status_variables import decode_status_variables
from binlogtool.formats.binlog_events.values.column_types import charset_of_collation, get_charset_decoder
from binlogtool.formats.binlog_events.wire_format import parse_version_numbers

# --- SQL scripts as statements and words ---

MAX_CACHED_LENGTH = 4096
"""Maximum length of a statement whose words or head are cached, in characters."""

QUOTED_NAME = r"`(?:[^`]|``)+`"
"""Pattern of a quoted name."""

SINGLE_QUOTED, DOUBLE_QUOTED = (rf"{mark}[^{mark}\\]*(?:\\(?:.|\Z)[^{mark}\\]*)*(?:{mark}|\Z)" for mark in "'\"")
"""Patterns of strings with backslash escapes: each byte matches in only one way, and an unclosed string extends to the
end, so that nothing is read twice.
"""

COMMENT = r"/\*(?!M?!).*?(?:\*/|\Z)"
"""Pattern of a comment that no server executes."""


PARENTHESES = {"(": 1, ")": -1}
"""Word -> change of the depth of open parentheses."""


class SqlStatement(NamedTuple):
    """One statement: the line in which it starts, from 1, and its text with blanks in place of comments."""

    line: int
    text: str


class SqlWord(NamedTuple):
    """One word of a statement; `quoted`: a name or string, without its quotation marks."""

    text: str
    quoted: bool

    @property
    def upper(self) -> str:
        """Unquoted word in upper case; empty for a quoted word."""
        return "" if self.quoted else self.text.upper()


_LEXICAL_PARTS = r"""
    (?P<quoted> '[^'\\]*(?:\\.[^'\\]*)*' | "[^"\\]*(?:\\.[^"\\]*)*" | `[^`]*` )
  | (?P<unclosed> ['"`] )
  | (?P<comment> --(?=\s|\Z)[^\n]* | \#[^\n]* | /\*(?!M?!) .*? (?:\*/|\Z) )
  | (?P<opens> /\*M?!\d* )
  | (?P<closes> \*/ )
  | ^[ \t]*DELIMITER[ \t]+ (?P<delimiter> \S+ ) [^\n]*
  | (?P<ends> %s )
"""
_BLANK = re.compile(r"[^\n]")
_GAP = re.compile(r"\s+|--(?=\s|\Z)[^\n]*|#[^\n]*|/\*(?!M?!).*?\*/|/\*M?!\d*|\*/", re.DOTALL)


def _lexical_pattern(delimiter: str) -> re.Pattern[str]:
    """Return the pattern of tokens that matter between statements, for a delimiter."""
    return re.compile(_LEXICAL_PARTS % re.escape(delimiter), re.VERBOSE | re.DOTALL | re.MULTILINE | re.IGNORECASE)


def split_statements(sql: str) -> Iterator[SqlStatement]:
    """Yield the statements of a script; the content of `/*! … */` is part of them.

    Raises:
        UsageError: a quotation mark is not closed.
    """
    line = counted = 0
    for offset, text in _iter_statement_texts(sql):
        body = text.strip()
        if body:
            start = offset + len(text) - len(text.lstrip())
            line, counted = line + sql.count("\n", counted, start), start
            yield SqlStatement(line + 1, body)


def _iter_statement_texts(sql: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, text) of each statement; comments are replaced by blanks of the same length."""
    pattern = _lexical_pattern(";")
    begin = at = 0
    parts, is_blank = list[str](), True
    while (match := pattern.search(sql, at)) is not None:
        parts.append(sql[at : match.start()])
        is_blank = is_blank and not parts[-1].strip()
        at = match.end()
        kind = match.lastgroup
        if kind == "unclosed":
            line = sql.count("\n", 0, match.start()) + 1
            raise UsageError(f"line {line}: the quotation mark {match[0]} is not closed")
        if kind == "ends" or (kind == "delimiter" and is_blank):
            yield begin, "".join(parts)
            parts, is_blank, begin = [], True, at
            if kind == "delimiter":
                pattern = _lexical_pattern(match["delimiter"])
        else:
            parts.append(match[0] if kind in ("quoted", "delimiter") else _BLANK.sub(" ", match[0]))
            is_blank = is_blank and kind not in ("quoted", "delimiter")
    yield begin, "".join(parts) + sql[at:]


def find_next_word_offset(sql: str, offset: int = 0) -> int:
    """Return the offset of the next word, after blanks, comments and the marks of executable comments.

    At the start of a statement, MariaDB's `SET STATEMENT variable=value, … FOR` is skipped too. This is a loop because
    a pattern that includes the gap would backtrack through its parts whenever the rest does not match.
    """
    start = offset
    while (match := _GAP.match(sql, offset)) is not None:
        offset = match.end()
    if not start and (match := _SET_STATEMENT.match(sql, offset)) is not None:
        after_for = _find_end_of_set_statement(sql, match.end())
        return offset if after_for is None else find_next_word_offset(sql, after_for)
    return offset


_SET_STATEMENT = re.compile(r"SET\s+STATEMENT\b", re.IGNORECASE)
_SET_PIECES = re.compile(rf"{SINGLE_QUOTED}|{DOUBLE_QUOTED}|`[^`]*`|{COMMENT}|[()]|\bFOR\b", re.DOTALL | re.IGNORECASE)


def is_too_short_for_keyword(sql_prefix: str) -> bool:
    """Return whether the given prefix of a statement is too short to contain its first keyword."""
    at = find_next_word_offset(sql_prefix)
    return (
        len(sql_prefix) - at < 32 or sql_prefix[at : at + 2] == "/*" or _SET_STATEMENT.match(sql_prefix, at) is not None
    )


def _find_end_of_set_statement(sql: str, at: int) -> int | None:
    """Return the end of the FOR that closes the variables of SET STATEMENT; None if there is no such FOR."""
    depth = 0
    for match in _SET_PIECES.finditer(sql, at):
        word = match[0].upper()
        depth += PARENTHESES.get(word, 0)
        if word == "FOR" and not depth:
            return match.end()
    return None


def split_words(statement: SqlStatement) -> list[SqlWord]:
    """Return the words of a statement. Raises UsageError: it does not follow the lexical rules."""
    from sqlglot.errors import SqlglotError

    splitter = _split_cached if len(statement.text) <= MAX_CACHED_LENGTH else _tokenize
    try:
        return list(splitter(statement.text))
    except SqlglotError:
        raise UsageError(f"line {statement.line}: the statement cannot be read as SQL") from None


def _tokenize(text: str) -> tuple[SqlWord, ...]:
    """Split a text into words."""
    import sqlglot
    from sqlglot import TokenType

    result: list[SqlWord] = []
    for token in sqlglot.tokenize(text, dialect="mysql"):
        quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.NATIONAL_STRING)
        result += [SqlWord(token.text, True)] if quoted else [SqlWord(part, False) for part in token.text.split()]
    return tuple(result)


_split_cached = lru_cache(maxsize=256)(_tokenize)
"""Cached form for short statements, which often recur and are searched several times (tables, keys, sequences)."""


# --- Statements normalized to the default quoting rules ---

ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20
"""Bits of sql_mode that change the meaning of a quotation mark or a backslash (MODE_ANSI_QUOTES,
MODE_NO_BACKSLASH_ESCAPES of the servers).
"""

_COMMENTS = rf"--(?=\s|\Z)[^\n]*|\#[^\n]*|{COMMENT}"


def decode_statement_with_default_quotes(sql: bytes, query_parts: QueryParts) -> str:
    """Return the text of a statement of the log in default quoting, see `rewrite_to_default_quotes`.

    Args:
        sql: the statement, uncompressed.

    Raises:
        MalformedError: its status variables cannot be read.
    """
    status = decode_status_variables(query_parts.status_vars)
    decoder = get_charset_decoder(charset_of_collation(status["charset"]["client"])) if "charset" in status else None
    text = decoder(sql) if decoder is not None else None
    if not isinstance(text, str):
        text = sql.decode("utf-8", "surrogateescape")
    return rewrite_to_default_quotes(text, status.get("sql_mode", 0))


def rewrite_to_default_quotes(sql: str, sql_mode: int) -> str:
    """Return a statement rewritten for a mode without ANSI_QUOTES and NO_BACKSLASH_ESCAPES; `sql_mode`: its
    sql_mode.
    """
    sql_mode &= ANSI_QUOTES | NO_BACKSLASH_ESCAPES
    return (
        sql
        if not sql_mode
        else _quoting_pattern(sql_mode).sub(lambda match: _rewrite_token_quotes(match[0], sql_mode), sql)
    )


@cache
def _quoting_pattern(sql_mode: int) -> re.Pattern[str]:
    """Return the pattern of strings, names and comments in this sql_mode."""
    single = "'[^']*(?:'|\\Z)" if sql_mode & NO_BACKSLASH_ESCAPES else SINGLE_QUOTED
    double = '"[^"]*(?:""[^"]*)*(?:"|\\Z)'  # in both modes a backslash in double quotes is an ordinary character
    return re.compile(f"`[^`]*`|{single}|{double}|{_COMMENTS}", re.DOTALL)


def _rewrite_token_quotes(token: str, sql_mode: int) -> str:
    """Return a string, name or comment in default quoting."""
    if token[0] == '"' and sql_mode & ANSI_QUOTES and token.count('"') % 2 == 0:  # otherwise it is not closed
        return "`" + token[1:-1].replace('""', '"').replace("`", "``") + "`"
    return token.replace("\\", "\\\\") if token[0] in "'\"" and sql_mode & NO_BACKSLASH_ESCAPES else token


# --- Executable comments that a server ignores ---

_COMMENT_PATTERN = re.compile(
    rf"{SINGLE_QUOTED}|{DOUBLE_QUOTED}|`[^`]*`|/\*(M?)!(\d{{5,6}})?|--(?=\s|\Z)[^\n]*|\#[^\n]*|{COMMENT}", re.DOTALL
)
_NOT_FOR_MARIADB = range(50700, 100000)
"""MySQL versions whose executable comments MariaDB ignores."""


def strip_ignored_comments(sql: str, server_version: str) -> str:
    """Return the statement without the executable comments that a server of this version ignores."""
    major, minor, patch = parse_version_numbers(server_version)
    number = 10000 * major + 100 * minor + patch
    if not number or ("/*!" not in sql and "/*M!" not in sql):
        return sql
    mariadb, parts, at = "mariadb" in server_version.lower(), list[str](), 0
    while (match := _COMMENT_PATTERN.search(sql, at)) is not None:
        end = match.end()
        if match[1] is not None and not _is_comment_executed(match, number, is_mariadb=mariadb):
            close = sql.find("*/", end)
            parts.append(sql[at : match.start()] + " ")
            at = len(sql) if close < 0 else close + 2
            continue
        parts.append(sql[at:end])
        at = end
    return "".join(parts) + sql[at:]


def _is_comment_executed(match: re.Match[str], server_version_number: int, *, is_mariadb: bool) -> bool:
    """Return whether a server executes an executable comment."""
    if match[1] and not is_mariadb:
        return False
    required_version = int(match[2] or 0)
    return required_version <= server_version_number and not (
        is_mariadb and not match[1] and required_version in _NOT_FOR_MARIADB
    )


# --- Tables named in the statements of a log ---

_NAME = rf"(?:{QUOTED_NAME}|[\w$]+)"
TABLE_PATTERN = rf"(?P<table>{_NAME}(?:\s*\.\s*{_NAME})?)"
DDL_VERB = re.compile(r"(CREATE|ALTER|DROP|TRUNCATE|RENAME)\b", re.I)
"""Pattern of the first word of statements that define, empty or rename something."""
_WORDS = re.compile(_NAME)
_MAX_SEARCHED = 1 << 20
_MAX_START = 4096


KeyPart = tuple[str, int]
"""(name of a key column in lower case, number of its characters in the key; 0 = all)."""


class DeclaredKey(NamedTuple):
    """Primary key of a CREATE TABLE: number of columns of the table; (column index, characters in the key; 0 = all)."""

    columns: int
    parts: tuple[tuple[int, int], ...]


def may_be_ddl_statement(sql: bytes) -> bool:
    """Return whether the beginning of a statement may be that of a kind that this module supports.

    Usually its first bytes decide.
    """
    text = sql[:_MAX_START].decode("latin-1")
    if len(sql) > _MAX_START and is_too_short_for_keyword(text):
        text = sql.decode("latin-1")
    return DDL_VERB.match(text, find_next_word_offset(text)) is not None


def mentions_any_table(sql: str, database: str, tables: Collection[str]) -> bool:
    """Return whether a statement names one of these tables; names in strings and comments count too."""
    names = [unquote_sql_name(name) for name in _WORDS.findall(sql[:_MAX_SEARCHED])]
    return any(qualify_name(database, name) in tables for name in names) or any(
        qualify_name(first, second) in tables for first, second in pairwise(names)
    )


def qualify_table_name(name: str, database: str) -> str:
    """Return database.table for a table name as written in a statement."""
    parts = [unquote_sql_name(part) for part in _WORDS.findall(name)]
    return qualify_name(*parts[:2]) if len(parts) > 1 else qualify_name(database, parts[0])


def unquote_sql_name(name: str) -> str:
    """Return a name without its quotation marks."""
    mark = name[:1]
    return name[1:-1].replace(2 * mark, mark) if mark in ("`", "'", '"') else name


# -- keys --------------------------------------------------------------------------------------------------------------


def find_declared_primary_key(definition_items: Sequence[list[SqlWord]]) -> DeclaredKey | None:
    """Return the primary key that the items of a table definition declare; None if they declare none."""
    columns = [item for item in definition_items if item and not is_key_or_other_clause(item)]
    names = [item[0].text.lower() for item in columns]
    for item in definition_items:
        parts = parse_key_parts(item) if "PRIMARY" in [word.upper for word in item] else ()
        if parts and is_key_or_other_clause(item) and all(name in names for name, _ in parts):
            return DeclaredKey(len(columns), tuple((names.index(name), size) for name, size in parts))
    for index, item in enumerate(columns):
        if _is_primary_key_column(item):
            return DeclaredKey(len(columns), ((index, 0),))
    return None


def split_words_in_parentheses(words: Sequence[SqlWord]) -> tuple[list[list[SqlWord]], int]:
    """Return the words in the first parentheses, split at commas, and the index after them; 0 = not closed."""
    items, depth = [list[SqlWord]()], 0
    for at, word in enumerate(words):
        depth += PARENTHESES.get(word.upper, 0)
        if depth == 0 and word.upper == ")":
            return items, at + 1
        if depth == 1 and word.upper == ",":
            items.append([])
        elif depth > 1 or (depth == 1 and word.upper != "("):
            items[-1].append(word)
    return items, 0


_CLAUSES = {"PRIMARY", "KEY", "INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK", "LIKE"}
_CLAUSE_PAIRS = (["PERIOD", "FOR"], ["VECTOR", "KEY"], ["VECTOR", "INDEX"])


def is_key_or_other_clause(definition_item: Sequence[SqlWord]) -> bool:
    """Return whether an item of a table definition is a key or another clause instead of a column."""
    return definition_item[0].upper in _CLAUSES or [word.upper for word in definition_item[:2]] in _CLAUSE_PAIRS


MAX_SIZE_DIGITS = 20
"""Maximum digits of a size in a definition; servers refuse longer ones."""


def parse_key_parts(words: Sequence[SqlWord]) -> tuple[KeyPart, ...]:
    """Return the columns in the first parentheses, as in PRIMARY KEY (a, b(10))."""
    parts: list[KeyPart] = []
    depth = 0
    for word in words:
        depth += PARENTHESES.get(word.upper, 0)
        if depth == 0 and word.upper == ")":
            break
        if depth == 2 and word.text.isdecimal() and parts:
            size = int(word.text) if len(word.text) <= MAX_SIZE_DIGITS else 0
            parts[-1] = parts[-1][0], size
        elif depth == 1 and word.upper not in ("(", ")", ",", "ASC", "DESC"):
            parts.append((word.text.lower(), 0))
    return tuple(parts)


def _is_primary_key_column(definition_item: list[SqlWord]) -> bool:
    """Return whether a column definition declares the primary key."""
    upper_words = [word.upper for word in definition_item[1:]]
    return any(
        word == "PRIMARY" or (word == "KEY" and upper_words[max(at - 1, 0)] not in ("UNIQUE", "PRIMARY", "COLUMN"))
        for at, word in enumerate(upper_words)
    )


# --- Effects of ALTER TABLE, RENAME TABLE and CREATE TABLE on existing rows ---

TABLE_OPTIONS = frozenset((
    "ENGINE", "TYPE", "COMMENT", "AUTO_INCREMENT", "ROW_FORMAT", "AVG_ROW_LENGTH", "MAX_ROWS", "MIN_ROWS", "CHECKSUM",
    "TABLE_CHECKSUM", "PAGE_CHECKSUM", "DELAY_KEY_WRITE", "KEY_BLOCK_SIZE", "PACK_KEYS", "STATS_PERSISTENT",
    "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "COMPRESSION", "ENCRYPTION", "ENCRYPTED", "ENCRYPTION_KEY_ID",
    "TRANSACTIONAL", "INSERT_METHOD", "CONNECTION", "DATA", "UNION", "DEFAULT", "CHARACTER", "CHARSET", "COLLATE",
    "ALTER", "ENABLE", "DISABLE", "FORCE", "ALGORITHM", "LOCK", "ORDER", "WITH", "WITHOUT", "TABLESPACE",
    "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "AUTOEXTEND_SIZE",
))  # fmt: skip
"""First words of clauses that leave rows and columns unchanged."""

TableName = tuple[str, ...]
"""(table,) or (database, table)."""


class StatementReader:
    """Reader of the words of one statement.

    Raises:
        UsageError: the statement does not follow the lexical rules, or `read_table_name` finds no name.
    """

    def __init__(self, sql: str) -> None:
        statement = next(iter(split_statements(sql[find_next_word_offset(sql) :])), SqlStatement(1, ";"))
        first, *rest = statement.text.split(None, 1)
        if first.upper() in ("CREATE", "ALTER", "DROP"):
            self.words = split_words(statement)
        else:  # sqlglot returns a whole RENAME as one word
            self.words = [SqlWord(first, False), *split_words(statement._replace(text="".join(rest)))]
        self.at = 0

    @classmethod
    def from_words(cls, word_list: Sequence[SqlWord]) -> StatementReader:
        """Create a reader for some words of a statement."""
        reader = cls(";")
        reader.words = list(word_list)
        return reader

    @property
    def next_word(self) -> str:
        """Next word in upper case; empty for a quoted word and at the end."""
        return self.words[self.at].upper if self.at < len(self.words) else ""

    def skip_words_if_next(self, *expected: str) -> bool:
        """If these words are next, skip them and return True; otherwise return False."""
        upcoming = [word.upper for word in self.words[self.at : self.at + len(expected)]]
        if upcoming != list(expected):
            return False
        self.at += len(expected)
        return True

    def read_table_name(self) -> TableName:
        """Read the name of a table."""
        parts = self.words[self.at : self.at + 3]
        if not parts or parts[0].upper in (",", "(", ")", ".", "="):
            raise UsageError("the statement has no name where one is expected")
        if len(parts) == 3 and parts[1].upper == ".":
            self.at += 3
            return parts[0].text, parts[2].text
        self.at += 1
        return (parts[0].text,)

    def skip_wait_option(self) -> None:
        """Skip WAIT n and NOWAIT."""
        if self.skip_words_if_next("WAIT"):
            self.at += 1
        self.skip_words_if_next("NOWAIT")

    def iter_clauses(self) -> Iterator[list[SqlWord]]:
        """Yield the remaining words, split at commas outside parentheses."""
        depth, clause = 0, list[SqlWord]()
        for word in self.words[self.at :]:
            depth += PARENTHESES.get(word.upper, 0)
            if depth == 0 and word.upper == ",":
                yield clause
                clause = []
            else:
                clause.append(word)
        yield clause


def qualify_parsed_name(name: TableName, database: str) -> str:
    """Return the full name of a table."""
    return qualify_name(*name) if len(name) > 1 else qualify_name(database, name[0])
