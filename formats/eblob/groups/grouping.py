"""Determine the kind of records of dialect b, and the records of one overwrite or removal.

See docs/spec/eblob-binlog.md#metadata-and-data-in-data-sort-logs-all-seen. The kind is not stored. It is derived from
the content and from the records before, never from later ones: so it does not depend on how much of the file is in
memory. The records after are checked by the validator.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, NamedTuple

from binlogtool.formats.columns import integers
from binlogtool.formats.derived import unpacker_of
from binlogtool.formats.eblob.schema import (
    AIMED,
    AIMED_BE,
    CONTROL,
    CONTROL_SIZE,
    FOOTER,
    FOOTER_SIZE,
    HASH_SIZE,
    RECORD,
    RECORD_HEADER,
    REMOVE,
    REMOVE_SIZE,
    TARGET_SIZE,
    ControlFlag,
)
from binlogtool.formats.fields import kernel
from binlogtool.formats.layouts import Batch, Column

LOOK_BACK = 2
"""Records before one that can belong to its group: data and footer of an overwrite."""

MAX_BACK = 4096
"""How far back the start of a run of records that look like footers and control blocks is searched."""


_aims = {"little": unpacker_of(AIMED, "key", "target_offset"), "big": unpacker_of(AIMED_BE, "key", "target_offset")}
_key = unpacker_of(RECORD, "key")
_flags = unpacker_of(REMOVE, "flags")
_points = {FOOTER_SIZE: unpacker_of(FOOTER, "record_start"), CONTROL_SIZE: unpacker_of(CONTROL, "position")}


class Kind(enum.IntEnum):
    """Kind of a record. RECORD: metadata is not a target offset, or the record is of another dialect."""

    DATA = 1
    FOOTER = 2
    CONTROL = 3
    REMOVE = 4
    RECORD = 5


class Record(NamedTuple):
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
    kind: Kind
    key: bytes
    target: int
    data_size: int
    group: int | None
    record_start: int = -1

    @property
    def size(self) -> int:
        """Size of the record in bytes."""
        return self.end - self.start


def records(batch: Batch, start: int, stop: int, before: tuple[Record, ...], order: Any) -> Iterator[Record]:
    """Iterate over the records `[start, stop)` of a batch.

    Args:
        previous: up to two records that precede them, the nearest last.
        byte_order: byte order, "little" or "big".
    """
    columns = [integers(batch.frames[name], start, stop) for name in ("offset", "end", "meta_size", "data_size")]
    window, base, number, aims = batch.window, batch.base, batch.first_record + start, _aims[order]
    for low, high, meta_size, data_size in zip(*columns, strict=True):
        data = low + RECORD_HEADER + meta_size
        if meta_size == TARGET_SIZE:
            key, target = aims(window, low)
            kind, group, points = _kind(window[data : data + data_size], number, base + low, key, target, before)
        else:
            (key,), kind, group, points, target = _key(window, low), Kind.RECORD, None, -1, -1
        record = Record(number, base + low, base + high, kind, key, target, data_size, group, points)
        yield record
        before = (*before[-1:], record)
        number += 1


DATA, FOOT, HEAD, REMOVAL, OTHER = map(int, Kind)


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
def kind_of(
    size: int, removes: int, own: int, target: int, number: int, previous: PreviousRecord, same_hash: int
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
        return (REMOVAL if removes else DATA), number
    if size == FOOTER_SIZE:  # it points to the control block before the last written data
        begins = (
            previous.last >= 0
            and previous.kind == DATA
            and previous.same_key
            and own >= 0
            and previous.before == own + CONTROL_SIZE
        )
        return (FOOT, previous.last) if begins and target >= previous.before + previous.length else (DATA, number)
    if size == CONTROL_SIZE:
        if previous.last >= 0 and previous.kind == FOOT and previous.points == target:
            return HEAD, previous.group
        if own == target and same_hash:
            if (
                previous.last >= 0
                and previous.kind == DATA
                and previous.same_key
                and previous.before >= target + CONTROL_SIZE
            ):
                return HEAD, previous.last
            return HEAD, number
    return DATA, number


def _kind(
    data: memoryview, number: int, start: int, key: bytes, target: int, before: tuple[Record, ...]
) -> tuple[Kind, int, int]:
    """Return (kind, group, record start) of one record with a target."""
    size = len(data)
    if size not in _TOLD_APART:
        return Kind.DATA, number, -1
    last = before[-1] if before and before[-1].end == start else _NOTHING
    removes = size == REMOVE_SIZE and _flags(data, 0)[0] == ControlFlag.REMOVE
    own = _points[size](data, 0)[0] if size in _points else -1
    group = -1 if last.group is None else last.group
    kind, first = kind_of(
        size,
        removes,
        own,
        target,
        number,
        PreviousRecord(last.number, last.kind, last.target, last.record_start, last.data_size, group, last.key == key),
        data[:HASH_SIZE] == key,
    )
    return Kind(kind), first, -1 if kind == DATA else own


_TOLD_APART = (REMOVE_SIZE, *_points)
_NOTHING = Record(-1, 0, 0, Kind.RECORD, b"", -1, 0, None)
"""What stands before the first record."""


def preceding(batch: Batch, start: int, tails: dict[int, tuple[Record, ...]], order: Any) -> tuple[Record, ...]:
    """Return the two records before record `start` of a batch; those of the batch before are in `tails`."""
    if start == 0:
        return tails.get(batch.first_record, ())
    first = _anchor(batch.frames["data_size"], start)
    before = tails.get(batch.first_record, ()) if first == 0 else ()
    found = tuple(records(batch, first, start, before, order))
    return (*before, *found)[-LOOK_BACK:]


def _anchor(sizes: Column, start: int) -> int:
    """Return the record from which kinds can be determined so that the two before `start` are known."""
    first = max(0, start - LOOK_BACK)
    least = max(0, first - MAX_BACK)
    while first > least and sizes[first] in (FOOTER_SIZE, CONTROL_SIZE):
        first -= 1
    return first


def remember(batch: Batch, tails: dict[int, tuple[Record, ...]], order: Any) -> None:
    """Keep the last records of a batch in `tails` for the next batch."""
    count = batch.frames.count
    behind = batch.first_record + count
    if count and behind not in tails:
        tails[behind] = preceding(batch, count, tails, order)
        while len(tails) > LOOK_BACK:
            del tails[min(tails)]
