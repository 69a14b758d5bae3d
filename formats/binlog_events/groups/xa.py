"""Identifiers of XA transactions."""

from __future__ import annotations

from typing import NamedTuple


class XaId(NamedTuple):
    """Identifier of an XA transaction (XID)."""

    format_id: int
    gtrid: bytes
    bqual: bytes
