"""Rules about table maps and row events of one statement.

Source: docs/spec/mysql_binlog.md#validation (rule 8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.codes import COMPRESSED_ROW_EVENTS
from binlogtool.formats.binlog_events.events.event import Event, EventFault
from binlogtool.formats.binlog_events.groups.marks import STMT_END
from binlogtool.formats.binlog_events.groups.tracking import TableMaps
from binlogtool.formats.binlog_events.rows.image_kernels import count_image_rows
from binlogtool.formats.binlog_events.rows.rows import DUMMY_TABLE_ID, count_rows, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import UNKNOWN_FRACTIONS, TableMap, parse_table_map
from binlogtool.formats.binlog_events.rows.table_map_bytes import PAD
from binlogtool.formats.binlog_events.sql.event_record import build_event_template
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Kernel
from binlogtool.formats.mysql_binlog.judge import folds
from binlogtool.limits import Limits

_W = Severity.WARNING
_MAX_TEMPLATE_BYTES = 1 << 25
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
        compiled = compile_(count_image_rows)
        self._compiled_bounds = None if compiled is count_image_rows else compiled
        self._extra_maps: dict[int, int] = {}
        self.templates = bytearray(PAD)
        self._template_offsets: dict[bytes, int] = {}
        self.is_after_damage = self.may_be_inherited = False
        self.events_without_map = 0

    def add_map(self, event: Event) -> TableMap | None:
        """Add a TABLE_MAP, valid until the end of the statement."""
        state = self._state
        table_map = self.maps.add_map(bytes(event.body))
        if table_map is None:
            parse_table_map(event.body, self.maps.id_size, self.maps.is_mariadb)  # raises with the reason
            return None
        columns, slot = len(table_map.columns), table_map.table_id & folds.KNOWN_MAP_SLOTS - 1
        if state[folds.KNOWN_IDS + slot] != table_map.table_id + 1 or state[folds.KNOWN_COLUMNS + slot] != columns:
            state[folds.KNOWN_IDS + slot], state[folds.KNOWN_COLUMNS + slot] = table_map.table_id + 1, columns
            state[folds.HAS_NEW_MAP] = 1
        state[folds.KNOWN_TEMPLATES + slot] = self._template_offset(table_map)
        self._store_map(table_map, columns)
        return table_map

    def _template_offset(self, table_map: TableMap) -> int:
        """Return the offset of a map's template; 0 if it has none, so that its rows are walked here."""
        map_key = table_map.body[folds.ROW_HEADER_SIZE :]
        offset = self._template_offsets.get(map_key)
        if offset is None:
            if len(self.templates) > _MAX_TEMPLATE_BYTES:
                self._reset_templates()
            template = build_event_template(table_map)
            offset = self._template_offsets[map_key] = len(self.templates) if template else 0
            self.templates += template
        return offset

    def _reset_templates(self) -> None:
        """Drop all templates."""
        self.templates, self._template_offsets = bytearray(PAD), {}
        for first, count in ((folds.KNOWN_TEMPLATES, folds.KNOWN_MAP_SLOTS), (folds.MAP_TEMPLATES, folds.MAX_MAPS)):
            for slot in range(first, first + count):
                self._state[slot] = 0

    def inherit_map(self, table_map: TableMap) -> None:
        """Add a map that the preceding relay log left valid."""
        self.maps.by_id[table_map.table_id] = table_map
        self._store_map(table_map, len(table_map.columns))

    def valid_maps(self) -> dict[int, TableMap]:
        """Return the maps that are valid at the end of the file, by table id."""
        ids = [self._state[folds.MAP_IDS + k] for k in range(self._state[folds.MAP_COUNT])] + [*self._extra_maps]
        return {one: self.maps.by_id[one] for one in ids if one in self.maps.by_id}

    def _store_map(self, table_map: TableMap, columns: int) -> None:
        """Store a valid map in the state."""
        state, table_id = self._state, table_map.table_id
        count = state[folds.MAP_COUNT]
        index = next((k for k in range(count) if state[folds.MAP_IDS + k] == table_id), count)
        if index == folds.MAX_MAPS:
            self._extra_maps[table_id] = columns
            state[folds.HAS_NEW_MAP] = 1
            return
        state[folds.MAP_IDS + index], state[folds.MAP_COLUMNS + index] = table_id, columns
        state[folds.MAP_BODY_STARTS + index], state[folds.MAP_TEMPLATES + index] = 0, self._template_offset(table_map)
        state[folds.MAP_COUNT] = max(count, index + 1)

    def _column_count(self, table_id: int) -> int | None:
        """Return the number of columns of the valid map; None if there is no such map."""
        state = self._state
        for index in range(state[folds.MAP_COUNT]):
            if state[folds.MAP_IDS + index] == table_id:
                return int(state[folds.MAP_COLUMNS + index])
        return self._extra_maps.get(table_id)

    def check_rows(self, event: Event, window: memoryview, repeat_reports: bool) -> Iterator[EventFault]:
        """Yield faults of a row event.

        Args:
            repeat_reports: also report what was reported for the first statement with its map.
        """
        header = parse_rows_head(event.code, event.body, self.maps.id_size)
        is_last = bool(header.flags & STMT_END)
        columns = self._column_count(header.table_id)
        self.read_pending_maps(window)
        has_new_map = bool(self._state[folds.HAS_NEW_MAP])
        self._state[folds.HAS_ROWS] = 1
        if is_last:
            self.end_statement()
        if header.table_id == DUMMY_TABLE_ID and is_last:
            return
        if columns is None:
            yield from self._check_missing_map(header.table_id)
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

    def _check_missing_map(self, table_id: int) -> Iterator[EventFault]:
        """Yield the fault of a row event without a table map."""
        if not self.is_after_damage:
            text = f"a row event of table id {table_id}, but its statement has no TABLE_MAP with this id"
            yield EventFault("dangling-reference", text, "table-map-missing", None, {"table_id": table_id})
            return
        self.events_without_map += 1
        if self.events_without_map == 1 and not self.may_be_inherited:
            text = f"rows without map: the TABLE_MAP of table id {table_id} is lost in the damaged range"
            yield EventFault("dangling-reference", text, "table-map-lost", _W, {"table_id": table_id})

    def read_pending_maps(self, window: memoryview) -> None:
        """Read the valid maps that the compiled path let pass; `window` is the one that contains them."""
        state = self._state
        for index in range(state[folds.MAP_COUNT]):
            body_start = state[folds.MAP_BODY_STARTS + index]
            if body_start:
                self.maps.add_map(bytes(window[body_start : state[folds.MAP_BODY_ENDS + index]]))
                state[folds.MAP_BODY_STARTS + index] = 0

    def end_statement(self) -> None:
        """End the statement: its maps become invalid."""
        self._extra_maps.clear()
        self._state[folds.MAP_COUNT] = self._state[folds.HAS_ROWS] = self._state[folds.HAS_NEW_MAP] = 0

    def check_group_end(self) -> Iterator[EventFault]:
        """Yield a fault if a statement is open at the end of the transaction."""
        state = self._state
        if state[folds.HAS_ROWS]:
            text = "the group ends, but the last row event of its statement has no STMT_END flag"
            yield EventFault("incomplete-transaction", text, "statement-open")
        elif state[folds.MAP_COUNT]:
            yield EventFault("dangling-reference", "TABLE_MAP without row events", "map-without-rows", _W)
        self.end_statement()
