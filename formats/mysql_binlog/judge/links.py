"""Link between two neighbours of a log: the second file must continue where the first one ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Any

import msgspec

from binlogtool.findings import Severity, make_finding
from binlogtool.formats.binlog_events.gtid.states import GtidRange, format_ranges, ranges_to_json
from binlogtool.formats.judging import SetFinding, SetMember
from binlogtool.formats.mysql_binlog.judge.file_facts import BinlogFileFacts, FileReference, make_file_facts
from binlogtool.formats.mysql_binlog.members.names import LogName, parse_log_name, to_printable

MAX_SUSPECTS = 8
"""Files beside a broken link that are tried as exchanged."""


class ChainedLog(msgspec.Struct, frozen=True, eq=False):
    """One log file of a set."""

    member: SetMember
    name: LogName

    @property
    def facts(self) -> BinlogFileFacts | None:
        """The facts that the rules need; None if the file could not be read."""
        return _get_facts(self)

    @property
    def rotation(self) -> FileReference | None:
        """The ROTATE at its end."""
        return None if self.facts is None else self.facts.rotation

    @property
    def size(self) -> int:
        """Size in bytes."""
        return 0 if self.member.tail is None else self.member.tail.size

    def rotates_to(self, name: str) -> bool:
        """Return whether it ends with a ROTATE to this file."""
        return self.rotation is not None and self.rotation.name == name

    @property
    def gtid_list_offset(self) -> int:
        """Offset of the event that lists the GTIDs of earlier files."""
        return 0 if self.facts is None else self.facts.previous_at


@lru_cache(maxsize=8)
def _get_facts(log: ChainedLog) -> BinlogFileFacts | None:
    """Return the facts of a file, cached for a few: those of 100,000 files would need much memory."""
    facts = log.member.verdict.facts if log.member.verdict is not None else None
    return make_file_facts(facts, log.member.layout, log.name.base)


def is_rotation_target(before: ChainedLog, name: LogName) -> bool:
    """Return whether `before` ends with a ROTATE to this name, or with none; files renamed together keep their
    numbers.
    """
    if before.rotation is None or before.rotates_to(name.name):
        return True
    target = parse_log_name(before.rotation.name)
    return target is not None and target.base != name.base and target.number == name.number


def has_matching_gtids(before: ChainedLog, after: ChainedLog) -> bool:
    """Return whether `after` begins with the GTIDs that `before` ends with."""
    lost, unknown = _compare_states(before, after)
    return not lost and not unknown


def _compare_states(before: ChainedLog, after: ChainedLog) -> tuple[list[GtidRange], list[GtidRange]]:
    """Return GTIDs missing between two files, and GTIDs of the first one that the second does not list."""
    end = None if before.facts is None else before.facts.state_after
    start = None if after.facts is None else after.facts.state_before
    if end is None or start is None or before.facts is None:
        return [], []
    unknown = start.find_missing(end)
    if before.facts.open_at is not None and len(unknown) == 1 and unknown[0].first == unknown[0].last:
        unknown = []  # the transaction that is open at the end; the server rolled it back
    return end.find_missing(start), unknown


def is_proven_successor(before: ChainedLog, after: ChainedLog) -> bool:
    """Return whether it is proven that nothing is missing between two files."""
    has_states = before.facts is not None and before.facts.state_after is not None and after.facts is not None
    return (
        has_states
        and after.facts is not None
        and after.facts.state_before is not None
        and has_matching_gtids(before, after)
    )


def find_lost_gtids(before: ChainedLog, after: ChainedLog) -> list[GtidRange]:
    """Return the GTIDs of the files that are missing between two files."""
    return _compare_states(before, after)[0]


def _can_follow(before: ChainedLog, name: LogName, after: ChainedLog) -> bool:
    """Return whether `after`, under this name, can follow `before`."""
    return is_rotation_target(before, name) and has_matching_gtids(before, after)


def is_link_broken(names: Sequence[LogName], logs: Sequence[ChainedLog], index: int) -> bool:
    """Return whether the link between file `index` and the next one is broken; never across a gap in numbers."""
    if index < 0 or index + 1 >= len(logs) or names[index + 1].number != names[index].number + 1:
        return False
    return not _can_follow(logs[index], names[index + 1], logs[index + 1])


def find_exchanged_files(logs: Sequence[ChainedLog]) -> tuple[ChainedLog, ChainedLog] | None:
    """Return two files whose names were exchanged: with the names swapped back every link at them is valid."""
    names = [log.name for log in logs]
    broken_links = [at for at in range(len(logs) - 1) if is_link_broken(names, logs, at)]
    suspects = sorted({place for at in broken_links for place in (at, at + 1)})[:MAX_SUSPECTS]
    for first, second in combinations(suspects, 2):
        link_indexes = {first - 1, first, second - 1, second}
        if len(link_indexes & set(broken_links)) < 2:
            continue
        swapped = list(logs)
        swapped[first], swapped[second] = swapped[second], swapped[first]
        if not any(is_link_broken(names, swapped, at) for at in link_indexes):
            return logs[first], logs[second]
    return None


def iter_exchanged_findings(logs: Sequence[ChainedLog], pair: tuple[ChainedLog, ChainedLog]) -> Iterator[SetFinding]:
    """Yield the findings about two exchanged files."""
    for log, other in (pair, pair[::-1]):
        claim = f"exchanged with {to_printable(other.name.name)}: this file was written as that one"
        proofs = list(_iter_proofs(logs, log))
        text = claim + (f" ({'; '.join(proofs)})" if proofs else "")
        found = make_finding(
            "meta-mismatch", log.gtid_list_offset, 0, text, exchanged_with=to_printable(other.name.name)
        )
        yield SetFinding(log.member.name, found)


def _iter_proofs(logs: Sequence[ChainedLog], log: ChainedLog) -> Iterator[str]:
    """Yield what proves that a file was exchanged."""
    index = logs.index(log)
    if index + 1 < len(logs) and log.rotation is not None and not is_rotation_target(log, logs[index + 1].name):
        yield f"it ends with a ROTATE to {to_printable(log.rotation.name)}"
    for before, after in pairwise(logs[max(index - 1, 0) : index + 2]):
        if not has_matching_gtids(before, after):
            other = before if after is log else after
            yield f"its GTIDs and those of {to_printable(other.name.name)} do not follow each other"


def check_link(before: ChainedLog, after: ChainedLog) -> Iterator[SetFinding]:
    """Yield findings about two files with consecutive numbers."""
    yield from _check_rotation(before, after)
    lost, unknown = _compare_states(before, after)
    damage_start = None if before.member.tail is None else before.member.tail.first_damage
    if lost and damage_start is not None:
        text = f"transactions lost in the damaged part: {format_ranges(lost)}"
        yield SetFinding(
            before.member.name,
            make_finding("gap-in-sequence", damage_start, 0, text, missing_gtids=ranges_to_json(lost)),
        )
    elif lost:
        text = f"transactions are missing between {to_printable(before.name.name)} and this file: {format_ranges(lost)}"
        yield _gtid_list_finding(after, "gap-in-sequence", text, lost)
    if unknown:
        text = (
            f"transactions at the end of {to_printable(before.name.name)} are not known here: {format_ranges(unknown)}"
        )
        is_after_crash = before.facts is not None and before.facts.is_mariadb and before.facts.in_use
        if is_after_crash:
            text += (
                "; MariaDB writes an older list where its crash recovery read several files, and counts on from the log"
            )
        yield _gtid_list_finding(
            after, "sequence-regression", text, unknown, severity=Severity.NOTE if is_after_crash else None
        )
    yield from _check_source_files(before, after)


def _gtid_list_finding(
    log: ChainedLog, id_: str, text: str, gtid_ranges: list[GtidRange], severity: Severity | None = None
) -> SetFinding:
    """Return a finding at the event that lists the GTIDs of earlier files."""
    facts: dict[str, Any] = {
        "missing_gtids" if id_ == "gap-in-sequence" else "unknown_gtids": ranges_to_json(gtid_ranges)
    }
    return SetFinding(log.member.name, make_finding(id_, log.gtid_list_offset, 0, text, severity=severity, **facts))


def _check_rotation(before: ChainedLog, after: ChainedLog) -> Iterator[SetFinding]:
    """Yield a finding if the ROTATE does not name the next file."""
    rotation = before.rotation
    if rotation is None or rotation.name == after.name.name:
        return
    is_renamed = is_rotation_target(before, after.name)
    text = f"ends with a ROTATE to {to_printable(rotation.name)}; the next file is {to_printable(after.name.name)}"
    found = make_finding(
        "meta-mismatch", rotation.offset, 0, text + (": renamed" if is_renamed else ""),
        severity=Severity.NOTE if is_renamed else Severity.ERROR, rotates_to=to_printable(rotation.name),
    )  # fmt: skip
    yield SetFinding(before.member.name, found)


def _check_source_files(before: ChainedLog, after: ChainedLog) -> Iterator[SetFinding]:
    """Yield findings about relay logs whose source files do not follow each other."""
    if before.facts is None or after.facts is None:
        return
    for old, new in pairwise((*before.facts.sources[-1:], *after.facts.sources)):
        first, second = parse_log_name(old.name), parse_log_name(new.name)
        if first is None or second is None or first.base != second.base:
            continue
        if second.number > first.number + 1 or second.number < first.number:
            id_ = "gap-in-sequence" if second.number > first.number else "sequence-regression"
            text = f"goes on with the source's file {to_printable(new.name)} after {to_printable(old.name)}"
            found = make_finding(id_, after.facts.head_at, 0, text, severity=Severity.WARNING)
            yield SetFinding(after.member.name, found)
