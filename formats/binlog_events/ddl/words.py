"""SQL scripts as statements, and statements as words, by the lexical rules of MySQL and MariaDB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from binlogtool.errors import UsageError

_SHORT = 4096
"""Characters of a statement whose words are kept for the next question."""

QUOTED = r"`(?:[^`]|``)+`"
"""The pattern of a quoted name."""

SINGLE, DOUBLE = (rf"{mark}[^{mark}\\]*(?:\\(?:.|\Z)[^{mark}\\]*)*(?:{mark}|\Z)" for mark in "'\"")
"""The patterns of texts between quotation marks, with backslashes that escape: each byte is taken in one way only, and
one that is not closed goes to the end, so that nothing is read twice."""

COMMENT = r"/\*(?!M?!).*?(?:\*/|\Z)"
"""The pattern of a comment that no server executes."""


class Statement(NamedTuple):
    """One statement: the line that it starts in, from 1, and its text with blanks in place of comments."""

    line: int
    text: str


class Word(NamedTuple):
    """One word of a statement; `quoted`: a name or string, without its quotation marks."""

    text: str
    quoted: bool

    @property
    def upper(self) -> str:
        """A bare word in capitals; empty for a quoted one."""
        return "" if self.quoted else self.text.upper()


_PIECES = r"""
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


def _pattern(delimiter: str) -> re.Pattern[str]:
    """Return the pattern of what matters between statements, for a delimiter."""
    return re.compile(_PIECES % re.escape(delimiter), re.VERBOSE | re.DOTALL | re.MULTILINE | re.IGNORECASE)


def statements(sql: str) -> Iterator[Statement]:
    """Yield the statements of a script; the content of `/*! … */` is part of them.

    Raises:
        UsageError: a quotation mark is not closed.
    """
    line = counted = 0
    for offset, text in _cuts(sql):
        body = text.strip()
        if body:
            start = offset + len(text) - len(text.lstrip())
            line, counted = line + sql.count("\n", counted, start), start
            yield Statement(line + 1, body)


def _cuts(sql: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, text) of each statement; comments are replaced by blanks of the same length."""
    pattern = _pattern(";")
    begin = at = 0
    parts, blank = list[str](), True
    while (match := pattern.search(sql, at)) is not None:
        parts.append(sql[at : match.start()])
        blank = blank and not parts[-1].strip()
        at = match.end()
        kind = match.lastgroup
        if kind == "unclosed":
            line = sql.count("\n", 0, match.start()) + 1
            raise UsageError(f"line {line}: the quotation mark {match[0]} is not closed")
        if kind == "ends" or (kind == "delimiter" and blank):
            yield begin, "".join(parts)
            parts, blank, begin = [], True, at
            if kind == "delimiter":
                pattern = _pattern(match["delimiter"])
        else:
            parts.append(match[0] if kind in ("quoted", "delimiter") else _BLANK.sub(" ", match[0]))
            blank = blank and kind not in ("quoted", "delimiter")
    yield begin, "".join(parts) + sql[at:]


def after_gap(sql: str, at: int = 0) -> int:
    """Return the offset of the next word, after blanks, comments and the marks of executable comments.

    At the start of a statement MariaDB's `SET STATEMENT variable=value, … FOR` is skipped too. This is a loop:
    a pattern that contained the gap would try each of its parts again for every way in which the rest fails.
    """
    start = at
    while (match := _GAP.match(sql, at)) is not None:
        at = match.end()
    if not start and (match := _SET_STATEMENT.match(sql, at)) is not None:
        behind = _after_for(sql, match.end())
        return at if behind is None else after_gap(sql, behind)
    return at


_SET_STATEMENT = re.compile(r"SET\s+STATEMENT\b", re.IGNORECASE)
_SET_PIECES = re.compile(rf"{SINGLE}|{DOUBLE}|`[^`]*`|{COMMENT}|[()]|\bFOR\b", re.DOTALL | re.IGNORECASE)


def is_undecided(sql: str) -> bool:
    """Return whether the beginning of a statement ends before its first word (in a comment, or in SET STATEMENT)."""
    at = after_gap(sql)
    return len(sql) - at < 32 or sql[at : at + 2] == "/*" or _SET_STATEMENT.match(sql, at) is not None


def _after_for(sql: str, at: int) -> int | None:
    """Return the end of the FOR that ends the variables of SET STATEMENT."""
    depth = 0
    for match in _SET_PIECES.finditer(sql, at):
        word = match[0].upper()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word == "FOR" and not depth:
            return match.end()
    return None


def words(statement: Statement) -> list[Word]:
    """Return the words of a statement.

    Raises:
        UsageError: it does not follow the lexical rules.
    """
    from sqlglot.errors import SqlglotError

    split = _split_again if len(statement.text) <= _SHORT else _split
    try:
        return list(split(statement.text))
    except SqlglotError:
        raise UsageError(f"line {statement.line}: the statement cannot be read as SQL") from None


def _split(text: str) -> tuple[Word, ...]:
    """Split a text into words."""
    import sqlglot
    from sqlglot import TokenType

    found: list[Word] = []
    for token in sqlglot.tokenize(text, dialect="mysql"):
        quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.NATIONAL_STRING)
        found += [Word(token.text, True)] if quoted else [Word(part, False) for part in token.text.split()]
    return tuple(found)


_split_again = lru_cache(maxsize=256)(_split)
"""For short ones: each statement is looked at for tables, keys and sequences, and many come again."""
