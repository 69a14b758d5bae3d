"""Text of a transaction in `dump`, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from binlogtool.format_api.record_text import RecordDescriber, RecordText, RowChanges, select_members

_HIDDEN = frozenset({"id", "tid", "time", "name", "uSize", "payload", "payload_op", "count"})
_SHOWN_ELSEWHERE = frozenset({"killed", "documents", "new", "del_ids", "del_tags", "query"})
_QUERY_MEMBERS = ("id", "query", "tags", "filters", "tree")


def start_record_text() -> RecordDescriber:
    """Return the describer of the transactions of a log."""
    return _describe


def _name_documents(numbers: Sequence[Any]) -> dict[str, Any]:
    return {"document": numbers[0]} if len(numbers) == 1 else {"documents": numbers}


def _describe(_type_name: str, body: Mapping[str, Any], everything: bool) -> RecordText:
    payload = body.get("payload")
    members = select_members(body, frozenset({"payload"}) if everything else _HIDDEN)
    if not isinstance(payload, Mapping):
        return RecordText(members)
    if everything:
        members |= select_members(payload, _SHOWN_ELSEWHERE)
    note = body.get("payload_op", "")
    rows: list[dict[str, Any]] = []
    segment = payload.get("segment")
    documents = segment.get("docids", ()) if isinstance(segment, Mapping) else ()
    removed = [one for one in payload.get("killed", ()) if one not in set(documents)]
    rows += [{side: _name_documents(numbers)} for side, numbers in (("after", documents), ("key", removed)) if numbers]
    for document in payload.get("documents", ()):
        rows.append({"key": {"document": document.get("docid")}, "after": document.get("values")})
    queries = payload.get("new", (payload,) if "query" in payload else ())
    rows += [{"after": {name: query[name] for name in _QUERY_MEMBERS if query.get(name)}} for query in queries]
    rows += [{"key": {"id": one}} for one in payload.get("del_ids", ())]
    rows += [{"key": {"tags": one}} for one in payload.get("del_tags", ())]
    return RecordText(members, note if isinstance(note, str) else "", (RowChanges(rows),) if rows else ())
