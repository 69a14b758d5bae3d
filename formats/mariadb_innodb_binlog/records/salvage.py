"""Salvage records and events from pages whose CRC does not prove them.

A page is used as far as its chunks follow each other, and a record is used if it matches its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from msgspec import structs

from binlogtool.findings import Finding
from binlogtool.format_api.layout import (
    Batch,
    ColumnTable,
    FrameCorrector,
    Kernel,
    RecordPositions,
    UnprovenRecords,
)
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.wire_format import (
    EVENT_TYPE_NAMES,
    HEADER_SIZE,
    TYPE_AT,
    EventType,
    read_event_size,
)
from binlogtool.formats.mariadb_innodb_binlog.event_groups import CommitGroupReader, EventAssembler, EventGroup
from binlogtool.formats.mariadb_innodb_binlog.records.join_chunks_to_records import RecordAssembler
from binlogtool.formats.mariadb_innodb_binlog.records.parse_records import (
    BODY_READERS,
    IbbPosition,
    PageStore,
    RecordBytes,
    has_shortest_integers,
    iter_next_file_pages,
    iter_sound_pages_of_file,
    parse_commit_header,
    parse_gtid_state,
    parse_oob_node_header,
)
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    CHUNK_HEAD_SIZE,
    CRC_SIZE,
    FILLER_BYTE,
    TYPE_MASK,
    IbbFileContext,
    IbbRecordType,
    file_name,
    is_page_crc_right,
)

# --- Salvage of records with a part in unproven pages ---

_FIRST_EVENTS = frozenset((EventType.GTID, EventType.FORMAT_DESCRIPTION))
UnprovenPages = list[tuple[int, int, Finding]]
"""(start, end, reason) of unproven pages."""


def find_end_of_valid_chunks(page: RecordBytes) -> int:
    """Return how far chunks follow each other in a page; the size of the page if it has chunks and nothing else.

    The last chunk before bytes that are not a chunk is excluded, because its length may be wrong.
    """
    offset, last_chunk, limit = 0, 0, len(page) - CRC_SIZE
    while offset < limit - CHUNK_HEAD_SIZE and page[offset]:
        end = offset + CHUNK_HEAD_SIZE + int.from_bytes(page[offset + 1 : offset + CHUNK_HEAD_SIZE], "little")
        if not 0 < page[offset] & TYPE_MASK <= max(IbbRecordType) or not offset + CHUNK_HEAD_SIZE < end <= limit:
            return last_chunk
        last_chunk, offset = offset, end
    rest = bytes(page[offset:limit])
    if not any(rest) or (rest == bytes([FILLER_BYTE]) * len(rest) and len(rest) <= CHUNK_HEAD_SIZE):
        return len(page) if offset else 0
    return offset if not page[offset] else last_chunk


def is_whole_page(page: bytes, _context: IbbFileContext) -> bool:
    """Return whether a page has chunks and nothing else (`FrameLevel.prove`)."""
    return find_end_of_valid_chunks(page) == len(page)


def is_sound_record(record_type: int, data: RecordBytes, position: IbbPosition) -> bool:
    """Return whether a record matches its type."""
    try:
        if record_type == IbbRecordType.COMMIT:
            commit = parse_commit_header(data)
            return has_shortest_integers(commit) and _is_start_of_group(
                data[commit.payload_at :], must_fill_bytes=not commit.references
            )
        if record_type == IbbRecordType.OOB_DATA:
            node = parse_oob_node_header(data)
            return has_shortest_integers(node) and max(node.left, node.right) < position
        if record_type == IbbRecordType.GTID_STATE:
            return not parse_gtid_state(data).rest
        if record_type == IbbRecordType.DUMMY:
            return bytes(data) == bytes([FILLER_BYTE]) * len(data)
        BODY_READERS[record_type](data)
    except MalformedError:
        return False
    return True


def _is_start_of_group(event_bytes: RecordBytes, *, must_fill_bytes: bool) -> bool:
    """Return whether these bytes begin with the first event of a group.

    `must_fill_bytes`: events must also fill the bytes exactly.
    """
    offset, end = 0, len(event_bytes)
    while end - offset >= HEADER_SIZE:
        code, size = event_bytes[offset + TYPE_AT], read_event_size(event_bytes, offset)
        if size < HEADER_SIZE or code not in EVENT_TYPE_NAMES or (offset == 0 and code not in _FIRST_EVENTS):
            return False
        if size > end - offset or not must_fill_bytes:
            return not must_fill_bytes
        offset += size
    return offset == end > 0


class _SalvageAssembler(RecordAssembler):
    """Assembles the records of one file, using also unproven pages of the next file.

    `crossed`: unproven pages of the next file that were used, and why they are unproven.
    """

    def __init__(
        self, context: IbbFileContext, compile_kernel: Callable[[Kernel], Kernel], correct_page: FrameCorrector
    ) -> None:
        super().__init__(context, compile_kernel)
        self.crossed: tuple[Finding, ...] = ()
        self._correct_page = correct_page

    def iter_following_pages(self) -> Iterator[bytes]:
        """Yield the pages, in this file and the next, in which the last record read may continue."""
        yield from iter_sound_pages_of_file(self.context, self._read_end)
        yield from iter_next_file_pages(self.context, self._accept_page)

    def _accept_page(self, page: bytes, file_no: int, page_no: int) -> bytes | None:
        if is_page_crc_right(page):
            return page
        doubtful_page = self._correct_page(page, page_no * len(page)) if any(page) else None
        if doubtful_page is None or not find_end_of_valid_chunks(doubtful_page[0]) or self._open_record is None:
            return None
        partial, reason = self._open_record, doubtful_page[1]
        self.crossed += (move_page_finding_to_record(reason, partial.offset, partial.size_in_file, file_no, page_no),)
        return doubtful_page[0]


def move_page_finding_to_record(
    page_finding: Finding, record_offset: int, record_size: int, file_no: int, page_no: int
) -> Finding:
    """Return the reason why a page of another file is unproven, as a finding about a record of this file."""
    text = f"page {page_no} of {file_name(file_no)}: {page_finding.message}"
    return structs.replace(page_finding, offset=record_offset, length=record_size, message=text)


class IbbSalvagedRecords:
    """Salvage reader at level `record` (`format_api.layout.SalvageAssembler`)."""

    def __init__(
        self, context: IbbFileContext, compile_kernel: Callable[[Kernel], Kernel], correct_page: FrameCorrector
    ) -> None:
        self.context = context
        self._records = _SalvageAssembler(context, compile_kernel, correct_page)
        self._unproven_pages: UnprovenPages = []

    def assemble_unproven(self, batch: Batch, reason: Finding | None = None) -> Iterator[UnprovenRecords]:
        """Yield the records that end in these frames. reason: why the frames are unproven; None = they are proven."""
        return self._select_sound_records(self.iter_all_records(batch, reason))

    def skip_damage(self, start: int, end: int) -> Iterator[UnprovenRecords]:
        """Yield the salvaged records before skipped pages."""
        return self._select_sound_records(self.skip_pages(start, end))

    def finish(self) -> Iterator[UnprovenRecords]:
        """Yield the salvaged record that continues in the next file."""
        return self._select_sound_records(self.iter_remaining_records())

    def iter_all_records(self, batch: Batch, reason: Finding | None) -> Iterator[UnprovenRecords]:
        """Yield all records that end in these pages, including proven ones."""
        start = batch.base + int(batch.frames["offset"][0])
        if reason is not None:
            page = batch.frame_bytes(0)
            framed_end = find_end_of_valid_chunks(page)
            if not framed_end:
                yield from self.skip_pages(start, start + len(page))
                return
            self._unproven_pages.append((start, start + len(page), reason))
            batch = _zero_page_after_valid_chunks(batch, page, framed_end)
        yield from self._group_by_reasons(self._records.assemble(batch))
        if self._records.first_pending_offset is None:
            self._unproven_pages.clear()

    def skip_pages(self, start: int, end: int) -> Iterator[UnprovenRecords]:
        """Yield the records held back because they are nested in a record that continues in the skipped pages."""
        return self._group_by_reasons(self._records.skip_damage(start, end))

    def iter_remaining_records(self) -> Iterator[UnprovenRecords]:
        """Yield the records that remain at the end of the file."""
        crossing = self._records.first_pending_offset
        for batch, reasons in self._group_by_reasons(self._records.finish()):
            crossed = self._records.crossed
            if crossed and batch.positions is not None and batch.positions[0][0] == crossing:
                yield _slice_batch(batch, 0, 1), (*reasons, *crossed)
                if batch.frames.count == 1:
                    continue
                batch = _slice_batch(batch, 1, batch.frames.count)
            yield batch, reasons

    def _group_by_reasons(self, batches: Iterator[Batch | Finding]) -> Iterator[UnprovenRecords]:
        """Split batches into runs of records that are unproven for the same reasons."""
        for batch in batches:
            if isinstance(batch, Finding) or batch.positions is None:
                continue
            if not self._unproven_pages:
                yield batch, ()
                continue
            reasons = [
                self._list_salvage_reasons(*span) for span in zip(batch.positions[0], batch.frames["stop"], strict=True)
            ]
            start = 0
            for run_reasons, run in groupby(reasons):
                stop = start + len(list(run))
                yield _slice_batch(batch, start, stop), run_reasons
                start = stop

    def _list_salvage_reasons(self, start: int, end: int) -> tuple[Finding, ...]:
        return tuple(why for low, high, why in self._unproven_pages if start < high and low < end)

    def _select_sound_records(self, batches: Iterator[UnprovenRecords]) -> Iterator[UnprovenRecords]:
        number = self.context.number or 0
        for batch, reasons in batches:
            codes, lows, highs = (batch.frames[name] for name in ("type_code", "offset", "end"))
            for i in range(batch.frames.count if reasons else 0):
                assert batch.positions is not None
                place = IbbPosition(number, int(batch.positions[0][i]))
                if is_sound_record(codes[i], batch.window[lows[i] : highs[i]], place):
                    yield _slice_batch(batch, i, i + 1), reasons


def _zero_page_after_valid_chunks(batch: Batch, page: bytes, framed_end: int) -> Batch:
    """Return the batch with zeros after the well-framed part of its page."""
    if framed_end == len(page):
        return batch
    low = int(batch.frames["offset"][0])
    window = bytearray(batch.window)
    window[low + framed_end : low + len(page) - CRC_SIZE] = bytes(len(page) - CRC_SIZE - framed_end)
    view = memoryview(window)
    return structs.replace(batch, window=view, arena=view)


def _slice_batch(batch: Batch, start: int, stop: int) -> Batch:
    """Return the records `[start, stop)` of a batch."""
    columns = {name: column[start:stop] for name, column in batch.frames.columns.items()}
    return structs.replace(
        batch, frames=ColumnTable(stop - start, columns), first_record=batch.first_record + start,
        first_frame=batch.first_frame + start, positions=RecordPositions(columns["place"], columns["size"]),
    )  # fmt: skip


# --- Salvage of events in groups with an unproven part ---

_COMMIT = int(IbbRecordType.COMMIT)
_NO_OOB_BYTE = 0
"""First byte of a COMMIT record that has no out-of-band data."""


class _UnprovenPageRecorder(PageStore):
    """Reads pages of any file of the log, including unproven ones.

    `used`: unproven pages that were read, and why they are unproven.
    """

    def __init__(self, context: IbbFileContext, correct_page: FrameCorrector) -> None:
        super().__init__(context)
        self.used: dict[tuple[int, int], Finding] = {}
        self._correct_page = correct_page
        self._reasons: dict[tuple[int, int], Finding] = {}

    def read_page(self, file_no: int, page_no: int) -> bytes:
        """Read a sound page, and record whether it is unproven."""
        data = super().read_page(file_no, page_no)
        reason = self._reasons.get((file_no, page_no))
        if reason is not None:
            self.used[file_no, page_no] = reason
        return data

    def replace_unproven_page(self, file_no: int, page_no: int, data: bytes) -> bytes | None:
        """Return the corrected page instead of one with a wrong CRC, if it has well-framed chunks; else None."""
        doubtful_page = self._correct_page(data, page_no * len(data)) if any(data) else None
        if doubtful_page is None or not find_end_of_valid_chunks(doubtful_page[0]):
            return None
        self._reasons[file_no, page_no] = doubtful_page[1]
        return doubtful_page[0]


class IbbSalvagedEvents:
    """Salvage reader at level `event` (`format_api.layout.SalvageAssembler`)."""

    def __init__(
        self, context: IbbFileContext, compile_kernel: Callable[[Kernel], Kernel], correct_page: FrameCorrector
    ) -> None:
        self._context = context
        self._records = IbbSalvagedRecords(context, compile_kernel, correct_page)
        self._pages = _UnprovenPageRecorder(context, correct_page)
        self._groups = CommitGroupReader(context, self._pages)
        self._events = EventAssembler(context, compile_kernel)

    def assemble_unproven(self, batch: Batch, reason: Finding | None = None) -> Iterator[UnprovenRecords]:
        """Yield the events whose groups end in these frames. reason: why these are unproven; None = proven."""
        return self._read_unproven_groups(self._records.iter_all_records(batch, reason))

    def skip_damage(self, start: int, end: int) -> Iterator[UnprovenRecords]:
        """Yield the events of groups that the skipped pages interrupt."""
        return self._read_unproven_groups(self._records.skip_pages(start, end))

    def finish(self) -> Iterator[UnprovenRecords]:
        """Yield the events of the group whose COMMIT record continues in the next file."""
        return self._read_unproven_groups(self._records.iter_remaining_records())

    def _read_unproven_groups(self, batches: Iterator[UnprovenRecords]) -> Iterator[UnprovenRecords]:
        for batch, reasons in batches:
            codes, lows = batch.frames["type_code"], batch.frames["offset"]
            for i in range(batch.frames.count):
                if codes[i] == _COMMIT and (reasons or batch.window[lows[i]] != _NO_OOB_BYTE):
                    yield from self._read_unproven_group(batch, i, reasons)

    def _read_unproven_group(self, batch: Batch, index: int, reasons: tuple[Finding, ...]) -> Iterator[UnprovenRecords]:
        self._pages.used.clear()
        group = self._groups.read_group(batch, index)
        if isinstance(group, Finding):
            return
        known_offsets = {why.offset for why in reasons}
        used_reasons = (self._page_reason(group, *one) for one in self._pages.used.items())
        all_reasons = (*reasons, *(why for why in used_reasons if why.offset not in known_offsets))
        low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
        if all_reasons and is_sound_record(_COMMIT, batch.window[low:high], group.position):
            events = self._events.iter_group_events(group)
            yield from ((one, all_reasons) for one in events if isinstance(one, Batch))

    def _page_reason(self, group: EventGroup, page: tuple[int, int], reason: Finding) -> Finding:
        """Return why a page is unproven; if it belongs to another file, as a finding about the group."""
        if page[0] == self._context.number:
            return reason
        return move_page_finding_to_record(reason, group.position.offset, group.size, *page)
