"""Assemble records from the chunks of pages.

See docs/spec/mariadb-innodb-binlog.md#5-chunks-and-records. A record in one chunk stays where it is in the window;
the
chunks of others are joined after the pages.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.layouts import Assembler, Batch, Kernel, RecordPlaces, Table
from binlogtool.formats.mariadb_innodb_binlog.codes import CHUNK_HEAD, KIND, LAST, RecordType
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.mariadb_innodb_binlog.records.store import next_pages, own_pages, tail_behind
from binlogtool.formats.mariadb_innodb_binlog.records.walk import ENDED, NEST, OPEN, PERHAPS, SPECIALS, Step, Walk
from binlogtool.limits import MIB

COLUMNS = ("offset", "end", "checksum", "type_code", "chunks", "nested", "place", "size", "stop")
"""Of the records: where its data lies in the window, its type, in how many chunks it was stored, was it nested; file
offset of its first chunk, bytes of all its chunks, file offset behind the last of them that is in this file. checksum
is 1: the CRCs of its pages are right."""

_FAULTS = {
    Step.BAD_TYPE: ("bad-header", "bad-chunk"),
    Step.BAD_LENGTH: ("length-out-of-bounds", "bad-chunk"),
    Step.CROWD: ("bad-header", "bad-chunk"),
    Step.BAD_FILLER: ("garbage-tail", "bad-chunk"),
    Step.GARBAGE: ("garbage-tail", "garbage-after-end"),
    Step.AFTER_END: ("gap-in-sequence", "hole"),
    Step.ORPHAN: ("gap-in-sequence", "page-order"),
    Step.BROKEN: ("gap-in-sequence", "missing-end-chunk"),
}


class Part(msgspec.Struct):
    """A record of several chunks, as far as they were read.

    Attributes:
        offset: file offset of its first chunk.
        size: bytes of its chunks so far.
        stop: file offset after its last chunk so far.
        too_long: it exceeds the size limit; its data is incomplete.
    """

    kind: int
    place: int
    size: int = 0
    chunks: int = 0
    stop: int = 0
    data: bytearray = msgspec.field(default_factory=bytearray)
    too_long: bool = False

    def add(self, data: memoryview, most: int, stop: int | None = None) -> None:
        """Add a chunk that ends at file offset `stop`; data beyond the limit is counted but not kept."""
        self.stop = self.stop if stop is None else stop
        self.size += len(data) + CHUNK_HEAD
        self.chunks += 1
        self.too_long |= len(self.data) + len(data) > most
        if not self.too_long:
            self.data += data

    @property
    def here(self) -> int:
        """Number of bytes in its own file, without chunks of the next file."""
        return max(self.stop - self.place, 0)

    def __str__(self) -> str:
        return f"{RecordType(self.kind).name} at {self.place:#x}"


class _Made:
    """The records of one piece of the file: columns over `window`, which starts with the pages themselves."""

    def __init__(self, pages: memoryview, base: int) -> None:
        self.window = bytearray(pages)
        self.base = base
        self.columns = {name: array("q") for name in COLUMNS}

    @property
    def count(self) -> int:
        """Number of records so far."""
        return len(self.columns["offset"])

    def whole(self, rows: memoryview[int], first: int, last: int) -> None:
        """Add the rows `[first, last)` of the walk, each a record in one chunk."""
        add, count = self.columns, last - first
        starts, ends = rows[4 * first + 2 : 4 * last : 4], rows[4 * first + 3 : 4 * last : 4]
        add["offset"].extend(starts)
        add["end"].extend(ends)
        add["type_code"].extend(rows[4 * first + 1 : 4 * last : 4])
        add["checksum"].extend(_ONE * count)
        add["chunks"].extend(_ONE * count)
        add["nested"].extend(_ZERO * count)
        add["place"].extend([start + self.base - CHUNK_HEAD for start in starts])
        add["size"].extend([end - start + CHUNK_HEAD for start, end in zip(starts, ends, strict=True)])
        add["stop"].extend([end + self.base for end in ends])

    def joined(self, part: Part, nested: bool) -> None:
        """Add a record of several chunks, or a nested one."""
        start = len(self.window)
        self.window += part.data
        values = (start, len(self.window), 1, part.kind, part.chunks, int(nested), part.place, part.size, part.stop)
        for name, value in zip(COLUMNS, values, strict=True):
            self.columns[name].append(value)


_BEGINS = frozenset({Step.OPENS, Step.NESTED_WHOLE, Step.NESTED_OPENS})
_GOES_ON = frozenset({Step.MORE, Step.CLOSES, Step.NESTED_MORE, Step.NESTED_CLOSES})

_MOST_HELD = 16 * MIB
_PART_COST = 256

_ONE, _ZERO = array("q", [1]), array("q", [0])


def assembler(context: FileContext) -> Callable[[Callable[[Kernel], Kernel]], Assembler]:
    """Return the function that creates a `RecordAssembler`, for `FileLayout.make_assembler`."""

    def make(compile_: Callable[[Kernel], Kernel]) -> Assembler:
        return Records(context, compile_)

    return make


class Records:
    """`formats.layouts.Assembler`: the page records of one file, in the order of their first chunks."""

    def __init__(self, context: FileContext, compile_: Callable[[Kernel], Kernel]) -> None:
        self.context = context
        self.count = context.first_record
        self.pages = 0
        self._walk = Walk(context.page_size, compile_)
        self._open: Part | None = None
        self._nest: Part | None = None
        self._foreign = False
        self._held: list[Part] = []
        self._held_bytes = 0
        self._reached = 0
        self._damage_seen = 0
        self._closed = False
        self._blamed: dict[Step, int] = {}
        self._damage: tuple[int, int] | None = None

    @property
    def pending(self) -> int | None:
        """File offset of the first record that is begun and not yet returned; None = none."""
        begun = [part.place for part in (self._open, self._nest, *self._held[:1]) if part is not None]
        return min(begun, default=None)

    def feed(self, batch: Batch) -> Iterator[Batch | Finding]:
        """Yield the records that end in these pages, and findings about the chain of chunks."""
        if self._damage is not None:
            self._lost()
        window, size, step = batch.window, self.context.page_size, self._walk.pages
        first, count = int(batch.frames["offset"][0]), batch.frames.count
        self._reached = batch.base + first + count * size
        for page in range(0, count, step):
            start, pages = first + page * size, min(step, count - page)
            yield from self._piece(window[start : start + pages * size], batch.base + start, pages)

    def _piece(self, data: memoryview, base: int, pages: int) -> Iterator[Batch | Finding]:
        walk = self._walk
        count = walk(data, 0, pages, 0)
        made, found, at = _Made(data, base), list[tuple[int, Finding]](), 0
        for special in (*walk.specials[: walk.state[SPECIALS]], count):
            if special > at:
                self._release(made, nested=False)
                made.whole(walk.rows, at, special)
            if special < count:
                for one in self._special(made, data, walk.rows[4 * special : 4 * special + 4].tolist()):
                    found.append((made.count, one))
            at = special + 1
        seen = self.context.seen
        seen.end = base + (walk.rows[4 * count - 1] if count else 0)
        self.pages += pages
        yield from self._in_order(made, found)

    def _in_order(self, made: _Made, found: list[tuple[int, Finding]]) -> Iterator[Batch | Finding]:
        """Yield the records, and each finding after the records that were assembled before it."""
        at = 0
        for before, one in found:
            yield from self._batch(made, at, before)
            at = before
            yield one
        yield from self._batch(made, at, made.count)

    def _batch(self, made: _Made, start: int, stop: int) -> Iterator[Batch]:
        if stop <= start:
            return
        whole = stop - start == made.count
        columns = made.columns if whole else {name: column[start:stop] for name, column in made.columns.items()}
        window = memoryview(made.window)
        first, self.count = self.count, self.count + stop - start
        yield Batch(
            0, window, Table(stop - start, columns), window, None, (), (), first, first,
            places=RecordPlaces(columns["place"], columns["size"]),
        )  # fmt: skip

    # -- records of several chunks -------------------------------------------------------------------------------------

    def _special(self, made: _Made, data: memoryview, row: list[int]) -> Iterator[Finding]:
        step, kind, start, end = Step(row[0]), row[1], row[2], row[3]
        if step in _BEGINS:
            if step is Step.OPENS:
                self._release(made, nested=False)
            part = Part(kind, made.base + start - CHUNK_HEAD)
            part.add(data[start:end], self.context.max_record, made.base + end)
            yield from self._begin(made, step, part)
        elif step in _GOES_ON:
            known = self._nest if step in (Step.NESTED_MORE, Step.NESTED_CLOSES) else self._open
            if known is None:
                return  # it was dropped before
            known.add(data[start:end], self.context.max_record, made.base + end)
            if step is Step.CLOSES:
                yield from self._close(made, known)
            elif step is Step.NESTED_CLOSES:
                self._nest = None
                yield from self._hold(made, known)
        elif step is Step.FOREIGN:
            if not self._closed and not self._damage_seen:
                self._closed = bool(kind & LAST)
                seen = self.context.seen
                seen.leading = seen.leading or kind & KIND
                seen.leading_end = made.base + end if kind & LAST else 0
            self._release(made, nested=True)
            self._foreign = not kind & LAST
        else:
            yield from self._fault(made, step, kind, start, end)

    def _begin(self, made: _Made, step: Step, part: Part) -> Iterator[Finding]:
        if step is Step.OPENS:
            self._open, self._foreign = part, False
        elif step is Step.NESTED_OPENS:
            self._nest = part
        else:
            yield from self._hold(made, part)

    def _hold(self, made: _Made, part: Part) -> Iterator[Finding]:
        """Hold a nested record until the end of the one that it is nested in, up to a memory limit."""
        self._held.append(part)
        self._held_bytes += len(part.data) + _PART_COST
        if self._held_bytes > _MOST_HELD:
            if self._open is not None:
                text = f"the {self._open} does not end: {len(self._held):,} records are nested in it so far"
                yield self._finding(Step.BROKEN, self._open.place, self._open.size, text)
            self._open = None
            self._walk.state[OPEN] = PERHAPS
            self._release(made, nested=False)

    def _close(self, made: _Made, part: Part) -> Iterator[Finding]:
        """Complete the open record: add it, and then the records nested in it."""
        self._open = None
        if part.too_long:
            yield self._too_long(part)
        else:
            made.joined(part, False)
        self._release(made, nested=True)

    def _release(self, made: _Made, nested: bool) -> None:
        for part in self._held:
            made.joined(part, nested)
        self._held.clear()
        self._held_bytes = 0

    def _too_long(self, part: Part) -> Finding:
        most = self.context.max_record
        text = f"{part}: {part.size:,} bytes in {part.chunks:,} chunks, over the ceiling of {most:,}"
        text += "; --max-record raises it"
        return finding("length-out-of-bounds", part.place, part.size, text, ceiling=most, diagnosis="record-too-long")

    def _fault(self, made: _Made, step: Step, kind: int, start: int, end: int) -> Iterator[Finding]:
        place = made.base + start
        page = place // self.context.page_size
        if step is Step.END:
            self.context.seen.data_end = place
            return
        if step is Step.ORPHAN:
            place -= CHUNK_HEAD
            text = (
                f"continuation-without-start: a chunk goes on with a {RecordType(kind).name} record that was not "
                "begun; pages in a wrong order, or an old copy of a page"
            )
            if self._blamed.get(step) != page:  # report it once per page
                yield self._finding(step, place, made.base + end - place, text)
            self._blamed[step] = page
        elif step is not Step.BROKEN:
            yield self._about_page(step, kind, place, made.base + end)
        if step not in (Step.BROKEN, Step.BAD_TYPE, Step.BAD_LENGTH, Step.CROWD, Step.AFTER_END):
            return
        lost = self._nest or self._open
        if lost is not None and self._blamed.get(Step.BROKEN) != page:
            self._blamed[Step.BROKEN] = page
            text = f"the {lost} has no last chunk; something else stands at {place:#x}"
            yield self._finding(Step.BROKEN, lost.place, max(place - lost.place, 1), text)
        inside = step is Step.BROKEN or self._inside()
        self._open, self._nest, self._foreign = None, None, False
        self._release(made, nested=inside)

    def _about_page(self, step: Step, kind: int, place: int, end: int) -> Finding:
        texts = {
            Step.BAD_TYPE: f"chunk type byte {kind:#04x} is none; the rest of the page cannot be read",
            Step.BAD_LENGTH: "the length of a chunk cannot be true; the rest of the page cannot be read",
            Step.CROWD: "more pieces of records than a page can have; the rest of the page is not read",
            Step.BAD_FILLER: "the last bytes of the page are no filler",
            Step.GARBAGE: "bytes behind the end of data (a type byte of 0)",
            Step.AFTER_END: "data behind the end of data: readers stop before this page and see nothing of it",
        }
        severity = Severity.ERROR if step is Step.GARBAGE and kind else None
        text = (
            "a page whose first byte is 0 and that is not empty: servers take it for empty" if severity else texts[step]
        )
        return self._finding(step, place, end - place, text, severity)

    def _finding(self, step: Step, place: int, length: int, text: str, severity: Severity | None = None) -> Finding:
        id_, diagnosis = _FAULTS[step]
        return finding(id_, place, length, text, record=self.count, severity=severity, diagnosis=diagnosis)

    # -- damage and the end --------------------------------------------------------------------------------------------

    def damage(self, start: int, end: int) -> Iterator[Batch]:
        """Record that pages were skipped; if none follow, the log ends there."""
        self._damage_seen += 1
        self._damage = (start, end) if self._damage is None else (self._damage[0], end)
        made = _Made(memoryview(b""), 0)
        self._release(made, nested=self._inside())
        yield from self._batch(made, 0, made.count)

    def _lost(self) -> None:
        """Drop the record that was open before a damaged range; records nested in it are kept."""
        state, self._damage = self._walk.state, None
        state[OPEN], state[NEST] = PERHAPS, 0
        self._open, self._nest, self._foreign = None, None, False

    def behind(self) -> Iterator[bytes]:
        """Iterate over the pages after those that were read, here and in the next file, where a record may continue."""
        return chain(own_pages(self.context, self._reached), next_pages(self.context))

    def finish(self) -> Iterator[Batch | Finding]:
        """Yield the record that is open at the end: it continues in the next file, or the log ends in it."""
        part, inside, made = self._open, self._inside(), _Made(memoryview(b""), 0)
        self.context.seen.zeros = self._damage is not None
        if part is not None:
            self.context.seen.open = part.kind
            whole = self._damage is None and not self._walk.state[ENDED] and self._goes_on(part)
            if not whole:
                yield self._incomplete(part)
            elif part.too_long:
                yield self._too_long(part)
            else:
                made.joined(part, False)
        self._open = self._nest = None
        self._release(made, nested=inside)
        yield from self._batch(made, 0, made.count)

    def _inside(self) -> bool:
        """Check if a record is open, even one that began elsewhere."""
        return self._open is not None or self._foreign

    def _goes_on(self, part: Part) -> bool:
        """Add the chunks that a record has in the next file; False if it is incomplete there."""
        walk = self._walk
        for page in self.behind():
            if not page:
                return False
            data = memoryview(page)
            count = walk(data, 0, 1, 0)
            for row in range(count):
                step, _, start, end = walk.rows[4 * row : 4 * row + 4]
                if step in (Step.MORE, Step.CLOSES):
                    part.add(data[start:end], self.context.max_record)
                if step == Step.CLOSES:
                    return True
                if step not in (Step.MORE, Step.NESTED_WHOLE, Step.NESTED_OPENS, Step.NESTED_MORE, Step.NESTED_CLOSES):
                    return False
        return False

    def _incomplete(self, part: Part) -> Finding:
        """Report that the log ends inside a record: after a crash, or (if more follows) by damage."""
        context = self.context
        unknown = context.beside is None and self._damage is None and not self._walk.state[ENDED]
        if unknown:
            text = f"the {part} goes on in the next file, which was not looked at"
            return finding(
                "torn-tail", part.place, part.here, text, severity=Severity.NOTE, diagnosis="goes-on-in-next-file"
            )
        if tail_behind(context):
            text = f"the log ends inside the {part}; a server cuts it there if its redo log ends there, too"
            diagnosis = "incomplete-tail-record"
            return finding("torn-tail", part.place, part.here, text, record=self.count, diagnosis=diagnosis)
        text = f"the {part} has no last chunk, and more follows in later files"
        return self._finding(Step.BROKEN, part.place, part.here, text)


def columns_of(batch: Batch, start: int, stop: int, *names: str) -> list[list[int]]:
    """Return parts of columns as lists of integers."""
    return [_plain(batch.frames[name][start:stop]) for name in names]


def _plain(part: Any) -> list[int]:
    return part.tolist() if hasattr(part, "tolist") else list(part)
