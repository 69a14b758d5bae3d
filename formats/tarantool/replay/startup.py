"""Plan a start: the files that the server finds, the order in which it reads them, and what makes it refuse.

Source: `xlog_dir_scan`, `memtx_engine_new`, `vy_log_begin_recovery`;
`docs/spec/tarantool.md#reading-and-durable-end`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.heads import is_header_correction
from binlogtool.formats.layouts import RangeReader
from binlogtool.formats.replay_rules import ExaminedFile, ReadPlan, ReplaySituation, ReplayStop
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.judge.vinyl import VylogFacts
from binlogtool.formats.tarantool.layout.header import HeaderText
from binlogtool.formats.tarantool.layout.layout import TarantoolContext
from binlogtool.formats.tarantool.replay.server_reader import ServerReadResult, simulate_reading
from binlogtool.formats.tarantool.replay.server_version import OLDEST_VERSION, ServerVersion, choose_server_version
from binlogtool.formats.tarantool.replay.vinyl_start import VinylRecovery, read_vylog_state
from binlogtool.formats.tarantool.spaces.vylog import VylogState

Vclock = Mapping[int, int]

_FILE_NAME = re.compile(r"(\d+)\.(snap|xlog|vylog|run|index)")
_META_MESSAGES = {
    "bad_header_version": "unsupported file format version {version}",
    "bad_uuid": "can't parse instance UUID",
    "bad_vclock": "invalid vclock at offset {offset}",
}
_VCLOCK = re.compile(r"[ \t]*\{[ \t]*(?:\d+[ \t]*:[ \t]*\d+[ \t]*(?:,[ \t]*|(?=\})))*\}")
_VCLOCK_PREFIX = re.compile(r"[ \t]*(?:\{[ \t]*(?:\d+[ \t]*:[ \t]*\d+[ \t]*,?[ \t]*)*(?:\d+[ \t]*(?::[ \t]*)?)?)?")
_MAX_WORD_SIZE = 10
"""Bytes that the server has for the type, and for the version, with a zero behind each."""
_EMPTY_HEADER = HeaderText([], None)
_SKIPPABLE_FAULTS = re.compile("^Invalid xlog type|signature check failed$|invalid instance UUID$|invalid xlog order$")
"""Faults of a header that can be read."""
_SIGNATURE_DIAGNOSES = ("vclock_name_mismatch", "unknown_header_key")


class StartRefusedError(Exception):
    """The server gives up at once, at `stop`."""

    def __init__(self, stop: ReplayStop) -> None:
        super().__init__(stop.why)
        self.stop = stop


class CandidateFile(NamedTuple):
    """A file that the server finds.

    Attributes:
        number: of its name.
        fault: offset and server's message about its header, or None.
    """

    file: ExaminedFile
    context: TarantoolContext
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


class TarantoolStartup(msgspec.Struct, frozen=True):
    """The plan of one start.

    Attributes:
        snapshot, logs, vylog: files that the server reads.
        start: vclock that it begins with.
        read_results: name -> result of the server's reading.
        vinyl: recovery of the vinyl indexes; None where single files were named.
        bootstraps: it finds no snapshot, and creates a new, empty instance.
        version: of the server that starts.
    """

    itinerary: ReadPlan
    start: Vclock = msgspec.field(default_factory=dict)
    snapshot: CandidateFile | None = None
    vylog: CandidateFile | None = None
    logs: tuple[CandidateFile, ...] = ()
    read_results: Mapping[str, ServerReadResult] = msgspec.field(default_factory=dict)
    vinyl: VinylRecovery | None = None
    bootstraps: bool = False
    version: ServerVersion = OLDEST_VERSION


def format_path(name: str) -> str:
    """Format a file name as the server prints it."""
    return f"./{posixpath.basename(name)}"


def is_vclock_at_most(a: Vclock, b: Vclock) -> bool:
    """Check that no component of `a` is above that of `b` (`vclock_compare` <= 0)."""
    return all(lsn <= b.get(replica, 0) for replica, lsn in a.items())


def is_vclock_ordered(a: Vclock, b: Vclock) -> bool:
    """Check that one of two vclocks is before the other, and not equal (`vclock_compare`)."""
    return is_vclock_at_most(a, b) != is_vclock_at_most(b, a)


def is_same_vclock(a: Vclock, b: Vclock) -> bool:
    """Check that all components are equal."""
    return is_vclock_at_most(a, b) and is_vclock_at_most(b, a)


def plan_startup(situation: ReplaySituation, start: Vclock | None) -> TarantoolStartup:
    """Plan the start of a server.

    Args:
        start: vclock of a server that has already applied a part (`--against`), or None.
    """
    return _StartupPlanner(situation, start).create_plan()


class _StartupPlanner:
    """Examines the files as the server does."""

    def __init__(self, situation: ReplaySituation, start: Vclock | None) -> None:
        self._situation = situation
        self._force = situation.policy == "force"
        self._version = choose_server_version(situation.server_version, situation.files)
        self._start_vclock = start
        self._passed: dict[str, str] = {}
        self._read_results: dict[str, ServerReadResult] = {}
        self._files: dict[str, list[CandidateFile]] = {kind.lower(): [] for kind in FileKind}
        self._vinyl: VinylRecovery | None = None
        for file in situation.files:
            self._add_file(file)

    def _add_file(self, file: ExaminedFile) -> None:
        match = _FILE_NAME.fullmatch(posixpath.basename(file.name))
        if match is None:
            self._passed[file.name] = "ignored-file"
            return
        context = TarantoolContext(None, _EMPTY_HEADER) if file.layout is None else file.layout.context
        candidate = CandidateFile(file, context, int(match[1]), _find_header_fault(file, context))
        self._files[match[2]].append(candidate)

    def create_plan(self) -> TarantoolStartup:
        """Plan everything in the server's order; a refusal ends it."""
        for kind in ("run", "index"):
            self._passed |= dict.fromkeys((c.name for c in self._files[kind]), "vinyl-data")
        try:
            startup = self._plan_directory() if self._situation.is_directory else self._plan_single_files()
        except StartRefusedError as refusal:
            startup = TarantoolStartup(ReadPlan((), self._passed, refusal.stop))
        return replace(startup, version=self._version)

    def _plan_single_files(self) -> TarantoolStartup:
        """Plan single files that were named: they are read as given."""
        candidates = [c for kind in ("snap", "vylog", "xlog") for c in self._files[kind]]
        for candidate in candidates:
            _require_valid_header(candidate)
        snaps, vylogs, logs = (self._files[kind] for kind in ("snap", "vylog", "xlog"))
        start = self._start_vclock
        if start is None:
            start = logs[0].vclock if logs and not snaps else {}
        return self._create_startup(start, _get_last(snaps), _get_last(vylogs), logs)

    def _plan_directory(self) -> TarantoolStartup:
        """Plan a whole data directory."""
        snaps = self._scan_kind("snap", self._force)
        if self._force and self._version.is_3 and self._start_vclock is None:
            self._check_newest_snapshot()
        snapshot = _get_last(snaps) if self._start_vclock is None else None
        self._skip_files(snaps, snapshot, "older-file" if self._start_vclock is None else "already-applied")
        instance = None if snapshot is None else snapshot.context.instance
        logs = self._scan_kind("xlog", self._force, instance)
        if snapshot is None and self._start_vclock is None:
            return self._plan_bootstrap(logs)
        start: Vclock = snapshot.vclock if snapshot is not None else self._start_vclock or {}
        vylog = self._select_vylog(start, instance)
        logs = self._select_logs(logs, start)
        self._vinyl = self._plan_vinyl(vylog)
        return self._create_startup(start, snapshot, vylog, logs)

    def _scan_kind(self, kind: str, force: bool, instance: str | None = None) -> list[CandidateFile]:
        """Scan the files of a kind by number (`xlog_dir_scan`): one bad header refuses all, or force skips
        that file.
        """
        valid_files: list[CandidateFile] = []
        for listed_file in sorted(self._files[kind], key=lambda c: (c.number, c.name)):
            candidate = self._resolve_listed_file(listed_file, valid_files)
            if instance is not None and candidate.fault is None and candidate.context.instance != instance:
                line = candidate.context.text.get_line("instance")
                fault = (line.start if line else 0, f"{format_path(candidate.name)}: invalid instance UUID")
                candidate = candidate._replace(fault=fault)
            if candidate.fault is None:
                valid_files.append(candidate)
            elif force:
                self._passed[candidate.name] = "bad-header"
            else:
                _require_valid_header(candidate)
        return sorted(valid_files, key=lambda c: c.context.signature)

    def _check_newest_snapshot(self) -> None:
        """Check the header of the newest snapshot, whose version 3.x reads before anything else
        (`get_snapshot_version`).
        """
        named = (c for c in self._files["snap"] if len(posixpath.basename(c.name)) == len(f"{0:020d}.snap"))
        newest = max(named, key=lambda c: c.number, default=None)
        if newest is not None and newest.fault is not None and not _SKIPPABLE_FAULTS.search(newest.fault[1]):
            _require_valid_header(newest)

    def _resolve_listed_file(self, listed_file: CandidateFile, before: list[CandidateFile]) -> CandidateFile:
        """Return the file that the server opens for a listed one: it makes the name from the number, with 20 digits."""
        directory, kind = posixpath.dirname(listed_file.name), listed_file.name.rpartition(".")[2]
        name = posixpath.join(directory, f"{listed_file.number:020d}.{kind}")
        opened_file = next((c for c in self._files[kind] if c.name == name), None)
        if opened_file is None:
            return listed_file._replace(fault=(0, f"failed to open '{format_path(name)}' file"))
        if opened_file.fault is None and not all(is_vclock_ordered(opened_file.vclock, c.vclock) for c in before):
            line = opened_file.context.text.get_line("vclock")
            return listed_file._replace(fault=(line.start if line else 0, f"{format_path(name)}: invalid xlog order"))
        return opened_file

    def _plan_bootstrap(self, logs: list[CandidateFile]) -> TarantoolStartup:
        """Plan a start without a snapshot: the server creates a new instance, and reads none of the files (run on
        2.6.0).
        """
        self._skip_files([*logs, *self._files["vylog"]], None, "no-snapshot")
        conflicting_snapshots = [c for c in self._files["snap"] if c.number == 0]
        refusal = (
            ReplayStop(conflicting_snapshots[0].name, None, "failed to create a checkpoint")
            if conflicting_snapshots
            else None
        )
        has_files = bool(self._files["snap"] or logs)
        return TarantoolStartup(ReadPlan((), self._passed, refusal), bootstraps=has_files and refusal is None)

    def _select_vylog(self, start: Vclock, instance: str | None) -> CandidateFile | None:
        """Select the newest metadata log; where the snapshot is newer, the server first creates one of its number
        from
        it.
        """
        vylogs = self._scan_kind("vylog", False, instance)
        if self._force and self._version.is_3:  # the server removes those that are newer than the snapshot
            newer = [c for c in vylogs if not is_vclock_at_most(c.vclock, start)]
            self._passed |= dict.fromkeys((c.name for c in newer), "newer-than-snapshot")
            vylogs = [c for c in vylogs if c not in newer]
        newest = _get_last(vylogs)
        self._skip_files(vylogs, newest, "older-file")
        if newest is not None and not is_vclock_at_most(newest.vclock, start) and self._start_vclock is None:
            raise StartRefusedError(ReplayStop(newest.name, None, "Can't find snapshot"))
        if newest is not None and not is_same_vclock(newest.vclock, start) and self._start_vclock is None:
            self._check_leftover(newest, f"{sum(start.values()):020d}.vylog.inprogress")
        return newest

    def _check_leftover(self, vylog: CandidateFile, name: str) -> None:
        """Refuse if a file that the server creates exists already (`xlog_create`)."""
        facts, path = _get_facts(vylog), posixpath.join(posixpath.dirname(vylog.name), name)
        if path in self._passed and isinstance(facts, VylogFacts) and facts.state.trees:
            raise StartRefusedError(ReplayStop(path, None, f"failed to create file './{name}'"))

    def _select_logs(self, logs: list[CandidateFile], start: Vclock) -> list[CandidateFile]:
        """Select the newest log that begins at or before the start, and all after it; else all (`vclockset_match`)."""
        first = max((i for i, log in enumerate(logs) if is_vclock_at_most(log.vclock, start)), default=0)
        self._passed |= dict.fromkeys((log.name for log in logs[:first]), "older-file")
        return logs[first:]

    def _skip_files(self, files: Iterable[CandidateFile], except_file: CandidateFile | None, reason: str) -> None:
        self._passed |= {c.name: reason for c in files if c is not except_file}

    # -- vinyl -----------------------------------------------------------------------------------------------------

    def _plan_vinyl(self, vylog: CandidateFile | None) -> VinylRecovery:
        """Plan the recovery of vinyl: the state of the metadata log, and the files that it refers to."""
        files = {c.name: c for kind in ("run", "index") for c in self._files[kind]}
        damaged = (c for c in self._files["index"] if c.fault is None and _is_damaged(c.file))
        read_results = {c.name: self._simulate_file(c, force=False) for c in damaged}
        leftovers = frozenset(name for name in self._passed if name.endswith(".inprogress"))
        missing_reason = None if files else "no run of vinyl is in this directory"
        if vylog is None:
            return VinylRecovery(None, None, files, read_results, leftovers, unchecked=missing_reason)
        force = self._force and self._version.is_3
        read_result = self._read_results[vylog.name] = self._simulate_file(vylog, force=force)
        state, fault = read_vylog_state(_get_facts(vylog), read_result, force=force)
        if fault is not None:
            raise StartRefusedError(ReplayStop(vylog.name, fault.offset, fault.why))
        return VinylRecovery(
            vylog.name, state, files, read_results, leftovers, self._find_previous_state(vylog), rebuilds=self._force,
            unchecked=missing_reason or (state.unchecked if state is not None else None),
        )  # fmt: skip

    def _find_previous_state(self, vylog: CandidateFile) -> VylogState | None:
        """Return the state from which the checkpoint of a metadata log was made; None if its file is missing or
        damaged.
        """
        older = [c for c in self._files["vylog"] if c.fault is None and c.number < vylog.number]
        before = max(older, key=lambda c: c.number, default=None)
        if before is None or any(before.number < c.number < vylog.number for c in self._files["snap"]):
            return None
        facts = _get_facts(before)
        is_complete = isinstance(facts, VylogFacts) and not facts.damaged and facts.fault is None
        return facts.state if isinstance(facts, VylogFacts) and is_complete else None

    # -- the plan --------------------------------------------------------------------------------------------------

    def _create_startup(
        self, start: Vclock, snapshot: CandidateFile | None, vylog: CandidateFile | None, logs: list[CandidateFile]
    ) -> TarantoolStartup:
        files = [c for c in (vylog, snapshot, *logs) if c is not None]
        for candidate in files:
            if candidate.name not in self._read_results:
                self._read_results[candidate.name] = self._simulate_file(
                    candidate, force=self._force and candidate is not vylog
                )
        refusal = None
        if vylog is not None and (stop := self._read_results[vylog.name].stop) is not None:
            refusal = ReplayStop(vylog.name, *stop)
            files = [vylog]
        base = frozenset(c.name for c in (vylog, snapshot) if c is not None)
        itinerary = ReadPlan(tuple(c.name for c in files), self._passed, refusal, base)
        return TarantoolStartup(itinerary, start, snapshot, vylog, tuple(logs), self._read_results, self._vinyl)

    def _simulate_file(self, candidate: CandidateFile, *, force: bool) -> ServerReadResult:
        return simulate_reading(candidate.file, self._open_reader(candidate.file), self._version, force=force)

    def _open_reader(self, file: ExaminedFile) -> RangeReader:
        beside = self._situation.read_sibling
        read = (
            None
            if beside is None
            else beside(file.name if self._situation.is_directory else posixpath.basename(file.name))
        )
        return read or (lambda offset, size: b"")


def _get_last(files: list[CandidateFile]) -> CandidateFile | None:
    return files[-1] if files else None


def _require_valid_header(candidate: CandidateFile) -> None:
    if candidate.fault is not None:
        raise StartRefusedError(ReplayStop(candidate.name, *candidate.fault))


def _is_damaged(file: ExaminedFile) -> bool:
    """Check that verification reports an error, or no end mark."""
    return any(one.severity is Severity.ERROR for one in file.findings) or file.tail is None or not file.tail.closed


def _get_facts(candidate: CandidateFile) -> object:
    return None if candidate.file.verdict is None else candidate.file.verdict.facts


# -- headers -----------------------------------------------------------------------------------------------------------


def _find_header_fault(file: ExaminedFile, context: TarantoolContext) -> tuple[int, str] | None:
    """Return the server's message about the stored header, also where it is read with a bit corrected."""
    if file.layout is None:
        return 0, f"failed to open '{format_path(file.name)}' file"
    for correction in filter(is_header_correction, file.layout.findings):
        return correction.facts["server_offset"], correction.facts["server_says"]
    return predict_header_fault(file.name, file.layout.findings, context)


def predict_header_fault(name: str, findings: Iterable[Finding], context: TarantoolContext) -> tuple[int, str] | None:
    """Predict the offset and message of the server's refusal of a header, in the order of its checks
    (`xlog_cursor_open`).
    """
    errors = {f.facts.get("diagnosis"): f for f in findings if f.severity is Severity.ERROR}
    if context.text.end is None:
        return 0, "Unexpected end of file, run with 'force_recovery = true'"
    for line, line_name in zip(context.text.lines, ("type", "version"), strict=False):
        if line.end - line.start > _MAX_WORD_SIZE:
            return line.start, f"failed to parse xlog {line_name} string"
    for diagnosis, template in (("bad_header", "can't extract meta value"), *_META_MESSAGES.items()):
        if diagnosis in errors:
            version = context.text.lines[1].value if len(context.text.lines) > 1 else ""
            return errors[diagnosis].offset or 0, template.format(version=version, offset=_find_vclock_fault(context))
    if "bad_header_type" in errors:
        kind = posixpath.basename(name).rpartition(".")[2].upper()
        return 0, f"Invalid xlog type: expected {kind}, got {context.text.lines[0].value}"
    signature_error = next((errors[diagnosis] for diagnosis in _SIGNATURE_DIAGNOSES if diagnosis in errors), None)
    return (
        None
        if signature_error is None
        else (signature_error.offset or 0, f"{format_path(name)}: signature check failed")
    )


def _find_vclock_fault(context: TarantoolContext) -> int:
    """Return where the server stops reading the vclock, counted from 1 (`vclock_from_string`)."""
    lines = (context.text.get_value(name) or "" for name in ("vclock", "prev_vclock"))
    for text in lines:
        prefix = _VCLOCK_PREFIX.match(text)
        if prefix is not None and not _VCLOCK.fullmatch(text):
            return prefix.end() + 1
    return 1
