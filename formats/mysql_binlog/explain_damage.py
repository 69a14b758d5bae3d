"""Explain damage in a binary log, and repair a FORMAT_DESCRIPTION with one flipped bit.

Source: docs/spec/mysql_binlog.md#transactions-and-truncation and #resynchronization.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import FileHead, HeaderFlip, correct_head, find_bit_flip_by_checksum
from binlogtool.format_api.layout import CRC32, LogFileLayout
from binlogtool.formats.binlog_events.decode import BinlogFileContext, type_name
from binlogtool.formats.binlog_events.wire_format import (
    CHECKSUM_SIZE,
    END_LOG_POS_AT,
    EVENT_SIZE_AT,
    EVENT_TYPE_NAMES,
    FLAGS_AT,
    HEADER_SIZE,
    MAGIC,
    SERVER_ID_AT,
    TYPE_AT,
    EventFlag,
    EventType,
    clear_in_use_flag,
    has_valid_checksum,
    read_event_size,
)
from binlogtool.formats.mysql_binlog.detect_layout import FIRST_EVENT_AT, read_format_description

# --- Damage findings in the terms of this format and its servers ---

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
    """Return the finding with a `diagnosis` in its facts and with all else that can be proven about the damage."""
    context: BinlogFileContext = layout.context
    diagnosis = damage.facts.get("diagnosis") or _DIAGNOSES.get(damage.id, damage.id)
    damage = _add_diagnosis(damage, diagnosis)
    if damage.id in ("torn-tail", "zero-tail", "garbage-tail"):
        return _explain_tail(damage, context, data)
    if damage.id in ("checksum-mismatch", "length-out-of-bounds", "bad-header"):
        # Explain damage to one event
        head = bytes(data[:HEADER_SIZE])
        if len(head) == HEADER_SIZE and not any(head[EVENT_SIZE_AT:END_LOG_POS_AT]):
            damage = _add_diagnosis(
                damage, "zeros" if not any(head[:EVENT_SIZE_AT]) else "event-size", "its event_size is 0"
            )
        if context.description.has_checksums and len(head) == HEADER_SIZE:
            size = find_size_matching_checksum(data, context, offset)
            declared = read_event_size(head)
            if size is not None and size != declared:
                text = f"event_size is {declared:,}, its checksum matches {size:,}"
                return _add_diagnosis(damage, "event-size", text, event_size=declared, event_size_should_be=size)
        if damage.id == "checksum-mismatch" and data[TYPE_AT] not in EVENT_TYPE_NAMES:
            return _add_diagnosis(
                damage, "event-type", f"event type {data[TYPE_AT]} is unknown", event_type=int(data[TYPE_AT])
            )
        return damage
    return damage


def _add_diagnosis(damage: Finding, diagnosis: str, text: str = "", **facts: Any) -> Finding:
    """Return a finding with a diagnosis, text and facts added."""
    message = f"{damage.message}; {text}" if text else damage.message
    return replace(damage, message=message, facts=MappingProxyType({**damage.facts, "diagnosis": diagnosis, **facts}))


# -- tails -------------------------------------------------------------------------------------------------------------


def _explain_tail(damage: Finding, context: BinlogFileContext, data: memoryview) -> Finding:
    """Explain a torn end: normal if the server stopped while writing, impossible in a closed file."""
    code = data[TYPE_AT] if len(data) > TYPE_AT else 0
    if damage.id == "torn-tail" and code in EVENT_TYPE_NAMES and code:
        damage = _add_diagnosis(damage, "torn-event", f"it is of type {type_name(code)}", event_type=type_name(code))
    if context.is_relay_log:
        return _add_diagnosis(damage, damage.facts["diagnosis"], "the replica fetches it again")
    if not context.description.flags & EventFlag.BINLOG_IN_USE:
        closed_file_finding = _add_diagnosis(
            damage, damage.facts["diagnosis"], "the in-use flag is clear: the file was closed while complete"
        )
        return closed_file_finding.copy_with_severity(Severity.ERROR)
    if context.description.is_mariadb:
        return _add_diagnosis(
            damage, damage.facts["diagnosis"], "MariaDB leaves it in the file and continues in a new one"
        )
    return _add_diagnosis(damage, damage.facts["diagnosis"], "MySQL truncates it at its next start")


# -- one event ---------------------------------------------------------------------------------------------------------


def find_size_matching_checksum(data: memoryview, context: BinlogFileContext, offset: int) -> int | None:
    """Return the event_size with which the checksum of a damaged event matches; None if something else is wrong."""
    event = bytearray(data)
    for size in _iter_candidate_event_sizes(event, context, offset):
        if HEADER_SIZE + CHECKSUM_SIZE <= size <= len(event):
            event[EVENT_SIZE_AT:END_LOG_POS_AT] = size.to_bytes(4, "little")
            if has_valid_checksum(memoryview(event)[:size]):
                return size
    return None


def _iter_candidate_event_sizes(event: bytearray, context: BinlogFileContext, offset: int) -> Iterator[int]:
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


# --- Single flipped bits in FORMAT_DESCRIPTION ---

_MIN_SIZE, _MAX_SIZE = HEADER_SIZE + 57, 4096
_BY_CHECKSUM = "its checksum proves it"
_BY_EVENTS = "the events after it prove it"


def find_header_bit_flips(head: FileHead) -> Iterator[HeaderFlip]:
    """Yield at most one bit flip (`format_api.format`) that, once corrected, makes FORMAT_DESCRIPTION readable."""
    data = head.data
    if len(data) < FIRST_EVENT_AT + _MIN_SIZE or not data.startswith(MAGIC):
        return
    for byte, bit, proof, size in _iter_description_bit_flips(data):
        flip = HeaderFlip(byte, bit, proof, FIRST_EVENT_AT, size)
        description = read_format_description(correct_head(head, flip).data, FIRST_EVENT_AT)
        if description is not None and description.header_length == HEADER_SIZE:
            yield flip
            return


def _iter_description_bit_flips(log_bytes: bytes) -> Iterator[tuple[int, int, str, int]]:
    """Yield (byte, bit, proof, event size) of flips: proven by the checksum, else by the events that follow."""
    declared_size = read_event_size(log_bytes, FIRST_EVENT_AT)
    description = read_format_description(log_bytes, FIRST_EVENT_AT)
    end = int.from_bytes(log_bytes[FIRST_EVENT_AT + END_LOG_POS_AT : FIRST_EVENT_AT + FLAGS_AT], "little")
    has_valid_size = end in (0, FIRST_EVENT_AT + declared_size) or (
        description is not None and has_valid_checksum(clear_in_use_flag(description.event))
    )
    if description is not None and description.header_length == HEADER_SIZE and has_valid_size:
        return  # the events after it are readable; other faults are reported as usual
    event = log_bytes[FIRST_EVENT_AT : FIRST_EVENT_AT + declared_size]
    if _MIN_SIZE <= declared_size <= min(_MAX_SIZE, len(log_bytes) - FIRST_EVENT_AT):
        event = clear_in_use_flag(event)
        flip = find_bit_flip_by_checksum(CRC32, event, declared_size - CHECKSUM_SIZE, FIRST_EVENT_AT)
        if flip is not None:
            yield (*flip, _BY_CHECKSUM, declared_size)
    for bit in range(32):
        size = declared_size ^ 1 << bit
        if _MIN_SIZE <= size <= min(_MAX_SIZE, len(log_bytes) - FIRST_EVENT_AT):
            byte = FIRST_EVENT_AT + EVENT_SIZE_AT + bit // 8
            changed = bytearray(log_bytes[FIRST_EVENT_AT : FIRST_EVENT_AT + size])
            changed[EVENT_SIZE_AT + bit // 8] ^= 1 << bit % 8
            if has_valid_checksum(clear_in_use_flag(bytes(changed))):
                yield byte, bit % 8, _BY_CHECKSUM, size
    yield from _find_description_flip_without_checksum(log_bytes, declared_size)


def _find_description_flip_without_checksum(
    log_bytes: bytes, declared_size: int
) -> Iterator[tuple[int, int, str, int]]:
    """Yield a flip that only the following events prove (servers without checksums): one bit of type, size or version.

    The header length is not corrected: there were servers with longer headers (23 bytes), whose events also follow each
    other.
    """
    end = int.from_bytes(log_bytes[FIRST_EVENT_AT + END_LOG_POS_AT : FIRST_EVENT_AT + FLAGS_AT], "little")
    size = (
        end - FIRST_EVENT_AT
        if end and end - FIRST_EVENT_AT != declared_size and _has_event_header_at(log_bytes, end)
        else declared_size
    )
    expected_bytes = {4: EventType.FORMAT_DESCRIPTION.value, HEADER_SIZE: 4, HEADER_SIZE + 1: 0}
    expected_bytes |= dict(enumerate(size.to_bytes(4, "little"), EVENT_SIZE_AT))
    differences = [
        (at, log_bytes[FIRST_EVENT_AT + at] ^ value)
        for at, value in expected_bytes.items()
        if log_bytes[FIRST_EVENT_AT + at] != value
    ]
    if (
        len(differences) == 1
        and differences[0][1].bit_count() == 1
        and _has_event_header_at(log_bytes, FIRST_EVENT_AT + size)
    ):
        yield FIRST_EVENT_AT + differences[0][0], differences[0][1].bit_length() - 1, _BY_EVENTS, size


def _has_event_header_at(log_bytes: bytes, at: int) -> bool:
    """Return whether an event header with a matching end_log_pos begins at `data[at]`."""
    head = log_bytes[at : at + HEADER_SIZE]
    size, end = (int.from_bytes(head[low : low + 4], "little") for low in (EVENT_SIZE_AT, END_LOG_POS_AT))
    return len(head) == HEADER_SIZE and size >= HEADER_SIZE and end == at + size
