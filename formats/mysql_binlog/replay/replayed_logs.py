"""Selection of the files of a directory that are applied, and the damage at which reading each of them stops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from binlogtool.findings import ENCRYPTED, Finding, Severity
from binlogtool.formats.binlog_events.apply.executed import Executed, parse_executed
from binlogtool.formats.binlog_events.gtid.intervals import Intervals
from binlogtool.formats.binlog_events.gtid.states import of_previous
from binlogtool.formats.mysql_binlog.judge.facts import LogFacts
from binlogtool.formats.mysql_binlog.members.gtid_index import GtidIndexContext
from binlogtool.formats.mysql_binlog.members.index import TextContext
from binlogtool.formats.mysql_binlog.members.names import log_name, printable
from binlogtool.formats.replay_rules import Examined, Situation, Stop

UNREADABLE = frozenset(
    {
        "bad-magic", "bad-header", "checksum-mismatch", "compression-error", "inflate-limit",
        "length-out-of-bounds", "count-out-of-bounds", "payload-undecodable", "torn-tail", "zero-tail",
        "garbage-tail", "unknown-record-type", "damaged-range", "unsupported-version",
    }
)  # fmt: skip
"""Findings at which a reader stops: no event, or one that is not what its type demands."""

PASSED_OVER = frozenset({"transaction-length", "end-log-pos", "last-committed", "gtid-number", "xa-id"})
"""Diagnoses among those that no reader looks at."""


class Damage(NamedTuple):
    """Offset at which reading a file stops, and why."""

    offset: int
    why: str


_NONE = frozenset[int]()
"""One for all files: there may be very many."""


class Binlog(msgspec.Struct, frozen=True):
    """A log file.

    `facts`: the validator's, None if the file could not be read. `damages`: ascending. `removal_findings`:
    findings about removed events. `events_without_map`: offsets of row events without a TABLE_MAP in their
    statement.
    """

    file: Examined
    facts: LogFacts | None
    damages: tuple[Damage, ...] = ()
    removed: tuple[Finding, ...] = ()
    unmapped: frozenset[int] = _NONE

    @property
    def in_use(self) -> bool:
        """True if the file was not closed."""
        return self.facts is not None and self.facts.in_use

    @property
    def is_relay(self) -> bool:
        """True for a relay log."""
        return self.facts is not None and self.facts.relay

    @property
    def is_mariadb(self) -> bool:
        """True if MariaDB wrote it."""
        return self.facts is not None and self.facts.is_mariadb

    @property
    def before(self) -> str:
        """The transactions before this file, as the server writes them."""
        return "" if self.facts is None or self.facts.relay else before(self.facts).text


class Chosen(msgspec.Struct, frozen=True):
    """Selected files.

    `logs`: what is read, in order. `skipped`: the other files, with the reason. `refusal`: set if nothing can
    be applied.
    """

    logs: tuple[Binlog, ...]
    passed: Mapping[str, str] = msgspec.field(default_factory=dict)
    refusal: Stop | None = None


def choose(situation: Situation, executed: Executed | None) -> Chosen:
    """Select the log that is applied.

    Of several binary logs in one directory none is selected. A relay log is applied if there is no other.

    Args:
        executed: what the server has; None if it accepts everything.
    """
    passed: dict[str, str] = {}
    logs: dict[str, list[Binlog]] = {}
    for file in situation.files:
        known = log_name(file.name)
        beside = file.layout is not None and isinstance(file.layout.context, TextContext | GtidIndexContext)
        if beside or (situation.whole and known is None):
            passed[file.name] = "not-a-log"
        else:
            logs.setdefault("" if known is None else known.base, []).append(_binlog(file))
    own = {base: files for base, files in logs.items() if not any(one.is_relay for one in files)}
    read = own or logs
    passed |= {one.file.name: "another-log" for base in logs if base not in read for one in logs[base]}
    if len(read) != 1:
        return Chosen((), passed, _several(situation, read))
    chosen = tuple(sorted(next(iter(read.values())), key=_number))
    return Chosen(chosen, passed, _mixed(chosen) or _gap(chosen, executed))


def _number(log: Binlog) -> tuple[int, str]:
    """Return the sort key of a log file."""
    known = log_name(log.file.name)
    return (0 if known is None else known.number), log.file.name


def _several(situation: Situation, read: Mapping[str, list[Binlog]]) -> Stop:
    """Return the refusal for no log, or for several ones."""
    first = situation.files[0].name if situation.files else ""
    if not read:
        return Stop(first, None, "no log file is here")
    names = ", ".join(printable(base) for base in sorted(read)[:5])
    return Stop(first, None, f"several logs are here ({names}): name the files of one")


def _mixed(logs: tuple[Binlog, ...]) -> Stop | None:
    """Return the refusal for a log with files of both servers."""
    known = [one for one in logs if one.facts is not None and not one.facts.sealed]
    other = next((one for one in known if one.is_mariadb != known[0].is_mariadb), None)
    if other is None:
        return None
    return Stop(other.file.name, None, "some of the files are MariaDB's, the others MySQL's: no server wrote this log")


def _gap(logs: tuple[Binlog, ...], executed: Executed | None) -> Stop | None:
    """Return the refusal if the server lacks what precedes the log (MySQL error 1236, purged GTIDs)."""
    facts = logs[0].facts
    if executed is None or facts is None or facts.relay or facts.sealed:
        return None
    earlier = before(facts)
    lacks = [f"{d}-{s}-{n}" for d, (s, n) in earlier.domains.items() if n > executed.domains.get(d, (0, 0))[1]]
    for source, numbers in earlier.sources.items():
        own = executed.sources.get(source, Intervals())
        lacks += [f"{source}:{low}" for low, high in numbers if not _covers(own, low, high)]
    if not lacks:
        return None
    text = f"the log begins behind {earlier.text}, and the server lacks {', '.join(lacks[:5])}: files are missing"
    return Stop(logs[0].file.name, None, text)


def _covers(own: Intervals, low: int, high: int) -> bool:
    """Return whether intervals contain another one."""
    return any(start <= low and high <= stop for start, stop in own)


def before(facts: LogFacts) -> Executed:
    """Return what PREVIOUS_GTIDS or GTID_LIST of a file contains."""
    if facts.previous is not None:
        found = of_previous(facts.previous).intervals
        return Executed({source: Intervals(own) for source, own in found.items() if own})
    return parse_executed(",".join(f"{one.domain_id}-{one.server_id}-{one.seq_no}" for one in facts.listed or ()))


def base_name(name: str) -> str:
    """Return the name of a file without its folder, as servers write it in positions."""
    return name.replace("\\", "/").rpartition("/")[2]


# -- damage ------------------------------------------------------------------------------------------------------------


def _binlog(file: Examined) -> Binlog:
    """Return a log file with its damage."""
    facts = file.verdict.facts if file.verdict is not None else None
    known = facts if isinstance(facts, LogFacts) else None
    removed = tuple(one for one in file.findings if one.facts.get("diagnosis") == "bytes-removed")
    unmapped = (one for one in file.findings if one.facts.get("diagnosis") == "table-map-missing")
    offsets = frozenset(one.offset for one in unmapped if one.severity is Severity.ERROR and one.offset is not None)
    return Binlog(file, known, tuple(_damages(file, known)), removed, offsets or _NONE)


def _damages(file: Examined, facts: LogFacts | None) -> Iterable[Damage]:
    """Return the damage of a file, by offset."""
    if facts is None:
        told = (one.message for one in file.findings if one.severity is Severity.ERROR or one.id == ENCRYPTED)
        why = next(told, "it cannot be read")
        return [Damage(0, why)]
    if facts.sealed:
        return [Damage(0, "the events are encrypted, and there is no key")]
    found: dict[int, str] = {}
    for one in file.findings:
        if _unreadable(one, facts) and one.offset is not None:
            found.setdefault(one.offset, one.message)
    return [Damage(*one) for one in sorted(found.items())]


def _unreadable(found: Finding, facts: LogFacts) -> bool:
    """Return whether a reader stops at a finding."""
    if found.severity is not Severity.ERROR or found.id not in UNREADABLE:
        return found.id in ("torn-tail", "zero-tail")
    if found.facts.get("diagnosis") in PASSED_OVER:
        return False
    head = found.id == "checksum-mismatch" and facts.checksum == "NONE"
    return not head  # only FORMAT_DESCRIPTION has one then, and no reader verifies it
