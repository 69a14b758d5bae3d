"""Do events tile a group exactly? Looks at headers only, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field

from binlogtool.formats.mysql_binlog.codes import HEADER_SIZE

_SIZE_AT = 9
_SIZE_END = 13


@dataclass(slots=True)
class Tiles:
    """Takes the bytes of a group in pieces. events: whole headers so far. broken: an impossible size was met."""

    events: int = 0
    broken: bool = False
    _skip: int = 0
    _head: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes | memoryview) -> None:
        """The next bytes."""
        at, size = 0, len(data)
        while at < size and not self.broken:
            if self._skip:
                step = min(self._skip, size - at)
                self._skip -= step
                at += step
                continue
            step = min(_SIZE_END - len(self._head), size - at)
            self._head += data[at : at + step]
            at += step
            if len(self._head) == _SIZE_END:
                length = int.from_bytes(self._head[_SIZE_AT:_SIZE_END], "little")
                self.broken = length < HEADER_SIZE
                self._skip = length - _SIZE_END
                self.events += 1
                self._head.clear()

    @property
    def whole(self) -> bool:
        """Did the last event end with the last byte?"""
        return not self.broken and not self._skip and not self._head
