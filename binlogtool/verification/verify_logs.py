"""Verify files and log sets, even while their server writes to them.

A server creates files before it lists them, removes files after it unlists them, and writes to one file while another
is read. So a problem must be seen twice: the files are listed again, and changed files are read again.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool import formats
from binlogtool.core import notify_progress_listener
from binlogtool.core.notify_progress_listener import (
    FILE,
    READABLE_COMPRESSED_SUFFIXES,
    SkippedFile,
    is_compressed_log,
    strip_compressed_suffix,
)
from binlogtool.core.open_file import (
    LogFile,
    SiblingFiles,
    detect_file_compression,
    find_format,
    is_url,
    open_file,
    total_size,
)
from binlogtool.core.open_file_holders import find_processes_writing_directory
from binlogtool.core.record_and_selection_types import ReadOptions
from binlogtool.core.resolve_paths import (
    DirectoryListing,
    LogGroup,
    NoLogFoundError,
    ResolvedPath,
    UnpackedLog,
    find_entry_kind,
    find_logs_among,
    resolve_path,
    unpack_compressed_members,
)
from binlogtool.core.scan_file import DamagedRange, Scan
from binlogtool.errors import BinlogtoolError, FileVanishedError, LimitError, UsageError
from binlogtool.findings import CappedFindings, Finding, Severity, make_finding
from binlogtool.format_api.encode_json import TimeFormatter
from binlogtool.format_api.format import Format, Hints, SetFinding, SetMember, ValidationResult, Validator
from binlogtool.limits import Limits
from binlogtool.schema import backends
from binlogtool.verification.directories_without_logs import report_directories_without_log
from binlogtool.verification.verify_report import (
    FileReport,
    FileReports,
    PackableReport,
    PathFailure,
    Report,
    SetReport,
    merge_reports,
    replace_findings,
    report_failure,
    report_skipped_files,
)

if TYPE_CHECKING:
    from binlogtool.core.record_and_selection_types import ReadOptions
    from binlogtool.format_api.layout import Batch, LogFileLayout

# --- Verification of files and log sets ---

DEPTHS = ("frame", "checksum", "payload", "set")


class LogVerifyOptions(msgspec.Struct, frozen=True):
    """Options for verifying a log; they have the meaning of the parameters of `binlogtool.verify`.

    Attributes:
        causes: Findings contain the likely cause of damage.
        times: Reports contain the time of the newest record (`details.newest_time`).
    """

    depth: str = "set"
    limits: Limits = Limits()
    backend: str = "auto"
    live: bool = False
    expect_closed: bool = False
    hints: Hints = Hints()
    causes: bool = False
    times: bool = False

    @classmethod
    def from_read_options(
        cls, read_options: ReadOptions, depth: str, live: bool, expect_closed: bool, times: bool = False
    ) -> LogVerifyOptions:
        """Create options from read options; findings will contain the likely cause of damage."""
        return cls(
            depth,
            read_options.limits,
            read_options.backend,
            live,
            expect_closed,
            read_options.hints or Hints(),
            causes=True,
            times=times,
        )

    def __post_init__(self) -> None:
        if self.depth not in DEPTHS:
            raise UsageError(f"unknown depth {self.depth!r}; one of {', '.join(DEPTHS)}")
        if self.live and self.expect_closed:
            raise UsageError("--live is for logs in use, --expect-closed for logs that are not: use one of them")


_DEFAULT_OPTIONS = LogVerifyOptions()
_EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})
"""Replaces mappings that the report already holds."""
_NO_SEQUENCES = (None, None)


class VerifiedMember(msgspec.Struct, frozen=True):
    """Report on one file, with the data for validating the set. There may be very many: see `CompactList`."""

    packed_report: PackableReport
    member: SetMember
    incomplete_reason: str | None

    @property
    def report(self) -> FileReport:
        """The report on the file."""
        return FileReports.unpack(self.packed_report)

    def copy_with_name(self, name: str) -> VerifiedMember:
        """Return the same file as a set member with another name."""
        return replace(self, member=replace(self.member, name=name))


class LogExamination(msgspec.Struct, frozen=True):
    """Results of `verify` for one log.

    Attributes:
        set: The report on the set; None if a single file was named.
        failures: Members that could not be read.
        standalone: The files, without findings about the set.
    """

    files: tuple[VerifiedMember, ...]
    set: SetReport | None
    failures: tuple[PathFailure, ...]
    standalone: Sequence[VerifiedMember]

    @property
    def standalone_by_name(self) -> dict[str, VerifiedMember]:
        """Name -> file, without findings about the set."""
        return {one.member.name: one for one in self.standalone}

    @property
    def report(self) -> Report:
        """The report on this log."""
        sets = () if self.set is None else (self.set,)
        incomplete = any(one.incomplete_reason for one in self.files)
        return Report(FileReports(one.packed_report for one in self.files), sets, self.failures, incomplete)


def verify_file(file: LogFile, options: LogVerifyOptions) -> VerifiedMember:
    """Verify one file in one pass."""
    began = time.perf_counter()
    deep = DEPTHS.index(options.depth) >= DEPTHS.index("payload")
    backend = backends.choose_backend(options.backend)
    window = file.window if file.size is None else None  # a stream cannot be read again
    scan = Scan(file.source, file.format, file.layout, backend, options.limits, deep, options.live, window)
    scan.causes = options.causes
    validator = (
        file.format.validation.validator(file.layout, backend.compile_kernel, options.limits)
        if deep and file.layout.readable
        else None
    )
    findings = CappedFindings(options.limits.max_findings_per_id)
    findings.add_findings(file.layout.findings)
    newest_time = NewestTime() if options.times else None
    sequences = _scan_and_validate(scan, validator, findings, newest_time)
    verdict = validator.finish(scan.file_tail()) if validator else None
    if verdict and scan.incomplete is not None:
        verdict = replace(verdict, findings=(), durable_end=None, details={}, repairable=False)
    if verdict:
        findings.add_findings(verdict.findings)
        sequences = verdict.sequences if file.format.validation.validator_reports_sequences else sequences
    findings.add_findings(_find_closing_problems(scan, file, options))
    if options.expect_closed and verdict is not None:
        findings.add_findings(_report_unprovable_end(scan, file.format, verdict))
    report = FileReport(
        path=file.path,
        format=file.format.name,
        variant=file.layout.variant,
        size=scan.end,
        records=_count_records(scan, file, deep),
        record_types=verdict.record_types if verdict else {},
        transactions=verdict.transactions if verdict else 0,
        durable_end=_find_durable_end(scan, file, verdict),
        closed=scan.closed,
        bytes=scan.account.as_dict(),
        findings=_raise_open_end_severity(
            _drop_growth_findings(findings.as_tuple(), options.live), options.expect_closed
        ),
        first_seq=sequences[0],
        last_seq=sequences[1],
        seconds=time.perf_counter() - began,
        details={
            "frames": scan.frames,
            "depth": options.depth,
            **_make_unread_detail(scan),
            **({} if newest_time is None else {"newest_time": newest_time.as_text()}),
            **(verdict.details if verdict else {}),
        },
    )
    compact_verdict = (
        replace(verdict, details=_EMPTY_MAPPING, record_types=_EMPTY_MAPPING, sequences=_NO_SEQUENCES)
        if verdict
        else None
    )
    member = SetMember(file.name, _compact_layout(file), compact_verdict, scan.file_tail())
    return VerifiedMember(FileReports.pack_if_packable(report), member, scan.incomplete or scan.over_limit)


_NEWEST_RECORDS = 64
"""Number of records at the end of each batch whose times are read, because the last records may have no time."""


class NewestTime:
    """Time of the newest record of a file, in microseconds since 1970; None until a record has a time."""

    def __init__(self) -> None:
        self.time: int | None = None

    def update_from_batch(self, format_: Format, context: Any, batch: Batch) -> None:
        """Take the last records of a batch into account."""
        count = batch.records.count
        envelope = format_.output.decode_envelopes(context, batch, max(0, count - _NEWEST_RECORDS), count)
        times = [one for one in (self.time, *envelope.time) if one is not None]
        self.time = max(times, default=None)

    def as_text(self) -> str | None:
        """Return the time as RFC 3339."""
        return TimeFormatter()(self.time)


def _compact_layout(file: LogFile) -> LogFileLayout:
    """Return the part of the layout that is kept after the scan; small, because a directory may have 100,000 files."""
    compact = file.format.reading.compact_layout
    return file.layout if compact is None else compact(file.layout)


def _make_unread_detail(scan: Scan) -> dict[str, int]:
    """Return the number of bytes at the end that were not read, as details."""
    return {"unread": scan.unread_bytes} if scan.incomplete is not None else {}


def _count_records(scan: Scan, file: LogFile, deep: bool) -> int | None:
    """Return the number of records; None if the depth does not read inside frames that hold several records."""
    return scan.records if deep or file.layout.rows is None else None


def _find_durable_end(scan: Scan, file: LogFile, verdict: ValidationResult | None) -> int | None:
    if not file.layout.readable or (verdict is not None and not verdict.repairable) or scan.incomplete is not None:
        return None
    return scan.good_end if verdict is None or verdict.durable_end is None else verdict.durable_end


def _scan_and_validate(
    scan: Scan, validator: Validator | None, findings: CappedFindings, newest_time: NewestTime | None
) -> tuple[int | None, int | None]:
    """Scan the file, validate its batches and collect findings; return the first and the last sequence number."""
    first = last = None
    for segment in scan.segments():
        batch = segment.good_records if isinstance(segment, DamagedRange) else segment
        if isinstance(segment, DamagedRange):
            findings.add_findings(segment.findings)
            if validator:
                validator.skip_damage(segment.start, segment.end)
        if newest_time is not None and batch is not None and batch.records.count:
            newest_time.update_from_batch(scan.format, scan.layout.context, batch)
        if validator and batch is not None:
            findings.add_findings(validator.validate_batch(batch))
            if batch.records.count and not scan.format.validation.validator_reports_sequences:
                batch_first, batch_last = _read_sequences(scan.format, scan.layout.context, batch)
                first, last = batch_first if first is None else first, batch_last
    return first, last


def _read_sequences(format_: Format, context: Any, batch: Batch) -> tuple[int | None, int | None]:
    count = batch.records.count
    return (
        format_.output.decode_envelopes(context, batch, 0, 1).seq[0],
        format_.output.decode_envelopes(context, batch, count - 1, count).seq[0],
    )


def _find_closing_problems(scan: Scan, file: LogFile, options: LogVerifyOptions) -> list[Finding]:
    """Return problems known only at the end of a scan: complete records after damage, no end mark, a changed file."""
    findings = []
    if scan.valid_after_damage and scan.resync_after_damage is not None:
        records = "records" if scan.valid_after_damage != 1 else "record"
        text = f"{scan.valid_after_damage:,} complete {records} follow the damage"
        offset = scan.resync_after_damage
        findings.append(
            make_finding("valid-after-damage", offset, scan.end - offset, text, records=scan.valid_after_damage)
        )
    if scan.closed is False and file.layout.readable and not scan.tail_findings and not options.live:
        unclosed = make_finding(
            "unclean-close", scan.end, 0, "no end mark: the file was not closed, or is still being written"
        )
        findings.append(_explain_finding(file, unclosed))
    if options.expect_closed:
        findings = [one.copy_with_severity(Severity.ERROR) for one in findings]
    changed = file.find_change_since_open()
    return [*findings, changed] if changed else findings


def _report_unprovable_end(scan: Scan, format_: Format, verdict: ValidationResult) -> Iterator[Finding]:
    """Yield a note if the format has no mark by which a closed file differs from one that was cut between records."""
    is_proven = format_.validation.is_closed_end_proven
    if is_proven is not None and scan.records and not is_proven(verdict.facts):
        text = "this format has no end mark: a file that was cut between two records looks complete"
        yield make_finding("unclean-close", scan.end, 0, f"{text}; compare its size with the source", provable=False)


def _explain_finding(file: LogFile, unexplained: Finding) -> Finding:
    explain = file.format.validation.explain_damage
    return (
        unexplained if explain is None else explain(file.layout, memoryview(b""), unexplained.offset or 0, unexplained)
    )


def _drop_growth_findings(findings: tuple[Finding, ...], live: bool) -> tuple[Finding, ...]:
    """Remove the finding that a live file changed while it was read."""
    return tuple(one for one in findings if not (live and one.id == "changed-while-read"))


def _raise_open_end_severity(findings: tuple[Finding, ...], expect_closed: bool) -> tuple[Finding, ...]:
    """Raise the severity of findings about an open end, if the log is expected to be closed."""
    if not expect_closed:
        return findings
    ids = ("torn-tail", "unclean-close")
    return tuple(
        one.copy_with_severity(Severity.ERROR) if one.id in ids and one.facts.get("provable") is not False else one
        for one in findings
    )


def _raise_severity_of_report(report: PackableReport) -> PackableReport:
    """Raise the severity of findings about an open end, those about the set included; packed reports have none."""
    if isinstance(report, bytes):
        return report
    return replace(report, findings=_raise_open_end_severity(report.findings, True))


def verify_log(group: LogGroup, options: LogVerifyOptions) -> Report:
    """Verify one log; return its report."""
    return examine_log(group, options).report


def examine_log(
    group: LogGroup,
    options: LogVerifyOptions,
    open_member: Callable[..., LogFile] = open_file,
    verified: Mapping[str, VerifiedMember] = MappingProxyType({}),
) -> LogExamination:
    """Verify every file of one log, then the log as a whole, to the depth of the options.

    Args:
        open_member: Function that opens a file of the log.
        verified: Name -> file that was already verified and is not read again.
    """
    if not _needs_unpacking(group):
        return _verify_members_and_set(group, options, open_member, verified)
    with unpack_compressed_members(group) as unpacked:
        examination = _verify_members_and_set(unpacked.group, options, open_member, verified)
    failures = (replace(one, path=unpacked.restore_path(one.path)) for one in examination.failures)
    return replace(
        examination,
        files=tuple(_use_compressed_path(one, unpacked) for one in examination.files),
        failures=tuple(failures),
        standalone=[_use_compressed_path(one, unpacked) for one in examination.standalone],
    )


def _needs_unpacking(group: LogGroup) -> bool:
    """Return True if a log has compressed files, and is read at any offset of any file."""
    if group.is_set:
        return bool(group.compressed) and group.format is not None and group.format.reading.reads_siblings
    if is_url(group.path) or detect_file_compression(group.path) is None:
        return False
    name = next(formats.find_by_file_name(strip_compressed_suffix(os.path.basename(group.path))), None)
    return name is not None and formats.load_format(name).reading.reads_siblings


def _use_compressed_path(member: VerifiedMember, unpacked: UnpackedLog) -> VerifiedMember:
    """Return the member with the path of its compressed file instead of its unpacked file."""
    report = replace(member.report, path=unpacked.restore_path(member.report.path))
    return replace(member, packed_report=FileReports.pack_if_packable(report)).copy_with_name(
        unpacked.restore_path(member.member.name)
    )


def _verify_members_and_set(
    group: LogGroup,
    options: LogVerifyOptions,
    open_member: Callable[..., LogFile],
    verified: Mapping[str, VerifiedMember],
) -> LogExamination:
    failures: list[PathFailure] = []
    members = list(_verify_members(group, options, failures, open_member, verified))
    if options.live and group.is_set:
        present_paths = {one.report.path for one in members} | {
            one.path for one in failures
        }  # others were removed meanwhile
        group = replace(group, names=tuple(name for name in group.names if group.member_path(name) in present_paths))
    reports, set_report = [_add_incomplete_reason(one) for one in members], None
    if group.is_set and options.depth == "set" and not _is_cut_short(members, failures):
        failed_paths = {one.path for one in failures}
        reports, set_report = _validate_set(
            group, members, reports, [name for name in group.names if group.member_path(name) in failed_paths]
        )
    elif group.is_set:
        set_report = SetReport(
            group.path or os.curdir, _get_format_name(group), group.names, tuple(map(_make_stray_finding, group.strays))
        )
    if options.expect_closed:
        reports = [_raise_severity_of_report(one) for one in reports]
    files = tuple(
        one if report is one.packed_report else replace(one, packed_report=report)
        for one, report in zip(members, reports, strict=True)
    )
    return LogExamination(files, set_report, tuple(failures), members)


def _is_cut_short(members: Sequence[VerifiedMember], failures: Sequence[PathFailure]) -> bool:
    """Return True if a limit ended the reading: then the set cannot be validated, because members may not have been
    read.
    """
    return any(one.incomplete_reason is not None and "unread" in one.report.details for one in members) or any(
        failure.exit_code == LimitError.exit_code for failure in failures
    )


def _verify_members(
    group: LogGroup,
    options: LogVerifyOptions,
    failures: list[PathFailure],
    open_member: Callable[..., LogFile],
    verified: Mapping[str, VerifiedMember],
) -> Iterable[VerifiedMember]:
    shared: dict[str, Any] = {}
    notify_progress_listener.report_pass_start(
        total_size(group.member_path(name) for name in group.names if name not in verified)
    )
    deadline = None if options.limits.timeout is None else time.monotonic() + options.limits.timeout
    for number, name in enumerate(group.names):
        if name in verified:
            yield verified[name]
            continue
        if deadline is not None:
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0 and number:
                failures.append(_make_timeout_failure(group, len(group.names) - number))
                return
            options = replace(options, limits=replace(options.limits, timeout=max(seconds_left, 0.001)))
        path = group.member_path(name)
        try:
            file = open_member(
                path, name, group.format, options.limits, siblings=SiblingFiles(shared), hints=options.hints
            )
        except UsageError:
            raise
        except BinlogtoolError as error:
            if not (options.live and group.is_set and isinstance(error, FileVanishedError)):
                failures.append(PathFailure(path, str(error), error.exit_code))
            continue
        try:
            yield verify_file(file, options)
        except BinlogtoolError as error:
            failures.append(PathFailure(path, str(error), error.exit_code))
        finally:
            file.source.close()


def _make_timeout_failure(group: LogGroup, unread_files: int) -> PathFailure:
    files = f"{unread_files:,} of {len(group.names):,} files were not read"
    text = f"{files}: the time limit ended the work (--timeout, --max-duration)"
    return PathFailure(group.path, text, LimitError.exit_code)


def _add_incomplete_reason(member: VerifiedMember) -> PackableReport:
    """Return the packed report, with the reason why it is incomplete added to its details."""
    if member.incomplete_reason is None:
        return member.packed_report
    report = member.report
    return FileReports.pack_if_packable(
        replace(report, details={**report.details, "incomplete": member.incomplete_reason})
    )


def _get_format_name(group: LogGroup) -> str:
    assert group.format is not None
    return group.format.name


def _validate_set(
    group: LogGroup, members: Sequence[VerifiedMember], reports: list[PackableReport], unreadable: Sequence[str]
) -> tuple[list[PackableReport], SetReport]:
    """Validate the log set; add each finding to the report of the file that it is about, otherwise to the set's report.

    Args:
        unreadable: Names of files that exist but could not be read.
    """
    assert group.format is not None
    rules = group.format.validation.validate_set
    unread = [SetMember(name, None, None, None) for name in (*group.strays, *unreadable, *_list_unnamed_between(group))]
    set_findings = list(rules([*(one.member for one in members), *unread])) if rules else []
    if group.unnamed:  # a file that is not found may be one of these
        set_findings = [
            one for one in set_findings if one.finding.id != "missing-member" or _is_file_missing(group, one)
        ]
    by_file: dict[str, list[SetFinding]] = {}
    set_findings = [_report_link_or_fifo_in_place_of_file(group, one) for one in set_findings]
    for one in _attribute_gaps_to_cut_files(set_findings, members):
        by_file.setdefault(one.file, []).append(one)
    reports = [
        _add_set_findings(report, by_file.pop(one.member.name)) if one.member.name in by_file else report
        for report, one in zip(reports, members, strict=True)
    ]
    unassigned = (
        *map(_make_stray_finding, group.strays),
        *(f.finding for f in set_findings if f.file in by_file),
        *_make_unnamed_note(group),
    )
    return reports, SetReport(group.path or os.curdir, group.format.name, group.names, unassigned)


def _report_link_or_fifo_in_place_of_file(group: LogGroup, found: SetFinding) -> SetFinding:
    """Return the finding; it reports whether a link, a directory or a FIFO has the name of the missing file."""
    if found.finding.id != "missing-member" or is_url(group.path) or found.file in group.names:
        return found
    kind = find_entry_kind(os.path.join(group.path, found.file))
    if kind is None or kind == FILE:
        return found
    text = f"exists, but is not a regular file (it is a {kind}): copy it again"
    name, message = os.path.basename(found.file), found.finding.message
    message = message.replace(f"{name} does not exist", f"{name} {text}", 1)
    message = message if text in message else f"{name} {text}; {message}"
    facts = MappingProxyType({**found.finding.facts, "irregular": kind})
    return replace(found, finding=replace(found.finding, message=message, facts=facts))


def _attribute_gaps_to_cut_files(
    set_findings: Sequence[SetFinding], members: Sequence[VerifiedMember]
) -> Iterator[SetFinding]:
    """Yield the findings; a gap after a compressed file that is cut or damaged is a finding about that file."""
    previous_by_name = {following.member.name: one for one, following in pairwise(members)}
    for one in set_findings:
        previous = previous_by_name.get(one.file) if one.finding.id == "gap-in-sequence" else None
        if previous is not None and _is_cut_stream(previous):
            text = one.finding.message.replace("this file", os.path.basename(one.file))
            moved = replace(one.finding, offset=previous.report.size, length=0, message=text)
            yield SetFinding(previous.member.name, moved, one.replaces_ids)
        else:
            yield one


def _is_cut_stream(member: VerifiedMember) -> bool:
    """Return True if a file is compressed, and cut or damaged."""
    return not isinstance(member.packed_report, bytes) and any(
        found.id == "compression-error" and "packed_size" in found.facts for found in member.report.findings
    )


def _is_file_missing(group: LogGroup, found: SetFinding) -> bool:
    """Return True if the file that a finding is about does not exist under another path than those that were named."""
    if found.finding.facts.get("between"):
        return True
    is_about_member = found.file in group.names
    return not is_about_member and not os.path.lexists(
        os.path.join(group.path, _find_stored_name(group.path, found.file))
    )


def _list_unnamed_between(group: LogGroup) -> list[str]:
    """Return the existing files between the first and the last named file that were not named, in the log's order."""
    assert group.format is not None
    order = list((group.format.files.sort_names or sorted)([*group.names, *group.unnamed]))
    numbers = [number for number, name in enumerate(order) if name not in group.unnamed]
    return [name for name in order[numbers[0] : numbers[-1]] if name in group.unnamed] if numbers else []


def _make_unnamed_note(group: LogGroup) -> Iterator[Finding]:
    """Yield the note that files between the named ones exist and were not checked."""
    patterns = {re.sub(r"\d+", "#", name) for name in group.names}
    between = [
        name for name in _list_unnamed_between(group) if re.sub(r"\d+", "#", name) in patterns
    ]  # not its .idx file
    if names := [_find_stored_name(group.path, name) for name in between]:
        listed = f"{names[0]} and {len(names) - 1:,} more exist" if names[1:] else f"{names[0]} exists"
        text = f"{listed} between the named files and {'were' if names[1:] else 'was'} not checked; name all files of "
        yield make_finding("member-not-named", None, 0, f"{text}the log, or its directory", files=names)


def _find_stored_name(directory: str, name: str) -> str:
    """Return the name under which a file of a log is stored: compressed, or unchanged."""
    stored = (f"{name}{end}" for end in ("", *READABLE_COMPRESSED_SUFFIXES))
    return next((one for one in stored if os.path.lexists(os.path.join(directory, one))), name)


def _make_stray_finding(name: str) -> Finding:
    """Return the finding for a file that the server would read although it is no file of this log."""
    text = f"{name}: named like a file of this log, but it has neither header nor record"
    return make_finding("bad-header", None, 0, text, file=name)


def _add_set_findings(packed_report: PackableReport, set_findings: list[SetFinding]) -> PackableReport:
    report = FileReports.unpack(packed_report)
    withdrawn = {id_ for f in set_findings for id_ in f.replaces_ids}
    findings = [one for one in report.findings if one.id not in withdrawn]
    findings += [f.finding for f in set_findings]
    findings.sort(key=lambda one: -1 if one.offset is None else one.offset)
    return FileReports.pack_if_packable(replace(report, findings=tuple(findings)))


# --- Verification of a log in use ---

MAX_PASSES = 10
"""Maximum number of passes: a server that keeps writing may cause another transient problem in each pass."""

PASS_INTERVAL = 0.2
"""Seconds between two passes."""

_TIMESTAMP_GRANULARITY = 100_000_000
"""Period in nanoseconds within which a file can change twice and keep the same modification time."""

FileStamp = tuple[int, int, int]
FindingKey = tuple[str, str, int | str]
"""(path of the file or set, finding id, offset or message)."""


def verify_until_stable(group: LogGroup, relist: Callable[[], LogGroup | None], options: LogVerifyOptions) -> Report:
    """Verify one log that may change; report only problems that two successive passes find.

    A server that rotates its log names the next file before it creates it. If that file does not appear in all passes,
    it is reported as missing, unless a process has files in the directory open for writing.

    Args:
        relist: Function that lists the files again; it returns None if the log no longer exists.
    """
    stamps = _collect_stamps(group)
    examination = examine_log(group, options)
    problems = _collect_problems(examination.report)
    for _ in range(MAX_PASSES):
        if not problems or examination.report.incomplete:
            break
        time.sleep(PASS_INTERVAL)
        group = _relist_files(relist) or group
        verified, stamps = _select_unchanged(group, examination, stamps), _collect_stamps(group)
        examination = examine_log(group, options, verified=verified)
        previous, problems = problems, _collect_problems(examination.report)
        unfinished = _select_unfinished_rotations(examination.report)
        if unfinished and any(find_processes_writing_directory(os.path.dirname(group.member_path(group.names[0])))):
            problems, unfinished = problems - unfinished, set()
        if problems <= previous and not unfinished:
            break
        problems &= previous
    return _keep_confirmed(examination.report, problems - _select_problems_of_temporary_files(group, problems))


def _select_unfinished_rotations(report: Report) -> set[FindingKey]:
    """Return the problems of files that name the next file, which a server writes before it creates that file."""
    return {
        make_finding_key(file.path, found)
        for file in report.files
        for found in file.findings
        if found.id == "missing-member" and "next_file" in found.facts
    }


def _select_problems_of_temporary_files(group: LogGroup, problems: set[FindingKey]) -> set[FindingKey]:
    """Return the problems of temporary files, which a server renames or removes after a moment."""
    patterns = () if group.format is None else group.format.files.temporary_patterns
    return {one for one in problems if any(fnmatch.fnmatchcase(os.path.basename(one[0]), p) for p in patterns)}


def _relist_files(relist: Callable[[], LogGroup | None]) -> LogGroup | None:
    try:
        return relist()
    except BinlogtoolError:
        return None


def _collect_stamps(group: LogGroup) -> dict[str, FileStamp]:
    """Return size, modification time and inode of each file that is not being written to at the moment."""
    stamps = {}
    for name in group.names:
        try:
            status = os.stat(group.member_path(name))
        except OSError:
            continue
        if abs(time.time_ns() - status.st_mtime_ns) > _TIMESTAMP_GRANULARITY:
            stamps[name] = status.st_size, status.st_mtime_ns, status.st_ino
    return stamps


def _select_unchanged(
    group: LogGroup, examination: LogExamination, old_stamps: dict[str, FileStamp]
) -> dict[str, VerifiedMember]:
    """Return the files that have not changed since before they were read."""
    new_stamps = _collect_stamps(group)
    return {
        name: one
        for name, one in examination.standalone_by_name.items()
        if name in new_stamps and new_stamps[name] == old_stamps.get(name)
    }


def _collect_problems(report: Report) -> set[FindingKey]:
    """Return the keys of all findings above notes."""
    owners = [(one.path, one.findings) for one in report.files] + [(one.path, one.findings) for one in report.sets]
    return {
        make_finding_key(path, found)
        for path, findings in owners
        for found in findings
        if found.severity > Severity.NOTE
    }


def make_finding_key(path: str, finding: Finding) -> FindingKey:
    """Return the key that identifies a finding in several passes; without an offset it contains the message, which
    names the missing file.
    """
    return path, finding.id, finding.message if finding.offset is None else finding.offset


def _keep_confirmed(report: Report, confirmed: set[FindingKey]) -> Report:
    """Return the report without the problems that are not confirmed."""

    def select(path: str, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(
            one for one in findings if one.severity is Severity.NOTE or make_finding_key(path, one) in confirmed
        )

    return replace_findings(report, select)


# --- Verification of paths ---


def verify_paths(
    paths: Iterable[str | os.PathLike[str]],
    format: str,
    options: LogVerifyOptions,
) -> Report:
    """Verify the logs at the paths, with the parameters of `binlogtool.verify`; files of one log are verified as a set.

    The time limit applies to the whole call.
    """
    return merge_reports(
        _verify_paths_and_sets(group_named_files([os.fspath(path) for path in paths], format), format, options)
    )


_OUT_OF_TIME = "were not verified because the time limit was reached (--timeout, --max-duration)"


def _verify_paths_and_sets(
    paths_and_sets: Sequence[str | LogGroup], format: str, options: LogVerifyOptions
) -> Iterator[Report]:
    timeout = options.limits.timeout
    deadline = None if timeout is None else time.monotonic() + timeout
    for number, unit in enumerate(paths_and_sets):
        if deadline is not None:
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0 and number:
                path = unit if isinstance(unit, str) else unit.member_path(unit.names[0])
                failure = PathFailure(
                    path, f"{len(paths_and_sets) - number:,} of {len(paths_and_sets):,} paths {_OUT_OF_TIME}", 6
                )
                yield Report((), (), (failure,), True)
                return
            options = replace(options, limits=replace(options.limits, timeout=max(seconds_left, 0.001)))
        yield from _verify_unit(unit, format, options)


def group_named_files(paths: Sequence[str], format: str) -> list[str | LogGroup]:
    """Return the paths in order, with several named files of one log replaced by a set, at the place of the first file.

    Raises:
        UsageError: the format is unknown.
    """
    by_directory: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        if not is_url(path) and not os.path.islink(path) and os.path.isfile(path):
            by_directory.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
    groups: dict[str, LogGroup] = {}
    for directory, names in by_directory.items():
        for group in _find_sets_among(directory, names, format) if len(names) > 1 else ():
            groups |= dict.fromkeys(map(group.member_path, group.names), group)
    units: list[str | LogGroup] = []
    for path in paths:
        unit = groups.get(path, path)
        if unit is path or unit not in units:
            units.append(unit)
    return units


def _find_sets_among(directory: str, names: list[str], format: str) -> Iterator[LogGroup]:
    """Yield the logs of which several files are named, compressed ones included; a log may be in the directory of one
    of its files only.
    """
    only_format = None if format == "auto" else find_format(format)
    try:
        listing = find_logs_among(directory, names, only_format)
    except NoLogFoundError as error:
        listing = DirectoryListing([], [*error.skipped])
    except BinlogtoolError:
        return
    groups = [
        LogGroup(log.directory, log.format, tuple(log.names), True)
        for log in listing.logs
        if log.directory == directory
    ]
    for group in _add_compressed_members(directory, groups, listing.skipped, format)[0]:
        if len(group.names) > 1 and group.format is not None:
            yield replace(group, unnamed=_list_unnamed(directory, group.names, group.format))


def _list_unnamed(directory: str, names: Sequence[str], format_: Format) -> tuple[str, ...]:
    """Return the files in the directory that have names of this log but were not named, including compressed files."""
    stems = {stem for name in names if (stem := format_.files.name_stem(name)) is not None}
    try:
        entries = os.listdir(directory or ".")
    except OSError:
        return ()
    unpacked = {
        next((entry.removesuffix(end) for end in READABLE_COMPRESSED_SUFFIXES if entry.endswith(end)), entry)
        for entry in entries
    }
    return tuple(sorted(one for one in unpacked - {*names} if format_.files.name_stem(one) in stems))


def _verify_unit(unit: str | LogGroup, format: str, options: LogVerifyOptions) -> Iterator[Report]:
    if isinstance(unit, str):
        for entry in find_logs_to_verify(unit, format):
            if isinstance(entry, Report):
                yield entry
            elif options.live:
                yield verify_live_log(entry.group, entry.path, format, options)
            else:
                yield verify_log(entry.group, options)
    elif options.live:
        yield verify_until_stable(unit, lambda: unit, options)
    else:
        yield verify_log(unit, options)


class LogAtPath(NamedTuple):
    """Log to verify. path: the PATH argument, or the compressed file in a directory, by which it was found."""

    path: str
    group: LogGroup


def find_logs_to_verify(path: str, format: str) -> Iterator[LogAtPath | Report]:
    """Yield the logs at a path, including compressed files in a directory, and reports about files that are not read
    and about directories without a log.

    Raises:
        UsageError.
    """
    try:
        resolved = resolve_path_with_compressed(path, format, skip_unlistable=True)
    except UsageError:
        raise
    except BinlogtoolError as error:
        yield report_failure(path, error)
        return
    yield from (LogAtPath(path, group) for group in sorted(resolved.groups, key=lambda group: group.path))
    single_files = [file for file in resolved.skipped if _is_readable_compressed(file)]
    for file in single_files:
        yield from find_logs_to_verify(os.path.join(path, file.name), format)
    yield report_skipped_files(path, [file for file in resolved.skipped if file not in single_files])
    if not is_url(path) and os.path.isdir(path):
        directories = {
            os.path.dirname(file.name): next(formats.find_by_file_name(strip_compressed_suffix(file.name)), "")
            for file in single_files
        }
        directories |= {os.path.relpath(one.path, path): _get_format_name(one) for one in resolved.groups if one.is_set}
        if empty := tuple(report_directories_without_log(path, directories)):
            yield Report((), empty)


def _is_readable_compressed(file: SkippedFile) -> bool:
    return is_compressed_log(file) and file.name.endswith(READABLE_COMPRESSED_SUFFIXES)


def resolve_path_with_compressed(path: str, format: str, skip_unlistable: bool = False) -> ResolvedPath:
    """Return the logs at a path, with compressed files as members. Raises as `resolve_path`."""
    try:
        resolved = resolve_path(path, format, skip_unlistable)
    except NoLogFoundError as error:
        resolved = ResolvedPath([], [*error.skipped])
        if not any(map(_is_readable_compressed, resolved.skipped)):
            raise
    if is_url(path):
        return resolved
    groups, members = _add_compressed_members(path, resolved.groups, resolved.skipped, format)
    return ResolvedPath(groups, [file for file in resolved.skipped if file not in members])


def _add_compressed_members(
    path: str, groups: Sequence[LogGroup], skipped: Sequence[SkippedFile], format: str
) -> tuple[list[LogGroup], set[SkippedFile]]:
    """Add the compressed members among the skipped files to the logs; return logs and added files."""
    groups, members = list(groups), set[SkippedFile]()
    by_log: dict[tuple[str, str, str], list[SkippedFile]] = {}
    unproven: list[SkippedFile] = []
    for file in filter(_is_readable_compressed, skipped):
        if (log := _find_log_of_compressed_file(os.path.join(path, file.name), format)) is not None:
            by_log.setdefault(log, []).append(file)
        else:
            unproven.append(file)
    for file in unproven:
        for log in _guess_logs_of_compressed_file(os.path.join(path, file.name)):
            if log in by_log or any(_is_log_group_named(one, *log) for one in groups):
                by_log.setdefault(log, []).append(file)
                break
    for (directory, format_name, stem), files in by_log.items():
        number, group = next(
            ((n, one) for n, one in enumerate(groups) if _is_log_group_named(one, directory, format_name, stem)),
            (len(groups), LogGroup(directory, formats.load_format(format_name), (), True)),
        )
        by_name = {strip_compressed_suffix(os.path.basename(one.name)): one for one in files}
        added = {name: one for name, one in by_name.items() if name not in group.names}
        if added and (group.names or len(added) > 1):
            groups[number:] = [_add_compressed(group, added), *groups[number + 1 :]]
            members |= set(added.values())
    return groups, members


def _find_log_of_compressed_file(path: str, format: str) -> tuple[str, str, str] | None:
    """Return (directory, format, name stem) of the log that a compressed file belongs to; None if there is none."""
    name = strip_compressed_suffix(os.path.basename(path))
    try:
        file = open_file(path, name, None if format == "auto" else find_format(format), Limits())
    except BinlogtoolError:
        return None
    file.source.close()
    stem = file.format.files.name_stem(name)
    return None if stem is None else (os.path.dirname(path), file.format.name, stem)


def _guess_logs_of_compressed_file(path: str) -> Iterator[tuple[str, str, str]]:
    """Yield (directory, format, name stem) of the logs that a compressed file may belong to by its name."""
    name = strip_compressed_suffix(os.path.basename(path))
    for format_name in formats.find_by_file_name(name):
        stem = formats.load_format(format_name).files.name_stem(name)
        if stem is not None:
            yield os.path.dirname(path), format_name, stem


def _is_log_group_named(group: LogGroup, directory: str, format_name: str, stem: str) -> bool:
    return (
        group.is_set
        and group.format is not None
        and (os.path.normpath(group.path), group.format.name) == (os.path.normpath(directory), format_name)
        and any(group.format.files.name_stem(os.path.basename(name)) == stem for name in group.names)
    )


def _add_compressed(group: LogGroup, files: Mapping[str, SkippedFile]) -> LogGroup:
    """Return the log with these compressed files added as members."""
    assert group.format is not None
    sort_names = group.format.files.sort_names or sorted
    return replace(
        group,
        names=tuple(sort_names([*group.names, *files])),
        compressed={**group.compressed, **{name: os.path.basename(file.name) for name, file in files.items()}},
    )


def verify_live_log(group: LogGroup, path: str, format: str, options: LogVerifyOptions) -> Report:
    """Verify one of the logs at a path to which a server may be writing."""

    def relist() -> LogGroup | None:
        groups = resolve_path_with_compressed(path, format, skip_unlistable=True).groups
        return next((one for one in groups if (one.path, one.format) == (group.path, group.format)), None)

    return verify_until_stable(group, relist, options)
