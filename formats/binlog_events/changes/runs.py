"""Process runs of events at once: compiled code finds the row events and stores their rows as cells.

An event that the kernels do not know enough of takes the general path (`row_tables`), and so does one whose values they
cannot decode: then the events before it are processed again, without those after it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from binlogtool.formats.binlog_events.changes import cell_kernels
from binlogtool.formats.binlog_events.changes import run_kernels as kernels
from binlogtool.formats.binlog_events.changes.cells import (
    FILLER_CAPACITY,
    MAX_COMPILED_COLUMNS,
    MAX_FILLER_ROWS,
    RowCellFiller,
    RowCellFillers,
    parse_image_layout,
)
from binlogtool.formats.binlog_events.codes import (
    COMPRESSED_ROW_EVENTS,
    DELETE_ROW_EVENTS,
    UPDATE_ROW_EVENTS,
    EventType,
)
from binlogtool.formats.binlog_events.codes import ROW_EVENTS as ROW_EVENTS
from binlogtool.formats.binlog_events.groups.following import (
    MAX_CACHED,
    UNSUPPORTED_EVENTS,
    CompiledTracker,
    as_int_column,
)
from binlogtool.formats.binlog_events.groups.kinds import WORD_TABLE_WITHOUT_ROLLBACK
from binlogtool.formats.binlog_events.groups.marks import NEEDS_TRACKER, build_traits
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, DecompressionError, Kernel
from binlogtool.formats.tables import CellRun, EventRows, TableSchema
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.changes.row_tables import RowTables

_MAX_HEADS = 256
_FRAME_COLUMNS = ("type_code", "server_id", "timestamp", "offset", "body_start", "body_end")
_CODES, _STARTS, _ENDS = 0, 4, 5
_OUTPUT_COLUMNS = ("which", "places", "layouts", "tables", "times", "origins", "owners", "serials", "commits")
_STOP_EVENTS = (
    UNSUPPORTED_EVENTS
    | COMPRESSED_ROW_EVENTS
    | {EventType.PARTIAL_UPDATE_ROWS, EventType.EXECUTE_LOAD_QUERY, EventType.INCIDENT}
)


WRITE_EVENTS = ROW_EVENTS - UPDATE_ROW_EVENTS - DELETE_ROW_EVENTS


class _UnsupportedEvent(Exception):
    """Raised for an event whose rows compiled code cannot decode.

    Attributes:
        index: of the event in its batch.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class _KernelBatch(NamedTuple):
    """A batch as the kernels take it.

    Attributes:
        owners: source, number and map of each event, see `Follower.columns`.
    """

    window: Any
    frames: list[Any]
    owners: list[Any]
    follower: CompiledTracker


class RowEventRuns:
    """Processes runs of row events of the files of a log, one after the other.

    What it knows of maps is indexed by the numbers that the follower of the file gives them.
    """

    def __init__(self, fillers: RowCellFillers, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._fillers, self._compile_kernel = fillers, compile_kernel
        self._follow_kernel, self._store_kernel = (
            compile_kernel(kernels.follow_row_events),
            compile_kernel(cell_kernels.store_events),
        )
        self._traits = build_traits(_STOP_EVENTS)
        self._state = array("q", bytes(8 * kernels.STATE_SIZE))
        self._outputs = [array("q") for _ in _OUTPUT_COLUMNS]
        self._described: list[TableSchema] = []
        self._reset_maps([], -1)

    def _reset_maps(self, maps: list[TableMap], version: int) -> None:
        """Forget all maps and start with these.

        Args:
            version: `RowTables.version` that the maps will be resolved for.
        """
        self._maps, self._version = maps, version
        self._map_states = array("q")
        self._tables: dict[int, tuple[TableMap, TableSchema]] = {}
        self._heads, self._plans, self._shapes = array("q", [0]), array("q"), array("q")
        self._layout_kinds: list[tuple[int, tuple[tuple[int, int], ...]]] = []

    # -- a batch -------------------------------------------------------------------------------------------------------

    def events(
        self, reader: RowTables, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> tuple[EventRows | None, int]:
        """See `formats.tables.CompiledTableReader`."""
        source = (
            None
            if context.encrypted_without_key or batch.container is not None
            else self._prepare_batch(context, batch)
        )
        if source is None:
            return None, start
        self._sync_maps(reader, source.follower)
        while stop > start:
            next_event = self._follow_events(reader, context, source, start, stop)
            try:
                runs, sizes = self._store_found_events(source, limits)
            except _UnsupportedEvent as error:
                stop = error.index
                continue
            if next_event == start:
                break
            state, groups = self._state, reader.groups
            groups.group = state[kernels.GROUP_STATE]
            reader.time = state[kernels.TIME] or None
            return self._make_events(source.follower, runs, sizes), next_event
        return None, start

    def _prepare_batch(self, context: BinlogFileContext, batch: Batch) -> _KernelBatch | None:
        tracker, count = context.tracker, batch.frames.count
        if len(tracker.maps.by_id) > MAX_CACHED:
            tracker.compiled_tracker = None
            return None
        if not isinstance(tracker.compiled_tracker, CompiledTracker):
            tracker.compiled_tracker = CompiledTracker(tracker, self._compile_kernel)
        follower = tracker.compiled_tracker
        columns = follower.columns(tracker.track_batch(batch))
        frames = [as_int_column(batch.frames[name], count) for name in _FRAME_COLUMNS]
        return _KernelBatch(batch.window, frames, [columns[name] for name in ("source", "number", "map")], follower)

    def _sync_maps(self, reader: RowTables, follower: CompiledTracker) -> None:
        version = reader.version
        if self._maps is not follower.table_maps or self._version != version or len(self._layout_kinds) > _MAX_HEADS:
            self._reset_maps(follower.table_maps, version)
        if (missing_words := 2 * len(self._maps) - len(self._map_states)) > 0:
            self._map_states.extend(array("q", bytes(8 * missing_words)))

    def _follow_events(
        self, reader: RowTables, context: BinlogFileContext, source: _KernelBatch, event: int, stop: int
    ) -> int:
        """Find the row events; returns the first event that compiled code does not take."""
        state, groups = self._state, reader.groups
        state[:] = array("q", bytes(8 * kernels.STATE_SIZE))
        state[kernels.GROUP_STATE], state[kernels.TIME] = groups.group, reader.time or 0
        if len(self._outputs[0]) < stop - event:
            self._outputs = [array("q", bytes(8 * (stop - event))) for _ in _OUTPUT_COLUMNS]
        id_size = context.description.table_id_size
        while True:
            events = kernels.RowEventColumns._make((*source.frames, *source.owners))
            known = kernels.KnownMaps(self._map_states, self._heads, id_size + 2)
            rows = kernels.FoundRows._make(self._outputs)
            event = self._follow_kernel(
                event, stop, events, source.window, self._traits, WORD_TABLE_WITHOUT_ROLLBACK, state, known, rows
            )
            if event == stop or not self._learn_event(reader, source, event, id_size):
                return int(event)

    def _make_events(self, follower: CompiledTracker, runs: list[CellRun], sizes: array[int]) -> EventRows:
        state, count = self._state, self._state[kernels.COUNT]
        which, places, layouts, _, times, origins, owners, serials, commits = (one[:count] for one in self._outputs)
        sources = [(one, None) if isinstance(one, str) else (one.gtid, one.seq) for one in follower.sources]
        described, self._described = self._described, []
        closes = state[kernels.CLOSED_BY]
        return EventRows(
            described, closes == kernels.CLOSED_BY_END, closes == kernels.CLOSED_BY_NEXT,
            bool(state[kernels.TRANSACTION_OPEN]), runs, which,
            places, sizes, layouts, times, origins, owners, serials, commits, self._layout_kinds, sources,
        )  # fmt: skip

    # -- what the kernel does not know ---------------------------------------------------------------------------------

    def _learn_event(self, reader: RowTables, source: _KernelBatch, event: int, id_size: int) -> bool:
        """Resolve what the kernel lacked for the event where it stopped; True if it takes the event now."""
        code, number = source.frames[_CODES][event], source.owners[2][event]
        if number < 0 or self._traits[code] & NEEDS_TRACKER:
            return False
        try:
            if self._map_states[2 * number] == kernels.UNKNOWN:
                keyed_map, exported_table, is_wanted = reader.resolve_map(self._maps[number])
                if (is_wanted and reader.has_unreported_doubt(keyed_map)) or (
                    reader.must_check_events(exported_table) and (code not in WRITE_EVENTS or not is_wanted)
                ):
                    return False
                self._tables[number] = keyed_map, exported_table
                self._map_states[2 * number] = kernels.WANTED if is_wanted else kernels.UNWANTED
                self._described.append(exported_table)
                return True
            body = source.window[source.frames[_STARTS][event] : source.frames[_ENDS][event]]
            if code not in WRITE_EVENTS and reader.must_check_events(self._tables[number][1]):
                return False
            return code in ROW_EVENTS and self._learn_head(code, body, number, id_size + 2)
        except (MalformedError, DecompressionError):
            return False

    def _learn_head(self, code: int, body: memoryview, number: int, head_at: int) -> bool:
        table_map, table = self._tables[number]
        layout = parse_image_layout(code, body, table_map) if len(table_map.columns) <= MAX_COMPILED_COLUMNS else None
        if layout is None or len(self._layout_kinds) > _MAX_HEADS:
            return False
        head, entry = bytes(body[head_at : layout.images_at]), len(self._heads)
        self._heads.extend([self._map_states[2 * number + 1], code, len(head), len(self._layout_kinds)])
        self._heads.frombytes(head.ljust(-(-len(head) // 8) * 8, b"\0"))
        self._map_states[2 * number + 1] = entry
        self._layout_kinds.append((layout.sides, layout.absent))
        self._shapes.extend([layout.sides, layout.images_at, len(self._plans)])
        self._plans.extend(self._fillers.current_filler(table_map, table).make_plan(layout))
        return True

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _store_found_events(self, source: _KernelBatch, limits: Limits) -> tuple[list[CellRun], array[int]]:
        """Store the rows of all events found; returns the runs of cells, and the number of rows of each event.

        Raises:
            _UnsupportedEvent: some rows cannot be stored; the fillers are as before.
        """
        runs, sizes, old_rows = list[CellRun](), array("q", bytes(8 * self._state[kernels.COUNT])), dict[int, Any]()
        failed_events = []
        for number, picks in self._group_by_map():
            try:
                for run in self._store_map_events(source, number, picks, sizes, limits):
                    old_rows.setdefault(id(run.buffer), (run.buffer, run.start))
                    runs.append(run)
            except _UnsupportedEvent as error:
                failed_events.append(error.index)
        if failed_events:
            for filler, rows in old_rows.values():
                filler.rows = rows
            raise _UnsupportedEvent(min(failed_events))
        return runs, sizes

    def _group_by_map(self) -> Iterator[tuple[int, array[int]]]:
        """Iterate over the row events of each table as (number of the map, events with that map)."""
        numbers = self._outputs[_OUTPUT_COLUMNS.index("tables")][: self._state[kernels.COUNT]]
        if numbers and numbers.count(numbers[0]) == len(numbers):
            yield numbers[0], array("q", range(len(numbers)))
            return
        by_name = dict[str, list[int]]()
        for event, number in enumerate(numbers):
            by_name.setdefault(self._tables[number][1].name, []).append(event)
        for events in by_name.values():
            for number, map_events in groupby(events, numbers.__getitem__):
                yield number, array("q", map_events)

    def _store_map_events(
        self, source: _KernelBatch, number: int, picks: array[int], sizes: array[int], limits: Limits
    ) -> Iterator[CellRun]:
        """Store the rows of these events.

        Raises:
            _UnsupportedEvent: the rows of an event cannot be stored.
        """
        pick, (found_events, _, layouts, *_) = 0, self._outputs
        picked = cell_kernels.PickedEvents(picks, found_events, layouts, source.frames[_STARTS], source.frames[_ENDS])
        row_layouts = cell_kernels.RowLayouts(self._shapes, self._plans)
        while pick < len(picks):
            filler = self._fillers.current_filler(*self._tables[number])
            first_row = filler.rows
            next_pick, row, status = self._store_kernel(
                pick, len(picks), picked, source.window, b"\0", row_layouts, first_row, MAX_FILLER_ROWS,
                cell_kernels.CellTarget(FILLER_CAPACITY, filler.cells, filler.out), sizes,
            )  # fmt: skip
            run = CellRun(filler, first_row, picks[pick:next_pick])
            if next_pick > pick:
                _check_raw_values(filler, run, sizes, found_events, limits)
                filler.rows = row
                yield run
            if status == cell_kernels.UNSUPPORTED or (status == cell_kernels.FULL and not row):
                raise _UnsupportedEvent(found_events[picks[next_pick]])
            if status == cell_kernels.FULL:
                self._fillers.close_filler(self._tables[number][0])
            pick = next_pick


def _check_raw_values(
    filler: RowCellFiller, run: CellRun, sizes: array[int], found_events: array[int], limits: Limits
) -> None:
    """Check the values that Python decodes one by one.

    Raises:
        _UnsupportedEvent: a value cannot be decoded.
    """
    row = run.start
    for event in run.event_numbers if filler.has_raw_columns else ():
        if not filler.can_decode_raw_values(row, row + sizes[event], limits):
            raise _UnsupportedEvent(found_events[event])
        row += sizes[event]
