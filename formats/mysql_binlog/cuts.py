"""Split points between transactions, and the state at each: table maps, event format, decryption.

Source: docs/spec/mysql_binlog.md#transactions-and-truncation.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.crypt.headers import EventDecryptorFactory
from binlogtool.formats.binlog_events.crypt.sealed import DecryptionAnchor, EventDecryptor
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.groups import cut_kernels as kernels
from binlogtool.formats.binlog_events.groups.following import as_int_column
from binlogtool.formats.binlog_events.groups.kinds import WORD_TABLE, get_query_kind
from binlogtool.formats.binlog_events.groups.marks import build_traits
from binlogtool.formats.binlog_events.groups.steps import GROUP_BITS, NO_GROUP, STATEMENT, step_group
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.cuts import KernelCompiler, SplitPoint, split_after
from binlogtool.formats.layouts import Batch, FrameLevel, LogFileLayout

MAX_CARRIED_MAPS = 1024
"""The last table maps that are carried over a border. A server writes those that a group uses again in the group."""

_COLUMN_NAMES = ("type_code", "body_start", "body_end")


def create_split_finder(layout: LogFileLayout) -> BinlogSplitFinder | None:
    """Create the split finder of a file; None if its events cannot be read or it has none."""
    context = layout.context
    is_usable = layout.readable and isinstance(context, BinlogFileContext) and not context.encrypted_without_key
    return BinlogSplitFinder(layout, context) if is_usable else None


class BinlogSplitFinder:
    """Finds split points between transactions (`SplitFinder`).

    `table_maps`: bodies of TABLE_MAP events by table id; `history`: table definitions; both as of the last
    split point.
    """

    def __init__(self, layout: LogFileLayout, context: BinlogFileContext) -> None:
        self.layout = layout
        self.context = context
        self.table_maps: dict[int, bytes] = {}
        self._later_maps: dict[int, bytes] = {}
        own = context.tracker.maps.history
        self.history = TableHistory() if own is None else own.copy()
        self._later_statements: list[tuple[int, int, bytes]] = []
        self._last_split_offset = 0
        self._traits = build_traits({EventType.QUERY_COMPRESSED})
        self._kernel_state = array("q", bytes(8 * kernels.SPLIT_STATE_SIZE))
        self._noted_maps = array("q")

    def feed(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the split point after the last event of the batch at which no group is open."""
        count, state = batch.frames.count, self._kernel_state
        state[kernels.BOUNDARY_COUNT] = state[kernels.MAP_COUNT] = 0
        if len(self._noted_maps) < kernels.MAP_WIDTH * count:
            self._noted_maps = array("q", bytes(8 * kernels.MAP_WIDTH * count))
        columns = kernels.EventBodies._make(as_int_column(batch.frames[name], count) for name in _COLUMN_NAMES)
        kernel, map_slots, index = compile_kernel(kernels.find_boundaries), array("q", [-1]) * kernels.MAP_SLOTS, 0
        while True:
            index = kernel(
                index, count, columns, batch.window, state, self._traits, WORD_TABLE, map_slots, self._noted_maps
            )
            if index == count:
                break
            self._follow_query(batch, index)
            index += 1
        self._note_maps(batch, state[kernels.BOUNDARY_COUNT])
        self._apply_statements(state[kernels.BOUNDARY_COUNT])
        split_point = split_after(batch, state[kernels.BOUNDARY_COUNT])
        self._last_split_offset = self._last_split_offset if split_point is None else split_point.offset
        return split_point

    def _follow_query(self, batch: Batch, index: int) -> None:
        """Follow a QUERY that is compressed or may declare a table."""
        code, body_start, body_end = (int(batch.frames[name][index]) for name in _COLUMN_NAMES)
        self._later_statements.append((index, code, bytes(batch.window[body_start:body_end])))
        state, kind = self._kernel_state, int(get_query_kind(code, batch.window[body_start:body_end]))
        state[kernels.SPLIT_GROUP_STATE] = step_group(state[kernels.SPLIT_GROUP_STATE], STATEMENT + kind) & GROUP_BITS
        if state[kernels.SPLIT_GROUP_STATE] == NO_GROUP:
            state[kernels.BOUNDARY_COUNT] = index + 1

    def _note_maps(self, batch: Batch, boundary: int) -> None:
        """Note the table maps of the batch: those before its last boundary are valid there, the others at the next
        one.
        """
        valid, later, numbers = [], [], self._noted_maps
        for at in range(0, kernels.MAP_WIDTH * self._kernel_state[kernels.MAP_COUNT], kernels.MAP_WIDTH):
            first, last = numbers[at + kernels.FIRST_EVENT], numbers[at + kernels.LAST_EVENT]
            if first < boundary:
                valid.append((last if last < boundary else numbers[at + kernels.LAST_BEFORE_BOUNDARY], first))
            if last >= boundary:
                later.append((last, first))
        if boundary:
            _add_maps(self.table_maps, self._later_maps.values(), self.table_id_size)
            self._later_maps.clear()
        for target, found in ((self.table_maps, valid), (self._later_maps, later)):
            _add_maps(target, (_get_body(batch, first) for _, first in sorted(found)), self.table_id_size)

    def _apply_statements(self, boundary: int) -> None:
        """Apply the statements of the batch before its last boundary; keep the others for the next one."""
        for index, code, body in self._later_statements:
            if index < boundary:
                self.history.add_query(code, memoryview(body))
        self._later_statements = [(-1, code, body) for index, code, body in self._later_statements if index >= boundary]

    @property
    def table_id_size(self) -> int:
        """Size of a table id in bytes."""
        return self.context.tracker.maps.id_size

    def export_state_for_next_file(self) -> Any:
        """Return the table definitions."""
        return None if self.history.is_empty else self.history.export_state()

    def export_state(self) -> dict[str, Any]:
        """Return the state at the last split point for JSON.

        It has the table maps and, for a relay log, the FORMAT_DESCRIPTION as hexadecimal text; and where to decrypt
        from.
        """
        state: dict[str, Any] = {"maps": [body.hex() for body in self.table_maps.values()]}
        if not self.history.is_empty and (definitions := self.history.export_state()):
            state["declared"] = definitions
        if self.context.is_relay_log:
            state["description"] = self.context.description.event.hex()
        if (decryptor := self._get_decryptor()) is not None:
            state["sealed"] = decryptor.get_anchor(self._last_split_offset)
        return state

    def _get_decryptor(self) -> EventDecryptor | None:
        """Return the decryptor of an encrypted MariaDB log; None for other logs."""
        decryptor = self.layout.decrypt
        return decryptor.decryptor if isinstance(decryptor, EventDecryptorFactory) else None

    def resume(self, state: Any, record: int) -> FrameLevel | None:
        """Restore the table maps, the definitions, and the FORMAT_DESCRIPTION of a relay log."""
        bodies = [bytes.fromhex(text) for text in state["maps"]]
        self.context.tracker.previous_relay_log = None  # no group is open here that the preceding file could have begun
        _add_maps(self.table_maps, bodies, self.table_id_size)
        for history in (self.history, self.context.tracker.maps.history):
            if history is not None:
                history.import_state(state.get("declared", ()))
        for body in bodies:
            self.context.tracker.maps.add_map(body)
        if (decryptor := self._get_decryptor()) is not None:
            decryptor.start_at(DecryptionAnchor(*state["sealed"]))
        next_level = self.layout.frame.next_level
        if next_level is None or "description" not in state:
            return None
        return next_level(bytes.fromhex(state["description"]), self.context)

    def skip_damage(self) -> None:
        """Reset the state: the open group and the table maps are unknown."""
        self._kernel_state = array("q", bytes(8 * kernels.SPLIT_STATE_SIZE))
        self.table_maps.clear()
        self._later_maps.clear()
        self.history.discard()
        self._later_statements.clear()


def _add_maps(maps: dict[int, bytes], bodies: Iterable[bytes], id_size: int) -> None:
    """Add table maps, newest last, and drop the oldest beyond the limit."""
    for body in bodies:
        number = int.from_bytes(body[:id_size], "little")
        maps.pop(number, None)
        maps[number] = body
    while len(maps) > MAX_CARRIED_MAPS:
        del maps[next(iter(maps))]


def _get_body(batch: Batch, index: int) -> bytes:
    """Return the body of an event."""
    return bytes(batch.window[int(batch.frames["body_start"][index]) : int(batch.frames["body_end"][index])])
