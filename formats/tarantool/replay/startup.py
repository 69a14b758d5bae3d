"""What the server looks at before it reads rows: which files there are, in what order it would read them, and what
makes it refuse the start (specification section 6, `xlog_dir_scan`, `memtx_engine_new`, `vy_log_begin_recovery`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.heads import is_corrected
from binlogtool.formats.layouts import Read
from binlogtool.formats.replay_rules import Examined, Itinerary, Situation, Stop
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.judge.vinyl import VylogFacts
from binlogtool.formats.tarantool.layout.header import HeaderText
from binlogtool.formats.tarantool.layout.layout import FileContext
from binlogtool.formats.tarantool.replay.server_reader import Course, course
from binlogtool.formats.tarantool.replay.server_version import OLDEST, ServerVersion, server_version

Vclock = Mapping[int, int]

_NAME = re.compile(r"(\d+)\.(snap|xlog|vylog|run|index)")
_META = {
    "bad_header_version": "unsupported file format version {version}",
    "bad_uuid": "can't parse instance UUID",
    "bad_vclock": "invalid vclock at offset {offset}",
}
_VCLOCK = re.compile(r"[ \t]*\{[ \t]*(?:\d+[ \t]*:[ \t]*\d+[ \t]*(?:,[ \t]*|(?=\})))*\}")
_VCLOCK_PREFIX = re.compile(r"[ \t]*(?:\{[ \t]*(?:\d+[ \t]*:[ \t]*\d+[ \t]*,?[ \t]*)*(?:\d+[ \t]*(?::[ \t]*)?)?)?")
_WORD = 10
"""Bytes that the server has for the type, and for the version, with a zero behind each."""
_NO_TEXT = HeaderText([], None)
_SIGNATURE = ("vclock_name_mismatch", "unknown_header_key")


class Refusal(Exception):
    """The server gives up at once. stop: where, and what it says."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.why)
        self.stop = stop


class Candidate(NamedTuple):
    """A file that the server looks at. number: of its name. fault: what it says about the header, None if nothing."""

    file: Examined
    context: FileContext
    number: int
    fault: tuple[int, str] | None

    @property
    def name(self) -> str:
        """Its name in the directory."""
        return self.file.name

    @property
    def vclock(self) -> Vclock:
        """The state that its header names."""
        return self.context.vclock


class Startup(msgspec.Struct, frozen=True):
    """The plan of one start.

    snapshot, logs, vylog: what it reads. start: the vclock that it begins with. courses: name -> how it gets through.
    unreadable: ids of vinyl spaces whose data cannot be loaded (force_recovery). bootstraps: it finds no snapshot, and
    makes a new, empty instance. version: of the server that starts.
    """

    itinerary: Itinerary
    start: Vclock = msgspec.field(default_factory=dict)
    snapshot: Candidate | None = None
    vylog: Candidate | None = None
    logs: tuple[Candidate, ...] = ()
    courses: Mapping[str, Course] = msgspec.field(default_factory=dict)
    unreadable: frozenset[int] = frozenset()
    bootstraps: bool = False
    version: ServerVersion = OLDEST


def path_of(name: str) -> str:
    """A file as the server calls it."""
    return f"./{posixpath.basename(name)}"


def below(a: Vclock, b: Vclock) -> bool:
    """Is no component of `a` over that of `b` (`vclock_compare` <= 0)?"""
    return all(lsn <= b.get(replica, 0) for replica, lsn in a.items())


def same(a: Vclock, b: Vclock) -> bool:
    """Are all components equal?"""
    return below(a, b) and below(b, a)


def plan(situation: Situation, start: Vclock | None) -> Startup:
    """The plan. start: the vclock of a server that has already read a part (`--against`), or None."""
    return _Planner(situation, start).plan()


class _Planner:
    """Looks at the files as the server would."""

    def __init__(self, situation: Situation, start: Vclock | None) -> None:
        self._situation = situation
        self._force = situation.policy == "force"
        self._version = server_version(situation.server_version, situation.files)
        self._against = start
        self._passed: dict[str, str] = {}
        self._courses: dict[str, Course] = {}
        self._files: dict[str, list[Candidate]] = {kind.lower(): [] for kind in FileKind}
        self._unreadable: frozenset[int] = frozenset()
        for file in situation.files:
            self._sort(file)

    def _sort(self, file: Examined) -> None:
        match = _NAME.fullmatch(posixpath.basename(file.name))
        if match is None:
            self._passed[file.name] = "ignored-file"
            return
        context = FileContext(None, _NO_TEXT) if file.layout is None else file.layout.context
        found = Candidate(file, context, int(match[1]), _header_fault(file, context))
        self._files[match[2]].append(found)

    def plan(self) -> Startup:
        """Everything in the server's order; a refusal ends it."""
        for kind in ("run", "index"):
            self._passed |= dict.fromkeys((c.name for c in self._files[kind]), "vinyl-data")
        try:
            found = self._whole() if self._situation.whole else self._single()
        except Refusal as refusal:
            found = Startup(Itinerary((), self._passed, refusal.stop))
        return replace(found, version=self._version)

    def _single(self) -> Startup:
        """Files that were named: read as they are."""
        found = [c for kind in ("snap", "vylog", "xlog") for c in self._files[kind]]
        for one in found:
            _must_be_sound(one)
        snaps, vylogs, logs = (self._files[kind] for kind in ("snap", "vylog", "xlog"))
        start = self._against
        if start is None:
            start = logs[0].vclock if logs and not snaps else {}
        return self._startup(start, _last(snaps), _last(vylogs), logs)

    def _whole(self) -> Startup:
        snaps = self._scanned("snap", self._force)
        snapshot = _last(snaps) if self._against is None else None
        self._pass(snaps, snapshot, "older-file" if self._against is None else "already-applied")
        instance = None if snapshot is None else snapshot.context.instance
        logs = self._scanned("xlog", self._force, instance)
        if snapshot is None and self._against is None:
            return self._bootstrap(logs)
        start: Vclock = snapshot.vclock if snapshot is not None else self._against or {}
        vylog = self._vylog(start, instance)
        logs = self._matched(logs, start)
        self._unreadable = self._vinyl(vylog)
        return self._startup(start, snapshot, vylog, logs)

    def _scanned(self, kind: str, force: bool, instance: str | None = None) -> list[Candidate]:
        """The files of a kind by number (`xlog_dir_scan`): one bad header refuses all, or is left out by force."""
        sound = []
        for found in sorted(self._files[kind], key=lambda c: c.number):
            if instance is not None and found.fault is None and found.context.instance != instance:
                line = found.context.text.line("instance")
                fault = (line.start if line else 0, f"{path_of(found.name)}: invalid instance UUID")
                found = found._replace(fault=fault)
            if found.fault is None:
                sound.append(found)
            elif force:
                self._passed[found.name] = "bad-header"
            else:
                _must_be_sound(found)
        return sorted(sound, key=lambda c: c.context.signature)

    def _bootstrap(self, logs: list[Candidate]) -> Startup:
        """Without a snapshot the server makes a new instance, and reads none of the files (run on 2.6.0)."""
        self._pass([*logs, *self._files["vylog"]], None, "no-snapshot")
        taken = [c for c in self._files["snap"] if c.number == 0]
        refusal = Stop(taken[0].name, None, "failed to create a checkpoint") if taken else None
        anything = bool(self._files["snap"] or logs)
        return Startup(Itinerary((), self._passed, refusal), bootstraps=anything and refusal is None)

    def _vylog(self, start: Vclock, instance: str | None) -> Candidate | None:
        vylogs = self._scanned("vylog", False, instance)
        newest = _last(vylogs)
        self._pass(vylogs, newest, "older-file")
        if newest is not None and not below(newest.vclock, start) and self._against is None:
            raise Refusal(Stop(newest.name, None, "Can't find snapshot"))
        return newest

    def _matched(self, logs: list[Candidate], start: Vclock) -> list[Candidate]:
        """The newest log that begins at or before the start, and all behind it; else all (`vclockset_match`)."""
        first = max((i for i, log in enumerate(logs) if below(log.vclock, start)), default=0)
        self._passed |= dict.fromkeys((log.name for log in logs[:first]), "older-file")
        return logs[first:]

    def _pass(self, files: Iterable[Candidate], but: Candidate | None, reason: str) -> None:
        self._passed |= {c.name: reason for c in files if c is not but}

    # -- vinyl -----------------------------------------------------------------------------------------------------

    def _vinyl(self, vylog: Candidate | None) -> frozenset[int]:
        """Runs that the metadata log knows must be there, with their indexes (specification sections 5 and 6)."""
        verdict = None if vylog is None else vylog.file.verdict
        facts = None if verdict is None else verdict.facts
        known = {c.name: c for kind in ("run", "index") for c in self._files[kind]}
        if vylog is None or not isinstance(facts, VylogFacts) or not known:
            return frozenset()
        lost = set()
        for run, lsm in sorted(facts.runs.items()):
            if lsm not in facts.spaces:
                continue
            space, index = facts.spaces[lsm]
            stem = posixpath.join(posixpath.dirname(vylog.name), f"{space}/{index}/{run:020d}")
            faults = {kind: self._vinyl_fault(f"{stem}.{kind}", known) for kind in ("index", "run")}
            fault = faults["index"] or faults["run"]
            if fault and not self._force:
                raise Refusal(fault)
            if faults["run"]:  # an index alone is made again from its run
                lost.add(space)
        return frozenset(lost)

    def _vinyl_fault(self, name: str, known: Mapping[str, Candidate]) -> Stop | None:
        found = known.get(name)
        if found is None:
            return Stop(name, None, f"failed to open './{name}' file")
        if found.fault is not None:
            return Stop(name, *found.fault)
        damaged = [f for f in found.file.findings if f.severity is Severity.ERROR and f.id != "unclean-close"]
        if name.endswith(".index") and damaged:
            return Stop(name, damaged[0].offset, _words(damaged[0]))
        return None

    # -- the plan --------------------------------------------------------------------------------------------------

    def _startup(
        self, start: Vclock, snapshot: Candidate | None, vylog: Candidate | None, logs: list[Candidate]
    ) -> Startup:
        read = [c for c in (vylog, snapshot, *logs) if c is not None]
        for one in read:
            force = self._force and one is not vylog
            self._courses[one.name] = course(one.file, self._reader(one.file), force=force)
        refusal = None
        if vylog is not None and (stop := self._courses[vylog.name].stop) is not None:
            refusal = Stop(vylog.name, *stop)
            read = [vylog]
        base = frozenset(c.name for c in (vylog, snapshot) if c is not None)
        itinerary = Itinerary(tuple(c.name for c in read), self._passed, refusal, base)
        return Startup(itinerary, start, snapshot, vylog, tuple(logs), self._courses, self._unreadable)

    def _reader(self, file: Examined) -> Read:
        beside = self._situation.beside
        read = None if beside is None else beside(posixpath.basename(file.name))
        return read or (lambda offset, size: b"")


def _last(files: list[Candidate]) -> Candidate | None:
    return files[-1] if files else None


def _must_be_sound(found: Candidate) -> None:
    if found.fault is not None:
        raise Refusal(Stop(found.name, *found.fault))


def _words(found: Finding) -> str:
    """The server's words for a damaged block of an index."""
    words = {"checksum-mismatch": "tx checksum mismatch", "torn-tail": "Unexpected end of file"}
    return words.get(found.id, found.message)


# -- headers -----------------------------------------------------------------------------------------------------------


def _header_fault(file: Examined, context: FileContext) -> tuple[int, str] | None:
    """What the server says about the header of a file as it is, also where it is read with a bit put right."""
    if file.layout is None:
        return 0, f"failed to open '{path_of(file.name)}' file"
    for one in filter(is_corrected, file.layout.findings):
        return one.facts["server_offset"], one.facts["server_says"]
    return header_fault(file.name, file.layout.findings, context)


def header_fault(name: str, findings: Iterable[Finding], context: FileContext) -> tuple[int, str] | None:
    """What the server says about a header, in the order of its own checks (`xlog_cursor_open`)."""
    found = {f.facts.get("diagnosis"): f for f in findings if f.severity is Severity.ERROR}
    if context.text.end is None:
        return 0, "Unexpected end of file, run with 'force_recovery = true'"
    for line, what in zip(context.text.lines, ("type", "version"), strict=False):
        if line.end - line.start > _WORD:
            return line.start, f"failed to parse xlog {what} string"
    for diagnosis, words in (("bad_header", "can't extract meta value"), *_META.items()):
        if diagnosis in found:
            version = context.text.lines[1].value if len(context.text.lines) > 1 else ""
            return found[diagnosis].offset or 0, words.format(version=version, offset=_vclock_fault(context))
    if "bad_header_type" in found:
        kind = posixpath.basename(name).rpartition(".")[2].upper()
        return 0, f"Invalid xlog type: expected {kind}, got {context.text.lines[0].value}"
    wrong = next((found[diagnosis] for diagnosis in _SIGNATURE if diagnosis in found), None)
    return None if wrong is None else (wrong.offset or 0, f"{path_of(name)}: signature check failed")


def _vclock_fault(context: FileContext) -> int:
    """Where the server stops reading the vclock, counted from 1 (`vclock_from_string`)."""
    lines = (context.text.value(name) or "" for name in ("vclock", "prev_vclock"))
    for words in lines:
        read = _VCLOCK_PREFIX.match(words)
        if read is not None and not _VCLOCK.fullmatch(words):
            return read.end() + 1
    return 1
