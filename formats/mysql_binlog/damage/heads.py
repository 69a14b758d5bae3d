"""Single flipped bits in FORMAT_DESCRIPTION, located by the event's checksum or by the events after it."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, MAGIC, EventType
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.detecting import Head
from binlogtool.formats.heads import HeadFlip, by_checksum, corrected
from binlogtool.formats.mysql_binlog.layout.description import description_at, plain_event
from binlogtool.formats.mysql_binlog.layout.layout import FRAMES_AT

_SIZE, _END, _FLAGS = 9, 13, 17
_SMALLEST, _LARGEST = HEADER_SIZE + 57, 4096
_BY_CHECKSUM = "its checksum proves it"
_BY_EVENTS = "the events behind it prove it"


def heads(head: Head) -> Iterator[HeadFlip]:
    """Yield the flipped bit in the beginning of a file (`formats.heads`); a wrong magic prevents no reading."""
    data = head.data
    if len(data) < FRAMES_AT + _SMALLEST or not data.startswith(MAGIC):
        return
    for byte, bit, proof, size in _of_event(data):
        flip = HeadFlip(byte, bit, proof, FRAMES_AT, size)
        described = description_at(corrected(head, flip).data, FRAMES_AT)
        if described is not None and described.header_length == HEADER_SIZE:
            yield flip
            return


def _of_event(data: bytes) -> Iterator[tuple[int, int, str, int]]:
    """Yield byte, bit, proof and event size: by the checksum, else by what every such event has."""
    said = int.from_bytes(data[FRAMES_AT + _SIZE : FRAMES_AT + _END], "little")
    described = description_at(data, FRAMES_AT)
    end = int.from_bytes(data[FRAMES_AT + _END : FRAMES_AT + _FLAGS], "little")
    sized = end in (0, FRAMES_AT + said) or (described is not None and _crc_right(plain_event(described.event)))
    if described is not None and described.header_length == HEADER_SIZE and sized:
        return  # the events after it are readable; other faults are reported as usual
    event = data[FRAMES_AT : FRAMES_AT + said]
    if _SMALLEST <= said <= min(_LARGEST, len(data) - FRAMES_AT):
        event = plain_event(event)
        found = by_checksum(CRC32, event, said - CHECKSUM_SIZE, FRAMES_AT)
        if found is not None:
            yield (*found, _BY_CHECKSUM, said)
    for bit in range(32):
        size = said ^ 1 << bit
        if _SMALLEST <= size <= min(_LARGEST, len(data) - FRAMES_AT):
            byte = FRAMES_AT + _SIZE + bit // 8
            changed = bytearray(data[FRAMES_AT : FRAMES_AT + size])
            changed[_SIZE + bit // 8] ^= 1 << bit % 8
            if _crc_right(plain_event(bytes(changed))):
                yield byte, bit % 8, _BY_CHECKSUM, size
    yield from _by_events(data, said)


def _by_events(data: bytes, said: int) -> Iterator[tuple[int, int, str, int]]:
    """Yield a flip for servers without checksums: an invalid type, size or version; events must follow.

    The header length is not corrected: there were servers with longer headers (23 bytes), whose events also
    follow each other.
    """
    end = int.from_bytes(data[FRAMES_AT + _END : FRAMES_AT + _FLAGS], "little")
    size = end - FRAMES_AT if end and end - FRAMES_AT != said and _chained(data, end) else said
    wanted = {4: EventType.FORMAT_DESCRIPTION.value, HEADER_SIZE: 4, HEADER_SIZE + 1: 0}
    wanted |= dict(enumerate(size.to_bytes(4, "little"), _SIZE))
    wrong = [(at, data[FRAMES_AT + at] ^ value) for at, value in wanted.items() if data[FRAMES_AT + at] != value]
    if len(wrong) == 1 and wrong[0][1].bit_count() == 1 and _chained(data, FRAMES_AT + size):
        yield FRAMES_AT + wrong[0][0], wrong[0][1].bit_length() - 1, _BY_EVENTS, size


def _chained(data: bytes, at: int) -> bool:
    """Return whether an event is here whose end_log_pos matches."""
    head = data[at : at + HEADER_SIZE]
    size, end = (int.from_bytes(head[low : low + 4], "little") for low in (_SIZE, _END))
    return len(head) == HEADER_SIZE and size >= HEADER_SIZE and end == at + size


def _crc_right(event: bytes) -> bool:
    """Return whether the checksum of an event is correct."""
    return CRC32(event[:-CHECKSUM_SIZE]) == int.from_bytes(event[-CHECKSUM_SIZE:], "little")
