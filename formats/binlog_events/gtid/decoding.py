"""GTID events as JSON values: fields by the names of the specification, the GTID as text (see
`events.decoding`).

Each reader raises `MalformedError` if the body is not valid for its type.
"""

from __future__ import annotations

from typing import Any

from binlogtool.formats.binlog_events.gtid.bodies import (
    format_previous_gtids,
    format_source,
    read_gtid_list,
    read_gtid_list_flags,
    read_previous_gtids,
    read_tagged_gtid,
)
from binlogtool.formats.bodies import decode_text, uuid_of


def decode_tagged_gtid(body: bytes) -> dict[str, Any]:
    """Decode GTID_TAGGED_LOG; fields that the server did not write are left out."""
    flags, sid, gno, tag, _, last, number, immediate, original, length, version, first, ticket = read_tagged_gtid(body)
    result: dict[str, Any] = {
        "gtid": f"{format_source(sid, tag)}:{gno}",
        "flags": flags,
        "sid": uuid_of(sid),
        "gno": gno,
    }
    if tag:
        result["tag"] = decode_text(tag)
    if last is not None:
        result["last_committed"], result["sequence_number"] = last, number
    if immediate is not None:
        result["immediate_commit_timestamp"], result["original_commit_timestamp"] = immediate, original
    if length is not None:
        result["transaction_length"] = length
    if version is not None:
        result["immediate_server_version"], result["original_server_version"] = version, first
    if ticket is not None:
        result["commit_group_ticket"] = ticket
    return result


def decode_previous_gtids(body: bytes) -> dict[str, Any]:
    """Decode PREVIOUS_GTIDS: the set as text, and its sources with half-open intervals."""
    sources = read_previous_gtids(body)
    listed = []
    for sid, tag, intervals in sources:
        entry: dict[str, Any] = {"sid": uuid_of(sid)}
        if tag:
            entry["tag"] = decode_text(tag)
        listed.append(entry | {"intervals": [list(interval) for interval in intervals]})
    return {"gtids": format_previous_gtids(sources), "sids": listed}


def decode_gtid_list(body: bytes) -> dict[str, Any]:
    """Decode GTID_LIST: the list as text, and its entries."""
    entries = read_gtid_list(body)
    return {
        "gtids": ",".join(f"{domain}-{server}-{number}" for domain, server, number in entries),
        "flags": read_gtid_list_flags(body),
        "list": [{"domain_id": domain, "server_id": server, "seq_no": number} for domain, server, number in entries],
    }
