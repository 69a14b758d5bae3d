"""The event on disk: one frame, in the three forms that depend on checksum_alg.

See docs/spec/mysql_binlog.md#format_description-and-checksums.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from construct import (
    Bytes,
    Check,
    Computed,
    Construct,
    GreedyRange,
    If,
    IfThenElse,
    Int32ul,
    Struct,
    Switch,
    Tell,
    stream_read,
    stream_seek,
    stream_tell,
    this,
)

from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, MAX_EVENT_SIZE, EventFlag, EventType
from binlogtool.formats.binlog_events.crypt.headers import ENCRYPTED_EVENT_HEAD
from binlogtool.formats.binlog_events.events.bodies import (
    BODIES,
    payload_construct,
    payload_event_constructs,
    row_event_constructs,
)
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.rows.table_map_view import table_map_construct
from binlogtool.formats.binlog_events.wire.compression import unpack_payload
from binlogtool.formats.binlog_events.wire.header import HEADER
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.fields import CrcCheck, MalformedError, NestedSchema, ScalarKernel, kernel
from binlogtool.formats.kernel_types import UInt8s

SCAN_COLUMNS = (
    "timestamp",
    "type_code",
    "server_id",
    "event_size",
    "end_log_pos",
    "flags",
    "body_start",
    "body_end",
    "crc32",
)
"""What the scanner gives for each event, in every form. `crc32` is 0 where there is none."""

_DESCRIPTION = EventType.FORMAT_DESCRIPTION.value
_MAX_DESCRIPTION_BYTES = 4096


class EventForm(enum.IntEnum):
    """How events end (docs/spec/mysql_binlog.md#format_description-and-checksums).

    BARE: servers without checksums; PLAIN: checksum_alg 0, only FORMAT_DESCRIPTION ends with a checksum; CRC: every
    event does.
    """

    BARE = 1
    PLAIN = 2
    CRC = 3


@kernel()
def find_event_form(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Determine the `EventForm` that the FORMAT_DESCRIPTION with its body at `buf[pos]` demands; consumes no bytes."""
    size = buf[pos - 10] | buf[pos - 9] << 8 | buf[pos - 8] << 16 | buf[pos - 7] << 24
    if size < 19 + 57 or size > 4096:
        return 0, -2
    if size - 19 > limit - pos:
        return 0, -1
    major = 0
    minor = 0
    patch = 0
    number = 0
    cursor = pos + 2
    while cursor < pos + 12:
        digit = buf[cursor] - 48
        cursor += 1
        if digit >= 0 and digit <= 9:
            if number == 0:
                major = major * 10 + digit
            elif number == 1:
                minor = minor * 10 + digit
            elif number == 2:
                patch = patch * 10 + digit
        elif digit == -2:
            number += 1
        else:
            cursor = pos + 12
    is_mariadb = 0
    for i in range(pos + 2, pos + 45):
        if buf[i] == 77 and buf[i + 1] == 97 and buf[i + 2] == 114 and buf[i + 3] == 105 and buf[i + 4] == 97:
            is_mariadb = 1
    version = major * 1000000 + minor * 1000 + patch
    if version < 5003000 or (is_mariadb == 0 and version < 5006001):
        return 1, pos
    if buf[pos - 19 + size - 5] == 1:
        return 3, pos
    return 2, pos


@kernel()
def compute_in_use_crc_change(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Compute how the in-use flag of the FORMAT_DESCRIPTION with its body at `buf[pos]` changes its CRC-32.

    Consumes no bytes. A CRC is linear: the difference is the CRC register of a single one bit, followed by zeros.
    """
    size = buf[pos - 10] | buf[pos - 9] << 8 | buf[pos - 8] << 16 | buf[pos - 7] << 24
    if buf[pos - 2] & 1 == 0 or size < 23 or size > 4096:
        return 0, pos
    register = 1
    for _ in range(8 * (size - 4 - 17)):
        if register & 1:
            register = register >> 1 ^ 0xEDB88320
        else:
            register = register >> 1
    return register, pos


class HeaderDerivedNumber(Computed):  # type: ignore[misc]
    """Construct of a number without bytes, which a kernel computes from the common header and the body around it."""

    def __init__(self, read: Callable[..., tuple[int, int]]) -> None:
        super().__init__(None)
        self.scan = ScalarKernel(read)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        offset = stream_tell(stream, path)
        stream_seek(stream, offset - HEADER_SIZE, 0, path)
        data = stream.read(_MAX_DESCRIPTION_BYTES)
        stream_seek(stream, offset, 0, path)
        value, status = self.scan.read(data, HEADER_SIZE, len(data))
        if status == -1:
            stream_read(stream, len(data) + 1, path)
        if status < 0:
            raise MalformedError("FORMAT_DESCRIPTION has an impossible size", path, "bad-header")
        return value


_HEADER_TO_SIZE, _HEADER_AFTER_SIZE = HEADER.subcons[:4], HEADER.subcons[4:]


def event_construct(form: EventForm, bodies: Mapping[int, Construct]) -> Construct:
    """Return the construct of one event; a FORMAT_DESCRIPTION only fits if it demands the same form.

    Args:
        bodies: constructs of the bodies by type.
    """
    is_description = this.type_code == _DESCRIPTION
    checksum_size = CHECKSUM_SIZE if form is EventForm.CRC else 0
    min_event_size = HEADER_SIZE + checksum_size
    checksum_bytes = (
        IfThenElse(is_description, Computed(CHECKSUM_SIZE), Computed(0))
        if form is EventForm.PLAIN
        else Computed(checksum_size)
    )
    fields = [
        "start" / Tell,
        *_HEADER_TO_SIZE,
        Check(this.event_size >= min_event_size),
        Check(this.event_size <= MAX_EVENT_SIZE),
        *_HEADER_AFTER_SIZE,
        "form" / IfThenElse(is_description, HeaderDerivedNumber(find_event_form), Computed(form.value)),
        Check(this.form == form.value),
        "in_use" / IfThenElse(is_description, HeaderDerivedNumber(compute_in_use_crc_change), Computed(0)),
        "body_start" / Tell,
        "tail" / checksum_bytes,
        "body" / NestedSchema(Bytes(this.event_size - HEADER_SIZE - this.tail), Switch(this.type_code, dict(bodies))),
        "body_end" / Tell,
    ]
    if form is EventForm.CRC:
        fields += [
            "crc32" / Int32ul,
            "checksum" / CrcCheck(CRC32, this.crc32, this.start, this.body_end, without=this.in_use),
        ]
    elif form is EventForm.PLAIN:
        fields += ["crc32" / If(is_description, Int32ul)]
    else:
        fields += ["crc32" / Computed(0)]
    return Struct(*fields)


ENCRYPTED_TYPE = 255
"""Stands for the type of an encrypted event; no event has it."""

ENCRYPTED_EVENT_FRAME = Struct(
    *ENCRYPTED_EVENT_HEAD.subcons,
    "timestamp" / Computed(0),
    "type_code" / Computed(ENCRYPTED_TYPE),
    "server_id" / Computed(0),
    "end_log_pos" / Computed(0),
    "flags" / Computed(0),
    "body_start" / Computed(this.start + HEADER_SIZE),
    "body_end" / Tell,
    "crc32" / Computed(0),
)
"""An encrypted event without the key, with the columns of the others; its type is none that exists."""

TableMapLookup = Callable[[int], TableMap | None]


def body_constructs(
    table_map_lookup: TableMapLookup, table_id_size: int = 6, mariadb: bool | None = None
) -> dict[int, Construct]:
    """Return the constructs of the bodies of every event type.

    Args:
        table_map_lookup: table id -> its current table map.
        mariadb: whether a MariaDB server wrote the log; None = unknown.
    """
    events = GreedyRange(event_construct(EventForm.BARE, payload_event_constructs(table_map_lookup, table_id_size)))
    return {
        **BODIES,
        **row_event_constructs(table_map_lookup, table_id_size),
        EventType.TABLE_MAP.value: table_map_construct(table_id_size, mariadb=mariadb),
        EventType.TRANSACTION_PAYLOAD.value: payload_construct(events, unpack_payload),
    }


def _find_no_map(table_id: int) -> None:
    return None


_OPAQUE_BODIES = body_constructs(_find_no_map)
EVENTS: Mapping[EventForm, Construct] = {form: event_construct(form, _OPAQUE_BODIES) for form in EventForm}
"""The three forms, with row images left as they are (`all_bodies` binds them to the table maps of a file)."""

_UNENCRYPTED_FLAGS = EventFlag.BINLOG_IN_USE | EventFlag.RELAY_LOG
_START_ENCRYPTION = EventType.START_ENCRYPTION.value


def _unencrypted_event_construct(form: EventForm) -> Construct:
    return Struct(
        *event_construct(form, _OPAQUE_BODIES).subcons,
        Check((this.type_code == _DESCRIPTION) | (this.type_code == _START_ENCRYPTION)),
        Check(this.flags & (0xFFFF ^ _UNENCRYPTED_FLAGS.value) == 0),
    )


UNENCRYPTED_EVENTS: Mapping[EventForm, Construct] = {form: _unencrypted_event_construct(form) for form in EventForm}
"""The events in front of the encrypted ones of a log: nothing else fits, whatever noise looks like."""
