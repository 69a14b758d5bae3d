"""Salvage records with a part in unproven pages (`--on-damage salvage`), if they are sound.

A page counts as far as its chunks follow each other; a record, if it matches its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from msgspec import structs

from binlogtool.findings import Finding
from binlogtool.formats.binlog_events.codes import HEADER_SIZE, TYPES, EventType
from binlogtool.formats.binlog_events.wire.header import END_AT, SIZE_AT, TYPE_AT
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, Doubt, Doubted, Doubtful, Kernel, RecordPlaces, Table
from binlogtool.formats.mariadb_innodb_binlog.codes import CHUNK_HEAD, CRC_SIZE, FILLER, KIND, RecordType, file_name
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import Records
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext, page_crc_right
from binlogtool.formats.mariadb_innodb_binlog.records.records import (
    BODIES,
    Data,
    Place,
    parse_commit,
    parse_node,
    parse_state,
    shortest,
)
from binlogtool.formats.mariadb_innodb_binlog.records.store import next_pages, own_pages

_BEGINS = frozenset((EventType.GTID, EventType.FORMAT_DESCRIPTION))
Doubts = list[tuple[int, int, Finding]]
"""Start and end of unproven pages, and why they are."""


def well_framed(page: Data) -> int:
    """Return how far chunks follow each other in a page; the size of the page if it has chunks and nothing else.

    The chunk before something that is not a chunk does not count: its length may be what is wrong.
    """
    at, last, limit = 0, 0, len(page) - CRC_SIZE
    while at < limit - CHUNK_HEAD and page[at]:
        end = at + CHUNK_HEAD + int.from_bytes(page[at + 1 : at + CHUNK_HEAD], "little")
        if not 0 < page[at] & KIND <= max(RecordType) or not at + CHUNK_HEAD < end <= limit:
            return last
        last, at = at, end
    rest = bytes(page[at:limit])
    if not any(rest) or (rest == bytes([FILLER]) * len(rest) and len(rest) <= CHUNK_HEAD):
        return len(page) if at else 0
    return at if not page[at] else last


def whole_page(page: bytes, _context: FileContext) -> bool:
    """Check if a page has chunks and nothing else (`FrameLevel.prove`)."""
    return well_framed(page) == len(page)


def is_sound(kind: int, data: Data, place: Place) -> bool:
    """Check if a record matches its type."""
    try:
        if kind == RecordType.COMMIT:
            commit = parse_commit(data)
            return shortest(commit, data) and _is_group(data[commit.payload :], whole=not commit.references)
        if kind == RecordType.OOB_DATA:
            node = parse_node(data)
            return shortest(node, data) and max(node.left, node.right) < place
        if kind == RecordType.GTID_STATE:
            return not parse_state(data).rest
        if kind == RecordType.DUMMY:
            return bytes(data) == bytes([FILLER]) * len(data)
        BODIES[kind](data)
    except MalformedError:
        return False
    return True


def _is_group(events: Data, *, whole: bool) -> bool:
    """Check if these bytes begin with the first event of a group.

    Args:
        must_be_complete: the bytes must also be filled by events exactly.
    """
    at, end = 0, len(events)
    while end - at >= HEADER_SIZE:
        code, size = events[at + TYPE_AT], int.from_bytes(events[at + SIZE_AT : at + END_AT], "little")
        if size < HEADER_SIZE or code not in TYPES or (at == 0 and code not in _BEGINS):
            return False
        if size > end - at or not whole:
            return not whole
        at += size
    return at == end > 0


class _Records(Records):
    """Assembles the records of one file, also from unproven pages of the next file.

    Attributes:
        crossed: why pages of the next file that were used are unproven.
    """

    def __init__(self, context: FileContext, compile_: Callable[[Kernel], Kernel], doubt: Doubt) -> None:
        super().__init__(context, compile_)
        self.crossed: tuple[Finding, ...] = ()
        self._doubt = doubt

    def behind(self) -> Iterator[bytes]:
        """See `RecordAssembler.iter_following_pages`."""
        yield from own_pages(self.context, self._reached)
        yield from next_pages(self.context, self._taken)

    def _taken(self, page: bytes, file_no: int, page_no: int) -> bytes | None:
        if page_crc_right(page):
            return page
        found = self._doubt(page, page_no * len(page)) if any(page) else None
        if found is None or not well_framed(found[0]) or self._open is None:
            return None
        part, why = self._open, found[1]
        self.crossed += (elsewhere(why, part.place, part.here, file_no, page_no),)
        return found[0]


def elsewhere(why: Finding, place: int, size: int, file_no: int, page_no: int) -> Finding:
    """Return why a page of another file is unproven, as a finding about a record of this file."""
    text = f"page {page_no} of {file_name(file_no)}: {why.message}"
    return structs.replace(why, offset=place, length=size, message=text)


class DoubtfulRecords:
    """`formats.layouts.Doubtful` at level `record`."""

    def __init__(self, context: FileContext, compile_: Callable[[Kernel], Kernel], doubt: Doubt) -> None:
        self.context = context
        self._records = _Records(context, compile_, doubt)
        self._doubts: Doubts = []

    def feed(self, batch: Batch, why: Finding | None = None) -> Iterator[Doubted]:
        """See `formats.layouts.Doubtful`."""
        return self._sound(self.all(batch, why))

    def damage(self, start: int, end: int) -> Iterator[Doubted]:
        """Yield the salvaged records before skipped pages."""
        return self._sound(self.skip(start, end))

    def finish(self) -> Iterator[Doubted]:
        """Yield the salvaged record that continues in the next file."""
        return self._sound(self.rest())

    def all(self, batch: Batch, why: Finding | None) -> Iterator[Doubted]:
        """Iterate over all records that end in these pages, including proven ones."""
        start = batch.base + int(batch.frames["offset"][0])
        if why is not None:
            page = batch.frame_bytes(0)
            reach = well_framed(page)
            if not reach:
                yield from self.skip(start, start + len(page))
                return
            self._doubts.append((start, start + len(page), why))
            batch = _cut(batch, page, reach)
        yield from self._runs(self._records.feed(batch))
        if self._records.pending is None:
            self._doubts.clear()

    def skip(self, start: int, end: int) -> Iterator[Doubted]:
        """Iterate over the records that wait for the end of one that continues in skipped pages."""
        return self._runs(self._records.damage(start, end))

    def rest(self) -> Iterator[Doubted]:
        """Iterate over the records that are left at the end of the file."""
        crossing = self._records.pending
        for batch, whys in self._runs(self._records.finish()):
            crossed = self._records.crossed
            if crossed and batch.places is not None and batch.places[0][0] == crossing:
                yield _part(batch, 0, 1), (*whys, *crossed)
                if batch.frames.count == 1:
                    continue
                batch = _part(batch, 1, batch.frames.count)
            yield batch, whys

    def _runs(self, made: Iterator[Batch | Finding]) -> Iterator[Doubted]:
        """Split batches into runs of records with the same reasons for doubt."""
        for batch in made:
            if isinstance(batch, Finding) or batch.places is None:
                continue
            if not self._doubts:
                yield batch, ()
                continue
            whys = [self._whys(*span) for span in zip(batch.places[0], batch.frames["stop"], strict=True)]
            start = 0
            for why, run in groupby(whys):
                stop = start + len(list(run))
                yield _part(batch, start, stop), why
                start = stop

    def _whys(self, start: int, end: int) -> tuple[Finding, ...]:
        return tuple(why for low, high, why in self._doubts if start < high and low < end)

    def _sound(self, made: Iterator[Doubted]) -> Iterator[Doubted]:
        number = self.context.number or 0
        for batch, whys in made:
            codes, lows, highs = (batch.frames[name] for name in ("type_code", "offset", "end"))
            for i in range(batch.frames.count if whys else 0):
                assert batch.places is not None
                place = Place(number, int(batch.places[0][i]))
                if is_sound(codes[i], batch.window[lows[i] : highs[i]], place):
                    yield _part(batch, i, i + 1), whys


def _cut(batch: Batch, page: bytes, reach: int) -> Batch:
    """Return the batch with zeros after the well-framed part of its page."""
    if reach == len(page):
        return batch
    low = int(batch.frames["offset"][0])
    window = bytearray(batch.window)
    window[low + reach : low + len(page) - CRC_SIZE] = bytes(len(page) - CRC_SIZE - reach)
    view = memoryview(window)
    return structs.replace(batch, window=view, arena=view)


def _part(batch: Batch, start: int, stop: int) -> Batch:
    """Return the records `[start, stop)` of a batch."""
    columns = {name: column[start:stop] for name, column in batch.frames.columns.items()}
    return structs.replace(
        batch, frames=Table(stop - start, columns), first_record=batch.first_record + start,
        first_frame=batch.first_frame + start, places=RecordPlaces(columns["place"], columns["size"]),
    )  # fmt: skip


def doubtful_records(context: FileContext, compile_: Callable[[Kernel], Kernel], doubt: Doubt) -> Doubtful:
    """Create the reader for `FileLayout.make_salvage_assembler` at level `record`."""
    return DoubtfulRecords(context, compile_, doubt)
