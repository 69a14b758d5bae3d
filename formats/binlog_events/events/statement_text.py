"""Decode the text of a statement in the character set of the client that sent it.

The event records the character set (status variable `charset`, member `client`). Invalid text stays bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.formats.binlog_events.values.charsets import charset_decoder, charset_of_collation
from binlogtool.formats.bodies import LeafFormat, TextField
from binlogtool.formats.bodies import decode_text as utf8_text
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsontext import UNSUPPORTED, put_any_text
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.later import LazyRef

_UTF8_COMPATIBLE = frozenset({None, "utf8mb3", "utf8mb4", "ascii", "binary"})
"""Character sets whose statements are read as UTF-8, and as bytes where they are none."""

_SQL_MODE, _OLD_CATALOG, _CHARSET, _CATALOG = 1, 2, 4, 6
"""Status variables that servers write up to the one of the character sets; two more have 4 bytes, as flags2 has."""


def decode_statement_text(sql: bytes, status: Any) -> str | bytes:
    """Decode the text of a statement.

    Args:
        status: its status variables by name.
    """
    charset = status.get("charset") if isinstance(status, Mapping) else None
    name = charset_of_collation(charset.get("client")) if isinstance(charset, Mapping) else None
    return utf8_text(sql) if name in _UTF8_COMPATIBLE or sql.isascii() else charset_decoder(name)(sql)


def recode_statement_text(body: dict[str, Any]) -> dict[str, Any]:
    """Recode the text in a statement's shown body, which was decoded as UTF-8, by the client's character set."""
    sql = body.get("sql")
    if sql is not None:
        raw = sql.encode() if isinstance(sql, str) else sql
        if not raw.isascii():
            body["sql"] = decode_statement_text(raw, body.get("status_vars"))
    return body


@kernel()
def find_client_collation(buf: UInt8s, pos: int, limit: int) -> int:
    """Find the client's collation in the status variables `buf[pos:limit]`; -1 = absent, or after unusual variables."""
    while pos < limit:
        code = buf[pos] + 0
        pos += 1
        if code == _CHARSET:
            return buf[pos] | buf[pos + 1] << 8 if limit - pos >= 6 else -1
        size = 8 if code == _SQL_MODE else 4
        if code == _CATALOG and pos < limit:
            size = 1 + buf[pos]
        elif code == _OLD_CATALOG or code > _CHARSET:
            return -1
        pos += size
    return -1


@kernel()
def is_utf8_collation(collation: int) -> bool:
    """Check if a collation is certainly one of utf8mb3 or utf8mb4."""
    is_common = collation == 33 or (collation >= 45 and collation <= 46) or collation == 83
    is_mysql = (
        (collation >= 192 and collation <= 215)
        or (collation >= 224 and collation <= 247)
        or (collation >= 255 and collation <= 323)
    )
    return is_common or is_mysql or (collation >= 2048 and collation < 2560)


@kernel()
def is_ascii(buf: UInt8s, pos: int, limit: int) -> bool:
    """Check if all bytes are ASCII."""
    all_bits = 0
    for i in range(pos, limit):
        all_bits |= buf[i]
    return all_bits < 128


@kernel(find_client_collation, is_ascii, is_utf8_collation, put_any_text)
def put_statement_text(
    buf: UInt8s, pos: int, limit: int, size: int, status: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write a text in UTF-8 or ASCII as a JSON string; other texts are left to the general writer.

    Args:
        size, status: size and position of the status variables.
    """
    if not is_utf8_collation(find_client_collation(buf, status, status + size)) and not is_ascii(buf, pos, limit):
        return UNSUPPORTED
    return put_any_text(buf, pos, limit, out, out_pos, out_limit)


class StatementText(TextField):
    """Construct of the text of a statement, after `status_len` and `status_vars`."""

    leaf = LeafFormat(
        utf8_text,
        LazyRef("binlog_events.events.statement_text:put_statement_text"),
        context_fields=("status_len", "status_vars"),
    )
