"""Texts that a server never logs as one statement, and that would do in a client what they do in no replica.

A client sends a text with `;` inside as it is, and its server executes all statements of it. LOAD DATA LOCAL makes the
server ask the client for a file of the client's own machine. Servers log each statement of a text by itself, a LOAD
DATA with its data, and instead of EXECUTE and CALL the statements that these executed.
"""

from __future__ import annotations

import re

from binlogtool.formats.binlog_events.sql import client

_FLAGS = re.IGNORECASE | re.DOTALL
_MARKS = re.compile(rb";|INFILE|EXECUTE|PREPARE|CALL", _FLAGS)
"""What a text must have for one of the rules below."""

_FOR = re.compile(rb"\s*SET\s+STATEMENT\b[^;]*?\bFOR\b", _FLAGS)
_DYNAMIC_START = re.compile(rb"\s*(EXECUTE|PREPARE|CALL)\b", _FLAGS)
_DYNAMIC = re.compile(rb"\b(?:EXECUTE|PREPARE|CALL|INFILE)\b", _FLAGS)
_LOCAL = re.compile(rb"\bLOCAL\b.*?\bINFILE\b", _FLAGS)
_LOAD = re.compile(rb"\s*LOAD\b", _FLAGS)
_INFILE = re.compile(rb"\bINFILE\b", _FLAGS)
_PROGRAM = re.compile(
    rb"\s*(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:DEFINER\s*=\s*[^\s(@]+(?:\s*\(\s*\))?(?:\s*@\s*\S+)?\s+)?(?:AGGREGATE\s+)?"
    rb"(?:PROCEDURE|FUNCTION|TRIGGER|EVENT|PACKAGE)|ALTER\s+(?:DEFINER\s*=\s*\S+\s+)?EVENT)\b",
    _FLAGS,
)
"""The definition of a stored program has statements inside."""

_BLOCKS = re.compile(
    rb"(?<![.@\w])(?:(?P<open>BEGIN|CASE)|(?P<close>END)(?!\s*(?:IF|LOOP|REPEAT|WHILE)\b))\b|(?P<next>;)", _FLAGS
)
_END_CASE = re.compile(rb"END\s+\Z", _FLAGS)
_SOMETIMES = re.compile(rb"/\*(?:M!|!(?:50[7-9]|5[1-9]|[6-9]\d|\d{6}))", _FLAGS)
"""A comment that not all servers execute."""

_COMMENT_OF_SERVERS = re.compile(rb"--[\x01-\x08\x0e-\x1f\x7f]")


def reason_to_leave_out(sql: bytes, charset: str | None, sql_mode: int, *, loads: bool = False) -> str | None:
    """Why a text of the log must not be sent to a server by a client; None = it can be.

    Args:
        sql: a text that `client.read` lets through.
        loads: it is the text of a LOAD DATA whose file is one that the script names.
    """
    if _MARKS.search(sql) is None:
        return None
    text = client.outside(sql, charset, sql_mode)
    prefix = _FOR.match(text)
    text = text[prefix.end() :] if prefix is not None else text
    if loads:
        if _LOAD.match(text) is None or len(_INFILE.findall(text)) != 1:
            return "it is no LOAD DATA of one file"
    elif _LOCAL.search(text) is not None:
        return "LOCAL INFILE reads a file of the machine of the client; servers log LOAD DATA with its data"
    dynamic = _DYNAMIC_START.match(text)
    if dynamic is not None:
        return f"servers log the statements that {dynamic[1].decode().upper()} executes, not itself"
    if not loads and _DYNAMIC.search(text) and (_SOMETIMES.search(sql) or _COMMENT_OF_SERVERS.search(sql)):
        return "which statements it has is not the same for all servers"
    if b";" not in text.rstrip(b"; \t\n\v\f\r"):
        return None
    if _PROGRAM.match(text) is None:
        return "it has more than one statement; servers log each by itself"
    if _DYNAMIC.search(text) is not None and _goes_on(text):
        return "there are statements after the end of the stored program"
    return None


def _goes_on(text: bytes) -> bool:
    """Is there anything behind a `;` that is in no block of BEGIN or CASE?"""
    depth = 0
    for found in _BLOCKS.finditer(text.rstrip(b"; \t\n\v\f\r")):
        if found.lastgroup == "open":
            depth += not _END_CASE.search(text, max(0, found.start() - 12), found.start())
        elif found.lastgroup == "close":
            depth = max(0, depth - 1)
        elif not depth:
            return True
    return False
