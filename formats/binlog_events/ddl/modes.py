"""Statements normalized to the default quoting rules: names in backquotes, backslashes that escape."""

from __future__ import annotations

import re
from functools import cache

from binlogtool.formats.binlog_events.ddl.words import COMMENT, SINGLE
from binlogtool.formats.binlog_events.events.decoding import QueryParts
from binlogtool.formats.binlog_events.values.charsets import charset_of, decoder_of
from binlogtool.formats.binlog_events.wire.status import status_values

ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20
"""Bits of sql_mode that change what a quotation mark or a backslash means (MODE_ANSI_QUOTES, MODE_NO_BACKSLASH_ESCAPES
of the servers)."""

_COMMENTS = rf"--(?=\s|\Z)[^\n]*|\#[^\n]*|{COMMENT}"


def usual_text(sql: bytes, parts: QueryParts) -> str:
    """Return the text of a statement of the log in default quoting, see `normalize_quotes`.

    Args:
        sql: the statement, uncompressed.

    Raises:
        MalformedError: its status variables cannot be read.
    """
    status = status_values(parts.status_vars)
    decode = decoder_of(charset_of(status["charset"]["client"])) if "charset" in status else None
    text = decode(sql) if decode is not None else None
    if not isinstance(text, str):
        text = sql.decode("utf-8", "surrogateescape")
    return in_usual_mode(text, status.get("sql_mode", 0))


def in_usual_mode(sql: str, mode: int) -> str:
    """Return the statement as it is written with neither ANSI_QUOTES nor NO_BACKSLASH_ESCAPES.

    Args:
        mode: its sql_mode.
    """
    mode &= ANSI_QUOTES | NO_BACKSLASH_ESCAPES
    return sql if not mode else _pattern(mode).sub(lambda match: _usual(match[0], mode), sql)


@cache
def _pattern(mode: int) -> re.Pattern[str]:
    """Return the pattern of strings, names and comments in this sql_mode."""
    plain = "'[^']*(?:'|\\Z)" if mode & NO_BACKSLASH_ESCAPES else SINGLE
    double = '"[^"]*(?:""[^"]*)*(?:"|\\Z)'  # in either mode a backslash between double quotes is an ordinary character
    return re.compile(f"`[^`]*`|{plain}|{double}|{_COMMENTS}", re.DOTALL)


def _usual(piece: str, mode: int) -> str:
    """Return a string, name or comment in default quoting."""
    if piece[0] == '"' and mode & ANSI_QUOTES and piece.count('"') % 2 == 0:  # otherwise it is not closed
        return "`" + piece[1:-1].replace('""', '"').replace("`", "``") + "`"
    return piece.replace("\\", "\\\\") if piece[0] in "'\"" and mode & NO_BACKSLASH_ESCAPES else piece
