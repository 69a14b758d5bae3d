"""Validate one file in file order: records, states, references, events.

See docs/spec/mariadb_innodb_binlog.md#validation.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileTail, ValidationResult
from binlogtool.format_api.layout import Batch, Kernel, LogFileLayout
from binlogtool.format_api.schema_fields import Int64s, MalformedError, MutableInt64s, UInt8s, kernel
from binlogtool.formats.binlog_events.transactions.boundaries import STANDALONE, XaId
from binlogtool.formats.binlog_events.wire_format import GTID
from binlogtool.formats.mariadb_innodb_binlog.event_groups import (
    FORMAT_DESCRIPTION,
    CommitNumbers,
    CommitScanner,
    EventTilingChecker,
    GroupFirstEvent,
    OobForest,
    read_first_event,
    read_gtid_flags,
    report_unreadable_group,
)
from binlogtool.formats.mariadb_innodb_binlog.records.join_chunks_to_records import column_slices
from binlogtool.formats.mariadb_innodb_binlog.records.parse_records import (
    CommitRecord,
    IbbGtid,
    IbbPosition,
    OobReference,
    PageStore,
    UnreadableError,
    has_shortest_integers,
    parse_commit_header,
    parse_gtid_state,
    parse_oob_node_header,
    parse_xa_complete,
    parse_xa_prepare,
)
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    CRC_SIZE,
    NO_FILE,
    IbbFileContext,
    IbbRecordType,
    read_compressed_integer,
)
from binlogtool.formats.mariadb_innodb_binlog.validate.log_set import (
    IbbFileFacts,
    LogValidationState,
    describe_differences,
    is_other_history,
)
from binlogtool.limits import Limits

# --- Position of a record, and findings about it ---


class LocatedRecord(msgspec.Struct):
    """Record with its position, for findings."""

    position: IbbPosition
    size: int
    record: int
    data: memoryview
    chunks: int = 1
    nested: int = 0
    stop: int = 0


def locate_record(batch: Batch, index: int, file_number: int) -> LocatedRecord:
    """Return record `index` of a batch with its position; `file_number`: number of its file."""
    names = ("offset", "end", "place", "size", "chunks", "nested", "stop")
    low, high, offset, size, chunks, nested, stop = (int(batch.frames[name][index]) for name in names)
    return LocatedRecord(
        IbbPosition(file_number, offset), size, batch.first_record + index, batch.window[low:high], chunks, nested, stop
    )


def report_record(
    record: LocatedRecord, finding_id: str, diagnosis: str, text: str, severity: Severity | None = None
) -> Finding:
    """Create a finding about a whole record."""
    return make_finding(
        finding_id,
        record.position.offset,
        record.size,
        text,
        record=record.record,
        severity=severity,
        diagnosis=diagnosis,
    )


# --- Records that need individual checks ---


@kernel(read_compressed_integer)
def is_sound_oob_node(buf: UInt8s, pos: int, limit: int, file_number: int, record_offset: int) -> bool:
    """Return whether the OOB_DATA record `buf[pos:limit]` has a sound header and links to earlier positions only.

    Args:
        file_number: number of the record's file.
        record_offset: file offset of the record.
    """
    file_no = 0
    for field in range(5):
        value, field_end = read_compressed_integer(buf, pos, limit)
        if field_end < 0:
            return False
        size = field_end - pos
        if size == 9 and value >= 0 and value < 9007199254740992:
            return False
        if size > 1 and size < 9 and value < 1 << 8 * size - 11:
            return False
        if field == 1 or field == 3:
            file_no = value
            if file_no < 0 or file_no > file_number:
                return False
        if (field == 2 or field == 4) and (value < 0 or (file_no == file_number and value >= record_offset)):
            return False
        pos = field_end
    return pos < limit


@kernel()
def is_all_filler_bytes(buf: UInt8s, pos: int, limit: int) -> bool:
    """Return whether all bytes are ff."""
    while pos < limit and buf[pos] == 255:
        pos += 1
    return pos == limit


@kernel(is_sound_oob_node, is_all_filler_bytes)
def write_indexes_of_unsound_records(
    buf: UInt8s,
    count: int,
    codes: Int64s,
    lows: Int64s,
    highs: Int64s,
    places: Int64s,
    file_number: int,
    out: MutableInt64s,
) -> int:
    """Write the indexes of the records that need individual checks to `out`; return their number."""
    selected = 0
    for i in range(count):
        if codes[i] == 3:
            sound = is_sound_oob_node(buf, lows[i], highs[i], file_number, places[i])
        elif codes[i] == 4:
            sound = is_all_filler_bytes(buf, lows[i], highs[i])
        else:
            sound = False
        if not sound:
            out[selected] = i
            selected += 1
    return selected


class RecordScreener:
    """Runs `write_indexes_of_unsound_records` over batches."""

    def __init__(self, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._run = compile_kernel(write_indexes_of_unsound_records)
        self._out = array("q")

    def __call__(self, batch: Batch, file_number: int) -> list[int]:
        """Return the indexes of the records that need individual checks; `file_number`: number of the file."""
        count = batch.frames.count
        if len(self._out) < count:
            self._out = array("q", bytes(8 * count))
        columns = [batch.frames[name] for name in ("type_code", "offset", "end", "place")]
        selected = int(self._run(batch.window, count, *columns, min(file_number, (1 << 62)), self._out))
        return self._out[:selected].tolist()


# --- Checks at the end of a file ---

_MAX_CLOSED_REST = CRC_SIZE + 3
"""Maximum number of bytes (filler and CRC) after the last chunk of a page that is used to its end."""


def validate_file_end(validator: IbbFileValidator, tail: FileTail) -> Iterator[Finding]:
    """Validate a file as a whole."""
    if validator.context.starts_with_zeros and not validator.type_counts:
        return
    yield from _check_page_count(validator, tail)
    # Check V-STATE: a GTID state at the start of page 1 and of each multiple of the interval, up to the data end
    context = validator.context
    header, size = context.header, context.page_size
    if header is None or validator.last_stop <= size:
        return
    used_pages = -(-validator.last_stop // size)
    expected_pages = {1}
    interval = header.diff_state_interval
    if interval and not interval & (interval - 1):
        expected_pages |= set(range(interval, min(used_pages, header.page_count - 1), interval))
    missing_pages = [
        page
        for page in sorted(expected_pages - validator.state_pages)
        if not _is_damaged_range(validator, page * size, (page + 1) * size)
    ]
    for page in missing_pages[:100]:
        severity = Severity.ERROR if page == 1 else Severity.WARNING
        text = f"no GTID_STATE record at the start of page {page}"
        yield make_finding("meta-mismatch", page * size, 0, text, severity=severity, diagnosis="state-missing")


def _check_page_count(validator: IbbFileValidator, tail: FileTail) -> Iterator[Finding]:
    """Check V-SIZE: as many whole pages as the header says; fewer only if FLUSH BINARY LOGS closed the file."""
    context, seen, size = validator.context, validator.context.scan_summary, validator.context.page_size
    pages, rest = divmod(tail.size, size)
    declared_pages = None if context.header is None else context.header.page_count
    if rest or (declared_pages is not None and pages < declared_pages):
        is_closed = (
            not rest and not seen.open_type and not seen.ends_with_zeros and seen.end >= tail.size - _MAX_CLOSED_REST
        )
        if is_closed:
            return
        pages_text = (
            f"of {declared_pages:,} pages there are {pages:,}" if declared_pages is not None else f"{pages:,} pages"
        )
        text = f"{pages_text}{f' and {rest:,} bytes' if rest else ''}, and the last one is not closed"
        is_unused = seen.data_end is not None or (
            seen.ends_with_zeros and not rest and all("zero" in one.id or "preall" in one.id for one in tail.findings)
        )
        severity = Severity.WARNING if is_unused else None
        yield make_finding(
            "gap-in-sequence",
            tail.size,
            0,
            text,
            severity=severity,
            diagnosis="truncated-file",
            pages=pages,
            page_count=declared_pages,
        )
    elif declared_pages is not None and pages > declared_pages:
        extra = pages - declared_pages
        if extra == 1 and seen.ends_with_zeros and seen.end <= declared_pages * size:
            text = "one page of zeros after the last one, which FLUSH BINARY LOGS adds to a full file"
            yield make_finding("zero-tail", declared_pages * size, size, text, diagnosis="flush-exact-end")
            return
        text = f"the header says {declared_pages:,} pages, the file has {pages:,}"
        yield make_finding("meta-mismatch", 24, 8, text, severity=Severity.WARNING, diagnosis="bad-size")


def _is_damaged_range(validator: IbbFileValidator, start: int, end: int) -> bool:
    return any(low < end and start < high for low, high in validator.damaged_ranges)


# --- Validation of one file ---

_T = IbbRecordType
_COMMIT, _STATE, _OOB_DATA = int(_T.COMMIT), int(_T.GTID_STATE), int(_T.OOB_DATA)
_STATE_KEY = "mariadb-innodb-binlog.log"
_MAX_PENDING_XA = 10_000

Findings = Iterator[Finding]


def make_file_validator(
    layout: LogFileLayout, compile_kernel: Callable[[Kernel], Kernel], limits: Limits
) -> IbbFileValidator:
    """Create the validator of one file (`ValidationRules.validator`)."""
    context: IbbFileContext = layout.context
    log_state: LogValidationState = context.shared.setdefault(_STATE_KEY, LogValidationState())
    return IbbFileValidator(
        context, layout, log_state, CommitScanner(compile_kernel), RecordScreener(compile_kernel), limits
    )


class IbbFileValidator:
    """Validator of one file (`format_api.format.Validator`)."""

    def __init__(
        self,
        context: IbbFileContext,
        layout: LogFileLayout,
        log_state: LogValidationState,
        commits: CommitScanner,
        screen: RecordScreener,
        limits: Limits,
    ) -> None:
        self.context, self.layout, self.log_state, self.limits = context, layout, log_state, limits
        self.number = context.number or 0
        self.type_counts: Counter[int] = Counter()
        self.group_count = 0
        self.oob_group_count = 0
        self.event_count = 0
        self.last_stop = layout.frames_at
        self.durable_end: int | None = None
        self.damage_start = 0
        self.damaged_ranges: list[tuple[int, int]] = []
        self.state_pages: set[int] = set()
        self.first_seq_no: int | None = None
        self.last_seq_no: int | None = None
        self.xa_awaited: XaId | None = None
        self._commits, self._screen = commits, screen
        self._store = PageStore(context)
        self._oob = [0, 0]
        self._misplaced_count = 0
        self._misplaced_found: Finding | None = None
        self._reset_state_after_gap()

    def _reset_state_after_gap(self) -> None:
        """Reset the carried state if the file does not follow the last one, or the last one had damage."""
        log_state = self.log_state
        if log_state.last_file is None or log_state.last_file + 1 != self.number or not log_state.last_file_intact:
            log_state.gtid_state.add_gap()
            log_state.oob_tracker.forget_records_before_file(self.number)

    # -- records -------------------------------------------------------------------------------------------------------

    def validate_batch(self, batch: Batch) -> Sequence[Finding]:
        """Return the findings about the records of a batch."""
        return list(self._check_batch(batch))

    def _check_batch(self, batch: Batch) -> Findings:
        count = batch.frames.count
        codes, places, stops = column_slices(batch, 0, count, "type_code", "place", "stop")
        self.type_counts.update(codes)
        self._track_nodes(batch, codes, places)
        commits = self._commits.iter_commit_numbers(batch)
        for i in self._screen(batch, self.number):
            code = codes[i]
            if code == _COMMIT:
                yield from self._check_commit(batch, next(commits))
            elif code == _STATE and places[i] % self.context.page_size:
                yield self._report_misplaced_state(batch, i)
            else:
                yield from _RULES[code](self, locate_record(batch, i, self.number))
        self.last_stop = max(self.last_stop, max(stops, default=0))
        if self.durable_end is not None:
            self.durable_end = max(self.durable_end, self._find_end_of_records_before_damage(batch, stops))

    def _find_end_of_records_before_damage(self, batch: Batch, record_ends: list[int]) -> int:
        """Return the end of the last record that could have been nested in an open one until damage came; 0 = none."""
        (nested,) = column_slices(batch, 0, batch.frames.count, "nested")
        return max(
            (stop for stop, n in zip(record_ends, nested, strict=True) if not n and stop <= self.damage_start),
            default=0,
        )

    def _track_nodes(self, batch: Batch, codes: list[int], places: list[int]) -> None:
        """Track all out-of-band records of a batch at once."""
        if _OOB_DATA not in codes:
            return
        (sizes,) = column_slices(batch, 0, batch.frames.count, "size")
        node_places = [(self.number, place) for code, place in zip(codes, places, strict=True) if code == _OOB_DATA]
        node_sizes = [size for code, size in zip(codes, sizes, strict=True) if code == _OOB_DATA]
        self.log_state.oob_tracker.add_records(node_places, node_sizes)
        self._oob[0] += len(node_sizes)
        self._oob[1] += sum(node_sizes)

    def _report_misplaced_state(self, batch: Batch, index: int) -> Finding:
        """Report a state that is not at the start of a page; above the limit, return the last finding again."""
        self._misplaced_count += 1
        if self._misplaced_found is None or self._misplaced_count <= self.limits.max_findings_per_id:
            text = "a GTID_STATE record is inside a page; states must be at the start of a page"
            record = locate_record(batch, index, self.number)
            self._misplaced_found = report_record(record, "meta-mismatch", "state-mismatch", text)
        return self._misplaced_found

    def _check_commit(self, batch: Batch, numbers: CommitNumbers) -> Findings:
        if numbers.payload_at >= 0 and numbers.events > 0 and numbers.type_code in (GTID, FORMAT_DESCRIPTION):
            self.group_count += numbers.type_code == GTID
            self.event_count += numbers.events
            gtid = numbers.gtid
            if gtid is not None:
                yield from self._record_and_check_gtid(gtid, batch, numbers.record_index)
            if numbers.type_code == FORMAT_DESCRIPTION:
                self.log_state.marks.restart()
            yield from self._check_commit_marks(batch, numbers.record_index, numbers.xid, joined=numbers.joined != 0)
            self.xa_awaited = None
            return
        yield from self._check_unusual_commit(locate_record(batch, numbers.record_index, self.number), batch, numbers)

    def _check_commit_marks(self, batch: Batch, index: int, xid: int, *, joined: bool) -> Findings:
        for anomaly in self.log_state.marks.iter_group_anomalies(xid, has_foreign_events=joined):
            record = locate_record(batch, index, self.number)
            yield report_record(
                record, anomaly.id, anomaly.diagnosis, anomaly.text, Severity.NOTE
            )  # the server accepts it

    def _check_unusual_commit(self, record: LocatedRecord, batch: Batch, numbers: CommitNumbers) -> Findings:
        """Check a COMMIT record with out-of-band data, or with a defect."""
        self.xa_awaited = None
        try:
            commit = parse_commit_header(record.data)
        except MalformedError as error:
            yield report_record(record, error.finding_id, "commit-malformed", str(error.args[0]))
            return
        head = read_first_event(record.data, commit.payload_at)
        if head.type_code not in (GTID, FORMAT_DESCRIPTION):
            first_event_text = "nothing" if head.type_code is None else f"an event of type {head.type_code}"
            text = f"the group begins with {first_event_text}, not with a GTID event"
            yield report_record(record, "payload-undecodable", "commit-malformed", text)
        if not has_shortest_integers(commit):
            text = "an integer of the header is longer than needed; no server writes this"
            yield report_record(record, "varint-overlong", "commit-malformed", text, Severity.WARNING)
        if head.gtid is not None:
            yield from self._record_and_check_gtid(head.gtid, batch, numbers.record_index)
        is_sound, tiles = True, EventTilingChecker()
        for problem in self._check_group_is_complete(record, commit, head, tiles):
            is_sound = False
            yield problem
        self.group_count += is_sound and head.gtid is not None
        if is_sound:
            joined = tiles.after_xid > 0 or (
                tiles.has_several_statements and bool(read_gtid_flags(record.data, commit.payload_at) & STANDALONE)
            )
            yield from self._check_commit_marks(batch, numbers.record_index, tiles.xid, joined=joined)

    def _check_group_is_complete(
        self,
        record: LocatedRecord,
        commit: CommitRecord,
        first_event: GroupFirstEvent,
        tiling_checker: EventTilingChecker,
    ) -> Findings:
        """Check that the data of a group is complete and filled by events."""
        tiling_checker.check_next_bytes(record.data[commit.payload_at :])
        self.oob_group_count += bool(commit.references)
        try:
            for reference in commit.references:
                yield from self._check_reference_bounds(record, reference)
                forest = OobForest(self._store, reference, record.position, self.context.max_group)
                shared = self.log_state.oob_tracker.mark_and_find_shared_record(forest.iter_places())
                if shared is not None:
                    text = f"the out-of-band node at {shared} also belongs to another group"
                    yield report_record(record, "payload-undecodable", "oob-shape", text)
                if forest.problem is not None:
                    yield report_unreadable_group(
                        forest.problem, record.position.offset, record.size, record.record, first_event
                    )
                for piece in forest.iter_pieces():
                    tiling_checker.check_next_bytes(piece)
        except UnreadableError as error:
            yield report_unreadable_group(error, record.position.offset, record.size, record.record, first_event)
            return
        self.event_count += tiling_checker.events
        if not tiling_checker.is_complete:
            text = (
                f"the events do not fill the group exactly: after {tiling_checker.events} of them bytes are missing "
                "or left over"
            )
            yield report_record(record, "payload-undecodable", "event-misaligned", text)

    def _check_reference_bounds(self, record: LocatedRecord, reference: OobReference) -> Findings:
        """Check that references do not lead to files before oob_ref_file_no (and xa_ref_file_no)."""
        header = self.context.header
        if header is None:
            return
        lowest = min(header.oob_ref_file_no, header.xa_ref_file_no, header.file_no)
        if reference.first.file_no < lowest:
            text = f"out-of-band data starts in file {reference.first.file_no}, the header says from {lowest} on"
            yield report_record(record, "bad-header", "bad-oob-ref", text, Severity.WARNING)

    def _record_and_check_gtid(self, gtid: IbbGtid, batch: Batch, index: int) -> Findings:
        """Add a commit's GTID to the state, and yield a finding if its number is not greater than the last of its
        domain and server.
        """
        self.first_seq_no = gtid.seq_no if self.first_seq_no is None else self.first_seq_no
        self.last_seq_no = gtid.seq_no
        previous_seq_no = self.log_state.gtid_state.add_commit_and_get_previous(gtid)
        place, stop = (int(batch.frames[name][index]) for name in ("place", "stop"))
        self.log_state.commit_span = self.number, place, stop
        if previous_seq_no is not None and gtid.seq_no <= previous_seq_no:
            text = f"GTID {gtid} comes after {gtid.domain_id}-{gtid.server_id}-{previous_seq_no}"
            record = locate_record(batch, index, self.number)
            yield report_record(record, "sequence-regression", "gtid-out-of-order", text, Severity.WARNING)

    # -- other records -------------------------------------------------------------------------------------------------

    def _check_gtid_state_record(self, record: LocatedRecord) -> Findings:
        try:
            state = parse_gtid_state(record.data)
        except MalformedError as error:
            yield report_record(record, error.finding_id, "state-mismatch", str(error.args[0]))
            self.log_state.gtid_state.add_gap()
            return
        page, page_offset = divmod(record.position.offset, self.context.page_size)
        self.state_pages.update(range(page, page + min(record.chunks, 1024)))
        if state.rest:
            yield report_record(record, "unmapped-bytes", "state-mismatch", f"{state.rest:,} bytes after the last GTID")
        if state.xa_ref_plus_1 > self.number + 1:
            text = (
                f"it says that XA transactions of file {state.xa_ref_plus_1 - 1} may be pending, but that "
                f"is a later file"
            )
            yield report_record(record, "meta-mismatch", "state-mismatch", text)
        header = self.context.header
        interval = header.diff_state_interval if header is not None else 0
        if page_offset or ((page != 1 and (not interval or page % interval)) and header is not None):
            text = f"a GTID_STATE record is in page {page} at offset {page_offset}; states are at the start of page 1 "
            yield report_record(record, "meta-mismatch", "state-mismatch", f"{text}and of each multiple of {interval}")
            return
        yield from self._compare_state_with_commits(record, page, state)

    def _compare_state_with_commits(self, record: LocatedRecord, page: int, state: Any) -> Findings:
        gtid_state, is_inside_commit = self.log_state.gtid_state, self.log_state.is_inside_commit(record.position)
        differing = (
            gtid_state.compare_and_adopt_full_state(state, self.number == 0, is_inside_commit)
            if page == 1
            else gtid_state.compare_differential_state(state, is_inside_commit)
        )
        if not differing:
            return
        diagnosis = "state-chain" if page == 1 and is_other_history(differing) else "state-mismatch"
        state_kind = "full" if page == 1 else "differential"
        text = (
            f"the {state_kind} state of page {page} does not agree with the commits before it: "
            f"{describe_differences(differing)}"
        )
        yield report_record(record, "meta-mismatch", diagnosis, text)

    def _check_oob_record(self, record: LocatedRecord) -> Findings:
        try:
            node = parse_oob_node_header(record.data)
        except MalformedError as error:
            yield report_record(record, error.finding_id, "oob-shape", str(error.args[0]))
            return
        if not has_shortest_integers(node):
            text = "an integer of the header is longer than needed; no server writes this"
            yield report_record(record, "varint-overlong", "oob-shape", text, Severity.WARNING)
        for name, place in (("left", node.left), ("right", node.right)):
            if place and place >= record.position:
                text = f"the {name} link of an out-of-band node points to {place}, which is not before the node"
                yield report_record(record, "dangling-reference", "oob-shape", text)

    def _check_dummy(self, record: LocatedRecord) -> Findings:
        if record.data.tobytes().strip(b"\xff"):
            yield report_record(record, "unmapped-bytes", "bad-chunk", "a DUMMY record has bytes other than ff")

    def _check_awaited_commit(self, record: LocatedRecord) -> Findings:
        """Check that a COMMIT record directly follows an XA_COMPLETE that announces a commit."""
        if self.xa_awaited is not None:
            text = "the previous XA_COMPLETE record says commit, but no COMMIT record follows it"
            yield report_record(record, "dangling-reference", "xa-malformed", text, Severity.WARNING)
        self.xa_awaited = None

    def _check_xa_prepare(self, record: LocatedRecord) -> Findings:
        yield from self._check_awaited_commit(record)
        try:
            prepared = parse_xa_prepare(record.data)
        except MalformedError as error:
            yield report_record(record, error.finding_id, "xa-malformed", str(error.args[0]))
            return
        pending = self.log_state.pending
        if prepared.xid in pending:
            yield report_record(
                record, "payload-undecodable", "xa-malformed", "the XID is already prepared", Severity.WARNING
            )
        if len(pending) < _MAX_PENDING_XA:
            pending[prepared.xid] = prepared
        if not prepared.reference.nodes:
            return
        try:
            forest = OobForest(self._store, prepared.reference, record.position, self.context.max_group)
            if forest.problem is not None:
                raise forest.problem
        except UnreadableError as error:
            yield report_unreadable_group(
                error, record.position.offset, record.size, record.record, GroupFirstEvent(None, None, None, None)
            )

    def _check_xa_complete(self, record: LocatedRecord) -> Findings:
        yield from self._check_awaited_commit(record)
        try:
            completed = parse_xa_complete(record.data)
        except MalformedError as error:
            yield report_record(record, error.finding_id, "xa-malformed", str(error.args[0]))
            return
        prepared = self.log_state.pending.pop(completed.xid, None)
        if (
            prepared is None
            and completed.is_rollback
            and self.log_state.oob_tracker.first_file == 0
            and not self.damaged_ranges
        ):
            text = "XA ROLLBACK of a transaction that was not prepared in this log"
            yield report_record(record, "dangling-reference", "xa-malformed", text, Severity.WARNING)
        self.xa_awaited = None if completed.is_rollback else completed.xid

    # -- the end -------------------------------------------------------------------------------------------------------

    def skip_damage(self, start: int, end: int) -> None:
        """Record that bytes were skipped, or records could not be assembled."""
        self.last_stop = max(self.last_stop, self.context.scan_summary.leading_end if not self.damaged_ranges else 0)
        if self.durable_end is None:
            self.durable_end = min(self.last_stop, start) if start >= self.layout.frames_at else self.last_stop
            self.damage_start = start
        self.damaged_ranges.append((start, end))
        self.damaged_ranges = self.damaged_ranges[-100:]
        self.log_state.gtid_state.add_gap()
        self.log_state.oob_tracker.forget_records_before_file(self.number + 1)

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the result: findings that are only certain at the end of the file, and facts for the report."""
        log_state, context = self.log_state, self.context
        if self.durable_end is None:
            self.last_stop = max(self.last_stop, context.scan_summary.leading_end)
        findings = [*validate_file_end(self, tail)]
        log_state.commit_continues = context.scan_summary.open_type == _COMMIT
        is_intact = tail.first_damage is None and self.durable_end is None
        if not context.starts_with_zeros:
            log_state.last_file, log_state.last_file_intact = self.number, is_intact
        unreached = log_state.oob_tracker.count_unreferenced()
        return ValidationResult(
            transactions=self.group_count,
            record_types={_T(code).name: count for code, count in sorted(self.type_counts.items())},
            findings=tuple(findings),
            durable_end=min(self.last_stop, self.durable_end) if self.durable_end is not None else self.last_stop,
            repairable=not 0 < self.layout.frames_at < context.page_size,
            facts=IbbFileFacts(unreached, len(log_state.pending), bool(self.damaged_ranges)),
            details=self._report_details(unreached),
            sequences=(self.first_seq_no, self.last_seq_no),
        )

    def _report_details(self, unreached: tuple[int, int]) -> Mapping[str, Any]:
        header, context = self.context.header, self.context
        details: dict[str, Any] = {"page_size": context.page_size, "events": self.event_count}
        if header is not None:
            details |= {
                "file_no": header.file_no,
                "page_count": header.page_count,
                "start_lsn": header.start_lsn,
                "diff_state_interval": header.diff_state_interval,
                "oob_ref_file_no": header.oob_ref_file_no,
                "xa_ref_file_no": None if header.xa_ref_file_no == NO_FILE else header.xa_ref_file_no,
            }
        oob = {"records": self._oob[0], "bytes": self._oob[1], "groups": self.oob_group_count}
        oob |= {"unreached_so_far": unreached[0], "unreached_bytes_so_far": unreached[1]}
        return {**details, "out_of_band": oob, "xa_pending": len(self.log_state.pending)}


_RULES: Mapping[int, Callable[[IbbFileValidator, LocatedRecord], Findings]] = {
    _T.GTID_STATE: IbbFileValidator._check_gtid_state_record,
    _T.OOB_DATA: IbbFileValidator._check_oob_record,
    _T.DUMMY: IbbFileValidator._check_dummy,
    _T.XA_PREPARE: IbbFileValidator._check_xa_prepare,
    _T.XA_COMPLETE: IbbFileValidator._check_xa_complete,
}
