"""Positions of a replay: vector clocks, as users give them and as file headers store them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.layout.header import parse_header_lines, parse_vclock


def parse_position(position: Mapping[str, Any]) -> dict[int, int]:
    """Convert a position `{"vclock": {"1": 61}}` to a vclock; invalid components are left out."""
    stored = position.get("vclock")
    pairs = stored.items() if isinstance(stored, Mapping) else ()
    return {int(r): lsn for r, lsn in pairs if str(r).isdecimal() and type(lsn) is int and lsn >= 0}


def read_header_position(name: str, data: bytes) -> Mapping[str, Any] | None:
    """Read the position from the header of a snapshot or log (`Replay.state`); None if it has none."""
    text = parse_header_lines(data)
    vclock_text = text.get_value("vclock")
    if text.end is None or vclock_text is None or not text.lines or text.lines[0].value not in FileKind.__members__:
        return None
    try:
        return {"vclock": {str(replica): lsn for replica, lsn in parse_vclock(vclock_text).items()}}
    except ValueError:
        return None
