"""Proof of an ADD_CACHE that has no checksum."""

from __future__ import annotations

from typing import Any

from construct import ConstructError

from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.payloads.zint import WideZint
from binlogtool.formats.manticore.schema import Op


def is_proven_cache(frame: bytes, context: Any) -> bool:
    """Check that an ADD_CACHE whose checksum is 0 is one beyond doubt: all its fields must be as a writer makes
    them.
    """
    try:
        parsed = schema.FRAME.parse(frame)
        if parsed.op != Op.ADD_CACHE:
            return False
        cache = schema.CACHE.parse(parsed.body)
    except (ConstructError, OverflowError):
        return False
    return not isinstance(cache.count, WideZint) and all(_is_plausible(entry) for entry in cache.tables)


def _is_plausible(entry: Any) -> bool:
    numbers = (entry.name.length, entry.min_tid, entry.max_tid, entry.flushed_tid)
    return (
        entry.name.length > 0 and entry.min_tid <= entry.max_tid and not any(isinstance(n, WideZint) for n in numbers)
    )
