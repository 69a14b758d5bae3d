"""GTID events as JSON-able values (see `events.decoding`): raw fields by the specification's names, the GTID as text.

Each reader raises `MalformedError` when the body is not what its type says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.gtid.bodies import (
    gtid_list,
    gtid_list_head,
    mariadb_gtid_fields,
    mysql_gtid_fields,
    previous_gtids,
    previous_gtids_text,
    source_text,
)
from binlogtool.formats.binlog_events.gtid.tagged import uuid_of
from binlogtool.formats.binlog_events.wire.fields import text


def mysql_gtid_body(kind: int) -> Callable[[bytes], dict[str, Any]]:
    """The reader of GTID_LOG, ANONYMOUS_GTID or GTID_TAGGED_LOG. Fields that the server did not write are left out."""
    anonymous = kind == EventType.ANONYMOUS_GTID

    def decode(body: bytes) -> dict[str, Any]:
        fields = mysql_gtid_fields(kind, body)
        flags, sid, tag, gno, lt_type, last, number, immediate, original, length, version, first, ticket = fields
        out: dict[str, Any] = {
            "gtid": None if anonymous else f"{source_text(sid, tag)}:{gno}",
            "flags": flags,
            "sid": uuid_of(sid),
            "gno": gno,
        }
        if tag:
            out["tag"] = text(tag)
        if lt_type is not None:
            out["lt_type"] = lt_type
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

    return decode


def mariadb_gtid_body(body: bytes, server_id: int) -> dict[str, Any]:
    """GTID of MariaDB. server_id: from the common header."""
    fields = mariadb_gtid_fields(body)
    seq_no, domain_id, flags2, commit_id, format_id, gtrid, bqual, extra, engines, start_alter, thread_id = fields
    out: dict[str, Any] = {
        "gtid": f"{domain_id}-{server_id}-{seq_no}",
        "seq_no": seq_no,
        "domain_id": domain_id,
        "flags2": flags2,
    }
    if commit_id is not None:
        out["commit_id"] = commit_id
    if gtrid is not None and bqual is not None:
        out["xid"] = {"format_id": format_id, "gtrid": text(gtrid), "bqual": text(bqual)}
    if extra:
        out["flags_extra"] = extra
        if engines is not None:
            out["extra_engines"] = engines
        if start_alter is not None:
            out["start_alter_seq"] = start_alter
        if thread_id is not None:
            out["thread_id"] = thread_id
    return out


def previous_gtids_body(body: bytes) -> dict[str, Any]:
    """PREVIOUS_GTIDS: the set as text, and its sources with half-open intervals."""
    sources = previous_gtids(body)
    listed = []
    for sid, tag, intervals in sources:
        one: dict[str, Any] = {"sid": uuid_of(sid)}
        if tag:
            one["tag"] = text(tag)
        listed.append(one | {"intervals": [list(interval) for interval in intervals]})
    return {"gtids": previous_gtids_text(sources), "sids": listed}


def gtid_list_body(body: bytes) -> dict[str, Any]:
    """GTID_LIST: the list as text, and its entries."""
    entries = gtid_list(body)
    return {
        "gtids": ",".join(f"{domain}-{server}-{number}" for domain, server, number in entries),
        "flags": gtid_list_head(body)[0],
        "list": [{"domain_id": domain, "server_id": server, "seq_no": number} for domain, server, number in entries],
    }
