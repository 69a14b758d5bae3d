"""Frame levels of a log: the chain of events in each format that servers write."""

from __future__ import annotations

import re
from functools import cache, partial

from construct import Construct
from msgspec.structs import replace

from binlogtool.formats.binlog_events.codes import HEADER_SIZE, EventType
from binlogtool.formats.binlog_events.events.schema import (
    ENCRYPTED_EVENT_FRAME,
    EVENTS,
    SCAN_COLUMNS,
    UNENCRYPTED_EVENTS,
    EventForm,
    body_constructs,
    event_construct,
)
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.binlog_events.stream.proofs import (
    is_proven_despite_checksum,
    is_proven_event,
    record_prior_events,
)
from binlogtool.formats.binlog_events.wire.compression import unpack_payload
from binlogtool.formats.binlog_events.wire.header import END_LOG_POS_AT, EVENT_SIZE_AT, FLAGS_AT
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.layouts import FrameLevel, InnerLevel
from binlogtool.formats.mysql_binlog.layout.description import (
    find_incompatibility,
    get_event_form,
    has_contradicting_version,
    is_checksum_valid,
    read_description,
)
from binlogtool.limits import MIB

DEFAULT_MAX_EVENT = 256 * MIB
"""Default ceiling of one event in bytes; servers write up to 1 GiB."""
_KNOWN_TYPE = rb".{4}[\x01-\x3f\xa0-\xbf]"
"""MySQL numbers its types from 1, MariaDB its own from 160: those of newer servers are found behind a damage, too."""
_PLAUSIBLE_SIZE = rb".{4}.{3}[\x00-\x40].{4}.[\x00-\x03\x40-\x43\x80-\x83\xc0-\xc3]"
"""A common header: a size below 1 GiB, known flags (docs/spec/mysql_binlog.md#resynchronization)."""


def _header_pattern(smallest: int) -> bytes:
    """Return the pattern of a common header whose size is not below the smallest event."""
    return _KNOWN_TYPE + rb"(?!.{4}[\x00-" + re.escape(bytes([smallest - 1])) + rb"]\x00{3})" + _PLAUSIBLE_SIZE


def _claimed_offset(head: bytes) -> int | None:
    """Return the offset that an event claims: end_log_pos less its size; None for events made up by the server."""
    size, end = (
        int.from_bytes(head[EVENT_SIZE_AT:END_LOG_POS_AT], "little"),
        int.from_bytes(head[END_LOG_POS_AT:FLAGS_AT], "little"),
    )
    return end - size if len(head) >= HEADER_SIZE and end >= size > 0 else None


@cache
def get_level(form: EventForm) -> FrameLevel:
    """Return the frame level of an event format, one for all files."""
    return FrameLevel(
        name="event",
        schema=EVENTS[form],
        columns=SCAN_COLUMNS,
        sync=_header_pattern(HEADER_SIZE + 4 * (form is EventForm.CRC)),
        min_size=HEADER_SIZE,
        max_size=DEFAULT_MAX_EVENT,
        length_field="event_size",
        prove=is_proven_despite_checksum if form is EventForm.CRC else is_proven_event,
        observe=None if form is EventForm.CRC else record_prior_events,
        checksum=CRC32,
        claimed_offset=_claimed_offset,
        stored="crc32",
        covered=("offset", "body_end"),
        trailing=0 if form is EventForm.CRC else None,
        next_level=_next_level,
        annotated_schema=partial(_annotated_schema, form),
    )


def _annotated_schema(form: EventForm, context: BinlogFileContext) -> Construct:
    """Return the schema of the events with the table maps of this file."""
    description, find_map = context.description, context.tracker.maps.by_id.get
    return event_construct(form, body_constructs(find_map, description.table_id_size, description.is_mariadb))


ENCRYPTED_LEVEL = FrameLevel(
    name="event", schema=ENCRYPTED_EVENT_FRAME, columns=SCAN_COLUMNS, sync=None, min_size=HEADER_SIZE,
    max_size=DEFAULT_MAX_EVENT, checksum=CRC32,
    stored="crc32", covered=("offset", "body_end"),
)  # fmt: skip


def get_plain_level(form: EventForm) -> FrameLevel:
    """Return the level of the events before the encrypted ones; everything else there is encrypted."""
    return replace(ENCRYPTED_LEVEL, schema=UNENCRYPTED_EVENTS[form], next_level=_next_level)


def _next_level(data: bytes, context: BinlogFileContext) -> FrameLevel | None:
    """Return the level after a FORMAT_DESCRIPTION inside of a relay log; None if the event is not valid."""
    if context.encrypted_without_key:
        return ENCRYPTED_LEVEL
    description = read_description(data, 0)
    if (
        description is None
        or find_incompatibility(description)
        or not is_checksum_valid(data, 0, description)
        or has_contradicting_version(description)
    ):
        return None
    context.description = description
    context.tracker.maps.is_mariadb = description.is_mariadb
    return get_level(get_event_form(description))


PAYLOAD_LEVEL = InnerLevel(
    frame=FrameLevel(
        name="event",
        schema=EVENTS[EventForm.BARE],
        columns=SCAN_COLUMNS,
        sync=None,
        min_size=HEADER_SIZE,
        max_size=DEFAULT_MAX_EVENT,
    ),
    selector="type_code",
    holders=frozenset({EventType.TRANSACTION_PAYLOAD.value}),
    start="body_start",
    end="body_end",
    unpack=unpack_payload,
)
