"""Transactions packed into one event."""

from __future__ import annotations

import zstandard

from tests.formats.mysql_binlog.row_building import lenenc, sized

EVENTS = b"the events of one transaction " * 1000


def payload(packed: bytes, declared: int | None = len(EVENTS), compression: int = 0, size: int | None = None) -> bytes:
    fields = b"\x02" + sized(lenenc(compression))
    if declared is not None:
        fields += b"\x03" + sized(lenenc(declared))
    return fields + b"\x01" + sized(lenenc(len(packed) if size is None else size)) + b"\0" + packed


def packed(data: bytes = EVENTS) -> bytes:
    return zstandard.ZstdCompressor().compress(data)
