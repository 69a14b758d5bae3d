"""Names of XA transactions."""

from __future__ import annotations

from typing import NamedTuple


class XaId(NamedTuple):
    """Name of an XA transaction."""

    format_id: int
    gtrid: bytes
    bqual: bytes
