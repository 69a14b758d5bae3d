"""What the servers make of a log: proofs of single events, durable ends (specification sections 8 and 12)."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.mysql_binlog.codes import TYPES


def prove(frame: bytes, context: Any) -> bool:
    """Is an event without a checksum an event beyond doubt?"""
    return frame[4] in TYPES and frame[4] != 0
