"""Damage findings in the terms of this format and its servers.

Source: docs/spec/mysql-mariadb-binlog.md#8-transactions-durability-truncation and
#12-damage-finding-the-way-again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, TYPES, EventFlag
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.wire.header import END_AT, FLAGS_AT, SERVER_AT, SIZE_AT, TYPE_AT
from binlogtool.formats.layouts import Layout
from binlogtool.formats.mysql_binlog.layout.layout import FRAMES_AT

_DIAGNOSES: Mapping[str, str] = {
    "checksum-mismatch": "checksum",
    "bad-header": "event-header",
    "length-out-of-bounds": "event-size",
    "torn-tail": "torn-event",
    "zero-tail": "zero-tail",
    "garbage-tail": "garbage-tail",
    "payload-undecodable": "body",
    "compression-error": "compressed-payload",
    "inflate-limit": "inflate-limit",
}
_NEXT_SEARCHED = 64


def explain_damage(layout: Layout, data: memoryview, offset: int, found: Finding) -> Finding:
    """Return the finding with `diagnosis` in its facts and with what else can be proven about the damage."""
    context: FileContext = layout.context
    diagnosis = found.facts.get("diagnosis") or _DIAGNOSES.get(found.id, found.id)
    found = _with(found, diagnosis)
    if found.id in ("torn-tail", "zero-tail", "garbage-tail"):
        return _tail(found, context, data)
    if found.id in ("checksum-mismatch", "length-out-of-bounds", "bad-header"):
        return _event(found, context, data, offset)
    return found


def _with(found: Finding, diagnosis: str, text: str = "", **facts: Any) -> Finding:
    """Return a finding with a diagnosis, text and facts added."""
    message = f"{found.message}; {text}" if text else found.message
    return replace(found, message=message, facts=MappingProxyType({**found.facts, "diagnosis": diagnosis, **facts}))


# -- tails -------------------------------------------------------------------------------------------------------------


def _tail(found: Finding, context: FileContext, data: memoryview) -> Finding:
    """Explain a torn end: normal if the server stopped while writing, impossible in a closed file."""
    code = data[4] if len(data) > 4 else 0
    if found.id == "torn-tail" and code in TYPES and code:
        found = _with(found, "torn-event", f"it is of type {type_name(code)}", event_type=type_name(code))
    if context.relay:
        return _with(found, found.facts["diagnosis"], "the replica fetches it again")
    if not context.description.flags & EventFlag.BINLOG_IN_USE:
        told = _with(found, found.facts["diagnosis"], "the in-use flag is clear: the file was closed as a whole one")
        return told.raised_to(Severity.ERROR)
    if context.description.is_mariadb:
        return _with(found, found.facts["diagnosis"], "MariaDB leaves it in the file and goes on in a new one")
    return _with(found, found.facts["diagnosis"], "MySQL cuts it off at its next start")


# -- one event ---------------------------------------------------------------------------------------------------------


def _event(found: Finding, context: FileContext, data: memoryview, offset: int) -> Finding:
    """Explain damage to one event."""
    head = bytes(data[:HEADER_SIZE])
    if len(head) == HEADER_SIZE and not any(head[SIZE_AT:END_AT]):
        found = _with(found, "zeros" if not any(head[:SIZE_AT]) else "event-size", "its event_size is 0")
    if context.description.has_checksums and len(head) == HEADER_SIZE:
        size = proven_size(data, context, offset)
        declared = int.from_bytes(head[SIZE_AT:END_AT], "little")
        if size is not None and size != declared:
            text = f"event_size is {declared:,}, its checksum is right for {size:,}"
            return _with(found, "event-size", text, event_size=declared, event_size_should_be=size)
    if found.id == "checksum-mismatch" and data[TYPE_AT] not in TYPES:
        return _with(found, "event-type", f"event type {data[TYPE_AT]} is not known", event_type=int(data[TYPE_AT]))
    return found


def proven_size(data: memoryview, context: FileContext, offset: int) -> int | None:
    """Return the event_size with which the checksum of a damaged event matches; None if something else is wrong."""
    event = bytearray(data)
    for size in _sizes(event, context, offset):
        if HEADER_SIZE + CHECKSUM_SIZE <= size <= len(event):
            event[SIZE_AT:END_AT] = size.to_bytes(4, "little")
            stored = int.from_bytes(event[size - CHECKSUM_SIZE : size], "little")
            if zlib.crc32(memoryview(event)[: size - CHECKSUM_SIZE]) == stored:
                return size
    return None


def _sizes(event: bytearray, context: FileContext, offset: int) -> Iterator[int]:
    """Yield sizes that the event may have had: by its end_log_pos, and up to the next plausible headers."""
    end = int.from_bytes(event[END_AT:FLAGS_AT], "little")
    start = (offset - (context.start - FRAMES_AT)) & 0xFFFFFFFF
    if end > start:
        yield end - start
    server, at = bytes(event[SERVER_AT:SIZE_AT]), HEADER_SIZE
    for _ in range(_NEXT_SEARCHED):
        at = event.find(server, at + 1)
        if at < 0:
            break
        if at - 5 >= HEADER_SIZE and event[at - 1] in TYPES:
            yield at - 5
    yield len(event)
