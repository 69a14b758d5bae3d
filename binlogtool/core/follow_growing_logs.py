"""Follow logs that grow: appended bytes, new, renamed and removed files.

Each call reads from the last split point (`core.open_log`), with a new layout and source. A held descriptor keeps the
file readable after its name was removed, and prevents its inode from being reused.

A file is held open from the listing that finds it, so that it is read to its end even if it is removed or replaced
meanwhile. State is kept only for existing files.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.apply_where import ConditionColumnChecker
from binlogtool.core.decode_batches import BlockDecoder
from binlogtool.core.divide_file import FilePart, ResumePoint, ResumePointFinder
from binlogtool.core.open_file import (
    HEAD_BYTES,
    IDENTITY_HEAD_SIZE,
    FileSource,
    LogFile,
    SiblingFiles,
    Source,
    TruncatedSource,
    hash_head_and_bytes_before,
    make_open_error,
    open_file,
    open_source,
)
from binlogtool.core.open_log import LogReader, take_last_records
from binlogtool.core.record_and_selection_types import (
    FileFinding,
    FollowLoss,
    ReadOptions,
    RecordBlock,
    Selection,
    is_gtid_position,
    is_sequence_position,
    split_file_prefix,
)
from binlogtool.core.record_filter import RecordFilter
from binlogtool.core.resolve_paths import resolve_logs
from binlogtool.core.scan_file import DamagedRange, Scan
from binlogtool.errors import BinlogtoolError, FileVanishedError, UnknownFormatError, UsageError
from binlogtool.format_api.format import Format, Hints
from binlogtool.limits import KIB, MIB, Limits
from binlogtool.schema import backends

# --- One followed file ---

FileIdentity = tuple[int, int]
"""Device and inode."""

_REREAD_BYTES = 64 * KIB
"""Maximum number of bytes that are reread rather than searched for a split point."""

_MTIME_TICK_NS = 100_000_000
"""Period in nanoseconds within which a file can change twice and keep the same modification time."""

_MAX_WRITE_S = 1.0
"""Longest assumed duration of a write, in seconds."""

PendingFindings = dict[tuple[str, int | None], tuple[float, FileFinding]]
"""Id and offset of a finding -> the time when it was first seen, and the finding."""

_COMPRESSED_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


class FollowReadOptions(NamedTuple):
    """Read options that all followed files share.

    filter: started once for each file (`RecordFilter.start_file`). columns: the columns in the condition; None = there
    is no condition.
    """

    filter: RecordFilter
    limits: Limits
    backend: str
    hints: Hints
    decode: str
    raw: bool
    columns: ConditionColumnChecker | None


class FollowedFile(msgspec.Struct):
    """State of one file.

    Attributes:
        identity: device and inode when the file was found.
        size, stamp: size and modification time of the content that was read.
        records: number of records in that content.
        head_hash: size and hash of its head.
        resume_point: where to resume.
        shared_before: state that earlier files share with it (`FileHead.shared`), from before it was read.
        file_selection: the part of the selection that applies to it.
        pending: damage that may be a write in progress; it is reported if it persists.
    """

    path: str
    name: str
    format: Format | None
    identity: FileIdentity
    handle: int | None = None
    size: int = -1
    stamp: int = -1
    records: int = 0
    head_hash: tuple[int, str] = (0, "")
    resume_point: ResumePoint | None = None
    file_selection: Selection | None = None
    filter: RecordFilter | None = None
    shared_before: dict[str, Any] | None = None
    reported: set[tuple[str, int | None]] = msgspec.field(default_factory=set)
    pending: PendingFindings = msgspec.field(default_factory=dict)

    # -- the descriptor --------------------------------------------------------------------------------------------

    def open_unless_vanished(self) -> bool:
        """Open the file if it is not open yet; False = the file no longer exists."""
        if self.handle is not None:
            return True
        try:
            self.handle = os.open(os.path.realpath(self.path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        except OSError:  # forbidden, or too many open files: reported when the file is read
            return True
        status = os.fstat(self.handle)
        if (status.st_dev, status.st_ino) == self.identity:
            return True
        self.release()  # replaced since it was listed
        return False

    def release(self) -> None:
        """Close the file."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None

    def _status(self) -> os.stat_result:
        if self.handle is not None:
            return os.fstat(self.handle)
        try:
            return os.stat(self.path)
        except OSError as error:
            raise make_open_error(self.path, error) from error

    def _open_source(self) -> Source:
        if self.handle is None:
            return open_source(self.path)
        head = os.pread(self.handle, 4, 0)
        if head.startswith(_COMPRESSED_MAGIC):
            return open_source(self.path)
        return FileSource(self.path, self.handle)

    # -- reads -----------------------------------------------------------------------------------------------------

    def read_new_records(
        self, options: FollowReadOptions, shared_state: dict[str, Any]
    ) -> Iterator[RecordBlock | FileFinding | FollowLoss]:
        """Yield what is new in this file since the last call: records, findings that persist, and losses.

        Raises:
            BinlogtoolError: the file cannot be read.
        """
        status = self._status()
        if (status.st_size, status.st_mtime_ns) == (self.size, self.stamp):
            yield from self.report_persisting_findings()
            return
        just_now = abs(time.time_ns() - status.st_mtime_ns) < _MTIME_TICK_NS
        self.stamp = -1 if just_now else status.st_mtime_ns  # the file may change again within the same tick
        source = self._open_source()
        old_size = self.size
        self.size = status.st_size if source.size is None else source.size
        yield from self._read_from_source(source, options, shared_state, old_size)

    def report_persisting_findings(self, *, is_removed: bool = False) -> Iterator[FileFinding]:
        """Yield pending findings that have persisted for a while.

        is_removed: the file was removed, so it does not change.
        """
        pending_items = list(self.pending.values())
        self.pending = {}
        for since, file_finding in pending_items:
            yield from self._report_confirmed_findings(
                [file_finding], {_finding_key(file_finding): (-1.0 if is_removed else since, file_finding)}
            )

    def _report_once(self, file_finding: FileFinding) -> Iterator[FileFinding]:
        key = file_finding.finding.id, file_finding.finding.offset
        if key not in self.reported:
            self.reported.add(key)
            yield file_finding

    def _read_from_source(
        self, source: Source, options: FollowReadOptions, shared: dict[str, Any], old_size: int
    ) -> Iterator[RecordBlock | FileFinding | FollowLoss]:
        """Continue reading from a newly opened source."""
        self.shared_before = dict(shared) if self.shared_before is None else self.shared_before
        learned = {**shared, **self.shared_before} if self.resume_point is None else shared
        file = open_file(
            self.path, self.name, self.format, options.limits, source, SiblingFiles(learned), options.hints
        )
        try:
            self.format = file.format
            shared.update(learned)
            if self._is_different_file(file):
                self._reset()
            self._advance_resume_point(file, options, old_size)
            yield from self._read_records(file, options, shortened=self.size < old_size)
            size = min(IDENTITY_HEAD_SIZE, file.size or 0)
            self.head_hash = size, hash_head_and_bytes_before(file, size)
        finally:
            file.source.close()

    def _is_different_file(self, file: LogFile) -> bool:
        """Return True if this is another file than the one read so far, although it has the same inode."""
        size, head_hash = self.head_hash
        return size > 0 and ((file.size or 0) < size or hash_head_and_bytes_before(file, size) != head_hash)

    def _reset(self) -> None:
        self.records, self.resume_point, self.filter = 0, None, None
        self.reported.clear()
        self.pending.clear()

    def _advance_resume_point(self, file: LogFile, options: FollowReadOptions, old_size: int) -> None:
        """Find a later resume point in the content that was already read."""
        end = min(old_size, file.size or 0)
        resume_offset = 0 if self.resume_point is None else self.resume_point.offset
        if end < resume_offset:
            self.resume_point = None
        elif end - resume_offset >= _REREAD_BYTES:
            whole = replace(self._make_scan(file, options), source=TruncatedSource(file.source, end))
            skip = options.filter.selection.on_damage != "stop"
            first_pending = min((offset or 0 for _, offset in self.pending), default=end)
            for resume_point in ResumePointFinder(
                whole, MIB, self.resume_point, skips_damage=skip
            ).iter_resume_points():
                self.resume_point = (
                    resume_point if resume_offset < resume_point.offset <= first_pending else self.resume_point
                )
        if self.resume_point is not None:
            self.reported = {key for key in self.reported if key[1] is None or key[1] >= self.resume_point.offset}

    @staticmethod
    def _make_scan(file: LogFile, options: FollowReadOptions) -> Scan:
        backend = backends.choose_backend(options.backend)
        window = file.window if file.size is None else None
        return Scan(file.source, file.format, file.layout, backend, options.limits, True, True, window)

    def _read_records(
        self, file: LogFile, options: FollowReadOptions, *, shortened: bool
    ) -> Iterator[RecordBlock | FileFinding | FollowLoss]:
        """Yield the records after those that were already returned."""
        filter_, known_records = self._get_filter(file, options.filter), self.records
        scan = self._make_scan(file, options)
        scan = (
            scan if self.resume_point is None else FilePart(self.resume_point).make_scan(scan, file.format, file.layout)
        )
        decoder = BlockDecoder(file.path, file.format, file.layout, options.limits, options.decode, options.raw)
        old_pending, self.pending = self.pending, {}
        yield from self._report_confirmed_findings(
            [FileFinding(file.path, found) for found in file.layout.findings], old_pending
        )
        for segment in scan.segments():
            if isinstance(segment, DamagedRange):
                is_certain = segment.is_followed and not segment.hollow
                yield from self._report_confirmed_findings(
                    [FileFinding(file.path, found) for found in segment.findings], old_pending, is_certain=is_certain
                )
                if filter_.selection.on_damage == "stop" and segment.tail == "damaged":
                    break
            else:
                if options.columns is not None:
                    options.columns.collect_columns_of_batch(decoder, segment)
                yield from self._skip_known(decoder.decode_batch(segment, filter_), known_records)
        if shortened and scan.records < known_records:
            text = f"shortened to {self.size:,} bytes: {known_records - scan.records:,} records are gone"
            yield FollowLoss(self.path, text, 0)
        self.records = scan.records if shortened else max(self.records, scan.records)
        if reason := scan.incomplete or scan.over_limit:
            yield FollowLoss(self.path, reason, 6)

    def _get_filter(self, file: LogFile, shared_filter: RecordFilter) -> RecordFilter:
        if self.filter is None:
            shared_filter.start_file(
                self.file_selection or shared_filter.selection, file.size, file.format.output, file.layout.page_size
            )
            self.filter = copy(shared_filter)
        return self.filter

    def _report_confirmed_findings(
        self, file_findings: list[FileFinding], old_pending: PendingFindings, *, is_certain: bool = False
    ) -> Iterator[FileFinding]:
        """Yield findings that are certain or have persisted for a while; keep the others for the next call."""
        now = time.monotonic()
        for file_finding in file_findings:
            since, _ = old_pending.get(_finding_key(file_finding), (now, file_finding))
            if is_certain or now - since >= _MAX_WRITE_S:
                yield from self._report_once(file_finding)
            else:
                self.pending[_finding_key(file_finding)] = since, file_finding

    def _skip_known(self, blocks: Iterator[RecordBlock], first_new: int) -> Iterator[RecordBlock]:
        """Yield the records from number `first_new` on."""
        for block in blocks:
            first = bisect_left(block.record, first_new)
            if first < len(block):
                yield block.part(first, len(block))
                self.records = max(self.records, block.record[-1] + 1)


def _finding_key(file_finding: FileFinding) -> tuple[str, int | None]:
    return file_finding.finding.id, file_finding.finding.offset


# --- Following of logs ---

FollowedItem = RecordBlock | FileFinding | FollowLoss

MAX_IDLE_FILES = 200
"""Maximum number of files held open between reads: those that changed last."""

MAX_HELD_FILES = 600
"""Maximum number of open files, including those that wait to be read. The usual limit of a process is 1,024."""

_LIST_INTERVAL_S = 0.1
"""Seconds between two listings while files are read."""


class _ListedFile(NamedTuple):
    """A file that a listing found."""

    path: str
    name: str
    format: Format | None
    identity: FileIdentity
    mtime_ns: int


class LogFollower:
    """Follow files and directories by name; use as a context manager.

    selection: as for `Log.blocks`, without `limit` and `skip`; `tail` = begin with the last existing records.
    """

    def __init__(
        self,
        paths: Iterable[str],
        selection: Selection = Selection(),
        read_options: ReadOptions = ReadOptions(),
        *,
        decode: str = "full",
        raw: bool = False,
    ) -> None:
        live_selection = replace(selection, live=True, limit=None, tail=None)
        self._tail = selection.tail
        self._paths = list(paths)
        if "-" in self._paths:
            raise UsageError("standard input cannot be followed; name a file or a directory")
        self._format = read_options.format
        limits, hints = replace(read_options.limits, timeout=None), read_options.hints or Hints()
        columns = None if live_selection.where is None else ConditionColumnChecker(live_selection.where)
        self._options = FollowReadOptions(
            RecordFilter(live_selection), limits, read_options.backend, hints, decode, raw, columns
        )
        self._followed: dict[str, FollowedFile] = {}
        self._shared: dict[str, Any] = {}
        self._reported: dict[str, str] = {}
        self._selection = live_selection
        self._is_stopped = False
        self._removed: list[FollowedFile] = []
        self._newest_paths: set[str] = set()
        self._listed_at = 0.0
        self._is_first_look = True

    def look(self) -> Iterator[FollowedItem]:
        """Return everything new since the last call: records, damage, and losses (parts that can no longer be read).

        Raises:
            BinlogtoolError: the first call finds no log to follow.
            UsageError: the selection is invalid.
        """
        items = self._iter_new_items()
        if self._tail is not None and self._is_first_look:
            return take_last_records(items, self._tail)
        return items

    def _iter_new_items(self) -> Iterator[FollowedItem]:
        """List the files, then yield the rests of removed files and what is new in each followed file."""
        self._update_listing()
        while self._removed:
            yield from self._relist_files_between_items(self._read_rest_of_removed_file(self._removed.pop(0)))
        for file in list(self._followed.values()):
            yield from self._relist_files_between_items(self._read_new(file))
            if file.path not in self._newest_paths and self._followed.get(file.path) is file:
                file.release()
        self._is_first_look = False

    @property
    def unknown_column(self) -> str | None:
        """Message about a column of the condition that is in no table described so far; None = all are known."""
        return None if self._options.columns is None else self._options.columns.unknown_message

    def _relist_files_between_items(self, items: Iterator[FollowedItem]) -> Iterator[FollowedItem]:
        """Yield the parts unchanged; in between, list the files again from time to time, to hold new ones open."""
        for part in items:
            yield part
            if time.monotonic() > self._listed_at + _LIST_INTERVAL_S:
                self._update_listing()
        if time.monotonic() > self._listed_at + _LIST_INTERVAL_S:
            self._update_listing()

    def _update_listing(self) -> None:
        """List the files, and hold open the newest ones and those that wait to be read."""
        listed = list(self._iter_listed())
        self._removed += self._follow_listed_and_return_removed(listed)
        self._newest_paths = {one.path for one in sorted(listed, key=_mtime)[-MAX_IDLE_FILES:]}
        held_count = sum(one.handle is not None for one in (*self._followed.values(), *self._removed))
        for path, file in list(self._followed.items()):
            if file.handle is None and (path in self._newest_paths or (file.size < 0 and held_count < MAX_HELD_FILES)):
                held_count += 1
                if not file.open_unless_vanished() and file.size < 0:
                    del self._followed[path]  # the file appeared and vanished
        self._listed_at = time.monotonic()

    # -- available files -------------------------------------------------------------------------------------------

    def _iter_listed(self) -> Iterator[_ListedFile]:
        for path in self._paths:
            for name, format_, file_path in self._iter_members(path):
                try:
                    status = os.stat(file_path)
                except OSError as error:
                    if not self._listed_at and file_path == path:
                        raise FileVanishedError(f"{path}: cannot be opened: {error.strerror}") from error
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield _ListedFile(file_path, name, format_, (status.st_dev, status.st_ino), status.st_mtime_ns)
                elif not self._listed_at and file_path == path:
                    raise UsageError(f"{path}: only files and directories can be followed")

    def _iter_members(self, path: str) -> Iterator[tuple[str, Format | None, str]]:
        """Yield name, format and path of each file, except the temporary files of a server."""
        if not os.path.isdir(path):
            yield path, None if self._format == "auto" else open_file_module.find_format(self._format), path
            return
        try:
            log_groups = resolve_logs(path, self._format)
        except UsageError:
            raise
        except BinlogtoolError:
            if not self._listed_at:
                raise
            return  # the directory has no log files at the moment
        for group in log_groups:
            temporary = () if group.format is None else group.format.files.temporary_patterns
            for name in group.names:
                if not any(fnmatch.fnmatchcase(os.path.basename(name), pattern) for pattern in temporary):
                    yield name, group.format, group.member_path(name)

    def _follow_listed_and_return_removed(self, listed_files: Sequence[_ListedFile]) -> list[FollowedFile]:
        """Follow the listed files, in this order; return the followed files that no longer have a name."""
        old_files, self._followed = self._followed, {}
        kept_paths = {
            one.path
            for one in listed_files
            if (old_file := old_files.get(one.path)) and old_file.identity == one.identity
        }
        orphans = {old.identity: old for path, old in old_files.items() if path not in kept_paths}
        for file in listed_files:
            if file.path in kept_paths:
                self._followed[file.path] = old_files[file.path]
                continue
            renamed = orphans.pop(file.identity, None)
            if renamed is not None:
                renamed.path, renamed.name = file.path, file.name
            self._followed[file.path] = renamed or FollowedFile(file.path, file.name, file.format, file.identity)
        self._reported = {path: text for path, text in self._reported.items() if path in self._followed}
        self._apply_positions_to_new_files()
        return list(orphans.values())

    def _apply_positions_to_new_files(self) -> None:
        """Decide to which of the new files each position applies; files after a stop position are not followed."""
        selection, new_files = self._selection, [one for one in self._followed.values() if one.file_selection is None]
        if not new_files or (selection.start is None and selection.stop is None and not self._is_stopped):
            for file in new_files:
                file.file_selection = selection
            return
        plan = [(one.path, one.name, one.format) for one in self._followed.values()]
        log = LogReader(plan, self._options.limits, self._options.backend, self._options.hints)
        parts = log.limit_selection_to_files(selection)
        file_selections = dict(zip(self._followed, parts, strict=False))
        for file in new_files:
            file.file_selection = file_selections.get(file.path)
            if file.file_selection is None or self._is_stopped:
                del self._followed[file.path]
        self._is_stopped = (
            self._is_stopped or len(file_selections) < len(plan) or _is_file_of_position_known(selection.stop, plan)
        )
        if _is_file_of_position_known(selection.start, plan):
            self._selection = replace(selection, start=None)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read_rest_of_removed_file(self, file: FollowedFile) -> Iterator[FollowedItem]:
        """Yield the rest of a file that was removed."""
        if file.handle is not None:
            yield from self._read_new(file)
            yield from file.report_persisting_findings(is_removed=True)
        elif file.size < 0:
            yield self._make_missed_loss(file)
        file.release()

    def _read_new(self, file: FollowedFile) -> Iterator[FollowedItem]:
        try:
            for part in file.read_new_records(self._options, self._shared):
                if not isinstance(part, FollowLoss) or self._record_loss_if_new(part):
                    yield part
        except UsageError:
            raise
        except BinlogtoolError as error:
            if self._is_first_look and file.path in self._paths:
                raise
            if isinstance(
                error, FileVanishedError
            ):  # the file was not held open; if it was read, the next listing does not contain it
                yield from [self._make_missed_loss(file)] if file.size < 0 else []
                return
            if not isinstance(error, UnknownFormatError) or file.size >= HEAD_BYTES:  # else: still too short
                loss = FollowLoss(file.path, str(error).removeprefix(f"{file.path}: "), error.exit_code)
                if self._record_loss_if_new(loss):
                    yield loss

    @staticmethod
    def _make_missed_loss(file: FollowedFile) -> FollowLoss:
        file.size = 0
        return FollowLoss(file.path, "removed before it was read", FileVanishedError.exit_code)

    def _record_loss_if_new(self, loss: FollowLoss) -> bool:
        """Return True and remember the loss, unless the same reason was reported for this file."""
        if self._reported.get(loss.file) == loss.reason:
            return False
        self._reported[loss.file] = loss.reason
        return True

    def close(self) -> None:
        """Release all files."""
        for file in (*self._followed.values(), *self._removed):
            file.release()

    def __enter__(self) -> LogFollower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _mtime(file: _ListedFile) -> int:
    return file.mtime_ns


def _is_file_of_position_known(position: str | None, files: Sequence[tuple[str, str, Format | None]]) -> bool:
    """Return True if the file to which a position applies is known; False for a position that applies to all files."""
    if position is None or is_gtid_position(position) or is_sequence_position(position):
        return False
    name, _ = split_file_prefix(position)
    return name is None or any(name in (path, os.path.basename(path)) for path, _, _ in files)
