"""Statements normalized to the default quoting rules: names in backquotes, backslashes that escape."""

from __future__ import annotations

import re
from functools import cache

from binlogtool.formats.binlog_events.ddl.words import COMMENT, SINGLE_QUOTED
from binlogtool.formats.binlog_events.events.decoding import QueryParts
from binlogtool.formats.binlog_events.values.charsets import charset_decoder, charset_of_collation
from binlogtool.formats.binlog_events.wire.status import decode_status_variables

ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20
"""Bits of sql_mode that change what a quotation mark or a backslash means (MODE_ANSI_QUOTES, MODE_NO_BACKSLASH_ESCAPES
of the servers)."""

_COMMENTS = rf"--(?=\s|\Z)[^\n]*|\#[^\n]*|{COMMENT}"


def normalize_statement(sql: bytes, parts: QueryParts) -> str:
    """Return the text of a statement of the log in default quoting, see `normalize_quotes`.

    Args:
        sql: the statement, uncompressed.

    Raises:
        MalformedError: its status variables cannot be read.
    """
    status = decode_status_variables(parts.status_vars)
    decoder = charset_decoder(charset_of_collation(status["charset"]["client"])) if "charset" in status else None
    text = decoder(sql) if decoder is not None else None
    if not isinstance(text, str):
        text = sql.decode("utf-8", "surrogateescape")
    return normalize_quotes(text, status.get("sql_mode", 0))


def normalize_quotes(sql: str, mode: int) -> str:
    """Return the statement as it is written with neither ANSI_QUOTES nor NO_BACKSLASH_ESCAPES.

    Args:
        mode: its sql_mode.
    """
    mode &= ANSI_QUOTES | NO_BACKSLASH_ESCAPES
    return sql if not mode else _quoting_pattern(mode).sub(lambda match: _normalize_part(match[0], mode), sql)


@cache
def _quoting_pattern(mode: int) -> re.Pattern[str]:
    """Return the pattern of strings, names and comments in this sql_mode."""
    single = "'[^']*(?:'|\\Z)" if mode & NO_BACKSLASH_ESCAPES else SINGLE_QUOTED
    double = '"[^"]*(?:""[^"]*)*(?:"|\\Z)'  # in either mode a backslash between double quotes is an ordinary character
    return re.compile(f"`[^`]*`|{single}|{double}|{_COMMENTS}", re.DOTALL)


def _normalize_part(part: str, mode: int) -> str:
    """Return a string, name or comment in default quoting."""
    if part[0] == '"' and mode & ANSI_QUOTES and part.count('"') % 2 == 0:  # otherwise it is not closed
        return "`" + part[1:-1].replace('""', '"').replace("`", "``") + "`"
    return part.replace("\\", "\\\\") if part[0] in "'\"" and mode & NO_BACKSLASH_ESCAPES else part
