"""Tables of row events, with their columns and rows.

Events about which the kernels lack information take the general path (`RowEventTableReader.read_records`). So do events
whose
rows the kernels cannot decode: the events before them are then processed again, without those after them. A value that
only Python can decode does not stop the kernels (`typed_column_kernels`).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import ROWS_DIVERGE, ROWS_NOT_LOGGED, Finding, Severity, make_finding
from binlogtool.format_api.layout import Batch, Kernel
from binlogtool.format_api.row_output_interfaces import (
    MAX_DECIMAL_DIGITS,
    NO_ROWS,
    TRANSACTION_BEGINS,
    CellRun,
    EventRows,
    RecordTableRows,
    TableColumn,
    TableReader,
    TableRow,
    TableSchema,
    make_database_table,
    pad_binary_columns,
    split_table_name,
)
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.changes import typed_column_kernels
from binlogtool.formats.binlog_events.changes.track_row_event_kernels import (
    CLOSED_BY,
    CLOSED_BY_END,
    CLOSED_BY_NEXT,
    COUNT,
    GROUP_STATE,
    STATE_SIZE,
    TIME,
    TRANSACTION_OPEN,
    UNKNOWN,
    UNWANTED,
    WANTED,
    RowEventColumns,
    SelectedRowEvents,
    TableMapStates,
    select_row_events_until_unsupported,
)
from binlogtool.formats.binlog_events.changes.typed_column_kernels import (
    MAX_COMPILED_COLUMNS,
    MAX_FILLER_ROWS,
    RAW_COUNT,
    RowCellFiller,
    RowCellFillers,
    parse_image_layout,
)
from binlogtool.formats.binlog_events.ddl.changed_table import find_changed_table
from binlogtool.formats.binlog_events.ddl.parse_ddl import ParsedDdl, parse_ddl
from binlogtool.formats.binlog_events.ddl.split_sql_statements import (
    decode_statement_with_default_quotes,
    find_next_word_offset,
)
from binlogtool.formats.binlog_events.ddl.table_history import CascadeReporter, TableCatalog
from binlogtool.formats.binlog_events.decode import NO_TRANSACTION, BinlogFileContext, decode_envelope_column, type_name
from binlogtool.formats.binlog_events.event_schemas import Event, iter_events
from binlogtool.formats.binlog_events.gtid.gtid_events import read_mysql_gtid
from binlogtool.formats.binlog_events.rows.rows_event import DUMMY_TABLE_ID, decode_rows, fill_unchanged_json
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.script_state import (
    EventContext,
    get_statement_kind,
    make_event_context,
    read_query_and_text,
)
from binlogtool.formats.binlog_events.status_variables import is_unfinished_alter
from binlogtool.formats.binlog_events.transactions.boundaries import (
    NEEDS_TRACKER,
    WORD_TABLE_WITHOUT_ROLLBACK,
    GroupStep,
    QueryKind,
    TransactionGroupState,
    build_event_type_traits,
)
from binlogtool.formats.binlog_events.transactions.transaction_kernels import (
    MAX_CACHED,
    UNSUPPORTED_EVENTS,
    CompiledEventTracker,
    as_int_column,
)
from binlogtool.formats.binlog_events.values.column_types import BLOBS, EXPORTED_TYPES, ColumnType, TableMapColumn
from binlogtool.formats.binlog_events.values.decode_value_to_sink_kernels import UNSUPPORTED
from binlogtool.formats.binlog_events.wire_format import (
    DELETE_ROW_EVENTS,
    GTID_EVENTS,
    QUERY_EVENTS,
    ROW_EVENTS,
    UPDATE_ROW_EVENTS,
    EventType,
    read_declared_unpacked_size,
    unpack_compressed_block,
)
from binlogtool.limits import Limits, require_value_bytes

# --- Runs of events ---

_MAX_PLAN_WORDS = 1 << 21
"""Maximum size of the plans and heads of row events in words; when they exceed it, all are dropped."""
_MAX_UNPACKED_BYTES = 16 << 20
"""Maximum size of compressed row images that are unpacked at once, in bytes."""
_ALL_SELECTED = b"\1" * (1 << 16)
_FRAME_COLUMNS = ("type_code", "server_id", "timestamp", "offset", "body_start", "body_end")
_CODES, _STARTS, _ENDS = 0, 4, 5
_OUTPUT_COLUMNS = ("which", "places", "layouts", "tables", "times", "origins", "owners", "serials", "commits", "groups")
_STOP_EVENTS = UNSUPPORTED_EVENTS | {EventType.PARTIAL_UPDATE_ROWS, EventType.EXECUTE_LOAD_QUERY, EventType.INCIDENT}


WRITE_EVENTS = ROW_EVENTS - UPDATE_ROW_EVENTS - DELETE_ROW_EVENTS


_STATEMENTS = "statements that may change tables are between the rows"
_MANY_TABLES = f"more than {MAX_CACHED:,} table maps are in use"
_MANY_FORMS = "their row events have too many forms"
_UNCERTAIN = "the names of their columns are not certain"
_CASCADES = "foreign keys are checked"
_OTHER_HEAD = f"they have more than {MAX_COMPILED_COLUMNS} columns, or other columns than their table map"
_PARTIAL_JSON = "they have partial JSON values"
_INVALID_ROWS = "they are not valid, or too large"
_UNPACKED = f"compressed events have more than {_MAX_UNPACKED_BYTES >> 20} MiB"


class _UnsupportedEvent(Exception):
    """Raised for an event whose rows compiled code cannot decode.

    Attributes:
        index: index of the event in its batch.
        reason: reason, as text about the rows.
    """

    def __init__(self, index: int, reason: str = _INVALID_ROWS) -> None:
        super().__init__(index, reason)
        self.index, self.reason = index, reason


class _KernelBatch(NamedTuple):
    """A batch in the form that the kernels need.

    Attributes:
        owners: source, number and map of each event, see `CompiledEventTracker.get_tracking_columns`.
        sources: see `EventRows`.
    """

    window: Any
    frames: list[Any]
    owners: list[Any]
    follower: CompiledEventTracker
    sources: list[tuple[str | None, int | None]]


class _RowImages(NamedTuple):
    """Bytes with row images. starts, ends: for each event of the batch, the range of its body or unpacked images."""

    window: Any
    starts: Any
    ends: Any


class CompiledRowEventReader:
    """Processes runs of row events in the files of a log, one file after the other.

    Facts about table maps are indexed by the map numbers of the file's `CompiledEventTracker`.

    Attributes:
        reason: why the event after the last run takes the general path, as text about its rows.
    """

    def __init__(self, fillers: RowCellFillers, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._fillers, self._compile_kernel = fillers, compile_kernel
        self._follow_kernel, self._store_kernel = (
            compile_kernel(select_row_events_until_unsupported),
            compile_kernel(typed_column_kernels.store_rows_of_events),
        )
        self._traits = build_event_type_traits(_STOP_EVENTS)
        self._state = array("q", bytes(8 * STATE_SIZE))
        self._outputs = [array("q") for _ in _OUTPUT_COLUMNS]
        self._described: list[TableSchema] = []
        self.reason = ""
        self._reset_table_maps([], -1)

    def _reset_table_maps(self, table_maps: list[TableMap], facts_version: int) -> None:
        """Drop all maps and start with these.

        Args:
            facts_version: `RowEventTableReader.table_facts_version` for which the maps will be resolved.
        """
        self._maps, self._version = table_maps, facts_version
        self._map_states = array("q")
        self._tables: dict[int, tuple[TableMap, TableSchema]] = {}
        self._heads, self._plans, self._shapes = array("q", [0]), array("q"), array("q")
        self._plan_positions: dict[bytes, int] = {}
        self._layout_kinds: list[tuple[int, tuple[tuple[int, int], ...]]] = []
        self._compressed_layouts: set[int] = set()

    # -- a batch -------------------------------------------------------------------------------------------------------

    def read_events(
        self,
        reader: RowEventTableReader,
        context: BinlogFileContext,
        batch: Batch,
        start: int,
        stop: int,
        limits: Limits,
        selected_flags: bytes | None,
    ) -> tuple[EventRows | None, int]:
        """Return the content of the first of these records, and the next record that needs `read_records`.

        Args:
            selected_flags: see `CompiledTableReader.read_rows_until_unsupported`.
        """
        self.reason = _STATEMENTS
        source = None if context.encrypted_without_key else self._prepare_kernel_batch(context, batch)
        if source is None:
            return None, start
        selected = _ALL_SELECTED if selected_flags is None else bytes(start) + selected_flags
        if selected_flags is None and len(selected) < stop:
            selected = b"\1" * stop
        self._sync_table_maps(reader, source.follower)
        while stop > start:
            next_event = self._select_until_unsupported_event(reader, context, source, start, stop, selected, limits)
            try:
                runs, sizes = self._store_rows_of_found_events(source, limits)
            except _UnsupportedEvent as error:
                stop, self.reason = error.index, error.reason
                continue
            if next_event == start:
                break
            state, groups = self._state, reader.groups
            groups.group = state[GROUP_STATE]
            reader.time = state[TIME] or None
            return self._build_event_rows(source.sources, runs, sizes), next_event
        return None, start

    def _prepare_kernel_batch(self, context: BinlogFileContext, batch: Batch) -> _KernelBatch | None:
        """Return the batch's columns as int64 arrays with transaction and table map of each event; None if there are
        too many maps.
        """
        tracker, count = context.tracker, batch.frames.count
        if len(tracker.maps.by_id) > MAX_CACHED:
            tracker.compiled_tracker, self.reason = None, _MANY_TABLES
            return None
        if not isinstance(tracker.compiled_tracker, CompiledEventTracker):
            tracker.compiled_tracker = CompiledEventTracker(tracker, self._compile_kernel)
        follower = tracker.compiled_tracker
        frames, notes = (
            [as_int_column(batch.frames[name], count) for name in _FRAME_COLUMNS],
            tracker.track_batch(batch),
        )
        if batch.container is not None:
            owner = notes.transactions[0] if count else NO_TRANSACTION
            columns = [array("q", [0 if owner.gtid else -1]) * count, array("q", [-1]) * count]
            return _KernelBatch(
                batch.window,
                frames,
                [*columns, follower.get_map_numbers(notes.maps)],
                follower,
                [(owner.gtid, owner.seq)],
            )
        by_name = follower.get_tracking_columns(notes)
        sources = [(one, None) if isinstance(one, str) else (one.gtid, one.seq) for one in follower.sources]
        return _KernelBatch(
            batch.window, frames, [by_name[name] for name in ("source", "number", "map")], follower, sources
        )

    def _sync_table_maps(self, reader: RowEventTableReader, compiled_tracker: CompiledEventTracker) -> None:
        version = reader.table_facts_version
        if self._maps is not compiled_tracker.table_maps or self._version != version or self._has_too_many_heads:
            self._reset_table_maps(compiled_tracker.table_maps, version)
        if (missing_words := 2 * len(self._maps) - len(self._map_states)) > 0:
            self._map_states.extend(array("q", bytes(8 * missing_words)))

    @property
    def _has_too_many_heads(self) -> bool:
        return len(self._plans) + len(self._heads) > _MAX_PLAN_WORDS

    def _select_until_unsupported_event(
        self,
        reader: RowEventTableReader,
        context: BinlogFileContext,
        kernel_batch: _KernelBatch,
        event: int,
        stop: int,
        selected_flags: bytes,
        limits: Limits,
    ) -> int:
        """Find the row events; return the first event that compiled code cannot process."""
        state, groups = self._state, reader.groups
        state[:] = array("q", bytes(8 * STATE_SIZE))
        state[GROUP_STATE], state[TIME] = groups.group, reader.time or 0
        if len(self._outputs[0]) < stop - event:
            self._outputs = [array("q", bytes(8 * (stop - event))) for _ in _OUTPUT_COLUMNS]
        id_size = context.description.table_id_size
        while True:
            events = RowEventColumns._make((*kernel_batch.frames, *kernel_batch.owners))
            known = TableMapStates(self._map_states, self._heads, id_size + 2)
            rows = SelectedRowEvents._make(self._outputs)
            event = self._follow_kernel(
                event, stop, selected_flags, events, kernel_batch.window, self._traits, WORD_TABLE_WITHOUT_ROLLBACK,
                state, known,
                rows,
            )  # fmt: skip
            if event == stop or not self._try_resolve_stopping_event(reader, kernel_batch, event, id_size, limits):
                return int(event)

    def _build_event_rows(
        self, sources: list[tuple[str | None, int | None]], runs: list[CellRun], row_counts: array[int]
    ) -> EventRows:
        state, count = self._state, self._state[COUNT]
        which, places, layouts, _, times, origins, owners, serials, commits, groups = (
            one[:count] for one in self._outputs
        )
        described, self._described = self._described, []
        closes = state[CLOSED_BY]
        return EventRows(
            described, closes == CLOSED_BY_END, closes == CLOSED_BY_NEXT,
            bool(state[TRANSACTION_OPEN]), runs, which,
            places, row_counts, layouts, times, origins, owners, serials, commits, groups, self._layout_kinds, sources,
        )  # fmt: skip

    # -- unsupported events --------------------------------------------------------------------------------------------

    def _try_resolve_stopping_event(
        self, reader: RowEventTableReader, kernel_batch: _KernelBatch, event: int, table_id_size: int, limits: Limits
    ) -> bool:
        """Resolve what the kernel lacked for the event where it stopped; return whether it can take the event now."""
        code, number = kernel_batch.frames[_CODES][event], kernel_batch.owners[2][event]
        if number < 0 or self._traits[code] & NEEDS_TRACKER:
            self.reason = _PARTIAL_JSON if code == EventType.PARTIAL_UPDATE_ROWS else _STATEMENTS
            return False
        try:
            if self._map_states[2 * number] == UNKNOWN:
                keyed_map, exported_table, is_wanted = reader.resolve_map_and_selection(self._maps[number])
                if is_wanted and reader.has_unreported_doubt(keyed_map):
                    self.reason = _UNCERTAIN
                    return False
                if reader.has_unreported_cascades(exported_table) and (code not in WRITE_EVENTS or not is_wanted):
                    self.reason = _CASCADES
                    return False
                self._tables[number] = keyed_map, exported_table
                self._map_states[2 * number] = WANTED if is_wanted else UNWANTED
                self._described.append(exported_table)
                return True
            body = kernel_batch.window[kernel_batch.frames[_STARTS][event] : kernel_batch.frames[_ENDS][event]]
            if code not in WRITE_EVENTS and reader.has_unreported_cascades(self._tables[number][1]):
                self.reason = _CASCADES
                return False
            return code in ROW_EVENTS and self._try_register_image_layout(code, body, number, table_id_size + 2, limits)
        except (MalformedError, DecompressionError):
            self.reason = _INVALID_ROWS
            return False

    def _try_register_image_layout(
        self, type_code: int, body: memoryview, map_number: int, rows_head_offset: int, limits: Limits
    ) -> bool:
        """Register the row event's image layout for the kernel; return False if its columns or number of layouts are
        not supported.
        """
        table_map, table = self._tables[map_number]
        layout = (
            parse_image_layout(type_code, body, table_map) if len(table_map.columns) <= MAX_COMPILED_COLUMNS else None
        )
        if layout is None or self._has_too_many_heads:
            self.reason = _OTHER_HEAD if layout is None else _MANY_FORMS
            return False
        head, entry = bytes(body[rows_head_offset : layout.images_at]), len(self._heads)
        self._heads.extend([self._map_states[2 * map_number + 1], type_code, len(head), len(self._layout_kinds)])
        self._heads.frombytes(head.ljust(-(-len(head) // 8) * 8, b"\0"))
        self._map_states[2 * map_number + 1] = entry
        if layout.compressed:
            self._compressed_layouts.add(len(self._layout_kinds))
        self._layout_kinds.append((layout.sides, layout.absent))
        plan = self._fillers.get_filler_for_next_rows(table_map, table, limits).get_storage_plan(layout)
        plan_at = self._plan_positions.setdefault(plan.tobytes(), len(self._plans))
        if plan_at == len(self._plans):
            self._plans.extend(plan)
        self._shapes.extend([0 if layout.compressed else layout.images_at, plan_at])
        return True

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _store_rows_of_found_events(
        self, kernel_batch: _KernelBatch, limits: Limits
    ) -> tuple[list[CellRun], array[int]]:
        """Store the rows of all events found; return the runs of cells, and the number of rows of each event.

        Raises:
            _UnsupportedEvent: some rows cannot be stored; the fillers are left unchanged.
        """
        runs, sizes, old_rows = list[CellRun](), array("q", bytes(8 * self._state[COUNT])), dict[int, Any]()
        images = self._locate_and_unpack_images(kernel_batch, limits)
        failed_events = []
        for number, picks in self._iter_events_by_table_map():
            try:
                for run in self._store_rows_of_map(images, number, picks, sizes, limits):
                    old_rows.setdefault(id(run.buffer), (run.buffer, run.start))
                    runs.append(run)
            except _UnsupportedEvent as error:
                failed_events.append(error.index)
        if failed_events:
            for filler, rows in old_rows.values():
                filler.rows = rows
            raise _UnsupportedEvent(min(failed_events))
        return runs, sizes

    def _locate_and_unpack_images(self, kernel_batch: _KernelBatch, limits: Limits) -> _RowImages:
        """Return the positions of the images of the events found; those of compressed events are unpacked.

        Raises:
            _UnsupportedEvent: an event cannot be unpacked, or the events before it already use enough memory.
        """
        which, _, layouts, maps, *_ = (one[: self._state[COUNT]] for one in self._outputs)
        starts, ends = kernel_batch.frames[_STARTS], kernel_batch.frames[_ENDS]
        if not self._compressed_layouts or self._compressed_layouts.isdisjoint(layouts):
            return _RowImages(kernel_batch.window, starts, ends)
        data, new_starts, new_ends = bytearray(), array("q", bytes(8 * len(starts))), array("q", bytes(8 * len(starts)))
        for event, layout_number, map_number in zip(which, layouts, maps, strict=True):
            body = kernel_batch.window[starts[event] : ends[event]]
            new_starts[event] = len(data)
            try:
                if layout_number in self._compressed_layouts:
                    layout = parse_image_layout(kernel_batch.frames[_CODES][event], body, self._tables[map_number][0])
                    block = body[layout.images_at if layout is not None else 0 :]
                    if data and len(data) + read_declared_unpacked_size(block) > _MAX_UNPACKED_BYTES:
                        raise _UnsupportedEvent(event, _UNPACKED)
                    body = memoryview(unpack_compressed_block(block, limits))
            except (MalformedError, DecompressionError):
                raise _UnsupportedEvent(event) from None
            require_value_bytes(len(body))
            data += body
            new_ends[event] = len(data)
        return _RowImages(data, new_starts, new_ends)

    def _iter_events_by_table_map(self) -> Iterator[tuple[int, array[int]]]:
        """Yield the row events of each table as (number of the map, events with that map)."""
        numbers = self._outputs[_OUTPUT_COLUMNS.index("tables")][: self._state[COUNT]]
        if numbers and numbers.count(numbers[0]) == len(numbers):
            yield numbers[0], array("q", range(len(numbers)))
            return
        by_name = dict[str, list[int]]()
        for event, number in enumerate(numbers):
            by_name.setdefault(self._tables[number][1].name, []).append(event)
        for events in by_name.values():
            for number, map_events in groupby(events, numbers.__getitem__):
                yield number, array("q", map_events)

    def _store_rows_of_map(
        self, images: _RowImages, map_number: int, event_numbers: array[int], row_counts: array[int], limits: Limits
    ) -> Iterator[CellRun]:
        """Store the rows of these events.

        Raises:
            _UnsupportedEvent: the rows of an event cannot be stored.
        """
        pick, (found_events, _, layouts, *_) = 0, self._outputs
        picked = typed_column_kernels.PickedEvents(event_numbers, found_events, layouts, images.starts, images.ends)
        row_layouts = typed_column_kernels.RowLayouts(self._shapes, self._plans)
        table_map, table = self._tables[map_number]
        while pick < len(event_numbers):
            filler = self._fillers.get_filler_for_next_rows(table_map, table, limits)
            first_row, raw_count = filler.rows, filler.target.counts[RAW_COUNT]
            next_pick, row, status = self._store_kernel(
                pick,
                len(event_numbers),
                picked,
                images.window,
                row_layouts,
                first_row,
                MAX_FILLER_ROWS,
                filler.target,
                row_counts,
            )
            run = CellRun(filler, first_row, event_numbers[pick:next_pick])
            if next_pick > pick:
                if filler.target.counts[RAW_COUNT] > raw_count:
                    _require_decodable_raw_values(filler, run, row_counts, found_events, limits)
                filler.rows = row
                yield run
            if status == UNSUPPORTED or (
                status == typed_column_kernels.FULL and not self._fillers.try_open_larger_filler(table_map)
            ):
                raise _UnsupportedEvent(found_events[event_numbers[next_pick]])
            pick = next_pick


def _require_decodable_raw_values(
    filler: RowCellFiller, run: CellRun, row_counts: array[int], found_events: array[int], limits: Limits
) -> None:
    """Check the values that must be decoded one by one in Python.

    Raises:
        _UnsupportedEvent: a value cannot be decoded.
    """
    row, stop = run.start, run.start + sum(row_counts[event] for event in run.event_numbers)
    if filler.can_decode_raw_values(row, stop, limits):
        return
    for event in run.event_numbers:
        if not filler.can_decode_raw_values(row, row + row_counts[event], limits):
            raise _UnsupportedEvent(found_events[event])
        row += row_counts[event]


# --- Statements that change rows without row events ---

STATEMENT_WITHOUT_ROWS = "a statement that changes rows; the log does not record which"
INCIDENT = "the server lost events here"
_WRITING_STATEMENT = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD|CALL|WITH|SELECT)\b", re.IGNORECASE)

_SELECTS = re.compile(r"\bSELECT\b", re.IGNORECASE)
_MAX_PARSED_CHARS = 1 << 20
_VERB_BYTES, _SHOWN_BYTES = 16, 80


def describe_rollback(kind: QueryKind | None, sql: bytes, *, ends_group: bool) -> str:
    """Describe a statement that rolls back rows that are in the log; "" for other statements.

    Args:
        ends_group: the statement ends its group.
    """
    start = sql[:_VERB_BYTES].upper()
    if kind is QueryKind.ROLLBACK and ends_group:
        return "this transaction was rolled back, but the log still has its rows"
    if kind is QueryKind.SAVEPOINT and start.startswith(b"ROLLBACK"):
        return "this transaction was rolled back to a savepoint, but the log still has the rows that were undone"
    if kind is QueryKind.XA_FINISH and start.startswith(b"XA ROLLBACK"):
        return (
            f"{sql[:_SHOWN_BYTES].decode('utf-8', 'replace')}: the transaction was rolled back, but the "
            f"log still has its prepared rows"
        )
    return ""


def is_row_changing_statement(statement: ParsedDdl) -> bool:
    """Return whether a logged statement changes rows; a SELECT is logged only if a function in it changes some."""
    text = statement.text
    if _WRITING_STATEMENT.match(text, find_next_word_offset(text)):
        return True
    if statement.created is None or not _SELECTS.search(text):
        return False
    return len(text) > _MAX_PARSED_CHARS or statement.clauses.has_select or bool(statement.clauses.error)


class LoggedStatement(NamedTuple):
    """A statement of the log.

    Attributes:
        reason: why its row changes are unknown; "" if it changes no rows.
        table: full name of the only table whose rows it changes.
        cascades: findings about tables that it changes by foreign keys.
    """

    ddl: ParsedDdl
    reason: str = ""
    table: str | None = None
    cascades: tuple[Finding, ...] = ()


_NO_STATEMENT = LoggedStatement(ParsedDdl("", ""))


def read_and_apply_statement(
    event_context: EventContext, catalog: TableCatalog, cascades: CascadeReporter
) -> LoggedStatement:
    """Read a statement that may define tables or change rows, and apply it to the catalog."""
    parts, sql = read_query_and_text(event_context)
    text = "" if is_unfinished_alter(parts.status_vars) else decode_statement_with_default_quotes(sql, parts)
    ddl = parse_ddl(text, parts.db.decode("utf-8", "backslashreplace"))
    statement = LoggedStatement(ddl)
    if is_row_changing_statement(ddl):
        named, table = find_changed_table(ddl), catalog.find_only_changed_table(ddl)
        findings = tuple(cascades.report_statement_cascades(catalog.foreign_keys, event_context.event, table, ddl.text))
        reason = f"{named}: {STATEMENT_WITHOUT_ROWS}" if named else STATEMENT_WITHOUT_ROWS
        statement = LoggedStatement(ddl, reason, table, findings)
    catalog.apply_statement(sql, parts)
    return statement


# --- Tables of row events ---

_C = ColumnType
_INT_TYPES = frozenset({_C.TINY, _C.SHORT, _C.INT24, _C.YEAR})
_LONG_BYTES_TYPES = BLOBS | {_C.BLOB_COMPRESSED}
_BYTES_TYPES = _LONG_BYTES_TYPES | {_C.STRING, _C.VAR_STRING, _C.VARCHAR, _C.VARCHAR_COMPRESSED}


def exported_type_name(column: TableMapColumn) -> str:
    """Return the type of a column in the exported table; "string" if nothing better is known."""
    type_ = column.type
    if type_ in _INT_TYPES:
        return "int"
    if type_ == _C.LONG:
        return "bigint" if column.unsigned else "int"
    if type_ == _C.LONGLONG:
        return "decimal(20,0)" if column.unsigned else "bigint"
    if type_ == _C.BIT:
        return "bigint" if column.metadata < 64 else "decimal(20,0)"
    if type_ == _C.NEWDECIMAL:
        precision, scale = column.metadata >> 8, column.metadata & 0xFF
        return f"decimal({precision},{scale})" if precision <= MAX_DECIMAL_DIGITS else "string"
    if type_ == _C.ENUM:
        return "string" if column.values else "int"
    if type_ == _C.SET:
        return "array<string>" if column.values else "decimal(20,0)"
    if (
        type_ in _BYTES_TYPES
        and column.logical is None
        and not column.text
        and column.charset in _binary_charsets(type_)
    ):
        return "binary"
    return EXPORTED_TYPES.get(column.logical) or EXPORTED_TYPES.get(type_, "string")


def _binary_charsets(column_type: int) -> tuple[str | None, ...]:
    """Return the character sets that mean bytes; a BLOB without a character set in its map may be BLOB or TEXT."""
    return ("binary", None) if column_type in _LONG_BYTES_TYPES else ("binary",)


def build_exported_table_schema(table_map: TableMap) -> TableSchema:
    """Return the exported table of a map; cached in the map."""
    table: TableSchema | None = table_map.memo.get("table")
    if table is None:
        columns = tuple(
            TableColumn(key, exported_type_name(one))
            for key, one in zip(table_map.column_keys, table_map.columns, strict=True)
        )
        key = tuple(table_map.column_keys[index] for index, _ in table_map.primary_key or ())
        table = table_map.memo["table"] = make_database_table(table_map.database, table_map.table, columns, key)
    return table


class RowEventTableReader(msgspec.Struct, TableReader):
    """Tracks the events of a log and produces table rows.

    Attributes:
        time: commit time of the open transaction, if its GTID has one.
        is_selected: selects the tables whose rows are reported; None = all.
        reported: reasons for uncertain column names that were already reported.
        records_as_values: `read_records` yields values instead of cells.
    """

    groups: TransactionGroupState = msgspec.field(default_factory=TransactionGroupState)
    knowledge: TableCatalog = msgspec.field(default_factory=TableCatalog)
    fillers: RowCellFillers | None = None
    runs: CompiledRowEventReader | None = None
    cascades: CascadeReporter = msgspec.field(default_factory=CascadeReporter)
    time: int | None = None
    is_selected: Callable[[TableSchema], bool] | None = None
    reported: set[str] = msgspec.field(default_factory=set)
    records_as_values: bool = False

    def read_records(
        self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; must be consumed in order."""
        self._load_start_and_hints(context)
        notes = context.tracker.track_batch(batch)
        for i, event in enumerate(iter_events(batch, start, stop), start):
            try:
                if event.code in ROW_EVENTS:
                    yield self._read_row_event(context, event, notes.maps[i], limits)
                else:
                    yield self._read_other_event(
                        make_event_context(context, batch, i, event, notes.transactions[i], notes.maps[i], limits)
                    )
            except (MalformedError, DecompressionError) as error:
                yield RecordTableRows(findings=(make_row_event_finding(event, error.finding_id, str(error.args[0])),))

    def read_rows_until_unsupported(
        self,
        context: BinlogFileContext,
        batch: Batch,
        start: int,
        stop: int,
        limits: Limits,
        marks: bytes | None = None,
    ) -> tuple[EventRows | None, int]:
        """Return the content of the first of these records, and the next record that needs `read_records`."""
        if self.runs is None:
            return None, start
        self._load_start_and_hints(context)
        return self.runs.read_events(self, context, batch, start, stop, limits, marks)

    def read_column(self, context: BinlogFileContext, batch: Batch, name: str, start: int, stop: int) -> Sequence[Any]:
        """Return one column of the envelopes of these records."""
        return decode_envelope_column(context, batch, name, start, stop)

    def use_values_instead_of_cells(self) -> None:
        """Make `read_records` yield rows as values."""
        self.records_as_values = True

    def _load_start_and_hints(self, context: BinlogFileContext) -> None:
        self.knowledge.load_starting_definitions(context.tracker.maps.history)
        self.cascades.reported.update(context.hints.reported_tables)

    def resolve_map_and_selection(self, table_map: TableMap) -> tuple[TableMap, TableSchema, bool]:
        """Return (the map with all known facts about its columns, its table, whether the table's rows are selected)."""
        keyed_map = self.knowledge.add_known_facts_and_key(table_map)
        exported_table = build_exported_table_schema(keyed_map)
        return keyed_map, exported_table, self.is_selected is None or self.is_selected(exported_table)

    def has_unreported_cascades(self, table: TableSchema) -> bool:
        """Return whether the table's events must be read one by one, as long as `version` does not change."""
        return self.cascades.has_unreported_cascade(self.knowledge.foreign_keys, table.name)

    @property
    def table_facts_version(self) -> int:
        """Number that changes whenever new facts about tables become known, or are reported."""
        return self.knowledge.version + len(self.cascades.reported) + len(self.reported)

    def has_unreported_doubt(self, table_map: TableMap) -> bool:
        """Return whether uncertain column names of a map still have to be reported."""
        return bool(table_map.uncertain) and table_map.uncertain not in self.reported

    def limit_to_tables(self, is_selected: Callable[[TableSchema], bool]) -> None:
        """Allow the reader to omit the rows of other tables; their descriptions are still reported."""
        self.is_selected = is_selected

    def note_missing_records(self) -> None:
        """Handle a gap: records may be missing here."""
        self.groups.reset()
        self.time = None

    def _read_other_event(self, event_context: EventContext) -> RecordTableRows:
        """Return what an event other than a row event means for tables: emptied, renamed and dropped tables, ends of
        transactions.
        """
        event, code = event_context.event, event_context.event.code
        if event_context.file.encrypted_without_key:
            return NO_ROWS  # a finding about the file reports it once
        if code == EventType.TABLE_MAP:
            table_map = event_context.table
            return (
                NO_ROWS
                if table_map is None
                else RecordTableRows(
                    described=(build_exported_table_schema(self.knowledge.add_known_facts_and_key(table_map)),)
                )
            )
        is_payload = code == EventType.TRANSACTION_PAYLOAD
        step = GroupStep.OUTSIDE if is_payload else self.groups.advance_to_event(code, event.body)
        if code in GTID_EVENTS:
            self.time = None
            if code != EventType.GTID:
                self.time = read_mysql_gtid(code, bytes(event.body)).original_commit_timestamp or None
        elif step is GroupStep.OPENS:
            self.time = None
        statement = _NO_STATEMENT
        if code in QUERY_EVENTS or code == EventType.EXECUTE_LOAD_QUERY:
            statement = read_and_apply_statement(event_context, self.knowledge, self.cascades)
            if rollback_text := describe_rollback(
                get_statement_kind(event_context),
                read_query_and_text(event_context)[1],
                ends_group=step is GroupStep.ENDS,
            ):
                return RecordTableRows(
                    begins=step is GroupStep.ENDS,
                    findings=(make_row_event_finding(event, ROWS_DIVERGE, rollback_text),),
                )  # there is no commit
        ddl, reason = statement.ddl, INCIDENT if code == EventType.INCIDENT else statement.reason
        emptied, dropped_database = tuple(_iter_truncate_and_drop_rows(ddl)), ddl.dropped_database or ""
        remark = ", ".join(f"{old} is called {new} from this event on" for old, new in ddl.renames)
        if not is_payload and self.groups.has_begun_now and not remark and not reason:
            return TRANSACTION_BEGINS
        findings = (make_row_event_finding(event, ROWS_NOT_LOGGED, reason), *statement.cascades) if reason else ()
        return (
            RecordTableRows(
                ends=step is GroupStep.ENDS,
                remark=remark,
                findings=findings,
                changes=None if statement.table is None else _make_table_without_columns(statement.table),
                emptied=emptied,
                dropped_database=dropped_database,
                renamed=ddl.renames,
            )
            if remark or findings or emptied or dropped_database or step is GroupStep.ENDS
            else NO_ROWS
        )

    def _read_row_event(
        self, context: BinlogFileContext, event: Event, table_map: TableMap | None, limits: Limits
    ) -> RecordTableRows:
        """Return the rows of a row event, as cells of a filler if compiled code can decode them, else as values."""
        size = context.description.table_id_size
        ends = self.groups.advance_to_event(event.code, event.body) is GroupStep.ENDS
        if table_map is None:
            if int.from_bytes(event.body[:size], "little") == DUMMY_TABLE_ID:
                return RecordTableRows(ends=ends)
            return RecordTableRows(
                findings=(make_row_event_finding(event, "dangling-reference", "its TABLE_MAP is missing"),)
            )
        keyed_map, exported_table, is_wanted = self.resolve_map_and_selection(table_map)
        decode = partial(decode_rows, event.code, event.body, keyed_map, limits)
        findings = tuple(
            self.cascades.report_row_event_cascades(
                self.knowledge.foreign_keys, event, size, exported_table.name, decode
            )
        )
        if not is_wanted:
            return RecordTableRows(described=(exported_table,), ends=ends, findings=findings)
        if self.has_unreported_doubt(keyed_map):
            self.reported.add(keyed_map.uncertain)
            findings = (
                *findings,
                make_row_event_finding(event, "meta-mismatch", keyed_map.uncertain, Severity.WARNING),
            )
        reason = "" if self.runs is None else self.runs.reason
        cells = (
            None
            if self.fillers is None or self.records_as_values
            else self.fillers.try_store_row_event(event.code, event.body, keyed_map, exported_table, limits)
        )
        if cells is not None:
            return RecordTableRows(cells=cells, time=self.time, ends=ends, findings=findings, reason=reason)
        padded_sizes = _binary_column_sizes(keyed_map)
        rows = decode()
        if event.code == EventType.PARTIAL_UPDATE_ROWS:
            rows = [{**row, "after": fill_unchanged_json(row["before"], row["after"])} for row in rows]
        table_rows = [_make_table_row(exported_table, row, padded_sizes) for row in rows]
        return RecordTableRows(table_rows, time=self.time, ends=ends, findings=findings, reason=reason)


def _iter_truncate_and_drop_rows(ddl: ParsedDdl) -> Iterator[TableRow]:
    """Yield the tables that a statement empties or drops."""
    operation = "TRUNCATE" if ddl.is_truncate else "DROP"
    for name in ddl.tables_losing_rows:
        yield TableRow(_make_table_without_columns(name), operation, None, None)


def _make_table_without_columns(name: str) -> TableSchema:
    """Return a table without columns by its full name."""
    return make_database_table(*split_table_name(name), ())


def _binary_column_sizes(table_map: TableMap) -> dict[str, int]:
    """Return the sizes of BINARY columns, whose trailing zero bytes are not in the log, by column key."""
    sizes: dict[str, int] | None = table_map.memo.get("short")
    if sizes is None:
        pairs = zip(table_map.column_keys, table_map.columns, strict=True)
        sizes = table_map.memo["short"] = {key: size for key, one in pairs if (size := one.padded_size)}
    return sizes


def _make_table_row(table: TableSchema, row: Mapping[str, Any], padded_sizes: Mapping[str, int]) -> TableRow:
    before, after = (
        pad_binary_columns(row.get("before"), padded_sizes),
        pad_binary_columns(row.get("after"), padded_sizes),
    )
    return TableRow(table, "DELETE" if after is None else "INSERT" if before is None else "UPDATE", before, after)


def make_row_event_finding(event: Event, finding_id: str, reason: str, severity: Severity | None = None) -> Finding:
    """Create a finding about an event whose rows cannot be decoded, or not completely.

    Args:
        severity: None = the default severity of the finding's id.
    """
    text = f"{type_name(event.code)}: {reason}"
    return make_finding(finding_id, event.start, event.end - event.start, text, record=event.record, severity=severity)


def create_compiled_table_reader(compile_kernel: Callable[[Kernel], Kernel]) -> RowEventTableReader:
    """Create a reader that uses compiled code for rows where possible."""
    fillers = RowCellFillers(compile_kernel)
    return RowEventTableReader(
        fillers=fillers, runs=CompiledRowEventReader(fillers, compile_kernel) if fillers.is_compiled else None
    )
