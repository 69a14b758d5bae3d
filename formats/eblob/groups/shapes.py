"""Fast path for the usual groups of a data-sort log: whole overwrites, removals, and data without a control block.

Gives the same results as `OverwriteGroupValidator.add_record`; anything that is not exactly of such a shape is left to
it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from binlogtool.formats.derived import make_unpacker
from binlogtool.formats.eblob.groups.grouping import EblobRecord, EblobRecordKind
from binlogtool.formats.eblob.groups.groups import NO_HASH, DataFileExtent, OverwriteGroupValidator
from binlogtool.formats.eblob.schema import (
    CONTROL_SIZE,
    FOOTER_SIZE,
    HASH_SIZE,
    OVERWRITE_ENDING,
    RECORD_HEADER_SIZE,
    REMOVE_SIZE,
    TARGET_SIZE,
    TARGETED_RECORD,
    ControlFlag,
)

_unpack_little_target = make_unpacker(TARGETED_RECORD, "key", "target_offset")
_unpack_ending = make_unpacker(
    OVERWRITE_ENDING, "footer_key", "footer_target_offset", "footer_sha512", "footer_record_start", "control_key",
    "control_target_offset", "own_key", "own_flags", "own_data_size", "own_disk_size", "own_position",
)  # fmt: skip

_REMOVE_BYTES = ControlFlag.REMOVE.to_bytes(REMOVE_SIZE, "little")
_DATA_AT = RECORD_HEADER_SIZE + TARGET_SIZE
_SPECIAL_RECORD_SIZES = frozenset({REMOVE_SIZE, FOOTER_SIZE, CONTROL_SIZE, 0})
_ENDING_SIZES = frozenset({FOOTER_SIZE, CONTROL_SIZE})


class UsualGroupReader:
    """Reads runs of usual groups from one batch."""

    def __init__(
        self,
        validator: OverwriteGroupValidator,
        window: memoryview,
        base: int,
        first_record: int,
        columns: Sequence[list[int]],
    ) -> None:
        self.validator, self.window, self.base, self.first_record = validator, window, base, first_record
        self.offsets, self.ends, self.metas, self.sizes = columns
        self.count = len(self.offsets)

    def can_begin_group(self, index: int) -> bool:
        """Check if record `index` certainly begins a new group."""
        return self.validator.is_idle or self.sizes[index] not in _ENDING_SIZES

    def read_usual_groups(self, index: int, kinds: Counter[str]) -> int:
        """Read usual groups from record `index` on; returns the first record that is not part of one.

        No group may be open in the validator.
        """
        meta_sizes, sizes, last = self.metas, self.sizes, self.count - 1
        overwrites = removals = unfinished = 0
        while index < last and meta_sizes[index] == TARGET_SIZE:
            size = sizes[index]
            if size == REMOVE_SIZE and self._is_usual_removal(index):
                removals += 1
                index += 1
            elif sizes[index + 1] == FOOTER_SIZE and size and size not in _ENDING_SIZES:
                if index + 2 > last or sizes[index + 2] != CONTROL_SIZE or not self._read_usual_overwrite(index, size):
                    break
                overwrites += 1
                index += 3
            elif size not in _SPECIAL_RECORD_SIZES and sizes[index + 1] not in _ENDING_SIZES:
                self.validator.unfinished += 1
                self._add_unfinished(index)
                unfinished += 1
                index += 1
            else:
                break
        self.validator.complete += overwrites + removals
        _count_kinds(kinds, overwrites, removals, unfinished)
        return index

    def _is_usual_removal(self, index: int) -> bool:
        """Check for a removal of a key whose position in the data file is unknown, or is this one."""
        record_at = self.offsets[index]
        if self.window[record_at + _DATA_AT : record_at + _DATA_AT + REMOVE_SIZE] != _REMOVE_BYTES:
            return False
        key, target = _unpack_little_target(self.window, record_at)
        extent = self.validator.extents.get(key)
        return extent is None or target == extent.start + HASH_SIZE

    def _read_usual_overwrite(self, index: int, size: int) -> bool:
        """Read data, footer and control block; False unless they are all consistent."""
        if self.metas[index + 1] != TARGET_SIZE or self.metas[index + 2] != TARGET_SIZE:
            return False
        record_at, window = self.offsets[index], self.window
        key, target = _unpack_little_target(window, record_at)
        (
            footer_key, footer_target, stored, start, control_key, control_target, own_key, flags, data_size, disk_size,
            position,
        ) = _unpack_ending(window, self.ends[index])  # fmt: skip
        if not (
            key == footer_key == control_key == own_key
            and start == position == control_target == target - CONTROL_SIZE
            and target + size <= footer_target == start + disk_size - FOOTER_SIZE
            and CONTROL_SIZE + data_size <= disk_size - FOOTER_SIZE
        ):
            return False
        validator = self.validator
        extent = validator.extents.get(key)
        if extent is not None and extent.start == start and extent.disk_size != disk_size:
            return False
        if stored == NO_HASH:
            if not flags & ControlFlag.NOCSUM:
                return False
            validator.unhashed += 1
        else:
            if data_size != size:
                return False
            if hashlib.sha512(window[record_at + _DATA_AT : record_at + _DATA_AT + size]).digest() != stored:
                return False
            validator.hashed += 1
            validator.hashed_bytes += size
        validator.is_data_sort = True
        if extent is None or extent.start != start:
            validator.remember_extent(key, DataFileExtent(start, disk_size))
        return True

    def _add_unfinished(self, index: int) -> None:
        """Add data without footer and control block."""
        validator = self.validator
        if not validator.can_report_more:
            return
        record_at, number = self.offsets[index], self.first_record + index
        key, target = _unpack_little_target(self.window, record_at)
        start, end = self.base + record_at, self.base + self.ends[index]
        validator.unfinished_records.append(
            EblobRecord(number, start, end, EblobRecordKind.DATA, key, target, self.sizes[index], number)
        )


def _count_kinds(kinds: Counter[str], overwrites: int, removals: int, unfinished: int) -> None:
    for kind, count in (
        (EblobRecordKind.DATA, overwrites + unfinished),
        (EblobRecordKind.FOOTER, overwrites),
        (EblobRecordKind.CONTROL, overwrites),
        (EblobRecordKind.REMOVE, removals),
    ):
        if count:
            kinds[kind.name] += count
