"""Rules about single events, positions, row events, commit marks and compressed transactions.

Source: docs/spec/mysql_binlog.md#common-header and #validation (rules 4, 5, 7, 8, 9 and 13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from binlogtool.findings import Severity
from binlogtool.format_api.layout import Batch, Kernel
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError, make_tuple_decoder
from binlogtool.formats.binlog_events.decode import TableMaps, type_name
from binlogtool.formats.binlog_events.event_schemas import (
    XA_PREPARE_SIZES,
    Event,
    EventFault,
    decode_body,
    get_event,
    parse_query,
    parse_xa_prepare,
    parse_xid,
)
from binlogtool.formats.binlog_events.rows.rows_event import DUMMY_TABLE_ID, count_rows, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import (
    PAD,
    UNKNOWN_FRACTIONS,
    TableMap,
    build_row_event_template,
    parse_table_map,
)
from binlogtool.formats.binlog_events.rows.write_rows_json_kernels import count_image_rows
from binlogtool.formats.binlog_events.status_variables import decode_status_variables
from binlogtool.formats.binlog_events.transactions.boundaries import (
    AFTER_GTID,
    EVENTS_OUTSIDE_GROUPS,
    NO_GROUP,
    GroupStep,
    QueryKind,
    TransactionGroupState,
    XaId,
    XaStates,
    get_query_kind,
    parse_xa_finish,
)
from binlogtool.formats.binlog_events.wire_format import (
    COMPRESSED_ROW_EVENTS,
    EVENT_TYPE_NAMES,
    GTID_EVENTS,
    KNOWN_FLAGS,
    QUERY_EVENTS,
    ROW_EVENTS,
    STMT_END,
    EventFlag,
    EventType,
    FormatDescription,
)
from binlogtool.formats.mysql_binlog.validate import expected_event_kernels
from binlogtool.limits import Limits

# --- Rules about end_log_pos ---

_MODULO = 1 << 32


class _UnconfirmedShift(NamedTuple):
    """Event whose end_log_pos differs from its end by a `shift` that no other event has confirmed yet."""

    event: Event
    shift: int


class PositionRules:
    """Finds places where bytes were inserted or removed: all later positions are wrong by the same number of bytes.

    A difference is reported when the next event with a position has it too; otherwise only the field is damaged.
    """

    def __init__(self, state: Any, mode: int, origin: int) -> None:
        self._state = state
        self._unconfirmed: _UnconfirmedShift | None = None
        self._first_zero: Event | None = None
        self._zero_count = 0
        self._first_decrease: tuple[Event, EventFault] | None = None
        self._decrease_count = 0
        state[expected_event_kernels.POSITION_MODE] = mode
        state[expected_event_kernels.POSITION_SHIFT] = -origin % _MODULO
        self._origin = origin

    def mark_as_relay_log(self) -> None:
        """Record that the file is a relay log."""
        self._state[expected_event_kernels.POSITION_MODE] = expected_event_kernels.UNCHAINED
        self._unconfirmed = None

    def is_unconfirmed(self, event: Event) -> bool:
        """Return whether this event's position looks wrong but is not reported yet."""
        return self._unconfirmed is not None and self._unconfirmed.event.start == event.start

    def check_position(self, event: Event) -> Iterator[tuple[Event, EventFault]]:
        """Yield the faults that are now certain, each with its event."""
        state = self._state
        if state[expected_event_kernels.POSITION_MODE] == expected_event_kernels.UNCHAINED:
            self._track_source_positions(event)
        elif event.end_log_pos == 0:
            if (
                self._state[expected_event_kernels.POSITION_MODE] == expected_event_kernels.CHAINED
                and event.end % _MODULO != self._origin
            ):
                self._first_zero = self._first_zero or event
                self._zero_count += 1
        else:
            shift = (event.end_log_pos - event.end) % _MODULO
            unconfirmed, self._unconfirmed = self._unconfirmed, None
            if unconfirmed is not None and shift == unconfirmed.shift:
                yield unconfirmed.event, self._make_shift_fault(unconfirmed)
                state[expected_event_kernels.POSITION_SHIFT] = shift
            elif unconfirmed is not None:
                yield unconfirmed.event, self._make_field_fault(unconfirmed, "the events around it are correct")
            if (
                shift != state[expected_event_kernels.POSITION_SHIFT]
                and self._is_excerpt_start(event, shift)
                and not state[expected_event_kernels.CHECK_BODIES]
            ):
                yield event, self._make_shift_fault(_UnconfirmedShift(event, shift))
                state[expected_event_kernels.POSITION_SHIFT] = shift
            elif shift != state[expected_event_kernels.POSITION_SHIFT]:
                self._unconfirmed = _UnconfirmedShift(event, shift)

    def _is_excerpt_start(self, event: Event, shift: int) -> bool:
        """Return whether the file is an excerpt: its first transaction comes from further on in a log."""
        is_removal = 0 < (shift - self._state[expected_event_kernels.POSITION_SHIFT]) % _MODULO < _MODULO // 2
        return event.record == 1 and is_removal and _has_earlier_transactions(event)

    def iter_unconfirmed_at_damage(self) -> Iterator[tuple[Event, EventFault]]:
        """Yield the unconfirmed difference; to be called at damage, after which it can no longer be confirmed."""
        unconfirmed, self._unconfirmed = self._unconfirmed, None
        if unconfirmed is not None:
            yield unconfirmed.event, self._make_field_fault(unconfirmed, "event_size or end_log_pos is wrong")

    def iter_faults_at_end(self) -> Iterator[tuple[Event, EventFault]]:
        """Yield the faults that are only certain at the end of the file."""
        unconfirmed, self._unconfirmed = self._unconfirmed, None
        if unconfirmed is not None:
            yield unconfirmed.event, self._make_shift_fault(unconfirmed)
        if self._first_decrease is not None:
            event, fault = self._first_decrease
            count = f"; {self._decrease_count:,} events like this" if self._decrease_count > 1 else ""
            yield event, fault._replace(text=fault.text + count, facts={"events": self._decrease_count})
        if self._first_zero is not None:
            count = f"; {self._zero_count:,} events like this" if self._zero_count > 1 else ""
            text = f"end_log_pos is 0, but this server writes the true position{count}"
            yield (
                self._first_zero,
                EventFault("bad-header", text, "zero-position", Severity.WARNING, {"events": self._zero_count}),
            )

    def _track_source_positions(self, event: Event) -> None:
        """Check that positions of a relay log rise within each source file; MySQL 5.0 writes 0 in transactions."""
        last = self._state[expected_event_kernels.LAST_POSITION]
        if event.code in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION):
            self._state[expected_event_kernels.LAST_POSITION] = 0
            return
        if event.end_log_pos:
            self._state[expected_event_kernels.LAST_POSITION] = event.end_log_pos
        if 0 < event.end_log_pos < last and last - event.end_log_pos < _MODULO // 2:
            self._decrease_count += 1
            text = f"end_log_pos of the source decreases from {last:#x} to {event.end_log_pos:#x}"
            fault = EventFault("sequence-regression", text, "source-position-falls", Severity.WARNING)
            self._first_decrease = self._first_decrease or (event, fault)

    def _make_shift_fault(self, unconfirmed: _UnconfirmedShift) -> EventFault:
        """Return the fault of inserted or removed bytes."""
        event = unconfirmed.event
        change = (unconfirmed.shift - self._state[expected_event_kernels.POSITION_SHIFT]) % _MODULO
        is_removal = change < _MODULO // 2
        size = change if is_removal else _MODULO - change
        direction = "missing" if is_removal else "too many"
        text = (
            f"{size:,} bytes are {direction} before this event: end_log_pos is {event.end_log_pos:#x}, "
            f"the event ends at {event.end - self._origin:#x}"
        )
        facts = {"bytes": size, "change": "removed" if is_removal else "inserted"}
        if self._is_excerpt_start(event, unconfirmed.shift):
            return EventFault("gap-in-sequence", f"an excerpt of a log: {text}", "excerpt", Severity.NOTE, facts)
        if is_removal:
            return EventFault("gap-in-sequence", text, "bytes-removed", None, facts)
        return EventFault("sequence-regression", text, "bytes-inserted", None, facts)

    def _make_field_fault(self, unconfirmed: _UnconfirmedShift, reason: str) -> EventFault:
        """Return the fault of a single wrong position."""
        event = unconfirmed.event
        expected = (event.end + self._state[expected_event_kernels.POSITION_SHIFT]) % _MODULO
        text = f"end_log_pos is {event.end_log_pos:#x}, expected {expected:#x}: {reason}"
        return EventFault("bad-header", text, "end-log-pos", None, {"field": "end_log_pos", "expected": expected})


def _has_earlier_transactions(event: Event) -> bool:
    """Return whether earlier transactions exist by this GTID; MariaDB does not number them, so there always True."""
    if event.code not in GTID_EVENTS:
        return False
    try:
        number = decode_body(event.code, event.body, None).get("sequence_number")
    except (MalformedError, DecompressionError):
        return False
    return event.code == EventType.GTID or (number is not None and number > 1)


# --- Rules about single events ---

_T = EventType
_W = Severity.WARNING
_MIN_ZERO_RUN = 16
"""Number of zero bytes with which no row event begins: after table id and flags come numbers that are not 0."""
_FOREIGN_FLAGS = int(EventFlag.BINLOG_IN_USE | EventFlag.ARTIFICIAL | EventFlag.RELAY_LOG)
RARE_FLAGS = 0xFFFF & ~KNOWN_FLAGS | _FOREIGN_FLAGS
"""Flags that only some events have; the compiled path stops at such events."""

UNKNOWN_SERVER = -1
"""Stands for the server id of a transaction that began in the preceding file."""


_UNKNOWN_TO_MARIADB = frozenset(
    {
        _T.START_V3, _T.HEARTBEAT, _T.IGNORABLE, _T.ROWS_QUERY, _T.PARTIAL_UPDATE_ROWS, _T.TRANSACTION_PAYLOAD,
        _T.GTID_TAGGED_LOG,
    }
)  # fmt: skip
"""Event types at which MariaDB 10.11 and 11.8 stop reading a log, unless the event is ignorable."""
_NOT_WRITTEN_BY_MARIADB = _UNKNOWN_TO_MARIADB | {
    _T.LOAD, _T.SLAVE, _T.CREATE_FILE, _T.EXEC_LOAD, _T.NEW_LOAD,
    _T.PRE_GA_WRITE_ROWS, _T.PRE_GA_UPDATE_ROWS, _T.PRE_GA_DELETE_ROWS,
}  # fmt: skip
"""Types that some versions read, too."""
_PARTIAL_ROWS_SINCE = (12, 3)
"""First version of MariaDB with PARTIAL_ROW_DATA."""


def is_unknown_to_mariadb(type_code: int, description: FormatDescription) -> bool:
    """Return whether MariaDB does not know a type of events."""
    if type_code == _T.PARTIAL_ROW_DATA:
        return description.version < _PARTIAL_ROWS_SINCE
    return type_code in _UNKNOWN_TO_MARIADB or _T.GTID_TAGGED_LOG < type_code < _T.ANNOTATE_ROWS


def check_and_track_header(event: Event, description: FormatDescription, validation_state: Any) -> Iterator[EventFault]:
    """Yield faults of type, flags, time and server, and store time and server in the state."""
    is_unknown = event.code not in EVENT_TYPE_NAMES or event.code == 0
    is_foreign = event.code in _NOT_WRITTEN_BY_MARIADB or is_unknown_to_mariadb(event.code, description)
    if is_unknown or (is_foreign and description.is_mariadb and not validation_state[expected_event_kernels.IS_RELAY]):
        ignorable = event.flags & EventFlag.IGNORABLE
        text = f"event type {event.code} is unknown"
        text = text if is_unknown else f"MariaDB writes no event of type {event.code} ({type_name(event.code)})"
        text += "; its flags allow skipping it" if ignorable else ""
        yield EventFault("unknown-record-type", text, "type", _W if ignorable else Severity.ERROR)
    invalid_flags = event.flags & ~KNOWN_FLAGS
    if not validation_state[expected_event_kernels.IS_RELAY] and event.code not in (_T.FORMAT_DESCRIPTION, _T.ROTATE):
        invalid_flags |= event.flags & _FOREIGN_FLAGS
    if invalid_flags:
        yield EventFault(
            "reserved-bits-set", f"flags {event.flags:#06x}: {invalid_flags:#06x} must not be set", "flags"
        )
    if (
        event.time
        and event.time + expected_event_kernels.SECONDS_PER_DAY < validation_state[expected_event_kernels.LAST_TIME]
    ):
        text = f"the time goes back by {validation_state[expected_event_kernels.LAST_TIME] - event.time:,} seconds"
        yield EventFault("time-regression", text, "time-falls")
    validation_state[expected_event_kernels.LAST_TIME] = (
        event.time or validation_state[expected_event_kernels.LAST_TIME]
    )
    if (
        NO_GROUP < validation_state[expected_event_kernels.GROUP_STATE] < expected_event_kernels.AFTER_DAMAGE
        and event.code not in GTID_EVENTS
        and event.code not in EVENTS_OUTSIDE_GROUPS
    ):
        yield from _check_and_track_server(event, validation_state)


def _check_and_track_server(event: Event, validation_state: Any) -> Iterator[EventFault]:
    """Yield a fault if the server id changes inside a transaction."""
    previous, validation_state[expected_event_kernels.SERVER] = (
        validation_state[expected_event_kernels.SERVER],
        event.server_id,
    )
    if previous not in (event.server_id, UNKNOWN_SERVER):
        text = f"server_id changes inside a group from {previous} to {event.server_id}"
        yield EventFault("bad-header", text, "server-changes", _W)


def explain_misplacement(
    event: Event, groups: TransactionGroupState, description: FormatDescription, uses_gtids: bool
) -> str | None:
    """Return a description of the nesting rule that an event breaks; None if it breaks none.

    `groups`: the state before the event.
    """
    if event.code in ROW_EVENTS and not groups.is_open and uses_gtids:
        return "a row event outside a transaction"
    if event.code == _T.XA_PREPARE and groups.is_open and not groups.is_begun:
        return "XA_PREPARE without XA START"
    if event.code == _T.TRANSACTION_PAYLOAD and groups.is_begun:
        return "TRANSACTION_PAYLOAD inside a transaction"
    if event.code == _T.QUERY and groups.is_begun:
        if get_query_kind(event.code, event.body) is QueryKind.XA_FINISH:
            return "XA COMMIT or XA ROLLBACK of a prepared transaction inside another transaction"
        if read_ddl_xid(event, description) is not None:
            return "DDL inside a transaction"
    return None


def read_ddl_xid(event: Event, description: FormatDescription) -> int | None:
    """Return the XID that MySQL logs with an atomic DDL statement (status variable 17)."""
    if description.is_mariadb:
        return None
    try:
        status = decode_status_variables(parse_query(bytes(event.body)).status_vars)
    except MalformedError:
        return None
    number = status.get("ddl_logged_with_xid")
    return number if isinstance(number, int) else None


def is_certain_group_end(event: Event) -> bool:
    """Return whether an event always ends a transaction, even if its beginning is not known."""
    if event.code in QUERY_EVENTS:
        return get_query_kind(event.code, event.body) in (QueryKind.COMMIT, QueryKind.ROLLBACK)
    return event.code in (_T.XID, _T.XA_PREPARE, _T.TRANSACTION_PAYLOAD)


def is_certain_group_start(event: Event) -> bool:
    """Return whether an event always begins a transaction, whatever precedes it."""
    if event.code in QUERY_EVENTS:
        return get_query_kind(event.code, event.body) in (QueryKind.BEGIN, QueryKind.XA_START)
    return event.code in GTID_EVENTS


# --- Rules about table maps and row events of one statement ---

_MAX_TEMPLATE_BYTES = 1 << 25
"""Maximum total size of the templates that are kept, in bytes."""


class RowRules:
    """Rules for row events. Valid table maps are kept twice: in the compiled path's state and as `TableMap` objects.

    Methods that read bodies raise `MalformedError` or `DecompressionError`. All row images are walked without decoding
    values, by the compiled path if it knows the map. `templates`: input of the compiled path
    (`rows.write_rows_json_kernels`). `is_after_damage`: a missing map may be in a damaged range. `may_be_inherited`:
    it may be in the preceding file.
    """

    def __init__(self, state: Any, maps: TableMaps, limits: Limits, compile_: Callable[[Kernel], Kernel]) -> None:
        self._state = state
        self.maps = maps
        self._limits = limits
        compiled = compile_(count_image_rows)
        self._compiled_bounds = None if compiled is count_image_rows else compiled
        self._extra_maps: dict[int, int] = {}
        self.templates = bytearray(PAD)
        self._template_offsets: dict[bytes, int] = {}
        self.is_after_damage = self.may_be_inherited = False
        self.events_without_map = 0

    def add_table_map(self, event: Event) -> TableMap | None:
        """Add a TABLE_MAP, valid until the end of the statement."""
        state = self._state
        table_map = self.maps.add_table_map(bytes(event.body))
        if table_map is None:
            parse_table_map(event.body, self.maps.id_size, self.maps.is_mariadb)  # raises an error with the reason
            return None
        columns, slot = len(table_map.columns), table_map.table_id & expected_event_kernels.KNOWN_MAP_SLOTS - 1
        if (
            state[expected_event_kernels.KNOWN_IDS + slot] != table_map.table_id + 1
            or state[expected_event_kernels.KNOWN_COLUMNS + slot] != columns
        ):
            state[expected_event_kernels.KNOWN_IDS + slot], state[expected_event_kernels.KNOWN_COLUMNS + slot] = (
                table_map.table_id + 1,
                columns,
            )
            state[expected_event_kernels.HAS_NEW_MAP] = 1
        state[expected_event_kernels.KNOWN_TEMPLATES + slot] = self._get_template_offset(table_map)
        self._store_table_map(table_map, columns)
        return table_map

    def _get_template_offset(self, table_map: TableMap) -> int:
        """Return the offset of a map's template; 0 if it has none, so that the compiled path cannot check its rows."""
        map_key = table_map.body[expected_event_kernels.ROW_HEADER_SIZE :]
        offset = self._template_offsets.get(map_key)
        if offset is None:
            if len(self.templates) > _MAX_TEMPLATE_BYTES:
                self._reset_templates()
            template = build_row_event_template(table_map)
            offset = self._template_offsets[map_key] = len(self.templates) if template else 0
            self.templates += template
        return offset

    def _reset_templates(self) -> None:
        """Drop all templates."""
        self.templates, self._template_offsets = bytearray(PAD), {}
        for first, count in (
            (expected_event_kernels.KNOWN_TEMPLATES, expected_event_kernels.KNOWN_MAP_SLOTS),
            (expected_event_kernels.MAP_TEMPLATES, expected_event_kernels.MAX_MAPS),
        ):
            for slot in range(first, first + count):
                self._state[slot] = 0

    def inherit_table_map(self, table_map: TableMap) -> None:
        """Add a map that was still valid at the end of the preceding relay log."""
        self.maps.by_id[table_map.table_id] = table_map
        self._store_table_map(table_map, len(table_map.columns))

    def get_valid_table_maps(self) -> dict[int, TableMap]:
        """Return the maps that are valid at the end of the file, by table id."""
        ids = [
            self._state[expected_event_kernels.MAP_IDS + k]
            for k in range(self._state[expected_event_kernels.MAP_COUNT])
        ] + [*self._extra_maps]
        return {one: self.maps.by_id[one] for one in ids if one in self.maps.by_id}

    def _store_table_map(self, table_map: TableMap, column_count: int) -> None:
        """Store a valid map in the compiled path's state."""
        state, table_id = self._state, table_map.table_id
        count = state[expected_event_kernels.MAP_COUNT]
        index = next((k for k in range(count) if state[expected_event_kernels.MAP_IDS + k] == table_id), count)
        if index == expected_event_kernels.MAX_MAPS:
            self._extra_maps[table_id] = column_count
            state[expected_event_kernels.HAS_NEW_MAP] = 1
            return
        state[expected_event_kernels.MAP_IDS + index], state[expected_event_kernels.MAP_COLUMNS + index] = (
            table_id,
            column_count,
        )
        state[expected_event_kernels.MAP_BODY_STARTS + index], state[expected_event_kernels.MAP_TEMPLATES + index] = (
            0,
            self._get_template_offset(table_map),
        )
        state[expected_event_kernels.MAP_COUNT] = max(count, index + 1)

    def _get_column_count(self, table_id: int) -> int | None:
        """Return the number of columns of the valid map; None if there is no such map."""
        state = self._state
        for index in range(state[expected_event_kernels.MAP_COUNT]):
            if state[expected_event_kernels.MAP_IDS + index] == table_id:
                return int(state[expected_event_kernels.MAP_COLUMNS + index])
        return self._extra_maps.get(table_id)

    def check_row_event(self, event: Event, window: memoryview, repeat_reports: bool) -> Iterator[EventFault]:
        """Yield faults of a row event.

        `repeat_reports`: also report faults that were already reported for the first statement with this map.
        """
        header = parse_rows_head(event.code, event.body, self.maps.id_size)
        is_last = bool(header.flags & STMT_END)
        columns = self._get_column_count(header.table_id)
        self.read_pending_maps(window)
        has_new_map = bool(self._state[expected_event_kernels.HAS_NEW_MAP])
        self._state[expected_event_kernels.HAS_ROWS] = 1
        if is_last:
            self.forget_table_maps()
        if header.table_id == DUMMY_TABLE_ID and is_last:
            return
        if columns is None:
            yield from self._iter_missing_map_fault(event, header.table_id)
        elif columns != header.n_cols:
            text = (
                f"the row event has {header.n_cols} columns, the TABLE_MAP of table id {header.table_id} has {columns}"
            )
            yield EventFault("dangling-reference", text, "column-count", None, {"table_id": header.table_id})
        else:
            table_map = self.maps.by_id.get(header.table_id)
            if table_map is not None and len(table_map.columns) == columns:
                yield from self._check_images(
                    event, table_map, repeat_reports or has_new_map or event.code in COMPRESSED_ROW_EVENTS
                )

    def _check_images(self, event: Event, table_map: TableMap, reports: bool) -> Iterator[EventFault]:
        """Yield faults of the row images."""
        try:
            count_rows(event.code, event.body, table_map, self._limits, self._compiled_bounds)
        except MalformedError as error:
            if not table_map.has_unknown_fractions:
                raise
            if reports:
                yield EventFault("payload-undecodable", f"{UNKNOWN_FRACTIONS}: {error.args[0]}", "old-fractions", _W)

    def _iter_missing_map_fault(self, event: Event, table_id: int) -> Iterator[EventFault]:
        """Yield the fault of a row event without a table map, or of one whose table id was overwritten by zeros."""
        body = bytes(event.body)
        zeros = len(body) - len(body.lstrip(b"\0"))
        if zeros >= _MIN_ZERO_RUN:
            text = (
                f"{zeros:,} zero bytes at the start of the event's body: its table id and a part of its rows are lost"
            )
            yield EventFault("dangling-reference", text, "zeros", None, {"zeros": zeros})
            return
        if not self.is_after_damage:
            text = f"a row event of table id {table_id}, but its statement has no TABLE_MAP with this id"
            yield EventFault("dangling-reference", text, "table-map-missing", None, {"table_id": table_id})
            return
        self.events_without_map += 1
        if self.events_without_map == 1 and not self.may_be_inherited:
            text = f"rows without a table map: the TABLE_MAP of table id {table_id} is lost in the damaged range"
            yield EventFault("dangling-reference", text, "table-map-lost", _W, {"table_id": table_id})

    def read_pending_maps(self, window: memoryview) -> None:
        """Read the valid maps that the compiled path passed over; `window` must contain their bodies."""
        state = self._state
        for index in range(state[expected_event_kernels.MAP_COUNT]):
            body_start = state[expected_event_kernels.MAP_BODY_STARTS + index]
            if body_start:
                self.maps.add_table_map(bytes(window[body_start : state[expected_event_kernels.MAP_BODY_ENDS + index]]))
                state[expected_event_kernels.MAP_BODY_STARTS + index] = 0

    def forget_table_maps(self) -> None:
        """End the statement: its maps become invalid."""
        self._extra_maps.clear()
        self._state[expected_event_kernels.MAP_COUNT] = self._state[expected_event_kernels.HAS_ROWS] = self._state[
            expected_event_kernels.HAS_NEW_MAP
        ] = 0

    def check_statement_closed(self) -> Iterator[EventFault]:
        """Yield a fault if a statement is open at the end of the transaction."""
        state = self._state
        if state[expected_event_kernels.HAS_ROWS]:
            text = "the transaction ends, but the last row event of its statement has no STMT_END flag"
            yield EventFault("incomplete-transaction", text, "statement-open")
        elif state[expected_event_kernels.MAP_COUNT]:
            yield EventFault("dangling-reference", "TABLE_MAP without row events", "map-without-rows", _W)
        self.forget_table_maps()


# --- Commit marks and prepared transactions ---

MAX_XA_STATES = 100_000
"""Maximum number of XA transactions whose state is remembered."""

XA_PREPARE_FIXED_SIZE = XA_PREPARE_SIZES.sizeof()
"""Size of the fields before the identifier, in bytes."""
_MAX_XA_PART = 64
"""Maximum size of gtrid and of bqual in bytes."""


def explain_unreadable_xa_id(xa_prepare_body: bytes) -> str | None:
    """Return why MariaDB does not read an XA_PREPARE; None if it does. It checks no end of the event."""
    gtrid, bqual = _read_xa_sizes(xa_prepare_body)
    if not 0 < gtrid <= _MAX_XA_PART:
        return f"gtrid has {gtrid} bytes, MariaDB reads 1 to {_MAX_XA_PART}"
    if not 0 <= bqual <= _MAX_XA_PART:
        return f"bqual has {bqual} bytes, MariaDB reads 0 to {_MAX_XA_PART}"
    return None


_read_xa_sizes = make_tuple_decoder(XA_PREPARE_SIZES, "gtrid_len", "bqual_len")


class CommitRules:
    """Checks the XIDs of the last few thousand transactions, and the XA transactions of the file."""

    def __init__(self, state: Any, is_mariadb: bool) -> None:
        self._state, self._is_mariadb = state, is_mariadb
        self._xa_states = XaStates(MAX_XA_STATES)

    def check_and_remember_xid(self, number: int, subject: str) -> Iterator[EventFault]:
        """Yield a fault if a recent transaction has the same XID, and remember it."""
        state = self._state
        signed = number - (1 << 64) if number >> 63 else number
        if 0 < signed <= state[expected_event_kernels.HIGHEST_XID] and signed in self._get_recent_xids():
            text = f"{subject} with XID {number}, which another transaction already has"
            yield EventFault("duplicate-sequence", text, "xid-twice", None, {"xid": number})
        state[expected_event_kernels.HIGHEST_XID] = max(state[expected_event_kernels.HIGHEST_XID], signed)
        state[
            expected_event_kernels.XID_RING
            + (state[expected_event_kernels.XID_COUNT] & expected_event_kernels.XID_RING_SIZE - 1)
        ] = signed
        state[expected_event_kernels.XID_COUNT] += 1

    def _get_recent_xids(self) -> Any:
        """Return the remembered XIDs."""
        count = min(self._state[expected_event_kernels.XID_COUNT], expected_event_kernels.XID_RING_SIZE)
        return self._state[expected_event_kernels.XID_RING : expected_event_kernels.XID_RING + count]

    def check_xa_prepare(self, event: Event) -> Iterator[EventFault]:
        """Yield faults of an XA_PREPARE event."""
        try:
            one_phase, *xid_parts = parse_xa_prepare(bytes(event.body))
        except MalformedError as error:
            yield EventFault("payload-undecodable", f"XA_PREPARE: {error.args[0]}", "xa-id")
            return
        refusal = explain_unreadable_xa_id(bytes(event.body)) if self._is_mariadb else None
        if refusal is not None:
            yield EventFault("payload-undecodable", f"XA_PREPARE: {refusal}", "xa-id-size")
            return
        fault = self._xa_states.record_prepare_and_find_fault(XaId(*xid_parts), one_phase=one_phase)
        if fault is not None:
            yield EventFault("duplicate-sequence", fault, "xa-prepared-twice")

    def check_xa_finish(self, sql: bytes) -> Iterator[EventFault]:
        """Yield faults of XA COMMIT or XA ROLLBACK of a prepared transaction."""
        finish = parse_xa_finish(sql)
        if finish is None:
            text = f"not an XA identifier: {sql[:80].decode('utf-8', 'backslashreplace')}"
            yield EventFault("payload-undecodable", text, "xa-id")
            return
        fault = self._xa_states.record_finish_and_find_fault(finish.xa_id)
        if fault is not None:
            yield EventFault("duplicate-sequence", fault, "xa-finished-twice")


# --- Rules about the events inside a TRANSACTION_PAYLOAD ---


class PayloadRules:
    """Validates one payload after the other; `type_counts`: number of nested events by type.

    Neither nested events nor the zstd frames around them have checksums, so all bodies and row images are checked.
    """

    def __init__(
        self, description: FormatDescription, commits: CommitRules, limits: Limits, compile_: Callable[[Kernel], Kernel]
    ) -> None:
        self.type_counts: Counter[str] = Counter()
        self._description = description
        self._commits = commits
        self._maps = TableMaps(is_mariadb=False)
        self._state = [0] * expected_event_kernels.STATE_SIZE
        self._rows = RowRules(self._state, self._maps, limits, compile_)

    def check_payload(self, batch: Batch) -> Iterator[EventFault]:
        """Yield faults of the events of one payload."""
        groups = TransactionGroupState(group=AFTER_GTID)
        self._rows.forget_table_maps()
        self._maps.by_id.clear()
        step = GroupStep.OPENS
        for index in range(batch.frames.count):
            event = get_event(batch, index)
            self.type_counts[type_name(event.code)] += 1
            if step is GroupStep.ENDS:
                yield EventFault(
                    "incomplete-transaction", "events follow the end of the transaction", "payload-nesting"
                )
                return
            step = groups.advance_to_event(event.code, event.body)
            if groups.fault:
                yield EventFault("incomplete-transaction", f"inside the payload: {groups.fault}", "payload-nesting")
            yield from self._check_body(event, index, batch.window)
        if step is not GroupStep.ENDS:
            text = "the events inside the payload do not end with XID or COMMIT"
            yield EventFault("incomplete-transaction", text, "payload-open")
        yield from self._rows.check_statement_closed()

    def _check_body(self, event: Event, index: int, window: memoryview) -> Iterator[EventFault]:
        """Yield faults of one body."""
        try:
            if event.code == EventType.TABLE_MAP:
                self._rows.add_table_map(event)
            elif event.code in ROW_EVENTS:
                yield from self._rows.check_row_event(event, window, True)
            elif event.code == EventType.XID:
                yield from self._commits.check_and_remember_xid(parse_xid(bytes(event.body)), "a transaction")
            else:
                decode_body(event.code, event.body, self._description, event.server_id)
        except (MalformedError, DecompressionError) as error:
            text = f"event {index} inside the payload, {type_name(event.code)}: {error.args[0]}"
            yield EventFault(error.finding_id, text, "body", None, {"inner_event": index})
