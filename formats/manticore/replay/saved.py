"""TIDs that tables have saved already, as `--against` gives them: JSON, or a table's own file."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from binlogtool.errors import UsageError

_INDEX_MAGICS = (b"SPRT\x09\0\0\0", b"SPRT\x0d\0\0\0")
"""Magic and version of an index that Sphinx 2.2.11 or Manticore 2.8.2 has saved (seen): the TID is at 28."""
_QUERIES_MAGIC = b"QTSP\x07\0\0\0"
"""The same of stored queries that Manticore 2.8.2 has saved (seen): the TID is their last value."""


def read_saved_tid(name: str, data: bytes) -> Mapping[str, Any] | None:
    """Read the TID from a table's own `.meta` file: JSON, or that of Sphinx 2.2 or Manticore 2.8; None if it is
    none.
    """
    table = name.removesuffix(".meta")
    if len(data) >= 36 and data.startswith((*_INDEX_MAGICS, _QUERIES_MAGIC)):
        position = len(data) - 8 if data.startswith(_QUERIES_MAGIC) else 28
        return {"tables": {table: struct.unpack_from("<q", data, position)[0]}}
    try:
        value = json.loads(data)
    except ValueError:
        return None
    if not isinstance(value, dict) or "meta_version" not in value or not isinstance(value.get("tid"), int):
        return None
    return {"tables": {table: value["tid"]}}


def parse_saved_tids(against: Mapping[str, Any]) -> dict[str, int | None]:
    """Parse the TIDs that tables have saved; None = not served.

    Raises:
        UsageError: the position has another form.
    """
    tids = against.get("tables", {})
    is_valid = isinstance(tids, Mapping) and all(tid is None or type(tid) is int for tid in tids.values())
    if not is_valid or type(against.get("version", 0)) is not int:
        raise UsageError('--against: {"tables": {NAME: TID}} is meant, null for a table that is not served')
    return dict(tids)
