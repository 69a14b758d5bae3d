"""Segments of one pass over a file, in order: batches of good frames, damaged ranges, and unproven records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.layouts import Batch


class DamagedRange(msgspec.Struct, frozen=True):
    """The bytes `[start, end)` of the file, without a provable record.

    Args:
        tail: a class of the byte account.
        is_followed: the chain continues at `end`; False = this is how the file ends.
        payload: the frame is whole, its content is not.
        hollow: the frame ends in zeros and its stored checksum is zero: if only zeros follow, its write was
            interrupted.
        good_records: the good records of a frame that also has others.
        framed_records: those of the others that are well framed; the last findings are about them, in order.
    """

    start: int
    end: int
    findings: tuple[Finding, ...]
    tail: str = "damaged"
    is_followed: bool = True
    payload: bool = False
    hollow: bool = False
    good_records: Batch | None = None
    framed_records: Batch | None = None


class SalvagedRecords(NamedTuple):
    """Records that are well framed, and why nothing proves them. data: bytes of the frame, if it is a single one."""

    batch: Batch
    reasons: tuple[Finding, ...]
    data: bytes


class UnprovenReader(Protocol):
    """Read unproven records beside a scan."""

    def read_damage(self, damage: DamagedRange) -> Iterator[SalvagedRecords]:
        """Yield what is well framed in a damaged range."""

    def read_batch(self, batch: Batch) -> Iterator[SalvagedRecords]:
        """Yield what is partly in damaged ranges and ends in these frames."""

    def finish(self) -> Iterator[SalvagedRecords]:
        """Yield what is left at the end of the file."""


class ByteAccount(msgspec.Struct):
    """Bytes per class; their sum is the number of bytes read."""

    header: int = 0
    record: int = 0
    padding: int = 0
    preallocated: int = 0
    torn_tail: int = 0
    damaged: int = 0
    unknown: int = 0

    def add(self, name: str, size: int) -> None:
        """Add `size` bytes to one class."""
        setattr(self, name, getattr(self, name) + size)

    def as_dict(self) -> dict[str, int]:
        """Return the classes in the order of the JSON output."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def merge_by_offset(
    proven: Iterator[Batch | DamagedRange], unproven: Iterator[SalvagedRecords]
) -> Iterator[Batch | DamagedRange | SalvagedRecords]:
    """Merge both by the offsets of their first records; damage is yielded where it is met."""
    waiting = next(unproven, None)
    for item in proven:
        while waiting is not None and isinstance(item, Batch) and _start_offset(waiting.batch) < _start_offset(item):
            yield waiting
            waiting = next(unproven, None)
        yield item
    while waiting is not None:
        yield waiting
        waiting = next(unproven, None)


def _start_offset(batch: Batch) -> int:
    """Return the file offset of the first record."""
    return batch.container_position(0).offset
