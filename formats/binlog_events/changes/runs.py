"""Process runs of events at once: compiled code finds the row events and stores their rows as cells.

An event that the kernels do not know enough of takes the general path (`row_tables`), and so does one whose values
they
cannot decode: then the events before it are processed again, without those after it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from binlogtool.formats.binlog_events.changes import cell_kernels
from binlogtool.formats.binlog_events.changes import run_kernels as kernels
from binlogtool.formats.binlog_events.changes.cells import CAPACITY, MOST_COLUMNS, ROWS, Filler, Fillers, layout_of
from binlogtool.formats.binlog_events.codes import DELETES, ROWS_COMPRESSED, UPDATES, EventType
from binlogtool.formats.binlog_events.codes import ROWS as ROW_EVENTS
from binlogtool.formats.binlog_events.groups.following import ASKING, MOST, Follower, integers_of
from binlogtool.formats.binlog_events.groups.kinds import WORDS_KEEPING
from binlogtool.formats.binlog_events.groups.marks import ASKS, traits
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, CodecError, Kernel
from binlogtool.formats.tables import CellRun, Events, Table
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.changes.row_tables import RowTables

_MOST_HEADS = 256
_FRAMES = ("type_code", "server_id", "timestamp", "offset", "body_start", "body_end")
_CODES, _STARTS, _ENDS = 0, 4, 5
_FOUND = ("which", "places", "layouts", "tables", "times", "origins", "owners", "serials", "commits")
_ASKING = ASKING | ROWS_COMPRESSED | {EventType.PARTIAL_UPDATE_ROWS, EventType.EXECUTE_LOAD_QUERY, EventType.INCIDENT}


WRITES = ROW_EVENTS - UPDATES - DELETES


class _NotMine(Exception):
    """Raised for an event whose rows compiled code cannot decode.

    Attributes:
        index: of the event in its batch.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class _Source(NamedTuple):
    """A batch as the kernels take it.

    Attributes:
        owners: source, number and map of each event, see `Follower.columns`.
    """

    window: Any
    frames: list[Any]
    owners: list[Any]
    follower: Follower


class Runs:
    """Processes runs of row events of the files of a log, one after the other.

    What it knows of maps is indexed by the numbers that the follower of the file gives them.
    """

    def __init__(self, fillers: Fillers, compile_: Callable[[Kernel], Kernel]) -> None:
        self._fillers, self._compile = fillers, compile_
        self._run, self._fill = compile_(kernels.follow_rows), compile_(cell_kernels.fill_events)
        self._traits = traits(_ASKING)
        self._state = array("q", bytes(8 * kernels.STATE_SIZE))
        self._found = [array("q") for _ in _FOUND]
        self._described: list[Table] = []
        self._forget([], -1)

    def _forget(self, maps: list[TableMap], version: int) -> None:
        """Forget all maps and start with these.

        Args:
            version: `RowTables.version` that the maps will be resolved for.
        """
        self._maps, self._version = maps, version
        self._known = array("q")
        self._tables: dict[int, tuple[TableMap, Table]] = {}
        self._heads, self._plans, self._shapes = array("q", [0]), array("q"), array("q")
        self._kinds: list[tuple[int, tuple[tuple[int, int], ...]]] = []

    # -- a batch -------------------------------------------------------------------------------------------------------

    def events(
        self, reader: RowTables, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> tuple[Events | None, int]:
        """See `formats.tables.EventReader`."""
        source = None if context.sealed or batch.holder is not None else self._source(context, batch)
        if source is None:
            return None, start
        self._know(reader, source.follower)
        while stop > start:
            reached = self._follow(reader, context, source, start, stop)
            try:
                runs, sizes = self._filled(source, limits)
            except _NotMine as one:
                stop = one.index
                continue
            if reached == start:
                break
            state, groups = self._state, reader.groups
            groups.group = state[kernels.GROUP_OPEN]
            reader.time = state[kernels.TIME] or None
            return self._told(source.follower, runs, sizes), reached
        return None, start

    def _source(self, context: FileContext, batch: Batch) -> _Source | None:
        tracker, count = context.tracker, batch.frames.count
        if len(tracker.maps.by_id) > MOST:
            tracker.follower = None
            return None
        if not isinstance(tracker.follower, Follower):
            tracker.follower = Follower(tracker, self._compile)
        follower = tracker.follower
        noted = follower.columns(tracker.notes(batch))
        frames = [integers_of(batch.frames[name], count) for name in _FRAMES]
        return _Source(batch.window, frames, [noted[name] for name in ("source", "number", "map")], follower)

    def _know(self, reader: RowTables, follower: Follower) -> None:
        version = reader.version
        if self._maps is not follower.maps or self._version != version or len(self._kinds) > _MOST_HEADS:
            self._forget(follower.maps, version)
        if (more := 2 * len(self._maps) - len(self._known)) > 0:
            self._known.extend(array("q", bytes(8 * more)))

    def _follow(self, reader: RowTables, context: FileContext, source: _Source, at: int, stop: int) -> int:
        """Find the row events; returns the first event that compiled code does not take."""
        state, groups = self._state, reader.groups
        state[:] = array("q", bytes(8 * kernels.STATE_SIZE))
        state[kernels.GROUP_OPEN], state[kernels.TIME] = groups.group, reader.time or 0
        if len(self._found[0]) < stop - at:
            self._found = [array("q", bytes(8 * (stop - at))) for _ in _FOUND]
        id_size = context.description.table_id_size
        while True:
            events = kernels.RowEventColumns._make((*source.frames, *source.owners))
            known = kernels.KnownMaps(self._known, self._heads, id_size + 2)
            rows = kernels.FoundRows._make(self._found)
            at = self._run(at, stop, events, source.window, self._traits, WORDS_KEEPING, state, known, rows)
            if at == stop or not self._learns(reader, source, at, id_size):
                return int(at)

    def _told(self, follower: Follower, runs: list[CellRun], sizes: array[int]) -> Events:
        state, count = self._state, self._state[kernels.COUNT]
        which, places, layouts, _, times, origins, owners, serials, commits = (one[:count] for one in self._found)
        sources = [(one, None) if isinstance(one, str) else (one.gtid, one.seq) for one in follower.sources]
        described, self._described = self._described, []
        closes = state[kernels.CLOSES]
        return Events(
            described, closes == kernels.ITS_END, closes == kernels.ANOTHER, bool(state[kernels.OPEN]), runs, which,
            places, sizes, layouts, times, origins, owners, serials, commits, self._kinds, sources,
        )  # fmt: skip

    # -- what the kernel does not know ---------------------------------------------------------------------------------

    def _learns(self, reader: RowTables, source: _Source, i: int, id_size: int) -> bool:
        """Resolve what the kernel lacked for the event where it stopped; True if it takes the event now."""
        code, number = source.frames[_CODES][i], source.owners[2][i]
        if number < 0 or self._traits[code] & ASKS:
            return False
        try:
            if self._known[2 * number] == kernels.UNKNOWN:
                known, own, wanted = reader.look(self._maps[number])
                if (wanted and reader.doubts(known)) or (reader.watches(own) and (code not in WRITES or not wanted)):
                    return False
                self._tables[number] = known, own
                self._known[2 * number] = kernels.WANTED if wanted else kernels.UNWANTED
                self._described.append(own)
                return True
            body = source.window[source.frames[_STARTS][i] : source.frames[_ENDS][i]]
            if code not in WRITES and reader.watches(self._tables[number][1]):
                return False
            return code in ROW_EVENTS and self._learns_head(code, body, number, id_size + 2)
        except (MalformedError, CodecError):
            return False

    def _learns_head(self, code: int, body: memoryview, number: int, at: int) -> bool:
        known, own = self._tables[number]
        layout = layout_of(code, body, known) if len(known.columns) <= MOST_COLUMNS else None
        if layout is None or len(self._kinds) > _MOST_HEADS:
            return False
        head, place = bytes(body[at : layout.images_at]), len(self._heads)
        self._heads.extend([self._known[2 * number + 1], code, len(head), len(self._kinds)])
        self._heads.frombytes(head.ljust(-(-len(head) // 8) * 8, b"\0"))
        self._known[2 * number + 1] = place
        self._kinds.append((layout.sides, layout.absent))
        self._shapes.extend([layout.sides, layout.images_at, len(self._plans)])
        self._plans.extend(self._fillers.filler(known, own).plan_of(layout))
        return True

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _filled(self, source: _Source, limits: Limits) -> tuple[list[CellRun], array[int]]:
        """Store the rows of all events found; returns the runs of cells, and the number of rows of each event.

        Raises:
            _UnsupportedEvent: some rows cannot be stored; the fillers are as before.
        """
        runs, sizes, before = list[CellRun](), array("q", bytes(8 * self._state[kernels.COUNT])), dict[int, Any]()
        failed = []
        for number, picks in self._picked():
            try:
                for run in self._of_table(source, number, picks, sizes, limits):
                    before.setdefault(id(run.filled), (run.filled, run.start))
                    runs.append(run)
            except _NotMine as one:
                failed.append(one.index)
        if failed:
            for filler, rows in before.values():
                filler.rows = rows
            raise _NotMine(min(failed))
        return runs, sizes

    def _picked(self) -> Iterator[tuple[int, array[int]]]:
        """Iterate over the row events of each table as (number of the map, events with that map)."""
        numbers = self._found[_FOUND.index("tables")][: self._state[kernels.COUNT]]
        if numbers and numbers.count(numbers[0]) == len(numbers):
            yield numbers[0], array("q", range(len(numbers)))
            return
        by_name = dict[str, list[int]]()
        for event, number in enumerate(numbers):
            by_name.setdefault(self._tables[number][1].name, []).append(event)
        for events in by_name.values():
            for number, some in groupby(events, numbers.__getitem__):
                yield number, array("q", some)

    def _of_table(
        self, source: _Source, number: int, picks: array[int], sizes: array[int], limits: Limits
    ) -> Iterator[CellRun]:
        """Store the rows of these events.

        Raises:
            _UnsupportedEvent: the rows of an event cannot be stored.
        """
        at, (which, _, layouts, *_) = 0, self._found
        picked = cell_kernels.PickedEvents(picks, which, layouts, source.frames[_STARTS], source.frames[_ENDS])
        row_layouts = cell_kernels.RowLayouts(self._shapes, self._plans)
        while at < len(picks):
            filler = self._fillers.filler(*self._tables[number])
            begin = filler.rows
            reached, row, status = self._fill(
                at, len(picks), picked, source.window, b"\0", row_layouts, begin, ROWS,
                cell_kernels.CellTarget(CAPACITY, filler.cells, filler.out), sizes,
            )  # fmt: skip
            run = CellRun(filler, begin, picks[at:reached])
            if reached > at:
                _demand_sound(filler, run, sizes, which, limits)
                filler.rows = row
                yield run
            if status == cell_kernels.NOT_MINE or (status == cell_kernels.FULL and not row):
                raise _NotMine(which[picks[reached]])
            if status == cell_kernels.FULL:
                self._fillers.close(self._tables[number][0])
            at = reached


def _demand_sound(filler: Filler, run: CellRun, sizes: array[int], which: array[int], limits: Limits) -> None:
    """Check the values that Python decodes one by one.

    Raises:
        _UnsupportedEvent: a value cannot be decoded.
    """
    row = run.start
    for event in run.picks if filler.has_raw else ():
        if not filler.is_sound(row, row + sizes[event], limits):
            raise _NotMine(which[event])
        row += sizes[event]
