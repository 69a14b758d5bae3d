"""From batches to blocks of records: select, describe, decode. Bounded: at most BLOCK records at a time.

A stretch is what comes before a block: a run of selected records that need not have been described yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from binlogtool.findings import Finding
from binlogtool.formats.base import Batch, Described, Format, Layout
from binlogtool.limits import Limits
from binlogtool.log.filters import Filter
from binlogtool.log.records import Block, Checked, Inner
from binlogtool.schema.columns import as_list

BLOCK = 2048
"""Records in a block at most."""

_ABSENT = 2


@dataclass(frozen=True, slots=True)
class Blocks:
    """Turns the batches of one file into blocks. decode: frame (no envelope body), header or full."""

    file: str
    format: Format
    layout: Layout
    limits: Limits
    decode: str = "full"
    raw: bool = False

    def of(self, batch: Batch, wanted: Filter) -> Iterator[Block]:
        """The selected records of a batch, in order."""
        for start in range(0, batch.records.count, BLOCK):
            if wanted.done:
                return
            stop = min(start + BLOCK, batch.records.count)
            envelope = self.describe(batch, start, stop)
            for first, last in wanted.runs(batch, start, stop, envelope):
                yield self.block(batch, first, last, envelope.part(first - start, last - start))

    def stretches(self, batch: Batch, wanted: Filter) -> Iterator[Stretch | Block]:
        """The selected records of a batch: as blocks where the selection had to look at them."""
        if not wanted.takes_any:
            yield from self.of(batch, wanted)
            return
        at = 0
        for first, last in wanted.runs(batch, 0, batch.records.count, None):
            self._pass(batch, at, first)
            yield Stretch(self, batch, first, last)
            at = last
        if not wanted.done:
            self._pass(batch, at, batch.records.count)

    def _pass(self, batch: Batch, start: int, stop: int) -> None:
        """Describing is how a format learns names from records, also from those that are not selected."""
        if start < stop:
            self.describe(batch, start, stop)

    def describe(self, batch: Batch, start: int, stop: int) -> Described:
        """The envelope of the records `[start, stop)`."""
        return self.format.describe(self.layout.context, batch, start, stop)

    def block(self, batch: Batch, start: int, stop: int, envelope: Described) -> Block:
        """The records `[start, stop)` of a batch."""
        places = Places(batch, self.layout)
        bodies: list[Any] = []
        findings: dict[int, tuple[Finding, ...]] = {}
        if self.decode == "full":
            bodies = self.format.bodies(self.layout.context, batch, start, stop, self.limits)
            for i, body in enumerate(bodies):
                if isinstance(body, Finding):
                    findings[i] = (body,)
                    bodies[i] = None
        extras = self.format.extras
        return Block(
            file=self.file,
            format=self.format.name,
            record=range(batch.first_record + start, batch.first_record + stop),
            offset=places.offsets(start, stop),
            size=places.sizes(start, stop),
            inner=places.inners(start, stop),
            envelope=envelope,
            checksum=places.checksums(start, stop),
            bodies=bodies,
            extras=extras(self.layout.context, batch, start, stop) if extras and self.decode != "frame" else None,
            findings=findings,
            raw=[batch.record_bytes(i) for i in range(start, stop)] if self.raw else None,
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """The records `[start, stop)` of a batch before anybody has looked at them; valid as long as the batch.

    It must be used up in order: by `blocks`, or by code that knows which records teach their format nothing
    (`formats.base.JsonLine`).
    """

    maker: Blocks
    batch: Batch
    start: int
    stop: int

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """The records `[start, stop)` of the batch, which must be records of the stretch."""
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            yield self.maker.block(self.batch, first, last, self.maker.describe(self.batch, first, last))


@dataclass(frozen=True, slots=True)
class Places:
    """Where the records of a batch lie in the file, and the checksums of their frames."""

    batch: Batch
    layout: Layout

    def offsets(self, start: int, stop: int) -> list[int]:
        """File offset of each record, or of its container when the container is packed."""
        batch = self.batch
        base, frame_offsets = batch.base, as_list(batch.frames["offset"])
        if batch.rows is None:
            return [base + offset for offset in frame_offsets[start:stop]]
        spans, rows = as_list(batch.rows["span"][start:stop]), as_list(batch.rows["offset"][start:stop])
        level = self.layout.rows
        assert level is not None
        payloads, packed, starts = as_list(batch.frames[level.start]), batch.packed, as_list(batch.span_starts)
        return [
            base + (frame_offsets[s] if packed[s] else payloads[s] + row - starts[s])
            for s, row in zip(spans, rows, strict=True)
        ]

    def sizes(self, start: int, stop: int) -> list[int]:
        """Bytes of the file that the record (or its packed container) takes."""
        batch = self.batch
        table = batch.records
        own = [
            e - o for o, e in zip(as_list(table["offset"][start:stop]), as_list(table["end"][start:stop]), strict=True)
        ]
        if batch.rows is None or not any(batch.packed):
            return own
        offsets, ends = as_list(batch.frames["offset"]), as_list(batch.frames["end"])
        spans = as_list(batch.rows["span"][start:stop])
        return [ends[s] - offsets[s] if batch.packed[s] else size for s, size in zip(spans, own, strict=True)]

    def inners(self, start: int, stop: int) -> Sequence[Inner | None]:
        """Position in the unpacked payload, for records inside packed containers."""
        batch = self.batch
        if batch.rows is None or not any(batch.packed):
            return [None] * (stop - start)
        spans, starts = as_list(batch.rows["span"][start:stop]), as_list(batch.span_starts)
        offsets, ends = as_list(batch.rows["offset"][start:stop]), as_list(batch.rows["end"][start:stop])
        return [
            Inner(offset - starts[s], end - offset) if batch.packed[s] else None
            for s, offset, end in zip(spans, offsets, ends, strict=True)
        ]

    def checksums(self, start: int, stop: int) -> Sequence[Checked | None]:
        """One value per record, shared by the records of a frame."""
        level = self.layout.frame
        if level.checksum is None or level.stored is None:
            return [None] * (stop - start)
        first, last = self.batch.frame_of(start), self.batch.frame_of(stop - 1)
        name = level.checksum.name
        stored = [value & 0xFFFFFFFF for value in as_list(self.batch.frames[level.stored][first : last + 1])]
        states = as_list(self.batch.frames["checksum"][first : last + 1])
        values = [
            Checked(name, value, self._computed(first + i), None)
            if state == _ABSENT
            else Checked(name, value, value, True)
            for i, (value, state) in enumerate(zip(stored, states, strict=True))
        ]
        if self.batch.rows is None:
            return values
        return [values[s - first] for s in as_list(self.batch.rows["span"][start:stop])]

    def _computed(self, frame: int) -> int:
        level = self.layout.frame
        assert level.covered is not None
        low, high = (self.batch.frames[name][frame] for name in level.covered)
        return int(level.checksum(self.batch.window[low:high]))
