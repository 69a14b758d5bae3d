"""Rules about table maps and row events of one statement.

Source: docs/spec/mysql-mariadb-binlog.md#11-invariants-for-verify (rule 8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.codes import ROWS_COMPRESSED
from binlogtool.formats.binlog_events.events.event import Event, Fault
from binlogtool.formats.binlog_events.groups.marks import STMT_END
from binlogtool.formats.binlog_events.groups.tracking import TableMaps
from binlogtool.formats.binlog_events.rows.image_kernels import rows_between
from binlogtool.formats.binlog_events.rows.rows import DUMMY_TABLE_ID, count_rows, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import UNTOLD, TableMap, parse_table_map
from binlogtool.formats.binlog_events.rows.table_map_bytes import PAD
from binlogtool.formats.binlog_events.sql.event_record import event_record
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Kernel
from binlogtool.formats.mysql_binlog.judge import folds
from binlogtool.limits import Limits

_W = Severity.WARNING
_MOST_RECORDS = 1 << 25
"""Bytes of records that are kept."""


class RowRules:
    """Rules with the valid table maps, in the compiled path's state and as values.

    Readers raise `MalformedError` or `DecompressionError`. The images of all row events are walked without
    decoding values, by the compiled path where it knows the map. `templates`: the templates that it needs
    (`sql.plans`). `is_after_damage`: the maps may be in a damaged range. `may_be_inherited`: or in the
    preceding file.
    """

    def __init__(self, state: Any, maps: TableMaps, limits: Limits, compile_: Callable[[Kernel], Kernel]) -> None:
        self._state = state
        self.maps = maps
        self._limits = limits
        compiled = compile_(rows_between)
        self._rows = None if compiled is rows_between else compiled
        self._extra: dict[int, int] = {}
        self.records = bytearray(PAD)
        self._places: dict[bytes, int] = {}
        self.adrift = self.silent = False
        self.without_map = 0

    def take_map(self, event: Event) -> TableMap | None:
        """Add a TABLE_MAP, valid until the end of the statement."""
        state = self._state
        known = self.maps.learn(bytes(event.body))
        if known is None:
            parse_table_map(event.body, self.maps.id_size, self.maps.mariadb)  # raises with the reason
            return None
        columns, slot = len(known.columns), known.table_id & folds.KNOWN_MAPS - 1
        if state[folds.KNOWN_IDS + slot] != known.table_id + 1 or state[folds.KNOWN_COLUMNS + slot] != columns:
            state[folds.KNOWN_IDS + slot], state[folds.KNOWN_COLUMNS + slot] = known.table_id + 1, columns
            state[folds.FRESH] = 1
        state[folds.KNOWN_RECORDS + slot] = self._place_of(known)
        self._enter(known, columns)
        return known

    def _place_of(self, known: TableMap) -> int:
        """Return the offset of a map's template; 0 if it has none, so that its rows are walked here."""
        shape = known.body[folds.ROW_HEAD :]
        place = self._places.get(shape)
        if place is None:
            if len(self.records) > _MOST_RECORDS:
                self._forget_records()
            record = event_record(known)
            place = self._places[shape] = len(self.records) if record else 0
            self.records += record
        return place

    def _forget_records(self) -> None:
        """Drop all templates."""
        self.records, self._places = bytearray(PAD), {}
        for first, count in ((folds.KNOWN_RECORDS, folds.KNOWN_MAPS), (folds.MAP_RECORDS, folds.MOST_MAPS)):
            for slot in range(first, first + count):
                self._state[slot] = 0

    def inherit(self, known: TableMap) -> None:
        """Add a map that the preceding relay log left valid."""
        self.maps.by_id[known.table_id] = known
        self._enter(known, len(known.columns))

    def in_force(self) -> dict[int, TableMap]:
        """Return the maps that are valid at the end of the file, by table id."""
        ids = [self._state[folds.MAP_IDS + k] for k in range(self._state[folds.MAPS])] + [*self._extra]
        return {one: self.maps.by_id[one] for one in ids if one in self.maps.by_id}

    def _enter(self, known: TableMap, columns: int) -> None:
        """Store a valid map in the state."""
        state, table_id = self._state, known.table_id
        count = state[folds.MAPS]
        at = next((k for k in range(count) if state[folds.MAP_IDS + k] == table_id), count)
        if at == folds.MOST_MAPS:
            self._extra[table_id] = columns
            state[folds.FRESH] = 1
            return
        state[folds.MAP_IDS + at], state[folds.MAP_COLUMNS + at] = table_id, columns
        state[folds.MAP_FROM + at], state[folds.MAP_RECORDS + at] = 0, self._place_of(known)
        state[folds.MAPS] = max(count, at + 1)

    def _columns(self, table_id: int) -> int | None:
        """Return the number of columns of the valid map; None if there is no such map."""
        state = self._state
        for k in range(state[folds.MAPS]):
            if state[folds.MAP_IDS + k] == table_id:
                return int(state[folds.MAP_COLUMNS + k])
        return self._extra.get(table_id)

    def take_rows(self, event: Event, window: memoryview, walk: bool) -> Iterator[Fault]:
        """Yield faults of a row event.

        Args:
            repeat_reports: also report what was reported for the first statement with its map.
        """
        head = parse_rows_head(event.code, event.body, self.maps.id_size)
        last = bool(head.flags & STMT_END)
        columns = self._columns(head.table_id)
        self.settle(window)
        fresh = bool(self._state[folds.FRESH])
        self._state[folds.ROWS_SEEN] = 1
        if last:
            self.close()
        if head.table_id == DUMMY_TABLE_ID and last:
            return
        if columns is None:
            yield from self._without_map(head.table_id)
        elif columns != head.n_cols:
            text = f"the row event has {head.n_cols} columns, the TABLE_MAP of table id {head.table_id} has {columns}"
            yield Fault("dangling-reference", text, "column-count", None, {"table_id": head.table_id})
        else:
            known = self.maps.by_id.get(head.table_id)
            if known is not None and len(known.columns) == columns:
                yield from self._walk(event, known, walk or fresh or event.code in ROWS_COMPRESSED)

    def _walk(self, event: Event, known: TableMap, tells: bool) -> Iterator[Fault]:
        """Yield faults of the row images."""
        try:
            count_rows(event.code, event.body, known, self._limits, self._rows)
        except MalformedError as error:
            if not known.untold:
                raise
            if tells:
                yield Fault("payload-undecodable", f"{UNTOLD}: {error.args[0]}", "old-fractions", _W)

    def _without_map(self, table_id: int) -> Iterator[Fault]:
        """Yield the fault of a row event without a table map."""
        if not self.adrift:
            text = f"a row event of table id {table_id}, but its statement has no TABLE_MAP with this id"
            yield Fault("dangling-reference", text, "table-map-missing", None, {"table_id": table_id})
            return
        self.without_map += 1
        if self.without_map == 1 and not self.silent:
            text = f"rows without map: the TABLE_MAP of table id {table_id} is lost in the damaged range"
            yield Fault("dangling-reference", text, "table-map-lost", _W, {"table_id": table_id})

    def settle(self, window: memoryview) -> None:
        """Read the valid maps that the compiled path let pass; `window` is the one that contains them."""
        state = self._state
        for k in range(state[folds.MAPS]):
            low = state[folds.MAP_FROM + k]
            if low:
                self.maps.learn(bytes(window[low : state[folds.MAP_TO + k]]))
                state[folds.MAP_FROM + k] = 0

    def close(self) -> None:
        """End the statement: its maps become invalid."""
        self._extra.clear()
        self._state[folds.MAPS] = self._state[folds.ROWS_SEEN] = self._state[folds.FRESH] = 0

    def end_of_group(self) -> Iterator[Fault]:
        """Yield a fault if a statement is open at the end of the transaction."""
        state = self._state
        if state[folds.ROWS_SEEN]:
            text = "the group ends, but the last row event of its statement has no STMT_END flag"
            yield Fault("incomplete-transaction", text, "statement-open")
        elif state[folds.MAPS]:
            yield Fault("dangling-reference", "TABLE_MAP without row events", "map-without-rows", _W)
        self.close()
