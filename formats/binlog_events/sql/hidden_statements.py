"""Detection of texts that a server never logs as one statement and that would do harm in a client.

A client sends a text with `;` inside unchanged, and its server executes all statements of it. LOAD DATA
LOCAL makes the server ask the client for a file of the client's machine. Servers log each statement of a
text by itself, LOAD DATA with its data, and in place of EXECUTE and CALL the statements that these
executed.
"""

from __future__ import annotations

import re

from binlogtool.formats.binlog_events.sql import client

_FLAGS = re.IGNORECASE | re.DOTALL
_SUSPICIOUS = re.compile(rb";|INFILE|EXECUTE|PREPARE|CALL", _FLAGS)
"""What a text must have for one of the rules below."""

_SET_STATEMENT_FOR = re.compile(rb"\s*SET\s+STATEMENT\b[^;]*?\bFOR\b", _FLAGS)
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
"""The definition of a stored program has statements inside."""

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
"""The first words of statements in a stored program."""

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
"""A comment that not all servers execute."""

_SERVER_ONLY_COMMENT = re.compile(rb"--[\x01-\x08\x0e-\x1f\x7f]")


def reason_to_leave_out(sql: bytes, charset: str | None, sql_mode: int, *, is_load_data: bool = False) -> str | None:
    """Return why a client must not send a text of the log to a server; None if it may.

    Args:
        sql: a text that `client.make_client_safe` accepts.
        is_load_data: whether it is a LOAD DATA whose file the script itself names.
    """
    if _SUSPICIOUS.search(sql) is None:
        return None
    text = client.strip_literals(sql, charset, sql_mode)
    prefix = _SET_STATEMENT_FOR.match(text)
    text = text[prefix.end() :] if prefix is not None else text
    if is_load_data:
        if _LOAD.match(text) is None or len(_INFILE.findall(text)) != 1:
            return "it is no LOAD DATA of one file"
    elif (local := _LOCAL.search(text)) is not None and _INFILE.search(text, local.end()) is not None:
        return "LOCAL INFILE reads a file of the machine of the client; servers log LOAD DATA with its data"
    dynamic = _DYNAMIC_START.match(text)
    if dynamic is not None:
        return f"servers log the statements that {dynamic[1].decode().upper()} executes, not itself"
    if (
        not is_load_data
        and _DYNAMIC.search(text)
        and (_CONDITIONAL_COMMENT.search(sql) or _SERVER_ONLY_COMMENT.search(sql))
    ):
        return "which statements it has is not the same for all servers"
    if b";" not in text.rstrip(b"; \t\n\v\f\r"):
        return None
    program = _PROGRAM.match(text)
    if program is None:
        return "it has more than one statement; servers log each by itself"
    if _DYNAMIC.search(text) is not None and _may_continue(text, program.end()):
        return "there are statements after the end of the stored program"
    return None


def is_stored_program(sql: bytes, charset: str | None, sql_mode: int) -> bool:
    """Return whether a statement defines a stored program."""
    return _PROGRAM.match(client.strip_literals(sql, charset, sql_mode)) is not None


def _may_continue(text: bytes, start: int) -> bool:
    """Return whether anything can follow a `;` that is in no block of BEGIN or CASE.

    BEGIN is not a reserved word: if one may be a name, anything is possible.

    Args:
        start: where the head of the program continues after its first words.
    """
    depth, is_head, is_event = 0, True, text[:start].upper().endswith(b"EVENT")
    for match in _BLOCK_MARKS.finditer(text.rstrip(b"; \t\n\v\f\r"), start):
        kind = match.lastgroup
        if kind == "next" and not depth:
            return True
        if kind == "begin" and not _is_block(text, start, match, is_head=is_head):
            return True
        if kind == "close":
            depth = max(0, depth - 1)
        elif kind in ("begin", "case"):
            depth += 1
        is_part = kind in ("begin", "next", "part", "label")
        if is_part or (kind == "do" and ((is_head and is_event) or _LOOP.match(text, start))):
            start, is_head = _ANY_SPACES.match(text, match.end()).end(), False  # type: ignore[union-attr]
    return False


def _is_block(text: bytes, start: int, begin: re.Match[bytes], *, is_head: bool) -> bool:
    """Return whether this BEGIN certainly begins a block.

    Args:
        start: start of the statement, or of the part of one, that contains it.
    """
    before = text[start : begin.start()]
    if is_head:
        is_first_word = before.count(b"(") == before.count(b")") and not any(
            word[1] for word in _STATEMENT_IN_HEAD.finditer(before)
        )
    else:
        is_first_word = not before or _BEFORE_BLOCK.fullmatch(before) is not None
    if before and _EMPTY_BLOCK.match(text, begin.end()):
        return is_first_word
    return is_first_word and _FIRST_IN_BLOCK.match(text, begin.end()) is not None
