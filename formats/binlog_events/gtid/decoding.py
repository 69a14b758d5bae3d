"""GTID events as JSON values: fields by the names of the specification, the GTID as text (see
`events.decoding`).

Each reader raises `MalformedError` if the body is not valid for its type.
"""

from __future__ import annotations

from typing import Any

from binlogtool.formats.binlog_events.gtid.bodies import (
    gtid_list,
    gtid_list_flags,
    previous_gtids,
    previous_gtids_text,
    source_text,
    tagged_gtid,
)
from binlogtool.formats.bodies import text, uuid_of


def tagged_gtid_body(body: bytes) -> dict[str, Any]:
    """Decode GTID_TAGGED_LOG; fields that the server did not write are left out."""
    flags, sid, gno, tag, _, last, number, immediate, original, length, version, first, ticket = tagged_gtid(body)
    out: dict[str, Any] = {"gtid": f"{source_text(sid, tag)}:{gno}", "flags": flags, "sid": uuid_of(sid), "gno": gno}
    if tag:
        out["tag"] = text(tag)
    if last is not None:
        out["last_committed"], out["sequence_number"] = last, number
    if immediate is not None:
        out["immediate_commit_timestamp"], out["original_commit_timestamp"] = immediate, original
    if length is not None:
        out["transaction_length"] = length
    if version is not None:
        out["immediate_server_version"], out["original_server_version"] = version, first
    if ticket is not None:
        out["commit_group_ticket"] = ticket
    return out


def previous_gtids_body(body: bytes) -> dict[str, Any]:
    """Decode PREVIOUS_GTIDS: the set as text, and its sources with half-open intervals."""
    sources = previous_gtids(body)
    listed = []
    for sid, tag, intervals in sources:
        one: dict[str, Any] = {"sid": uuid_of(sid)}
        if tag:
            one["tag"] = text(tag)
        listed.append(one | {"intervals": [list(interval) for interval in intervals]})
    return {"gtids": previous_gtids_text(sources), "sids": listed}


def gtid_list_body(body: bytes) -> dict[str, Any]:
    """Decode GTID_LIST: the list as text, and its entries."""
    entries = gtid_list(body)
    return {
        "gtids": ",".join(f"{domain}-{server}-{number}" for domain, server, number in entries),
        "flags": gtid_list_flags(body),
        "list": [{"domain_id": domain, "server_id": server, "seq_no": number} for domain, server, number in entries],
    }
