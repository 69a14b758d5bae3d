"""Verify files and log sets: one scan per file that feeds the format's validator, then the rules for the set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError, LimitError, UsageError, VanishedError
from binlogtool.findings import Finding, Findings, Severity, finding
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.formats.judging import Judge, Member, SetFinding, Verdict
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.limits import Limits
from binlogtool.log import watch
from binlogtool.log.how import How
from binlogtool.log.named import Group
from binlogtool.log.opened_file import Around, LogFile, open_file, volume
from binlogtool.log.scan import Scan
from binlogtool.log.segments import Damage
from binlogtool.log.source import BytesSource
from binlogtool.recovery.report import Failure, FileReport, FileReports, Kept, Report, SetReport, packed, unpacked
from binlogtool.schema import backends

DEPTHS = ("frame", "checksum", "payload", "set")


class Options(msgspec.Struct, frozen=True):
    """How to verify; see `binlogtool.verify`.

    Attributes:
        causes: Findings name the likely cause of damage.
    """

    depth: str = "set"
    limits: Limits = Limits()
    backend: str = "auto"
    live: bool = False
    expect_closed: bool = False
    hints: Hints = Hints()
    causes: bool = False

    @classmethod
    def of(cls, how: How, depth: str, live: bool, expect_closed: bool) -> Options:
        """Create options that report causes, for logs that are read by these read options."""
        return cls(depth, how.limits, how.backend, live, expect_closed, how.hints or Hints(), causes=True)

    def __post_init__(self) -> None:
        if self.depth not in DEPTHS:
            raise UsageError(f"unknown depth {self.depth!r}; one of {', '.join(DEPTHS)}")


_USUAL = Options()
_TOLD: Mapping[str, Any] = MappingProxyType({})
"""Instead of what the report has."""
_NO_ENDS = (None, None)


class Judged(msgspec.Struct, frozen=True):
    """The report on one file with what the rules for the set need. There may be very many: see `pack_report`."""

    kept: Kept
    member: Member
    incomplete: str | None

    @property
    def report(self) -> FileReport:
        """The report on the file."""
        return unpacked(self.kept)

    def named(self, name: str) -> Judged:
        """Return the same file as a member of this name."""
        return replace(self, member=replace(self.member, name=name))


class Examination(msgspec.Struct, frozen=True):
    """What `verify` found in one log.

    Attributes:
        set: The report on the set; None where a single file was named.
        failures: Members that could not be read.
        standalone: The files without the findings of the set.
    """

    files: tuple[Judged, ...]
    set: SetReport | None
    failures: tuple[Failure, ...]
    single: Sequence[Judged]

    @property
    def alone(self) -> dict[str, Judged]:
        """The files without the findings of the set, by name."""
        return {one.member.name: one for one in self.single}

    @property
    def report(self) -> Report:
        """The report on this log."""
        sets = () if self.set is None else (self.set,)
        incomplete = any(one.incomplete for one in self.files)
        return Report(FileReports(one.kept for one in self.files), sets, self.failures, incomplete)


def judge_file(file: LogFile, options: Options) -> Judged:
    """Verify one file in one pass."""
    began = time.perf_counter()
    deep = DEPTHS.index(options.depth) >= DEPTHS.index("payload")
    backend = backends.choose(options.backend)
    window = file.window if file.size is None else None  # a stream cannot be read again
    scan = Scan(file.source, file.format, file.layout, backend, options.limits, deep, options.live, window)
    scan.causes = options.causes
    judge = (
        file.format.judging.judge(file.layout, backend.compile, options.limits)
        if deep and file.layout.readable
        else None
    )
    collected = Findings(options.limits.max_findings_per_id)
    collected.add(file.layout.findings)
    ends = _consume(scan, judge, collected)
    verdict = judge.finish(scan.tail()) if judge else None
    if verdict and scan.incomplete is not None:
        verdict = _unfinished(verdict)
    if verdict:
        collected.add(verdict.findings)
        ends = verdict.sequences if file.format.judging.numbers_by_judge else ends
    collected.add(_closing_findings(scan, file, options))
    report = FileReport(
        path=file.path,
        format=file.format.name,
        variant=file.layout.variant,
        size=scan.end,
        records=_count(scan, file, deep),
        record_types=verdict.record_types if verdict else {},
        transactions=verdict.transactions if verdict else 0,
        durable_end=_durable_end(scan, file, verdict),
        closed=scan.closed,
        bytes=scan.account.as_dict(),
        findings=_expected(_live(collected.all(), options.live), options.expect_closed),
        first_seq=ends[0],
        last_seq=ends[1],
        seconds=time.perf_counter() - began,
        details={
            "frames": scan.frames,
            "depth": options.depth,
            **_unread(scan),
            **(verdict.details if verdict else {}),
        },
    )
    told = replace(verdict, details=_TOLD, record_types=_TOLD, sequences=_NO_ENDS) if verdict else None
    member = Member(file.name, _settled(file), told, scan.tail())
    return Judged(packed(report), member, scan.incomplete or scan.over_ceiling)


def _settled(file: LogFile) -> Layout:
    """Return the part of the layout that is kept after the scan: a directory may have 100,000 files."""
    settled = file.format.reading.settled
    return file.layout if settled is None else settled(file.layout)


def _unfinished(verdict: Verdict) -> Verdict:
    """Remove what a verdict says about the end of a file that was not read to its end."""
    return replace(verdict, findings=(), durable_end=None, details={}, repairable=False)


def _unread(scan: Scan) -> dict[str, int]:
    """Return the number of bytes at the end that were not read, as details."""
    return {"unread": scan.unread} if scan.incomplete is not None else {}


def _count(scan: Scan, file: LogFile, deep: bool) -> int | None:
    """Return the number of records; None at a depth that does not look into frames that hold several."""
    return scan.records if deep or file.layout.rows is None else None


def _durable_end(scan: Scan, file: LogFile, verdict: Verdict | None) -> int | None:
    if not file.layout.readable or (verdict is not None and not verdict.repairable) or scan.incomplete is not None:
        return None
    return scan.good_end if verdict is None or verdict.durable_end is None else verdict.durable_end


def _consume(scan: Scan, judge: Judge | None, collected: Findings) -> tuple[int | None, int | None]:
    """Scan the file, feed the validator and collect findings; return the first and the last sequence number."""
    first = last = None
    for segment in scan.segments():
        batch = segment.kept if isinstance(segment, Damage) else segment
        if isinstance(segment, Damage):
            collected.add(segment.findings)
            if judge:
                judge.damage(segment.start, segment.end)
        if judge and batch is not None:
            collected.add(judge.feed(batch))
            if batch.records.count and not scan.format.judging.numbers_by_judge:
                low, high = _sequences(scan.format, scan.layout.context, batch)
                first, last = low if first is None else first, high
    return first, last


def _sequences(format_: Format, context: Any, batch: Batch) -> tuple[int | None, int | None]:
    count = batch.records.count
    return (
        format_.output.describe(context, batch, 0, 1).seq[0],
        format_.output.describe(context, batch, count - 1, count).seq[0],
    )


def _closing_findings(scan: Scan, file: LogFile, options: Options) -> list[Finding]:
    """Return what only the end of the scan shows: complete records after damage, no end mark, a file that changed."""
    found = []
    if scan.valid_after_damage and scan.landing_after_damage is not None:
        records = "records" if scan.valid_after_damage != 1 else "record"
        text = f"{scan.valid_after_damage:,} complete {records} follow the damage"
        place = scan.landing_after_damage
        found.append(finding("valid-after-damage", place, scan.end - place, text, records=scan.valid_after_damage))
    if scan.closed is False and file.layout.readable and not scan.tail_findings and not options.live:
        unclosed = finding(
            "unclean-close", scan.end, 0, "no end mark: the file was not closed, or is still being written"
        )
        found.append(_explained(file, unclosed))
    if options.expect_closed:
        found = [one.raised_to(max(one.severity, Severity.WARNING)) for one in found]
    changed = file.changed()
    return [*found, changed] if changed else found


def _explained(file: LogFile, found: Finding) -> Finding:
    explain = file.format.judging.explain_damage
    return found if explain is None else explain(file.layout, memoryview(b""), found.offset or 0, found)


def _live(findings: tuple[Finding, ...], live: bool) -> tuple[Finding, ...]:
    """Remove the finding that a live file changed while it was read."""
    return tuple(one for one in findings if not (live and one.id == "changed-while-read"))


def _expected(findings: tuple[Finding, ...], closed: bool) -> tuple[Finding, ...]:
    """Raise the severity of findings about an open end, if the log is expected to be closed."""
    if not closed:
        return findings
    least = {"torn-tail": Severity.ERROR, "unclean-close": Severity.WARNING}
    return tuple(one.raised_to(max(one.severity, least.get(one.id, one.severity))) for one in findings)


def verify_bytes(name: str, data: bytes, *, format: str = "auto", options: Options = _USUAL) -> FileReport:
    """Verify one file that is in memory.

    Raises:
        UnknownFormatError: no format fits.
    """
    from binlogtool.log.detect import by_name

    wanted = None if format == "auto" else by_name(format)
    source = BytesSource(name, data)
    return judge_file(open_file(name, name, wanted, options.limits, source, hints=options.hints), options).report


def verify_group(group: Group, options: Options) -> Report:
    """Verify one log; return its report."""
    return examine(group, options).report


def examine(
    group: Group,
    options: Options,
    opened: Callable[..., LogFile] = open_file,
    known: Mapping[str, Judged] = MappingProxyType({}),
) -> Examination:
    """Verify every file of one log, then the log as a whole, as deep as the options say.

    Args:
        open_member: Opens a file of the log.
        verified: Files that were verified already, by name; they are not read again.
    """
    failures: list[Failure] = []
    judged = list(_members(group, options, failures, opened, known))
    if options.live and group.is_set:
        left = {one.report.path for one in judged} | {one.path for one in failures}  # others were removed meanwhile
        group = replace(group, names=tuple(name for name in group.names if group.member_path(name) in left))
    kept, own = [_incomplete(one) for one in judged], None
    if group.is_set and options.depth == "set" and not _ended_early(judged, failures):
        failed = {one.path for one in failures}
        kept, own = _judge_set(group, judged, kept, [name for name in group.names if group.member_path(name) in failed])
    elif group.is_set:
        own = SetReport(group.path, _format_name(group), group.names, tuple(map(_stray, group.strays)))
    files = tuple(
        one if report is one.kept else replace(one, kept=report) for one, report in zip(judged, kept, strict=True)
    )
    return Examination(files, own, tuple(failures), judged)


def _ended_early(judged: Sequence[Judged], failures: Sequence[Failure]) -> bool:
    """Return True if a limit ended the reading: then the set cannot be validated, because members may not have been
    read.
    """
    return any(one.incomplete is not None and "unread" in one.report.details for one in judged) or any(
        failure.exit_code == LimitError.exit_code for failure in failures
    )


def _members(
    group: Group,
    options: Options,
    failures: list[Failure],
    opened: Callable[..., LogFile],
    known: Mapping[str, Judged],
) -> Iterable[Judged]:
    shared: dict[str, Any] = {}
    watch.begins(volume(group.member_path(name) for name in group.names if name not in known))
    deadline = None if options.limits.timeout is None else time.monotonic() + options.limits.timeout
    for number, name in enumerate(group.names):
        if name in known:
            yield known[name]
            continue
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 and number:
                failures.append(_not_read(group, len(group.names) - number))
                return
            options = replace(options, limits=replace(options.limits, timeout=max(left, 0.001)))
        path = group.member_path(name)
        try:
            file = opened(path, name, group.format, options.limits, around=Around(shared), hints=options.hints)
        except UsageError:
            raise
        except BinlogtoolError as error:
            if not (options.live and group.is_set and isinstance(error, VanishedError)):
                failures.append(Failure(path, str(error), error.exit_code))
            continue
        try:
            yield judge_file(file, options)
        except BinlogtoolError as error:
            failures.append(Failure(path, str(error), error.exit_code))
        finally:
            file.source.close()


def _not_read(group: Group, count: int) -> Failure:
    files = f"{count:,} of {len(group.names):,} files were not read"
    text = f"{files}: the time limit ended the work (--timeout, --max-duration)"
    return Failure(group.path, text, LimitError.exit_code)


def _incomplete(judged: Judged) -> Kept:
    """Return the packed report with the reason why it is incomplete among its details."""
    if judged.incomplete is None:
        return judged.kept
    report = judged.report
    return packed(replace(report, details={**report.details, "incomplete": judged.incomplete}))


def _format_name(group: Group) -> str:
    assert group.format is not None
    return group.format.name


def _judge_set(
    group: Group, judged: Sequence[Judged], reports: list[Kept], failed: Sequence[str]
) -> tuple[list[Kept], SetReport]:
    """Validate the log set; add its findings to the report of the file that they are about, else to the set's.

    Args:
        unreadable: Names of files that exist and could not be read.
    """
    assert group.format is not None
    rules = group.format.judging.judge_set
    unread = [Member(name, None, None, None) for name in (*group.strays, *failed)]
    found = list(rules([*(one.member for one in judged), *unread])) if rules else []
    by_file: dict[str, list[SetFinding]] = {}
    for one in found:
        by_file.setdefault(one.file, []).append(one)
    reports = [
        _with_set_findings(report, by_file.pop(one.member.name)) if one.member.name in by_file else report
        for report, one in zip(reports, judged, strict=True)
    ]
    own = (*map(_stray, group.strays), *(f.finding for f in found if f.file in by_file))
    return reports, SetReport(group.path, group.format.name, group.names, own)


def _stray(name: str) -> Finding:
    """Return the finding for a file that the server would read, but that is not a file of this log."""
    text = f"{name}: named like a file of this log, but nothing in it is one: no head, no record"
    return finding("bad-header", None, 0, text, file=name)


def _with_set_findings(own: Kept, found: list[SetFinding]) -> Kept:
    report = unpacked(own)
    withdrawn = {id_ for f in found for id_ in f.withdraws}
    kept = [one for one in report.findings if one.id not in withdrawn]
    kept += [f.finding for f in found]
    kept.sort(key=lambda one: -1 if one.offset is None else one.offset)
    return packed(replace(report, findings=tuple(kept)))
