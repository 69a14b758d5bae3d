"""INTVAR, RAND and USER_VAR events: variables for the next statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.events.decoding import decoded
from binlogtool.formats.binlog_events.sql.client import loses_backslashes
from binlogtool.formats.binlog_events.sql.literals import double, in_hex, name
from binlogtool.formats.binlog_events.sql.scene import Scene, Unwritable
from binlogtool.formats.binlog_events.sql.session import Session

_T = EventType
_BINARY = 63

VARIABLES = (_T.INTVAR, _T.RAND, _T.USER_VAR)


Variable = tuple[int, Mapping[str, Any]]
"""Type and body of such an event."""


def variable(scene: Scene) -> Variable:
    """Decode the variable that an event sets.

    Raises:
        MalformedError: the event cannot be read.
        Unwritable: no statement can set it.
    """
    code = scene.event.code
    body = decoded(code, bytes(scene.event.body), scene.context.description)
    if code == _T.INTVAR and body["type"] not in ("LAST_INSERT_ID", "INSERT_ID"):
        raise Unwritable(f"variable {body['type']} is not known")
    if code == _T.USER_VAR and not isinstance(body["name"], str):
        raise Unwritable("the name of the variable is no text")
    if code == _T.USER_VAR and "\0" in body["name"]:
        raise Unwritable("the name of the variable has a zero byte, which servers refuse")
    if isinstance(body.get("value"), float) and double(body["value"]) is None:
        raise Unwritable("its value is no number")
    return code, body


def statements_of(variables: Iterable[Variable], session: Session) -> Iterator[bytes]:
    """Yield the statements that set variables."""
    for code, body in variables:
        if code == _T.RAND:
            yield f"SET @@RAND_SEED1={body['seed1']}, @@RAND_SEED2={body['seed2']}".encode()
        elif code == _T.INTVAR:
            yield f"SET {body['type']}={body['value']}".encode()
        else:
            yield from _user_variable(body, session)


def _user_variable(body: Mapping[str, Any], session: Session) -> list[bytes]:
    """Return the statements that set a user variable."""
    called = name(body["name"])
    made = [] if called.isascii() else session.for_names()
    value = _value(body)
    if body.get("type") == "STRING" and value.startswith(b"CAST"):
        made += session.change({"@@session.collation_connection": str(body["charset"])})
    before, after = session.without_escapes(0) if loses_backslashes(called) else ([], [])
    return [*made, *before, b"SET @" + called + b":=" + value, *after]


def _value(body: Mapping[str, Any]) -> bytes:
    """Return the value of a user variable as SQL."""
    value, kind = body.get("value"), body.get("type")
    if body.get("is_null") or kind is None:
        return b"NULL"
    if kind == "STRING":
        raw = in_hex(value.encode() if isinstance(value, str) else bytes(value or b""))
        return raw if body["charset"] == _BINARY else b"CAST(" + raw + b" AS CHAR)"
    return (double(value) if isinstance(value, float) else str(value).encode()) or b"NULL"
