"""Single flipped bits in FORMAT_DESCRIPTION, located by the event's checksum or by the events after it."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, MAGIC, EventType
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.detecting import FileHead
from binlogtool.formats.heads import HeaderFlip, correct_head, find_flip_by_checksum
from binlogtool.formats.mysql_binlog.layout.description import clear_in_use_flag, read_description
from binlogtool.formats.mysql_binlog.layout.layout import FIRST_EVENT_AT

_SIZE_AT, _END_AT, _FLAGS_AT = 9, 13, 17
_MIN_SIZE, _MAX_SIZE = HEADER_SIZE + 57, 4096
_BY_CHECKSUM = "its checksum proves it"
_BY_EVENTS = "the events behind it prove it"


def find_header_flips(head: FileHead) -> Iterator[HeaderFlip]:
    """Yield the flipped bit in the beginning of a file (`formats.heads`); a wrong magic prevents no reading."""
    data = head.data
    if len(data) < FIRST_EVENT_AT + _MIN_SIZE or not data.startswith(MAGIC):
        return
    for byte, bit, proof, size in _find_flips(data):
        flip = HeaderFlip(byte, bit, proof, FIRST_EVENT_AT, size)
        description = read_description(correct_head(head, flip).data, FIRST_EVENT_AT)
        if description is not None and description.header_length == HEADER_SIZE:
            yield flip
            return


def _find_flips(data: bytes) -> Iterator[tuple[int, int, str, int]]:
    """Yield byte, bit, proof and event size: by the checksum, else by what every such event has."""
    declared_size = int.from_bytes(data[FIRST_EVENT_AT + _SIZE_AT : FIRST_EVENT_AT + _END_AT], "little")
    description = read_description(data, FIRST_EVENT_AT)
    end = int.from_bytes(data[FIRST_EVENT_AT + _END_AT : FIRST_EVENT_AT + _FLAGS_AT], "little")
    has_valid_size = end in (0, FIRST_EVENT_AT + declared_size) or (
        description is not None and _is_checksum_valid(clear_in_use_flag(description.event))
    )
    if description is not None and description.header_length == HEADER_SIZE and has_valid_size:
        return  # the events after it are readable; other faults are reported as usual
    event = data[FIRST_EVENT_AT : FIRST_EVENT_AT + declared_size]
    if _MIN_SIZE <= declared_size <= min(_MAX_SIZE, len(data) - FIRST_EVENT_AT):
        event = clear_in_use_flag(event)
        flip = find_flip_by_checksum(CRC32, event, declared_size - CHECKSUM_SIZE, FIRST_EVENT_AT)
        if flip is not None:
            yield (*flip, _BY_CHECKSUM, declared_size)
    for bit in range(32):
        size = declared_size ^ 1 << bit
        if _MIN_SIZE <= size <= min(_MAX_SIZE, len(data) - FIRST_EVENT_AT):
            byte = FIRST_EVENT_AT + _SIZE_AT + bit // 8
            changed = bytearray(data[FIRST_EVENT_AT : FIRST_EVENT_AT + size])
            changed[_SIZE_AT + bit // 8] ^= 1 << bit % 8
            if _is_checksum_valid(clear_in_use_flag(bytes(changed))):
                yield byte, bit % 8, _BY_CHECKSUM, size
    yield from _find_flip_by_next_events(data, declared_size)


def _find_flip_by_next_events(data: bytes, declared_size: int) -> Iterator[tuple[int, int, str, int]]:
    """Yield a flip for servers without checksums: an invalid type, size or version; events must follow.

    The header length is not corrected: there were servers with longer headers (23 bytes), whose events also
    follow each other.
    """
    end = int.from_bytes(data[FIRST_EVENT_AT + _END_AT : FIRST_EVENT_AT + _FLAGS_AT], "little")
    size = (
        end - FIRST_EVENT_AT
        if end and end - FIRST_EVENT_AT != declared_size and _is_event_at(data, end)
        else declared_size
    )
    expected_bytes = {4: EventType.FORMAT_DESCRIPTION.value, HEADER_SIZE: 4, HEADER_SIZE + 1: 0}
    expected_bytes |= dict(enumerate(size.to_bytes(4, "little"), _SIZE_AT))
    differences = [
        (at, data[FIRST_EVENT_AT + at] ^ value)
        for at, value in expected_bytes.items()
        if data[FIRST_EVENT_AT + at] != value
    ]
    if len(differences) == 1 and differences[0][1].bit_count() == 1 and _is_event_at(data, FIRST_EVENT_AT + size):
        yield FIRST_EVENT_AT + differences[0][0], differences[0][1].bit_length() - 1, _BY_EVENTS, size


def _is_event_at(data: bytes, at: int) -> bool:
    """Return whether an event is here whose end_log_pos matches."""
    head = data[at : at + HEADER_SIZE]
    size, end = (int.from_bytes(head[low : low + 4], "little") for low in (_SIZE_AT, _END_AT))
    return len(head) == HEADER_SIZE and size >= HEADER_SIZE and end == at + size


def _is_checksum_valid(event: bytes) -> bool:
    """Return whether the checksum of an event is correct."""
    return CRC32(event[:-CHECKSUM_SIZE]) == int.from_bytes(event[-CHECKSUM_SIZE:], "little")
