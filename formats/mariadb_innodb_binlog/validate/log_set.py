"""Validate the files of a log against each other: numbers, headers, ends and starts, preallocated files.

See docs/spec/mariadb_innodb_binlog.md#validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileLink, FileTail, SetFinding, SetMember, is_header_correction
from binlogtool.formats.mariadb_innodb_binlog.redo_recovery import IbbLogFile, check_against_redo_log
from binlogtool.formats.mariadb_innodb_binlog.schema import NO_FILE, IbbFileContext, file_name, file_number

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.transactions.boundaries import XaId
    from binlogtool.formats.mariadb_innodb_binlog.records.parse_records import (
        GtidStateRecord,
        IbbGtid,
        IbbPosition,
        XaPrepareRecord,
    )

# --- GTID states and the commits between them ---

DomainServer = tuple[int, int]
"""(domain id, server id)."""

_MAX_LISTED = 8


def state_numbers(state: GtidStateRecord) -> dict[DomainServer, int]:
    """Return the sequence numbers of a state record by (domain, server)."""
    return {(gtid.domain_id, gtid.server_id): gtid.seq_no for gtid in state.gtids}


def compare_states(
    stored: Mapping[DomainServer, int], expected: Mapping[DomainServer, int]
) -> list[tuple[DomainServer, int | None, int | None]]:
    """Return (pair, stored number, expected number) for each (domain, server) in which two states differ."""
    return [
        (pair, stored.get(pair), expected.get(pair))
        for pair in {**expected, **stored}
        if stored.get(pair) != expected.get(pair)
    ]


def describe_differences(differing: list[tuple[DomainServer, int | None, int | None]]) -> str:
    """Describe the first differences."""
    texts = [
        f"{domain}-{server}: {_describe_number(stored)}, expected {_describe_number(known)}"
        for (domain, server), stored, known in differing[:_MAX_LISTED]
    ]
    omitted = len(differing) - len(texts)
    return "; ".join(texts) + (f"; {omitted:,} more" if omitted > 0 else "")


def _describe_number(value: int | None) -> str:
    return "nothing" if value is None else str(value)


class GtidStateTracker(msgspec.Struct):
    """Tracks the GTID state that results from the commits of a log.

    `is_known`: False = commits may have been missed, so the next stored state is trusted. `full`: last number of each
    pair. `updated`: numbers that changed since the start of this file. `last_commit`: the last commit, and the earlier
    numbers of its pair in `full` and `updated`.
    """

    is_known: bool = False
    full: dict[DomainServer, int] = msgspec.field(default_factory=dict)
    updated: dict[DomainServer, int] = msgspec.field(default_factory=dict)
    last_commit: tuple[IbbGtid, int | None, int | None] | None = None

    def add_commit_and_get_previous(self, gtid: IbbGtid) -> int | None:
        """Add a commit; return the earlier number of its (domain, server)."""
        pair = (gtid.domain_id, gtid.server_id)
        before = self.full.get(pair)
        self.last_commit = (gtid, before, self.updated.get(pair))
        self.full[pair] = self.updated[pair] = gtid.seq_no
        return before

    def add_gap(self) -> None:
        """Record that commits may have been missed."""
        self.is_known, self.last_commit = False, None

    def compare_and_adopt_full_state(
        self, state: GtidStateRecord, is_first_file: bool, is_inside_commit: bool
    ) -> list[tuple[DomainServer, int | None, int | None]]:
        """Compare the full state at the start of a file with the commits; return the differences.

        Args:
            is_inside_commit: the state record is inside the last commit, so the state may or may not include it.
        """
        stored = state_numbers(state)
        differing = self._find_differences(stored, self.full, is_inside_commit) if self.is_known else []
        if is_first_file and not stored and _has_at_most_one_commit(self.full):
            differing = []  # written before the first commit was counted
        elif not self.is_known or is_other_history(differing):
            self.full = dict(stored)
        self.updated, self.is_known, self.last_commit = {}, True, None
        return differing

    def compare_differential_state(
        self, state: GtidStateRecord, is_inside_commit: bool
    ) -> list[tuple[DomainServer, int | None, int | None]]:
        """Compare a state inside a file with the commits; return the differences. After a gap the state is trusted.

        `is_inside_commit`: see `check_full_state`.
        """
        stored = state_numbers(state)
        if not self.is_known:
            self.full.update(stored)
            self.updated, self.is_known, self.last_commit = dict(stored), True, None
            return []
        return self._find_differences(stored, self.updated, is_inside_commit)

    def _find_differences(
        self, stored: Mapping[DomainServer, int], expected: Mapping[DomainServer, int], inside_commit: bool
    ) -> list[tuple[DomainServer, int | None, int | None]]:
        """Return the differences; none if the only one is that the commit around the state record is not in it yet."""
        differing = compare_states(stored, expected)
        if inside_commit and len(differing) == 1 and self.last_commit is not None:
            gtid, full, updated = self.last_commit
            before = updated if expected is self.updated else full
            if differing[0] == ((gtid.domain_id, gtid.server_id), before, gtid.seq_no):
                return []
        return differing


def is_other_history(differing: list[tuple[DomainServer, int | None, int | None]]) -> bool:
    """Return whether the differences show pairs that the other state does not have at all."""
    return any(stored is None or known is None for _, stored, known in differing)


def _has_at_most_one_commit(full: Mapping[DomainServer, int]) -> bool:
    return not full or (len(full) == 1 and next(iter(full.values())) == 1)


# --- Commit marks ---

MAX_RECENT_XIDS = 4096
"""Number of XIDs that are remembered."""


class CommitAnomaly(NamedTuple):
    """Anomaly of a group: id and diagnosis of the finding, and its text."""

    id: str
    diagnosis: str
    text: str


class CommitMarkChecker(msgspec.Struct):
    """Checks the commit marks of one log, in log order."""

    _recent: dict[int, None] = msgspec.field(default_factory=dict)

    def restart(self) -> None:
        """Forget all XIDs, because a restarted server counts from the beginning."""
        self._recent.clear()

    def iter_group_anomalies(self, xid: int, *, has_foreign_events: bool) -> Iterator[CommitAnomaly]:
        """Check the next group.

        Args:
            xid: XID of the group; 0 = it has none.
            has_foreign_events: see `event_groups.CommitNumbers`.
        """
        if has_foreign_events:
            text = "the group contains events of another transaction without a GTID event before them"
            yield CommitAnomaly("incomplete-transaction", "no-gtid", text)
        if not xid:
            return
        if xid in self._recent:
            yield CommitAnomaly("duplicate-sequence", "xid-twice", f"XID {xid} was already used by another transaction")
            return
        self._recent[xid] = None
        if len(self._recent) > MAX_RECENT_XIDS:
            del self._recent[next(iter(self._recent))]


# --- Unreferenced out-of-band records ---

MAX_TRACKED_RECORDS = 1 << 17
"""Maximum number of records that are tracked; the oldest ones are dropped first."""


class UnreferencedOobTracker(msgspec.Struct):
    """Tracks OOB_DATA records of a log to find those that no COMMIT record refers to.

    `first_file`: first of the files that were read without a gap. `forgotten`: number of records that are no longer
    tracked.
    """

    first_file: int | None = None
    forgotten: int = 0
    _sizes: dict[tuple[int, int], int] = msgspec.field(default_factory=dict)

    def add_records(self, places: Sequence[tuple[int, int]], sizes: Sequence[int]) -> None:
        """Add records, in order."""
        self._sizes.update(zip(places, sizes, strict=True))
        too_many = len(self._sizes) - MAX_TRACKED_RECORDS
        if too_many > 0:
            for place in list(islice(self._sizes, too_many)):
                del self._sizes[place]
            self.forgotten += too_many

    def would_know(self, position: IbbPosition) -> bool:
        """Return whether a record at this position would be tracked, unless a COMMIT record already referred to it."""
        return self.first_file is not None and position.file_no >= self.first_file and not self.forgotten

    def mark_and_find_shared_record(self, positions: Iterable[IbbPosition]) -> IbbPosition | None:
        """Mark the records that a COMMIT record refers to; return one that was already referred to, or None."""
        shared = None
        for place in positions:
            if self._sizes.pop(place, None) is None:
                shared = shared or (place if self.would_know(place) else None)
        return shared

    def forget_records_before_file(self, next_file: int) -> None:
        """Handle a gap: records before file `next_file` may have been missed."""
        self.first_file = next_file

    def count_unreferenced(self) -> tuple[int, int]:
        """Return the number of tracked records that no COMMIT record refers to, and their total size in bytes."""
        return len(self._sizes), sum(self._sizes.values())


# --- State shared by the validators of a log ---


class LogValidationState(msgspec.Struct):
    """Validation state that is carried from file to file of one log.

    `last_file`: number of the last file. `last_file_intact`: the last file had no damage. `commit_span`: file number,
    offset and end of the last commit. `commit_continues`: the last commit was incomplete at the end of its file.
    """

    last_file: int | None = None
    last_file_intact: bool = False
    gtid_state: GtidStateTracker = msgspec.field(default_factory=GtidStateTracker)
    oob_tracker: UnreferencedOobTracker = msgspec.field(default_factory=UnreferencedOobTracker)
    pending: dict[XaId, XaPrepareRecord] = msgspec.field(default_factory=dict)
    commit_span: tuple[int, int, int] = (0, 0, 0)
    commit_continues: bool = False
    marks: CommitMarkChecker = msgspec.field(default_factory=CommitMarkChecker)

    def is_inside_commit(self, position: IbbPosition) -> bool:
        """Return whether the record at this position is between the chunks of the last commit."""
        number, first, stop = self.commit_span
        if number == position.file_no:
            return first < position.offset < stop
        return self.commit_continues and number + 1 == position.file_no


class IbbFileFacts(msgspec.Struct, frozen=True):
    """Facts about a file that `validate_log_set` needs.

    `unreached`: number and total size of out-of-band records that no COMMIT record refers to so far. `pending`: number
    of prepared XA transactions.
    """

    unreached: tuple[int, int] = (0, 0)
    pending: int = 0
    damaged: bool = False


_MAX_LISTED_FILES = 100
_MAX_EMPTY_FILES = 2


class _IbbMember(NamedTuple):
    """Member of the log set that could be read."""

    name: str
    number: int
    context: IbbFileContext
    tail: FileTail
    facts: IbbFileFacts
    damaged_header: bool

    @property
    def is_empty(self) -> bool:
        """True if the file is all zeros."""
        return self.context.starts_with_zeros and self.tail.end == 0


def validate_log_set(members: Sequence[SetMember]) -> Sequence[SetFinding]:
    """Validate all files of the log together."""
    files = [one for one in map(_make_member, members) if one is not None]
    return [
        *_check_file_names(members),
        *_check_missing_files(files),
        *_check_preallocated_files(files),
        *_check_headers(files),
        *_check_file_boundaries(files),
        *_check_log_end(files),
        *_check_redo_log(files),
    ]


def _make_member(member: SetMember) -> _IbbMember | None:
    if member.layout is None or member.tail is None or file_number(member.name) is None:
        return None
    context: IbbFileContext = member.layout.context
    facts = member.verdict.facts if member.verdict is not None else IbbFileFacts()
    problems = [found for found in member.layout.findings if not is_header_correction(found)]
    has_damaged_header = any("header" in str(found.facts.get("diagnosis")) for found in problems)
    return _IbbMember(member.name, file_number(member.name) or 0, context, member.tail, facts, has_damaged_header)


def _check_redo_log(files: Sequence[_IbbMember]) -> Iterator[SetFinding]:
    if files and files[0].context.redo is not None:
        yield from check_against_redo_log(
            [
                IbbLogFile(
                    one.name,
                    one.number,
                    one.context,
                    one.tail.size,
                    one.is_empty,
                    bool(one.context.scan_summary.open_type),
                )
                for one in files
            ]
        )


def _check_file_names(members: Sequence[SetMember]) -> Iterator[SetFinding]:
    for member in members:
        number = file_number(member.name)
        if number is None or member.name.rsplit("/", 1)[-1] != file_name(number):
            expected = "" if number is None else f"; file {number} is expected as {file_name(number)}"
            text = f"servers do not open a file with this name{expected}"
            yield _make_finding(member.name, "extra-member", (0, 0), text, "bad-file-name")


def is_link_proven(link: FileLink) -> bool:
    """Return whether the number of the second file is the next one."""
    before, after = file_number(link.before), file_number(link.after)
    return before is None or after is None or after == before + 1


def _check_missing_files(files: Sequence[_IbbMember]) -> Iterator[SetFinding]:
    """Check that file numbers have no gaps. The lowest files may be purged, unless something refers to them."""
    reported = 0
    for previous, following in pairwise(files):
        for number in range(previous.number + 1, following.number):
            reported += 1
            if reported > _MAX_LISTED_FILES:
                return
            text = f"{file_name(number)} does not exist: records that begin or end in it are lost"
            yield _make_finding(
                file_name(number), "missing-member", (None, 0), text, "missing-file", file_no=number, between=True
            )
    data_files = [one for one in files if not one.is_empty]
    if files and not data_files and files[0].number > 0:
        number = files[0].number - 1
        text = (
            f"{file_name(number)} does not exist; it was the active file before "
            f"{file_name(files[0].number)}, which is empty"
        )
        yield _make_finding(file_name(number), "missing-member", (None, 0), text, "missing-file", file_no=number)
    yield from _check_references_to_purged_files(data_files)


def _check_references_to_purged_files(data_files: Sequence[_IbbMember]) -> Iterator[SetFinding]:
    if not data_files:
        return
    lowest = data_files[0].number
    for log_file in data_files:
        header = log_file.context.header
        if header is None:
            continue
        needed = min(header.oob_ref_file_no, header.xa_ref_file_no)
        if needed < lowest and header.oob_ref_file_no != NO_FILE:
            text = (
                f"the log starts with file {lowest}, the header of file {log_file.number} refers to files "
                f"from {needed} on"
            )
            yield _make_finding(
                log_file.name, "missing-member", (48, 16), text, "purged", Severity.NOTE, needed=needed, lowest=lowest
            )
            return


def _check_preallocated_files(files: Sequence[_IbbMember]) -> Iterator[SetFinding]:
    """Check that empty files are only at the end: one, or two after a crash."""
    data_numbers = [one.number for one in files if not one.is_empty]
    for log_file in files:
        if log_file.is_empty and data_numbers and log_file.number < data_numbers[-1]:
            text = "the file is all zeros, but files with data follow"
            yield _make_finding(
                log_file.name, "gap-in-sequence", (0, log_file.tail.size), text, "unexpected-empty-file"
            )
    empty = [one for one in files if one.is_empty and not (data_numbers and one.number < data_numbers[-1])]
    for log_file in empty[1:]:
        severity = Severity.NOTE if len(empty) <= _MAX_EMPTY_FILES else Severity.WARNING
        text = "a second preallocated file, as some crashes leave behind"
        yield _make_finding(
            log_file.name, "extra-member", (0, log_file.tail.size), text, "unexpected-empty-file", severity
        )


def _check_headers(files: Sequence[_IbbMember]) -> Iterator[SetFinding]:
    files_with_header = [
        one for one in files if one.context.header is not None and one.context.header.file_no == one.number
    ]
    for previous, following in pairwise(files_with_header):
        before, after = previous.context.header, following.context.header
        assert before is not None
        assert after is not None
        if after.start_lsn < before.start_lsn:
            text = f"start_lsn {after.start_lsn} is less than {before.start_lsn} of file {previous.number}"
            yield _make_finding(following.name, "sequence-regression", (32, 8), text, "lsn-regression")
        if after.oob_ref_file_no < before.oob_ref_file_no:
            text = (
                f"oob_ref_file_no {after.oob_ref_file_no} is less than {before.oob_ref_file_no} "
                f"of file {previous.number}"
            )
            yield _make_finding(following.name, "bad-header", (48, 8), text, "bad-oob-ref", Severity.WARNING)


def _check_file_boundaries(files: Sequence[_IbbMember]) -> Iterator[SetFinding]:
    """Check that only the last file with data has an end of data, and that continued records were begun before."""
    data_files = [one for one in files if not one.is_empty]
    for previous, following in pairwise(data_files):
        seen = previous.context.scan_summary
        is_full = (
            previous.context.header is not None
            and seen.end >= previous.context.header.page_count * previous.context.page_size - 7
        )
        zeros = seen.ends_with_zeros and previous.tail.first_damage is None and following.context.scan_summary.end > 0
        if seen.data_end is not None or (zeros and not is_full):
            data_end = seen.data_end if seen.data_end is not None else previous.tail.end
            text = f"hole: the data ends here, but file {following.number} has more; readers never reach it"
            yield _make_finding(
                previous.name, "gap-in-sequence", (data_end, previous.tail.size - data_end), text, "hole"
            )
        leading = following.context.scan_summary.leading_type
        if (
            leading
            and previous.number + 1 == following.number
            and not seen.open_type
            and not previous.facts.damaged
            and previous.tail.first_damage is None
        ):
            text = f"it starts with the rest of a record that file {previous.number} does not begin"
            size = following.context.page_size
            yield _make_finding(following.name, "gap-in-sequence", (size, 0), text, "continuation-without-start")


def _check_log_end(files: Sequence[_IbbMember]) -> Iterator[SetFinding]:
    """Check how the log ends: a torn page, and out-of-band data that no group refers to."""
    data_files = [one for one in files if not one.is_empty]
    if not data_files:
        return
    last = data_files[-1]
    bad_page = next((one for one in last.tail.findings if one.id == "checksum-mismatch"), None)
    torn_at = (
        None if bad_page is None or "flipped_bit" in bad_page.facts else bad_page.offset
    )  # a crash does not flip a single bit
    if torn_at is not None and torn_at == last.tail.first_damage and _is_followed_by_empty_page(last, torn_at):
        text = (
            "the last page with data has a wrong CRC; it is the only page written in place, so a "
            "crash can tear it; the redo log has its contents"
        )
        yield _report_torn_page(last, torn_at, text, "checksum-mismatch", "damaged-range")
    if last.damaged_header and not last.context.scan_summary.end:
        text = "the header page of the newest file is damaged and no page follows; a crash can cause this"
        yield _report_torn_page(last, 0, text, "checksum-mismatch", "bad-header", "bad-magic")
    yield from _report_unreferenced_oob_records(last)


def _is_followed_by_empty_page(last_member: _IbbMember, page_offset: int) -> bool:
    """Return whether the page after this one is empty or missing."""
    size, beside = last_member.context.page_size, last_member.context.open_sibling
    read = None if beside is None else beside(last_member.name.rsplit("/", 1)[-1])
    return read is None or not any(read(page_offset + size, size))


def _report_torn_page(last_member: _IbbMember, offset: int, text: str, *withdrawn_finding_ids: str) -> SetFinding:
    size = min(last_member.context.page_size, last_member.tail.size - offset)
    torn_finding = make_finding("torn-tail", offset, size, text, severity=Severity.WARNING, diagnosis="torn-tail-page")
    return SetFinding(last_member.name, torn_finding, withdrawn_finding_ids)


def _report_unreferenced_oob_records(last_member: _IbbMember) -> Iterator[SetFinding]:
    records, size = last_member.facts.unreached
    if not records:
        return
    text = f"no group refers to {records:,} out-of-band records, {size:,} bytes: rolled back or still open"
    if last_member.facts.pending:
        text += f"; {last_member.facts.pending:,} XA transactions are prepared"
    facts = {"records": records, "bytes": size, "xa_pending": last_member.facts.pending}
    end = last_member.tail.end
    yield _make_finding(
        last_member.name, "incomplete-transaction", (end, 0), text, "oob-garbage", Severity.NOTE, **facts
    )


def _make_finding(
    name: str,
    finding_id: str,
    byte_range: tuple[int | None, int],
    text: str,
    diagnosis: str,
    severity: Severity | None = None,
    **facts: int,
) -> SetFinding:
    """Create a finding about a member; `byte_range` is (offset, length)."""
    result: Finding = make_finding(finding_id, *byte_range, text, severity=severity, diagnosis=diagnosis, **facts)
    return SetFinding(name, result)
