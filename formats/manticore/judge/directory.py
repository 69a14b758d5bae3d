"""Rules of a binlog directory: the list in binlog.meta against the files, and TIDs from file to file.

Source: `docs/spec/manticore-binlog.md#121-invariants-for-verify`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

import msgspec

from binlogtool.findings import Severity, finding
from binlogtool.formats.heads import is_corrected
from binlogtool.formats.judging import Member, SetFinding
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.judge.tables import LogFacts
from binlogtool.formats.manticore.layout import LogContext, MetaContext
from binlogtool.formats.manticore.meaning import text

META = "binlog.meta"
MAX_MISSING = 100
"""Missing files of one meta file that are told one by one."""


class Log(msgspec.Struct, frozen=True):
    """One log file of a directory."""

    member: Member
    context: LogContext
    facts: LogFacts | None

    @property
    def base(self) -> str:
        """Name of the file without its directory."""
        return posixpath.basename(self.member.name)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return 0 if self.member.tail is None else self.member.tail.size


def order(names: Sequence[str]) -> list[str]:
    """Sort file names: the meta file first, then the logs by number. (The replay order is that of the meta file.)"""
    return sorted(names, key=_key)


def _key(name: str) -> tuple[str, int, int, str]:
    folder, base = posixpath.split(name)
    end = base.rpartition(".")[2]
    number = int(end) if end.isdecimal() and len(end) < 19 else -1
    return folder, 0 if base == META else 2 if number >= 0 else 1, number, base


def judge_set(members: Sequence[Member]) -> list[SetFinding]:
    """Return all findings about the files together, directory by directory."""
    folders: dict[str, list[Member]] = {}
    for member in members:
        folders.setdefault(posixpath.dirname(member.name), []).append(member)
    return [found for folder, own in folders.items() for found in _judge_folder(folder, own)]


def _judge_folder(folder: str, members: list[Member]) -> Iterator[SetFinding]:
    logs = {}
    meta: MetaContext | None = None
    for member in members:
        context = None if member.layout is None else member.layout.context
        if isinstance(context, MetaContext) and not context.leftover:
            meta = context
        elif isinstance(context, LogContext) and context.number is not None:
            facts = member.verdict.facts if member.verdict is not None else None
            logs[posixpath.basename(member.name)] = Log(member, context, facts)
    meta_name = posixpath.join(folder, META)
    if meta is None:
        yield from _no_meta(meta_name, logs)
        return
    listed = [logs[name] for name in dict.fromkeys(map(meta.name, meta.numbers)) if name in logs]
    yield from _missing(folder, meta, logs)
    yield from _extra(meta, logs)
    yield from _versions(meta, listed)
    yield from _tids(listed)
    yield from _unclosed(listed)


def _no_meta(name: str, logs: dict[str, Log]) -> Iterator[SetFinding]:
    filled = sorted(log.base for log in logs.values() if log.size > schema.HEADER_SIZE)
    if not logs:
        return
    first = "binlog.0000" if any(log.context.new for log in logs.values()) else "binlog.001"
    text_ = (
        f"log files without binlog.meta: the server starts, replays nothing, and overwrites {first} at its first commit"
    )
    severity = Severity.ERROR if filled else Severity.WARNING
    found = finding(
        "missing-member", None, 0, text_, severity=severity, diagnosis="log files without meta", server="overwrite"
    )
    yield SetFinding(name, found)


def _missing(folder: str, meta: MetaContext, logs: dict[str, Log]) -> Iterator[SetFinding]:
    torn = (
        (0,) if meta.count is not None and not meta.whole and not meta.cut else ()
    )  # the server reads a missing number as 0
    wanted = [(number, meta.name(number)) for number in dict.fromkeys((*meta.numbers, *torn))]
    absent = [(number, name) for number, name in wanted if name not in logs]
    there = {log.context.number for log in logs.values()}
    other = [name for number, name in absent if number in there]
    if other:
        text_ = f"files are listed as {other[0]}; the file of that number has a name of another width"
        text_ += "; the server refuses to start"
        found = finding("meta-mismatch", 8, 1, text_, diagnosis="meta digits do not match file names", server="refuse")
        yield SetFinding(posixpath.join(folder, META), found)
    gone = [name for number, name in absent if number not in there]
    for name in gone[:MAX_MISSING]:
        more = f" ({len(gone):,} files are missing in all)" if len(gone) > MAX_MISSING else ""
        text_ = f"listed in binlog.meta, and not there: the server refuses to start{more}"
        found = finding("missing-member", None, 0, text_, diagnosis="meta lists missing file", server="refuse")
        yield SetFinding(posixpath.join(folder, name), found)


def _extra(meta: MetaContext, logs: dict[str, Log]) -> Iterator[SetFinding]:
    """Report logs that are not listed: they are ignored, and overwritten when the server's counter reaches them."""
    if not meta.whole:
        return
    numbers = set(meta.numbers)
    following = max(numbers) + 1 if numbers else 0 if (meta.version or 0) >= schema.NEW_FRAME else 1
    for log in logs.values():
        if log.context.number in numbers:
            continue
        near = log.context.number == following or not numbers
        text_ = "not listed in binlog.meta: the server does not replay it"
        text_ += (
            ", and overwrites it at its first commit" if near else ", and overwrites it when its counter gets there"
        )
        severity = Severity.NOTE if log.size <= schema.HEADER_SIZE else Severity.ERROR if near else Severity.WARNING
        found = finding(
            "extra-member", 0, log.size, text_, severity=severity, diagnosis="orphan log file", server="overwrite"
        )
        yield SetFinding(log.member.name, found)


def _versions(meta: MetaContext, listed: list[Log]) -> Iterator[SetFinding]:
    for log in listed:
        data_there = log.size > schema.HEADER_SIZE
        variant = "" if log.member.layout is None else log.member.layout.variant
        said = variant.partition(" ")[0].rstrip(",")
        flipped = next(filter(is_corrected, log.member.layout.findings if log.member.layout else ()), None)
        if flipped is not None and flipped.facts["said_version"] is not None:
            said = f"v{flipped.facts['said_version']}"
        if data_there and log.context.header in ("whole", "version not known") and said != f"v{meta.version}":
            text_ = f"the header says version {said[1:]}, binlog.meta says {meta.version}: the server refuses to start"
            found = finding("meta-mismatch", 4, 4, text_, diagnosis="header version differs from meta", server="refuse")
            found = found if flipped is None else found.raised_to(Severity.WARNING)  # the flipped bit is the error
            yield SetFinding(log.member.name, found)


def _tids(listed: list[Log]) -> Iterator[SetFinding]:
    """Check that the TIDs of a table continue from file to file, in the order of the meta file."""
    last: dict[bytes, tuple[int, bool]] = {}
    for log in listed:
        for name, (first, end, _, at) in (log.facts.tables if log.facts else {}).items():
            if first is None:
                continue
            before, damaged = last.get(name, (None, False))
            stop = None if log.facts is None else log.facts.stop
            if before is None and first > 1 and (stop is None or at < stop):
                text_ = (
                    f"table {text(name)} starts with TID {first}: those before it are saved in the table, or missing"
                )
                found = finding("gap-in-sequence", at, 0, text_, severity=Severity.NOTE, diagnosis="TID gap")
                yield SetFinding(log.member.name, found)
            if before is not None and first > before + 1 and not damaged:
                text_ = f"table {text(name)} goes on with TID {first} after {before}: flushed in between, or lost"
                found = finding(
                    "gap-in-sequence", 0, log.size, text_, severity=Severity.NOTE, diagnosis="TID gap between files"
                )
                yield SetFinding(log.member.name, found)
            elif before is not None and first <= before:
                text_ = f"table {text(name)} starts with TID {first}, a file before it reached {before}: "
                text_ += "the server silently ignores these transactions"
                id_ = "duplicate-sequence" if first == before else "sequence-regression"
                yield SetFinding(
                    log.member.name, finding(id_, 0, log.size, text_, diagnosis="TIDs not rising between files")
                )
            assert log.facts is not None
            last[name] = (max(end, before or 0), log.facts.damaged)


def _unclosed(listed: list[Log]) -> Iterator[SetFinding]:
    """Report files that another one follows, and that were not closed in order."""
    later: set[bytes] = set()
    for log in reversed(listed):
        tables = set(log.facts.tables) if log.facts else set()
        if tables & later and log.facts is not None and not log.facts.closed and log.facts.stop is None:
            text_ = "no ADD_CACHE although another file of its tables follows: the server was killed in between"
            yield SetFinding(
                log.member.name, finding("unclean-close", log.size, 0, text_, diagnosis="ADD_CACHE missing")
            )
        later |= tables
