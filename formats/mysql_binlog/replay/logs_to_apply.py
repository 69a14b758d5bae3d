"""Files of a log as recovery and replicas read them: damage, order, and which of several logs is applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from binlogtool.findings import ENCRYPTED, Finding, Severity
from binlogtool.format_api.replay_rules import ExaminedFile, ReplaySituation, ReplayStop
from binlogtool.formats.binlog_events.gtid.gtid_sets import IntervalSet, build_state_from_previous_gtids
from binlogtool.formats.binlog_events.replay.simulated_applier import (
    ExecutedGtids,
    parse_executed_gtids,
)
from binlogtool.formats.mysql_binlog.index_and_state_files import (
    GtidIndexContext,
    TextFileContext,
    parse_log_name,
    to_printable,
)
from binlogtool.formats.mysql_binlog.validate.gtid_rules import BinlogFacts

# --- Selection of the applied files ---

FATAL_FINDINGS = frozenset(
    {
        "bad-magic", "bad-header", "checksum-mismatch", "compression-error", "inflate-limit",
        "length-out-of-bounds", "count-out-of-bounds", "payload-undecodable", "torn-tail", "zero-tail",
        "garbage-tail", "unknown-record-type", "damaged-range", "unsupported-version",
    }
)  # fmt: skip
"""Findings at which a reader stops: the bytes are not an event, or the event is not valid for its type."""

HARMLESS_DIAGNOSES = frozenset(
    {"transaction-length", "end-log-pos", "last-committed", "gtid-number", "gtid-interval", "xa-id"}
)
"""Diagnoses among these findings at which no reader of the events stops."""


class ReplayDamage(NamedTuple):
    """Offset at which reading a file stops, and why."""

    offset: int
    reason: str


_NO_OFFSETS = frozenset[int]()
"""Empty set that all files share, because there may be very many files."""


class ReplayedLog(msgspec.Struct, frozen=True):
    """A log file.

    `facts`: from the validator; None if the file could not be read. `damages`: in ascending order. `removal_findings`:
    findings about removed events. `events_without_map`: offsets of row events without a TABLE_MAP in their statement.
    """

    file: ExaminedFile
    facts: BinlogFacts | None
    damages: tuple[ReplayDamage, ...] = ()
    removal_findings: tuple[Finding, ...] = ()
    events_without_map: frozenset[int] = _NO_OFFSETS

    @property
    def in_use(self) -> bool:
        """True if the in-use flag is set: the file was not closed."""
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
    def earlier_gtids_text(self) -> str:
        """The transactions before this file, as the server writes them."""
        return "" if self.facts is None or self.facts.is_relay else get_earlier_gtids(self.facts).gtid_set_text


class ReplaySelection(msgspec.Struct, frozen=True):
    """Selected files.

    `logs`: the files to read, in order. `skipped`: the other files, with the reason. `refusal`: set if nothing can be
    applied.
    """

    logs: tuple[ReplayedLog, ...]
    skipped: Mapping[str, str] = msgspec.field(default_factory=dict)
    refusal: ReplayStop | None = None


def select_log_to_apply(situation: ReplaySituation, executed: ExecutedGtids | None) -> ReplaySelection:
    """Select the log to apply.

    If a directory has several binary logs, none is selected. A relay log is applied only if there is no binary log.

    Args:
        executed: GTIDs that the server already has; None if it accepts everything.
    """
    skipped: dict[str, str] = {}
    logs: dict[str, list[ReplayedLog]] = {}
    for file in situation.files:
        parsed = parse_log_name(file.name)
        is_text_file = file.layout is not None and isinstance(file.layout.context, TextFileContext | GtidIndexContext)
        if is_text_file or (situation.is_directory and parsed is None):
            skipped[file.name] = "not-a-log"
        else:
            logs.setdefault("" if parsed is None else parsed.base, []).append(_make_replayed_log(file))
    binary_logs = {base: files for base, files in logs.items() if not any(one.is_relay for one in files)}
    candidates = binary_logs or logs
    skipped |= {one.file.name: "another-log" for base in logs if base not in candidates for one in logs[base]}
    if len(candidates) != 1:
        return ReplaySelection((), skipped, _make_log_count_refusal(situation, candidates))
    selected = tuple(sorted(next(iter(candidates.values())), key=_get_log_sort_key))
    return ReplaySelection(
        selected, skipped, _refuse_mixed_servers(selected) or _refuse_missing_earlier_gtids(selected, executed)
    )


def _get_log_sort_key(log: ReplayedLog) -> tuple[int, str]:
    """Return the sort key of a log file."""
    parsed = parse_log_name(log.file.name)
    return (0 if parsed is None else parsed.number), log.file.name


def _make_log_count_refusal(situation: ReplaySituation, candidates: Mapping[str, list[ReplayedLog]]) -> ReplayStop:
    """Return the refusal if there is no log, or more than one."""
    first = situation.files[0].name if situation.files else ""
    if not candidates:
        return ReplayStop(first, None, "there is no log file here")
    names = ", ".join(to_printable(base) for base in sorted(candidates)[:5])
    return ReplayStop(first, None, f"this directory has several logs ({names}): name the files of one log")


def _refuse_mixed_servers(logs: tuple[ReplayedLog, ...]) -> ReplayStop | None:
    """Return the refusal if some files of the log were written by MySQL and others by MariaDB; None otherwise."""
    readable = [one for one in logs if one.facts is not None and not one.facts.lacks_key]
    other = next((one for one in readable if one.is_mariadb != readable[0].is_mariadb), None)
    if other is None:
        return None
    return ReplayStop(
        other.file.name, None, "some of the files are MariaDB's and others MySQL's: no server wrote this log"
    )


def _refuse_missing_earlier_gtids(logs: tuple[ReplayedLog, ...], executed: ExecutedGtids | None) -> ReplayStop | None:
    """Return the refusal if the server lacks transactions before the log (MySQL error 1236, purged GTIDs)."""
    facts = logs[0].facts
    if executed is None or facts is None or facts.is_relay or facts.lacks_key:
        return None
    earlier = get_earlier_gtids(facts)
    missing = [f"{d}-{s}-{n}" for d, (s, n) in earlier.domains.items() if n > executed.domains.get(d, (0, 0))[1]]
    for source, numbers in earlier.sources.items():
        executed_numbers = executed.sources.get(source, IntervalSet())
        missing += [f"{source}:{low}" for low, high in numbers if not _contains_interval(executed_numbers, low, high)]
    if not missing:
        return None
    text = (
        f"the log begins after {earlier.gtid_set_text}, and the server lacks {', '.join(missing[:5])}: files are "
        "missing"
    )
    return ReplayStop(logs[0].file.name, None, text)


def _contains_interval(intervals: IntervalSet, low: int, high: int) -> bool:
    """Return whether the intervals contain all numbers of another interval."""
    return any(start <= low and high <= stop for start, stop in intervals)


def get_earlier_gtids(facts: BinlogFacts) -> ExecutedGtids:
    """Return the GTIDs that PREVIOUS_GTIDS or GTID_LIST of a file lists."""
    if facts.previous is not None:
        intervals = build_state_from_previous_gtids(facts.previous).intervals
        return ExecutedGtids({source: IntervalSet(own) for source, own in intervals.items() if own})
    return parse_executed_gtids(",".join(f"{one.domain_id}-{one.server_id}-{one.seq_no}" for one in facts.listed or ()))


def get_base_name(name: str) -> str:
    """Return the name of a file without its folder, as servers write it in positions."""
    return name.replace("\\", "/").rpartition("/")[2]


# -- damage ------------------------------------------------------------------------------------------------------------


def _make_replayed_log(file: ExaminedFile) -> ReplayedLog:
    """Return a log file with its damage."""
    facts = file.verdict.facts if file.verdict is not None else None
    log_facts = facts if isinstance(facts, BinlogFacts) else None
    removal_findings = tuple(one for one in file.findings if one.facts.get("diagnosis") == "bytes-removed")
    map_findings = (one for one in file.findings if one.facts.get("diagnosis") == "table-map-missing")
    offsets = frozenset(one.offset for one in map_findings if one.severity is Severity.ERROR and one.offset is not None)
    return ReplayedLog(file, log_facts, tuple(_list_damages(file, log_facts)), removal_findings, offsets or _NO_OFFSETS)


def _list_damages(file: ExaminedFile, facts: BinlogFacts | None) -> Iterable[ReplayDamage]:
    """Return the damage in a file, sorted by offset."""
    if facts is None:
        messages = (one.message for one in file.findings if one.severity is Severity.ERROR or one.id == ENCRYPTED)
        reason = next(messages, "it cannot be read")
        return [ReplayDamage(0, reason)]
    if facts.lacks_key:
        return [ReplayDamage(0, "the events are encrypted, and there is no key")]
    by_offset: dict[int, str] = {}
    for item in file.findings:
        if _is_reader_stopped_by(item, facts) and item.offset is not None:
            by_offset.setdefault(item.offset, item.message)
    return [ReplayDamage(*one) for one in sorted(by_offset.items())]


def _is_reader_stopped_by(finding: Finding, facts: BinlogFacts) -> bool:
    """Return whether a reader stops at a finding."""
    if finding.severity is not Severity.ERROR or finding.id not in FATAL_FINDINGS:
        return finding.id in ("torn-tail", "zero-tail")
    if finding.facts.get("diagnosis") in HARMLESS_DIAGNOSES:
        return False
    is_description = finding.id == "checksum-mismatch" and facts.checksum == "NONE"
    return not is_description  # only FORMAT_DESCRIPTION has a checksum then, and no reader verifies it
