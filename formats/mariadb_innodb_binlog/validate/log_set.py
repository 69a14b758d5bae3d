"""Validate the files of a log against each other: numbers, headers, ends and starts, preallocated files.

See docs/spec/mariadb_innodb_binlog.md#validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileTail, SetFinding, SetMember, is_header_correction
from binlogtool.formats.mariadb_innodb_binlog.redo.recovery import IbbLogFile, check_against_redo_log
from binlogtool.formats.mariadb_innodb_binlog.schema import NO_FILE, IbbFileContext, file_name, file_number
from binlogtool.formats.mariadb_innodb_binlog.validate.carried_state import IbbFileFacts

_MAX_LISTED_FILES = 100
_MAX_EMPTY_FILES = 2


class _IbbMember(NamedTuple):
    """A member of the log set that could be read."""

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
    """Validate the log as a whole."""
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
            text = f"bad-file-name: servers do not open a file with this name{expected}"
            yield _make_finding(member.name, "extra-member", (0, 0), text, "bad-file-name")


def _check_missing_files(files: Sequence[_IbbMember]) -> Iterator[SetFinding]:
    """Check that numbers have no gaps. The lowest files may be purged, unless something refers to them."""
    reported = 0
    for previous, following in pairwise(files):
        for number in range(previous.number + 1, following.number):
            reported += 1
            if reported > _MAX_LISTED_FILES:
                return
            text = f"missing-file: file {number} is missing; records that begin or end in it are lost"
            yield _make_finding(file_name(number), "missing-member", (None, 0), text, "missing-file", file_no=number)
    data_files = [one for one in files if not one.is_empty]
    if files and not data_files and files[0].number > 0:
        number = files[0].number - 1
        text = f"missing-file: file {files[0].number} is empty (preallocated); the active file {number} is missing"
        yield _make_finding(file_name(number), "missing-member", (None, 0), text, "missing-file", file_no=number)
    yield from _check_purged_files(data_files)


def _check_purged_files(data_files: Sequence[_IbbMember]) -> Iterator[SetFinding]:
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
    """Check that empty files are at the end: one, or two after a crash."""
    data_numbers = [one.number for one in files if not one.is_empty]
    for log_file in files:
        if log_file.is_empty and data_numbers and log_file.number < data_numbers[-1]:
            text = "unexpected-empty-file: the file is all zeros, but files with data follow"
            yield _make_finding(
                log_file.name, "gap-in-sequence", (0, log_file.tail.size), text, "unexpected-empty-file"
            )
    empty = [one for one in files if one.is_empty and not (data_numbers and one.number < data_numbers[-1])]
    for log_file in empty[1:]:
        severity = Severity.NOTE if len(empty) <= _MAX_EMPTY_FILES else Severity.WARNING
        text = "unexpected-empty-file: a second preallocated file, as some crashes leave behind"
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
            text = (
                f"lsn-regression: start_lsn {after.start_lsn} is less than {before.start_lsn} of file {previous.number}"
            )
            yield _make_finding(following.name, "sequence-regression", (32, 8), text, "lsn-regression")
        if after.oob_ref_file_no < before.oob_ref_file_no:
            text = (
                f"bad-oob-ref: oob_ref_file_no {after.oob_ref_file_no} is less than {before.oob_ref_file_no} "
                f"of file {previous.number}"
            )
            yield _make_finding(following.name, "bad-header", (48, 8), text, "bad-oob-ref", Severity.WARNING)


def _check_file_boundaries(files: Sequence[_IbbMember]) -> Iterator[SetFinding]:
    """Check that only the last file with data has an end of data, and that continued records were begun."""
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
            text = (
                f"continuation-without-start: it starts with the rest of a record that file "
                f"{previous.number} does not begin"
            )
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
    if torn_at is not None and torn_at == last.tail.first_damage and _is_last_page(last, torn_at):
        text = (
            "torn-tail-page: the last page with data has a wrong CRC; it is the only page written in place, so a "
            "crash can tear it; the redo log has its contents"
        )
        yield _report_torn_page(last, torn_at, text, "checksum-mismatch", "damaged-range")
    if last.damaged_header and not last.context.scan_summary.end:
        text = "torn-header: the header page of the newest file is damaged and no page follows; a crash can cause this"
        yield _report_torn_page(last, 0, text, "checksum-mismatch", "bad-header", "bad-magic")
    yield from _report_oob_garbage(last)


def _is_last_page(last: _IbbMember, page_at: int) -> bool:
    """Check if the page after this one is empty or missing."""
    size, beside = last.context.page_size, last.context.open_sibling
    read = None if beside is None else beside(last.name.rsplit("/", 1)[-1])
    return read is None or not any(read(page_at + size, size))


def _report_torn_page(last: _IbbMember, offset: int, text: str, *withdrawn: str) -> SetFinding:
    size = min(last.context.page_size, last.tail.size - offset)
    torn_finding = make_finding("torn-tail", offset, size, text, severity=Severity.WARNING, diagnosis="torn-tail-page")
    return SetFinding(last.name, torn_finding, withdrawn)


def _report_oob_garbage(last: _IbbMember) -> Iterator[SetFinding]:
    records, size = last.facts.unreached
    if not records:
        return
    text = f"oob-garbage: no group refers to {records:,} out-of-band records, {size:,} bytes: rolled back or still open"
    if last.facts.pending:
        text += f"; {last.facts.pending:,} XA transactions are prepared"
    facts = {"records": records, "bytes": size, "xa_pending": last.facts.pending}
    end = last.tail.end
    yield _make_finding(last.name, "incomplete-transaction", (end, 0), text, "oob-garbage", Severity.NOTE, **facts)


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
