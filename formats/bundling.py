"""Bundles of events: what a server wrote into its log in one step, for a log in another container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from binlogtool.findings import Finding

if TYPE_CHECKING:
    from binlogtool.formats.layouts import Batch


class Bundle(msgspec.Struct, frozen=True):
    """What a server wrote into its log in one step: the events of a transaction, or of something outside of any.

    offset, size: its place in the file; of a transaction that lies in several places, that of its commit. record:
    number of the record there. type: of the first event. txn, seq, time, origin: as in `Described`. events: in order,
    each with its header and without a checksum; sizes and positions in the headers may be those of another container.
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


class Reached(NamedTuple):
    """What a log says of the transactions before this place: the last ones as (domain, server, number), in its order.

    whole: these are all; else those since some earlier place.
    """

    gtids: tuple[tuple[int, int, int], ...]
    whole: bool


class Bundler(Protocol):
    """Takes the bundles out of the batches of one file, in order. A finding stands for one that is not whole."""

    def of(self, batch: Batch) -> Iterator[Bundle | Reached | Finding]:
        """The bundles of this batch, as far as they are known to be whole."""

    def damage(self, start: int, end: int) -> Iterator[Bundle | Finding]:
        """`[start, end)` of the file was skipped."""

    def finish(self) -> Iterator[Bundle | Finding]:
        """The end of the file was reached."""
