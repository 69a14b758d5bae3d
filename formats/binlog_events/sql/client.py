"""Statements in a script for the servers' command line clients, which read lines and have commands of their own.

A statement is ended by a delimiter. Outside of quotation marks a client takes `\\` and some words at the start of a
statement for commands; one of them runs programs. Logs that a server wrote have no such places; forged ones may.

The delimiter is that of the servers' own tools: should a client ever read over one, the server still sees a comment
and the end of a statement there. Text that holds it, or whose characters hold ASCII bytes, is ended by a word that
nobody can foresee who wrote the text before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache

from binlogtool.formats.binlog_events.ddl.modes import NO_BACKSLASH_ESCAPES

DELIMITER = b"/*!*/;"
END = b"\n" + DELIMITER + b"\n"
"""What ends a statement, unless the delimiter is in it."""

PLAIN = "utf8mb4"
"""What a client reads right in each character set whose characters hold no ASCII bytes."""

_TWO_BYTES: Mapping[str, tuple[bytes, bytes]] = {
    "big5": (rb"[\xa1-\xf9]", rb"[\x40-\x7e\xa1-\xfe]"),
    "cp932": (rb"[\x81-\x9f\xe0-\xfc]", rb"[\x40-\x7e\x80-\xfc]"),
    "gb18030": (rb"[\x81-\xfe]", rb"(?:[\x40-\x7e\x80-\xfe]|[\x30-\x39][\x81-\xfe][\x30-\x39])"),
    "gbk": (rb"[\x81-\xfe]", rb"[\x40-\x7e\x80-\xfe]"),
    "sjis": (rb"[\x81-\x9f\xe0-\xfc]", rb"[\x40-\x7e\x80-\xfc]"),
}
"""Character sets with ASCII bytes inside of other characters: the first byte of such a character, and the rest."""

_SAFE_STARTS = frozenset(
    {
        b"ALTER", b"ANALYZE", b"BEGIN", b"BINLOG", b"CALL", b"CHANGE", b"CHECK", b"COMMIT", b"CREATE", b"DELETE", b"DO",
        b"DROP", b"FLUSH", b"GRANT", b"IMPORT", b"INSERT", b"INSTALL", b"LOAD", b"LOCK", b"OPTIMIZE", b"PREPARE",
        b"PURGE", b"RELEASE", b"RENAME", b"REPAIR", b"REPLACE", b"RESET", b"REVOKE", b"ROLLBACK", b"SAVEPOINT",
        b"SELECT", b"SET", b"START", b"TRUNCATE", b"UNINSTALL", b"UNLOCK", b"UPDATE", b"VALUES", b"WITH", b"XA",
    }
)  # fmt: skip
"""First words of statements, none of them a command of the client."""

_FIRST = re.compile(rb"[A-Za-z]*")
_NESTED = re.compile(rb"/\*(?=M?!|\+|/)")
"""Inside of a comment: clients see no end of that, and swallow what follows without a word."""

_BEHIND_DASHES = rb"(?=[\x00\t\n\x0b\x0c\r ]|\Z)"
"""What makes two dashes a comment for a client; servers take more for that."""

_DELIMITER_LINE = rb"\n(?=[Dd][Ee][Ll][Ii][Mm][Ii][Tt][Ee][Rr])"
"""Of a line that begins so clients leave out the end, unless that is inside of quotation marks or a comment."""

Fault = tuple[int, str]
"""The place and the text that a client would not read as a part of one statement."""


class _Lexer:
    """How a client in one character set finds where quotation marks close and comments end.

    dollars: MySQL's client from 9.0 on takes `$$` and `$word$` for quotation marks, unless they go on with a name.
    """

    def __init__(self, charset: str, *, escapes: bool, dollars: bool = True) -> None:
        lead, rest = _TWO_BYTES.get(charset, (b"", b""))
        self.wide = lead + rest
        stops = [self.wide] if lead else []
        if dollars:
            stops.append(rb"(?<![\w$\x80-\xff])\$(?:" + b"|".join([*stops, rb"[\w\x80-\xff]"]) + rb")*\$")
        stops += [rb"['\"`\\#]", b"--" + _BEHIND_DASHES, rb"/\*(?:M?!)?", _DELIMITER_LINE]
        self._stops = re.compile(b"|".join(stops), re.DOTALL)
        self._executed = re.compile(b"|".join([*stops, rb"\*/"]), re.DOTALL)
        self._quoted = {mark: self._until(mark, lead, escapes and mark != b"`") for mark in (b"'", b'"', b"`")}
        self._within_dollars = _Lexer(charset, escapes=escapes, dollars=False) if dollars else self

    def _until(self, mark: bytes, lead: bytes, escapes: bool) -> re.Pattern[bytes]:
        """From behind a quotation mark to behind its partner. Each byte is taken in one way only: no backtracking."""
        special = mark + (rb"\\" if escapes else b"") + (lead[1:-1] if lead else b"")
        others = [rb"\\."] if escapes else []
        others += [self.wide, lead + b"(?!" + self.wide[len(lead) :] + b")"] if lead else []
        plain = b"[^" + special + b"]*"
        if not others:
            return re.compile(plain + mark, re.DOTALL)
        return re.compile(plain + b"(?:(?:" + b"|".join(others) + b")" + plain + b")*" + mark, re.DOTALL)

    def read(self, sql: bytes) -> tuple[bytes, Fault | None]:
        """The text as it is to be written, or what is wrong with it.

        All clients and servers must find the same ends in it. So what is executed by some of them only, from `/*!` or
        `/*M!` to `*/`, has no other `*/` inside: comments in there go. Of `*/*` some take the last two for a beginning.
        """
        pieces, done, at, opened = list[bytes](), 0, 0, -1
        while (found := (self._stops if opened < 0 else self._executed).search(sql, at)) is not None:
            mark, start, at = found[0], found.start(), found.end()
            if mark == b"*/":
                opened = -1
            elif mark in (b"/*!", b"/*M!"):
                if opened >= 0:
                    return sql, (start, "a comment with another one inside,")
                opened = start
            elif mark != b"\n":
                end = self._end(sql, mark, at)
                torn = opened >= 0 and mark != b"/*" and b"*/" in sql[start:end]
                if end < 0 or torn or _is_joined(sql, start, end):
                    return sql, (start, mark[:2].decode("ascii", "backslashreplace"))
                if mark == b"/*" and (opened >= 0 or _NESTED.search(sql, at, end)):
                    pieces += [sql[done:start], b" " if opened >= 0 else b"/*" + _NESTED.sub(b"/ *", sql[at:end])]
                    done = end
                at = end
            if mark == b"\n" or (mark in (b"/*", b"*/") and sql[at : at + 1] == b"*"):
                pieces += [sql[done:at], b" "]
                done = at
        if opened >= 0:
            return sql, (opened, "/*!")
        return b"".join([*pieces, sql[done:]]) if pieces else sql, None

    def _end(self, sql: bytes, mark: bytes, at: int) -> int:
        """Where that ends which begins with this mark in front of `at`; -1 = it does not, or is a command."""
        if mark in self._quoted:
            closed = self._quoted[mark].match(sql, at)
            return -1 if closed is None else closed.end()
        if mark in (b"#", b"--"):
            return sql.find(b"\n", at) % (len(sql) + 1)
        if mark == b"/*":
            return _behind(sql, b"*/", at)
        if mark == b"\\":
            return at + 1 if sql[at : at + 1] == b"N" else -1
        if mark[:1] != b"$":
            return at
        end = _behind(sql, mark, at)
        inside = sql[at : end - len(mark)]  # clients that know no such marks must find its end, too
        return -1 if end < 0 or inside.endswith(b"\\") or self._within_dollars.read(inside)[1] is not None else end


def _is_joined(sql: bytes, start: int, end: int) -> bool:
    """Would a client leave out the end of the line that `sql[start:end]` ends in, which begins in there?"""
    last = sql.rfind(b"\n", start, end)
    return last >= 0 and sql[last + 1 : last + 10].lower() == b"delimiter" and sql.find(b"\n", end) >= 0


def _behind(sql: bytes, mark: bytes, at: int) -> int:
    """Where the next one of these ends; -1 = there is none."""
    found = sql.find(mark, at)
    return -1 if found < 0 else found + len(mark)


@cache
def _lexer(charset: str, escapes: bool) -> _Lexer:
    return _Lexer(charset, escapes=escapes)


def read(sql: bytes, charset: str | None, sql_mode: int) -> tuple[bytes, str | None]:
    """A statement as it is to be written, and why a client would not read it as one; None = it does.

    Of a comment that has the beginning of another one inside, clients find no end: a space goes into that.
    """
    text, found = _lexer(client_charset(charset), not sql_mode & NO_BACKSLASH_ESCAPES).read(sql)
    if found is None:
        return text, None
    return sql, f"{found[1]} at byte {found[0]} would be a command of the client, or is not closed"


def client_charset(charset: str | None) -> str:
    """The character set in which a client must read text of this one."""
    return charset if charset in _TWO_BYTES else PLAIN  # type: ignore[return-value]


def switch(charset: str | None) -> bytes:
    """What tells the client of the character set in which it must read; it tells the server of it, too."""
    return b"/*!\\C " + client_charset(charset).encode() + b" */"


def ended(sql: bytes, charset: str | None = None) -> bytes:
    """The statement with a delimiter that is not in it, and begun so that its first word is no command."""
    first = _FIRST.match(sql)
    if first is None or first[0].upper() not in _SAFE_STARTS:
        sql = b"/*! */" + sql
    if DELIMITER not in sql and charset not in _TWO_BYTES:
        return sql + END
    other = _unforeseen(sql)
    return b"DELIMITER %b\n%b\n%b\nDELIMITER %b\n" % (other, sql, other, DELIMITER)


def _unforeseen(sql: bytes) -> bytes:
    """A delimiter that is not in the text; clients cut longer ones to 15 bytes."""
    number = 0
    while (made := b"$%b$" % hashlib.sha256(b"%d " % number + sql).hexdigest()[:12].encode()) in sql:
        number += 1
    return made


def quick(sql: bytes) -> bytes:
    """A statement that was made here: it begins with a safe word, and holds no delimiter."""
    return sql + END


def script_start(writer: str) -> bytes:
    """The first lines; what is changed of the session here, `SCRIPT_END` takes back."""
    how = "for a client in binary mode: mariadb --binary-mode, mysql --binary-mode"
    return f"# Statements of a log of {writer}; {how}\n".encode() + _HEAD


_HEAD = (
    b"/*!50530 SET @@session.pseudo_slave_mode=1*/;\n"
    b"/*!50003 SET @OLD_COMPLETION_TYPE=@@COMPLETION_TYPE, COMPLETION_TYPE=0*/;\n"
    b"DELIMITER " + DELIMITER + b"\n" + quick(b"/*!\\C utf8mb4 */")
)  # fmt: skip

SCRIPT_END = (
    b"DELIMITER ;\n"
    b"/*!50003 SET COMPLETION_TYPE=@OLD_COMPLETION_TYPE*/;\n"
    b"/*!50530 SET @@session.pseudo_slave_mode=0*/;\n"
)  # fmt: skip
