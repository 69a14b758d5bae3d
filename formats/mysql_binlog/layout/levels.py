"""Frame levels of a log: the chain of events in each format that servers write."""

from __future__ import annotations

import re
from functools import cache, partial

from construct import Construct
from msgspec.structs import replace

from binlogtool.formats.binlog_events.codes import HEADER_SIZE, EventType
from binlogtool.formats.binlog_events.events.schema import (
    CLEAR,
    COLUMNS,
    EVENTS,
    SEALED,
    Form,
    all_bodies,
    event_schema,
)
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.stream.proofs import prove, prove_checked, witnessed
from binlogtool.formats.binlog_events.wire.compression import unpack_payload
from binlogtool.formats.binlog_events.wire.header import END_AT, FLAGS_AT, SIZE_AT
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.layouts import FrameLevel, InnerLevel
from binlogtool.formats.mysql_binlog.layout.description import (
    checksum_right,
    description_at,
    foreign,
    form_of,
    misread,
)
from binlogtool.limits import MIB

LARGEST = 256 * MIB
"""Default ceiling of one event in bytes; servers write up to 1 GiB."""
_TYPED = rb".{4}[\x01-\x3f\xa0-\xbf]"
"""MySQL numbers its types from 1, MariaDB its own from 160: those of newer servers are found behind a damage, too."""
_SIZED = rb".{4}.{3}[\x00-\x40].{4}.[\x00-\x03\x40-\x43\x80-\x83\xc0-\xc3]"
"""A common header: a size below 1 GiB, known flags (section 12)."""


def _start(smallest: int) -> bytes:
    """Return the pattern of a common header whose size is not below the smallest event."""
    return _TYPED + rb"(?!.{4}[\x00-" + re.escape(bytes([smallest - 1])) + rb"]\x00{3})" + _SIZED


def _claims(head: bytes) -> int | None:
    """Return the offset that an event claims: end_log_pos less its size; None for events made up by the server."""
    size, end = int.from_bytes(head[SIZE_AT:END_AT], "little"), int.from_bytes(head[END_AT:FLAGS_AT], "little")
    return end - size if len(head) >= HEADER_SIZE and end >= size > 0 else None


@cache
def level(form: Form) -> FrameLevel:
    """Return the frame level of an event format, one for all files."""
    return FrameLevel(
        name="event",
        schema=EVENTS[form],
        columns=COLUMNS,
        sync=_start(HEADER_SIZE + 4 * (form is Form.CRC)),
        min_size=HEADER_SIZE,
        max_size=LARGEST,
        declared="event_size",
        prove=prove_checked if form is Form.CRC else prove,
        witness=None if form is Form.CRC else witnessed,
        checksum=CRC32,
        claims=_claims,
        stored="crc32",
        covered=("offset", "body_end"),
        trailing=0 if form is Form.CRC else None,
        turn=_turn,
        shown=partial(_shown, form),
    )


def _shown(form: Form, context: FileContext) -> Construct:
    """Return the schema of the events with the table maps of this file."""
    described, lookup = context.description, context.tracker.maps.by_id.get
    return event_schema(form, all_bodies(lookup, described.table_id_size, described.is_mariadb))


SEALED_LEVEL = FrameLevel(
    name="event", schema=SEALED, columns=COLUMNS, sync=None, min_size=HEADER_SIZE, max_size=LARGEST, checksum=CRC32,
    stored="crc32", covered=("offset", "body_end"),
)  # fmt: skip


def clear_level(form: Form) -> FrameLevel:
    """Return the level of the events before the encrypted ones; everything else there is encrypted."""
    return replace(SEALED_LEVEL, schema=CLEAR[form], turn=_turn)


def _turn(data: bytes, context: FileContext) -> FrameLevel | None:
    """Return the level after a FORMAT_DESCRIPTION inside of a relay log; None if the event is not valid."""
    if context.sealed:
        return SEALED_LEVEL
    described = description_at(data, 0)
    if described is None or foreign(described) or not checksum_right(data, 0, described) or misread(described):
        return None
    context.description = described
    context.tracker.maps.mariadb = described.is_mariadb
    return level(form_of(described))


INNER = InnerLevel(
    frame=FrameLevel(
        name="event", schema=EVENTS[Form.BARE], columns=COLUMNS, sync=None, min_size=HEADER_SIZE, max_size=LARGEST
    ),
    selector="type_code",
    holders=frozenset({EventType.TRANSACTION_PAYLOAD.value}),
    start="body_start",
    end="body_end",
    unpack=unpack_payload,
)
