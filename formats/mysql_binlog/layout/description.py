"""The FORMAT_DESCRIPTION event at the beginning of a log: validity, and the format of the events after it."""

from __future__ import annotations

import zlib

from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, EventFlag, EventType
from binlogtool.formats.binlog_events.events.schema import Form
from binlogtool.formats.binlog_events.wire.description import FormatDescription, parse_description
from binlogtool.formats.binlog_events.wire.header import END_AT, FLAGS_AT, SIZE_AT, TYPE_AT
from binlogtool.formats.fields import MalformedError

_MOST_TYPES_BARE = 29
"""No server that writes no checksums knows more types of events."""


def description_at(data: bytes, at: int) -> FormatDescription | None:
    """Read the FORMAT_DESCRIPTION event at `data[at:]`; None if there is none."""
    if len(data) < at + HEADER_SIZE or data[at + TYPE_AT] != EventType.FORMAT_DESCRIPTION:
        return None
    size = int.from_bytes(data[at + SIZE_AT : at + END_AT], "little")
    try:
        described = parse_description(data[at : at + size])
    except MalformedError:
        return None
    return described if described.size == size and described.binlog_version == 4 else None


def foreign(described: FormatDescription) -> str | None:
    """Return why the events after this FORMAT_DESCRIPTION cannot be read; None if they can."""
    if described.header_length != HEADER_SIZE:
        return f"its events have headers of {described.header_length} bytes; only {HEADER_SIZE} is read"
    if "a_drop" in described.server_version:
        return f"{described.server_version} numbers the types of its events in its own way"
    return None


def form_of(described: FormatDescription) -> Form:
    """Return the format of the events after a FORMAT_DESCRIPTION."""
    if described.checksum_alg is None:
        return Form.BARE
    return Form.CRC if described.has_checksums else Form.PLAIN


def plain_event(event: bytes) -> bytes:
    """Return a FORMAT_DESCRIPTION event without the in-use flag, as its checksum was computed."""
    return event[:FLAGS_AT] + bytes([event[FLAGS_AT] & ~EventFlag.BINLOG_IN_USE & 0xFF]) + event[FLAGS_AT + 1 :]


def checksum_right(data: bytes, at: int, described: FormatDescription) -> bool:
    """Return whether the checksum of the FORMAT_DESCRIPTION is correct or absent."""
    if described.checksum_alg is None:
        return True
    event = plain_event(data[at : at + described.size])
    return zlib.crc32(event[:-CHECKSUM_SIZE]) == int.from_bytes(event[-CHECKSUM_SIZE:], "little")


def form_by_next(data: bytes, at: int, described: FormatDescription) -> Form | None:
    """Infer the event format from the event after a damaged FORMAT_DESCRIPTION; None if its checksum is no proof."""
    start = at + described.size
    size = int.from_bytes(data[start + SIZE_AT : start + END_AT], "little")
    event = data[start : start + size]
    if size < HEADER_SIZE + CHECKSUM_SIZE or len(event) != size:
        return None
    right = zlib.crc32(event[:-CHECKSUM_SIZE]) == int.from_bytes(event[-CHECKSUM_SIZE:], "little")
    return Form.CRC if right else None


def misread(described: FormatDescription) -> bool:
    """Return whether the version is of a server without checksums while the event is another server's.

    Nothing proves such an event.
    """
    return described.checksum_alg is None and len(described.post_header_len) > _MOST_TYPES_BARE
