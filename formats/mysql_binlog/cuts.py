"""Borders between groups of events (specification section 8), and the table maps in force there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from binlogtool.formats.base import Batch, Layout
from binlogtool.formats.columns import integers
from binlogtool.formats.cuts import Border, behind
from binlogtool.formats.mysql_binlog.codes import EventType
from binlogtool.formats.mysql_binlog.groups import Groups
from binlogtool.formats.mysql_binlog.layout import FileContext

MOST_CARRIED = 1024
"""The last table maps that are carried over a border. A server writes those that a group uses again in the group."""

_NAMES = ("type_code", "body_start", "body_end")


def cutter(layout: Layout) -> GroupCuts | None:
    """None for files whose events are of several forms (relay logs), or sealed, or no events at all."""
    context = layout.context
    plain = isinstance(context, FileContext) and not context.relay and not context.sealed
    return GroupCuts(context) if plain and layout.readable else None


@dataclass(slots=True)
class GroupCuts:
    """See `formats.cuts.Cutter`. maps: bodies of TABLE_MAP events by their id, as they are at the last border."""

    context: FileContext
    groups: Groups = field(default_factory=Groups)
    maps: dict[int, bytes] = field(default_factory=dict)
    _open: list[bytes] = field(default_factory=list)

    def feed(self, batch: Batch) -> Border | None:
        """Behind the last event where no group is open."""
        border, window, groups = 0, batch.window, self.groups
        columns = (integers(batch.frames[name], 0, batch.frames.count) for name in _NAMES)
        for i, (code, low, high) in enumerate(zip(*columns, strict=True), 1):
            body = window[low:high]
            groups.take(code, body)
            if code == EventType.TABLE_MAP:
                self._open.append(bytes(body))
            if not groups.open:
                border = i
                if self._open:
                    self._settle()
        return behind(batch, border)

    def _settle(self) -> None:
        size = self.context.tracker.maps.id_size
        for body in self._open:
            number = int.from_bytes(body[:size], "little")
            self.maps.pop(number, None)
            self.maps[number] = body
        self._open.clear()
        while len(self.maps) > MOST_CARRIED:
            del self.maps[next(iter(self.maps))]

    def carried(self) -> list[str]:
        """The table maps, as hexadecimal text."""
        return [body.hex() for body in self.maps.values()]

    def resume(self, carried: Any, record: int) -> None:
        """The maps are in force again."""
        for text in carried:
            body = bytes.fromhex(text)
            self.maps[int.from_bytes(body[: self.context.tracker.maps.id_size], "little")] = body
            self.context.tracker.maps.learn(body)

    def damage(self) -> None:
        """Nothing is known of the group that was open, and of the maps."""
        self.groups.lose()
        self.maps.clear()
        self._open.clear()
