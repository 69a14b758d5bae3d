"""What one pass over a file gives, in order: batches of good frames, damaged ranges, and what nothing proves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.layouts import Batch


class Damage(msgspec.Struct, frozen=True):
    """`[start, end)` of the file holds nothing provable. `payload`: the frame is whole, its content is not.

    landed: the chain goes on at `end` (False = this is how the file ends). tail: a class of the byte account. hollow:
    the frame ends in zeros and its stored checksum is zero: if only zeros follow, it is a write that broke off.
    kept: the good records of a frame that holds others, too. framed: of these others those that are well framed; the
    last findings are about them, in order.
    """

    start: int
    end: int
    findings: tuple[Finding, ...]
    tail: str = "damaged"
    landed: bool = True
    payload: bool = False
    hollow: bool = False
    kept: Batch | None = None
    framed: Batch | None = None


class Unproven(NamedTuple):
    """Records that are well framed, and why nothing proves them. data: the bytes of the frame, where it is one."""

    batch: Batch
    why: tuple[Finding, ...]
    data: bytes


class Beside(Protocol):
    """Looks, beside a scan, at what nothing proves."""

    def damage(self, damage: Damage) -> Iterator[Unproven]:
        """What is well framed in a damaged range."""

    def good(self, batch: Batch) -> Iterator[Unproven]:
        """What lies partly in damaged ranges and ends in these frames."""

    def finish(self) -> Iterator[Unproven]:
        """The same, at the end of the file."""


class Account(msgspec.Struct):
    """Bytes per class; they sum to what was read."""

    header: int = 0
    record: int = 0
    padding: int = 0
    preallocated: int = 0
    torn_tail: int = 0
    damaged: int = 0
    unknown: int = 0

    def add(self, name: str, size: int) -> None:
        """Books `size` bytes on one class."""
        setattr(self, name, getattr(self, name) + size)

    def as_dict(self) -> dict[str, int]:
        """In the order of the JSON contract."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def by_place(proven: Iterator[Batch | Damage], unproven: Iterator[Unproven]) -> Iterator[Batch | Damage | Unproven]:
    """Both, by the places of their first records; damage comes where it is met."""
    waiting = next(unproven, None)
    for one in proven:
        while waiting is not None and isinstance(one, Batch) and _start(waiting.batch) < _start(one):
            yield waiting
            waiting = next(unproven, None)
        yield one
    while waiting is not None:
        yield waiting
        waiting = next(unproven, None)


def _start(batch: Batch) -> int:
    """File offset of the first record."""
    return batch.place_of(0).offset
