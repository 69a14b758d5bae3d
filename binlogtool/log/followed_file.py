"""One followed file: how far it was read, and what is new after that.

Each call reads from the last split point (`log.parts`), with a new layout and source. A held descriptor keeps the
file
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
from binlogtool.log.blocks import Blocks
from binlogtool.log.filters import Filter
from binlogtool.log.marks import HEAD, mark_of
from binlogtool.log.opened_file import Around, LogFile, open_file
from binlogtool.log.parts import Cuts, Part, Place
from binlogtool.log.records import Block, Lost, Trouble
from binlogtool.log.scan import Scan
from binlogtool.log.segments import Damage
from binlogtool.log.select import Selection
from binlogtool.log.source import FileSource, PartSource, Source, not_opened, open_source
from binlogtool.log.unknown_columns import Columns
from binlogtool.schema import backends

Identity = tuple[int, int]
"""Device and inode."""

_READ_AGAIN = 64 * KIB
"""So many bytes are read once more rather than searched for a place to begin at."""

_TICK = 100_000_000
"""Nanoseconds in which a file can change twice with one modification time."""

_WHILE = 1.0
"""Seconds for which a write is under way at most."""

Doubtful = dict[tuple[str, int | None], tuple[float, Trouble]]
"""Id and offset of a finding -> since when it is known, and the finding."""

_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


class Wanted(NamedTuple):
    """How records are read; one for all files.

    filter: started once for each file (`RecordFilter.start_file`). columns: those that the condition names; None =
    there is none.
    """

    filter: Filter
    limits: Limits
    backend: str
    hints: Hints
    decode: str
    raw: bool
    columns: Columns | None


class Followed(msgspec.Struct):
    """State of one file.

    Attributes:
        identity: device and inode when it was found.
        size, stamp: size and modification time of the content that was read.
        records: number of its records then.
        mark: size and hash of its head.
        place: where to resume.
        before: what was learned in the files before it.
        share: the part of the selection that applies to it.
        doubtful: damage that may be a write in progress; reported when it is still there later.
    """

    path: str
    name: str
    format: Format | None
    identity: Identity
    handle: int | None = None
    size: int = -1
    stamp: int = -1
    records: int = 0
    mark: tuple[int, str] = (0, "")
    place: Place | None = None
    share: Selection | None = None
    filter: Filter | None = None
    before: dict[str, Any] | None = None
    told: set[tuple[str, int | None]] = msgspec.field(default_factory=set)
    doubtful: Doubtful = msgspec.field(default_factory=dict)

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
            raise not_opened(self.path, error) from error

    def _source(self) -> Source:
        if self.handle is None:
            return open_source(self.path)
        head = os.pread(self.handle, 4, 0)
        if head.startswith(_PACKED):
            return open_source(self.path)
        return FileSource(self.path, self.handle)

    # -- looking ---------------------------------------------------------------------------------------------------

    def look(self, wanted: Wanted, shared: dict[str, Any]) -> Iterator[Block | Trouble | Lost]:
        """Yield what is new. shared: what was learned in other files, and here.

        Raises:
            BinlogtoolError: the file cannot be read.
        """
        status = self._status()
        if (status.st_size, status.st_mtime_ns) == (self.size, self.stamp):
            yield from self.settle()
            return
        just_now = abs(time.time_ns() - status.st_mtime_ns) < _TICK
        self.stamp = -1 if just_now else status.st_mtime_ns  # it may change again within the same tick
        source = self._source()
        before = self.size
        self.size = status.st_size if source.size is None else source.size
        yield from self._read(source, wanted, shared, before)

    def settle(self, *, gone: bool = False) -> Iterator[Trouble]:
        """Yield pending findings that are still there after a while; gone: nothing will be written any more."""
        waiting = list(self.doubtful.values())
        self.doubtful = {}
        for since, trouble in waiting:
            yield from self._judged([trouble], {_key(trouble): (-1.0 if gone else since, trouble)})

    def _once(self, trouble: Trouble) -> Iterator[Trouble]:
        key = trouble.finding.id, trouble.finding.offset
        if key not in self.told:
            self.told.add(key)
            yield trouble

    def _read(
        self, source: Source, wanted: Wanted, shared: dict[str, Any], before: int
    ) -> Iterator[Block | Trouble | Lost]:
        """Read on, with the file opened again."""
        self.before = dict(shared) if self.before is None else self.before
        known = {**shared, **self.before} if self.place is None else shared
        file = open_file(self.path, self.name, self.format, wanted.limits, source, Around(known), wanted.hints)
        try:
            self.format = file.format
            shared.update(known)
            if self._is_other(file):
                self._forget()
            self._advance(file, wanted, before)
            yield from self._new(file, wanted, shortened=self.size < before)
            size = min(HEAD, file.size or 0)
            self.mark = size, mark_of(file, size)
        finally:
            file.source.close()

    def _is_other(self, file: LogFile) -> bool:
        """Return True if this is not the file that was read so far, although it has its inode."""
        size, mark = self.mark
        return size > 0 and ((file.size or 0) < size or mark_of(file, size) != mark)

    def _forget(self) -> None:
        self.records, self.place, self.filter = 0, None, None
        self.told.clear()
        self.doubtful.clear()

    def _advance(self, file: LogFile, wanted: Wanted, before: int) -> None:
        """Find a later resume point in what was read before."""
        end = min(before, file.size or 0)
        at = 0 if self.place is None else self.place.offset
        if end < at:
            self.place = None
        elif end - at >= _READ_AGAIN:
            whole = replace(self._scan(file, wanted), source=PartSource(file.source, end))
            skip = wanted.filter.selection.on_damage != "stop"
            doubt = min((offset or 0 for _, offset in self.doubtful), default=end)
            for place in Cuts(whole, MIB, self.place, skip=skip).places():
                self.place = place if at < place.offset <= doubt else self.place
        if self.place is not None:
            self.told = {key for key in self.told if key[1] is None or key[1] >= self.place.offset}

    @staticmethod
    def _scan(file: LogFile, wanted: Wanted) -> Scan:
        backend = backends.choose(wanted.backend)
        window = file.window if file.size is None else None
        return Scan(file.source, file.format, file.layout, backend, wanted.limits, True, True, window)

    def _new(self, file: LogFile, wanted: Wanted, *, shortened: bool) -> Iterator[Block | Trouble | Lost]:
        """Yield the records after those that are known."""
        filter_, known = self._filter(file, wanted.filter), self.records
        scan = self._scan(file, wanted)
        scan = scan if self.place is None else Part(self.place).scan(scan, file.format, file.layout)
        maker = Blocks(file.path, file.format, file.layout, wanted.limits, wanted.decode, wanted.raw)
        before, self.doubtful = self.doubtful, {}
        yield from self._judged([Trouble(file.path, found) for found in file.layout.findings], before)
        for segment in scan.segments():
            if isinstance(segment, Damage):
                sure = segment.landed and not segment.hollow
                yield from self._judged([Trouble(file.path, found) for found in segment.findings], before, sure=sure)
                if filter_.selection.on_damage == "stop" and segment.tail == "damaged":
                    break
            else:
                if wanted.columns is not None:
                    wanted.columns.look(maker, segment)
                yield from self._unknown(maker.of(segment, filter_), known)
        if shortened and scan.records < known:
            text = f"shortened to {self.size:,} bytes: {known - scan.records:,} records are not in it any more"
            yield Lost(self.path, text, 0)
        self.records = scan.records if shortened else max(self.records, scan.records)
        if reason := scan.incomplete or scan.over_ceiling:
            yield Lost(self.path, reason, 6)

    def _filter(self, file: LogFile, first: Filter) -> Filter:
        if self.filter is None:
            first.begin(self.share or first.selection, file.size, file.format.output, file.layout.page)
            self.filter = copy(first)
        return self.filter

    def _judged(self, troubles: list[Trouble], before: Doubtful, *, sure: bool = False) -> Iterator[Trouble]:
        """Yield findings that are certain, or have been there for a while; the others wait for the next call."""
        now = time.monotonic()
        for trouble in troubles:
            since, _ = before.get(_key(trouble), (now, trouble))
            if sure or now - since >= _WHILE:
                yield from self._once(trouble)
            else:
                self.doubtful[_key(trouble)] = since, trouble

    def _unknown(self, blocks: Iterator[Block], known: int) -> Iterator[Block]:
        """Yield the records from number `known` on."""
        for block in blocks:
            first = bisect_left(block.record, known)
            if first < len(block):
                yield block.part(first, len(block))
                self.records = max(self.records, block.record[-1] + 1)


def _key(trouble: Trouble) -> tuple[str, int | None]:
    return trouble.finding.id, trouble.finding.offset
