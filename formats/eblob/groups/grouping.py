"""Determine the kind of records of dialect b, and the records of one overwrite or removal.

See docs/spec/eblob.md#data-sort-records. The kind is not stored. It is derived from
the content and from the records before, never from later ones: so it does not depend on how much of the file is in
memory. The records after are checked by the validator.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, NamedTuple

from binlogtool.formats.columns import to_int_list
from binlogtool.formats.derived import make_unpacker
from binlogtool.formats.eblob.schema import (
    CONTROL,
    CONTROL_SIZE,
    FOOTER,
    FOOTER_SIZE,
    HASH_SIZE,
    RECORD,
    RECORD_HEADER_SIZE,
    REMOVE,
    REMOVE_SIZE,
    TARGET_SIZE,
    TARGETED_RECORD,
    TARGETED_RECORD_BE,
    ControlFlag,
)
from binlogtool.formats.fields import kernel
from binlogtool.formats.layouts import Batch, Column

LOOK_BACK = 2
"""Records before one that can belong to its group: data and footer of an overwrite."""

MAX_SEARCH_BACK = 4096
"""How far back the start of a run of records that look like footers and control blocks is searched."""


_unpack_target = {
    "little": make_unpacker(TARGETED_RECORD, "key", "target_offset"),
    "big": make_unpacker(TARGETED_RECORD_BE, "key", "target_offset"),
}
_unpack_key = make_unpacker(RECORD, "key")
_unpack_flags = make_unpacker(REMOVE, "flags")
_unpack_record_start = {
    FOOTER_SIZE: make_unpacker(FOOTER, "record_start"),
    CONTROL_SIZE: make_unpacker(CONTROL, "position"),
}


class EblobRecordKind(enum.IntEnum):
    """Kind of a record. RECORD: metadata is not a target offset, or the record is of another dialect."""

    DATA = 1
    FOOTER = 2
    CONTROL = 3
    REMOVE = 4
    RECORD = 5


class EblobRecord(NamedTuple):
    """One record.

    Attributes:
        start, end: in the file.
        target: its metadata as an offset in the data file.
        group: number of the first record of its group; None for RECORD.
        record_start: of a footer or control block, where its record of the data file starts.
    """

    number: int
    start: int
    end: int
    kind: EblobRecordKind
    key: bytes
    target: int
    data_size: int
    group: int | None
    record_start: int = -1

    @property
    def size(self) -> int:
        """Size of the record in bytes."""
        return self.end - self.start


def iter_records(
    batch: Batch, start: int, stop: int, previous: tuple[EblobRecord, ...], byte_order: Any
) -> Iterator[EblobRecord]:
    """Iterate over the records `[start, stop)` of a batch.

    Args:
        previous: up to two records that precede them, the nearest last.
        byte_order: byte order, "little" or "big".
    """
    columns = [to_int_list(batch.frames[name], start, stop) for name in ("offset", "end", "meta_size", "data_size")]
    window, base, number, unpack_target = (
        batch.window,
        batch.base,
        batch.first_record + start,
        _unpack_target[byte_order],
    )
    for low, high, meta_size, data_size in zip(*columns, strict=True):
        data = low + RECORD_HEADER_SIZE + meta_size
        if meta_size == TARGET_SIZE:
            key, target = unpack_target(window, low)
            kind, group, record_start = _classify(
                window[data : data + data_size], number, base + low, key, target, previous
            )
        else:
            (key,), kind, group, record_start, target = _unpack_key(window, low), EblobRecordKind.RECORD, None, -1, -1
        record = EblobRecord(number, base + low, base + high, kind, key, target, data_size, group, record_start)
        yield record
        previous = (*previous[-1:], record)
        number += 1


DATA_KIND, FOOTER_KIND, CONTROL_KIND, REMOVE_KIND, RECORD_KIND = map(int, EblobRecordKind)


class PreviousRecord(NamedTuple):
    """The record right before another one.

    last: its number, -1 = there is none. kind, before, points, length, group: its kind, target, record start, bytes of
    data and group. same_key: have both the same key?
    """

    last: int
    kind: int
    before: int
    points: int
    length: int
    group: int
    same_key: int


@kernel()
def classify_record(
    size: int,
    is_removal: int,
    record_start: int,
    target: int,
    number: int,
    previous: PreviousRecord,
    starts_with_key: int,
) -> tuple[int, int]:
    """Determine the kind of record `number` with a target and `size` bytes of data.

    Args:
        is_removal: its flags are those of a removal.
        record_start: where its record of the data file starts, if it is a footer or a control block.
        last_number: number of the record directly before it; -1 = none.
        last_kind, last_target, last_record_start, last_size, last_group: kind, target, record start, bytes of data
        and
            group of that record.
        same_key: that record has the same key.
        starts_with_key: the first bytes of the data are the key.

    Returns:
        (kind, number of the first record of its group).
    """
    if size == REMOVE_SIZE:
        return (REMOVE_KIND if is_removal else DATA_KIND), number
    if size == FOOTER_SIZE:  # it points to the control block before the last written data
        is_footer = (
            previous.last >= 0
            and previous.kind == DATA_KIND
            and previous.same_key
            and record_start >= 0
            and previous.before == record_start + CONTROL_SIZE
        )
        return (
            (FOOTER_KIND, previous.last)
            if is_footer and target >= previous.before + previous.length
            else (DATA_KIND, number)
        )
    if size == CONTROL_SIZE:
        if previous.last >= 0 and previous.kind == FOOTER_KIND and previous.points == target:
            return CONTROL_KIND, previous.group
        if record_start == target and starts_with_key:
            if (
                previous.last >= 0
                and previous.kind == DATA_KIND
                and previous.same_key
                and previous.before >= target + CONTROL_SIZE
            ):
                return CONTROL_KIND, previous.last
            return CONTROL_KIND, number
    return DATA_KIND, number


def _classify(
    data: memoryview, number: int, start: int, key: bytes, target: int, previous: tuple[EblobRecord, ...]
) -> tuple[EblobRecordKind, int, int]:
    """Return (kind, group, record start) of one record with a target."""
    size = len(data)
    if size not in _SPECIAL_SIZES:
        return EblobRecordKind.DATA, number, -1
    last = previous[-1] if previous and previous[-1].end == start else _NO_RECORD
    is_removal = size == REMOVE_SIZE and _unpack_flags(data, 0)[0] == ControlFlag.REMOVE
    record_start = _unpack_record_start[size](data, 0)[0] if size in _unpack_record_start else -1
    group = -1 if last.group is None else last.group
    kind, first = classify_record(
        size,
        is_removal,
        record_start,
        target,
        number,
        PreviousRecord(last.number, last.kind, last.target, last.record_start, last.data_size, group, last.key == key),
        data[:HASH_SIZE] == key,
    )
    return EblobRecordKind(kind), first, -1 if kind == DATA_KIND else record_start


_SPECIAL_SIZES = (REMOVE_SIZE, *_unpack_record_start)
_NO_RECORD = EblobRecord(-1, 0, 0, EblobRecordKind.RECORD, b"", -1, 0, None)
"""What stands before the first record."""


def find_preceding_records(
    batch: Batch, start: int, tails: dict[int, tuple[EblobRecord, ...]], byte_order: Any
) -> tuple[EblobRecord, ...]:
    """Return the two records before record `start` of a batch; those of the batch before are in `tails`."""
    if start == 0:
        return tails.get(batch.first_record, ())
    first = _find_search_start(batch.frames["data_size"], start)
    previous = tails.get(batch.first_record, ()) if first == 0 else ()
    batch_records = tuple(iter_records(batch, first, start, previous, byte_order))
    return (*previous, *batch_records)[-LOOK_BACK:]


def _find_search_start(sizes: Column, start: int) -> int:
    """Return the record from which kinds can be determined so that the two before `start` are known."""
    first = max(0, start - LOOK_BACK)
    lower_bound = max(0, first - MAX_SEARCH_BACK)
    while first > lower_bound and sizes[first] in (FOOTER_SIZE, CONTROL_SIZE):
        first -= 1
    return first


def remember_last_records(batch: Batch, tails: dict[int, tuple[EblobRecord, ...]], byte_order: Any) -> None:
    """Keep the last records of a batch in `tails` for the next batch."""
    count = batch.frames.count
    next_record = batch.first_record + count
    if count and next_record not in tails:
        tails[next_record] = find_preceding_records(batch, count, tails, byte_order)
        while len(tails) > LOOK_BACK:
            del tails[min(tails)]
