"""Incremental reading of logs that grow and rotate: how far each file was read, and the bytes that are new.

A file is always read up to a point where no transaction is open (`stream_offset.ReadPosition`); what comes after the
last such point waits. Once a later file of the log was written to, a file is read to its end, whatever its content: it
is done.
"""

from __future__ import annotations

import fnmatch
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError, FileVanishedError
from binlogtool.findings import Finding, make_finding
from binlogtool.formats.detecting import Hints
from binlogtool.log import detect
from binlogtool.log.how import ReadOptions
from binlogtool.log.open import LogReader, open_log
from binlogtool.log.parts import FilePart, split_range
from binlogtool.log.source import base_name
from binlogtool.pipeline.closing import has_records_before, log_key, sequence_numbers
from binlogtool.pipeline.inputs import FileStamp, list_files, read_stamp
from binlogtool.pipeline.request import ReadRequest
from binlogtool.pipeline.stream_offset import (
    ReadBudget,
    ReadPosition,
    advance_position,
    extend_position,
    file_mark,
    is_other_file,
)
from binlogtool.pipeline.tasks import TaskFile

ReadPositions = dict[str, ReadPosition]
LogFiles = list[tuple[str, str]]
"""The files of one log in its order, with the names of their formats."""

_STABLE_MTIME_NS = 2_000_000_000
"""A file with a younger modification time may be written again without changing it."""


class PlannedRead(msgspec.Struct, frozen=True):
    """Bytes of a file that one task reads.

    reached: the file's position after this read. earlier: state carried over from earlier files, see `Hints`.
    """

    member: TaskFile
    part: FilePart
    reached: ReadPosition
    earlier: str | None = None


class GrowingFileFinding(msgspec.Struct, frozen=True):
    """A finding that is reported for a file in place of records."""

    file: str
    format: str
    finding: Finding


class IncrementalInput:
    """The growing logs in given paths.

    final: no file will grow any more. strict: raise if a file cannot be read; otherwise its position stays unchanged.
    """

    def __init__(
        self, paths: Sequence[str], format: str, request: ReadRequest, hints: Hints | None = None,
        *, final: bool = False, strict: bool = False,
    ) -> None:  # fmt: skip
        self.paths = paths
        self.format = format
        self.request = request
        self.hints = hints
        self.final = final
        self.strict = strict
        self._frozen_sizes: dict[str, int] | None = None
        self._unchanged: dict[str, tuple[FileStamp, bool, ReadPosition]] = {}
        self._next_log = 0

    # -- positions ---------------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Ignore files and bytes that appear after this call."""
        self._frozen_sizes = None
        self._frozen_sizes = {name: self._file_size(name) for log in self._list_logs() for name, _ in log}

    def _file_size(self, name: str) -> int:
        try:
            return read_stamp(name)[0]
        except BinlogtoolError:
            return 0

    def advance(self, positions: ReadPositions, budget: ReadBudget) -> None:
        """Move the position of each file to where it can be read to now; drop files that their server removed.

        With a budget, the oldest files of a log come first, and logs take turns. The bytes between two points without
        an open transaction may exceed the budget: something is always read.

        Raises:
            BinlogtoolError: a file cannot be read, if `strict`.
        """
        before: dict[str, list[str]] = {}
        for name in positions:
            before.setdefault(log_key(name), []).append(name)
        logs = list(self._list_logs())
        first_log = self._next_log % len(logs) if logs else 0
        for number, log in enumerate([*logs[first_log:], *logs[:first_log]], first_log + 1):
            _drop_purged(log, positions, before.get(log_key(log[0][0]), ()))
            self._advance_log(log, positions, budget)
            if budget.is_spent:
                self._next_log = number
                break
        self._unchanged = {name: seen for name, seen in self._unchanged.items() if name in positions}

    def list_files(self) -> Iterator[tuple[str, str]]:
        """Yield all files that exist and are not empty, with the names of their formats."""
        return ((name, format_) for log in self._list_logs() for name, format_ in log if self._file_size(name))

    def _list_logs(self) -> Iterator[LogFiles]:
        """Yield groups of files that a server writes one after the other: their names differ only in numbers."""
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
        """Advance the files of one log, the oldest first."""
        last = len(log) if self.final else self._find_last_written(log, positions)
        for (name, _), (next_name, _) in pairwise(log):
            if next_name in positions and name in positions:
                positions[name] = positions[name].without_definitions()
        for number, (name, format_) in enumerate(log):
            if budget.is_spent:
                return
            before, earlier = positions.get(name), self._carried_state(name, positions)
            reached = self._next_position(
                name, before or ReadPosition(format=format_), number < last, budget.bytes, earlier
            )
            if reached is not None and reached != before:
                positions[name] = reached
                budget.spend(reached.bytes_since(before))

    def _find_last_written(self, log: LogFiles, positions: ReadPositions) -> int:
        """Return the index of the last file that was written to; files before it are complete, as are their parts in
        it (.ibb).
        """
        indexes = (i for i in reversed(range(1, len(log))) if self._is_written(*log[i], positions.get(log[i][0])))
        return next(indexes, 0)

    def _is_written(self, name: str, format: str, reached: ReadPosition | None) -> bool:
        if reached is not None and (reached.place.record or reached.done):
            return True
        try:
            with self.open_file(name, format) as log:
                return has_records_before(log, self._visible_end(name, log))
        except BinlogtoolError:
            return False

    @staticmethod
    def _carried_state(name: str, positions: Mapping[str, ReadPosition]) -> str | None:
        """Return what the completed files of a log carry over to one of its files, as `Hints.earlier`."""
        log, number = log_key(name), sequence_numbers(name)
        before = [one for one in positions if log_key(one) == log and sequence_numbers(one) < number]
        if not before:
            return None
        last = max(before, key=sequence_numbers)
        carried = positions[last].place.carried if positions[last].done else None
        return json.dumps({"name": base_name(last), "carried": carried}) if carried else None

    def _next_position(
        self, name: str, before: ReadPosition, closed: bool, max_bytes: int | None, earlier: str | None
    ) -> ReadPosition | None:
        """Return how far a file is to be read; None = unchanged.

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
        if is_other_file(before, log):
            before = ReadPosition(format=before.format, born=before.born + 1)
        return (
            extend_position(log, before, end)
            if before.done
            else advance_position(log, before, end, max_bytes, closed=closed)
        )

    def _visible_end(self, name: str, log: LogReader) -> int:
        size = log.files[0].size or 0
        return size if self._frozen_sizes is None else min(size, self._frozen_sizes.get(name, 0))

    def open_file(self, name: str, format: str, earlier: str | None = None) -> LogReader:
        """Open one file. earlier: state carried over from the files before it.

        Raises:
            BinlogtoolError: it cannot be read.
        """
        request, hints = self.request, self.hints
        if earlier is not None:
            hints = replace(hints or Hints(), earlier=earlier)
        return open_log(
            name, ReadOptions(format=format, limits=request.limits, backend=request.backend, hints=hints), LogReader
        )

    # -- new bytes -----------------------------------------------------------------------------------------------

    def list_reads(
        self, before: Mapping[str, ReadPosition], after: Mapping[str, ReadPosition]
    ) -> list[PlannedRead | GrowingFileFinding]:
        """Return what is new between two sets of positions: byte ranges to read, file by file, and findings."""
        new = [
            piece
            for name, one in after.items()
            for piece in self._list_file_reads(
                name, before.get(name), one, self._carried_state(name, {**before, **after})
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
        if before == reached or (before is not None and before.without_definitions() == reached):
            return
        if before is not None and before.born != reached.born:
            text = "replaced by another one of its name, which is read from its beginning"
            yield GrowingFileFinding(name, reached.format, _changed_finding(before, text))
            before = None
        elif before is not None and before.done:
            size = reached.place.offset - before.place.offset
            reason = "it was done (by --final, or a later file)" if self.strict else "a later file of the log was begun"
            text = f"extended by {size:,} bytes after {reason}; they are not read"
            yield GrowingFileFinding(name, reached.format, _changed_finding(before, text))
            return
        for part in self._split_range(name, before or ReadPosition(), reached, earlier) if reached.begin else []:
            begin = 0 if part.start is None else part.start.offset
            end = reached.place.offset if part.end is None else part.end
            yield PlannedRead(TaskFile(name, name, reached.format, end - begin), part, reached, earlier)

    def _split_range(
        self, name: str, before: ReadPosition, reached: ReadPosition, earlier: str | None
    ) -> list[FilePart]:
        end = reached.place.offset
        if end - before.place.offset <= self.request.split_size:
            return [FilePart(before.begin, end)]
        try:
            with self.open_file(name, reached.format, earlier) as log:
                return split_range(log.make_scan(log.files[0]), self.request.split_size, before.begin, end)
        except BinlogtoolError:
            return [FilePart(before.begin, end)]

    def is_as_planned(self, piece: PlannedRead) -> bool:
        """Return False if the file was replaced since the read was planned; True also if it cannot be opened."""
        try:
            with self.open_file(piece.member.path, piece.member.format) as log:
                mark = piece.reached.mark
                return not mark or file_mark(log, piece.reached.place.offset) == mark
        except BinlogtoolError:
            return True


def _is_temporary(name: str, path: str, format: str) -> bool:
    """Return True for files that the server only has for a moment, unless such a file was named itself."""
    patterns = () if name == path or format == "auto" else detect.find_format(format).files.temporary_patterns
    return any(fnmatch.fnmatchcase(os.path.basename(name), pattern) for pattern in patterns)


def _changed_finding(reached: ReadPosition, text: str) -> Finding:
    return make_finding("changed-while-read", reached.place.offset, 0, f"the file was {text}")


def _drop_purged(log: LogFiles, positions: ReadPositions, before: Iterable[str]) -> None:
    """Drop those of the files `before` that are missing while a later file of their log exists, as after a purge.

    Nothing is dropped if all or the last files are missing: the file system may be unavailable, or the server was
    reset.
    """
    names, newest = {name for name, _ in log}, sequence_numbers(log[-1][0])
    for name in before:
        if name not in names and sequence_numbers(name) < newest:
            del positions[name]
