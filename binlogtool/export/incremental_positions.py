"""Incremental export: the position up to which each growing log was read, and the commits of each run's additions.

A record that a crash left unfinished at the end of a closed file is lost: in tables and streams it counts as damage,
not as a note.

A file is always read up to a point where no transaction is open (`ReadPosition`); later bytes wait for the next such
point. Once a later file of the log was written to, a file is read to its end, whatever its content, and is finished.

The output consists of the files that the highest commit lists, and no others. A part file is moved into place before
its commit appears; files that a killed run left are not part of the output, and the next run removes them. A lock
prevents a second writer.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from os.path import basename, dirname
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from binlogtool._version import __version__
from binlogtool.core import open_file as open_file_module
from binlogtool.core.divide_file import (
    FilePart,
    ResumePoint,
    ResumePointFinder,
    compute_state_for_next_file,
    divide_range,
)
from binlogtool.core.open_file import TruncatedSource, base_name, read_range
from binlogtool.core.open_log import LogReader, open_log
from binlogtool.core.record_and_selection_types import RecordBlock, Selection
from binlogtool.errors import BinlogtoolError, FileVanishedError, InputOutputError, RefusedError, name_os_errors
from binlogtool.export.manifest import (
    FileStamp,
    ManifestCheck,
    ReadRequest,
    TaskFile,
    hash_file,
    list_files,
    read_stamp,
)
from binlogtool.findings import ENCRYPTED, Finding, Severity, make_finding
from binlogtool.limits import KIB, MIB
from binlogtool.rename_without_replacing import fsync_path

# --- Read position of a growing file ---

_FILE_START = ResumePoint(0, 0, 0)
_MIN_PIECE_BYTES = 4 * KIB
_PIECES_PER_LIMIT = 8
"""Number of reads, and so of possible end points, within a byte limit."""


class ReadBudget(msgspec.Struct):
    """Number of files and bytes that may still be read; None = no limit."""

    files: int | None = None
    bytes: int | None = None

    @property
    def is_spent(self) -> bool:
        """True if nothing more may be read."""
        return (self.files is not None and self.files < 1) or (self.bytes is not None and self.bytes < 1)

    def spend(self, size: int) -> None:
        """Deduct one file with this many bytes."""
        if self.files is not None:
            self.files -= 1
        if self.bytes is not None:
            self.bytes -= size


class ReadPosition(msgspec.Struct, frozen=True):
    """Position up to which one file was read.

    Args:
        place: position; offset 0 = nothing was read yet. For a finished file, `carried` is its state for the next file.
        done: the file was read to its end.
        mark: identity of the file, see `file_mark`; "" while no record was read.
        born: number of earlier files that had this name.
    """

    place: ResumePoint = _FILE_START
    format: str = "auto"
    done: bool = False
    mark: str = ""
    born: int = 0

    @property
    def begin(self) -> ResumePoint | None:
        """Position where reading continues; None = the beginning of the file."""
        return self.place if self.place.offset else None

    def bytes_since(self, previous: ReadPosition | None) -> int:
        """Return the number of bytes between two positions."""
        is_same_file = previous is not None and previous.born == self.born
        return self.place.offset - (previous.place.offset if is_same_file and previous is not None else 0)

    def without_definitions(self) -> ReadPosition:
        """Return a finished file's position without its carried state, not needed once the next file was started."""
        return replace(self, place=replace(self.place, carried=None)) if self.done else self

    def to_dict(self) -> dict[str, Any]:
        """Return the position in the form that Spark stores: texts and numbers."""
        values = asdict(self.place) | {"carried": json.dumps(self.place.carried, separators=(",", ":"))}
        return values | {"format": self.format, "done": self.done, "mark": self.mark, "born": self.born}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReadPosition:
        """Restore a position from `to_dict`."""
        place = ResumePoint(values["offset"], values["record"], values["frame"], json.loads(values["carried"]))
        return cls(place, values["format"], values["done"], values["mark"], values["born"])


def find_next_read_position(
    log: LogReader, position: ReadPosition, readable_end: int, max_bytes: int | None, *, is_file_closed: bool
) -> ReadPosition | None:
    """Return the position up to which the file of a log can be read, at most `readable_end`; None = unchanged.

    max_bytes: maximum bytes, but at least up to the next possible point. is_file_closed: the file will not grow beyond
    `readable_end`.
    """
    offset = position.place.offset
    if is_file_closed and (max_bytes is None or readable_end - offset <= max_bytes):
        return _finish_file(log, position, readable_end)
    place = _find_furthest_point(log, position.begin, readable_end, max_bytes)
    if has_end_mark(log, position.place if place is None else place, readable_end):
        return _finish_file(log, position, readable_end)
    if place is not None:
        return replace(position, place=place, mark=file_mark(log, place.offset) if place.record else "")
    if is_file_closed:
        return _finish_file(log, position, readable_end)
    return position if position.born and not offset else None


def has_end_mark(log: LogReader, place: ResumePoint, end: int) -> bool:
    """Return True if the end marker of a closed file lies between `place` and `end`."""
    file = log.files[0]
    mark = file.layout.frame.end_mark if file.layout.final else None
    if mark is None or not place.record or (place.offset + len(mark), file.size) != (end, end):
        return False
    return read_range(file.source, place.offset, len(mark)) == mark


def _finish_file(log: LogReader, position: ReadPosition, end: int) -> ReadPosition:
    """Return the position of a file that was read to its end, with the state that it carries to the next file."""
    carried = compute_state_for_next_file(log.make_scan(log.files[0]), FilePart(position.begin, end))
    return extend_position(
        log,
        replace(position, place=replace(_FILE_START, offset=position.place.offset, carried=carried), done=True),
        end,
    )


def extend_position(log: LogReader, position: ReadPosition, end: int) -> ReadPosition:
    """Return the position extended to the end of the file, at `end`."""
    end = max(end, position.place.offset)
    return replace(position, place=replace(position.place, offset=end), mark=file_mark(log, end))


def has_split_points(log: LogReader) -> bool:
    """Return True if the format of a log's file has points where reading can continue."""
    file = log.files[0]
    return file.format.reading.split_finder is not None and file.format.reading.split_finder(file.layout) is not None


def has_resume_point(log: LogReader, end: int) -> bool:
    """Return True if there is a point to continue reading after a record and before `end`."""
    return any(place.record for place in _resume_points(log, None, end, MIB))


def _find_furthest_point(
    log: LogReader, begin: ResumePoint | None, end: int, max_bytes: int | None
) -> ResumePoint | None:
    """Return the last resume point at most `max_bytes` after `begin`, otherwise the first; None if there is none."""
    offset, furthest = 0 if begin is None else begin.offset, None
    piece = MIB if max_bytes is None else min(MIB, max(_MIN_PIECE_BYTES, max_bytes // _PIECES_PER_LIMIT))
    for place in _resume_points(log, begin, end, piece) if end > offset else ():
        if furthest is not None and max_bytes is not None and place.offset > offset + max_bytes:
            break
        furthest = place
    return furthest


def _resume_points(log: LogReader, begin: ResumePoint | None, end: int, piece: int) -> Iterator[ResumePoint]:
    scan = log.make_scan(log.files[0])
    bounded_scan = replace(scan, source=TruncatedSource(scan.source, end))
    offset = 0 if begin is None else begin.offset
    return (
        place
        for place in ResumePointFinder(bounded_scan, piece, begin, skips_damage=True).iter_resume_points()
        if place.offset > offset
    )


def file_mark(log: LogReader, offset: int) -> str:
    """Return a hash that distinguishes the log's file from another file with the same name (`core.open_file`)."""
    return open_file_module.hash_head_and_bytes_before(log.files[0], offset)


def is_file_replaced(position: ReadPosition, log: LogReader) -> bool:
    """Return True if the log's file is another file than the one that was read earlier."""
    offset = position.place.offset
    return (log.files[0].size or 0) < offset or (position.mark != "" and file_mark(log, offset) != position.mark)


# --- Closed files of a log ---

_NUMBER = re.compile(r"\d+")
_TORN_TAIL = "torn-tail"


def log_key(name: str) -> str:
    """Return the path with its file numbers replaced by '#', which is the same for all files of one log."""
    return os.path.join(dirname(name), _NUMBER.sub("#", basename(name)))


def carried_state_group_key(name: str) -> str:
    """Return the group key of files that share carried state, for example snapshots and logs of one data directory."""
    stem, extension = os.path.splitext(key := log_key(name))
    return key if "#" in extension else stem


def carried_order(name: str) -> tuple[list[int], str]:
    """Return the sort key among files with one `carried_state_group_key`; equal numbers are sorted by extension."""
    return sequence_numbers(name), os.path.splitext(name)[1]


def sequence_numbers(name: str) -> list[int]:
    """Return the numbers in a file's name, by which the files of one log are ordered."""
    return [int(text) for text in _NUMBER.findall(basename(name))]


def has_complete_record_before(log: LogReader, end_offset: int) -> bool:
    """Return True if the file has a record before offset `end_offset`, followed by a point where no transaction is
    open.
    """
    if has_split_points(log):
        return has_resume_point(log, end_offset)
    blocks = log.blocks(Selection(limit=1), decode="frame", part=FilePart(None, end_offset))
    return any(isinstance(one, RecordBlock) for one in blocks)


def has_later_file_with_records(
    task_file: TaskFile, existing_files: Iterable[TaskFile], open_file: Callable[[TaskFile], LogReader]
) -> bool:
    """Return True if a later file of the same log was written to.

    Args:
        existing_files: all existing files.
        open_file: function that opens one of them.
    """
    log, number = log_key(task_file.path), sequence_numbers(task_file.path)
    later_members = [one for one in existing_files if log_key(one.path) == log and sequence_numbers(one.path) > number]
    return any(
        _has_records(one, open_file)
        for one in sorted(later_members, key=lambda one: sequence_numbers(one.path), reverse=True)
    )


def _has_records(member: TaskFile, open_file: Callable[[TaskFile], LogReader]) -> bool:
    try:
        with open_file(member) as log:
            return has_complete_record_before(log, log.files[0].size or 0)
    except BinlogtoolError:
        return False


def is_damage(finding: Finding, is_file_closed: Callable[[], bool]) -> bool:
    """Return True if a finding about bytes of a file means that these bytes could not be read correctly.

    is_file_closed: returns True if the file is closed; only called if the answer depends on it.
    """
    if finding.severity is not Severity.NOTE or finding.id == ENCRYPTED:
        return True
    return finding.id == _TORN_TAIL and is_file_closed()


# --- Incremental reading of logs that grow and rotate ---

ReadPositions = dict[str, ReadPosition]
LogFiles = list[tuple[str, str]]
"""(name, format name) of the files of one log, in log order."""

_STABLE_MTIME_NS = 2_000_000_000
"""Age in nanoseconds of a modification time from which a later write changes it for certain."""


class PlannedRead(msgspec.Struct, frozen=True):
    """Byte range of a file that one task reads.

    reached: the file's position after this read. earlier: state carried over from earlier files, see `Hints`.
    """

    member: TaskFile
    part: FilePart
    reached: ReadPosition
    earlier: str | None = None


class GrowingFileFinding(msgspec.Struct, frozen=True):
    """Finding that is reported for a file instead of records."""

    file: str
    format: str
    finding: Finding


class IncrementalInput:
    """Growing logs at the given paths.

    final: no file will grow any more. strict: raise if a file cannot be read; otherwise its position stays unchanged.
    """

    def __init__(
        self, paths: Sequence[str], format: str, request: ReadRequest, *, final: bool = False, strict: bool = False
    ) -> None:
        self.paths = paths
        self.format = format
        self.request = request
        self.final = final
        self.strict = strict
        self._frozen_sizes: dict[str, int] | None = None
        self._unchanged: dict[str, tuple[FileStamp, bool, ReadPosition]] = {}
        self._next_log = 0

    # -- positions ---------------------------------------------------------------------------------------------------

    def ignore_later_growth(self) -> None:
        """Ignore files and bytes that appear after this call."""
        self._frozen_sizes = None
        self._frozen_sizes = {name: self._file_size(name) for log in self._group_files_by_log() for name, _ in log}

    def _file_size(self, name: str) -> int:
        try:
            return read_stamp(name)[0]
        except BinlogtoolError:
            return 0

    def advance_positions_in_place(self, positions: ReadPositions, budget: ReadBudget) -> None:
        """Move the position of each file as far as it can be read now; drop files that their server removed.

        With a budget, the oldest files of a log come first, and logs take turns. The bytes up to the next point without
        an open transaction may exceed the budget, so that reading always advances.

        Raises:
            BinlogtoolError: a file cannot be read, if `strict`.
        """
        before: dict[str, list[str]] = {}
        for name in positions:
            before.setdefault(log_key(name), []).append(name)
        logs = list(self._group_files_by_log())
        first_log = self._next_log % len(logs) if logs else 0
        for number, log in enumerate([*logs[first_log:], *logs[:first_log]], first_log + 1):
            _drop_purged(log, positions, before.get(log_key(log[0][0]), ()))
            self._advance_log(log, positions, budget)
            if budget.is_spent:
                self._next_log = number
                break
        self._unchanged = {name: seen for name, seen in self._unchanged.items() if name in positions}

    def list_files(self) -> Iterator[tuple[str, str]]:
        """Yield (name, format name) of all files that exist and are not empty."""
        return ((name, format_) for log in self._group_files_by_log() for name, format_ in log if self._file_size(name))

    def _group_files_by_log(self) -> Iterator[LogFiles]:
        """Yield groups of files that a server writes one after another; their names differ only in numbers."""
        logs: dict[str, dict[str, str]] = {}
        for path in self.paths:
            try:
                files = list_files(path, self.format)
            except BinlogtoolError:
                if self.strict:
                    raise
                continue
            for name, format_ in files:
                if (self._frozen_sizes is None or name in self._frozen_sizes) and not _is_temporary(
                    name, path, format_
                ):
                    logs.setdefault(log_key(name), {})[name] = format_
        return (sorted(log.items(), key=lambda one: sequence_numbers(one[0])) for log in logs.values())

    def _advance_log(self, log: LogFiles, positions: ReadPositions, budget: ReadBudget) -> None:
        """Advance the files of one log, the oldest first; with news, drop the state of those with a successor."""
        last = len(log) if self.final else self._find_last_written_index(log, positions)
        succeeded = [one for (one, _), (successor, _) in pairwise(log) if one in positions and successor in positions]
        has_news = False
        for number, (name, format_) in enumerate(log):
            if budget.is_spent:
                break
            before, earlier = positions.get(name), self._find_carried_state_json(name, positions)
            reached = self._next_position(
                name, before or ReadPosition(format=format_), number < last, budget.bytes, earlier
            )
            if reached is not None and reached != before:
                positions[name] = reached
                budget.spend(reached.bytes_since(before))
                has_news = True
        if has_news:
            positions.update({name: positions[name].without_definitions() for name in succeeded})

    def _find_last_written_index(self, log: LogFiles, positions: ReadPositions) -> int:
        """Return the index of the last file that was written to.

        Files before it are complete, and so are their parts in this file (MariaDB's .ibb files).
        """
        indexes = (i for i in reversed(range(1, len(log))) if self._is_written(*log[i], positions.get(log[i][0])))
        return next(indexes, 0)

    def _is_written(self, name: str, format: str, reached: ReadPosition | None) -> bool:
        if reached is not None and (reached.place.record or reached.done):
            return True
        try:
            with self.open_file(name, format) as log:
                return has_complete_record_before(log, self._visible_end(name, log))
        except BinlogtoolError:
            return False

    @staticmethod
    def _find_carried_state_json(name: str, positions: Mapping[str, ReadPosition]) -> str | None:
        """Return the state after the finished files that is needed to read a later file of the log, as
        `Hints.earlier`.
        """
        log, number = carried_state_group_key(name), carried_order(name)
        last_by_kind: dict[str, str] = {}
        for one in sorted(positions, key=carried_order):
            if carried_state_group_key(one) == log and carried_order(one) < number:
                last_by_kind[log_key(one)] = one
        carrying = [one for one in last_by_kind.values() if positions[one].done and positions[one].place.carried]
        if not carrying:
            return None
        last = max(carrying, key=carried_order)
        return json.dumps({"name": base_name(last), "carried": positions[last].place.carried})

    def _next_position(
        self, name: str, before: ReadPosition, closed: bool, max_bytes: int | None, earlier: str | None
    ) -> ReadPosition | None:
        """Return the position up to which a file is read next; None = unchanged.

        closed: the file will not grow any more. max_bytes: maximum number of bytes.
        """
        try:
            file_stamp = read_stamp(name)
            state = (file_stamp, closed, before)
            if self._unchanged.get(name) == state or (self.strict and not file_stamp[0]):
                return None
            with self.open_file(name, before.format, earlier) as log:
                if not log.files[0].layout.has_records:
                    return None  # an index or state file beside a log
                reached = self._advance_file(log, before, self._visible_end(name, log), max_bytes, closed=closed)
        except BinlogtoolError as error:
            if self.strict and not isinstance(error, FileVanishedError):
                raise
            return None
        if reached in (None, before) and time.time_ns() - file_stamp[1] > _STABLE_MTIME_NS:
            self._unchanged[name] = state
        return reached

    @staticmethod
    def _advance_file(
        log: LogReader, before: ReadPosition, end: int, max_bytes: int | None, *, closed: bool
    ) -> ReadPosition | None:
        if is_file_replaced(before, log):
            before = ReadPosition(format=before.format, born=before.born + 1)
        return (
            extend_position(log, before, end)
            if before.done
            else find_next_read_position(log, before, end, max_bytes, is_file_closed=closed)
        )

    def _visible_end(self, name: str, log: LogReader) -> int:
        size = log.files[0].size or 0
        return size if self._frozen_sizes is None else min(size, self._frozen_sizes.get(name, 0))

    def open_file(self, name: str, format: str, earlier: str | None = None) -> LogReader:
        """Open one file. earlier: state carried over from the files before it.

        Raises:
            BinlogtoolError: the file cannot be read.
        """
        request = self.request if earlier is None else self.request.with_hints(earlier=earlier)
        return open_log(name, request.read_options(format), LogReader)

    # -- new bytes -----------------------------------------------------------------------------------------------

    def list_reads(
        self, before: Mapping[str, ReadPosition], after: Mapping[str, ReadPosition]
    ) -> list[PlannedRead | GrowingFileFinding]:
        """Return the new byte ranges between two sets of positions, file by file, and findings."""
        new = [
            piece
            for name, one in after.items()
            for piece in self._list_file_reads(
                name, before.get(name), one, self._find_carried_state_json(name, {**before, **after})
            )
        ]
        removed: list[GrowingFileFinding] = [
            GrowingFileFinding(name, one.format, _changed_finding(one, "removed before it was complete; what "
                "was not read is lost"))
            for name, one in before.items() if name not in after and not one.done
        ]  # fmt: skip
        return [*new, *removed]

    def _list_file_reads(
        self, name: str, before: ReadPosition | None, reached: ReadPosition, earlier: str | None
    ) -> Iterator[PlannedRead | GrowingFileFinding]:
        """Yield the new byte ranges of one file, or a finding if it was replaced or extended after its end."""
        if before == reached or (before is not None and before.without_definitions() == reached):
            return
        if before is not None and before.born != reached.born:
            text = "replaced by another file of the same name, which is read from its beginning"
            yield GrowingFileFinding(name, reached.format, _changed_finding(before, text))
            before = None
        elif before is not None and before.done:
            size = reached.place.offset - before.place.offset
            reason = (
                "it was complete (because of --final, or a later file)"
                if self.strict
                else "a later file of the log was started"
            )
            text = f"extended by {size:,} bytes after {reason}; they are not read"
            yield GrowingFileFinding(name, reached.format, _changed_finding(before, text))
            return
        for part in self._divide_range(name, before or ReadPosition(), reached, earlier) if reached.begin else []:
            begin = 0 if part.start is None else part.start.offset
            end = reached.place.offset if part.end is None else part.end
            yield PlannedRead(TaskFile(name, name, reached.format, end - begin), part, reached, earlier)

    def _divide_range(
        self, name: str, before: ReadPosition, reached: ReadPosition, earlier: str | None
    ) -> list[FilePart]:
        end = reached.place.offset
        if end - before.place.offset <= self.request.split_size:
            return [FilePart(before.begin, end)]
        try:
            with self.open_file(name, reached.format, earlier) as log:
                return divide_range(log.make_scan(log.files[0]), self.request.split_size, before.begin, end)
        except BinlogtoolError:
            return [FilePart(before.begin, end)]

    def is_as_planned(self, piece: PlannedRead) -> bool:
        """Return False if the file was replaced since the read was planned; True if not, or if it cannot be opened."""
        try:
            with self.open_file(piece.member.path, piece.member.format) as log:
                mark = piece.reached.mark
                return not mark or file_mark(log, piece.reached.place.offset) == mark
        except BinlogtoolError:
            return True


def _is_temporary(name: str, path: str, format: str) -> bool:
    """Return True for a temporary file of a server, unless the user named this file."""
    patterns = () if name == path or format == "auto" else open_file_module.find_format(format).files.temporary_patterns
    return any(fnmatch.fnmatchcase(os.path.basename(name), pattern) for pattern in patterns)


def _changed_finding(reached: ReadPosition, text: str) -> Finding:
    return make_finding("changed-while-read", reached.place.offset, 0, f"the file was {text}")


def _drop_purged(log: LogFiles, positions: ReadPositions, before: Iterable[str]) -> None:
    """Drop the files of `before` that are missing while a later file of their log exists, as after a purge.

    Nothing is dropped if all or the last files are missing: the file system may be unavailable, or the server was
    reset.
    """
    names, newest = {name for name, _ in log}, sequence_numbers(log[-1][0])
    for name in before:
        if name not in names and sequence_numbers(name) < newest:
            del positions[name]


# --- Numbered commits of an output that grows by `--append` ---

SCHEMA = "binlogtool/append/1"
COMMIT_FOLDER = "_binlogtool"
MAX_KEPT_COMMITS = 8
"""Number of commits that are kept; each lists the whole output, so older commits are for reference only."""

_COMMIT_NAME = re.compile(r"([1-9]\d*)\.json")
_PART_NAME = re.compile(r"part-(\d{8,})(?:-\d+)?\.(?:jsonl|parquet|orc|avro|(?:csv|json)(?:\.gz|\.bz2)?)")
_PENDING_PREFIX = "pending-"
_EMPTY_CHECK = b'"check": ""'


class CommittedInput(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """Position up to which one input file was converted.

    Args:
        generation: number of earlier files that had this name.
        mark: identity of the file among files with the same name.
        begin, end: byte range that the last run with new records read.
        sha256: hash of the bytes `[0, end)`.
        done: nothing more will be read from the file.
        gone: the server removed the file; if records were lost, that was reported.
        place: position where reading continues.
        last: record number and index within the record (-1 = the record itself) of the file's last row.
        steady: like sha256, without bytes that a server rewrites later; "" = unknown.
    """

    name: str
    format: str
    generation: int
    mark: str
    begin: int
    end: int
    sha256: str
    done: bool
    gone: bool
    place: dict[str, Any]
    last: tuple[int, int] | None = None
    steady: str = ""

    @property
    def end_position(self) -> ReadPosition:
        """The position reached, as the reader needs it."""
        return ReadPosition.from_dict({**self.place, "format": self.format, "done": self.done, "mark": self.mark,
                                  "born": self.generation})  # fmt: skip


class CommittedOutput(msgspec.Struct, frozen=True):
    """One file of the output. commit: number of the commit that added it."""

    path: str
    rows: int
    size: int
    sha256: str
    commit: int


class ParentCommit(msgspec.Struct, frozen=True):
    """Reference to the previous commit. sha256: hash of its file."""

    number: int
    sha256: str


class KnownTable(msgspec.Struct, frozen=True):
    """Table of the output so far: its directory, its columns with their types, and its key."""

    name: str
    directory: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]


class AppendCommit(msgspec.Struct, frozen=True):
    """State of the output after one run.

    rows: number of rows in the whole output; new: rows of this run. tables: the tables of typed rows so far. check:
    SHA-256 of the commit file without these digits; "" = unknown.
    """

    number: int = 0
    parent: ParentCommit | None = None
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    inputs: tuple[CommittedInput, ...] = ()
    outputs: tuple[CommittedOutput, ...] = ()
    rows: int = 0
    new: int = 0
    findings: tuple[Mapping[str, Any], ...] = ()
    tables: tuple[KnownTable, ...] = ()
    schema: str = SCHEMA
    tool: str = __version__
    check: str = ""

    def to_bytes(self) -> bytes:
        """Return the content of the commit file."""
        plain = msgspec.json.format(msgspec.json.encode(replace(self, check="")), indent=1) + b"\n"
        return plain.replace(_EMPTY_CHECK, b'"check": "%b"' % hashlib.sha256(plain).hexdigest().encode())

    def is_intact(self, data: bytes) -> bool:
        """Return True if the bytes of the commit file match its checksum."""
        return not self.check or hashlib.sha256(data.replace(self.check.encode(), b"")).hexdigest() == self.check


class CommitStore(msgspec.Struct, frozen=True):
    """Commit directory of an output, locked for this process."""

    output: Path

    @property
    def folder(self) -> Path:
        """Directory of the commits."""
        return self.output / COMMIT_FOLDER

    @contextlib.contextmanager
    def open_pending(self, number: int) -> Iterator[Path]:
        """Provide a directory for the files of a run before they are moved into place; it is removed at the end."""
        folder = self.folder / f"{_PENDING_PREFIX}part-{number:08d}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish_output(self, pending: Path, name: str, rows: int, number: int) -> CommittedOutput:
        """Move a finished file of a run into place. name: its path in the output."""
        target = self.output / name
        added = CommittedOutput(name, rows, pending.stat().st_size, hash_file(str(pending)), number)
        if not target.parent.is_dir():
            target.parent.mkdir()
            fsync_path(self.output)
        self.publish_file(pending, target)
        return added

    def pending_path(self, path: Path) -> Path:
        """Return the path of a file before it is moved into place; readers that look for *.json do not see it."""
        return self.folder / f"{_PENDING_PREFIX}{path.name.removesuffix('.json')}"

    def read_last(self) -> AppendCommit:
        """Read the highest commit; return an empty commit with number 0 if there is none yet.

        Raises:
            InputOutputError: the commit is damaged, or does not match the files that it lists.
        """
        numbers = self._list_numbers()
        return self._read_commit(max(numbers)) if numbers else AppendCommit()

    def _list_numbers(self) -> list[int]:
        return [int(match[1]) for name in os.listdir(self.folder) if (match := _COMMIT_NAME.fullmatch(name))]

    def _commit_path(self, number: int) -> Path:
        return self.folder / f"{number}.json"

    def _read_commit(self, number: int) -> AppendCommit:
        path = self._commit_path(number)
        try:
            commit = msgspec.json.decode(data := path.read_bytes(), type=AppendCommit)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputOutputError(
                f"{path}: is damaged: {error}; restore it from a copy, or start a new output"
            ) from error
        if commit.schema != SCHEMA or commit.number != number:
            raise InputOutputError(f"{path}: is not commit number {number} of schema {SCHEMA}")
        if not commit.is_intact(data):
            raise InputOutputError(f"{path}: was modified; restore it from a copy, or start a new output")
        if commit.rows != sum(one.rows for one in commit.outputs):
            raise InputOutputError(
                f"{path}: is damaged: its files do not add up to the {commit.rows:,} rows that it counts"
            )
        for output in commit.outputs:
            if not _has_size(self.output / output.path, output.size):
                message = (
                    f"{self.output / output.path}: is missing or not {output.size:,} bytes long, as {path} records"
                )
                raise InputOutputError(f"{message}; restore it from a copy, or start a new output")
        return commit

    def remove_and_report_uncommitted_files(self, last_commit: AppendCommit) -> list[str]:
        """Remove the files of a killed run after the last commit; return messages about them.

        Raises:
            RefusedError: there are files of later runs, so commits are missing; these files may be the only copy of
                their logs.
        """
        pending = [path for path in self.folder.iterdir() if _is_pending_name(path.name)]
        files = [*self.output.glob("part-*"), *self.output.glob("*/part-*")]
        numbers = {path: int(match[1]) for path in files if (match := _PART_NAME.fullmatch(path.name))}
        parts = [path for path, number in numbers.items() if number == last_commit.number + 1]
        later = sorted(path for path, number in numbers.items() if number > last_commit.number + 1)
        if later:
            text = (
                f"{later[0]}: is from a later run than the highest commit, {last_commit.number}, so commits are missing"
            )
            raise RefusedError(f"{text}; restore them from a copy, or start a new output")
        for path in (*pending, *parts):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return [f"{path}: removed: left by an interrupted run" for path in sorted((*pending, *parts))]

    def write_commit(self, previous_commit: AppendCommit, new_commit: AppendCommit) -> None:
        """Make `new_commit` the state of the output, and delete old commits."""
        path = self._commit_path(new_commit.number)
        if previous_commit.number:
            parent_sha256 = hashlib.sha256(self._commit_path(previous_commit.number).read_bytes()).hexdigest()
            new_commit = replace(new_commit, parent=ParentCommit(previous_commit.number, parent_sha256))
        pending = self.pending_path(path)
        pending.write_bytes(new_commit.to_bytes())
        self.publish_file(pending, path)
        for number in self._list_numbers():
            if number <= new_commit.number - MAX_KEPT_COMMITS:
                self._commit_path(number).unlink(missing_ok=True)

    def publish_file(self, pending: Path, target: Path) -> None:
        """Sync a finished file, and move it into place."""
        fsync_path(pending)
        pending.rename(target)
        fsync_path(target.parent)


def _is_pending_name(name: str) -> bool:
    """Return True for names of unfinished files."""
    return name.startswith(_PENDING_PREFIX)


@contextlib.contextmanager
def open_commit_store(output: Path) -> Iterator[CommitStore]:
    """Open the commit directory of an output, creating it if necessary, and lock it for this process.

    Raises:
        RefusedError: the path is no output of --append, or another process writes to it.
        InputOutputError: the output cannot be written.
    """
    store = CommitStore(output)
    with name_os_errors(output, "cannot be written"):
        _create_or_check_commit_folder(store)
        handle = os.open(store.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            _lock_store(handle, output)
            yield store
        finally:
            os.close(handle)


def _lock_store(handle: int, output: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RefusedError(f"{output}: another process appends to it") from error


def _create_or_check_commit_folder(store: CommitStore) -> None:
    """Create the output and its commit directory; raise RefusedError if the path holds something else."""
    output = store.output
    if not os.path.lexists(output):
        output.mkdir()
        fsync_path(output.parent)
    if output.is_symlink() or not output.is_dir():
        raise RefusedError(f"{output} exists and is not a directory; name another output")
    if not store.folder.is_dir():
        if any(output.iterdir()):
            raise RefusedError(f"{output} exists and was not made with --append; name another output")
        store.folder.mkdir()
        fsync_path(output)


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def build_append_checks(
    proof: str, previous: AppendCommit, commit: AppendCommit, key_count: int
) -> tuple[ManifestCheck, ...]:
    """Return the checks that a run passed. key_count: number of row keys that were checked to be unique."""
    return (
        ManifestCheck("rows-in-equal-rows-out", proof),
        ManifestCheck("rows-before-and-new", f"{previous.rows:,} + {commit.new:,} = {commit.rows:,}"),
        ManifestCheck("keys-are-unique", f"{key_count:,} of (generation, file, record, row), after all earlier ones"),
    )
