"""Statements in a script for the servers' command line clients, which read lines and have commands of their own.

A statement is ended by a delimiter. Outside of quotation marks a client takes `\\` and some words at the start of a
statement for commands; one of them runs programs. Logs that a server wrote have no such places; forged ones may.
"""

from __future__ import annotations

import re

from binlogtool.formats.mysql_binlog.charsets import decoder_of

DELIMITER = b"$$"

NO_BACKSLASH_ESCAPES = 1 << 20
"""Bit of sql_mode."""

_NOT_ASCII = ("big5", "cp932", "gb18030", "gbk", "sjis")
"""Character sets with ASCII bytes inside of other characters: the client must know them to read a line."""

_PIECES = r"""
    (?P<quoted> '[^'\\]*(?:%s[^'\\]*)*' | "[^"\\]*(?:%s[^"\\]*)*" | `[^`]*` )
  | (?P<comment> (?:--(?=[\s\x00-\x1f]|\Z)|\#)[^\n]* | /\*(?!M?!) .*? \*/ )
  | (?P<fine> \\N )
  | (?P<bad> ['"`\\] | /\*(?!M?!) )
"""
_FLAGS = re.VERBOSE | re.DOTALL | re.IGNORECASE
_ESCAPING = re.compile(_PIECES % (r"\\.", r"\\."), _FLAGS)
_LITERAL = re.compile(_PIECES % (r"\\", r"\\"), _FLAGS)
_SAFE_STARTS = frozenset(
    {
        b"ALTER", b"ANALYZE", b"BEGIN", b"BINLOG", b"CALL", b"CHANGE", b"CHECK", b"COMMIT", b"CREATE", b"DELETE", b"DO",
        b"DROP", b"FLUSH", b"GRANT", b"IMPORT", b"INSERT", b"INSTALL", b"LOAD", b"LOCK", b"OPTIMIZE", b"PREPARE",
        b"PURGE", b"RELEASE", b"RENAME", b"REPAIR", b"REPLACE", b"RESET", b"REVOKE", b"ROLLBACK", b"SAVEPOINT",
        b"SELECT", b"SET", b"START", b"TRUNCATE", b"UNINSTALL", b"UNLOCK", b"UPDATE", b"USE", b"VALUES", b"WITH", b"XA",
    }
)  # fmt: skip
"""First words of statements, none of them a command of the client but USE, which means the same."""


def fault(sql: bytes, charset: str | None, sql_mode: int) -> str | None:
    """Why a client would not read this text as one statement; None = it does."""
    text = _readable(sql, charset)
    if text is None:
        return f"the text is not {charset}"
    pattern = _LITERAL if sql_mode & NO_BACKSLASH_ESCAPES else _ESCAPING
    for match in pattern.finditer(text):
        if match.lastgroup == "bad":
            what = match[0].strip()
            return f"{what} at character {match.start()} would be a command of the client, or is not closed"
    return None


def _readable(sql: bytes, charset: str | None) -> str | None:
    if charset in _NOT_ASCII:
        text = decoder_of(charset)(sql)
        return text if isinstance(text, str) else None
    return sql.decode("latin-1")


def switch(charset: str | None) -> bytes:
    """What tells the client of a character set that it must know; else nothing."""
    return b"/*!\\C " + charset.encode() + b" */" if charset in _NOT_ASCII else b""


def ended(sql: bytes) -> bytes:
    """The statement with a delimiter that is not in it, and begun so that its first word is no command."""
    first = re.match(rb"[A-Za-z]*", sql)
    if first is None or first[0].upper() not in _SAFE_STARTS:
        sql = b"/*! */" + sql
    if DELIMITER not in sql:
        return sql + b"\n" + DELIMITER + b"\n"
    number = next(n for n in range(len(sql)) if b"$%d$" % n not in sql)
    other = b"$%d$" % number
    return b"DELIMITER %b\n%b\n%b\nDELIMITER %b\n" % (other, sql, other, DELIMITER)


def script_start(writer: str) -> bytes:
    """The first lines."""
    how = "for a client in binary mode: mariadb --binary-mode, mysql --binary-mode"
    return f"# Statements of a log of {writer}; {how}\n".encode() + b"DELIMITER " + DELIMITER + b"\n"


SCRIPT_END = b"DELIMITER ;\n"
