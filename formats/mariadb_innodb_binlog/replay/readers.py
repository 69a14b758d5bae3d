"""Predict how readers walk the log: where they stop, what they miss, how they get from file to file.

The rules are those of `mariadb-binlog` (`chunk_reader_mysqlbinlog::read_data`;
docs/spec/mariadb_innodb_binlog.md#chunks-and-records,
#defects-of-the-server-and-its-reader and #the-servers-own-reader): a type byte of 0 or a page of zeros silently ends
a file, and a record continues in whatever file comes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import RangeReader
from binlogtool.formats.mariadb_innodb_binlog.codes import (
    CHUNK_HEAD_SIZE,
    CRC_SIZE,
    FILLER_BYTE,
    LAST_CHUNK_FLAG,
    NESTABLE_TYPES,
    TYPE_MASK,
    IbbRecordType,
    file_name,
    file_number,
)
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import GtidStateRecord, IbbPosition, parse_state
from binlogtool.formats.mariadb_innodb_binlog.records.store import PageStore, UnreadableError
from binlogtool.formats.replay_rules import ExaminedFile, ReplaySituation
from binlogtool.limits import MIB

_HEADER_DIAGNOSES = ("header-damaged", "header-lost", "unsupported-version", "unsupported-page-size")
_MALFORMED_DIAGNOSES = ("commit-malformed", "event-misaligned", "record-too-long", "page-order")
_OOB_DIAGNOSES = ("oob-missing", "oob-wrong-type", "oob-shape", "oob-too-large")
_MORE_FOLLOWS = "and more follows in later files"
_MAX_STATE_BYTES = 64 * MIB


class ReaderStop(NamedTuple):
    """Where a reader stops, and why.

    Attributes:
        is_conditional: only if the group at this offset could not be assembled.
    """

    offset: int
    reason: str
    is_conditional: bool = False


class ReadFile(msgspec.Struct, frozen=True):
    """A file of the log as a reader sees it.

    Attributes:
        context: None if it could not be opened.
        stops: where a reader stops, ascending.
        reader_end: where the reader considers the file ended, although more follows in it; None = at its end of data.
        is_short: it has less than it should.
        open_type: type of the record that continues after what the reader sees; 0 = none.
        leading_type: type of the record that continues at the start.
        is_blank: the reader sees no record in it.
        is_exactly_full: FLUSH BINARY LOGS found it full (`flush-exact-end`).
    """

    file: ExaminedFile
    number: int
    context: IbbFileContext | None
    stops: tuple[ReaderStop, ...] = ()
    reader_end: int | None = None
    is_short: bool = False
    open_type: int = 0
    leading_type: int = 0
    is_blank: bool = False
    is_exactly_full: bool = False

    @property
    def page_size(self) -> int:
        """Page size in bytes; 0 if the file could not be opened."""
        return 0 if self.context is None else self.context.page_size

    def read_state(self) -> GtidStateRecord | None:
        """Read the full GTID state at its start; None if there is none that can be read."""
        if self.context is None:
            return None
        store = PageStore(replace(self.context, read=None))
        try:
            record = store.read_record(
                IbbPosition(self.number, self.page_size), IbbRecordType.GTID_STATE, _MAX_STATE_BYTES
            )
            return parse_state(record)
        except (UnreadableError, MalformedError):
            return None


class ReadableFiles(msgspec.Struct, frozen=True):
    """The files that are read, in order, and the reasons why others are not.

    Attributes:
        skipped: name -> reason.
    """

    files: tuple[ReadFile, ...]
    skipped: Mapping[str, str] = msgspec.field(default_factory=dict)


def select_files(situation: ReplaySituation, recovered_from: tuple[int, int] | None = None) -> ReadableFiles:
    """Select the files of the log that a reader reads.

    Args:
        recovered_from: (file number, offset) from which recovery rewrites all pages before any reader; None = no
            recovery.
    """
    skipped: dict[str, str] = {}
    read: list[ReadFile] = []
    empty: list[ExaminedFile] = []
    for file in situation.files:
        number = file_number(file.name)
        if situation.is_directory and (number is None or file.name.rsplit("/", 1)[-1] != file_name(number)):
            skipped[file.name] = "not-a-log"
        elif _is_preallocated(file):
            empty.append(file)
        else:
            read.append(_make_read_file(file, situation, recovered_from))
    last = read[-1].number if read else -1
    for file in empty:
        number = file_number(file.name) or 0
        if number > last:
            skipped[file.name] = "reserve"
        else:
            read.append(
                ReadFile(
                    file, number, _get_context(file), (ReaderStop(0, "a file of zeros, and files with data follow"),)
                )
            )
    return ReadableFiles(tuple(sorted(read, key=lambda one: one.number)), skipped)


def _get_context(file: ExaminedFile) -> IbbFileContext | None:
    context = None if file.layout is None else file.layout.context
    return context if isinstance(context, IbbFileContext) else None


def _is_preallocated(file: ExaminedFile) -> bool:
    context = _get_context(file)
    return context is not None and context.starts_with_zeros and context.is_preallocated


def _make_read_file(file: ExaminedFile, situation: ReplaySituation, recovered_from: tuple[int, int] | None) -> ReadFile:
    context = _get_context(file)
    number = file_number(file.name)
    if context is None:
        return ReadFile(file, number or 0, None, (ReaderStop(0, "it cannot be read"),))
    number = context.number or 0 if number is None else number
    summary, findings = context.scan_summary, file.findings
    if recovered_from is not None and number >= recovered_from[0]:
        start = recovered_from[1] if number == recovered_from[0] else 0
        findings = tuple(one for one in findings if (one.offset or 0) < start)
    end = _find_reader_end(findings, context)
    read = None if situation.read_sibling is None else situation.read_sibling(file.name)
    stops: dict[int, ReaderStop] = {}
    for item in _iter_stops(findings):
        stops.setdefault(item.offset, item)
    return ReadFile(
        file, number, context,
        stops=tuple(stops[at] for at in sorted(stops) if end is None or at < end),
        reader_end=end,
        is_short=any(_is_short_file(one) for one in findings),
        open_type=summary.open_type if end is None else _find_open_type(read, end, context.page_size),
        leading_type=summary.leading_type,
        is_blank=not summary.leading_type and (not file.records or (end is not None and end <= context.page_size)),
        is_exactly_full=any(one.facts.get("diagnosis") == "flush-exact-end" for one in findings),
    )  # fmt: skip


# -- what stands in the way --------------------------------------------------------------------------------------------


def _find_reader_end(findings: Sequence[Finding], context: IbbFileContext) -> int | None:
    """Find the offset at which readers see an end of data and ignore the rest of the file."""
    ends = []
    for problem in findings:
        diagnosis, offset = problem.facts.get("diagnosis"), problem.offset or 0
        if diagnosis == "hole":
            data_end = context.scan_summary.data_end
            ends.append(offset if data_end is None else min(offset, data_end))
        elif diagnosis == "garbage-after-end" and problem.severity is Severity.ERROR:
            ends.append(offset - offset % context.page_size)
    return min(ends, default=None)


def _iter_stops(findings: Sequence[Finding]) -> Iterator[ReaderStop]:
    """Iterate over the places where readers stop with an error."""
    for problem in findings:
        diagnosis, offset = str(problem.facts.get("diagnosis")), problem.offset or 0
        if diagnosis in _HEADER_DIAGNOSES:
            yield ReaderStop(0, problem.message)
        elif diagnosis == "torn-tail-page" or (
            problem.severity is Severity.ERROR and _stops_reader(problem, diagnosis)
        ):
            yield ReaderStop(offset, problem.message)
        elif (
            diagnosis in _OOB_DIAGNOSES and problem.severity is Severity.ERROR and problem.facts.get("gtid") is not None
        ):
            yield ReaderStop(offset, problem.message, is_conditional=True)


def _stops_reader(problem: Finding, diagnosis: str) -> bool:
    """Check for a page with a wrong CRC, or an impossible chunk or record."""
    if problem.id in ("checksum-mismatch", "damaged-range"):
        return diagnosis not in ("hole", "header-tail-damaged")
    if diagnosis == "bad-chunk":
        return problem.id in ("bad-header", "length-out-of-bounds")
    return diagnosis in _MALFORMED_DIAGNOSES or (
        diagnosis == "missing-end-chunk" and not problem.message.endswith(_MORE_FOLLOWS)
    )


def _is_short_file(problem: Finding) -> bool:
    """Check if the file has less than its header says, or ends inside a record although the next one has more."""
    is_truncated = problem.facts.get("diagnosis") == "truncated-file"
    return problem.severity is Severity.ERROR and (is_truncated or problem.message.endswith(_MORE_FOLLOWS))


def _find_open_type(read: RangeReader | None, end: int, size: int) -> int:
    """Return the type of the record that is incomplete before `end`, where a reader sees an end of data; 0 = none."""
    number = (end - 1) // size
    if read is None or number < 1:
        return 0
    page, offset, open_type = read(number * size, size), 0, 0
    limit = min(end - number * size, len(page) - CRC_SIZE)
    while offset < limit - CHUNK_HEAD_SIZE and page[offset] not in (0, FILLER_BYTE):
        if page[offset] & TYPE_MASK not in NESTABLE_TYPES:
            open_type = 0 if page[offset] & LAST_CHUNK_FLAG else page[offset] & TYPE_MASK
        offset += CHUNK_HEAD_SIZE + int.from_bytes(page[offset + 1 : offset + CHUNK_HEAD_SIZE], "little")
    return open_type
