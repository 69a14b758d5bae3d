"""Event groups: what a server wrote to its binary log in one step, for conversion to a log in another container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from binlogtool.findings import Finding

if TYPE_CHECKING:
    from binlogtool.formats.layouts import Batch


class PortableEventGroup(msgspec.Struct, frozen=True):
    """The events that a server wrote to its log in one step: a transaction, or something outside of any.

    Args:
        offset, size: position in the file; for a transaction in several places, that of its commit.
        record: number of the record there.
        type: type of the first event.
        txn, seq, time, origin: as in `EnvelopeColumns`.
        events: in order, each with its header and without a checksum; sizes and positions in the headers may be those
            of another container.
    """

    offset: int
    size: int
    record: int
    type: str
    txn: str | None
    seq: int | None
    time: int | None
    origin: int | None
    events: tuple[bytes, ...]


class PriorGtids(NamedTuple):
    """The last transactions before this position, as (domain, server, number) in the log's order.

    is_complete: all of them are listed; otherwise only those since some earlier position.
    """

    gtids: tuple[tuple[int, int, int], ...]
    is_complete: bool


class EventGroupReader(Protocol):
    """Extract the event groups from the batches of one file, in order; a finding stands for an incomplete group."""

    def read_groups(self, batch: Batch) -> Iterator[PortableEventGroup | PriorGtids | Finding]:
        """Yield the event groups of this batch that are known to be complete."""

    def skip_damage(self, start: int, end: int) -> Iterator[PortableEventGroup | Finding]:
        """Note that `[start, end)` of the file was skipped."""

    def finish(self) -> Iterator[PortableEventGroup | Finding]:
        """Yield what is left at the end of the file."""
