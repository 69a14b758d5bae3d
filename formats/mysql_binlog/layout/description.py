"""The FORMAT_DESCRIPTION event at the beginning of a log: validity, and the format of the events after it."""

from __future__ import annotations

import zlib

from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, EventFlag, EventType
from binlogtool.formats.binlog_events.events.schema import EventForm
from binlogtool.formats.binlog_events.wire.description import FormatDescription, parse_description
from binlogtool.formats.binlog_events.wire.header import END_LOG_POS_AT, EVENT_SIZE_AT, FLAGS_AT, TYPE_AT
from binlogtool.formats.fields import MalformedError

_MAX_TYPES_WITHOUT_CHECKSUMS = 29
"""No server that writes no checksums knows more types of events."""


def read_description(data: bytes, at: int) -> FormatDescription | None:
    """Read the FORMAT_DESCRIPTION event at `data[at:]`; None if there is none."""
    if len(data) < at + HEADER_SIZE or data[at + TYPE_AT] != EventType.FORMAT_DESCRIPTION:
        return None
    size = int.from_bytes(data[at + EVENT_SIZE_AT : at + END_LOG_POS_AT], "little")
    try:
        description = parse_description(data[at : at + size])
    except MalformedError:
        return None
    return description if description.size == size and description.binlog_version == 4 else None


def find_incompatibility(description: FormatDescription) -> str | None:
    """Return why the events after this FORMAT_DESCRIPTION cannot be read; None if they can."""
    if description.header_length != HEADER_SIZE:
        return f"its events have headers of {description.header_length} bytes; only {HEADER_SIZE} is read"
    if "a_drop" in description.server_version:
        return f"{description.server_version} numbers the types of its events in its own way"
    return None


def get_event_form(description: FormatDescription) -> EventForm:
    """Return the format of the events after a FORMAT_DESCRIPTION."""
    if description.checksum_alg is None:
        return EventForm.BARE
    return EventForm.CRC if description.has_checksums else EventForm.PLAIN


def clear_in_use_flag(event: bytes) -> bytes:
    """Return a FORMAT_DESCRIPTION event without the in-use flag, as its checksum was computed."""
    return event[:FLAGS_AT] + bytes([event[FLAGS_AT] & ~EventFlag.BINLOG_IN_USE & 0xFF]) + event[FLAGS_AT + 1 :]


def is_checksum_valid(data: bytes, at: int, description: FormatDescription) -> bool:
    """Return whether the checksum of the FORMAT_DESCRIPTION is correct or absent."""
    if description.checksum_alg is None:
        return True
    event = clear_in_use_flag(data[at : at + description.size])
    return zlib.crc32(event[:-CHECKSUM_SIZE]) == int.from_bytes(event[-CHECKSUM_SIZE:], "little")


def infer_form_from_next(data: bytes, at: int, description: FormatDescription) -> EventForm | None:
    """Infer the event format from the event after a damaged FORMAT_DESCRIPTION; None if its checksum is no proof."""
    start = at + description.size
    size = int.from_bytes(data[start + EVENT_SIZE_AT : start + END_LOG_POS_AT], "little")
    event = data[start : start + size]
    if size < HEADER_SIZE + CHECKSUM_SIZE or len(event) != size:
        return None
    is_valid = zlib.crc32(event[:-CHECKSUM_SIZE]) == int.from_bytes(event[-CHECKSUM_SIZE:], "little")
    return EventForm.CRC if is_valid else None


def has_contradicting_version(description: FormatDescription) -> bool:
    """Return whether the version is of a server without checksums while the event is another server's.

    Nothing proves such an event.
    """
    return description.checksum_alg is None and len(description.post_header_len) > _MAX_TYPES_WITHOUT_CHECKSUMS
