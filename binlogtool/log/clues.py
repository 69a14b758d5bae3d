"""Evidence about damage: the bytes around it, and functions that decide whether a frame is whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from binlogtool.limits import MIB

SECTOR = 512
SEARCH_DISTANCE = 4 * MIB
"""How far around a region its sectors are looked for."""


class DamageCause(NamedTuple):
    """The likely cause of damage.

    Args:
        kind: flipped-bit, zeroed-sector, stale-sector, foreign-bytes, inserted-bytes, removed-bytes, torn-write,
            truncated.
        offset, length: the affected bytes of the file.
        words: one clause of the message.
        more: additional facts.
    """

    kind: str
    offset: int
    length: int
    words: str
    more: Mapping[str, Any] = MappingProxyType({})

    @property
    def facts(self) -> dict[str, Any]:
        """The cause as facts of a finding."""
        return {"cause": self.kind, "cause_offset": self.offset, "cause_length": self.length, **self.more}


class DamagedRegion(NamedTuple):
    """The bytes `[start, end)` without a record; at `end` is a proven record, the end mark, or the end of the file.

    Args:
        declared: where the damaged frame ends by its own length; -1 = unknown.
        before: offset of a good frame before it; -1 = there is none.
        tail: nothing provable follows.
        flip: byte and bit of a finding that explain its checksum.
        covered: number of bytes under that checksum.
    """

    start: int
    end: int
    declared: int = -1
    before: int = -1
    tail: bool = False
    flip: tuple[int, int] | None = None
    covered: int = 0


class DamageEvidence(msgspec.Struct):
    """What is known about one file.

    Args:
        read: reads `[offset, offset + size)`, shorter at the end.
        size: of the file, in bytes.
        proven_size: bytes -> size of the frame at their start, if a checksum proves it; else 0.
        checksum_difference: a frame -> stored xor computed checksum and the covered range; None if it has no
            checksum.
        poly: of the checksum (crcmod's convention).
        align: frames start at multiples of it.
        claimed_offset: first bytes of a frame -> the file offset that the writer stored in it.
        foreign_format: bytes of a sector -> name of the log format whose files start like that.
        frame_size: like `proven_size`, where there are no checksums.
        regions: number of regions examined so far.
        last_cause: the cause of the last region.
    """

    read: Callable[[int, int], bytes]
    size: int
    proven_size: Callable[[bytes | bytearray], int]
    checksum_difference: Callable[[bytes], tuple[int, int, int] | None]
    poly: int | None = None
    align: int = 1
    claimed_offset: Callable[[bytes], int | None] | None = None
    foreign_format: Callable[[bytes], str | None] = lambda data: None
    frame_size: Callable[[bytes], int] = lambda data: 0
    regions: int = 0
    _sectors: dict[int, list[int]] = msgspec.field(default_factory=dict)
    _indexed_range: tuple[int, int] = (0, 0)
    last_cause: DamageCause | None = None

    def find_copies(self, sector: bytes, offset: int) -> list[int]:
        """Return other offsets near `offset` with the bytes of a sector; the index is built on first use."""
        low, high = self._indexed_range
        if not low <= offset < high:
            self._build_index(max(0, offset - SEARCH_DISTANCE) // SECTOR * SECTOR, offset + SEARCH_DISTANCE)
        return [at for at in self._sectors.get(hash(sector), ()) if at != offset and self.read(at, SECTOR) == sector]

    def _build_index(self, low: int, high: int) -> None:
        self._sectors, self._indexed_range = {}, (low, high)
        for start in range(low, min(high, self.size), MIB):
            data = self.read(start, MIB)
            for at in range(0, len(data) - SECTOR + 1, SECTOR):
                places = self._sectors.setdefault(hash(data[at : at + SECTOR]), [])
                if len(places) < 4:
                    places.append(start + at)
