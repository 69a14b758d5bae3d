"""Fast path for the usual groups of a data-sort log: whole overwrites, removals, and data without a control block.

Gives the same results as `OverwriteGroupValidator.add_record`; anything that is not exactly of such a shape is left
to
it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from binlogtool.formats.derived import unpacker_of
from binlogtool.formats.eblob.groups.grouping import Kind, Record
from binlogtool.formats.eblob.groups.groups import NO_HASH, Groups, Place
from binlogtool.formats.eblob.schema import (
    AIMED,
    CONTROL_SIZE,
    ENDING,
    FOOTER_SIZE,
    HASH_SIZE,
    RECORD_HEADER,
    REMOVE_SIZE,
    TARGET_SIZE,
    ControlFlag,
)

_first = unpacker_of(AIMED, "key", "target_offset")
_rest = unpacker_of(
    ENDING, "footer_key", "footer_target_offset", "footer_sha512", "footer_record_start", "control_key",
    "control_target_offset", "own_key", "own_flags", "own_data_size", "own_disk_size", "own_position",
)  # fmt: skip

_REMOVE = ControlFlag.REMOVE.to_bytes(REMOVE_SIZE, "little")
_BODY = RECORD_HEADER + TARGET_SIZE
_SPECIAL = frozenset({REMOVE_SIZE, FOOTER_SIZE, CONTROL_SIZE, 0})
_ENDS = frozenset({FOOTER_SIZE, CONTROL_SIZE})


class Shapes:
    """Reads runs of usual groups from one batch."""

    def __init__(self, groups: Groups, window: memoryview, base: int, first: int, columns: Sequence[list[int]]) -> None:
        self.groups, self.window, self.base, self.first = groups, window, base, first
        self.offsets, self.ends, self.metas, self.sizes = columns
        self.count = len(self.offsets)

    def can_begin(self, i: int) -> bool:
        """Check if record `index` certainly begins a new group."""
        return self.groups.idle or self.sizes[i] not in _ENDS

    def take(self, i: int, kinds: Counter[str]) -> int:
        """Read usual groups from record `index` on; returns the first record that is not part of one.

        No group may be open in the validator.
        """
        metas, sizes, last = self.metas, self.sizes, self.count - 1
        overwrites = removes = singles = 0
        while i < last and metas[i] == TARGET_SIZE:
            size = sizes[i]
            if size == REMOVE_SIZE and self._remove(i):
                removes += 1
                i += 1
            elif sizes[i + 1] == FOOTER_SIZE and size and size not in _ENDS:
                if i + 2 > last or sizes[i + 2] != CONTROL_SIZE or not self._overwrite(i, size):
                    break
                overwrites += 1
                i += 3
            elif size not in _SPECIAL and sizes[i + 1] not in _ENDS:
                self.groups.unfinished += 1
                self._single(i)
                singles += 1
                i += 1
            else:
                break
        self.groups.complete += overwrites + removes
        _count(kinds, overwrites, removes, singles)
        return i

    def _remove(self, i: int) -> bool:
        """Check for a removal of a key whose position in the data file is unknown, or is this one."""
        low = self.offsets[i]
        if self.window[low + _BODY : low + _BODY + REMOVE_SIZE] != _REMOVE:
            return False
        key, target = _first(self.window, low)
        place = self.groups.places.get(key)
        return place is None or target == place.start + HASH_SIZE

    def _overwrite(self, i: int, size: int) -> bool:
        """Read data, footer and control block; False unless they are all consistent."""
        if self.metas[i + 1] != TARGET_SIZE or self.metas[i + 2] != TARGET_SIZE:
            return False
        low, window = self.offsets[i], self.window
        key, target = _first(window, low)
        (
            footer_key, footer_target, stored, start, control_key, control_target, own_key, flags, data_size, disk_size,
            position,
        ) = _rest(window, self.ends[i])  # fmt: skip
        if not (
            key == footer_key == control_key == own_key
            and start == position == control_target == target - CONTROL_SIZE
            and target + size <= footer_target == start + disk_size - FOOTER_SIZE
            and CONTROL_SIZE + data_size <= disk_size - FOOTER_SIZE
        ):
            return False
        groups = self.groups
        place = groups.places.get(key)
        if place is not None and place.start == start and place.disk_size != disk_size:
            return False
        if stored == NO_HASH:
            if not flags & ControlFlag.NOCSUM:
                return False
            groups.unhashed += 1
        else:
            if data_size != size:
                return False
            if hashlib.sha512(window[low + _BODY : low + _BODY + size]).digest() != stored:
                return False
            groups.hashed += 1
            groups.hashed_bytes += size
        groups.sorted = True
        if place is None or place.start != start:
            groups.remember(key, Place(start, disk_size))
        return True

    def _single(self, i: int) -> None:
        """Add data without footer and control block."""
        groups = self.groups
        if not groups.room:
            return
        low, number = self.offsets[i], self.first + i
        key, target = _first(self.window, low)
        start, end = self.base + low, self.base + self.ends[i]
        groups.open.append(Record(number, start, end, Kind.DATA, key, target, self.sizes[i], number))


def _count(kinds: Counter[str], overwrites: int, removes: int, singles: int) -> None:
    for kind, count in (
        (Kind.DATA, overwrites + singles),
        (Kind.FOOTER, overwrites),
        (Kind.CONTROL, overwrites),
        (Kind.REMOVE, removes),
    ):
        if count:
            kinds[kind.name] += count
