r"""Write statements for the servers' command-line clients.

Clients read lines and have commands of their own. A statement is ended by a delimiter; outside quotation marks a client
takes `\` and some words at the start of a statement for commands, one of which runs programs. Logs written by a server
contain no such texts; forged logs may.

The delimiter is that of the servers' own tools: if a client misses it, the server still sees a comment and the end of a
statement there. A text that contains it, or whose characters contain ASCII bytes, is ended by a word that the author of
the text cannot predict.

A client sends a text with `;` inside unchanged, and its server executes all statements in it. LOAD DATA LOCAL makes the
server ask the client for a file on the client's machine. Servers log each statement of a text separately, LOAD DATA
with its data, and instead of EXECUTE and CALL the statements that these executed.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache

from binlogtool.formats.binlog_events.ddl.split_sql_statements import ANSI_QUOTES, NO_BACKSLASH_ESCAPES

# --- Statements as command-line clients read them ---

DELIMITER = b"/*!*/;"
STATEMENT_END = b"\n" + DELIMITER + b"\n"
"""End of a statement, unless the statement contains the delimiter."""

UTF8MB4 = "utf8mb4"
"""Client charset that reads text correctly for all character sets whose characters contain no ASCII bytes."""

_ASCII_OVERLAPPING_CHARSETS: Mapping[str, tuple[bytes, bytes]] = {
    "big5": (rb"[\xa1-\xf9]", rb"[\x40-\x7e\xa1-\xfe]"),
    "cp932": (rb"[\x81-\x9f\xe0-\xfc]", rb"[\x40-\x7e\x80-\xfc]"),
    "gb18030": (rb"[\x81-\xfe]", rb"(?:[\x40-\x7e\x80-\xfe]|[\x30-\x39][\x81-\xfe][\x30-\x39])"),
    "gbk": (rb"[\x81-\xfe]", rb"[\x40-\x7e\x80-\xfe]"),
    "sjis": (rb"[\x81-\x9f\xe0-\xfc]", rb"[\x40-\x7e\x80-\xfc]"),
}
"""Character sets whose multi-byte characters may contain ASCII bytes: patterns of the first byte and of the rest."""

_SAFE_STARTS = frozenset(
    {
        b"ALTER", b"ANALYZE", b"BEGIN", b"BINLOG", b"CALL", b"CHANGE", b"CHECK", b"COMMIT", b"CREATE", b"DELETE", b"DO",
        b"DROP", b"FLUSH", b"GRANT", b"IMPORT", b"INSERT", b"INSTALL", b"LOAD", b"LOCK", b"OPTIMIZE", b"PREPARE",
        b"PURGE", b"RELEASE", b"RENAME", b"REPAIR", b"REPLACE", b"RESET", b"REVOKE", b"ROLLBACK", b"SAVEPOINT",
        b"SELECT", b"SET", b"START", b"TRUNCATE", b"UNINSTALL", b"UNLOCK", b"UPDATE", b"VALUES", b"WITH", b"XA",
    }
)  # fmt: skip
"""First words of statements that are not client commands."""

_FIRST_WORD = re.compile(rb"[A-Za-z]*")
_COMMENT_PREFIX = b"/*! */"
"""Prefix for a statement that begins with another word or sign, so that no client sees a command in its first line."""

_NESTED_COMMENT = re.compile(rb"/\*(?=M?!|\+|/)")
"""Comment mark inside a comment: clients find no end of such a comment and silently swallow the text after it."""

_AFTER_DASHES = rb"(?=[\x00\t\n\x0b\x0c\r ]|\Z)"
"""Characters after two dashes that begin a comment for a client; servers accept more characters."""

_DELIMITER_LINE = rb"\n(?=[Dd][Ee][Ll][Ii][Mm][Ii][Tt][Ee][Rr])"
"""Start of a line whose end clients drop, unless it is inside quotation marks or a comment."""

_LOST_ESCAPE = re.compile(rb"\\[\0\n]")
_ESCAPE_REPLACEMENTS = {b"\\\n": b"\n", b"\\\0": b"\\0"}
"""Escapes that clients lose -> text that a server reads as the same character."""

_LINE_COMMENT = re.compile(rb"#|--" + _AFTER_DASHES)
_QUOTES = re.compile(rb"['\"`$]")

_CLIENT_COMMANDS = frozenset(
    {
        b"?", b"charset", b"clear", b"connect", b"costs", b"delimiter", b"edit", b"ego", b"exit", b"go", b"help",
        b"nopager", b"notee", b"nowarning", b"pager", b"print", b"prompt", b"query_attributes", b"quit", b"rehash",
        b"resetconnection", b"sandbox", b"source", b"ssl_session_data_print", b"status", b"system", b"tee", b"use",
        b"warnings",
    }
)  # fmt: skip
"""Words that a client executes as its own commands at the beginning of a statement, even after comments."""

_VERSION = re.compile(rb"\d{0,6}")
_SPACE = b" \t\n\v\f\r"

LexerFault = tuple[int, str]
"""(byte offset, text) of a part that a client would not read as part of one statement."""


class _ClientLexer:
    """Lexer that finds where a client, reading in one character set, closes quotation marks and ends comments.

    `escapes`: the quotation marks between which a backslash begins an escape. `dollars`: regular expression of a `$`
    that begins a dollar quote, `$$` or `$word$`; None for clients without dollar quotes. MySQL's client supports them
    from 9.0 on, if the server does.
    """

    def __init__(self, charset: str, *, escapes: bytes, dollars: bytes | None = None) -> None:
        lead, rest = _ASCII_OVERLAPPING_CHARSETS.get(charset, (b"", b""))
        self.multibyte = lead + rest
        stops = [self.multibyte] if lead else []
        self._dollar_word = re.compile(rb"\$(?:" + b"|".join([*stops, rb"[\w\x80-\xff]"]) + rb")*")
        if dollars is not None:
            stops.append(dollars)
        stops += [rb"['\"`\\#]", b"--" + _AFTER_DASHES, rb"/\*(?:M?!|\+)?", _DELIMITER_LINE]
        self._marks = re.compile(b"|".join(stops), re.DOTALL)
        self._marks_in_executed = re.compile(b"|".join([*stops, rb"\*/"]), re.DOTALL)
        self._escapes = escapes
        self._escape_pairs = re.compile(b"|".join([*([self.multibyte] if lead else []), rb"\\."]), re.DOTALL)
        self._closing_patterns = {
            mark: self._compile_closing_pattern(mark, lead, mark in escapes) for mark in (b"'", b'"', b"`")
        }
        self._dollar_body_lexer = _ClientLexer(charset, escapes=escapes) if dollars is not None else self

    def _compile_closing_pattern(self, mark: bytes, lead: bytes, escapes: bool) -> re.Pattern[bytes]:
        """Compile the pattern from after an opening quotation mark to after the closing one.

        Each byte matches in only one way, so that there is no backtracking.
        """
        special = mark + (rb"\\" if escapes else b"") + (lead[1:-1] if lead else b"")
        others = [rb"\\."] if escapes else []
        others += [self.multibyte, lead + b"(?!" + self.multibyte[len(lead) :] + b")"] if lead else []
        ordinary = b"[^" + special + b"]*"
        if not others:
            return re.compile(ordinary + mark, re.DOTALL)
        return re.compile(ordinary + b"(?:(?:" + b"|".join(others) + b")" + ordinary + b")*" + mark, re.DOTALL)

    def normalize_or_find_fault(self, sql: bytes) -> tuple[bytes, LexerFault | None]:
        """Return the text in the form to write, and None or the first fault.

        All clients and servers must find the same ends of quotes and comments. Text that only some of them execute,
        from `/*!` or `/*M!` to `*/`, must contain no other `*/`, so comments inside it are removed. Some clients take
        the last two bytes of `*/*` for the start of a comment.
        """
        parts, copied, at, opened = list[bytes](), 0, 0, -1
        while (match := (self._marks if opened < 0 else self._marks_in_executed).search(sql, at)) is not None:
            mark, start, at = self._match_mark(sql, match)
            if mark == b"*/":
                if sql.startswith(b"/*M", opened) and _NESTED_COMMENT.search(sql, opened + 3, start):
                    return sql, (opened, "/*M!")  # MySQL's client takes it for a comment and finds no end
                opened = -1
            elif mark in (b"/*!", b"/*M!"):
                if opened >= 0:
                    return sql, (start, "a comment with another one inside,")
                opened = start
            elif mark != b"\n":
                end = self._find_part_end(sql, mark, at)
                comment = mark in (b"/*", b"/*+")
                is_torn = opened >= 0 and not comment and b"*/" in sql[start:end]
                if end < 0 or is_torn or _is_line_end_lost(sql, start, end):
                    return sql, (start, mark[:2].decode("ascii", "backslashreplace"))
                written = self._rewrite_comment_if_unsafe(mark, sql[at:end], executed=opened >= 0) if comment else None
                if mark in self._escapes:
                    written = self._rewrite_lossy_backslashes(mark, sql[at:end])
                if written is not None:
                    parts += [sql[copied:start], written]
                    copied = end
                at = end
            if mark == b"\n" or (mark in (b"/*", b"/*+", b"*/") and sql[at : at + 1] == b"*"):
                parts += [sql[copied:at], b" "]
                copied = at
        if opened >= 0:
            return sql, (opened, "/*!")
        return b"".join([*parts, sql[copied:]]) if parts else sql, None

    def normalize_and_strip_literals(self, sql: bytes) -> tuple[bytes, bytes | None]:
        """Return the normalized text, and its part outside quotation marks and comments (None after a fault)."""
        text, fault = self.normalize_or_find_fault(sql)
        return text, self.strip_literals_and_comments(sql) if fault is None else None

    def _match_mark(self, sql: bytes, match: re.Match[bytes]) -> tuple[bytes, int, int]:
        """Return a mark with its start and end offsets; the mark of a dollar quote includes its word."""
        mark, start, at = match[0], match.start(), match.end()
        if mark == b"$" and (word := self._dollar_word.match(sql, start)) is not None:  # matches at any `$`
            at = word.end()
            return (sql[start : at + 1], start, at + 1) if sql[at : at + 1] == b"$" else (mark, start, start + 1)
        return mark, start, at

    def _iter_quotes_and_comments(self, sql: bytes) -> Iterator[tuple[bytes, int, int, int]]:
        """Yield (mark, mark offset, content start, content end) of each quotation mark and comment.

        For comments that some servers execute, only the mark with its version is yielded. Unclosed parts extend to the
        end of the text.
        """
        at, executed = 0, False
        while (match := (self._marks_in_executed if executed else self._marks).search(sql, at)) is not None:
            mark, start, at = self._match_mark(sql, match)
            if mark in (b"/*!", b"/*M!", b"*/"):
                executed = mark != b"*/"
                at += len(_VERSION.match(sql, at)[0]) if executed else 0  # type: ignore[index]
                yield mark, start, at, at
            elif (
                mark in (b"#", b"--", b"/*", b"/*+")
                or mark in self._closing_patterns
                or (mark[:1] == b"$" and len(mark) > 1)
            ):
                end = self._find_part_end(sql, mark, at)
                inside, at = at, len(sql) if end < 0 else end
                yield mark, start, inside, at

    def strip_literals_and_comments(self, sql: bytes) -> bytes:
        """Return the text without comments, and with empty strings and quoted names.

        Comments that some servers execute stay. Unclosed parts extend to the end of the text.
        """
        parts, copied = list[bytes](), 0
        for mark, start, inside, end in self._iter_quotes_and_comments(sql):
            text = b"''" if mark in self._closing_patterns else b" "
            if mark[:1] == b"$":
                text = mark + self._dollar_body_lexer.strip_literals_and_comments(sql[inside : end - len(mark)]) + mark
            parts += [sql[copied:start], text]
            copied = end
        return b"".join([*parts, sql[copied:]])

    def has_backslashes(self, sql: bytes, marks: bytes) -> bool:
        """Return whether a backslash is between quotation marks of these kinds."""
        return any(
            mark in marks and any(pair[0][:1] == b"\\" for pair in self._escape_pairs.finditer(sql, inside, end))
            for mark, _, inside, end in self._iter_quotes_and_comments(sql)
            if mark in self._closing_patterns
        )

    @staticmethod
    def _rewrite_comment_if_unsafe(mark: bytes, inside: bytes, *, executed: bool) -> bytes | None:
        """Return a comment in the form to write; None if it stays unchanged.

        `mark`: start of the comment. `inside`: its text. `executed`: whether it is within `/*! */`.
        """
        if executed:
            return b" "
        if _NESTED_COMMENT.search(inside) or (mark == b"/*+" and b"\n" in inside):
            inside = _NESTED_COMMENT.sub(b"/ *", inside)
            return mark + (inside.replace(b"\n", b" ") if mark == b"/*+" else inside)
        return None

    def _rewrite_lossy_backslashes(self, mark: bytes, inside: bytes) -> bytes | None:
        """Return a string in the form to write; None if it stays unchanged.

        Before a line end or a zero byte, clients lose a backslash or the byte after it.
        """
        if _LOST_ESCAPE.search(inside) is None:
            return None
        return mark + self._escape_pairs.sub(lambda pair: _ESCAPE_REPLACEMENTS.get(pair[0], pair[0]), inside)

    def _find_part_end(self, sql: bytes, mark: bytes, content_start: int) -> int:
        """Return the end of the part that begins with this mark before `content_start`; -1 if it has no end or is a
        command.
        """
        if mark in self._closing_patterns:
            match = self._closing_patterns[mark].match(sql, content_start)
            if match is None or mark in self._escapes or _LOST_ESCAPE.search(match[0]) is None:
                return -1 if match is None else match.end()
            is_lossy = any(pair[0] in _ESCAPE_REPLACEMENTS for pair in self._escape_pairs.finditer(match[0]))
            return -1 if is_lossy and self._escapes else match.end()
        if mark in (b"#", b"--"):
            return sql.find(b"\n", content_start) % (len(sql) + 1)
        if mark == b"/*":
            return _find_end_of_mark(sql, b"*/", content_start)
        if mark == b"/*+":
            end = _find_end_of_mark(sql, b"*/", content_start)
            return -1 if end >= 0 and _is_hint_ambiguous(sql[content_start:end]) else end
        if mark == b"\\":
            return content_start + 1 if sql[content_start : content_start + 1] == b"N" else -1
        if mark[:1] != b"$" or mark == b"$":
            return content_start
        end = _find_end_of_mark(sql, mark, content_start)
        inside = sql[content_start : end - len(mark)]  # clients without dollar quotes must find the same end
        is_plain = b"\\" not in inside and not _LINE_COMMENT.search(inside)
        return (
            end
            if end >= 0 and is_plain and self._dollar_body_lexer.normalize_or_find_fault(inside) == (inside, None)
            else -1
        )


def _is_hint_ambiguous(inside: bytes) -> bool:
    """Return whether MySQL's client finds marks in an optimizer hint, which other clients read as a comment."""
    return b"\\" in inside or bool(_LINE_COMMENT.search(inside)) or (b"\n" in inside and bool(_QUOTES.search(inside)))


def _is_line_end_lost(sql: bytes, start: int, end: int) -> bool:
    """Return whether a client drops the end of the line that begins in `sql[start:end]` and continues after it."""
    last = sql.rfind(b"\n", start, end)
    return last >= 0 and sql[last + 1 : last + 10].lower() == b"delimiter" and sql.find(b"\n", end) >= 0


def _find_end_of_mark(sql: bytes, mark: bytes, at: int) -> int:
    """Return the offset after the next occurrence of `mark`; -1 if there is none."""
    offset = sql.find(mark, at)
    return -1 if offset < 0 else offset + len(mark)


_AFTER_NAMES, _AFTER_ASCII_NAMES = rb"(?<![\w$\x80-\xff])\$", rb"(?<![\w$])\$"
"""Patterns of a `$` that begins a dollar quote: it must not be within a name. Clients disagree about which non-ASCII
bytes can be part of a name.
"""

_ESCAPES_ALL, _ESCAPES_SINGLE, _ESCAPES_NONE = b"'\"", b"'", b""
"""Quotation marks between which a backslash begins an escape: by default, in MariaDB's clients if sql_mode has
ANSI_QUOTES, and if it has NO_BACKSLASH_ESCAPES.
"""


@cache
def _get_lexer(charset: str, escapes: bytes, dollars: bytes | None = None) -> _ClientLexer:
    """Return the cached lexer for a character set and its quoting rules."""
    return _ClientLexer(charset, escapes=escapes, dollars=dollars)


def make_client_safe_or_explain(sql: bytes, charset: str | None, sql_mode: int) -> tuple[bytes, str | None]:
    """Return a statement in a form that every client reads as one statement; also the reason if there is no such form.

    A space is inserted into a comment mark inside a comment, because clients find no end of such a comment.
    """
    client_set, escapes = (
        get_client_charset(charset),
        _ESCAPES_NONE if sql_mode & NO_BACKSLASH_ESCAPES else _ESCAPES_ALL,
    )
    lexer = _get_lexer(client_set, escapes)
    text, fault = lexer.normalize_or_find_fault(sql)
    if fault is not None:
        return sql, f"{fault[1]} at byte {fault[0]} is a client command or is not closed"
    other_lexers = list(_iter_lexers_of_other_clients(sql, client_set, escapes, sql_mode))
    if other_lexers and {other.normalize_and_strip_literals(sql) for other in other_lexers} != {
        (text, lexer.strip_literals_and_comments(sql))
    }:
        return sql, "clients disagree about where its quotation marks and comments end"
    command = _find_client_command(text)
    if command is not None:
        return sql, f"its {command.decode('ascii', 'backslashreplace')} is a client command"
    return text, None


def is_same_without_backslash_escapes(sql: bytes, charset: str | None, sql_mode: int) -> bool:
    """Return whether a text has the same meaning with NO_BACKSLASH_ESCAPES in sql_mode.

    False for stored programs, which keep the sql_mode with which they were created.
    """
    if sql_mode & NO_BACKSLASH_ESCAPES or b"\\" not in sql:
        return False
    strings = b"'" if sql_mode & ANSI_QUOTES else b"'\""
    return not _get_lexer(get_client_charset(charset), _ESCAPES_NONE).has_backslashes(sql, strings)


def has_lossy_backslashes(name: bytes) -> bool:
    """Return whether MySQL's client drops a part of this backtick-quoted name without NO_BACKSLASH_ESCAPES."""
    return _LOST_ESCAPE.search(name) is not None


def strip_literals_and_comments(sql: bytes, charset: str | None, sql_mode: int) -> bytes:
    """Return the text without comments, and with empty strings and quoted names, in one character set and sql_mode."""
    return _get_lexer(
        get_client_charset(charset), _ESCAPES_NONE if sql_mode & NO_BACKSLASH_ESCAPES else _ESCAPES_ALL
    ).strip_literals_and_comments(sql)


def _iter_lexers_of_other_clients(sql: bytes, charset: str, escapes: bytes, sql_mode: int) -> Iterator[_ClientLexer]:
    """Yield the lexers of clients that may read the text differently."""
    if b"$" in sql:
        yield from (_get_lexer(charset, escapes, dollars) for dollars in (_AFTER_NAMES, _AFTER_ASCII_NAMES))
    if b"\\" in sql and escapes and sql_mode & ANSI_QUOTES:
        yield _get_lexer(charset, _ESCAPES_SINGLE)
    if charset == "gb18030":  # unknown to MariaDB's clients
        yield _get_lexer(UTF8MB4, escapes)


def is_sql_mode_dependent(sql: bytes, charset: str | None) -> bool:
    """Return whether a client reads the text differently with NO_BACKSLASH_ESCAPES in sql_mode than without."""
    if b"\\" not in sql:
        return False
    client_set = get_client_charset(charset)
    charsets = (client_set, UTF8MB4) if client_set == "gb18030" else (client_set,)  # unknown to MariaDB's clients
    modes = (_ESCAPES_ALL, _ESCAPES_SINGLE, _ESCAPES_NONE)
    readings = ({_get_lexer(one, escapes).normalize_and_strip_literals(sql) for escapes in modes} for one in charsets)
    return any(len(texts) > 1 for texts in readings)


def _find_client_command(text: bytes) -> bytes | None:
    """Return the word in a statement that MySQL's client takes for a command; None if there is no such word.

    It is the first word of a line that is preceded only by comments, or the first word after all such lines
    (`read_and_execute`, `add_line` in client/mysql.cc of 8.0).
    """
    if _has_safe_first_word(text):
        return None
    text = _COMMENT_PREFIX + text
    for start, end in _iter_command_lines(text):
        word = _match_command_word(text[start:end])
        if word is not None:
            return word
    return _match_command_word(text)


def _iter_command_lines(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the lines in which MySQL's client looks for commands: only comments precede them.

    An executed comment that continues is searched again after each line that ends with a space.
    """
    at = start = stop = 0
    is_searched = True
    while (end := text.find(b"\n", start)) >= 0:
        if is_searched:
            yield start, end
        is_searched, start = True, end + 1
        while (at := _SPACES.match(text, at, start).end()) < start:  # type: ignore[union-attr]
            if not text.startswith(b"/*", at):
                return
            if stop < at + 2:
                match = _COMMENT_STOP.search(text, at + 2)
                stop = match.start() if match is not None else len(text)
            if stop >= end:  # the comment continues on the next line
                is_searched = text[at + 2] in b"!+" and text[max(at + 2, end - 1)] in _SPACE
                break
            at = stop + 2 * text.startswith(b"*/", stop)
    if is_searched:
        yield start, len(text)


def _match_command_word(text: bytes) -> bytes | None:
    """Return the client command with which a text begins; None if it begins with no command."""
    text = text.split(b"\0", 1)[0]
    word = text[_find_end_of_leading_comments(text) :].lstrip(_SPACE).replace(b"\t", b" ").split(b" ", 1)[0]
    # clients ignore accents
    folded = unicodedata.normalize("NFKD", word.decode("latin-1")).encode("ascii", "ignore").lower()
    if folded in _CLIENT_COMMANDS or folded.startswith(b"delimiter"):  # in binary mode the prefix is enough
        return word
    return None


def _find_end_of_leading_comments(text: bytes) -> int:
    """Return the offset at which MySQL's client sees the end of the leading comments and spaces.

    This is the client's own rule: a comment also ends before `/` and `*`, and two bytes before the end of the text.
    """
    at, size = 0, len(text)
    while True:
        while at < size and text[at] in _SPACE:
            at += 1
        if text.startswith(b"/*", at) and at + 2 < size:
            match = _COMMENT_STOP.search(text, at + 2)
            at = max(at + 2, min(size - 2, match.start() if match is not None else size))
            if text.startswith(b"*/", at) and at + 2 < size:
                at += 2
        if not (at < size and (text[at] in _SPACE or (text.startswith(b"/*", at) and at + 2 < size))):
            return at


_SPACES = re.compile(rb"[ \t\n\v\f\r]*")
_COMMENT_STOP = re.compile(rb"\*|.(?=/)", re.DOTALL)


def get_client_charset(charset: str | None) -> str:
    """Return the character set that a client must use to read text of this character set."""
    return charset if charset in _ASCII_OVERLAPPING_CHARSETS else UTF8MB4  # type: ignore[return-value]


def format_charset_command(charset: str | None) -> bytes:
    """Return the client command that sets the character set for reading, in the client and in the server's session."""
    return b"/*!\\C " + get_client_charset(charset).encode() + b" */"


def terminate_statement(sql: bytes, charset: str | None = None) -> bytes:
    """Return the statement with a delimiter that it does not contain, and a first word that is not a client command."""
    if not _has_safe_first_word(sql):
        sql = (
            _COMMENT_PREFIX + b" " * sql.startswith(b"*") + sql
        )  # clients take the last two bytes of `*/*` for a comment start
    if DELIMITER not in sql and charset not in _ASCII_OVERLAPPING_CHARSETS:
        return sql + STATEMENT_END
    number = 0
    while (other := b"$%b$" % hashlib.sha256(b"%d " % number + sql).hexdigest()[:12].encode()) in sql:
        number += 1
    return b"DELIMITER %b\n%b\n%b\nDELIMITER %b\n" % (other, sql, other, DELIMITER)


def _has_safe_first_word(sql: bytes) -> bool:
    """Return whether the statement begins with a word that is not a client command."""
    first = _FIRST_WORD.match(sql)
    return first is not None and first[0].upper() in _SAFE_STARTS


def append_statement_end(sql: bytes) -> bytes:
    """Return a statement of this program with its end; it begins with a safe word and contains no delimiter."""
    return sql + STATEMENT_END


def format_script_header(server_version: str) -> bytes:
    """Return the first lines of a script; `SCRIPT_FOOTER` restores the session state that they change.

    `server_version`: the version of the server that wrote the log.
    """
    server_version = server_version if server_version.isprintable() else "a server"
    usage = "for a client in binary mode: mariadb --binary-mode, mysql --binary-mode"
    return f"# Statements from a log of {server_version}; {usage}\n".encode() + _SCRIPT_SETUP


_SCRIPT_SETUP = (
    b"/*!50530 SET @@session.pseudo_slave_mode=1*/;\n"
    b"/*!50003 SET @OLD_COMPLETION_TYPE=@@COMPLETION_TYPE, COMPLETION_TYPE=0*/;\n"
    b"DELIMITER " + DELIMITER + b"\n" + append_statement_end(b"/*!\\C utf8mb4 */")
)  # fmt: skip

SCRIPT_FOOTER = (
    b"DELIMITER ;\n"
    b"/*!50003 SET COMPLETION_TYPE=@OLD_COMPLETION_TYPE*/;\n"
    b"/*!50530 SET @@session.pseudo_slave_mode=0*/;\n"
)  # fmt: skip


# --- Detection of texts that could harm a client ---

_FLAGS = re.IGNORECASE | re.DOTALL
_SUSPICIOUS = re.compile(
    rb";|INFILE|EXECUTE|PREPARE|CALL|NAMES|CHARSET|CHARACTER|COLLATION_CONNECTION|SQL_MODE", _FLAGS
)
"""Suspicious parts of a text; a text without any of them passes all rules below."""

_SET_STATEMENT_FOR = re.compile(rb"\s*SET\s+STATEMENT\b[^;]*?\bFOR\b", _FLAGS)
_SESSION_CHANGE = re.compile(
    rb"\s*SET\b(?!\s+PASSWORD\b).*?\b(NAMES|CHARACTER\s+SET|CHARSET|CHARACTER_SET_CLIENT|COLLATION_CONNECTION|SQL_MODE)\b",
    _FLAGS,
)
_DYNAMIC_START = re.compile(rb"\s*(EXECUTE|PREPARE|CALL)\b", _FLAGS)
_DYNAMIC = re.compile(rb"\b(?:EXECUTE|PREPARE|CALL|INFILE)\b", _FLAGS)
_LOCAL = re.compile(rb"\bLOCAL\b", _FLAGS)
_LOAD = re.compile(rb"\s*LOAD\b", _FLAGS)
_INFILE = re.compile(rb"\bINFILE\b", _FLAGS)
_PROGRAM = re.compile(
    rb"\s*(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:DEFINER\s*=\s*[^\s(@]+(?:\s*\(\s*\))?(?:\s*@\s*\S+)?\s+)?(?:AGGREGATE\s+)?"
    rb"(?:PROCEDURE|FUNCTION|TRIGGER|EVENT|PACKAGE)|ALTER\s+(?:DEFINER\s*=\s*\S+\s+)?EVENT)\b",
    _FLAGS,
)
"""Pattern of a stored program's definition, which contains statements."""

_BLOCK_MARKS = re.compile(
    rb"(?<![.@\w])(?:(?P<case>CASE)|(?P<begin>BEGIN)|(?P<close>END(?:\s+CASE)?)(?!\s*(?:IF|LOOP|REPEAT|WHILE|FOR)\b)"
    rb"|(?P<do>DO)|(?P<part>THEN|ELSE|LOOP|REPEAT|FOR\s+EACH\s+ROW))\b|(?P<next>;)|(?P<label>:)(?!=)",
    _FLAGS,
)
_ANY_SPACES = re.compile(rb"\s*")
_LOOP = re.compile(rb"(?:WHILE|FOR)\b", _FLAGS)
_FIRST_WORDS = (
    rb"\b(?:ALTER|ANALYZE|CACHE|CALL|CHANGE|CHECK|CHECKSUM|CLOSE|COMMIT|CREATE|DEALLOCATE|DECLARE|DELETE|DESC|DESCRIBE|DO"
    rb"|DROP|EXECUTE|EXPLAIN|FETCH|FLUSH|GET|GRANT|HANDLER|IF|INSERT|INSTALL|ITERATE|KILL|LEAVE|LOAD|LOCK|LOOP|OPEN"
    rb"|OPTIMIZE|PREPARE|PURGE|RELEASE|RENAME|REPAIR|REPEAT|REPLACE|RESET|RESIGNAL|RETURN|REVOKE|ROLLBACK|SAVEPOINT"
    rb"|SELECT|SET|SHOW|SIGNAL|START|STOP|TRUNCATE|UNINSTALL|UNLOCK|UPDATE|USE|VALUES|WHILE|WITH|XA)\b"
)
"""First words of statements in a stored program."""

_FIRST_IN_BLOCK = re.compile(rb"\s*(?:" + _FIRST_WORDS + rb"|(?:BEGIN|CASE|FOR)\b|[\w$]+\s*:(?!=))", _FLAGS)
_EMPTY_BLOCK = re.compile(rb"\s*END\b", _FLAGS)
_STATEMENT_IN_HEAD = re.compile(rb"\bCHAR(?:ACTER)?\s+SET\b|(" + _FIRST_WORDS + b")", _FLAGS)
_CONDITION = rb"(?:SQLSTATE\s+(?:VALUE\s+)?''|NOT\s+FOUND|[\w$]+|'')\s*"
_BEFORE_BLOCK = re.compile(
    rb"DECLARE\s+\w+\s+HANDLER\s+FOR\s+(?:" + _CONDITION + rb",\s*)*" + _CONDITION + rb"|(?:FOLLOWS|PRECEDES)\s+\S+\s*",
    _FLAGS,
)
"""Words that may precede BEGIN at the start of a statement."""

_CONDITIONAL_COMMENT = re.compile(rb"/\*(?:M!|!(?:50[7-9]|5[1-9]|[6-9]\d|\d{6}))", _FLAGS)
"""Pattern of a comment that only some servers execute."""

_SERVER_ONLY_COMMENT = re.compile(rb"--[\x01-\x08\x0e-\x1f\x7f]")


def explain_why_not_sendable(
    sql: bytes, charset: str | None, sql_mode: int, *, is_load_data: bool = False
) -> str | None:
    """Return why a client must not send a text of the log to a server; None if it may send it.

    Args:
        sql: a text that `make_client_safe_or_explain` accepts.
        is_load_data: whether it is a LOAD DATA whose file the script itself names.
    """
    if _SUSPICIOUS.search(sql) is None:
        return None
    text = strip_literals_and_comments(sql, charset, sql_mode)
    prefix = _SET_STATEMENT_FOR.match(text)
    text = text[prefix.end() :] if prefix is not None else text
    if is_load_data:
        if _LOAD.match(text) is None or len(_INFILE.findall(text)) != 1:
            return "it is not a LOAD DATA of one file"
    elif (local := _LOCAL.search(text)) is not None and _INFILE.search(text, local.end()) is not None:
        return "LOCAL INFILE would read a file on the client's machine; a server would have logged the data itself"
    change = _SESSION_CHANGE.match(text)
    if change is not None:
        return (
            f"it sets {change[1].decode().upper()}: the statements after it would have another meaning; "
            f"servers never log SET"
        )
    dynamic = _DYNAMIC_START.match(text)
    if dynamic is not None:
        return f"servers log the statements that {dynamic[1].decode().upper()} executes, not the call itself"
    if (
        not is_load_data
        and _DYNAMIC.search(text)
        and (_CONDITIONAL_COMMENT.search(sql) or _SERVER_ONLY_COMMENT.search(sql))
    ):
        return "servers disagree about which statements it contains"
    if b";" not in text.rstrip(b"; \t\n\v\f\r"):
        return None
    program = _PROGRAM.match(text)
    if program is None:
        return "it contains more than one statement; servers log each one separately"
    if _DYNAMIC.search(text) is not None and _may_statement_follow_program(text, program.end()):
        return "statements follow the end of the stored program"
    return None


def is_stored_program_definition(sql: bytes, charset: str | None, sql_mode: int) -> bool:
    """Return whether a statement defines a stored program."""
    return _PROGRAM.match(strip_literals_and_comments(sql, charset, sql_mode)) is not None


def _may_statement_follow_program(text: bytes, head_start: int) -> bool:
    """Return whether any statement may follow a `;` that is not in a block of BEGIN or CASE.

    BEGIN is not a reserved word: if one may be a name, the answer is True.

    Args:
        head_start: offset at which the head of the program continues after its first words.
    """
    depth, is_head, is_event = 0, True, text[:head_start].upper().endswith(b"EVENT")
    for match in _BLOCK_MARKS.finditer(text.rstrip(b"; \t\n\v\f\r"), head_start):
        kind = match.lastgroup
        if kind == "next" and not depth:
            return True
        if kind == "begin" and not _is_certain_begin_block(text, head_start, match, is_head=is_head):
            return True
        if kind == "close":
            depth = max(0, depth - 1)
        elif kind in ("begin", "case"):
            depth += 1
        is_part = kind in ("begin", "next", "part", "label")
        if is_part or (kind == "do" and ((is_head and is_event) or _LOOP.match(text, head_start))):
            head_start, is_head = _ANY_SPACES.match(text, match.end()).end(), False  # type: ignore[union-attr]
    return False


def _is_certain_begin_block(text: bytes, statement_start: int, begin: re.Match[bytes], *, is_head: bool) -> bool:
    """Return whether this BEGIN certainly begins a block.

    `statement_start`: start of the statement, or of the part of a statement, that contains it.
    """
    before = text[statement_start : begin.start()]
    if is_head:
        is_first_word = before.count(b"(") == before.count(b")") and not any(
            word[1] for word in _STATEMENT_IN_HEAD.finditer(before)
        )
    else:
        is_first_word = not before or _BEFORE_BLOCK.fullmatch(before) is not None
    if before and _EMPTY_BLOCK.match(text, begin.end()):
        return is_first_word
    return is_first_word and _FIRST_IN_BLOCK.match(text, begin.end()) is not None
