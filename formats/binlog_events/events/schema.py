"""The event on disk: one frame, in the three forms that depend on checksum_alg.

See docs/spec/mysql-mariadb-binlog.md#3-format_description-15-and-checksums-v.
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

from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, MAX_EVENT, EventFlag, EventType
from binlogtool.formats.binlog_events.crypt.headers import SEALED_EVENT
from binlogtool.formats.binlog_events.events.bodies import BODIES, inner_bodies, payload_body, rows_body
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.rows.table_map_view import table_map_body
from binlogtool.formats.binlog_events.wire.compression import unpack_payload
from binlogtool.formats.binlog_events.wire.header import HEADER
from binlogtool.formats.checksums import CRC32
from binlogtool.formats.fields import CrcCheck, Expanded, MalformedError, ScalarKernel, kernel
from binlogtool.formats.kernel_types import UInt8s

COLUMNS = (
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
_LONGEST_DESCRIPTION = 4096


class Form(enum.IntEnum):
    """How events end (docs/spec/mysql-mariadb-binlog.md#3-format_description-15-and-checksums-v).

    BARE: servers without checksums; PLAIN: checksum_alg 0, only FORMAT_DESCRIPTION ends with a checksum; CRC: every
    event does.
    """

    BARE = 1
    PLAIN = 2
    CRC = 3


@kernel()
def description_form(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Determine the `EventForm` that the FORMAT_DESCRIPTION with its body at `buf[pos]` demands; consumes no bytes."""
    size = buf[p - 10] | buf[p - 9] << 8 | buf[p - 8] << 16 | buf[p - 7] << 24
    if size < 19 + 57 or size > 4096:
        return 0, -2
    if size - 19 > n - p:
        return 0, -1
    major = 0
    minor = 0
    patch = 0
    part = 0
    at = p + 2
    while at < p + 12:
        digit = buf[at] - 48
        at += 1
        if digit >= 0 and digit <= 9:
            if part == 0:
                major = major * 10 + digit
            elif part == 1:
                minor = minor * 10 + digit
            elif part == 2:
                patch = patch * 10 + digit
        elif digit == -2:
            part += 1
        else:
            at = p + 12
    maria = 0
    for i in range(p + 2, p + 45):
        if buf[i] == 77 and buf[i + 1] == 97 and buf[i + 2] == 114 and buf[i + 3] == 105 and buf[i + 4] == 97:
            maria = 1
    version = major * 1000000 + minor * 1000 + patch
    if version < 5003000 or (maria == 0 and version < 5006001):
        return 1, p
    if buf[p - 19 + size - 5] == 1:
        return 3, p
    return 2, p


@kernel()
def in_use_change(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Compute how the in-use flag of the FORMAT_DESCRIPTION with its body at `buf[pos]` changes its CRC-32.

    Consumes no bytes. A CRC is linear: the difference is the CRC register of a single one bit, followed by zeros.
    """
    size = buf[p - 10] | buf[p - 9] << 8 | buf[p - 8] << 16 | buf[p - 7] << 24
    if buf[p - 2] & 1 == 0 or size < 23 or size > 4096:
        return 0, p
    register = 1
    for _ in range(8 * (size - 4 - 17)):
        if register & 1:
            register = register >> 1 ^ 0xEDB88320
        else:
            register = register >> 1
    return register, p


class Derived(Computed):  # type: ignore[misc]
    """Construct of a number without bytes, which a kernel computes from the common header and the body around it."""

    def __init__(self, read: Callable[..., tuple[int, int]]) -> None:
        super().__init__(None)
        self.scan = ScalarKernel(read)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        here = stream_tell(stream, path)
        stream_seek(stream, here - HEADER_SIZE, 0, path)
        data = stream.read(_LONGEST_DESCRIPTION)
        stream_seek(stream, here, 0, path)
        value, reached = self.scan.read(data, HEADER_SIZE, len(data))
        if reached == -1:
            stream_read(stream, len(data) + 1, path)
        if reached < 0:
            raise MalformedError("FORMAT_DESCRIPTION has an impossible size", path, "bad-header")
        return value


_HEAD, _BEHIND_SIZE = HEADER.subcons[:4], HEADER.subcons[4:]


def event_schema(form: Form, bodies: Mapping[int, Construct]) -> Construct:
    """Return the construct of one event; a FORMAT_DESCRIPTION only fits if it demands the same form.

    Args:
        bodies: constructs of the bodies by type.
    """
    is_description = this.type_code == _DESCRIPTION
    tail = CHECKSUM_SIZE if form is Form.CRC else 0
    smallest = HEADER_SIZE + tail
    own = IfThenElse(is_description, Computed(CHECKSUM_SIZE), Computed(0)) if form is Form.PLAIN else Computed(tail)
    fields = [
        "start" / Tell,
        *_HEAD,
        Check(this.event_size >= smallest),
        Check(this.event_size <= MAX_EVENT),
        *_BEHIND_SIZE,
        "form" / IfThenElse(is_description, Derived(description_form), Computed(form.value)),
        Check(this.form == form.value),
        "in_use" / IfThenElse(is_description, Derived(in_use_change), Computed(0)),
        "body_start" / Tell,
        "tail" / own,
        "body" / Expanded(Bytes(this.event_size - HEADER_SIZE - this.tail), Switch(this.type_code, dict(bodies))),
        "body_end" / Tell,
    ]
    if form is Form.CRC:
        fields += [
            "crc32" / Int32ul,
            "checksum" / CrcCheck(CRC32, this.crc32, this.start, this.body_end, without=this.in_use),
        ]
    elif form is Form.PLAIN:
        fields += ["crc32" / If(is_description, Int32ul)]
    else:
        fields += ["crc32" / Computed(0)]
    return Struct(*fields)


SEALED_TYPE = 255
"""Stands for the type of an encrypted event; no event has it."""

SEALED = Struct(
    *SEALED_EVENT.subcons,
    "timestamp" / Computed(0),
    "type_code" / Computed(SEALED_TYPE),
    "server_id" / Computed(0),
    "end_log_pos" / Computed(0),
    "flags" / Computed(0),
    "body_start" / Computed(this.start + HEADER_SIZE),
    "body_end" / Tell,
    "crc32" / Computed(0),
)
"""An encrypted event without the key, with the columns of the others; its type is none that exists."""

Lookup = Callable[[int], TableMap | None]


def all_bodies(lookup: Lookup, table_id_size: int = 6, mariadb: bool | None = None) -> dict[int, Construct]:
    """Return the constructs of the bodies of every event type.

    Args:
        table_map_lookup: table id -> its current table map.
        mariadb: whether a MariaDB server wrote the log; None = unknown.
    """
    events = GreedyRange(event_schema(Form.BARE, inner_bodies(lookup, table_id_size)))
    return {
        **BODIES,
        **rows_body(lookup, table_id_size),
        EventType.TABLE_MAP.value: table_map_body(table_id_size, mariadb=mariadb),
        EventType.TRANSACTION_PAYLOAD.value: payload_body(events, unpack_payload),
    }


def _nothing(table_id: int) -> None:
    return None


_UNBOUND = all_bodies(_nothing)
EVENTS: Mapping[Form, Construct] = {form: event_schema(form, _UNBOUND) for form in Form}
"""The three forms, with row images left as they are (`all_bodies` binds them to the table maps of a file)."""

_CLEAR_FLAGS = EventFlag.BINLOG_IN_USE | EventFlag.RELAY_LOG
_START_ENCRYPTION = EventType.START_ENCRYPTION.value


def _clear(form: Form) -> Construct:
    return Struct(
        *event_schema(form, _UNBOUND).subcons,
        Check((this.type_code == _DESCRIPTION) | (this.type_code == _START_ENCRYPTION)),
        Check(this.flags & (0xFFFF ^ _CLEAR_FLAGS.value) == 0),
    )


CLEAR: Mapping[Form, Construct] = {form: _clear(form) for form in Form}
"""The events in front of the encrypted ones of a log: nothing else fits, whatever noise looks like."""
