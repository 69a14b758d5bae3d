"""Validate the files of a log against each other: numbers, headers, ends and starts, preallocated files.

See docs/spec/mariadb-innodb-binlog.md#15-invariants-for-verify-and-diagnoses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.heads import is_corrected
from binlogtool.formats.judging import Member, SetFinding, Tail
from binlogtool.formats.mariadb_innodb_binlog.codes import NO_FILE, file_name, file_number
from binlogtool.formats.mariadb_innodb_binlog.judge.carried import Facts
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.mariadb_innodb_binlog.repair.recovered import LogFile, against_redo

_LISTED = 100
_MOST_EMPTY = 2


class _File(NamedTuple):
    """A member of the log set that could be read."""

    name: str
    number: int
    context: FileContext
    tail: Tail
    facts: Facts
    damaged_header: bool

    @property
    def empty(self) -> bool:
        """True if the file is all zeros."""
        return self.context.empty and self.tail.end == 0


def judge_set(members: Sequence[Member]) -> Sequence[SetFinding]:
    """Validate the log as a whole."""
    files = [one for one in map(_file, members) if one is not None]
    return [
        *_names(members),
        *_missing(files),
        *_reserve(files),
        *_headers(files),
        *_borders(files),
        *_tail(files),
        *_redo(files),
    ]


def _file(member: Member) -> _File | None:
    if member.layout is None or member.tail is None or file_number(member.name) is None:
        return None
    context: FileContext = member.layout.context
    facts = member.verdict.facts if member.verdict is not None else Facts()
    wrong = [found for found in member.layout.findings if not is_corrected(found)]
    damaged = any("header" in str(found.facts.get("diagnosis")) for found in wrong)
    return _File(member.name, file_number(member.name) or 0, context, member.tail, facts, damaged)


def _redo(files: Sequence[_File]) -> Iterator[SetFinding]:
    if files and files[0].context.redo is not None:
        yield from against_redo(
            [
                LogFile(one.name, one.number, one.context, one.tail.size, one.empty, bool(one.context.seen.open))
                for one in files
            ]
        )


def _names(members: Sequence[Member]) -> Iterator[SetFinding]:
    for member in members:
        number = file_number(member.name)
        if number is None or member.name.rsplit("/", 1)[-1] != file_name(number):
            expected = "" if number is None else f"; file {number} is looked for as {file_name(number)}"
            text = f"bad-file-name: no server opens a file of this name{expected}"
            yield _found(member.name, "extra-member", (0, 0), text, "bad-file-name")


def _missing(files: Sequence[_File]) -> Iterator[SetFinding]:
    """Check that numbers have no gaps. The lowest files may be purged, unless something refers to them."""
    told = 0
    for one, two in pairwise(files):
        for number in range(one.number + 1, two.number):
            told += 1
            if told > _LISTED:
                return
            text = f"missing-file: file {number} is not there; records that begin or end in it are lost"
            yield _found(file_name(number), "missing-member", (None, 0), text, "missing-file", file_no=number)
    full = [one for one in files if not one.empty]
    if files and not full and files[0].number > 0:
        number = files[0].number - 1
        text = (
            f"missing-file: file {files[0].number} is held in reserve and empty; the active file {number} is not there"
        )
        yield _found(file_name(number), "missing-member", (None, 0), text, "missing-file", file_no=number)
    yield from _purged(full)


def _purged(full: Sequence[_File]) -> Iterator[SetFinding]:
    if not full:
        return
    lowest = full[0].number
    for one in full:
        header = one.context.header
        if header is None:
            continue
        needed = min(header.oob_ref_file_no, header.xa_ref_file_no)
        if needed < lowest and header.oob_ref_file_no != NO_FILE:
            text = (
                f"the log starts with file {lowest}, the header of file {one.number} refers to files from {needed} on"
            )
            yield _found(
                one.name, "missing-member", (48, 16), text, "purged", Severity.NOTE, needed=needed, lowest=lowest
            )
            return


def _reserve(files: Sequence[_File]) -> Iterator[SetFinding]:
    """Check that empty files are at the end: one, or two after a crash."""
    full = [one.number for one in files if not one.empty]
    for one in files:
        if one.empty and full and one.number < full[-1]:
            text = "unexpected-empty-file: nothing but zeros, and files with data follow"
            yield _found(one.name, "gap-in-sequence", (0, one.tail.size), text, "unexpected-empty-file")
    empty = [one for one in files if one.empty and not (full and one.number < full[-1])]
    for one in empty[1:]:
        severity = Severity.NOTE if len(empty) <= _MOST_EMPTY else Severity.WARNING
        text = "unexpected-empty-file: a second file in reserve, as some crashes leave it"
        yield _found(one.name, "extra-member", (0, one.tail.size), text, "unexpected-empty-file", severity)


def _headers(files: Sequence[_File]) -> Iterator[SetFinding]:
    known = [one for one in files if one.context.header is not None and one.context.header.file_no == one.number]
    for one, two in pairwise(known):
        before, after = one.context.header, two.context.header
        assert before is not None
        assert after is not None
        if after.start_lsn < before.start_lsn:
            text = f"lsn-regression: start_lsn {after.start_lsn} is less than {before.start_lsn} of file {one.number}"
            yield _found(two.name, "sequence-regression", (32, 8), text, "lsn-regression")
        if after.oob_ref_file_no < before.oob_ref_file_no:
            text = (
                f"bad-oob-ref: oob_ref_file_no {after.oob_ref_file_no} is less than {before.oob_ref_file_no} "
                f"of file {one.number}"
            )
            yield _found(two.name, "bad-header", (48, 8), text, "bad-oob-ref", Severity.WARNING)


def _borders(files: Sequence[_File]) -> Iterator[SetFinding]:
    """Check that only the last file with data has an end of data, and that continued records were begun."""
    full = [one for one in files if not one.empty]
    for one, two in pairwise(full):
        seen = one.context.seen
        extra = one.context.header is not None and seen.end >= one.context.header.page_count * one.context.page_size - 7
        zeros = seen.zeros and one.tail.first_damage is None and two.context.seen.end > 0
        if seen.data_end is not None or (zeros and not extra):
            at = seen.data_end if seen.data_end is not None else one.tail.end
            text = f"hole: the data ends here, and file {two.number} has more: readers see nothing of it"
            yield _found(one.name, "gap-in-sequence", (at, one.tail.size - at), text, "hole")
        leading = two.context.seen.leading
        if (
            leading
            and one.number + 1 == two.number
            and not seen.open
            and not one.facts.damaged
            and one.tail.first_damage is None
        ):
            text = f"continuation-without-start: it goes on with a record that file {one.number} does not begin"
            size = two.context.page_size
            yield _found(two.name, "gap-in-sequence", (size, 0), text, "continuation-without-start")


def _tail(files: Sequence[_File]) -> Iterator[SetFinding]:
    """Check how the log ends: a torn page, and out-of-band data that no group refers to."""
    full = [one for one in files if not one.empty]
    if not full:
        return
    last = full[-1]
    wrong = next((one for one in last.tail.findings if one.id == "checksum-mismatch"), None)
    torn = None if wrong is None or "flipped_bit" in wrong.facts else wrong.offset  # a crash does not flip a single bit
    if torn is not None and torn == last.tail.first_damage and _nothing_behind(last, torn):
        text = (
            "torn-tail-page: the last page with data has a wrong CRC: the only page that is written in place, so a "
            "crash can tear it; the redo log has what belongs into it"
        )
        yield _torn(last, torn, text, "checksum-mismatch", "damaged-range")
    if last.damaged_header and not last.context.seen.end:
        text = "torn-header: the header page of the newest file is damaged, and none follows; a crash can leave it so"
        yield _torn(last, 0, text, "checksum-mismatch", "bad-header", "bad-magic")
    yield from _garbage(last)


def _nothing_behind(last: _File, torn: int) -> bool:
    """Check if the page after this one is empty or missing."""
    size, beside = last.context.page_size, last.context.beside
    read = None if beside is None else beside(last.name.rsplit("/", 1)[-1])
    return read is None or not any(read(torn + size, size))


def _torn(last: _File, offset: int, text: str, *withdrawn: str) -> SetFinding:
    size = min(last.context.page_size, last.tail.size - offset)
    made = finding("torn-tail", offset, size, text, severity=Severity.WARNING, diagnosis="torn-tail-page")
    return SetFinding(last.name, made, withdrawn)


def _garbage(last: _File) -> Iterator[SetFinding]:
    records, size = last.facts.unreached
    if not records:
        return
    text = f"oob-garbage: no group refers to {records:,} out-of-band records, {size:,} bytes: rolled back or still open"
    if last.facts.pending:
        text += f"; {last.facts.pending:,} XA transactions are prepared"
    facts = {"records": records, "bytes": size, "xa_pending": last.facts.pending}
    at = last.tail.end
    yield _found(last.name, "incomplete-transaction", (at, 0), text, "oob-garbage", Severity.NOTE, **facts)


def _found(
    name: str,
    id_: str,
    place: tuple[int | None, int],
    text: str,
    diagnosis: str,
    severity: Severity | None = None,
    **facts: int,
) -> SetFinding:
    """Create a finding about a member; `byte_range` is (offset, length)."""
    made: Finding = finding(id_, *place, text, severity=severity, diagnosis=diagnosis, **facts)
    return SetFinding(name, made)
