"""Helpers that read statements and texts of decoded event bodies for the applier."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.binlog_events.groups.kinds import LONGEST, QueryKind, text_kind
from binlogtool.formats.binlog_events.groups.xa import XaId


def kind_of(sql: str) -> QueryKind:
    """Return the effect of a statement on its transaction."""
    return text_kind(sql[:LONGEST].encode("utf-8", "replace"))


def text_of(value: Any) -> str:
    """Return a text of a body, which is bytes where it is not UTF-8."""
    return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else ""


def xa_text(name: XaId) -> str:
    """Return the name of an XA transaction as servers log it."""
    return f"X'{name.gtrid.hex()}',X'{name.bqual.hex()}',{name.format_id}"


def bytes_of(value: Any) -> bytes:
    """Return the bytes of a text of a body."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
