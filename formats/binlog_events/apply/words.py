"""Helpers that read statements and texts of decoded event bodies for the applier."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.binlog_events.groups.kinds import MAX_WORD_SIZE, QueryKind, get_text_kind
from binlogtool.formats.binlog_events.groups.xa import XaId


def classify_statement(sql: str) -> QueryKind:
    """Return the effect of a statement on its transaction."""
    return get_text_kind(sql[:MAX_WORD_SIZE].encode("utf-8", "replace"))


def as_text(value: Any) -> str:
    """Return a text of a body, which is bytes where it is not UTF-8."""
    return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else ""


def format_xid(xid: XaId) -> str:
    """Return the name of an XA transaction as servers log it."""
    return f"X'{xid.gtrid.hex()}',X'{xid.bqual.hex()}',{xid.format_id}"


def as_bytes(value: Any) -> bytes:
    """Return the bytes of a text of a body."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
