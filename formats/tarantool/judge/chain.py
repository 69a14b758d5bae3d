"""Rules of a data directory: the chain of logs, its snapshots, its vinyl files.

Source: `docs/spec/tarantool-xlog.md#3-xlog-sets`, `#5-vinyl-files`, `#61-verify-invariants`.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.heads import is_corrected
from binlogtool.formats.judging import Member, SetFinding
from binlogtool.formats.tarantool.codes import LAST_SYSTEM_SPACE, FileKind
from binlogtool.formats.tarantool.judge.common import ranges
from binlogtool.formats.tarantool.judge.log import LogFacts
from binlogtool.formats.tarantool.judge.snap import SnapFacts
from binlogtool.formats.tarantool.judge.vinyl import VylogFacts
from binlogtool.formats.tarantool.judge.vinyl_set import judge_vinyl
from binlogtool.formats.tarantool.layout.header import write_vclock
from binlogtool.formats.tarantool.layout.layout import FileContext

_RUN_FOLDER = re.compile(r"(.*?)/?\d+/\d+")
_BROKEN_HEADER = ("bad_header", "bad_header_type", "bad_header_version", "bad_vclock", "vclock_name_mismatch")


class File(msgspec.Struct, frozen=True):
    """One file of a set with its context.

    Attributes:
        has_valid_header: the header is readable and not contradicted.
    """

    member: Member
    context: FileContext
    sound: bool

    @property
    def name(self) -> str:
        """Name relative to the set."""
        return self.member.name

    @property
    def facts(self) -> Any:
        """Facts that the validator of the file collected, or None."""
        return self.member.verdict.facts if self.member.verdict else None

    def sibling(self, number: int, suffix: str) -> str:
        """Return the name of another file of the same directory."""
        return posixpath.join(posixpath.dirname(self.name), f"{number:020d}.{suffix}")


def judge_set(members: Sequence[Member]) -> list[SetFinding]:
    """Return all findings about the files together, directory by directory."""
    folders: dict[str, list[File]] = {}
    unfinished: set[str] = set()
    for member in members:
        if member.layout is not None and _takes_part(member.layout.context):
            folders.setdefault(_folder(member), []).append(_file(member))
        elif member.name.endswith(".inprogress"):
            unfinished.add(member.name)
    return [found for files in folders.values() for found in _judge_folder(files, unfinished)]


def _takes_part(context: FileContext) -> bool:
    """Check that the server reads a file of this name."""
    return context.number is not None and not context.suffix


def _folder(member: Member) -> str:
    """Return the data directory of a file: runs lie two levels deeper."""
    folder = posixpath.dirname(member.name)
    assert member.layout is not None
    deeper = _RUN_FOLDER.fullmatch(folder) if member.layout.context.kind in (FileKind.RUN, FileKind.INDEX) else None
    return deeper[1] if deeper else folder


def _file(member: Member) -> File:
    layout = member.layout
    assert layout is not None
    broken = any(
        f.facts.get("diagnosis") in _BROKEN_HEADER
        or (f.facts.get("diagnosis") == "unknown_header_key" and f.severity is Severity.ERROR)
        for f in layout.findings
        if not is_corrected(f)
    )
    return File(member, layout.context, layout.readable and not broken)


def _of(files: list[File], kind: FileKind) -> list[File]:
    """Select the files of one kind that have a valid header, oldest first."""
    return sorted((f for f in files if f.context.kind is kind and f.sound), key=lambda f: f.context.signature)


def _judge_folder(files: list[File], unfinished: set[str]) -> Iterator[SetFinding]:
    """Yield the findings about the files of one data directory."""
    logs, snaps, vylogs = (_of(files, kind) for kind in (FileKind.XLOG, FileKind.SNAP, FileKind.VYLOG))
    present = {posixpath.basename(name) for f in files for name in (f.name, *_own_names(f))}
    yield from _instances(files)
    yield from _short_names(files)
    yield from _in_the_way(snaps, vylogs, unfinished)
    chain = [found for pair in pairwise(logs) for found in _pair(*pair, present)]
    chain += _start(logs, snaps, present)
    yield from chain
    yield from _checkpoints(snaps, vylogs, present)
    if not any(found.finding.id in ("missing-member", "gap-in-sequence") for found in chain):
        yield from _references(files, logs, snaps)
    yield from _outdated(logs, snaps)
    yield from judge_vinyl(files, vylogs)


def _own_names(file: File) -> tuple[str, ...]:
    """Return the name that a file's VClock asks for (it counts as present even if the file was renamed), or ()."""
    kind = file.context.kind
    return (file.sibling(file.context.signature, kind.lower()),) if kind and file.context.vclock else ()


# -- names -------------------------------------------------------------------------------------------------------------


def _short_names(files: list[File]) -> Iterator[SetFinding]:
    """Report names without 20 digits: the server lists them, then opens the file of that number (`xdir_scan`)."""
    names = {f.name for f in files}
    for f in files:
        kind, number = f.context.kind, f.context.number
        if kind not in (FileKind.XLOG, FileKind.SNAP, FileKind.VYLOG) or number is None:
            continue
        name = f.sibling(number, kind.lower())
        if name != f.name:
            text = "the name has not 20 digits: the server does not start, it opens "
            text += posixpath.basename(name) + (" for this one, too" if name in names else ", which is not there")
            yield SetFinding(f.name, finding("meta-mismatch", 0, 0, text, diagnosis="name_not_20_digits"))


def _in_the_way(snaps: list[File], vylogs: list[File], unfinished: set[str]) -> Iterator[SetFinding]:
    """Report a leftover file that the server fails to create at start-up because it exists
    (`vy_log_begin_recovery`).
    """
    if not snaps or not vylogs or _same(snaps[-1].context.vclock, vylogs[-1].context.vclock):
        return
    facts, name = vylogs[-1].facts, snaps[-1].sibling(snaps[-1].context.signature, "vylog.inprogress")
    if name in unfinished and isinstance(facts, VylogFacts) and facts.state.trees:
        text = "the server makes this file when it starts, and does not start where it exists: take it away"
        found = finding("extra-member", 0, 0, text, severity=Severity.ERROR, diagnosis="inprogress_in_the_way")
        yield SetFinding(name, found)


# -- headers -----------------------------------------------------------------------------------------------------------


def _instances(files: list[File]) -> Iterator[SetFinding]:
    """Check that all files of a directory are written by one instance."""
    stated = [f for f in files if f.context.instance]
    if len({f.context.instance for f in stated}) < 2:
        return
    usual, _ = Counter(f.context.instance for f in stated).most_common(1)[0]
    for f in stated:
        if f.context.instance != usual and not any(x.facts.get("diagnosis") == "bad_uuid" for x in _header_findings(f)):
            text = f"instance {f.context.instance}, the other files say {usual}"
            yield SetFinding(f.name, _line_finding(f, "instance", text, "instance_uuid_mismatch"))


def _header_findings(file: File) -> tuple[Finding, ...]:
    assert file.member.layout is not None
    return file.member.layout.findings


def _line_finding(file: File, name: str, text: str, diagnosis: str) -> Finding:
    line = file.context.text.line(name)
    place = (line.start, line.end - line.start) if line else (0, 0)
    return finding("meta-mismatch", *place, text, diagnosis=diagnosis)


# -- the chain of logs -------------------------------------------------------------------------------------------------


def _same(a: dict[int, int], b: dict[int, int]) -> bool:
    return {k: v for k, v in a.items() if v} == {k: v for k, v in b.items() if v}


def _pair(before: File, after: File, present: set[str]) -> Iterator[SetFinding]:
    """Check that PrevVClock(next) = VClock(this), and that VClock(next) = VClock(this) + rows."""
    previous = after.context.prev_vclock
    if previous is not None and not _same(previous, before.context.vclock):
        number = sum(previous.values())
        between = before.context.signature < number < after.context.signature
        name = after.sibling(number, "xlog")
        if between:
            if posixpath.basename(name) not in present:
                yield _missing(name, f"{after.name} names its predecessor {write_vclock(previous)}, which is not there")
            return
        own = write_vclock(before.context.vclock)
        text = f"PrevVClock {write_vclock(previous)}, the file before ({before.name}) has {own}"
        yield SetFinding(after.name, _line_finding(after, "prev_vclock", text, "prev_vclock_mismatch"))
    facts = before.facts
    if isinstance(facts, LogFacts):
        yield from _rows_between(before, after, facts)


def _missing(name: str, text: str, diagnosis: str = "missing_file") -> SetFinding:
    return SetFinding(name, finding("missing-member", None, 0, text, diagnosis=diagnosis))


def _rows_between(before: File, after: File, facts: LogFacts) -> Iterator[SetFinding]:
    """Report rows that the next file's VClock counts and this file lacks, or the other way round."""
    state, start = facts.vclock, after.context.vclock
    missing = [(r, state.get(r, 0) + 1, lsn) for r, lsn in sorted(start.items()) if lsn > state.get(r, 0)]
    tail = before.member.tail
    if missing and tail is not None:
        words = ", ".join(f"{ranges((first, last))} of replica {replica}" for replica, first, last in missing)
        torn = [f for f in tail.findings if f.id in ("torn-tail", "zero-tail", "garbage-tail")]
        text = f"LSN {words}: missing between the end of this file and VClock {write_vclock(start)} of {after.name}"
        lost = [list(one) for one in missing]
        diagnosis = "torn_middle_file" if torn else "lsn_gap"
        found = finding("gap-in-sequence", tail.end, tail.size - tail.end, text, diagnosis=diagnosis, lost=lost)
        yield SetFinding(before.name, found, withdraws=tuple(f.id for f in torn))
    ahead = [(r, start.get(r, 0), lsn) for r, lsn in sorted(state.items()) if lsn > start.get(r, 0)]
    if ahead:
        words = ", ".join(f"LSN {lsn} of replica {replica}" for replica, _, lsn in ahead)
        text = f"{before.name} reaches {words}: more than VClock {write_vclock(start)} of this file counts"
        yield SetFinding(after.name, _line_finding(after, "vclock", text, "vclock_behind_rows"))


def _start(logs: list[File], snaps: list[File], present: set[str]) -> Iterator[SetFinding]:
    """Check that some log begins at or before the newest snapshot."""
    if not logs or not snaps:
        return
    newest = snaps[-1].context
    if newest.signature < logs[0].context.signature:
        previous = logs[0].context.prev_vclock
        number = newest.signature if previous is None else min(sum(previous.values()), newest.signature)
        name = logs[0].sibling(number, "xlog")
        if posixpath.basename(name) not in present:
            text = f"no log covers the rows between the snapshot {newest.signature} and {logs[0].name}"
            yield _missing(name, text)


def _outdated(logs: list[File], snaps: list[File]) -> Iterator[SetFinding]:
    """Report, in one note, the logs that no snapshot needs any more and that the server has not collected yet."""
    oldest = snaps[0].context.signature if snaps else 0
    old = [log for log, following in pairwise(logs) if snaps and following.context.signature <= oldest]
    if old:
        what = "older than the oldest snapshot and not collected yet: the server does not read it"
        if len(old) > 1:
            what = f"this and {len(old) - 1} more logs, to {old[-1].name}, are {what.replace(' it', ' them')}"
        found = finding(
            "extra-member", 0, 0, what, severity=Severity.NOTE, diagnosis="older_than_snapshots", files=len(old)
        )
        yield SetFinding(old[0].name, found)


def _checkpoints(snaps: list[File], vylogs: list[File], present: set[str]) -> Iterator[SetFinding]:
    """Check that each checkpoint has a snapshot and, where vinyl is in use, a metadata log of the same number."""
    if not vylogs or not snaps:
        return  # snapshots and vinyl files may be kept in separate directories
    newest_vylog, newest_snap = vylogs[-1], snaps[-1]
    number = newest_vylog.context.signature
    name = newest_vylog.sibling(number, "snap")
    if newest_snap.context.signature < number and posixpath.basename(name) not in present:
        text = f"{newest_vylog.name} is there, its snapshot is not: the server does not start"
        yield _missing(name, text, "snapshot_missing")
    if newest_snap.context.signature > number and _uses_vinyl(newest_vylog):
        name = newest_snap.sibling(newest_snap.context.signature, "vylog")
        if posixpath.basename(name) not in present:
            yield _missing(name, f"{newest_snap.name} is there, its vinyl metadata log is not")


def _uses_vinyl(vylog: File) -> bool:
    return isinstance(vylog.facts, VylogFacts) and bool(vylog.facts.state.trees)


def _references(files: list[File], logs: list[File], snaps: list[File]) -> Iterator[SetFinding]:
    """Report rows of spaces that no file defines; only where every `_space` row is known to have been read."""
    whole = [s for s in snaps if isinstance(s.facts, SnapFacts) and s.facts.whole]
    if not whole or not all(f.sound for f in files):
        return
    known: set[int] = set().union(*(s.facts.defined for s in whole))
    oldest = whole[0].context.signature
    covered = [log for log in logs if isinstance(log.facts, LogFacts) and log.context.signature >= oldest]
    if any(log.facts.damaged or log.facts.lost for log in covered):
        return
    for log in covered:
        known |= log.facts.defined
    for log in covered:
        for space, place in log.facts.used.items():
            if space > LAST_SYSTEM_SPACE and space not in known:
                text = f"a row of space {space}: no snapshot and no log of this directory has such a space"
                found = finding(
                    "dangling-reference", place.offset, place.size, text, record=place.record,
                    diagnosis="zstd_content_wrong", space=space,
                )  # fmt: skip
                yield SetFinding(log.name, found)
