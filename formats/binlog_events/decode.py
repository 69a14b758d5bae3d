"""Decode events in file order: type, sequence, object, time, transaction, body; track transactions and table maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import (
    BodyWithFindings,
    BodyWithLongValues,
    EnvelopeColumns,
    Hints,
    make_long_value,
    split_into_pieces,
)
from binlogtool.format_api.layout import Batch, LogFileLayout, to_int_list
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.event_schemas import (
    ENCRYPTED_TYPE,
    decode_body,
    find_query_text,
    parse_query,
)
from binlogtool.formats.binlog_events.gtid.gtid_events import format_gtid, read_gtid_source_and_number
from binlogtool.formats.binlog_events.rows.rows_event import DUMMY_TABLE_ID, RowsHead, decode_rows, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import UNKNOWN_FRACTIONS, TableMap, parse_table_map
from binlogtool.formats.binlog_events.transactions.boundaries import GroupStep, TransactionGroupState
from binlogtool.formats.binlog_events.wire_format import (
    CHECKSUM_SIZE,
    EVENT_TYPE_NAMES,
    GTID_EVENTS,
    HEADER_SIZE,
    KNOWN_FLAGS,
    KNOWN_ROWS_FLAGS,
    MAGIC,
    MAX_EVENT_SIZE,
    PACKED_HEADER,
    QUERY_EVENTS,
    ROW_EVENTS,
    ROW_EVENTS_WITH_EXTRA_DATA,
    SERVER_ID_AT,
    STMT_END,
    EventType,
    FormatDescription,
    iter_unpacked_block_pieces,
    read_declared_unpacked_size,
)

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
    from binlogtool.limits import Limits

# --- Transaction and table of each event ---

MAX_TABLE_MAPS = 1 << 16
"""Maximum number of table maps that are kept at a time; servers drop them at the end of a statement."""

_TABLE_MAP = EventType.TABLE_MAP
_COLUMN_NAMES = ("type_code", "server_id", "body_start", "body_end")


class OwningTransaction(NamedTuple):
    """Transaction of an event: its GTID as text, and the sequence number in the GTID."""

    gtid: str | None
    seq: int | None


NO_TRANSACTION = OwningTransaction(None, None)


class TrackedBatch(NamedTuple):
    """Transaction and table map of each record of a batch; `maps` has entries for TABLE_MAP and row events."""

    transactions: Sequence[OwningTransaction]
    maps: Sequence[TableMap | None]


class TableMaps(msgspec.Struct):
    """Table maps by table id; repeated maps are parsed once.

    `by_id`: the last map of each table id. `open_ids`: ids whose map is valid: its TABLE_MAP is in the open statement.
    `history`: table definitions from statements; None to use maps as stored. `is_mariadb`: whether a MariaDB server
    wrote them; None if unknown (see `parse_table_map`). `version`: number of definition changes so far; each one drops
    the parsed maps.
    """

    id_size: int = 6
    is_mariadb: bool | None = None
    history: TableHistory | None = None
    version: int = 0
    by_id: dict[int, TableMap] = msgspec.field(default_factory=dict)
    open_ids: set[int] = msgspec.field(default_factory=set)
    _parsed: dict[bytes, TableMap] = msgspec.field(default_factory=dict)
    _assumed: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Place of the TABLE_MAP at which assumed names were reported, by the text of the report."""

    def add_table_map(self, body: bytes) -> TableMap | None:
        """Return the map of a TABLE_MAP event and make it valid from now on; None if it cannot be read."""
        table_map = self._parsed.get(body)
        if table_map is None:
            try:
                table_map = parse_table_map(body, self.id_size, self.is_mariadb)
            except MalformedError:
                table_id = int.from_bytes(body[: self.id_size], "little")
                self.by_id.pop(table_id, None)
                self.open_ids.discard(table_id)
                return None
            table_map = table_map if self.history is None else self.history.complete_table_map(table_map)
            if len(self._parsed) >= MAX_TABLE_MAPS:
                self._parsed.clear()
            self._parsed[body] = table_map
        if len(self.by_id) >= MAX_TABLE_MAPS:
            self.forget_all_maps()
        self.by_id[table_map.table_id] = table_map
        self.open_ids.add(table_map.table_id)
        return table_map

    def explain_uncertain_names_once(self, table_map: TableMap, batch_offset: int, record_index: int) -> str:
        """Return why the names of a map are uncertain; for assumed names only once per table, otherwise "".

        `record_index`: number of the TABLE_MAP in the batch at offset `batch_offset`.
        """
        text, place = table_map.uncertain, (batch_offset, record_index)
        return "" if table_map.declared and self._assumed.setdefault(text, place) != place else text

    def forget_all_maps(self) -> None:
        """Forget all maps."""
        self.by_id.clear()
        self.open_ids.clear()

    def apply_query(self, type_code: int, body: memoryview) -> None:
        """Process a QUERY event: after one that changes a table, all maps are new."""
        if self.history is not None and self.history.add_query_if_ddl(type_code, body):
            self.forget_all_maps()
            self._parsed.clear()
            self.version += 1

    def mark_definitions_assumed(self) -> None:
        """Mark definitions as assumed: a part of the log was skipped, which may have contained statements."""
        if self.history is not None:
            self.history.mark_definitions_assumed()
            self._parsed.clear()
            self.version += 1

    def resolve_row_event_map(self, body: memoryview) -> TableMap | None:
        """Return the map of a row event, None if its statement has none; the last row event ends the statement."""
        table_id = int.from_bytes(body[: self.id_size], "little")
        table_map = self.by_id.get(table_id) if table_id in self.open_ids else None
        if len(body) > self.id_size and body[self.id_size] & STMT_END:
            self.open_ids.clear()
        return table_map

    def create_for_nested_events(self) -> TableMaps:
        """Return the table maps for nested events, which have maps of their own."""
        return TableMaps(6, self.is_mariadb, self.history, self.version, {}, set(), self._parsed)


NO_RECORD = -1
"""Record number that means none."""


class EventTracker(msgspec.Struct):
    """Tracks the events of one file.

    `track_batch` may be called again for the last batch, but not for earlier ones. `previous_relay_log`: tracker of the
    preceding relay log, which may have ended inside a group. `preceding_file`: tracker of the preceding file and the
    end of that file; if it has tracked the whole file, table definitions continue from there. `transaction_kernels`:
    compiled code with the effect of `track_records` for a whole batch. `container_record`: if groups are separate,
    number of the record that contains the last event; otherwise None. `annotated_maps`: the table map of the event
    that is annotated, or none; None = an event without a batch is annotated, by the last map of its table id.
    """

    previous_relay_log: EventTracker | None = None
    maps: TableMaps = msgspec.field(default_factory=TableMaps)
    transactions: TransactionGroupState = msgspec.field(default_factory=TransactionGroupState)
    current_transaction: OwningTransaction = NO_TRANSACTION
    compiled_tracker: Callable[[Batch], TrackedBatch] | None = None
    container_record: int | None = None
    annotated_maps: tuple[TableMap | None] | None = None
    preceding_file: tuple[EventTracker, int] | None = None
    _start: tuple[int, TableHistory | None] = (-1, None)
    _tracked_end: int = -1
    _last_notes: TrackedBatch = msgspec.field(default_factory=partial(TrackedBatch, (), ()))
    _last_batch_start: int = -1
    _container_owners: dict[int, OwningTransaction] = msgspec.field(default_factory=dict)
    _nested_notes: tuple[Batch, TrackedBatch] | None = None
    """The last batch of nested events with its result."""

    def track_batch(self, batch: Batch) -> TrackedBatch:
        """Return the transaction and table map of each record of a batch."""
        if batch.container is not None:
            if self._nested_notes is None or self._nested_notes[0] is not batch:
                self._nested_notes = (
                    batch,
                    self._track_nested_events(
                        batch, self._container_owners.get(batch.container.record, NO_TRANSACTION)
                    ),
                )
            return self._nested_notes[1]
        start = batch.base + int(batch.frames["offset"][0]) if batch.frames.count else -1
        if start != self._last_batch_start:
            if self._tracked_end == -1:
                self._continue_preceding_files(start)
            elif self._tracked_end != start:
                self.reset(start)
            self._last_batch_start, self._container_owners, self._nested_notes = start, {}, None
            self._last_notes = (
                self.compiled_tracker(batch)
                if self.compiled_tracker
                else self.track_records(batch, 0, batch.frames.count)
            )
            self._tracked_end = batch.base + int(batch.frames["end"][batch.frames.count - 1])
        return self._last_notes

    def _continue_preceding_files(self, start: int) -> None:
        """Continue the open group of the preceding relay log, and the table definitions of the preceding file."""
        history = self.load_starting_history()
        if history is not None:
            self._start = start, history.copy()
        before, self.previous_relay_log = self.previous_relay_log, None
        if before is not None:
            self.transactions, self.current_transaction = replace(before.transactions), before.current_transaction
            self.maps.by_id.update(before.maps.by_id)
            self.maps.open_ids.update(before.maps.open_ids)

    def load_starting_history(self) -> TableHistory | None:
        """Return the table definitions at the beginning of the file, from the preceding file if it was tracked."""
        earlier, self.preceding_file = self.preceding_file, None
        history = self.maps.history
        before = earlier[0].maps.history if earlier is not None and earlier[0].has_tracked_up_to(earlier[1]) else None
        if history is not None and before is not None:
            history.continue_from(before)
        return history

    def set_end_definitions(self, history: TableHistory, end: int) -> None:
        """Copy the table definitions at the end of the file from another tracker."""
        self.maps.history, self._tracked_end = history, end

    def copy(self) -> EventTracker:
        """Return an independent copy."""
        history = None if self.maps.history is None else self.maps.history.copy()
        maps = replace(
            self.maps, by_id=dict(self.maps.by_id), open_ids=set(self.maps.open_ids), history=history, _parsed={}
        )
        group_state = replace(self.transactions)
        result = EventTracker(None, maps, group_state, self.current_transaction)
        result._tracked_end = self._tracked_end
        return result

    def has_tracked_up_to(self, end: int) -> bool:
        """Return whether all events of the file up to this offset were tracked."""
        return self._tracked_end >= end

    def reset(self, start: int = -1) -> None:
        """Reset the state: a part of the log was skipped, or the file is read again.

        `start`: where reading continues.
        """
        self.transactions.reset()
        self.maps.forget_all_maps()
        self.maps.mark_definitions_assumed()
        if start == self._start[0] and self.maps.history is not None and self._start[1] is not None:
            self.maps.history.continue_from(self._start[1])
        self.current_transaction = NO_TRANSACTION

    def track_records(self, batch: Batch, start: int, stop: int) -> TrackedBatch:
        """Return the transaction and table map of the records `[start, stop)`; call it once per record, in order."""
        owners: list[OwningTransaction] = []
        maps: list[TableMap | None] = []
        window, add_event = batch.window, self.transactions.advance_to_event
        codes, servers, starts, ends = (to_int_list(batch.frames[n], start, stop) for n in _COLUMN_NAMES)
        for i, (code, server, body_start, body_end) in enumerate(zip(codes, servers, starts, ends, strict=True), start):
            body = window[body_start:body_end]
            step = add_event(code, body)
            if code in QUERY_EVENTS:
                self.maps.apply_query(code, body)
            if code in GTID_EVENTS:
                self.current_transaction = read_opened_transaction(code, server, body)
            elif step is GroupStep.OPENS:
                self.current_transaction = NO_TRANSACTION
            owners.append(NO_TRANSACTION if step is GroupStep.OUTSIDE else self.current_transaction)
            maps.append(_add_or_find_table_map(self.maps, code, body))
            if code == EventType.TRANSACTION_PAYLOAD:
                self._container_owners[batch.first_record + i] = self.current_transaction
            if step is GroupStep.ENDS:
                self.current_transaction = NO_TRANSACTION
            if (step is GroupStep.ENDS or step is GroupStep.OPENS) and self.container_record is None:
                self.maps.open_ids.clear()
        return TrackedBatch(owners, maps)

    def _track_nested_events(self, batch: Batch, transaction: OwningTransaction) -> TrackedBatch:
        """Return the transaction and table map of nested events."""
        maps = self.maps.create_for_nested_events()
        codes, _, starts, ends = (to_int_list(batch.frames[n], 0, batch.frames.count) for n in _COLUMN_NAMES)
        bodies = map(batch.window.__getitem__, map(slice, starts, ends))
        table_maps = [_add_or_find_table_map(maps, code, body) for code, body in zip(codes, bodies, strict=True)]
        return TrackedBatch([transaction] * batch.frames.count, table_maps)


def _add_or_find_table_map(table_maps: TableMaps, type_code: int, body: memoryview) -> TableMap | None:
    """Return the table map of an event."""
    if type_code == _TABLE_MAP:
        return table_maps.add_table_map(bytes(body))
    return table_maps.resolve_row_event_map(body) if type_code in ROW_EVENTS else None


def read_opened_transaction(type_code: int, server_id: int, body: memoryview) -> OwningTransaction:
    """Return the transaction that a GTID event opens; none for an anonymous or malformed GTID."""
    try:
        numbers = read_gtid_source_and_number(type_code, server_id, bytes(body))
    except MalformedError:
        return NO_TRANSACTION
    if numbers is None:
        return NO_TRANSACTION
    return OwningTransaction(format_gtid(type_code, *numbers), numbers[1])


# --- Proof of single events without checksums ---

_T = EventType
_TEN_YEARS = 10 * 366 * 86400
_MAX_SERVERS = 1_000
_CHECKED_CHARS = 32
"""Number of characters of a statement that are checked."""

_FIXED_SIZES: Mapping[int, int] = {_T.STOP: 0, _T.XID: 8, _T.INTVAR: 9, _T.RAND: 16}
"""Sizes of bodies that always have the same size, by type."""

_MIN_SIZES: Mapping[int, int] = {_T.ROTATE: 9, _T.GTID: 19, _T.GTID_LIST: 6, _T.ANNOTATE_ROWS: 1, _T.ROWS_QUERY: 2}
"""Minimum sizes of bodies, by type."""


class PriorEventStatistics(msgspec.Struct):
    """Servers, and first and last time, of the events before damage; later events are compared with them.

    Since nothing proves these two times, one may be wrong: another time only has to be close to one of them.
    """

    servers: set[int] = msgspec.field(default_factory=set)
    first: int = 0
    last: int = 0

    def add_events(self, times: Sequence[int], servers: Iterable[int]) -> None:
        """Add consecutive events."""
        known_times = [time for time in times if time]
        if known_times:
            self.first, self.last = self.first or known_times[0], known_times[-1]
        if len(self.servers) < _MAX_SERVERS:
            self.servers.update(servers)

    def is_plausible_event(self, timestamp: int, server_id: int) -> bool:
        """Return whether an event of this time and server is plausible in the log."""
        is_near = (
            not timestamp
            or not self.first
            or min(abs(timestamp - self.first), abs(timestamp - self.last)) <= _TEN_YEARS
        )
        return is_near and (not self.servers or server_id in self.servers)


def record_times_and_servers(context: Any, batch: Batch) -> None:
    """Record times and servers of a run of good events (`FrameLevel.observe`)."""
    table = batch.frames
    times, servers = (to_int_list(table[name], 0, table.count) for name in ("timestamp", "server_id"))
    context.prior_events.add_events(times, set(servers))


def read_prior_events(file_start: bytes, offset: int) -> PriorEventStatistics:
    """Read times and servers of the events at the start of a file.

    Args:
        file_start: the start of the file.
        offset: offset of the first event.
    """
    prior_events = PriorEventStatistics()
    while len(file_start) - offset >= HEADER_SIZE:
        time, _, server, size, _, _ = PACKED_HEADER.unpack_from(file_start, offset)
        if size < HEADER_SIZE or size > len(file_start) - offset:
            break
        prior_events.add_events((time,), (server,))
        offset += size
    return prior_events


def is_proven_event(frame: bytes, context: Any) -> bool:
    """Return whether bytes without a checksum are certainly an event: valid header, and a body that fits exactly."""
    if len(frame) < HEADER_SIZE:
        return False
    time, code, server, size, _, flags = PACKED_HEADER.unpack_from(frame)
    if code not in EVENT_TYPE_NAMES or code == 0 or flags & ~KNOWN_FLAGS or size > MAX_EVENT_SIZE:
        return False
    if not context.prior_events.is_plausible_event(time, server) or (
        code == _T.QUERY and not _is_query_text_plausible(frame)
    ):
        return False
    body = frame[
        HEADER_SIZE : size - (4 if code == _T.FORMAT_DESCRIPTION and context.description.checksum_alg == 0 else 0)
    ]
    try:
        return _is_valid_body(code, body, context.description, server)
    except (MalformedError, DecompressionError):
        return False


def is_proven_despite_checksum(frame: bytes, context: Any) -> bool:
    """Return the same as `is_proven_event` for an event that ends with a wrong checksum."""
    return is_proven_event(frame[:-CHECKSUM_SIZE], context)


def _is_valid_body(type_code: int, body: bytes, description: FormatDescription, server_id: int) -> bool:
    """Return whether a body fits its type exactly: size, printable names and text, possible GTID numbers, row flags."""
    if len(body) != _FIXED_SIZES.get(type_code, len(body)) or len(body) < _MIN_SIZES.get(type_code, 0):
        return False
    if type_code == _T.TABLE_MAP:
        table_map = parse_table_map(body, description.table_id_size)
        return table_map.database.isprintable() and table_map.table.isprintable()
    if type_code in ROW_EVENTS:
        head = parse_rows_head(type_code, body, description.table_id_size)
        return (
            head.table_id > 0 and head.n_cols > 0 and not head.flags & ~KNOWN_ROWS_FLAGS and head.images_at <= len(body)
        )
    value = decode_body(type_code, body, description, server_id)
    if type_code in (_T.QUERY, _T.ANNOTATE_ROWS, _T.ROWS_QUERY):
        return _is_printable_statement(value.get("sql"))
    if type_code == _T.ROTATE:
        name = value.get("name")
        return isinstance(name, str) and name.isprintable() and value.get("position", 0) >= 4
    if type_code in GTID_EVENTS:
        return _is_valid_gtid(value)
    return True


def _is_query_text_plausible(query_event: bytes) -> bool:
    """Return whether a QUERY's statement starts without control characters, before `_is_text` decodes it."""
    text_at, end = find_query_text(query_event, HEADER_SIZE, len(query_event))
    return end >= 0 and _has_no_controls(query_event[text_at : text_at + _CHECKED_CHARS])


def _is_printable_statement(sql: Any) -> bool:
    """Return whether a statement is text without control characters, or (other character sets) starts like text."""
    beginning = sql[:_CHECKED_CHARS]
    if isinstance(beginning, bytes):
        return _has_no_controls(beginning)
    return bool(beginning) and all(char.isprintable() or char in "\t\r\n" for char in beginning)


def _has_no_controls(beginning: bytes) -> bool:
    return bool(beginning) and all(byte >= 0x20 or byte in b"\t\r\n" for byte in beginning)


def _is_valid_gtid(value: Mapping[str, Any]) -> bool:
    number = value.get("gno", value.get("seq_no", 0))
    return isinstance(number, int) and 0 <= number < 1 << 62


# --- Context of a file or of an event group ---


class BinlogFileContext(msgspec.Struct):
    """Context of the events of one file: its format and the state while it is read.

    `description`: the current FORMAT_DESCRIPTION, which may change within a relay log. `is_relay_log`: it is a relay
    log. `events_at`: offset of the first event. `encrypted_without_key`: it is encrypted, and no key was given.
    `prior_events`: times and servers of the events so far.
    """

    description: FormatDescription
    tracker: EventTracker
    is_relay_log: bool = False
    events_at: int = len(MAGIC)
    encrypted_without_key: bool = False
    name: str = ""
    hints: Hints = Hints()
    prior_events: PriorEventStatistics = msgspec.field(default_factory=PriorEventStatistics)

    @property
    def server_id(self) -> int | None:
        """Id of the server that wrote the file; None if its FORMAT_DESCRIPTION is not known."""
        stored = self.description.event[SERVER_ID_AT : SERVER_ID_AT + 4]
        return int.from_bytes(stored, "little") if stored else None


class BinlogFileSummary(msgspec.Struct, frozen=True):
    """Facts about a file that are kept after reading; FORMAT_DESCRIPTION is kept without its bytes and time."""

    description: FormatDescription
    is_relay_log: bool
    events_at: int
    encrypted_without_key: bool
    server_id: int | None


def strip_reading_state(layout: LogFileLayout) -> LogFileLayout:
    """Return the layout without the data that only reading its records needed."""
    context = layout.context
    if not isinstance(context, BinlogFileContext):
        return layout
    description = replace(context.description, event=b"", post_header_len=b"", create_timestamp=0)
    summary = replace(
        layout,
        context=BinlogFileSummary(
            description, context.is_relay_log, context.events_at, context.encrypted_without_key, context.server_id
        ),
    )
    return summary if summary.findings or summary.decrypt is not None else _share_layout(summary)


@lru_cache(maxsize=64)
def _share_layout(layout: LogFileLayout) -> LogFileLayout:
    """Return one shared object for equal layouts of a server's files; layouts with findings or keys are not shared."""
    return layout


def fork_context(context: Any) -> Any:
    """Return an independent copy of a context."""
    return replace(context, tracker=context.tracker.copy()) if isinstance(context, BinlogFileContext) else context


# --- Statements too long to hold in memory ---

_MIN_PACKED_BYTES = 512
"""Minimum size of a compressed event that may hold a long text: compression saves at most a factor of 1000."""

_HEAD_BYTES = 1 << 17
"""Upper bound for the bytes that can precede the text. The text is copied only once, since it may fill the memory."""


def decode_long_statement(
    type_code: int, body: memoryview, description: FormatDescription | None, limits: Limits
) -> BodyWithLongValues | None:
    """Decode the body of a statement whose text is longer than `limits.max_whole`; None for any other event.

    Raises:
        MalformedError, DecompressionError: the body does not match its type.
    """
    max_whole, is_compressed = limits.max_whole, type_code == EventType.QUERY_COMPRESSED
    if (
        max_whole is None
        or type_code not in QUERY_EVENTS
        or len(body) < (_MIN_PACKED_BYTES if is_compressed else max_whole)
    ):
        return None
    head = bytes(body[:_HEAD_BYTES])
    text_at = len(head) - len(parse_query(head).sql)
    sql = bytes(body[text_at:])
    if (read_declared_unpacked_size(sql) if is_compressed else len(sql)) <= max_whole:
        return None
    fields = decode_body(EventType.QUERY, head[:text_at], description)
    fields["sql"] = make_long_value(
        (lambda: iter_unpacked_block_pieces(sql, limits)) if is_compressed else split_into_pieces(sql)
    )
    return BodyWithLongValues(fields)


# --- Decoded events ---

_NO_EXTRA = b"\x02\0"
"""Length field of empty extra data: it includes itself."""

_HEADER_COLUMNS = ("timestamp", "type_code", "server_id", "event_size", "end_log_pos", "flags")


class _TypeNames(dict[int, str]):
    """Names of event types; unknown types are shown by number."""

    def __missing__(self, code: int) -> str:
        return f"TYPE_{code}"


_TYPE_NAMES = _TypeNames(EVENT_TYPE_NAMES)
_ENCRYPTED_TYPE_NAMES = _TypeNames({**EVENT_TYPE_NAMES, ENCRYPTED_TYPE: "ENCRYPTED"})


def type_name(type_code: int, *, encrypted_without_key: bool = False) -> str:
    """Return the name of an event type; unknown types are shown by number.

    `encrypted_without_key`: the log is encrypted and no key was given.
    """
    return _ENCRYPTED_TYPE_NAMES[type_code] if encrypted_without_key else _TYPE_NAMES[type_code]


def build_envelope_columns(context: BinlogFileContext, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
    """Return the envelope columns of events; also stores table maps and transactions for later events."""
    owners = context.tracker.track_batch(batch).transactions[start:stop]
    return EnvelopeColumns(
        type=decode_envelope_column(context, batch, "type", start, stop),
        seq=[owner.seq for owner in owners],
        time=decode_envelope_column(context, batch, "time", start, stop),
        object=decode_envelope_column(context, batch, "object", start, stop),
        origin=decode_envelope_column(context, batch, "origin", start, stop),
        txn=[owner.gtid for owner in owners],
    )


def decode_envelope_column(
    context: BinlogFileContext, batch: Batch, column_name: str, start: int, stop: int
) -> list[Any]:
    """Return one column of the envelopes of events."""
    table, notes = batch.frames, context.tracker.track_batch(batch)
    if column_name == "type":
        names = _ENCRYPTED_TYPE_NAMES if context.encrypted_without_key else _TYPE_NAMES
        return [names[code] for code in to_int_list(table["type_code"], start, stop)]
    if column_name == "time":
        times = to_int_list(table["timestamp"], start, stop)
        return [second * 1_000_000 if second else None for second in times]
    if column_name == "origin":
        return list(to_int_list(table["server_id"], start, stop))
    if column_name == "object":
        return [None if known is None else known.qualified_name for known in notes.maps[start:stop]]
    return [getattr(owner, "gtid" if column_name == "txn" else column_name) for owner in notes.transactions[start:stop]]


def decode_event_bodies(context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode the body of each event with the field names of the specification; a `Finding` if it cannot be decoded."""
    table, maps = batch.frames, context.tracker.track_batch(batch).maps[start:stop]
    maps_in_use = context.tracker.maps
    columns = (to_int_list(table[name], start, stop) for name in ("type_code", "server_id", "body_start", "body_end"))
    result: list[Any] = []
    for i, (code, server, body_start, body_end, table_map) in enumerate(zip(*columns, maps, strict=True), start):
        try:
            body = _decode_event_body(context, code, server, batch.window[body_start:body_end], table_map, limits)
            if code in ROW_EVENTS:
                doubt = None if table_map is not None else _make_missing_map_finding(context, batch, i, body_start)
            else:
                text = "" if table_map is None else maps_in_use.explain_uncertain_names_once(table_map, batch.base, i)
                doubt = _report_uncertain_names(batch, i, text) if text else None
            result.append(body if doubt is None else BodyWithFindings(body, (doubt,)))
        except (MalformedError, DecompressionError) as error:
            problem = make_undecodable_event_finding(batch, i, error)
            if code in ROW_EVENTS and table_map is not None and table_map.has_unknown_fractions:
                warning = replace(problem, severity=Severity.WARNING, message=f"{UNKNOWN_FRACTIONS}: {error.args[0]}")
                result.append(
                    BodyWithFindings(
                        decode_rows_body(context, code, batch.window[body_start:body_end], None, limits), (warning,)
                    )
                )
            else:
                result.append(problem)
    return result


def _decode_event_body(
    context: BinlogFileContext,
    type_code: int,
    server_id: int,
    body: memoryview,
    table_map: TableMap | None,
    limits: Limits,
) -> dict[str, Any] | BodyWithLongValues:
    """Return the decoded body of one event; long statement texts as pieces, encrypted events with their size only."""
    if context.encrypted_without_key and type_code == ENCRYPTED_TYPE:
        return {"event_size": HEADER_SIZE + len(body)}
    if type_code in ROW_EVENTS:
        return decode_rows_body(context, type_code, body, table_map, limits)
    if type_code == EventType.TABLE_MAP and table_map is not None:
        return table_map.to_json_body()
    long_statement = decode_long_statement(type_code, body, context.description, limits)
    return (
        decode_body(type_code, bytes(body), context.description, server_id, limits)
        if long_statement is None
        else long_statement
    )


def decode_rows_body(
    context: BinlogFileContext, type_code: int, body: memoryview, table_map: TableMap | None, limits: Limits
) -> dict[str, Any]:
    """Decode a row event: its head, and its rows if the table map is known (otherwise the images as bytes)."""
    if table_map is None:
        head = parse_rows_head(type_code, body, context.description.table_id_size)
        return _rows_head_as_json(head) | {"n_cols": head.n_cols, "images": bytes(body[head.images_at :])}
    size = table_map.table_id_size
    if len(body) < size + 2 or (type_code in ROW_EVENTS_WITH_EXTRA_DATA and body[size + 2 : size + 4] != _NO_EXTRA):
        fields = _rows_head_as_json(parse_rows_head(type_code, body, size))
    else:
        fields = {"table_id": table_map.table_id, "flags": body[size] | body[size + 1] << 8}
    return {**fields, "table": table_map.qualified_name, "rows": decode_rows(type_code, body, table_map, limits)}


def _rows_head_as_json(rows_head: RowsHead) -> dict[str, Any]:
    fields: dict[str, Any] = {"table_id": rows_head.table_id, "flags": rows_head.flags}
    return {**fields, "extra": rows_head.extra} if rows_head.extra else fields


def make_undecodable_event_finding(batch: Batch, index: int, error: MalformedError | DecompressionError) -> Finding:
    """Create the finding about an event whose body does not match its type."""
    offset, size, record = batch.container_position(index)
    name = type_name(int(batch.frames["type_code"][index]))
    return make_finding(error.finding_id, offset, size, f"{name}: {error.args[0]}", record=record)


def _make_missing_map_finding(context: BinlogFileContext, batch: Batch, index: int, body_start: int) -> Finding | None:
    """Return the finding about a row event without TABLE_MAP; a relay log may begin after it."""
    stored_id = batch.window[body_start : body_start + context.description.table_id_size]
    if int.from_bytes(stored_id, "little") == DUMMY_TABLE_ID:
        return None
    offset, size, record = batch.container_position(index)
    text, severity = "its TABLE_MAP is missing", Severity.WARNING if context.is_relay_log else Severity.ERROR
    return make_finding("dangling-reference", offset, size, text, record=record, severity=severity)


def _report_uncertain_names(batch: Batch, index: int, text: str) -> Finding:
    offset, size, record = batch.container_position(index)
    return make_finding("meta-mismatch", offset, size, text, record=record, severity=Severity.WARNING)


def decode_header_extras(
    context: BinlogFileContext, batch: Batch, start: int, stop: int
) -> list[Mapping[str, Any] | None]:
    """Return {"header": …} of each event: the stored common header."""
    columns = [to_int_list(batch.frames[name], start, stop) for name in _HEADER_COLUMNS]
    return [{"header": dict(zip(_HEADER_COLUMNS, values, strict=True))} for values in zip(*columns, strict=True)]


def decode_header_flag_extras(
    context: BinlogFileContext, batch: Batch, start: int, stop: int
) -> list[Mapping[str, Any] | None] | None:
    """Return the flags of the common headers, if any are set (`ReplayRules.decode_extras`)."""
    values = to_int_list(batch.frames["flags"], start, stop)
    return [{"header": {"flags": value}} if value else None for value in values] if any(values) else None
