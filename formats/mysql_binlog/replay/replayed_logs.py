"""Selection of the files of a directory that are applied, and the damage at which reading each of them stops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from binlogtool.findings import ENCRYPTED, Finding, Severity
from binlogtool.formats.binlog_events.apply.executed import ExecutedGtids, parse_executed
from binlogtool.formats.binlog_events.gtid.intervals import IntervalSet
from binlogtool.formats.binlog_events.gtid.states import state_of_previous_gtids
from binlogtool.formats.mysql_binlog.judge.facts import BinlogFacts
from binlogtool.formats.mysql_binlog.members.gtid_index import GtidIndexContext
from binlogtool.formats.mysql_binlog.members.index import TextContext
from binlogtool.formats.mysql_binlog.members.names import parse_log_name, to_printable
from binlogtool.formats.replay_rules import ExaminedFile, ReplaySituation, ReplayStop

FATAL_FINDINGS = frozenset(
    {
        "bad-magic", "bad-header", "checksum-mismatch", "compression-error", "inflate-limit",
        "length-out-of-bounds", "count-out-of-bounds", "payload-undecodable", "torn-tail", "zero-tail",
        "garbage-tail", "unknown-record-type", "damaged-range", "unsupported-version",
    }
)  # fmt: skip
"""Findings at which a reader stops: no event, or one that is not what its type demands."""

HARMLESS_DIAGNOSES = frozenset({"transaction-length", "end-log-pos", "last-committed", "gtid-number", "xa-id"})
"""Diagnoses among those that no reader looks at."""


class ReplayDamage(NamedTuple):
    """Offset at which reading a file stops, and why."""

    offset: int
    reason: str


_NO_OFFSETS = frozenset[int]()
"""One for all files: there may be very many."""


class ReplayedLog(msgspec.Struct, frozen=True):
    """A log file.

    `facts`: the validator's, None if the file could not be read. `damages`: ascending. `removal_findings`:
    findings about removed events. `events_without_map`: offsets of row events without a TABLE_MAP in their
    statement.
    """

    file: ExaminedFile
    facts: BinlogFacts | None
    damages: tuple[ReplayDamage, ...] = ()
    removal_findings: tuple[Finding, ...] = ()
    events_without_map: frozenset[int] = _NO_OFFSETS

    @property
    def in_use(self) -> bool:
        """True if the file was not closed."""
        return self.facts is not None and self.facts.in_use

    @property
    def is_relay(self) -> bool:
        """True for a relay log."""
        return self.facts is not None and self.facts.is_relay

    @property
    def is_mariadb(self) -> bool:
        """True if MariaDB wrote it."""
        return self.facts is not None and self.facts.is_mariadb

    @property
    def earlier_gtids(self) -> str:
        """The transactions before this file, as the server writes them."""
        return "" if self.facts is None or self.facts.is_relay else earlier_gtids(self.facts).text


class ReplaySelection(msgspec.Struct, frozen=True):
    """Selected files.

    `logs`: what is read, in order. `skipped`: the other files, with the reason. `refusal`: set if nothing can
    be applied.
    """

    logs: tuple[ReplayedLog, ...]
    skipped: Mapping[str, str] = msgspec.field(default_factory=dict)
    refusal: ReplayStop | None = None


def select_logs(situation: ReplaySituation, executed: ExecutedGtids | None) -> ReplaySelection:
    """Select the log that is applied.

    Of several binary logs in one directory none is selected. A relay log is applied if there is no other.

    Args:
        executed: what the server has; None if it accepts everything.
    """
    skipped: dict[str, str] = {}
    logs: dict[str, list[ReplayedLog]] = {}
    for file in situation.files:
        parsed = parse_log_name(file.name)
        is_text_file = file.layout is not None and isinstance(file.layout.context, TextContext | GtidIndexContext)
        if is_text_file or (situation.is_directory and parsed is None):
            skipped[file.name] = "not-a-log"
        else:
            logs.setdefault("" if parsed is None else parsed.base, []).append(_make_log(file))
    binary_logs = {base: files for base, files in logs.items() if not any(one.is_relay for one in files)}
    candidates = binary_logs or logs
    skipped |= {one.file.name: "another-log" for base in logs if base not in candidates for one in logs[base]}
    if len(candidates) != 1:
        return ReplaySelection((), skipped, _refuse_several(situation, candidates))
    selected = tuple(sorted(next(iter(candidates.values())), key=_sort_key))
    return ReplaySelection(selected, skipped, _check_one_server(selected) or _check_start(selected, executed))


def _sort_key(log: ReplayedLog) -> tuple[int, str]:
    """Return the sort key of a log file."""
    parsed = parse_log_name(log.file.name)
    return (0 if parsed is None else parsed.number), log.file.name


def _refuse_several(situation: ReplaySituation, candidates: Mapping[str, list[ReplayedLog]]) -> ReplayStop:
    """Return the refusal for no log, or for several ones."""
    first = situation.files[0].name if situation.files else ""
    if not candidates:
        return ReplayStop(first, None, "no log file is here")
    names = ", ".join(to_printable(base) for base in sorted(candidates)[:5])
    return ReplayStop(first, None, f"several logs are here ({names}): name the files of one")


def _check_one_server(logs: tuple[ReplayedLog, ...]) -> ReplayStop | None:
    """Return the refusal for a log with files of both servers."""
    readable = [one for one in logs if one.facts is not None and not one.facts.lacks_key]
    other = next((one for one in readable if one.is_mariadb != readable[0].is_mariadb), None)
    if other is None:
        return None
    return ReplayStop(
        other.file.name, None, "some of the files are MariaDB's, the others MySQL's: no server wrote this log"
    )


def _check_start(logs: tuple[ReplayedLog, ...], executed: ExecutedGtids | None) -> ReplayStop | None:
    """Return the refusal if the server lacks what precedes the log (MySQL error 1236, purged GTIDs)."""
    facts = logs[0].facts
    if executed is None or facts is None or facts.is_relay or facts.lacks_key:
        return None
    earlier = earlier_gtids(facts)
    missing = [f"{d}-{s}-{n}" for d, (s, n) in earlier.domains.items() if n > executed.domains.get(d, (0, 0))[1]]
    for source, numbers in earlier.sources.items():
        executed_numbers = executed.sources.get(source, IntervalSet())
        missing += [f"{source}:{low}" for low, high in numbers if not _covers(executed_numbers, low, high)]
    if not missing:
        return None
    text = f"the log begins behind {earlier.text}, and the server lacks {', '.join(missing[:5])}: files are missing"
    return ReplayStop(logs[0].file.name, None, text)


def _covers(intervals: IntervalSet, low: int, high: int) -> bool:
    """Return whether intervals contain another one."""
    return any(start <= low and high <= stop for start, stop in intervals)


def earlier_gtids(facts: BinlogFacts) -> ExecutedGtids:
    """Return what PREVIOUS_GTIDS or GTID_LIST of a file contains."""
    if facts.previous is not None:
        intervals = state_of_previous_gtids(facts.previous).intervals
        return ExecutedGtids({source: IntervalSet(own) for source, own in intervals.items() if own})
    return parse_executed(",".join(f"{one.domain_id}-{one.server_id}-{one.seq_no}" for one in facts.listed or ()))


def get_base_name(name: str) -> str:
    """Return the name of a file without its folder, as servers write it in positions."""
    return name.replace("\\", "/").rpartition("/")[2]


# -- damage ------------------------------------------------------------------------------------------------------------


def _make_log(file: ExaminedFile) -> ReplayedLog:
    """Return a log file with its damage."""
    facts = file.verdict.facts if file.verdict is not None else None
    log_facts = facts if isinstance(facts, BinlogFacts) else None
    removal_findings = tuple(one for one in file.findings if one.facts.get("diagnosis") == "bytes-removed")
    map_findings = (one for one in file.findings if one.facts.get("diagnosis") == "table-map-missing")
    offsets = frozenset(one.offset for one in map_findings if one.severity is Severity.ERROR and one.offset is not None)
    return ReplayedLog(file, log_facts, tuple(_find_damages(file, log_facts)), removal_findings, offsets or _NO_OFFSETS)


def _find_damages(file: ExaminedFile, facts: BinlogFacts | None) -> Iterable[ReplayDamage]:
    """Return the damage of a file, by offset."""
    if facts is None:
        messages = (one.message for one in file.findings if one.severity is Severity.ERROR or one.id == ENCRYPTED)
        reason = next(messages, "it cannot be read")
        return [ReplayDamage(0, reason)]
    if facts.lacks_key:
        return [ReplayDamage(0, "the events are encrypted, and there is no key")]
    by_offset: dict[int, str] = {}
    for item in file.findings:
        if _stops_reading(item, facts) and item.offset is not None:
            by_offset.setdefault(item.offset, item.message)
    return [ReplayDamage(*one) for one in sorted(by_offset.items())]


def _stops_reading(item: Finding, facts: BinlogFacts) -> bool:
    """Return whether a reader stops at a finding."""
    if item.severity is not Severity.ERROR or item.id not in FATAL_FINDINGS:
        return item.id in ("torn-tail", "zero-tail")
    if item.facts.get("diagnosis") in HARMLESS_DIAGNOSES:
        return False
    is_description = item.id == "checksum-mismatch" and facts.checksum == "NONE"
    return not is_description  # only FORMAT_DESCRIPTION has one then, and no reader verifies it
