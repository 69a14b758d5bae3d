"""Text of a row in `dump`, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.format_api.record_text import RecordDescriber, RecordText, RowChanges, select_members

_SHOWN_ELSEWHERE = frozenset({"tuple", "key", "ops"})
_HIDDEN = frozenset({"space_id", "index_base", "bloom_filter", "row_index", *_SHOWN_ELSEWHERE})


def start_record_text() -> RecordDescriber:
    """Return the describer of the rows of a journal."""
    return _describe


def _describe(type_name: str, body: Mapping[str, Any], everything: bool) -> RecordText:
    members = select_members(body, _SHOWN_ELSEWHERE if everything else _HIDDEN)
    row: dict[str, Any]
    if type_name == "UPDATE":
        row = {"key": body.get("key"), "operations": body.get("tuple")}
    elif type_name == "UPSERT":
        row = {"key": body.get("tuple"), "operations": body.get("ops")}
    elif type_name == "DELETE":
        row = {"key": body.get("key")}
    elif "tuple" in body:
        row = {"after": body["tuple"]}
    else:
        return RecordText(members, is_noise=type_name == "ROWINDEX")
    return RecordText(members, changes=(RowChanges((row,)),))
