"""Split points between transactions, and the state at each: table maps, event format, decryption.

Source: docs/spec/mysql-mariadb-binlog.md#8-transactions-durability-truncation.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.crypt.headers import EventUnveiler
from binlogtool.formats.binlog_events.crypt.sealed import Landmark, Sealed
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.groups import cut_kernels as kernels
from binlogtool.formats.binlog_events.groups.following import integers_of
from binlogtool.formats.binlog_events.groups.kinds import WORDS, query_kind
from binlogtool.formats.binlog_events.groups.marks import traits
from binlogtool.formats.binlog_events.groups.steps import GROUP_BITS, NO_GROUP, STATEMENT, step
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.cuts import Border, Compile, behind
from binlogtool.formats.layouts import Batch, FrameLevel, Layout

MOST_CARRIED = 1024
"""The last table maps that are carried over a border. A server writes those that a group uses again in the group."""

_NAMES = ("type_code", "body_start", "body_end")


def cutter(layout: Layout) -> GroupCuts | None:
    """Create the split finder of a file; None if its events cannot be read or it has none."""
    context = layout.context
    usable = layout.readable and isinstance(context, FileContext) and not context.sealed
    return GroupCuts(layout, context) if usable else None


class GroupCuts:
    """Finds split points between transactions (`SplitFinder`).

    `table_maps`: bodies of TABLE_MAP events by table id; `history`: table definitions; both as of the last
    split point.
    """

    def __init__(self, layout: Layout, context: FileContext) -> None:
        self.layout = layout
        self.context = context
        self.maps: dict[int, bytes] = {}
        self._open: dict[int, bytes] = {}
        own = context.tracker.maps.history
        self.history = TableHistory() if own is None else own.apart()
        self._waiting: list[tuple[int, int, bytes]] = []
        self._border = 0
        self._traits = traits({EventType.QUERY_COMPRESSED})
        self._state = array("q", bytes(8 * kernels.STATE_SIZE))
        self._noted = array("q")

    def feed(self, batch: Batch, compile_: Compile) -> Border | None:
        """Return the split point after the last event of the batch at which no group is open."""
        count, state = batch.frames.count, self._state
        state[kernels.BORDER] = state[kernels.NOTED] = 0
        if len(self._noted) < kernels.WIDTH * count:
            self._noted = array("q", bytes(8 * kernels.WIDTH * count))
        columns = kernels.EventBodies._make(integers_of(batch.frames[name], count) for name in _NAMES)
        run, slots, at = compile_(kernels.borders), array("q", [-1]) * kernels.SLOTS, 0
        while True:
            at = run(at, count, columns, batch.window, state, self._traits, WORDS, slots, self._noted)
            if at == count:
                break
            self._take_asked(batch, at)
            at += 1
        self._learn(batch, state[kernels.BORDER])
        self._declare(state[kernels.BORDER])
        found = behind(batch, state[kernels.BORDER])
        self._border = self._border if found is None else found.offset
        return found

    def _take_asked(self, batch: Batch, index: int) -> None:
        """Follow a QUERY that is compressed or may declare a table."""
        code, low, high = (int(batch.frames[name][index]) for name in _NAMES)
        self._waiting.append((index, code, bytes(batch.window[low:high])))
        state, kind = self._state, int(query_kind(code, batch.window[low:high]))
        state[kernels.OPEN] = step(state[kernels.OPEN], STATEMENT + kind) & GROUP_BITS
        if state[kernels.OPEN] == NO_GROUP:
            state[kernels.BORDER] = index + 1

    def _learn(self, batch: Batch, border: int) -> None:
        """Note the table maps of the batch: those before its last boundary are valid there, the others at the next
        one.
        """
        settled, waiting, noted = [], [], self._noted
        for at in range(0, kernels.WIDTH * self._state[kernels.NOTED], kernels.WIDTH):
            first, last = noted[at + kernels.FIRST], noted[at + kernels.LAST]
            if first < border:
                settled.append((last if last < border else noted[at + kernels.BEFORE], first))
            if last >= border:
                waiting.append((last, first))
        if border:
            _put(self.maps, self._open.values(), self.id_size)
            self._open.clear()
        for into, found in ((self.maps, settled), (self._open, waiting)):
            _put(into, (_body(batch, first) for _, first in sorted(found)), self.id_size)

    def _declare(self, border: int) -> None:
        """Apply the statements of the batch before its last boundary; keep the others for the next one."""
        for index, code, body in self._waiting:
            if index < border:
                self.history.learn(code, memoryview(body))
        self._waiting = [(-1, code, body) for index, code, body in self._waiting if index >= border]

    @property
    def id_size(self) -> int:
        """Size of a table id in bytes."""
        return self.context.tracker.maps.id_size

    def carried_over(self) -> Any:
        """Return the table definitions."""
        return None if self.history.is_empty else self.history.carried()

    def carried(self) -> dict[str, Any]:
        """Return the state at the last split point for JSON.

        It has the table maps and, for a relay log, the FORMAT_DESCRIPTION as hexadecimal text; and where to decrypt
        from.
        """
        made: dict[str, Any] = {"maps": [body.hex() for body in self.maps.values()]}
        if not self.history.is_empty and (declared := self.history.carried()):
            made["declared"] = declared
        if self.context.relay:
            made["description"] = self.context.description.event.hex()
        if (sealed := self._sealed()) is not None:
            made["sealed"] = sealed.landmark(self._border)
        return made

    def _sealed(self) -> Sealed | None:
        """Return the decryptor of an encrypted MariaDB log; None for other logs."""
        unveil = self.layout.unveil
        return unveil.sealed if isinstance(unveil, EventUnveiler) else None

    def resume(self, carried: Any, record: int) -> FrameLevel | None:
        """Restore the table maps, the definitions, and the FORMAT_DESCRIPTION of a relay log."""
        bodies = [bytes.fromhex(text) for text in carried["maps"]]
        self.context.tracker.previous = None  # no group is open here that the preceding file could have begun
        _put(self.maps, bodies, self.id_size)
        for history in (self.history, self.context.tracker.maps.history):
            if history is not None:
                history.resume(carried.get("declared", ()))
        for body in bodies:
            self.context.tracker.maps.learn(body)
        if (sealed := self._sealed()) is not None:
            sealed.begin(Landmark(*carried["sealed"]))
        turn = self.layout.frame.turn
        if turn is None or "description" not in carried:
            return None
        return turn(bytes.fromhex(carried["description"]), self.context)

    def damage(self) -> None:
        """Reset the state: the open group and the table maps are unknown."""
        self._state = array("q", bytes(8 * kernels.STATE_SIZE))
        self.maps.clear()
        self._open.clear()
        self.history.forget()
        self._waiting.clear()


def _put(maps: dict[int, bytes], bodies: Iterable[bytes], id_size: int) -> None:
    """Add table maps, newest last, and drop the oldest beyond the limit."""
    for body in bodies:
        number = int.from_bytes(body[:id_size], "little")
        maps.pop(number, None)
        maps[number] = body
    while len(maps) > MOST_CARRIED:
        del maps[next(iter(maps))]


def _body(batch: Batch, index: int) -> bytes:
    """Return the body of an event."""
    return bytes(batch.window[int(batch.frames["body_start"][index]) : int(batch.frames["body_end"][index])])
