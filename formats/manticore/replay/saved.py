"""What tables have saved already, as `--against` says it: JSON, or a table's own file."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from binlogtool.errors import UsageError

_SPHINX_META = b"SPRT\x09\0\0\0"
"""Magic and version of an index that Sphinx 2.2.11 has saved (seen)."""


def saved_tid(name: str, data: bytes) -> Mapping[str, Any] | None:
    """The TID in a table's own `.meta` file: JSON, or that of Sphinx 2.2; the table is named like the file."""
    table = name.removesuffix(".meta")
    if data.startswith(_SPHINX_META) and len(data) >= 36:
        return {"tables": {table: struct.unpack_from("<q", data, 28)[0]}}
    try:
        value = json.loads(data)
    except ValueError:
        return None
    if not isinstance(value, dict) or "meta_version" not in value or not isinstance(value.get("tid"), int):
        return None
    return {"tables": {table: value["tid"]}}


def saved_tids(against: Mapping[str, Any]) -> dict[str, int | None]:
    """The TIDs that tables have saved; null = not served.

    Raises:
        UsageError: something else is said.
    """
    known = against.get("tables", {})
    whole = isinstance(known, Mapping) and all(tid is None or type(tid) is int for tid in known.values())
    if not whole or type(against.get("version", 0)) is not int:
        raise UsageError('--against: {"tables": {NAME: TID}} is meant, null for a table that is not served')
    return dict(known)
