"""Track transactions and table maps over the columns of a batch, in compiled code.

The kernel stops at each event that it does not support, and leaves the state unchanged by this event.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from binlogtool.format_api.layout import Batch, Column, Kernel
from binlogtool.format_api.schema_fields import Int64s, MutableInt64s, UInt8s, kernel, load_little_endian
from binlogtool.formats.binlog_events.decode import (
    NO_TRANSACTION,
    EventTracker,
    OwningTransaction,
    TableMaps,
    TrackedBatch,
)
from binlogtool.formats.binlog_events.gtid.gtid_events import load_mariadb_gtid, load_mysql_gtid
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.transactions.boundaries import (
    ENDS,
    GROUP_BITS,
    INSIDE,
    IS_GTID,
    IS_MAP,
    IS_QUERY,
    IS_ROWS,
    NEEDS_TRACKER,
    NEVER_LAST,
    NO_GROUP,
    OPENS,
    OUTSIDE,
    ROW_EVENT,
    STEP_AT,
    STEP_BITS,
    WORD_TABLE,
    build_event_type_traits,
    compute_packed_group_step,
    get_event_mark,
    is_possible_ddl,
)
from binlogtool.formats.binlog_events.wire_format import ANONYMOUS_GTID, GTID, STMT_END, EventType

# --- Kernel that tracks transactions ---

# State: an array of 64-bit integers.
(
    GROUP_STATE,
    SOURCE,
    GTID_NUMBER,
    LAST_CODE,
    LAST_SOURCE_LOW,
    LAST_SOURCE_HIGH,
    LAST_SOURCE,
    ID_SIZE,
    ID_TABLE_MASK,
    CONTAINER_RECORD,
    TURN,
    MAP_TURN,
    STATE_SIZE,
) = range(13)
"""GROUP_STATE: the open group, as in `transactions.boundaries`. SOURCE, GTID_NUMBER: owner of the group: number of its
source's text (-1 = none), and the number in its GTID. LAST_CODE, LAST_SOURCE_LOW, LAST_SOURCE_HIGH, LAST_SOURCE: type
of the last GTID event, the 128 bits of its source, number of its source's text. ID_TABLE_MASK: size of the table of ids
minus 1. CONTAINER_RECORD: if groups are separate, the record that contains the group; of nested events, the offset of
the event that contains them, -1 = none. TURN: number of statements and groups so far. MAP_TURN: TURN at the last
TABLE_MAP."""


@kernel()
def find_table_id_slot(table_id: int, ids: Int64s, mask: int) -> int:
    """Return the slot of a table id in the table of ids (pairs of id + 1 and map number), or a free slot for it."""
    at = (table_id ^ table_id >> 13 ^ table_id >> 27) & mask
    while ids[2 * at] != 0 and ids[2 * at] != table_id + 1:
        at = (at + 1) & mask
    return at


@kernel(load_little_endian)
def is_equal_to_packed_words(words: Int64s, word_at: int, buf: UInt8s, pos: int, limit: int) -> bool:
    """Return whether `buf[pos:limit]` equals the body at `known[word_at]`, stored as 64-bit numbers padded with
    zeros.
    """
    while pos < limit:
        if load_little_endian(buf, pos, min(limit - pos, 8)) != words[word_at]:
            return False
        pos += 8
        word_at += 1
    return True


class KnownTableMaps(NamedTuple):
    """Known table maps.

    ids: see `find_table_id_slot`. known, known_places: their bodies (`is_equal_to_packed_words`), and for each body its
    start and its size in bytes. turns: for each map, the turn of the last statement that defined it.
    """

    ids: Int64s
    known: Int64s
    known_places: Int64s
    turns: MutableInt64s


@kernel(is_equal_to_packed_words, load_little_endian, find_table_id_slot)
def find_table_map_number(
    type_traits: int, buf: UInt8s, pos: int, limit: int, state: Int64s, known_maps: KnownTableMaps
) -> int:
    """Return the number of the table map of a TABLE_MAP or row event; -1 = none, -2 = not registered."""
    if limit - pos < 8:
        return -2
    map_number = known_maps.ids[
        2 * find_table_id_slot(load_little_endian(buf, pos, state[ID_SIZE]), known_maps.ids, state[ID_TABLE_MASK]) + 1
    ]
    if not type_traits & IS_MAP:
        return map_number
    if map_number < 0 or limit - pos != known_maps.known_places[2 * map_number + 1]:
        return -2
    return (
        map_number
        if is_equal_to_packed_words(known_maps.known, known_maps.known_places[2 * map_number], buf, pos, limit)
        else -2
    )


@kernel(load_little_endian, load_mariadb_gtid, load_mysql_gtid)
def try_set_transaction_gtid(
    type_code: int, server_id: int, buf: UInt8s, pos: int, limit: int, state: MutableInt64s
) -> bool:
    """Make the GTID of this event the owner; return False if its source is not that of the last GTID event."""
    if type_code == ANONYMOUS_GTID:
        state[SOURCE] = -1
        return True
    if type_code != state[LAST_CODE]:
        return False
    if type_code == GTID:
        number, a, _flags, _id, end = load_mariadb_gtid(buf, pos, limit)
        b = server_id
    else:
        sid, number, end = load_mysql_gtid(buf, pos, limit)
        a = load_little_endian(buf, sid, 8) if end >= 0 else 0
        b = load_little_endian(buf, sid + 8, 8) if end >= 0 else 0
    if end < 0 or a != state[LAST_SOURCE_LOW] or b != state[LAST_SOURCE_HIGH] or number < 0:
        return False
    state[SOURCE] = state[LAST_SOURCE]
    state[GTID_NUMBER] = number
    return True


class FrameColumns(NamedTuple):
    """Columns with one entry per event of a batch: its type, its server, and the range of its body."""

    codes: Int64s
    servers: Int64s
    starts: Int64s
    ends: Int64s


class TransactionColumns(NamedTuple):
    """Columns with one entry per event: number of its source, number in its GTID, number of its map; -1 = none."""

    sources: MutableInt64s
    numbers: MutableInt64s
    maps: MutableInt64s


@kernel()
def open_or_use_table_map(
    type_traits: int,
    map_number: int,
    buf: UInt8s,
    pos: int,
    limit: int,
    state: MutableInt64s,
    known_maps: KnownTableMaps,
) -> int:
    """Return the table map number of an event, -1 for a row event whose statement has no TABLE_MAP.

    A TABLE_MAP becomes valid; the last row event of a statement ends the statement.
    """
    if type_traits & IS_MAP:
        known_maps.turns[map_number] = state[TURN] + 0
        state[MAP_TURN] = state[TURN] + 0
    elif type_traits & IS_ROWS:
        if map_number >= 0 and known_maps.turns[map_number] != state[TURN]:
            map_number = -1
        if limit - pos > state[ID_SIZE] and buf[pos + state[ID_SIZE]] & STMT_END:
            state[TURN] += 1
    return map_number


class TrackingTables(NamedTuple):
    """Constants and groups; traits: see `build_event_type_traits`; words: `WORD_TABLE`.

    groups: the group number of each event, if groups are separate.
    """

    traits: Int64s
    words: Int64s
    groups: Int64s


@kernel(
    find_table_map_number,
    get_event_mark,
    is_possible_ddl,
    compute_packed_group_step,
    try_set_transaction_gtid,
    open_or_use_table_map,
)
def track_events_until_unsupported(
    event_index: int,
    stop: int,
    is_separate: int,
    frames: FrameColumns,
    buf: UInt8s,
    state: MutableInt64s,
    tables: TrackingTables,
    known_maps: KnownTableMaps,
    transaction_columns: TransactionColumns,
) -> int:
    """Fill `transaction_columns` for the events from `event_index` on; return where the kernel stopped.

    `is_separate`: 1 = all events of a group have the owner of the first one, and their own table maps.
    """
    while event_index < stop:
        code = frames.codes[event_index]
        trait = tables.traits[code]
        p = frames.starts[event_index]
        n = frames.ends[event_index]
        map_number = -1
        if trait & (IS_ROWS | IS_MAP):
            map_number = find_table_map_number(trait, buf, p, n, state, known_maps)
        if trait & NEEDS_TRACKER or map_number == -2 or (trait & IS_QUERY and is_possible_ddl(buf, p, n)):
            return event_index
        is_inside = is_separate > 0 and tables.groups[event_index] == state[CONTAINER_RECORD]
        if (
            trait & IS_GTID
            and not is_inside
            and not try_set_transaction_gtid(code, frames.servers[event_index], buf, p, n, state)
        ):
            return event_index
        role = INSIDE if is_inside else OPENS
        if is_separate > 0:
            state[CONTAINER_RECORD] = tables.groups[event_index] + 0
        else:
            step_result = compute_packed_group_step(state[GROUP_STATE], get_event_mark(trait, tables.words, buf, p, n))
            state[GROUP_STATE] = step_result & GROUP_BITS
            role = step_result >> STEP_AT & STEP_BITS
        if role == OPENS and not trait & IS_GTID:
            state[SOURCE] = -1
        if is_separate > 0 and role == OPENS:
            state[TURN] += 1
        transaction_columns.sources[event_index] = -1 if role == OUTSIDE else state[SOURCE]
        transaction_columns.numbers[event_index] = state[GTID_NUMBER]
        transaction_columns.maps[event_index] = open_or_use_table_map(trait, map_number, buf, p, n, state, known_maps)
        if role == ENDS:
            state[SOURCE] = -1
        if role == ENDS or (role == OPENS and is_separate == 0):
            state[TURN] += 1
        event_index += 1
    return stop


# --- Compiled transaction tracking ---

T = TypeVar("T")

MAX_CACHED = 4096
"""Maximum number of table maps or sources that are kept from batch to batch."""

_MAX_STEP = 512
_MIN_COMPILED_RUN = 32
_INT64_LIMIT = 1 << 63
_COLUMN_NAMES = ("type_code", "server_id", "body_start", "body_end")
UNSUPPORTED_EVENTS = frozenset({EventType.QUERY_COMPRESSED, EventType.TRANSACTION_PAYLOAD, EventType.GTID_TAGGED_LOG})
"""Events that the kernel does not support."""

_TRACKED_GTIDS = frozenset({EventType.GTID, EventType.GTID_LOG})
"""GTID events whose source the kernel can track."""


def as_int_column(column: Any, count: int) -> Any:
    """Return a column in the form that compiled code reads."""
    return array("q", column[:count]) if isinstance(column, list) else column


class LazySequence(Sequence[T]):
    """Sequence whose entries are created on access."""

    def __init__(self, count: int, entry: Callable[[int], T]) -> None:
        self._count, self._entry = count, entry

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._entry(i) for i in range(*index.indices(self._count))]
        return self._entry(range(self._count)[index])


class CompiledEventTracker:
    """Compiled replacement for `EventTracker.track_records`, which it calls for events that it cannot process.

    `sources`: texts before the number of a GTID ("0-1-"); for numbers of more than 63 bits, the whole owner.
    `table_maps`: all maps seen since the cache was last reset. Both only grow within a batch.
    """

    def __init__(self, tracker: EventTracker, compile_: Callable[[Kernel], Kernel]) -> None:
        self._tracker = tracker
        self._kernel = compile_(track_events_until_unsupported)
        self._traits = build_event_type_traits(UNSUPPORTED_EVENTS)
        self._columns = tuple(array("q") for _ in range(3))
        self._last_notes: TrackedBatch | None = None
        self._reset()

    def _reset(self) -> None:
        """Reset all caches."""
        self._last_owner: tuple[int, int, OwningTransaction] = -1, -1, NO_TRANSACTION
        self.sources: list[str | OwningTransaction] = []
        self.table_maps: list[TableMap] = []
        self._source_numbers: dict[str | OwningTransaction, int] = {}
        self._map_numbers: dict[int, int] = {}
        self._valid_maps: dict[int, TableMap] = {}
        self._map_bodies, self._map_offsets = array("q", [0]), array("q", [0, 0])
        self._map_turns, self._maps_version = array("q", [0]), self._tracker.maps.version
        self._state = array("q", bytes(8 * STATE_SIZE))
        self._state[ID_SIZE] = self._tracker.maps.id_size
        self._build_id_table()

    # -- a batch -------------------------------------------------------------------------------------------------------

    def get_tracking_columns(self, tracked_batch: TrackedBatch) -> Mapping[str, Column]:
        """Return columns of the last batch: source number, number in the GTID, table map number; -1 = none."""
        if tracked_batch is not self._last_notes:  # created by the tracker before it had this object
            self._begin_batch(len(tracked_batch.transactions))
            self._store_tracked_batch(0, tracked_batch)
            self._last_notes = tracked_batch
        return dict(zip(("source", "number", "map"), self._columns, strict=True))

    def __call__(self, batch: Batch) -> TrackedBatch:
        """Track the next batch, and return its transactions and table maps."""
        self._begin_batch(batch.frames.count)
        frames = FrameColumns._make(as_int_column(batch.frames[name], batch.frames.count) for name in _COLUMN_NAMES)
        containers = None if batch.positions is None else batch.positions.record
        groups = WORD_TABLE if containers is None else as_int_column(containers, batch.frames.count)
        tables = TrackingTables(self._traits, WORD_TABLE, groups)
        is_separate = int(self._tracker.container_record is not None)
        at, step, count = 0, 1, batch.frames.count
        while True:
            maps = KnownTableMaps(self._id_table, self._map_bodies, self._map_offsets, self._map_turns)
            next_index = self._kernel(
                at, count, is_separate, frames, batch.window, self._state, tables, maps,
                TransactionColumns._make(self._columns),
            )  # fmt: skip
            if next_index == count:
                break
            step = min(2 * step, _MAX_STEP) if next_index - at < _MIN_COMPILED_RUN else 1
            at = min(next_index + step, count)
            self._track_in_python(batch, next_index, at)
        self._copy_state_to_tracker()
        self._last_notes = TrackedBatch(
            LazySequence(count, self._get_transaction), LazySequence(count, self._get_table_map)
        )
        return self._last_notes

    def get_map_numbers(self, table_maps: Sequence[TableMap | None]) -> array[int]:
        """Return the numbers of table maps that the tracker found itself, -1 = none; valid until the next batch."""
        number_by_identity = self._map_numbers.get
        numbers = [-1 if known is None else number_by_identity(id(known)) for known in table_maps]
        if None in numbers:  # there is a new map
            numbers = [-1 if known is None else self.register_table_map(known) for known in table_maps]
        return array("q", numbers)  # type: ignore[arg-type]

    @property
    def map_bodies(self) -> tuple[array[int], array[int]]:
        """Bodies of the table maps, and their offsets (`KnownTableMaps.known`, `KnownTableMaps.known_places`)."""
        return self._map_bodies, self._map_offsets

    def _begin_batch(self, count: int) -> None:
        """Prepare the columns for a batch."""
        if max(len(self.table_maps), len(self.sources)) > MAX_CACHED:
            self._reset()
        if len(self._columns[0]) < count:
            self._columns = tuple(array("q", bytes(8 * count)) for _ in range(3))
        self._copy_state_to_kernel()

    def _get_transaction(self, event_index: int) -> OwningTransaction:
        """Return the owner of event `event_index`."""
        source, number = self._columns[0][event_index], self._columns[1][event_index]
        if source < 0:
            return NO_TRANSACTION
        if self._last_owner[:2] != (source, number):
            self._last_owner = source, number, self.make_transaction(source, number)
        return self._last_owner[2]

    def make_transaction(self, source: int, number: int) -> OwningTransaction:
        """Return a transaction from its numbers in `columns`."""
        source_text = NO_TRANSACTION if source < 0 else self.sources[source]
        return (
            source_text
            if isinstance(source_text, OwningTransaction)
            else OwningTransaction(f"{source_text}{number}", number)
        )

    def _get_table_map(self, event_index: int) -> TableMap | None:
        """Return the table map of event `event_index`."""
        number = self._columns[2][event_index]
        return None if number < 0 else self.table_maps[number]

    # -- unsupported events --------------------------------------------------------------------------------------------

    def _track_in_python(self, batch: Batch, start: int, stop: int) -> None:
        """Let the tracker process some events, and register new sources and table maps."""
        self._copy_state_to_tracker()
        notes = self._tracker.track_records(batch, start, stop)
        self._store_tracked_batch(start, notes)
        self._copy_state_to_kernel(notes.maps)
        codes, indexes = batch.frames["type_code"], range(stop - 1, start - 1, -1)
        last = next((i for i in indexes if int(codes[i]) in _TRACKED_GTIDS and batch.inner_offset(i) <= 0), -1)
        if last >= 0 and self._columns[1][last] >= 0:
            self._track_gtid_source_in_kernel(batch, last)

    def _track_gtid_source_in_kernel(self, batch: Batch, last: int) -> None:
        """Make the kernel track the source of this GTID event."""
        frames, state = batch.frames, self._state
        code, server = int(frames["type_code"][last]), int(frames["server_id"][last])
        body = bytes(batch.window[int(frames["body_start"][last]) : int(frames["body_end"][last])])
        source_bytes = (body[8:12], server.to_bytes(8, "little")) if code == EventType.GTID else (body[1:9], body[9:17])
        state[LAST_CODE], state[LAST_SOURCE] = code, self._columns[0][last]
        for slot, value in zip((LAST_SOURCE_LOW, LAST_SOURCE_HIGH), source_bytes, strict=True):
            state[slot] = int.from_bytes(value, "little", signed=len(value) == 8)

    def _store_tracked_batch(self, start: int, tracked_batch: TrackedBatch) -> None:
        """Store the results of the tracker in the columns."""
        for i, (owner, table_map) in enumerate(zip(tracked_batch.transactions, tracked_batch.maps, strict=True), start):
            source = self._get_source_number(owner)
            self._columns[0][i] = source
            self._columns[1][i] = owner.seq if source >= 0 and isinstance(self.sources[source], str) else -1  # type: ignore[assignment]
            self._columns[2][i] = -1 if table_map is None else self.register_table_map(table_map)

    def _get_source_number(self, transaction: OwningTransaction) -> int:
        """Return the number of an owner's source; -1 if it has none."""
        if transaction.gtid is None or transaction.seq is None:
            return -1
        is_plain = 0 <= transaction.seq < _INT64_LIMIT
        source: str | OwningTransaction = transaction.gtid[: -len(str(transaction.seq))] if is_plain else transaction
        number = self._source_numbers.get(source)
        if number is None:
            number = self._source_numbers[source] = len(self.sources)
            self.sources.append(source)
        return number

    def register_table_map(self, table_map: TableMap) -> int:
        """Return the number of a table map, registering it if it is new."""
        number = self._map_numbers.get(id(table_map))
        if number is None:
            number = self._map_numbers[id(table_map)] = len(self.table_maps)
            self.table_maps.append(table_map)
            self._map_offsets[2 * number : 2 * number + 2] = array("q", [len(self._map_bodies), len(table_map.body)])
            self._map_bodies.extend(_pack_into_words(table_map.body))
            self._map_turns.append(0)
        return number

    # -- the tracker's state as numbers --------------------------------------------------------------------------------

    def _copy_state_to_tracker(self) -> None:
        """Copy the kernel's state to the tracker."""
        state, transactions = self._state, self._tracker.transactions
        transactions.group = state[GROUP_STATE]
        source = state[SOURCE]
        self._tracker.current_transaction = self.make_transaction(source, state[GTID_NUMBER])
        maps, turn, map_turns, number_of = self._tracker.maps, state[TURN], self._map_turns, self.register_table_map
        maps.open_ids = (
            {key for key, one in self._valid_maps.items() if map_turns[number_of(one)] == turn}
            if state[MAP_TURN] == turn
            else set()
        )
        if self._tracker.container_record is not None:
            self._tracker.container_record = state[CONTAINER_RECORD]
            maps.by_id = {key: self._valid_maps[key] for key in maps.open_ids}

    def _copy_state_to_kernel(self, new_maps: Sequence[TableMap | None] = ()) -> None:
        """Copy the tracker's state to the kernel; `new_maps`: table maps that the tracker found."""
        state, tracker = self._state, self._tracker
        transactions, owner = tracker.transactions, tracker.current_transaction
        state[GROUP_STATE] = transactions.group
        source = state[SOURCE] = self._get_source_number(owner)
        is_plain = source >= 0 and isinstance(self.sources[source], str)
        state[GTID_NUMBER] = owner.seq if is_plain and owner.seq is not None else -1
        valid_maps = tracker.maps.by_id
        if (
            tracker.container_record is not None and tracker.maps.version == self._maps_version
        ):  # table maps of earlier groups are still valid
            valid_maps = self._valid_maps | {one.table_id: one for one in new_maps if one is not None} | valid_maps
        self._maps_version = tracker.maps.version
        if self._valid_maps != valid_maps:
            self._valid_maps = dict(valid_maps)
            self._build_id_table()
        if tracker.container_record is not None:
            state[CONTAINER_RECORD] = tracker.container_record
        state[TURN] += 1
        for table_id in tracker.maps.open_ids:
            number = self.register_table_map(
                self._valid_maps[table_id]
            )  # that of `_id_table`: an equal map may be older
            self._map_turns[number] = state[MAP_TURN] = state[TURN]

    def _build_id_table(self) -> None:
        self._id_table = build_table_id_hash_table(
            {key: self.register_table_map(one) for key, one in self._valid_maps.items()}
        )
        self._state[ID_TABLE_MASK] = len(self._id_table) // 2 - 1


def build_table_id_hash_table(map_numbers: Mapping[int, int]) -> array[int]:
    """Build the table of ids (see `find_table_id_slot`); it is at most half full."""
    size = 1024
    while size < 2 * len(map_numbers):
        size *= 2
    table = array("q", [0, -1]) * size
    for table_id, number in map_numbers.items():
        insert_table_id(table, table_id, number)
    return table


def insert_table_id(table: array[int], table_id: int, map_number: int) -> None:
    """Insert a table id into a table of ids."""
    at = find_table_id_slot(table_id, table, len(table) // 2 - 1)
    table[2 * at], table[2 * at + 1] = table_id + 1, map_number


def _pack_into_words(data: bytes) -> tuple[int, ...]:
    """Return bytes as 64-bit numbers, the last one padded with zeros."""
    count = -(-len(data) // 8)
    return struct.unpack(f"<{count}q", data.ljust(8 * count, b"\0"))


# --- Table maps of nested events, as a kernel ---


class EventBodies(NamedTuple):
    """Columns with one entry per event: its type, and the range of its body."""

    codes: Int64s
    starts: Int64s
    ends: Int64s


@kernel(find_table_map_number, open_or_use_table_map)
def fill_nested_map_numbers(
    event_index: int,
    stop: int,
    events: EventBodies,
    container_offsets: Int64s,
    buf: UInt8s,
    state: MutableInt64s,
    traits: Int64s,
    known_maps: KnownTableMaps,
    map_numbers: MutableInt64s,
) -> int:
    """Fill `map_numbers` for the nested events from `event_index` on.

    `container_offsets`: offset of the event that contains each event, -1 = none.

    Returns:
        Where the kernel stopped: at an unregistered TABLE_MAP, or `stop`.
    """
    while event_index < stop:
        trait = traits[events.codes[event_index]] & (IS_MAP | IS_ROWS)
        if container_offsets[event_index] != state[CONTAINER_RECORD]:
            state[CONTAINER_RECORD] = container_offsets[event_index] + 0
            state[TURN] += 1
        if container_offsets[event_index] >= 0:
            p = events.starts[event_index]
            n = events.ends[event_index]
            map_number = find_table_map_number(trait, buf, p, n, state, known_maps) if trait > 0 else -1
            if trait & IS_MAP and map_number < 0:
                return event_index
            map_numbers[event_index] = open_or_use_table_map(trait, max(map_number, -1), buf, p, n, state, known_maps)
        event_index += 1
    return stop


# --- Table maps of nested events by compiled code, for scripts ---


class NestedTableMapNumbers:
    """Assigns the table map numbers of the file's compiled tracker to nested events, and registers new maps."""

    def __init__(
        self, tracker: EventTracker, follower: CompiledEventTracker, compile_: Callable[[Kernel], Kernel]
    ) -> None:
        self._tracker, self._table_tracker = tracker, follower
        self._kernel = compile_(fill_nested_map_numbers)
        self._traits = build_event_type_traits(())
        self._state = array("q", bytes(8 * STATE_SIZE))
        self._reset()

    def _reset(self) -> None:
        """Reset all caches."""
        self._maps: TableMaps = self._tracker.maps.create_for_nested_events()
        self._registered_maps: list[TableMap] = self._table_tracker.table_maps
        self._maps_version = self._tracker.maps.version
        self._by_id: dict[int, int] = {}
        self._map_turns = array("q")
        self._build_id_table()
        self._state[ID_SIZE] = self._maps.id_size

    def fill_map_numbers(self, columns: tuple[Any, ...], containers: Any, window: Any, map_numbers: array[int]) -> None:
        """Fill in the table map numbers of nested events; `columns`: type, body start and body end."""
        if (
            self._registered_maps is not self._table_tracker.table_maps
            or self._maps_version != self._tracker.maps.version
            or len(self._by_id) > MAX_CACHED
        ):
            self._reset()
        index, count, self._state[CONTAINER_RECORD] = 0, len(map_numbers), -1
        events = EventBodies._make(columns)
        while True:
            self._map_turns.extend([0] * (len(self._registered_maps) - len(self._map_turns)))
            index = self._kernel(
                index, count, events, containers, window, self._state, self._traits,
                KnownTableMaps(self._id_table, *self._table_tracker.map_bodies, self._map_turns), map_numbers,
            )  # fmt: skip
            if index == count:
                return
            map_numbers[index] = self._register_nested_map(bytes(window[columns[1][index] : columns[2][index]]))
            index += 1

    def _register_nested_map(self, table_map_body: bytes) -> int:
        """Register the table map of this TABLE_MAP event; return its number, -1 if it cannot be read."""
        table_map = self._maps.add_table_map(table_map_body)
        number = -1 if table_map is None else self._table_tracker.register_table_map(table_map)
        table_id = int.from_bytes(table_map_body[: self._maps.id_size], "little")
        self._by_id[table_id] = number
        if 2 * len(self._by_id) > len(self._id_table) // 2:
            self._build_id_table()
        insert_table_id(self._id_table, table_id, number)
        if number >= 0:
            self._map_turns.extend([0] * (number + 1 - len(self._map_turns)))
            self._map_turns[number] = self._state[TURN]
        return number

    def _build_id_table(self) -> None:
        self._id_table = build_table_id_hash_table(self._by_id)
        self._state[ID_TABLE_MASK] = len(self._id_table) // 2 - 1


# --- Kernel for transaction boundaries ---

# State: an array of 64-bit integers.
SPLIT_GROUP_STATE, BOUNDARY_COUNT, SPLIT_STATE_SIZE = range(3)
"""GROUP_STATE: the open group, as in `transactions.boundaries`. BOUNDARY_COUNT: number of events of the batch before
the last boundary."""


@kernel(get_event_mark, is_possible_ddl, compute_packed_group_step)
def track_boundaries_until_unsupported(
    event_index: int,
    stop: int,
    events: EventBodies,
    buf: UInt8s,
    state: MutableInt64s,
    traits: Int64s,
    words: Int64s,
) -> int:
    """Track the events from `event_index` on; return where the kernel stopped: at an event that it cannot read, or
    `stop`.

    `traits`: see `build_event_type_traits`. `words`: `WORD_TABLE`.
    """
    while event_index < stop:
        trait = traits[events.codes[event_index]]
        if trait & NEEDS_TRACKER or (
            trait & IS_QUERY and is_possible_ddl(buf, events.starts[event_index], events.ends[event_index])
        ):
            return event_index
        mark = get_event_mark(trait, words, buf, events.starts[event_index], events.ends[event_index])
        state[SPLIT_GROUP_STATE] = compute_packed_group_step(state[SPLIT_GROUP_STATE], mark) & GROUP_BITS
        event_index += 1
        if state[SPLIT_GROUP_STATE] == NO_GROUP and mark != NEVER_LAST and mark != ROW_EVENT:  # not inside a statement
            state[BOUNDARY_COUNT] = event_index
    return stop
