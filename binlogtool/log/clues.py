"""What is seen of a damage: the bytes around it, and who can say what is whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from binlogtool.limits import MIB

SECTOR = 512
NEAR = 4 * MIB
"""How far around a region its sectors are looked for."""


class Cause(NamedTuple):
    """kind: flipped-bit, zeroed-sector, stale-sector, foreign-bytes, inserted-bytes, removed-bytes, torn-write,
    truncated. [offset, offset + length): the bytes of the file that it is about. words: one clause of the message.
    """

    kind: str
    offset: int
    length: int
    words: str
    more: Mapping[str, Any] = MappingProxyType({})

    @property
    def facts(self) -> dict[str, Any]:
        """As members of a finding."""
        return {"cause": self.kind, "cause_offset": self.offset, "cause_length": self.length, **self.more}


class Region(NamedTuple):
    """`[start, end)` holds no record; one that is proven stands at `end`, or the end mark, or the file ends there.

    declared: where the damaged frame ends by its own length; -1 = it does not say. before: a good frame in front, -1 =
    there is none. tail: nothing provable follows. flip: a finding's byte and bit that explain its checksum. covered:
    bytes under that checksum.
    """

    start: int
    end: int
    declared: int = -1
    before: int = -1
    tail: bool = False
    flip: tuple[int, int] | None = None
    covered: int = 0


class Clues(msgspec.Struct):
    """What is known of one file. read: `[offset, offset + size)`, shorter at the end. size: of the file, in bytes.

    whole: bytes -> where the frame at their start ends, if a checksum proves it; else 0. verified: a frame -> its
    syndrome and the covered range, None if it has no checksum. poly: of the checksum (crcmod's convention). align:
    frames start at multiples of it. claims: the bytes of a frame's head -> the file offset at which it says it stands.
    foreign: the bytes of a sector -> the name of the log format whose file starts so. framed: like `whole`, where there
    are no checksums.
    """

    read: Callable[[int, int], bytes]
    size: int
    whole: Callable[[bytes | bytearray], int]
    verified: Callable[[bytes], tuple[int, int, int] | None]
    poly: int | None = None
    align: int = 1
    claims: Callable[[bytes], int | None] | None = None
    foreign: Callable[[bytes], str | None] = lambda data: None
    framed: Callable[[bytes], int] = lambda data: 0
    regions: int = 0
    _sectors: dict[int, list[int]] = msgspec.field(default_factory=dict)
    _indexed: tuple[int, int] = (0, 0)
    told: Cause | None = None

    def copies(self, sector: bytes, offset: int) -> list[int]:
        """Other places near `offset` with the bytes of a sector. The index is made when it is first needed."""
        low, high = self._indexed
        if not low <= offset < high:
            self._index(max(0, offset - NEAR) // SECTOR * SECTOR, offset + NEAR)
        return [at for at in self._sectors.get(hash(sector), ()) if at != offset and self.read(at, SECTOR) == sector]

    def _index(self, low: int, high: int) -> None:
        self._sectors, self._indexed = {}, (low, high)
        for start in range(low, min(high, self.size), MIB):
            data = self.read(start, MIB)
            for at in range(0, len(data) - SECTOR + 1, SECTOR):
                places = self._sectors.setdefault(hash(data[at : at + SECTOR]), [])
                if len(places) < 4:
                    places.append(start + at)
