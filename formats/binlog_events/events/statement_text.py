"""Decode the text of a statement in the character set of the client that sent it.

The event records the character set (status variable `charset`, member `client`). Invalid text stays bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.formats.binlog_events.values.charsets import charset_of, decoder_of
from binlogtool.formats.bodies import Leaf, Text
from binlogtool.formats.bodies import text as utf8_text
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsontext import NOT_MINE, put_any_text
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.later import Later

_AS_UTF8 = frozenset({None, "utf8mb3", "utf8mb4", "ascii", "binary"})
"""Character sets whose statements are read as UTF-8, and as bytes where they are none."""

_SQL_MODE, _OLD_CATALOG, _CHARSET, _CATALOG = 1, 2, 4, 6
"""Status variables that servers write up to the one of the character sets; two more have 4 bytes, as flags2 has."""


def statement_text(sql: bytes, status: Any) -> str | bytes:
    """Decode the text of a statement.

    Args:
        status: its status variables by name.
    """
    charset = status.get("charset") if isinstance(status, Mapping) else None
    name = charset_of(charset.get("client")) if isinstance(charset, Mapping) else None
    return utf8_text(sql) if name in _AS_UTF8 or sql.isascii() else decoder_of(name)(sql)


def with_statement_text(shown: dict[str, Any]) -> dict[str, Any]:
    """Recode the text in a statement's shown body, which was decoded as UTF-8, by the client's character set."""
    sql = shown.get("sql")
    if sql is not None:
        raw = sql.encode() if isinstance(sql, str) else sql
        if not raw.isascii():
            shown["sql"] = statement_text(raw, shown.get("status_vars"))
    return shown


@kernel()
def client_collation(buf: UInt8s, p: int, n: int) -> int:
    """Find the client's collation in the status variables `buf[pos:limit]`; -1 = absent, or after unusual variables."""
    while p < n:
        code = buf[p] + 0
        p += 1
        if code == _CHARSET:
            return buf[p] | buf[p + 1] << 8 if n - p >= 6 else -1
        size = 8 if code == _SQL_MODE else 4
        if code == _CATALOG and p < n:
            size = 1 + buf[p]
        elif code == _OLD_CATALOG or code > _CHARSET:
            return -1
        p += size
    return -1


@kernel()
def is_utf8_collation(number: int) -> bool:
    """Check if a collation is certainly one of utf8mb3 or utf8mb4."""
    usual = number == 33 or (number >= 45 and number <= 46) or number == 83
    mysql = (number >= 192 and number <= 215) or (number >= 224 and number <= 247) or (number >= 255 and number <= 323)
    return usual or mysql or (number >= 2048 and number < 2560)


@kernel()
def is_ascii(buf: UInt8s, p: int, n: int) -> bool:
    """Check if all bytes are ASCII."""
    high = 0
    for i in range(p, n):
        high |= buf[i]
    return high < 128


@kernel(client_collation, is_ascii, is_utf8_collation, put_any_text)
def put_statement_text(buf: UInt8s, p: int, n: int, size: int, status: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write a text in UTF-8 or ASCII as a JSON string; other texts are left to the general writer.

    Args:
        size, status: size and position of the status variables.
    """
    if not is_utf8_collation(client_collation(buf, status, status + size)) and not is_ascii(buf, p, n):
        return NOT_MINE
    return put_any_text(buf, p, n, out, o, z)


class StatementText(Text):
    """Construct of the text of a statement, after `status_len` and `status_vars`."""

    leaf = Leaf(
        utf8_text, Later("binlog_events.events.statement_text:put_statement_text"), given=("status_len", "status_vars")
    )
