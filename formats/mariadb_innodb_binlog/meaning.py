"""Decode pages and records: envelope columns and bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.findings import Finding, finding
from binlogtool.formats.binlog_events.codes import TYPES as EVENT_TYPES
from binlogtool.formats.described import Described
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CHUNK_HEAD,
    CRC_SIZE,
    KIND,
    LAST,
    RecordType,
)
from binlogtool.formats.mariadb_innodb_binlog.groups.commits import NOTHING, commit_head
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import columns_of
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import BODIES
from binlogtool.limits import Limits

PAGE = "PAGE"
NAMES = {int(kind): kind.name for kind in RecordType}
TYPES = {0: PAGE, **NAMES} | {256 + code: name for code, name in EVENT_TYPES.items() if code}
"""Types of `dump`: pages, page records, and with `--level event` the events (256 + code)."""

_COMMIT = int(RecordType.COMMIT)


def describe(context: FileContext, batch: Batch, start: int, stop: int) -> Described:
    """Return the envelopes of pages, records or events."""
    if batch.is_inside:
        return context.events.describe(batch, start, stop)  # type: ignore[no-any-return]
    count = stop - start
    if batch.places is None:
        nothing: list[Any] = [None] * count
        return Described([PAGE] * count, nothing, nothing, nothing, nothing, nothing)
    codes, lows, highs = columns_of(batch, start, stop, "type_code", "offset", "end")
    heads = [
        commit_head(batch.window[low:high]) if code == _COMMIT else NOTHING
        for code, low, high in zip(codes, lows, highs, strict=True)
    ]
    return Described(
        type=[NAMES[code] for code in codes],
        seq=[None if head.gtid is None else head.gtid.seq_no for head in heads],
        time=[head.time for head in heads],
        object=[None] * count,
        origin=[head.server_id for head in heads],
        txn=[None if head.gtid is None else str(head.gtid) for head in heads],
    )


def bodies(context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode one body for each; a `Finding` if a record does not match its type."""
    if batch.is_inside:
        return context.events.bodies(batch, start, stop, limits)  # type: ignore[no-any-return]
    if batch.places is None:
        return [page_body(context, batch, i) for i in range(start, stop)]
    names = ("type_code", "offset", "end", "chunks", "nested")
    found: list[Any] = []
    for i, (code, low, high, chunks, nested) in enumerate(
        zip(*columns_of(batch, start, stop, *names), strict=True), start
    ):
        try:
            body = BODIES[code](batch.window[low:high])
        except MalformedError as error:
            found.append(_undecodable(batch, i, NAMES[code], error))
            continue
        found.append({**body, "chunks": chunks, "nested": bool(nested)})
    return found


def extras(context: FileContext, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
    """Return {"header": …} of events; records and pages have no extras."""
    if batch.is_inside:
        return context.events.extras(batch, start, stop)  # type: ignore[no-any-return]
    return [None] * (stop - start)


def _undecodable(batch: Batch, index: int, name: str, error: MalformedError) -> Finding:
    assert batch.places is not None
    place, size = int(batch.places[0][index]), int(batch.places[1][index])
    text = f"{name}: {error.args[0]}"
    return finding(error.finding_id, place, size, text, record=batch.first_record + index)


def page_body(context: FileContext, batch: Batch, index: int) -> dict[str, Any]:
    """Decode a page: its number in the file, the bytes in use, its chunks."""
    size = context.page_size
    low = int(batch.frames["offset"][index])
    page = batch.window[low : low + size]
    chunks, at, limit = [], 0, size - CRC_SIZE
    while at < limit - CHUNK_HEAD and 0 < page[at] & KIND <= max(RecordType):
        end = at + CHUNK_HEAD + (page[at + 1] | page[at + 2] << 8)
        if end > limit or end == at + CHUNK_HEAD:
            break
        chunks.append({"at": at, "type": _chunk_type(page[at]), "bytes": end - at - CHUNK_HEAD})
        at = end
    return {"page_no": (batch.base + low) // size, "used": at, "chunks": chunks}


def _chunk_type(byte: int) -> str:
    role = {LAST: "", 0: "_FIRST", 0x80: "_MIDDLE"}.get(byte & ~KIND, "_LAST")
    return NAMES[byte & KIND] + role
