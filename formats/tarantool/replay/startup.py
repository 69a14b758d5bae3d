"""Plan a start: the files that the server finds, the order in which it reads them, and what makes it refuse.

Source: `xlog_dir_scan`, `memtx_engine_new`, `vy_log_begin_recovery`;
`docs/spec/tarantool-xlog.md#6-how-the-server-reads-and-what-durable-end-means`.
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
from binlogtool.formats.tarantool.replay.vinyl_start import VinylStart, state_read
from binlogtool.formats.tarantool.spaces.vylog import VylogState

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
_LEFT_OUT = re.compile("^Invalid xlog type|signature check failed$|invalid instance UUID$|invalid xlog order$")
"""Faults of a header that can be read."""
_SIGNATURE = ("vclock_name_mismatch", "unknown_header_key")


class Refusal(Exception):
    """The server gives up at once, at `stop`."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.why)
        self.stop = stop


class Candidate(NamedTuple):
    """A file that the server finds.

    Attributes:
        number: of its name.
        fault: offset and server's message about its header, or None.
    """

    file: Examined
    context: FileContext
    number: int
    fault: tuple[int, str] | None

    @property
    def name(self) -> str:
        """Name in the directory."""
        return self.file.name

    @property
    def vclock(self) -> Vclock:
        """VClock of its header."""
        return self.context.vclock


class Startup(msgspec.Struct, frozen=True):
    """The plan of one start.

    Attributes:
        snapshot, logs, vylog: files that the server reads.
        start: vclock that it begins with.
        read_results: name -> result of the server's reading.
        vinyl: recovery of the vinyl indexes; None where single files were named.
        bootstraps: it finds no snapshot, and creates a new, empty instance.
        version: of the server that starts.
    """

    itinerary: Itinerary
    start: Vclock = msgspec.field(default_factory=dict)
    snapshot: Candidate | None = None
    vylog: Candidate | None = None
    logs: tuple[Candidate, ...] = ()
    courses: Mapping[str, Course] = msgspec.field(default_factory=dict)
    vinyl: VinylStart | None = None
    bootstraps: bool = False
    version: ServerVersion = OLDEST


def path_of(name: str) -> str:
    """Format a file name as the server prints it."""
    return f"./{posixpath.basename(name)}"


def below(a: Vclock, b: Vclock) -> bool:
    """Check that no component of `a` is above that of `b` (`vclock_compare` <= 0)."""
    return all(lsn <= b.get(replica, 0) for replica, lsn in a.items())


def is_ordered(a: Vclock, b: Vclock) -> bool:
    """Check that one of two vclocks is before the other, and not equal (`vclock_compare`)."""
    return below(a, b) != below(b, a)


def same(a: Vclock, b: Vclock) -> bool:
    """Check that all components are equal."""
    return below(a, b) and below(b, a)


def plan(situation: Situation, start: Vclock | None) -> Startup:
    """Plan the start of a server.

    Args:
        start: vclock of a server that has already applied a part (`--against`), or None.
    """
    return _Planner(situation, start).plan()


class _Planner:
    """Examines the files as the server does."""

    def __init__(self, situation: Situation, start: Vclock | None) -> None:
        self._situation = situation
        self._force = situation.policy == "force"
        self._version = server_version(situation.server_version, situation.files)
        self._against = start
        self._passed: dict[str, str] = {}
        self._courses: dict[str, Course] = {}
        self._files: dict[str, list[Candidate]] = {kind.lower(): [] for kind in FileKind}
        self._vinyl: VinylStart | None = None
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
        """Plan everything in the server's order; a refusal ends it."""
        for kind in ("run", "index"):
            self._passed |= dict.fromkeys((c.name for c in self._files[kind]), "vinyl-data")
        try:
            found = self._whole() if self._situation.whole else self._single()
        except Refusal as refusal:
            found = Startup(Itinerary((), self._passed, refusal.stop))
        return replace(found, version=self._version)

    def _single(self) -> Startup:
        """Plan single files that were named: they are read as given."""
        found = [c for kind in ("snap", "vylog", "xlog") for c in self._files[kind]]
        for one in found:
            _must_be_sound(one)
        snaps, vylogs, logs = (self._files[kind] for kind in ("snap", "vylog", "xlog"))
        start = self._against
        if start is None:
            start = logs[0].vclock if logs and not snaps else {}
        return self._startup(start, _last(snaps), _last(vylogs), logs)

    def _whole(self) -> Startup:
        """Plan a whole data directory."""
        snaps = self._scanned("snap", self._force)
        if self._force and self._version.is_3 and self._against is None:
            self._check_newest_snapshot()
        snapshot = _last(snaps) if self._against is None else None
        self._pass(snaps, snapshot, "older-file" if self._against is None else "already-applied")
        instance = None if snapshot is None else snapshot.context.instance
        logs = self._scanned("xlog", self._force, instance)
        if snapshot is None and self._against is None:
            return self._bootstrap(logs)
        start: Vclock = snapshot.vclock if snapshot is not None else self._against or {}
        vylog = self._vylog(start, instance)
        logs = self._matched(logs, start)
        self._vinyl = self._vinyl_start(vylog)
        return self._startup(start, snapshot, vylog, logs)

    def _scanned(self, kind: str, force: bool, instance: str | None = None) -> list[Candidate]:
        """Scan the files of a kind by number (`xlog_dir_scan`): one bad header refuses all, or force skips
        that file.
        """
        sound: list[Candidate] = []
        for listed in sorted(self._files[kind], key=lambda c: (c.number, c.name)):
            found = self._opened_as(listed, sound)
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

    def _check_newest_snapshot(self) -> None:
        """Check the header of the newest snapshot, whose version 3.x reads before anything else
        (`get_snapshot_version`).
        """
        named = (c for c in self._files["snap"] if len(posixpath.basename(c.name)) == len(f"{0:020d}.snap"))
        newest = max(named, key=lambda c: c.number, default=None)
        if newest is not None and newest.fault is not None and not _LEFT_OUT.search(newest.fault[1]):
            _must_be_sound(newest)

    def _opened_as(self, listed: Candidate, before: list[Candidate]) -> Candidate:
        """Return the file that the server opens for a listed one: it makes the name from the number, with 20 digits."""
        folder, kind = posixpath.dirname(listed.name), listed.name.rpartition(".")[2]
        name = posixpath.join(folder, f"{listed.number:020d}.{kind}")
        found = next((c for c in self._files[kind] if c.name == name), None)
        if found is None:
            return listed._replace(fault=(0, f"failed to open '{path_of(name)}' file"))
        if found.fault is None and not all(is_ordered(found.vclock, c.vclock) for c in before):
            line = found.context.text.line("vclock")
            return listed._replace(fault=(line.start if line else 0, f"{path_of(name)}: invalid xlog order"))
        return found

    def _bootstrap(self, logs: list[Candidate]) -> Startup:
        """Plan a start without a snapshot: the server creates a new instance, and reads none of the files (run on
        2.6.0).
        """
        self._pass([*logs, *self._files["vylog"]], None, "no-snapshot")
        taken = [c for c in self._files["snap"] if c.number == 0]
        refusal = Stop(taken[0].name, None, "failed to create a checkpoint") if taken else None
        anything = bool(self._files["snap"] or logs)
        return Startup(Itinerary((), self._passed, refusal), bootstraps=anything and refusal is None)

    def _vylog(self, start: Vclock, instance: str | None) -> Candidate | None:
        """Select the newest metadata log; where the snapshot is newer, the server first creates one of its number
        from
        it.
        """
        vylogs = self._scanned("vylog", False, instance)
        if self._force and self._version.is_3:  # the server removes those that are newer than the snapshot
            newer = [c for c in vylogs if not below(c.vclock, start)]
            self._passed |= dict.fromkeys((c.name for c in newer), "newer-than-snapshot")
            vylogs = [c for c in vylogs if c not in newer]
        newest = _last(vylogs)
        self._pass(vylogs, newest, "older-file")
        if newest is not None and not below(newest.vclock, start) and self._against is None:
            raise Refusal(Stop(newest.name, None, "Can't find snapshot"))
        if newest is not None and not same(newest.vclock, start) and self._against is None:
            self._check_leftover(newest, f"{sum(start.values()):020d}.vylog.inprogress")
        return newest

    def _check_leftover(self, vylog: Candidate, name: str) -> None:
        """Refuse if a file that the server creates exists already (`xlog_create`)."""
        facts, path = _facts(vylog), posixpath.join(posixpath.dirname(vylog.name), name)
        if path in self._passed and isinstance(facts, VylogFacts) and facts.state.trees:
            raise Refusal(Stop(path, None, f"failed to create file './{name}'"))

    def _matched(self, logs: list[Candidate], start: Vclock) -> list[Candidate]:
        """Select the newest log that begins at or before the start, and all after it; else all (`vclockset_match`)."""
        first = max((i for i, log in enumerate(logs) if below(log.vclock, start)), default=0)
        self._passed |= dict.fromkeys((log.name for log in logs[:first]), "older-file")
        return logs[first:]

    def _pass(self, files: Iterable[Candidate], but: Candidate | None, reason: str) -> None:
        self._passed |= {c.name: reason for c in files if c is not but}

    # -- vinyl -----------------------------------------------------------------------------------------------------

    def _vinyl_start(self, vylog: Candidate | None) -> VinylStart:
        """Plan the recovery of vinyl: the state of the metadata log, and the files that it refers to."""
        files = {c.name: c for kind in ("run", "index") for c in self._files[kind]}
        damaged = (c for c in self._files["index"] if c.fault is None and _is_damaged(c.file))
        courses = {c.name: self._course(c, force=False) for c in damaged}
        leftovers = frozenset(name for name in self._passed if name.endswith(".inprogress"))
        elsewhere = None if files else "no run of vinyl is in this directory"
        if vylog is None:
            return VinylStart(None, None, files, courses, leftovers, unchecked=elsewhere)
        force = self._force and self._version.is_3
        course = self._courses[vylog.name] = self._course(vylog, force=force)
        state, fault = state_read(_facts(vylog), course, force=force)
        if fault is not None:
            raise Refusal(Stop(vylog.name, fault.offset, fault.why))
        return VinylStart(
            vylog.name, state, files, courses, leftovers, self._vylog_before(vylog), rebuilds=self._force,
            unchecked=elsewhere or (state.unchecked if state is not None else None),
        )  # fmt: skip

    def _vylog_before(self, vylog: Candidate) -> VylogState | None:
        """Return the state from which the checkpoint of a metadata log was made; None if its file is missing or
        damaged.
        """
        older = [c for c in self._files["vylog"] if c.fault is None and c.number < vylog.number]
        before = max(older, key=lambda c: c.number, default=None)
        if before is None or any(before.number < c.number < vylog.number for c in self._files["snap"]):
            return None
        facts = _facts(before)
        whole = isinstance(facts, VylogFacts) and not facts.damaged and facts.fault is None
        return facts.state if isinstance(facts, VylogFacts) and whole else None

    # -- the plan --------------------------------------------------------------------------------------------------

    def _startup(
        self, start: Vclock, snapshot: Candidate | None, vylog: Candidate | None, logs: list[Candidate]
    ) -> Startup:
        read = [c for c in (vylog, snapshot, *logs) if c is not None]
        for one in read:
            if one.name not in self._courses:
                self._courses[one.name] = self._course(one, force=self._force and one is not vylog)
        refusal = None
        if vylog is not None and (stop := self._courses[vylog.name].stop) is not None:
            refusal = Stop(vylog.name, *stop)
            read = [vylog]
        base = frozenset(c.name for c in (vylog, snapshot) if c is not None)
        itinerary = Itinerary(tuple(c.name for c in read), self._passed, refusal, base)
        return Startup(itinerary, start, snapshot, vylog, tuple(logs), self._courses, self._vinyl)

    def _course(self, found: Candidate, *, force: bool) -> Course:
        return course(found.file, self._reader(found.file), self._version, force=force)

    def _reader(self, file: Examined) -> Read:
        beside = self._situation.beside
        read = None if beside is None else beside(file.name if self._situation.whole else posixpath.basename(file.name))
        return read or (lambda offset, size: b"")


def _last(files: list[Candidate]) -> Candidate | None:
    return files[-1] if files else None


def _must_be_sound(found: Candidate) -> None:
    if found.fault is not None:
        raise Refusal(Stop(found.name, *found.fault))


def _is_damaged(file: Examined) -> bool:
    """Check that verification reports an error, or no end mark."""
    return any(one.severity is Severity.ERROR for one in file.findings) or file.tail is None or not file.tail.closed


def _facts(found: Candidate) -> object:
    return None if found.file.verdict is None else found.file.verdict.facts


# -- headers -----------------------------------------------------------------------------------------------------------


def _header_fault(file: Examined, context: FileContext) -> tuple[int, str] | None:
    """Return the server's message about the stored header, also where it is read with a bit corrected."""
    if file.layout is None:
        return 0, f"failed to open '{path_of(file.name)}' file"
    for one in filter(is_corrected, file.layout.findings):
        return one.facts["server_offset"], one.facts["server_says"]
    return header_fault(file.name, file.layout.findings, context)


def header_fault(name: str, findings: Iterable[Finding], context: FileContext) -> tuple[int, str] | None:
    """Predict the offset and message of the server's refusal of a header, in the order of its checks
    (`xlog_cursor_open`).
    """
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
    """Return where the server stops reading the vclock, counted from 1 (`vclock_from_string`)."""
    lines = (context.text.value(name) or "" for name in ("vclock", "prev_vclock"))
    for words in lines:
        read = _VCLOCK_PREFIX.match(words)
        if read is not None and not _VCLOCK.fullmatch(words):
            return read.end() + 1
    return 1
