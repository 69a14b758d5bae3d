"""Validate a data directory: the chain of logs, its snapshots, its vinyl files.

Source: `docs/spec/tarantool.md#log-sets`, `#vinyl-files`, `#validation`.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileLink, SetFinding, SetMember, Validator, is_header_correction
from binlogtool.formats.tarantool.codes import BOX_SYSTEM_ID_MAX, END_MARK, FileKind
from binlogtool.formats.tarantool.schema import format_vclock
from binlogtool.formats.tarantool.validate.base_validator import TarantoolValidator, format_range
from binlogtool.formats.tarantool.validate.vinyl import (
    IndexValidator,
    RunValidator,
    VylogFacts,
    VylogValidator,
    validate_vinyl_files,
)
from binlogtool.formats.tarantool.validate.xlog_and_snap import SnapFacts, SnapValidator, XlogFacts, XlogValidator

if TYPE_CHECKING:
    from binlogtool.format_api.layout import Kernel, LogFileLayout
    from binlogtool.formats.tarantool.decode import TarantoolContext
    from binlogtool.limits import Limits

__all__ = ["create_validator", "find_log_directory", "is_link_proven", "sort_names", "validate_set"]


# --- Rules of a data directory ---

_RUN_DIRECTORY = re.compile(r"(.*?)/?\d+/\d+")
_BROKEN_HEADER_DIAGNOSES = ("bad_header", "bad_header_type", "bad_header_version", "bad_vclock", "vclock_name_mismatch")


class TarantoolMember(msgspec.Struct, frozen=True):
    """One file of a set with its context. has_valid_header: the header is readable and nothing contradicts it."""

    member: SetMember
    context: TarantoolContext
    has_valid_header: bool

    @property
    def name(self) -> str:
        """Name relative to the set."""
        return self.member.name

    @property
    def facts(self) -> Any:
        """Facts that the validator of the file collected, or None."""
        return self.member.verdict.facts if self.member.verdict else None

    def sibling_name(self, number: int, suffix: str) -> str:
        """Return the name of another file of the same directory."""
        return posixpath.join(posixpath.dirname(self.name), f"{number:020d}.{suffix}")


def validate_set(members: Sequence[SetMember]) -> list[SetFinding]:
    """Return all findings about the files together, directory by directory."""
    directories: dict[str, list[TarantoolMember]] = {}
    unread: set[str] = set()
    for member in members:
        if member.layout is not None and _is_read_by_server(member.layout.context):
            directories.setdefault(_find_data_directory(member), []).append(_create_member(member))
        else:
            unread.add(member.name)
    return [found for files in directories.values() for found in _validate_directory(files, unread)]


def _is_read_by_server(context: TarantoolContext) -> bool:
    """Return whether the server reads a file of this name."""
    return context.number is not None and not context.suffix


def _find_data_directory(member: SetMember) -> str:
    """Return the data directory of a file: runs lie two levels deeper."""
    directory = posixpath.dirname(member.name)
    assert member.layout is not None
    run_directory = (
        _RUN_DIRECTORY.fullmatch(directory) if member.layout.context.kind in (FileKind.RUN, FileKind.INDEX) else None
    )
    return run_directory[1] if run_directory else directory


def _create_member(member: SetMember) -> TarantoolMember:
    layout = member.layout
    assert layout is not None
    broken = any(
        f.facts.get("diagnosis") in _BROKEN_HEADER_DIAGNOSES
        or (f.facts.get("diagnosis") == "unknown_header_key" and f.severity is Severity.ERROR)
        for f in layout.findings
        if not is_header_correction(f)
    )
    return TarantoolMember(member, layout.context, layout.readable and not broken)


def _select_kind(files: list[TarantoolMember], kind: FileKind) -> list[TarantoolMember]:
    """Select the files of one kind that have a valid header, oldest first."""
    return sorted(
        (f for f in files if f.context.kind is kind and f.has_valid_header), key=lambda f: f.context.signature
    )


def _validate_directory(files: list[TarantoolMember], unread: set[str]) -> Iterator[SetFinding]:
    """Yield the findings about the files of one data directory. unread: names of files that were not read."""
    logs, snaps, vylogs = (_select_kind(files, kind) for kind in (FileKind.XLOG, FileKind.SNAP, FileKind.VYLOG))
    present = {posixpath.basename(name) for f in files for name in (f.name, *_name_by_vclock(f))}
    present |= set(map(posixpath.basename, unread))
    yield from _report_foreign_instances(files)
    yield from _check_name_digits(files)
    yield from _report_blocking_unfinished_vylog(snaps, vylogs, unread)
    chain = [found for pair in pairwise(logs) for found in _check_adjacent_logs(*pair, present)]
    chain += _check_first_log_reaches_snapshot(logs, snaps, present)
    yield from chain
    yield from _report_missing_checkpoint_files(snaps, vylogs, present)
    if not any(found.finding.id in ("missing-member", "gap-in-sequence") for found in chain):
        yield from _check_space_references(files, logs, snaps)
    yield from _report_logs_older_than_snapshots(logs, snaps)
    yield from validate_vinyl_files(files, vylogs)


def _name_by_vclock(file: TarantoolMember) -> tuple[str, ...]:
    """Return the name that follows from a file's VClock (it counts as present even if the file was renamed), or ()."""
    kind = file.context.kind
    return (file.sibling_name(file.context.signature, kind.lower()),) if kind and file.context.vclock else ()


# -- names -------------------------------------------------------------------------------------------------------------


def _check_name_digits(files: list[TarantoolMember]) -> Iterator[SetFinding]:
    """Report names without 20 digits: the server lists them, but then opens the file of that number with 20 digits."""
    names = {f.name for f in files}
    for f in files:
        kind, number = f.context.kind, f.context.number
        if kind not in (FileKind.XLOG, FileKind.SNAP, FileKind.VYLOG) or number is None:
            continue
        name = f.sibling_name(number, kind.lower())
        if name != f.name:
            text = "the name does not have 20 digits: the server does not start; it opens "
            text += posixpath.basename(name) + (" for this one as well" if name in names else ", which does not exist")
            yield SetFinding(f.name, make_finding("meta-mismatch", 0, 0, text, diagnosis="name_not_20_digits"))


def _report_blocking_unfinished_vylog(
    snaps: list[TarantoolMember], vylogs: list[TarantoolMember], unread: set[str]
) -> Iterator[SetFinding]:
    """Report a leftover file that the server tries to create at start-up and fails (`vy_log_begin_recovery`)."""
    if not snaps or not vylogs or _is_same_vclock(snaps[-1].context.vclock, vylogs[-1].context.vclock):
        return
    facts, name = vylogs[-1].facts, snaps[-1].sibling_name(snaps[-1].context.signature, "vylog.inprogress")
    if name in unread and isinstance(facts, VylogFacts) and facts.state.trees:
        text = "the server creates this file at start-up and does not start while it exists: remove it"
        found = make_finding("extra-member", 0, 0, text, severity=Severity.ERROR, diagnosis="inprogress_in_the_way")
        yield SetFinding(name, found)


# -- headers -----------------------------------------------------------------------------------------------------------


def _report_foreign_instances(files: list[TarantoolMember]) -> Iterator[SetFinding]:
    """Check that all files of a directory were written by one instance."""
    files_with_instance = [f for f in files if f.context.instance]
    if len({f.context.instance for f in files_with_instance}) < 2:
        return
    common_instance, _ = Counter(f.context.instance for f in files_with_instance).most_common(1)[0]
    for f in files_with_instance:
        if f.context.instance != common_instance and not any(
            x.facts.get("diagnosis") == "bad_uuid" for x in _get_header_findings(f)
        ):
            text = f"instance {f.context.instance}, the other files say {common_instance}"
            yield SetFinding(f.name, _create_line_finding(f, "instance", text, "instance_uuid_mismatch"))


def _get_header_findings(file: TarantoolMember) -> tuple[Finding, ...]:
    assert file.member.layout is not None
    return file.member.layout.findings


def _create_line_finding(file: TarantoolMember, name: str, text: str, diagnosis: str) -> Finding:
    line = file.context.text.get_line(name)
    place = (line.start, line.end - line.start) if line else (0, 0)
    return make_finding("meta-mismatch", *place, text, diagnosis=diagnosis)


# -- the chain of logs -------------------------------------------------------------------------------------------------


def _is_same_vclock(a: dict[int, int], b: dict[int, int]) -> bool:
    return {k: v for k, v in a.items() if v} == {k: v for k, v in b.items() if v}


def is_link_proven(link: FileLink) -> bool:
    """Return whether a log ends with its end mark and the next one names its VClock; other files are no chain."""
    before, after = link.before_layout.context, link.after_layout.context
    if not all(one.kind is FileKind.XLOG and _is_read_by_server(one) for one in (before, after)):
        return True
    previous = after.prev_vclock
    return previous is not None and _is_same_vclock(previous, before.vclock) and link.read_end().endswith(END_MARK)


def _check_adjacent_logs(before: TarantoolMember, after: TarantoolMember, present: set[str]) -> Iterator[SetFinding]:
    """Check that PrevVClock(next) = VClock(this), and that VClock(next) = VClock(this) + rows."""
    previous = after.context.prev_vclock
    if previous is not None and not _is_same_vclock(previous, before.context.vclock):
        number = sum(previous.values())
        between = before.context.signature < number < after.context.signature
        name = after.sibling_name(number, "xlog")
        if between:
            if posixpath.basename(name) not in present:
                lost = _describe_rows_between(before, after)
                text = f"{posixpath.basename(name)} does not exist{lost}; {posixpath.basename(after.name)} follows it"
                text = f"{text} (PrevVClock {format_vclock(previous)})"
                yield _report_missing_file(name, text, between=True)
            return
        vclock_text = format_vclock(before.context.vclock)
        text = f"PrevVClock {format_vclock(previous)}, the file before ({before.name}) has {vclock_text}"
        yield SetFinding(after.name, _create_line_finding(after, "prev_vclock", text, "prev_vclock_mismatch"))
    facts = before.facts
    if isinstance(facts, XlogFacts):
        yield from _compare_rows_with_next_vclock(before, after, facts)


def _describe_rows_between(before: TarantoolMember, after: TarantoolMember) -> str:
    """Return the LSNs between two logs as text, or "" if they are not known."""
    facts = before.facts
    if not isinstance(facts, XlogFacts):
        return ""
    ranges = [
        f"{format_range((facts.vclock.get(replica, 0) + 1, lsn))} of replica {replica}"
        for replica, lsn in sorted(after.context.vclock.items())
        if lsn > facts.vclock.get(replica, 0)
    ]
    return f": LSN {', '.join(ranges)} lost" if ranges else ""


def _report_missing_file(name: str, text: str, diagnosis: str = "missing_file", **facts: Any) -> SetFinding:
    return SetFinding(name, make_finding("missing-member", None, 0, text, diagnosis=diagnosis, **facts))


def _compare_rows_with_next_vclock(
    before: TarantoolMember, after: TarantoolMember, facts: XlogFacts
) -> Iterator[SetFinding]:
    """Report rows that the next file's VClock counts and this file lacks, or vice versa."""
    state, start = facts.vclock, after.context.vclock
    missing = [(r, state.get(r, 0) + 1, lsn) for r, lsn in sorted(start.items()) if lsn > state.get(r, 0)]
    tail = before.member.tail
    if missing and tail is not None:
        words = ", ".join(f"{format_range((first, last))} of replica {replica}" for replica, first, last in missing)
        torn = [f for f in tail.findings if f.id in ("torn-tail", "zero-tail", "garbage-tail")]
        text = f"LSN {words} are missing between the end of this file and VClock {format_vclock(start)} of {after.name}"
        lost = [list(one) for one in missing]
        diagnosis = "torn_middle_file" if torn else "lsn_gap"
        found = make_finding("gap-in-sequence", tail.end, tail.size - tail.end, text, diagnosis=diagnosis, lost=lost)
        yield SetFinding(before.name, found, replaces_ids=tuple(f.id for f in torn))
    ahead = [(r, start.get(r, 0), lsn) for r, lsn in sorted(state.items()) if lsn > start.get(r, 0)]
    if ahead:
        words = ", ".join(f"LSN {lsn} of replica {replica}" for replica, _, lsn in ahead)
        text = f"{before.name} reaches {words}: more than VClock {format_vclock(start)} of this file counts"
        yield SetFinding(after.name, _create_line_finding(after, "vclock", text, "vclock_behind_rows"))


def _check_first_log_reaches_snapshot(
    logs: list[TarantoolMember], snaps: list[TarantoolMember], present: set[str]
) -> Iterator[SetFinding]:
    """Check that a log begins at or before the newest snapshot."""
    if not logs or not snaps:
        return
    newest = snaps[-1].context
    if newest.signature < logs[0].context.signature:
        previous = logs[0].context.prev_vclock
        number = newest.signature if previous is None else min(sum(previous.values()), newest.signature)
        name = logs[0].sibling_name(number, "xlog")
        if posixpath.basename(name) not in present:
            text = f"{posixpath.basename(name)} does not exist: "
            text += f"no log covers the rows between the snapshot {newest.signature} and {logs[0].name}"
            yield _report_missing_file(name, text)


def _report_logs_older_than_snapshots(
    logs: list[TarantoolMember], snaps: list[TarantoolMember]
) -> Iterator[SetFinding]:
    """Report, in one note, logs that no snapshot needs any more and that the server has not yet removed."""
    oldest = snaps[0].context.signature if snaps else 0
    outdated = [log for log, following in pairwise(logs) if snaps and following.context.signature <= oldest]
    if outdated:
        message = "older than the oldest snapshot and not collected yet: the server does not read it"
        if len(outdated) > 1:
            message = (
                f"this and {len(outdated) - 1} more logs, to {outdated[-1].name}, are {message.replace(' it', ' them')}"
            )
        found = make_finding(
            "extra-member", 0, 0, message, severity=Severity.NOTE, diagnosis="older_than_snapshots", files=len(outdated)
        )
        yield SetFinding(outdated[0].name, found)


def _report_missing_checkpoint_files(
    snaps: list[TarantoolMember], vylogs: list[TarantoolMember], present: set[str]
) -> Iterator[SetFinding]:
    """Check that each checkpoint has a snapshot and, where vinyl is in use, a metadata log of the same number."""
    if not vylogs or not snaps:
        return  # snapshots and vinyl files may be kept in separate directories
    newest_vylog, newest_snap = vylogs[-1], snaps[-1]
    number = newest_vylog.context.signature
    name = newest_vylog.sibling_name(number, "snap")
    if newest_snap.context.signature < number and posixpath.basename(name) not in present:
        text = f"{newest_vylog.name} exists, its snapshot does not: the server does not start"
        yield _report_missing_file(name, text, "snapshot_missing")
    if newest_snap.context.signature > number and _uses_vinyl(newest_vylog):
        name = newest_snap.sibling_name(newest_snap.context.signature, "vylog")
        if posixpath.basename(name) not in present:
            yield _report_missing_file(name, f"{newest_snap.name} exists, its vinyl metadata log does not")


def _uses_vinyl(vylog: TarantoolMember) -> bool:
    return isinstance(vylog.facts, VylogFacts) and bool(vylog.facts.state.trees)


def _check_space_references(
    files: list[TarantoolMember], logs: list[TarantoolMember], snaps: list[TarantoolMember]
) -> Iterator[SetFinding]:
    """Report rows of undefined spaces; only if every `_space` row is known to have been read."""
    complete_snapshots = [s for s in snaps if isinstance(s.facts, SnapFacts) and s.facts.whole]
    if not complete_snapshots or not all(f.has_valid_header for f in files):
        return
    defined_spaces: set[int] = set().union(*(s.facts.defined for s in complete_snapshots))
    oldest = complete_snapshots[0].context.signature
    covered = [log for log in logs if isinstance(log.facts, XlogFacts) and log.context.signature >= oldest]
    if any(log.facts.damaged or log.facts.lost for log in covered):
        return
    for log in covered:
        defined_spaces |= log.facts.defined
    for log in covered:
        for space, place in log.facts.used.items():
            if space > BOX_SYSTEM_ID_MAX and space not in defined_spaces:
                text = f"a row of space {space}: no snapshot and no log of this directory defines it"
                found = make_finding(
                    "dangling-reference", place.offset, place.size, text, record=place.record,
                    diagnosis="zstd_content_wrong", space=space,
                )  # fmt: skip
                yield SetFinding(log.name, found)


# --- Entry points of validation ---

_VALIDATORS: dict[FileKind, type[TarantoolValidator]] = {
    FileKind.XLOG: XlogValidator,
    FileKind.SNAP: SnapValidator,
    FileKind.VYLOG: VylogValidator,
    FileKind.RUN: RunValidator,
    FileKind.INDEX: IndexValidator,
}
_SUFFIX_ORDER = (".snap", ".vylog", ".xlog", ".index", ".run")
_NUMBERED_NAME = re.compile(r"(\d+)\..*")
_VINYL_PATH = re.compile(r"(.*/)?\d+/\d+/[^/]+\.(?:run|index)(?:\.inprogress)?")


def create_validator(layout: LogFileLayout, compile_: Callable[[Kernel], Kernel], limits: Limits) -> Validator:
    """Create the validator for a file of this kind."""
    kind: FileKind = layout.context.kind
    return _VALIDATORS[kind](layout, compile_, limits)


def sort_names(names: Sequence[str]) -> list[str]:
    """Sort file names by directory; then snapshots, metadata logs, logs, indexes, runs; each by its number."""
    return sorted(names, key=_make_sort_key)


def find_log_directory(name: str) -> str:
    """Return the data directory of a file: vinyl files lie in `<space id>/<index id>/` below it.

    Source: `docs/spec/tarantool.md#vinyl-files`.
    """
    vinyl_path = _VINYL_PATH.fullmatch(name)
    return (vinyl_path[1] or "").rstrip("/") if vinyl_path else posixpath.dirname(name)


def _make_sort_key(name: str) -> tuple[tuple[int, str], int, int, str]:
    folder, base = posixpath.split(name)
    number = _NUMBERED_NAME.fullmatch(base)
    kind = next((i for i, suffix in enumerate(_SUFFIX_ORDER) if suffix in base), len(_SUFFIX_ORDER))
    return (folder.count("/") + bool(folder), folder), kind, int(number[1]) if number else 0, base
