"""Decode pages and records: envelope columns and bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.findings import Finding, make_finding
from binlogtool.formats.binlog_events.codes import EVENT_TYPE_NAMES as EVENT_TYPES
from binlogtool.formats.described import EnvelopeColumns
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CHUNK_HEAD_SIZE,
    CRC_SIZE,
    LAST_CHUNK_FLAG,
    TYPE_MASK,
    IbbRecordType,
)
from binlogtool.formats.mariadb_innodb_binlog.groups.commits import NO_GROUP_HEAD, read_commit_head
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import column_slices
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import BODY_READERS
from binlogtool.limits import Limits

PAGE_TYPE = "PAGE"
RECORD_TYPE_NAMES = {int(kind): kind.name for kind in IbbRecordType}
DUMP_TYPES = {0: PAGE_TYPE, **RECORD_TYPE_NAMES} | {256 + code: name for code, name in EVENT_TYPES.items() if code}
"""Types of `dump`: pages, page records, and with `--level event` the events (256 + code)."""

_COMMIT = int(IbbRecordType.COMMIT)


def describe_records(context: IbbFileContext, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
    """Return the envelopes of pages, records or events."""
    if batch.is_inside:
        return context.events.describe(batch, start, stop)  # type: ignore[no-any-return]
    count = stop - start
    if batch.positions is None:
        no_values: list[Any] = [None] * count
        return EnvelopeColumns([PAGE_TYPE] * count, no_values, no_values, no_values, no_values, no_values)
    codes, lows, highs = column_slices(batch, start, stop, "type_code", "offset", "end")
    heads = [
        read_commit_head(batch.window[low:high]) if code == _COMMIT else NO_GROUP_HEAD
        for code, low, high in zip(codes, lows, highs, strict=True)
    ]
    return EnvelopeColumns(
        type=[RECORD_TYPE_NAMES[code] for code in codes],
        seq=[None if head.gtid is None else head.gtid.seq_no for head in heads],
        time=[head.time for head in heads],
        object=[None] * count,
        origin=[head.server_id for head in heads],
        txn=[None if head.gtid is None else str(head.gtid) for head in heads],
    )


def decode_bodies(context: IbbFileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode one body for each; a `Finding` if a record does not match its type."""
    if batch.is_inside:
        return context.events.bodies(batch, start, stop, limits)  # type: ignore[no-any-return]
    if batch.positions is None:
        return [decode_page_body(context, batch, i) for i in range(start, stop)]
    names = ("type_code", "offset", "end", "chunks", "nested")
    results: list[Any] = []
    for i, (code, low, high, chunks, nested) in enumerate(
        zip(*column_slices(batch, start, stop, *names), strict=True), start
    ):
        try:
            body = BODY_READERS[code](batch.window[low:high])
        except MalformedError as error:
            results.append(_report_undecodable(batch, i, RECORD_TYPE_NAMES[code], error))
            continue
        results.append({**body, "chunks": chunks, "nested": bool(nested)})
    return results


def header_extras(context: IbbFileContext, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
    """Return {"header": …} of events; records and pages have no extras."""
    if batch.is_inside:
        return context.events.extras(batch, start, stop)  # type: ignore[no-any-return]
    return [None] * (stop - start)


def _report_undecodable(batch: Batch, index: int, name: str, error: MalformedError) -> Finding:
    assert batch.positions is not None
    place, size = int(batch.positions[0][index]), int(batch.positions[1][index])
    text = f"{name}: {error.args[0]}"
    return make_finding(error.finding_id, place, size, text, record=batch.first_record + index)


def decode_page_body(context: IbbFileContext, batch: Batch, index: int) -> dict[str, Any]:
    """Decode a page: its number in the file, the bytes in use, its chunks."""
    size = context.page_size
    low = int(batch.frames["offset"][index])
    page = batch.window[low : low + size]
    chunks, used, limit = [], 0, size - CRC_SIZE
    while used < limit - CHUNK_HEAD_SIZE and 0 < page[used] & TYPE_MASK <= max(IbbRecordType):
        end = used + CHUNK_HEAD_SIZE + (page[used + 1] | page[used + 2] << 8)
        if end > limit or end == used + CHUNK_HEAD_SIZE:
            break
        chunks.append({"at": used, "type": _chunk_type_name(page[used]), "bytes": end - used - CHUNK_HEAD_SIZE})
        used = end
    return {"page_no": (batch.base + low) // size, "used": used, "chunks": chunks}


def _chunk_type_name(byte: int) -> str:
    role = {LAST_CHUNK_FLAG: "", 0: "_FIRST", 0x80: "_MIDDLE"}.get(byte & ~TYPE_MASK, "_LAST")
    return RECORD_TYPE_NAMES[byte & TYPE_MASK] + role
