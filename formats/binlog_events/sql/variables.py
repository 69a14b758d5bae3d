"""INTVAR, RAND and USER_VAR events: variables for the next statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.events.decoding import decode_body
from binlogtool.formats.binlog_events.sql.client import has_lossy_backslashes
from binlogtool.formats.binlog_events.sql.literals import format_double, format_hex, quote_identifier
from binlogtool.formats.binlog_events.sql.scene import EventContext, Unwritable
from binlogtool.formats.binlog_events.sql.session import ScriptSession

_T = EventType
_BINARY = 63

VARIABLE_EVENTS = (_T.INTVAR, _T.RAND, _T.USER_VAR)


VariableEvent = tuple[int, Mapping[str, Any]]
"""Type and body of such an event."""


def decode_variable(context: EventContext) -> VariableEvent:
    """Decode the variable that an event sets.

    Raises:
        MalformedError: the event cannot be read.
        Unwritable: no statement can set it.
    """
    code = context.event.code
    body = decode_body(code, bytes(context.event.body), context.file.description)
    if code == _T.INTVAR and body["type"] not in ("LAST_INSERT_ID", "INSERT_ID"):
        raise Unwritable(f"variable {body['type']} is not known")
    if code == _T.USER_VAR and not isinstance(body["name"], str):
        raise Unwritable("the name of the variable is no text")
    if code == _T.USER_VAR and "\0" in body["name"]:
        raise Unwritable("the name of the variable has a zero byte, which servers refuse")
    if isinstance(body.get("value"), float) and format_double(body["value"]) is None:
        raise Unwritable("its value is no number")
    return code, body


def format_assignments(variables: Iterable[VariableEvent], session: ScriptSession) -> Iterator[bytes]:
    """Yield the statements that set variables."""
    for code, body in variables:
        if code == _T.RAND:
            yield f"SET @@RAND_SEED1={body['seed1']}, @@RAND_SEED2={body['seed2']}".encode()
        elif code == _T.INTVAR:
            yield f"SET {body['type']}={body['value']}".encode()
        else:
            yield from _assign_user_variable(body, session)


def _assign_user_variable(body: Mapping[str, Any], session: ScriptSession) -> list[bytes]:
    """Return the statements that set a user variable."""
    quoted_name = quote_identifier(body["name"])
    statements = [] if quoted_name.isascii() else session.set_for_names()
    value = _format_user_value(body)
    if body.get("type") == "STRING" and value.startswith(b"CAST"):
        statements += session.set_variables({"@@session.collation_connection": str(body["charset"])})
    before, after = session.set_no_backslash_escapes(0) if has_lossy_backslashes(quoted_name) else ([], [])
    return [*statements, *before, b"SET @" + quoted_name + b":=" + value, *after]


def _format_user_value(body: Mapping[str, Any]) -> bytes:
    """Return the value of a user variable as SQL."""
    value, kind = body.get("value"), body.get("type")
    if body.get("is_null") or kind is None:
        return b"NULL"
    if kind == "STRING":
        raw = format_hex(value.encode() if isinstance(value, str) else bytes(value or b""))
        return raw if body["charset"] == _BINARY else b"CAST(" + raw + b" AS CHAR)"
    return (format_double(value) if isinstance(value, float) else str(value).encode()) or b"NULL"
