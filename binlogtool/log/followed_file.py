"""One followed file: how far it was read, and what is new after that.

Each call reads from the last split point (`log.parts`), with a new layout and source. A held descriptor keeps the file
readable when its name is gone, and prevents its inode from being reused.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.limits import KIB, MIB, Limits
from binlogtool.log.blocks import BlockDecoder
from binlogtool.log.filters import RecordFilter
from binlogtool.log.marks import HEAD_SIZE, hash_file_identity
from binlogtool.log.opened_file import LogFile, SiblingFiles, open_file
from binlogtool.log.parts import FilePart, ResumePoint, ResumePointFinder
from binlogtool.log.records import FileFinding, FollowLoss, RecordBlock
from binlogtool.log.scan import Scan
from binlogtool.log.segments import DamagedRange
from binlogtool.log.select import Selection
from binlogtool.log.source import FileSource, Source, TruncatedSource, make_open_error, open_source
from binlogtool.log.unknown_columns import ColumnTracker
from binlogtool.schema import backends

FileIdentity = tuple[int, int]
"""Device and inode."""

_REREAD_BYTES = 64 * KIB
"""So many bytes are read once more rather than searched for a place to begin at."""

_MTIME_TICK_NS = 100_000_000
"""Nanoseconds in which a file can change twice with one modification time."""

_MAX_WRITE_S = 1.0
"""Seconds for which a write is under way at most."""

PendingFindings = dict[tuple[str, int | None], tuple[float, FileFinding]]
"""Id and offset of a finding -> since when it is known, and the finding."""

_COMPRESSED_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


class FollowReadOptions(NamedTuple):
    """How records are read; one for all files.

    filter: started once for each file (`RecordFilter.start_file`). columns: those that the condition names; None =
    there is none.
    """

    filter: RecordFilter
    limits: Limits
    backend: str
    hints: Hints
    decode: str
    raw: bool
    columns: ColumnTracker | None


class FollowedFile(msgspec.Struct):
    """State of one file.

    Attributes:
        identity: device and inode when it was found.
        size, stamp: size and modification time of the content that was read.
        records: number of its records then.
        head_hash: size and hash of its head.
        resume_point: where to resume.
        shared_before: what was learned in the files before it.
        file_selection: the part of the selection that applies to it.
        pending: damage that may be a write in progress; reported when it is still there later.
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

    def hold(self) -> bool:
        """Open the file if it is not open yet; False = the file no longer exists."""
        if self.handle is not None:
            return True
        try:
            self.handle = os.open(os.path.realpath(self.path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        except OSError:  # forbidden, or too many open files: reported when it is read
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

    # -- looking ---------------------------------------------------------------------------------------------------

    def read_new(
        self, options: FollowReadOptions, shared: dict[str, Any]
    ) -> Iterator[RecordBlock | FileFinding | FollowLoss]:
        """Yield what is new. shared: what was learned in other files, and here.

        Raises:
            BinlogtoolError: the file cannot be read.
        """
        status = self._status()
        if (status.st_size, status.st_mtime_ns) == (self.size, self.stamp):
            yield from self.report_pending()
            return
        just_now = abs(time.time_ns() - status.st_mtime_ns) < _MTIME_TICK_NS
        self.stamp = -1 if just_now else status.st_mtime_ns  # it may change again within the same tick
        source = self._open_source()
        old_size = self.size
        self.size = status.st_size if source.size is None else source.size
        yield from self._read_from_source(source, options, shared, old_size)

    def report_pending(self, *, gone: bool = False) -> Iterator[FileFinding]:
        """Yield pending findings that are still there after a while; gone: nothing will be written any more."""
        pending_items = list(self.pending.values())
        self.pending = {}
        for since, file_finding in pending_items:
            yield from self._report_certain(
                [file_finding], {_finding_key(file_finding): (-1.0 if gone else since, file_finding)}
            )

    def _report_once(self, file_finding: FileFinding) -> Iterator[FileFinding]:
        key = file_finding.finding.id, file_finding.finding.offset
        if key not in self.reported:
            self.reported.add(key)
            yield file_finding

    def _read_from_source(
        self, source: Source, options: FollowReadOptions, shared: dict[str, Any], old_size: int
    ) -> Iterator[RecordBlock | FileFinding | FollowLoss]:
        """Read on, with the file opened again."""
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
            size = min(HEAD_SIZE, file.size or 0)
            self.head_hash = size, hash_file_identity(file, size)
        finally:
            file.source.close()

    def _is_different_file(self, file: LogFile) -> bool:
        """Return True if this is not the file that was read so far, although it has its inode."""
        size, head_hash = self.head_hash
        return size > 0 and ((file.size or 0) < size or hash_file_identity(file, size) != head_hash)

    def _reset(self) -> None:
        self.records, self.resume_point, self.filter = 0, None, None
        self.reported.clear()
        self.pending.clear()

    def _advance_resume_point(self, file: LogFile, options: FollowReadOptions, old_size: int) -> None:
        """Find a later resume point in what was read before."""
        end = min(old_size, file.size or 0)
        resume_offset = 0 if self.resume_point is None else self.resume_point.offset
        if end < resume_offset:
            self.resume_point = None
        elif end - resume_offset >= _REREAD_BYTES:
            whole = replace(self._make_scan(file, options), source=TruncatedSource(file.source, end))
            skip = options.filter.selection.on_damage != "stop"
            first_pending = min((offset or 0 for _, offset in self.pending), default=end)
            for resume_point in ResumePointFinder(whole, MIB, self.resume_point, skips_damage=skip).find_all():
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
        """Yield the records after those that are known."""
        filter_, known_records = self._get_filter(file, options.filter), self.records
        scan = self._make_scan(file, options)
        scan = (
            scan if self.resume_point is None else FilePart(self.resume_point).make_scan(scan, file.format, file.layout)
        )
        decoder = BlockDecoder(file.path, file.format, file.layout, options.limits, options.decode, options.raw)
        old_pending, self.pending = self.pending, {}
        yield from self._report_certain([FileFinding(file.path, found) for found in file.layout.findings], old_pending)
        for segment in scan.segments():
            if isinstance(segment, DamagedRange):
                is_certain = segment.is_followed and not segment.hollow
                yield from self._report_certain(
                    [FileFinding(file.path, found) for found in segment.findings], old_pending, is_certain=is_certain
                )
                if filter_.selection.on_damage == "stop" and segment.tail == "damaged":
                    break
            else:
                if options.columns is not None:
                    options.columns.track_batch(decoder, segment)
                yield from self._skip_known(decoder.decode_batch(segment, filter_), known_records)
        if shortened and scan.records < known_records:
            text = f"shortened to {self.size:,} bytes: {known_records - scan.records:,} records are not in it any more"
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

    def _report_certain(
        self, file_findings: list[FileFinding], old_pending: PendingFindings, *, is_certain: bool = False
    ) -> Iterator[FileFinding]:
        """Yield findings that are certain, or have been there for a while; the others wait for the next call."""
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
