"""Damage findings in the terms of this format and its servers.

Source: docs/spec/mysql_binlog.md#transactions-and-truncation and
#resynchronization.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, EVENT_TYPE_NAMES, HEADER_SIZE, EventFlag
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.wire.header import END_LOG_POS_AT, EVENT_SIZE_AT, FLAGS_AT, SERVER_ID_AT, TYPE_AT
from binlogtool.formats.layouts import LogFileLayout
from binlogtool.formats.mysql_binlog.layout.layout import FIRST_EVENT_AT

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
_MAX_NEXT_HEADERS = 64


def explain_damage(layout: LogFileLayout, data: memoryview, offset: int, damage: Finding) -> Finding:
    """Return the finding with `diagnosis` in its facts and with what else can be proven about the damage."""
    context: BinlogFileContext = layout.context
    diagnosis = damage.facts.get("diagnosis") or _DIAGNOSES.get(damage.id, damage.id)
    damage = _add_diagnosis(damage, diagnosis)
    if damage.id in ("torn-tail", "zero-tail", "garbage-tail"):
        return _explain_tail(damage, context, data)
    if damage.id in ("checksum-mismatch", "length-out-of-bounds", "bad-header"):
        return _explain_event(damage, context, data, offset)
    return damage


def _add_diagnosis(damage: Finding, diagnosis: str, text: str = "", **facts: Any) -> Finding:
    """Return a finding with a diagnosis, text and facts added."""
    message = f"{damage.message}; {text}" if text else damage.message
    return replace(damage, message=message, facts=MappingProxyType({**damage.facts, "diagnosis": diagnosis, **facts}))


# -- tails -------------------------------------------------------------------------------------------------------------


def _explain_tail(damage: Finding, context: BinlogFileContext, data: memoryview) -> Finding:
    """Explain a torn end: normal if the server stopped while writing, impossible in a closed file."""
    code = data[4] if len(data) > 4 else 0
    if damage.id == "torn-tail" and code in EVENT_TYPE_NAMES and code:
        damage = _add_diagnosis(damage, "torn-event", f"it is of type {type_name(code)}", event_type=type_name(code))
    if context.is_relay_log:
        return _add_diagnosis(damage, damage.facts["diagnosis"], "the replica fetches it again")
    if not context.description.flags & EventFlag.BINLOG_IN_USE:
        closed_file_finding = _add_diagnosis(
            damage, damage.facts["diagnosis"], "the in-use flag is clear: the file was closed as a whole one"
        )
        return closed_file_finding.with_severity(Severity.ERROR)
    if context.description.is_mariadb:
        return _add_diagnosis(
            damage, damage.facts["diagnosis"], "MariaDB leaves it in the file and goes on in a new one"
        )
    return _add_diagnosis(damage, damage.facts["diagnosis"], "MySQL cuts it off at its next start")


# -- one event ---------------------------------------------------------------------------------------------------------


def _explain_event(damage: Finding, context: BinlogFileContext, data: memoryview, offset: int) -> Finding:
    """Explain damage to one event."""
    head = bytes(data[:HEADER_SIZE])
    if len(head) == HEADER_SIZE and not any(head[EVENT_SIZE_AT:END_LOG_POS_AT]):
        damage = _add_diagnosis(
            damage, "zeros" if not any(head[:EVENT_SIZE_AT]) else "event-size", "its event_size is 0"
        )
    if context.description.has_checksums and len(head) == HEADER_SIZE:
        size = find_proven_size(data, context, offset)
        declared = int.from_bytes(head[EVENT_SIZE_AT:END_LOG_POS_AT], "little")
        if size is not None and size != declared:
            text = f"event_size is {declared:,}, its checksum is right for {size:,}"
            return _add_diagnosis(damage, "event-size", text, event_size=declared, event_size_should_be=size)
    if damage.id == "checksum-mismatch" and data[TYPE_AT] not in EVENT_TYPE_NAMES:
        return _add_diagnosis(
            damage, "event-type", f"event type {data[TYPE_AT]} is not known", event_type=int(data[TYPE_AT])
        )
    return damage


def find_proven_size(data: memoryview, context: BinlogFileContext, offset: int) -> int | None:
    """Return the event_size with which the checksum of a damaged event matches; None if something else is wrong."""
    event = bytearray(data)
    for size in _iter_candidate_sizes(event, context, offset):
        if HEADER_SIZE + CHECKSUM_SIZE <= size <= len(event):
            event[EVENT_SIZE_AT:END_LOG_POS_AT] = size.to_bytes(4, "little")
            stored = int.from_bytes(event[size - CHECKSUM_SIZE : size], "little")
            if zlib.crc32(memoryview(event)[: size - CHECKSUM_SIZE]) == stored:
                return size
    return None


def _iter_candidate_sizes(event: bytearray, context: BinlogFileContext, offset: int) -> Iterator[int]:
    """Yield sizes that the event may have had: by its end_log_pos, and up to the next plausible headers."""
    end = int.from_bytes(event[END_LOG_POS_AT:FLAGS_AT], "little")
    start = (offset - (context.events_at - FIRST_EVENT_AT)) & 0xFFFFFFFF
    if end > start:
        yield end - start
    server, at = bytes(event[SERVER_ID_AT:EVENT_SIZE_AT]), HEADER_SIZE
    for _ in range(_MAX_NEXT_HEADERS):
        at = event.find(server, at + 1)
        if at < 0:
            break
        if at - 5 >= HEADER_SIZE and event[at - 1] in EVENT_TYPE_NAMES:
            yield at - 5
    yield len(event)
