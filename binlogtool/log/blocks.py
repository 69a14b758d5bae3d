"""From batches to blocks of records: select, decode envelopes, decode bodies; at most BLOCK records at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import and_
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.base import Format
from binlogtool.formats.columns import integers
from binlogtool.formats.described import Described, Noted
from binlogtool.formats.layouts import Batch, Column, Layout
from binlogtool.formats.longvalues import LongValue, Parted
from binlogtool.formats.scripting import Script
from binlogtool.formats.tables import TableReader, row_bytes
from binlogtool.limits import Limits
from binlogtool.log.filters import GAP, Filter, runs_of, spans
from binlogtool.log.longvalues import taken_out
from binlogtool.log.records import Block, Checked, Inner
from binlogtool.log.stretches import BLOCK, Stretch, marks_of, short

if TYPE_CHECKING:
    from binlogtool.log.where import Columns, Where
    from binlogtool.log.where_lines import RowLines
    from binlogtool.log.where_rows import RowWhere

_ABSENT = 2

_HELD_PART = 16
"""What the records of a block tell of tables takes this part of the memory at most, or is of one record."""


class Blocks(msgspec.Struct, frozen=True):
    """Turn the batches of one file into blocks of records.

    Args:
        decode: "frame" (no envelope body), "header" or "full".
        raw: also return the raw bytes of each record.
        script: the bodies are its statements.
        row_condition: selects the rows of these statements.
        reader: the bodies are its table rows.
    """

    file: str
    format: Format
    layout: Layout
    limits: Limits
    decode: str = "full"
    raw: bool = False
    script: Script | None = None
    choice: RowWhere | None = None
    reader: TableReader | None = None

    def of(self, batch: Batch, wanted: Filter) -> Iterator[Block]:
        """Yield the selected records of a batch, in order."""
        reached = 0
        for holder, inner in batch.inner.items():
            yield from self.between(batch, wanted, reached, holder + 1)
            yield from self.of(inner, wanted)
            reached = holder + 1
        yield from self.between(batch, wanted, reached, batch.records.count)

    def between(self, batch: Batch, wanted: Filter, start: int, stop: int) -> Iterator[Block]:
        """Yield the selected ones among the records `[start, stop)`."""
        at = start
        for first, last, envelope in self.chosen(batch, wanted, start, stop):
            self._pass_by(batch, at, first)
            yield self.block(batch, first, last, envelope)
            at = last
        self._pass_by(batch, at, stop)

    def _pass_by(self, batch: Batch, start: int, stop: int) -> None:
        """Show the script the records that are not selected: they may define tables."""
        if self.script is not None and start < stop:
            self.script.pass_by(self.layout.context, batch, start, stop, self.limits)

    def chosen(
        self, batch: Batch, wanted: Filter, begin: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, int, Described]]:
        """Yield runs `[first, last)` of selected records among `[begin, end)` with their envelopes."""
        end = batch.records.count if end is None else end
        if is_picked(batch, wanted):
            for runs, envelope in self._picked(batch, wanted, begin, end):
                for first, last in runs:
                    yield first, last, self.describe(batch, first, last) if envelope is None else envelope
            return
        for start in range(begin, end, BLOCK):
            if wanted.done:
                return
            yield from self._looked_at(batch, wanted, start, min(start + BLOCK, end))

    def _looked_at(self, batch: Batch, wanted: Filter, start: int, stop: int) -> Iterator[tuple[int, int, Described]]:
        """Yield the selected ones among the records `[start, stop)`, whose envelopes are all decoded."""
        envelope = self.describe(batch, start, stop)
        condition, narrow = wanted.where, None
        if condition is not None:
            lines = wanted.lines if wanted.lines is not None and wanted.lines.takes(batch) else None
            narrow = Narrowing(self, condition, batch, start, envelope, lines).runs
        for first, last in wanted.runs(batch, start, stop, envelope, narrow):
            yield first, last, envelope.part(first - start, last - start)

    def _picked(
        self, batch: Batch, wanted: Filter, begin: int, end: int
    ) -> Iterator[tuple[list[tuple[int, int]], Described | None]]:
        """Yield runs of the records in `[begin, end)` for which the condition is true.

        Records that compiled code refuses are yielded one by one, with their envelopes.
        """
        at, few, lines = begin, 1, wanted.lines
        assert lines is not None
        while at < end and not wanted.done:
            known, refused = lines.true(at, end)
            runs = list(wanted.counted(short(runs_of(known, at))))
            if runs:
                yield runs, None
            at += len(known)
            if refused and not wanted.done:
                few = 1 if len(known) > GAP else min(2 * few, BLOCK)
                for first, last, envelope in self._looked_at(batch, wanted, at, min(at + few, end)):
                    yield [(first, last)], envelope
                at = min(at + few, end)

    def stretches(self, batch: Batch, wanted: Filter, *, inside: bool = False) -> Iterator[Stretch | Block]:
        """Yield the selected records of a batch, as blocks where the selection had to decode them.

        inside: also yield ranges of records that are inside others.
        """
        if not batch.inner and is_picked(batch, wanted):
            for runs, envelope in self._picked(batch, wanted, 0, batch.records.count):
                if envelope is None:
                    yield Stretch(self, batch, runs[0][0], runs[-1][1], marks_of(runs))
                else:
                    yield self.block(batch, *runs[0], envelope)
            return
        if not wanted.takes_any or (batch.inner and not inside):
            yield from self.of(batch, wanted)
            return
        reached = 0
        for holder, inner in batch.inner.items():
            yield from self._stretches(batch, wanted, reached, holder + 1)
            yield from self._stretches(inner, wanted, 0, inner.records.count)
            reached = holder + 1
        yield from self._stretches(batch, wanted, reached, batch.records.count)

    def _stretches(self, batch: Batch, wanted: Filter, start: int, stop: int) -> Iterator[Stretch]:
        for first, last in wanted.runs(batch, start, stop, None):
            self._pass(batch, start, first)
            yield Stretch(self, batch, first, last)
            start = last
        if not wanted.done:
            self._pass(batch, start, stop)

    def _pass(self, batch: Batch, start: int, stop: int) -> None:
        """Decode envelopes of records that are not selected: a format learns names from them."""
        if start < stop:
            self.describe(batch, start, stop)

    def describe(self, batch: Batch, start: int, stop: int) -> Described:
        """Return the envelopes of the records `[start, stop)`."""
        return self.format.output.describe(self.layout.context, batch, start, stop)

    def blocks(self, batch: Batch, start: int, stop: int, envelope: Described) -> Iterator[Block]:
        """Yield the records `[start, stop)` of a batch, with at most a part of the memory in one block."""
        if self.decode != "full" or self.reader is None:
            yield self.block(batch, start, stop, envelope)
            return
        most, first, held, bodies = self.limits.max_memory // _HELD_PART, start, 0, list[Any]()
        for at, body in enumerate(self._lazy_bodies(batch, start, stop, envelope), start + 1):
            bodies.append(body)
            held += sum(map(row_bytes, body.rows))
            if held > most and at < stop:
                part = envelope.part(first - start, at - start)
                yield self.block(batch, first, at, part, bodies)
                first, held, bodies = at, 0, []
        part = envelope if first == start else envelope.part(first - start, stop - start)
        yield self.block(batch, first, stop, part, bodies)

    def block(self, batch: Batch, start: int, stop: int, envelope: Described, bodies: list[Any] | None = None) -> Block:
        """Return the records `[start, stop)` of a batch as one block. bodies: their bodies, if already decoded."""
        places = Places(batch, self.layout, start, stop)
        findings: dict[int, tuple[Finding, ...]] = {}
        if self.decode != "full":
            bodies = []
        else:
            bodies = self._bodies(batch, start, stop, envelope) if bodies is None else bodies
            for i, body in enumerate(bodies):
                if isinstance(body, Finding):
                    findings[i] = (body,)
                    bodies[i] = None
                elif isinstance(body, Noted):
                    bodies[i], findings[i] = body
        taken = self._taken(bodies, places)
        extras = None if self.reader is not None else self.format.output.extras
        return Block(
            file=self.file,
            format=self.format.name,
            record=batch.numbers(start, stop),
            offset=places.offsets(),
            size=places.sizes(),
            inner=places.inners(),
            envelope=envelope,
            checksum=places.checksums(),
            bodies=bodies,
            extras=extras(self.layout.context, batch, start, stop) if extras and self.decode != "frame" else None,
            findings=findings,
            raw=[batch.record_bytes(i) for i in range(start, stop)] if self.raw else None,
            taken=taken,
        )

    def _taken(self, bodies: list[Any], places: Places) -> dict[str, LongValue]:
        """Replace values longer than `Limits.max_whole` in these bodies by placeholders; return the values."""
        most, taken = self.limits.max_whole, dict[str, LongValue]()
        if most is None or self.script is not None or self.reader is not None:
            return taken
        for i, (body, size) in enumerate(zip(bodies, places.sizes(), strict=False)):
            parted = isinstance(body, Parted)
            if parted or size > most:
                bodies[i], found = taken_out(body.body if parted else body, most)
                taken |= found
        return taken

    def _bodies(self, batch: Batch, start: int, stop: int, envelope: Described) -> list[Any]:
        return list(self._lazy_bodies(batch, start, stop, envelope))

    def _lazy_bodies(self, batch: Batch, start: int, stop: int, envelope: Described) -> Iterable[Any]:
        if self.choice is not None:
            names = self.choice.condition.members
            self.choice.look(start, stop, members(names, self.layout, batch, start, stop, envelope))
        if self.script is not None:
            return self.script.records(self.layout.context, batch, start, stop, self.limits)
        if self.reader is not None:
            return self.reader.records(self.layout.context, batch, start, stop, self.limits)
        return self.format.output.bodies(self.layout.context, batch, start, stop, self.limits)


def is_picked(batch: Batch, wanted: Filter) -> bool:
    """Return True if compiled code can evaluate the selection for most records of a batch; ask in file order."""
    return wanted.only_where and wanted.lines is not None and wanted.lines.takes(batch)


class Places:
    """File positions of the records `[start, stop)` of a batch, and the checksums of their frames."""

    def __init__(self, batch: Batch, layout: Layout, start: int, stop: int) -> None:
        self._batch, self._layout, self._start, self._stop = batch, layout, start, stop
        self._first, self._last = batch.frame_of(start), batch.frame_of(stop - 1)
        self._packed = batch.packed[self._first : self._last + 1] if batch.rows else ()
        self._any_packed = any(self._packed)

    def _record(self, name: str) -> list[int]:
        return integers(self._batch.records[name][self._start : self._stop])

    def _frame(self, column: Column) -> list[int]:
        return integers(column[self._first : self._last + 1])

    def _spans(self) -> list[int]:
        """Return the frame of each record, counted from the first one."""
        return [span - self._first for span in self._record("span")]

    def offsets(self) -> list[int]:
        """Return the file offset of each record, or of its container when the container is packed."""
        if self._batch.holder is not None:
            return [self._batch.holder.offset] * (self._stop - self._start)
        if self._batch.places is not None:
            return integers(self._batch.places.offset, self._start, self._stop)
        base, frames, level = self._batch.base, self._batch.frames, self._layout.rows
        if level is None:
            return [base + offset for offset in self._record("offset")]
        payloads, starts = self._frame(frames[level.start]), self._frame(self._batch.span_starts)
        places, spans = zip(payloads, starts, strict=True), self._spans()
        delta = [base + payload - start for payload, start in places]
        if not self._any_packed:
            return [delta[s] + row for s, row in zip(spans, self._record("offset"), strict=True)]
        packed, offsets = self._packed, self._frame(frames["offset"])
        return [
            base + offsets[s] if packed[s] else delta[s] + row
            for s, row in zip(spans, self._record("offset"), strict=True)
        ]

    def sizes(self) -> list[int]:
        """Return the bytes of the file that each record (or its packed container) takes."""
        if self._batch.holder is not None:
            return [self._batch.holder.size] * (self._stop - self._start)
        if self._batch.places is not None:
            return integers(self._batch.places.size, self._start, self._stop)
        own = [end - offset for offset, end in zip(self._record("offset"), self._record("end"), strict=True)]
        if not self._any_packed:
            return own
        frames, packed = self._batch.frames, self._packed
        whole = [end - at for at, end in zip(*map(self._frame, (frames["offset"], frames["end"])), strict=True)]
        return [whole[s] if packed[s] else size for s, size in zip(self._spans(), own, strict=True)]

    def inners(self) -> Sequence[Inner | None]:
        """Return the positions in the unpacked payload, for records inside packed containers."""
        if self._batch.is_inside:
            sizes = [end - offset for offset, end in zip(self._record("offset"), self._record("end"), strict=True)]
            return [Inner(self._batch.inner_of(i), size) for i, size in enumerate(sizes, self._start)]
        if not self._any_packed:
            return [None] * (self._stop - self._start)
        packed, starts = self._packed, self._frame(self._batch.span_starts)
        return [
            Inner(offset - starts[s], end - offset) if packed[s] else None
            for s, offset, end in zip(self._spans(), self._record("offset"), self._record("end"), strict=True)
        ]

    def checksums(self) -> Sequence[Checked | None]:
        """Return one checksum per record, shared by the records of a frame."""
        level, frames = self._layout.frame, self._batch.frames
        if level.checksum is None or level.stored is None or level.stored not in frames.columns:
            return [None] * (self._stop - self._start)
        name = level.checksum.name
        stored = [value & 0xFFFFFFFF for value in self._frame(frames[level.stored])]
        values = [
            Checked(name, value, self._computed(self._first + i), None)
            if state == _ABSENT
            else Checked(name, value, value, True)
            if state
            else None
            for i, (value, state) in enumerate(zip(stored, self._frame(frames["checksum"]), strict=True))
        ]
        return values if self._batch.rows is None else [values[s] for s in self._spans()]

    def _computed(self, frame: int) -> int:
        level = self._layout.frame
        assert level.covered is not None
        low, high = (self._batch.frames[name][frame] for name in level.covered)
        return int(level.checksum(self._batch.window[low:high]))


def members(names: Iterable[str], layout: Layout, batch: Batch, start: int, stop: int, envelope: Described) -> Columns:
    """Return these members of the records `[start, stop)` as columns; their envelopes are given."""
    from binlogtool.log.where import timed

    places, columns = None, dict[str, Sequence[Any]]()
    for name in names:
        if name in ("offset", "size"):
            places = places or Places(batch, layout, start, stop)
            columns[name] = places.offsets() if name == "offset" else places.sizes()
        elif name == "record":
            columns[name] = batch.numbers(start, stop)
        else:
            columns[name] = timed(envelope.time) if name == "time" else getattr(envelope, name)
    return columns


class Narrowing(msgspec.Struct, frozen=True):
    """Apply a condition to the records of a batch from `start` on, whose envelopes are given.

    lines: compiled condition that decides most of their rows.
    """

    maker: Blocks
    condition: Where
    batch: Batch
    start: int
    envelope: Described
    lines: RowLines | None = None

    def runs(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield runs of the records `[first, last)`; only bodies that the envelope does not rule out are decoded."""
        envelope, condition = self.envelope.part(first - self.start, last - self.start), self.condition
        columns = members(condition.members, self.maker.layout, self.batch, first, last, envelope)
        marks = condition.candidates(columns, last - first)
        return runs_of(self._decided(columns, first, marks) if condition.needs_body else marks, first)

    def _decided(self, columns: Columns, first: int, marks: Sequence[bool]) -> Iterator[bool]:
        """Yield for each record whether it is selected, given the candidates."""
        at = 0
        for low, high in spans(marks, 0 if self.lines is None else GAP):
            yield from repeat(False, low - at)
            yield from map(and_, marks[low:high], self._true(columns, first, first + low, first + high))
            at = high

    def _true(self, columns: Columns, first: int, low: int, high: int) -> Iterator[bool]:
        """Yield whether the condition is true of each record; a body that cannot be decoded could match anything."""
        run = _FEW if self.lines is None else 1
        while low < high:
            if self.lines is not None:
                known, refused = self.lines.true(low, high)
                yield from known
                low += len(known)
                if not refused:
                    continue
                run = 1 if len(known) > GAP else min(2 * run, _FEW)
            end = min(low + run, high)
            yield from self._looked_at(columns, first, low, end)
            low = end

    def _looked_at(self, columns: Columns, first: int, low: int, high: int) -> Iterator[bool]:
        maker = self.maker
        limits = replace(maker.limits, max_whole=None)
        bodies = maker.format.output.bodies(maker.layout.context, self.batch, low, high, limits) if low < high else []
        for at, body in enumerate(bodies, low - first):
            body = body.body if isinstance(body, Noted) else body
            members = {name: column[at] for name, column in columns.items()}
            yield isinstance(body, Finding) or self.condition.holds(members, body)


_FEW = 256
"""Bodies that are decoded at once: few of them in vain when a limit is reached."""
