"""The streaming reader: follows growing and rotating logs, and hands out each durable record once.

An offset tells of each file how far it was read, always to a place where no transaction is open (`progress.Reached`).
What is behind the last such place waits. When something was written to a later file of the log, a file is read to its
end, whatever stands there: it is done. A finished file that its server removed is forgotten, so the offset stays as
small as the log is.

What a server never does is told by a DAMAGE row (`changed-while-read`), and the query goes on: one log that was reset
must not stop the reading of all others. A file that is another one than before (RESET MASTER, a restored copy) is then
read from its beginning. Where a file was replaced after its new bytes were planned and before they were read, such a
row stands in their place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.findings import Finding, finding
from binlogtool.formats.base import Hints
from binlogtool.limits import parse_size
from binlogtool.log.open import Log
from binlogtool.log.parts import Part, parts_between
from binlogtool.pipeline import objects, rows
from binlogtool.pipeline.closing import is_written, log_of, numbers
from binlogtool.pipeline.described import columns_of
from binlogtool.pipeline.inputs import Stamp, files_of, stamp
from binlogtool.pipeline.progress import Budget, Reached, advanced, grown, is_other, mark_of
from binlogtool.pipeline.request import Request, from_options, hints_of, members_of, paths_of
from binlogtool.pipeline.shares import in_groups
from binlogtool.pipeline.source import Maker, read_member
from binlogtool.pipeline.splits import Member

Files = dict[str, Reached]
Listed = list[tuple[str, str]]
"""The files of one log in its order, with their formats."""

_SETTLED_NS = 2_000_000_000
"""A time stamp that is younger may be that of a later write as well."""


class Planned(msgspec.Struct, frozen=True):
    """Bytes of a file that one task reads. reached: how far the file is read with them."""

    member: Member
    part: Part
    reached: Reached


class Told(msgspec.Struct, frozen=True):
    """A DAMAGE row."""

    file: str
    format: str
    finding: Finding


class Share(InputPartition):  # type: ignore[misc]
    """What one task reads. ids: what else the object of the request is called."""

    def __init__(self, pieces: Sequence[Planned | Told], ids: Sequence[str]) -> None:
        super().__init__(pieces)
        self.pieces = pieces
        self.ids = ids


class BinlogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """`spark.readStream.format("binlogtool")` with the options of the batch reader, and maxFilesPerTrigger or
    maxBytesPerTrigger."""

    def __init__(
        self, paths: Sequence[str], format: str, request: Request, hints: Hints | None = None,
        maker: Maker = rows.ALL, limit: ReadLimit | None = None,
    ) -> None:  # fmt: skip
        self.paths = paths
        self.format = format
        self.request = request
        self.hints = hints
        self.maker = maker
        self.limit = limit
        self._target: dict[str, int] | None = None
        self._seen: dict[str, tuple[Stamp, bool, Reached]] = {}
        self._turn = 0

    @classmethod
    def of(cls, options: Mapping[str, str], schema: Any) -> BinlogStream:
        """The reader that the options of a query ask for. schema: that of its rows, as Spark has it.

        Raises:
            UsageError: an option has no such value.
        """
        request = from_options(options, files=False)
        made: Maker = (
            rows.view(request.columns, request.payload) if request.object is None
            else objects.ObjectRows(objects.fields_of(schema))
        )  # fmt: skip
        paths, format_ = paths_of(options), options.get("format", "auto")
        for path in paths:
            if "*" in path and not os.path.exists(path):  # would be waited for
                raise UsageError(f"{path}: name the directory of the log; patterns are not looked up")
        return cls(paths, format_, request, hints_of(options), made, limit_of(options))

    # -- how far ---------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Nothing was read."""
        return {"files": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say."""
        return self.limit or ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on no file and no byte is seen that is not there now."""
        self._target = None
        self._target = {name: self._size(name) for log in self._logs() for name, _ in log}

    def _size(self, name: str) -> int:
        try:
            return stamp(name)[0]
        except BinlogtoolError:
            return 0

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """How far each file is to be read. A file that cannot be read stays where it is.

        With a limit the oldest files of a log come first, and the logs in turn. A limit may be passed by what stands
        between two places where no transaction is open: something is always read.
        """
        known, budget = files_in(start), budget_of(limit)
        before: dict[str, list[str]] = {}
        for name in known:
            before.setdefault(log_of(name), []).append(name)
        logs = list(self._logs())
        turn = self._turn % len(logs) if logs else 0
        for number, log in enumerate([*logs[turn:], *logs[:turn]], turn + 1):
            _forget(log, known, before.get(log_of(log[0][0]), ()))
            self._follow(log, known, budget)
            if budget.spent:
                self._turn = number
                break
        self._seen = {name: seen for name, seen in self._seen.items() if name in known}
        made = {"files": {name: one.as_dict() for name, one in known.items()}}
        return made | self._ids(start or {})

    def _ids(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """What else the object is called, once it was met: later its definition may be in a file that is gone."""
        if self.request.object is None or start.get("ids") is not None:
            return {"ids": start["ids"]} if "ids" in start else {}
        members = tuple(member for path in self.paths for member in self._members(path))
        found = columns_of(replace(self.request, members=members), self.hints)
        return {"ids": sorted(found.ids)} if found.described else {}

    def _members(self, path: str) -> list[Member]:
        try:
            return members_of(path, self.format)
        except BinlogtoolError:
            return []

    def _logs(self) -> Iterator[Listed]:
        """Files that a server writes one after the other: those whose names differ in numbers."""
        logs: dict[str, dict[str, str]] = {}
        for path in self.paths:
            try:
                found = files_of(path, self.format)
            except BinlogtoolError:
                continue
            for name, format_ in found:
                if self._target is None or name in self._target:
                    logs.setdefault(log_of(name), {})[name] = format_
        return (sorted(log.items(), key=lambda one: numbers(one[0])) for log in logs.values())

    def _follow(self, log: Listed, known: Files, budget: Budget) -> None:
        """Reads the files of one log on, the oldest first."""
        last = self._last_written(log, known)
        for number, (name, format_) in enumerate(log):
            if budget.spent:
                return
            before = known.get(name)
            reached = self._reached(name, before or Reached(format=format_), number < last, budget.bytes)
            if reached is not None and reached != before:
                known[name] = reached
                budget.take(reached.bytes_since(before))

    def _last_written(self, log: Listed, known: Files) -> int:
        """The last file with a place behind a record: those before are complete, also what goes on in it (.ibb)."""
        written = (i for i in reversed(range(1, len(log))) if self._is_written(*log[i], known.get(log[i][0])))
        return next(written, 0)

    def _is_written(self, name: str, format: str, reached: Reached | None) -> bool:
        if reached is not None and (reached.place.record or reached.done):
            return True
        try:
            with self._open(name, format) as log:
                return is_written(log, self._end(name, log))
        except BinlogtoolError:
            return False

    def _reached(self, name: str, before: Reached, closed: bool, most: int | None) -> Reached | None:
        """How far a file is to be read; None = as before. closed: it will not grow any more. most: bytes."""
        try:
            now = stamp(name)
            seen = (now, closed, before)
            if self._seen.get(name) == seen:
                return None
            with self._open(name, before.format) as log:
                reached = self._further(log, before, self._end(name, log), most, closed=closed)
        except BinlogtoolError:
            return None
        if reached in (None, before) and time.time_ns() - now[1] > _SETTLED_NS:
            self._seen[name] = seen
        return reached

    @staticmethod
    def _further(log: Log, before: Reached, end: int, most: int | None, *, closed: bool) -> Reached | None:
        if is_other(before, log):
            before = Reached(format=before.format, born=before.born + 1)
        return grown(log, before, end) if before.done else advanced(log, before, end, most, closed=closed)

    def _end(self, name: str, log: Log) -> int:
        size = log.files[0].size or 0
        return size if self._target is None else min(size, self._target.get(name, 0))

    def _open(self, name: str, format: str) -> Log:
        import binlogtool

        r = self.request
        return binlogtool.open(name, format=format, limits=r.limits, backend=r.backend, hints=self.hints)

    # -- what is read ----------------------------------------------------------------------------------------------

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[Share]:
        """What came between two offsets: parts of big files, groups of small ones."""
        before, after = files_in(start), files_in(end)
        pieces = [piece for name, one in after.items() for piece in self._pieces(name, before.get(name), one)]
        gone: list[Told] = [
            Told(name, one.format, _changed(one, "removed before it was complete; what was not read is lost"))
            for name, one in before.items() if name not in after and not one.done
        ]  # fmt: skip
        return [Share(share, end.get("ids") or ()) for share in self._shared([*pieces, *gone])]

    def _shared(self, pieces: Sequence[Planned | Told]) -> Iterator[list[Planned | Told]]:
        r = self.request
        sizes = [piece.member.size if isinstance(piece, Planned) else 0 for piece in pieces]
        yield from ([piece] for piece, size in zip(pieces, sizes, strict=True) if size >= r.split_size)
        small = [i for i, size in enumerate(sizes) if size < r.split_size]
        yield from in_groups([pieces[i] for i in small], [sizes[i] for i in small], r.groups)

    def _pieces(self, name: str, before: Reached | None, reached: Reached) -> Iterator[Planned | Told]:
        if before == reached:
            return
        if before is not None and before.born != reached.born:
            text = "replaced by another one of its name, which is read from its beginning"
            yield Told(name, reached.format, _changed(before, text))
            before = None
        elif before is not None and before.done:
            size = reached.place.offset - before.place.offset
            text = f"extended by {size:,} bytes after a later file of the log was begun; they are not read"
            yield Told(name, reached.format, _changed(before, text))
            return
        for part in self._parts(name, before or Reached(), reached) if reached.begin else []:
            begin = 0 if part.start is None else part.start.offset
            end = reached.place.offset if part.end is None else part.end
            yield Planned(Member(name, name, reached.format, end - begin), part, reached)

    def _parts(self, name: str, before: Reached, reached: Reached) -> list[Part]:
        end = reached.place.offset
        if end - before.place.offset <= self.request.split_size:
            return [Part(before.begin, end)]
        try:
            with self._open(name, reached.format) as log:
                return parts_between(log.scan(log.files[0]), self.request.split_size, before.begin, end)
        except BinlogtoolError:
            return [Part(before.begin, end)]

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        """The rows of one share."""
        request = self.request
        if request.object is not None:
            request = objects.selecting(request, partition.ids)
        for piece in partition.pieces:
            if isinstance(piece, Told):
                yield self.maker.damage(piece.file, piece.format, piece.finding)
            elif self._is_as_planned(piece):
                closed = partial(bool, piece.reached.done)
                yield from read_member(piece.member, request, self.hints, piece.part, self.maker, closed)
            else:
                found = finding("changed-while-read", 0, 0, "the file was replaced before its new bytes were read")
                yield self.maker.damage(piece.member.name, piece.member.format, found)

    def _is_as_planned(self, piece: Planned) -> bool:
        """Also of a file that cannot be opened, which reading it will tell."""
        try:
            with self._open(piece.member.path, piece.member.format) as log:
                mark = piece.reached.mark
                return not mark or mark_of(log, piece.reached.place.offset) == mark
        except BinlogtoolError:
            return True


def _changed(one: Reached, text: str) -> Finding:
    return finding("changed-while-read", one.place.offset, 0, f"the file was {text}")


def _forget(log: Listed, known: Files, before: Iterable[str]) -> None:
    """Forgets those of the files `before` that are gone while a later one of their log is there, as servers purge.

    Not when all are gone, or the last ones: the file system may be away, or a server that was reset begins anew.
    """
    names, newest = {name for name, _ in log}, numbers(log[-1][0])
    for name in before:
        if name not in names and numbers(name) < newest:
            del known[name]


def files_in(offset: Mapping[str, Any] | None) -> Files:
    """The files of an offset."""
    return {name: Reached.from_dict(one) for name, one in (offset or {}).get("files", {}).items()}


def limit_of(options: Mapping[str, str]) -> ReadLimit | None:
    """The limit of a micro-batch: maxFilesPerTrigger (a number) or maxBytesPerTrigger (such as `1GiB`).

    Raises:
        UsageError: both, or no positive number.
    """
    files, size = options.get("maxFilesPerTrigger"), options.get("maxBytesPerTrigger")
    if files is not None and size is not None:
        raise UsageError("choose one of maxFilesPerTrigger and maxBytesPerTrigger")
    if files is not None:
        if not files.isascii() or not files.isdecimal() or int(files) < 1:
            raise UsageError(f"maxFilesPerTrigger {files!r}: give a number from 1 on")
        return ReadMaxFiles(int(files))
    if size is None:
        return None
    if (most := parse_size(size)) < 1:
        raise UsageError(f"maxBytesPerTrigger {size!r}: give a size from 1 byte on")
    return ReadMaxBytes(most)


def budget_of(limit: ReadLimit | None) -> Budget:
    """What may be read in one micro-batch."""
    if isinstance(limit, ReadMaxFiles):
        return Budget(files=limit.max_files)
    return Budget(bytes=limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)
