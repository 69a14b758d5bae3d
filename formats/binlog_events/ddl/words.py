"""SQL scripts as statements, and statements as words, by the lexical rules of MySQL and MariaDB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from binlogtool.errors import UsageError

_MAX_CACHED_LENGTH = 4096
"""Characters of a statement whose words are kept for the next question."""

QUOTED_NAME = r"`(?:[^`]|``)+`"
"""The pattern of a quoted name."""

SINGLE_QUOTED, DOUBLE_QUOTED = (rf"{mark}[^{mark}\\]*(?:\\(?:.|\Z)[^{mark}\\]*)*(?:{mark}|\Z)" for mark in "'\"")
"""The patterns of texts between quotation marks, with backslashes that escape: each byte is taken in one way only, and
one that is not closed goes to the end, so that nothing is read twice."""

COMMENT = r"/\*(?!M?!).*?(?:\*/|\Z)"
"""The pattern of a comment that no server executes."""


class SqlStatement(NamedTuple):
    """One statement: the line that it starts in, from 1, and its text with blanks in place of comments."""

    line: int
    text: str


class SqlWord(NamedTuple):
    """One word of a statement; `quoted`: a name or string, without its quotation marks."""

    text: str
    quoted: bool

    @property
    def upper(self) -> str:
        """A bare word in capitals; empty for a quoted one."""
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
    """Return the pattern of what matters between statements, for a delimiter."""
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


def skip_gap(sql: str, at: int = 0) -> int:
    """Return the offset of the next word, after blanks, comments and the marks of executable comments.

    At the start of a statement MariaDB's `SET STATEMENT variable=value, … FOR` is skipped too. This is a loop:
    a pattern that contained the gap would try each of its parts again for every way in which the rest fails.
    """
    start = at
    while (match := _GAP.match(sql, at)) is not None:
        at = match.end()
    if not start and (match := _SET_STATEMENT.match(sql, at)) is not None:
        after_for = _find_for_end(sql, match.end())
        return at if after_for is None else skip_gap(sql, after_for)
    return at


_SET_STATEMENT = re.compile(r"SET\s+STATEMENT\b", re.IGNORECASE)
_SET_PIECES = re.compile(rf"{SINGLE_QUOTED}|{DOUBLE_QUOTED}|`[^`]*`|{COMMENT}|[()]|\bFOR\b", re.DOTALL | re.IGNORECASE)


def is_undecided(sql: str) -> bool:
    """Return whether the beginning of a statement ends before its first word (in a comment, or in SET STATEMENT)."""
    at = skip_gap(sql)
    return len(sql) - at < 32 or sql[at : at + 2] == "/*" or _SET_STATEMENT.match(sql, at) is not None


def _find_for_end(sql: str, at: int) -> int | None:
    """Return the end of the FOR that ends the variables of SET STATEMENT."""
    depth = 0
    for match in _SET_PIECES.finditer(sql, at):
        word = match[0].upper()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word == "FOR" and not depth:
            return match.end()
    return None


def split_words(statement: SqlStatement) -> list[SqlWord]:
    """Return the words of a statement.

    Raises:
        UsageError: it does not follow the lexical rules.
    """
    from sqlglot.errors import SqlglotError

    splitter = _split_cached if len(statement.text) <= _MAX_CACHED_LENGTH else _tokenize
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
"""For short ones: each statement is looked at for tables, keys and sequences, and many come again."""
