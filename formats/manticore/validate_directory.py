"""Rules of a binlog directory: which files there are, their versions, and the transaction numbers of each table."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import msgspec

from binlogtool.findings import Severity, make_finding
from binlogtool.format_api.format import (
    FileLink,
    SetFinding,
    SetMember,
    is_header_correction,
)
from binlogtool.format_api.schema_fields import (
    decode_text,
)
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.decode import (
    ManticoreLogContext,
    MetaContext,
)
from binlogtool.formats.manticore.validate import ManticoreLogFacts

# --- Rules of a binlog directory ---

META_NAME = "binlog.meta"
MAX_MISSING = 100
"""Maximum number of missing files of one meta file that are reported one by one."""


class ManticoreLog(msgspec.Struct, frozen=True):
    """One log file of a directory."""

    member: SetMember
    context: ManticoreLogContext
    facts: ManticoreLogFacts | None

    @property
    def base_name(self) -> str:
        """Name of the file without its directory."""
        return posixpath.basename(self.member.name)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return 0 if self.member.tail is None else self.member.tail.size


def sort_names(names: Sequence[str]) -> list[str]:
    """Sort file names: the meta file first, then the logs by number (the replay order is that of the meta file)."""
    return sorted(names, key=_make_sort_key)


def _make_sort_key(name: str) -> tuple[str, int, int, str]:
    folder, base = posixpath.split(name)
    end = base.rpartition(".")[2]
    number = int(end) if end.isdecimal() and len(end) < 19 else -1
    return folder, 0 if base == META_NAME else 2 if number >= 0 else 1, number, base


def validate_set(members: Sequence[SetMember]) -> list[SetFinding]:
    """Return all findings about the files together, directory by directory."""
    directories: dict[str, list[SetMember]] = {}
    for member in members:
        directories.setdefault(posixpath.dirname(member.name), []).append(member)
    return [found for folder, own in directories.items() for found in _validate_directory(folder, own)]


def _validate_directory(directory: str, members: list[SetMember]) -> Iterator[SetFinding]:
    logs = {}
    meta: MetaContext | None = None
    for member in members:
        context = None if member.layout is None else member.layout.context
        if isinstance(context, MetaContext) and not context.leftover:
            meta = context
        elif isinstance(context, ManticoreLogContext) and context.number is not None:
            facts = member.verdict.facts if member.verdict is not None else None
            logs[posixpath.basename(member.name)] = ManticoreLog(member, context, facts)
    meta_name = posixpath.join(directory, META_NAME)
    if meta is None:
        yield from _report_missing_meta(meta_name, logs)
        yield from _report_gaps_in_numbers(directory, logs, {posixpath.basename(one.name) for one in members})
        return
    listed = [logs[name] for name in dict.fromkeys(map(meta.log_name, meta.numbers)) if name in logs]
    yield from _report_missing_files(directory, meta, logs)
    yield from _report_unlisted_logs(meta, logs)
    yield from _check_versions(meta, listed)
    yield from _check_tids(listed)
    yield from _report_unclosed_files(listed)


def _report_missing_meta(name: str, logs: dict[str, ManticoreLog]) -> Iterator[SetFinding]:
    logs_with_records = sorted(log.base_name for log in logs.values() if log.size > schema.HEADER_SIZE)
    if not logs:
        return
    first = "binlog.0000" if any(log.context.has_new_frames for log in logs.values()) else "binlog.001"
    text_ = (
        f"log files without binlog.meta: the server starts, replays nothing, and overwrites {first} at its first commit"
    )
    severity = Severity.ERROR if logs_with_records else Severity.WARNING
    missing = make_finding(
        "missing-member", None, 0, text_, severity=severity, diagnosis="log files without meta", server="overwrite"
    )
    yield SetFinding(name, missing)


def _report_gaps_in_numbers(directory: str, logs: dict[str, ManticoreLog], present: set[str]) -> Iterator[SetFinding]:
    """Report the files that are missing between others, if no meta file says which files the log has.

    present: the names of all files, including those that were not read.
    """
    ordered = sorted(logs.values(), key=lambda log: log.context.number or 0)
    gaps = ((before, after, n) for before, after in pairwise(ordered) for n in range(*_find_gap(before, after)))
    for before, after, number in islice(gaps, MAX_MISSING):
        stem, _, digits = before.base_name.rpartition(".")
        name = f"{stem}.{number:0{len(digits)}d}"
        listed = after.context.listed
        if name not in present and (listed is None or number in listed):
            text_ = f"{name} is listed in {META_NAME}, but missing: the server refuses to start"
            if listed is None:
                text_ = (
                    f"{name} does not exist, between {before.base_name} and {after.base_name}: its transactions are "
                )
                text_ += f"lost, unless {META_NAME} does not list the file; name the directory to check that"
            found = make_finding("missing-member", None, 0, text_, diagnosis="gap in file numbers", between=True)
            yield SetFinding(posixpath.join(directory, name), found)


def is_link_proven(link: FileLink) -> bool:
    """Return whether binlog.meta lists no file between two logs, or their numbers follow each other."""
    before, after = link.before_layout.context, link.after_layout.context
    if not isinstance(before, ManticoreLogContext) or not isinstance(after, ManticoreLogContext):
        return True
    if before.number is None or after.number is None:
        return True
    gap = range(before.number + 1, after.number)
    is_ascending = before.number < after.number
    return is_ascending and (not gap or (after.listed is not None and not any(one in gap for one in after.listed)))


def _find_gap(before: ManticoreLog, after: ManticoreLog) -> tuple[int, int]:
    """Return the numbers between two files, as arguments of `range`."""
    return (before.context.number or 0) + 1, after.context.number or 0


def _report_missing_files(directory: str, meta: MetaContext, logs: dict[str, ManticoreLog]) -> Iterator[SetFinding]:
    torn = (
        (0,) if meta.count is not None and not meta.whole and not meta.cut else ()
    )  # the server reads a missing number as 0
    expected = [(number, meta.log_name(number)) for number in dict.fromkeys((*meta.numbers, *torn))]
    absent = [(number, name) for number, name in expected if name not in logs]
    present_numbers = {log.context.number for log in logs.values()}
    misnamed = [name for number, name in absent if number in present_numbers]
    if misnamed:
        text_ = f"files are listed as {misnamed[0]}; the file with that number has another number of digits in its name"
        text_ += "; the server refuses to start"
        found = make_finding(
            "meta-mismatch", 8, 1, text_, diagnosis="meta digits do not match file names", server="refuse"
        )
        yield SetFinding(posixpath.join(directory, META_NAME), found)
    missing = [name for number, name in absent if number not in present_numbers]
    for name in missing[:MAX_MISSING]:
        rest_text = f" ({len(missing):,} files are missing in all)" if len(missing) > MAX_MISSING else ""
        text_ = f"{name} is listed in binlog.meta, but missing: the server refuses to start{rest_text}"
        is_newest = all(name > log.base_name for log in logs.values())  # a crash may have prevented its creation
        facts: dict[str, Any] = {} if is_newest else {"missing": name}
        found = make_finding(
            "missing-member", None, 0, text_, diagnosis="meta lists missing file", server="refuse", **facts
        )
        yield SetFinding(posixpath.join(directory, name), found)


def _report_unlisted_logs(meta: MetaContext, logs: dict[str, ManticoreLog]) -> Iterator[SetFinding]:
    """Report unlisted logs: they are ignored, and overwritten when the server's counter reaches their number."""
    if not meta.whole:
        return
    numbers = set(meta.numbers)
    following = max(numbers) + 1 if numbers else 0 if (meta.version or 0) >= schema.NEW_FRAME_VERSION else 1
    for log in logs.values():
        if log.context.number in numbers:
            continue
        is_next = log.context.number == following or not numbers
        text_ = "not listed in binlog.meta: the server does not replay it"
        text_ += (
            ", and overwrites it at its first commit"
            if is_next
            else ", and overwrites it when its counter reaches that number"
        )
        severity = Severity.NOTE if log.size <= schema.HEADER_SIZE else Severity.ERROR if is_next else Severity.WARNING
        found = make_finding(
            "extra-member", 0, log.size, text_, severity=severity, diagnosis="orphan log file", server="overwrite"
        )
        yield SetFinding(log.member.name, found)


def _check_versions(meta: MetaContext, listed: list[ManticoreLog]) -> Iterator[SetFinding]:
    for log in listed:
        has_records = log.size > schema.HEADER_SIZE
        variant = "" if log.member.layout is None else log.member.layout.variant
        stated_version = variant.partition(" ")[0].rstrip(",")
        flipped = next(filter(is_header_correction, log.member.layout.findings if log.member.layout else ()), None)
        if flipped is not None and flipped.facts["said_version"] is not None:
            stated_version = f"v{flipped.facts['said_version']}"
        if (
            has_records
            and log.context.header in ("whole", "version not known")
            and stated_version != f"v{meta.version}"
        ):
            text_ = (
                f"the header says version {stated_version[1:]}, binlog.meta says {meta.version}: the "
                f"server refuses to start"
            )
            found = make_finding(
                "meta-mismatch", 4, 4, text_, diagnosis="header version differs from meta", server="refuse"
            )
            found = (
                found if flipped is None else found.copy_with_severity(Severity.WARNING)
            )  # the flipped bit is the error
            yield SetFinding(log.member.name, found)


def _check_tids(listed: list[ManticoreLog]) -> Iterator[SetFinding]:
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
                    f"table {decode_text(name)!s} starts with TID {first}: those before it are saved in "
                    f"the table, or missing"
                )
                found = make_finding("gap-in-sequence", at, 0, text_, severity=Severity.NOTE, diagnosis="TID gap")
                yield SetFinding(log.member.name, found)
            if before is not None and first > before + 1 and not damaged:
                text_ = f"table {decode_text(name)!s} continues with TID {first} after {before}: "
                text_ += "flushed in between, or lost"
                found = make_finding(
                    "gap-in-sequence", 0, log.size, text_, severity=Severity.NOTE, diagnosis="TID gap between files"
                )
                yield SetFinding(log.member.name, found)
            elif before is not None and first <= before:
                text_ = f"table {decode_text(name)!s} starts with TID {first}, an earlier file reached {before}: "
                text_ += "the server silently ignores these transactions"
                id_ = "duplicate-sequence" if first == before else "sequence-regression"
                yield SetFinding(
                    log.member.name, make_finding(id_, 0, log.size, text_, diagnosis="TIDs not rising between files")
                )
            assert log.facts is not None
            last[name] = (max(end, before or 0), log.facts.damaged)


def _report_unclosed_files(listed: list[ManticoreLog]) -> Iterator[SetFinding]:
    """Report files that are followed by another file but were not closed properly."""
    later: set[bytes] = set()
    for log in reversed(listed):
        tables = set(log.facts.tables) if log.facts else set()
        if tables & later and log.facts is not None and not log.facts.closed and log.facts.stop is None:
            text_ = "no ADD_CACHE although another file of its tables follows: the server was killed in between"
            yield SetFinding(
                log.member.name, make_finding("unclean-close", log.size, 0, text_, diagnosis="ADD_CACHE missing")
            )
        later |= tables
