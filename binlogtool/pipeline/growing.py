"""Incremental reading of logs that grow and rotate: how far each file was read, and the bytes that are new.

A file is always read up to a point where no transaction is open (`stream_offset.ReadPosition`); what comes after the
last
such point waits. Once a later file of the log was written to, a file is read to its end, whatever its content: it is
done.
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

from binlogtool.errors import BinlogtoolError, VanishedError
from binlogtool.findings import Finding, finding
from binlogtool.formats.detecting import Hints
from binlogtool.log import detect
from binlogtool.log.open import Log
from binlogtool.log.parts import Part, parts_between
from binlogtool.log.source import base_name
from binlogtool.pipeline.closing import is_written, log_of, numbers
from binlogtool.pipeline.inputs import Stamp, files_of, stamp
from binlogtool.pipeline.request import Request
from binlogtool.pipeline.stream_offset import Budget, Reached, advanced, grown, is_other, mark_of
from binlogtool.pipeline.tasks import Member

Files = dict[str, Reached]
Listed = list[tuple[str, str]]
"""The files of one log in its order, with the names of their formats."""

_SETTLED_NS = 2_000_000_000
"""A file with a younger modification time may be written again without changing it."""


class Planned(msgspec.Struct, frozen=True):
    """Bytes of a file that one task reads.

    reached: the file's position after this read. earlier: state carried over from earlier files, see `Hints`.
    """

    member: Member
    part: Part
    reached: Reached
    earlier: str | None = None


class Told(msgspec.Struct, frozen=True):
    """A finding that is reported for a file in place of records."""

    file: str
    format: str
    finding: Finding


class Growing:
    """The growing logs in given paths.

    final: no file will grow any more. strict: raise if a file cannot be read; otherwise its position stays unchanged.
    """

    def __init__(
        self, paths: Sequence[str], format: str, request: Request, hints: Hints | None = None,
        *, final: bool = False, strict: bool = False,
    ) -> None:  # fmt: skip
        self.paths = paths
        self.format = format
        self.request = request
        self.hints = hints
        self.final = final
        self.strict = strict
        self._target: dict[str, int] | None = None
        self._seen: dict[str, tuple[Stamp, bool, Reached]] = {}
        self._turn = 0

    # -- positions ---------------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Ignore files and bytes that appear after this call."""
        self._target = None
        self._target = {name: self._size(name) for log in self._logs() for name, _ in log}

    def _size(self, name: str) -> int:
        try:
            return stamp(name)[0]
        except BinlogtoolError:
            return 0

    def advance(self, known: Files, budget: Budget) -> None:
        """Move the position of each file to where it can be read to now; drop files that their server removed.

        With a budget, the oldest files of a log come first, and logs take turns. The bytes between two points without
        an open
        transaction may exceed the budget: something is always read.

        Raises:
            BinlogtoolError: a file cannot be read, if `strict`.
        """
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

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield all files that exist and are not empty, with the names of their formats."""
        return ((name, format_) for log in self._logs() for name, format_ in log if self._size(name))

    def _logs(self) -> Iterator[Listed]:
        """Yield groups of files that a server writes one after the other: their names differ only in numbers."""
        logs: dict[str, dict[str, str]] = {}
        for path in self.paths:
            try:
                found = files_of(path, self.format)
            except BinlogtoolError:
                if self.strict:
                    raise
                continue
            for name, format_ in found:
                if (self._target is None or name in self._target) and not _is_passing(name, path, format_):
                    logs.setdefault(log_of(name), {})[name] = format_
        return (sorted(log.items(), key=lambda one: numbers(one[0])) for log in logs.values())

    def _follow(self, log: Listed, known: Files, budget: Budget) -> None:
        """Advance the files of one log, the oldest first."""
        last = len(log) if self.final else self._last_written(log, known)
        for (name, _), (following, _) in pairwise(log):
            if following in known and name in known:
                known[name] = known[name].without_definitions()
        for number, (name, format_) in enumerate(log):
            if budget.spent:
                return
            before, earlier = known.get(name), self._earlier(name, known)
            reached = self._reached(name, before or Reached(format=format_), number < last, budget.bytes, earlier)
            if reached is not None and reached != before:
                known[name] = reached
                budget.take(reached.bytes_since(before))

    def _last_written(self, log: Listed, known: Files) -> int:
        """Return the index of the last file that was written to; files before it are complete, as are their parts in
        it (.ibb).
        """
        written = (i for i in reversed(range(1, len(log))) if self._is_written(*log[i], known.get(log[i][0])))
        return next(written, 0)

    def _is_written(self, name: str, format: str, reached: Reached | None) -> bool:
        if reached is not None and (reached.place.record or reached.done):
            return True
        try:
            with self.open(name, format) as log:
                return is_written(log, self._end(name, log))
        except BinlogtoolError:
            return False

    @staticmethod
    def _earlier(name: str, known: Mapping[str, Reached]) -> str | None:
        """Return what the completed files of a log carry over to one of its files, as `Hints.earlier`."""
        log, number = log_of(name), numbers(name)
        before = [one for one in known if log_of(one) == log and numbers(one) < number]
        if not before:
            return None
        last = max(before, key=numbers)
        carried = known[last].place.carried if known[last].done else None
        return json.dumps({"name": base_name(last), "carried": carried}) if carried else None

    def _reached(
        self, name: str, before: Reached, closed: bool, most: int | None, earlier: str | None
    ) -> Reached | None:
        """Return how far a file is to be read; None = unchanged.

        closed: the file will not grow any more. most: maximum number of bytes.
        """
        try:
            now = stamp(name)
            seen = (now, closed, before)
            if self._seen.get(name) == seen or (self.strict and not now[0]):
                return None
            with self.open(name, before.format, earlier) as log:
                if not log.files[0].layout.records:
                    return None  # an index or state file beside a log
                reached = self._further(log, before, self._end(name, log), most, closed=closed)
        except BinlogtoolError as error:
            if self.strict and not isinstance(error, VanishedError):
                raise
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

    def open(self, name: str, format: str, earlier: str | None = None) -> Log:
        """Open one file. earlier: state carried over from the files before it.

        Raises:
            BinlogtoolError: it cannot be read.
        """
        import binlogtool

        r, hints = self.request, self.hints
        if earlier is not None:
            hints = replace(hints or Hints(), earlier=earlier)
        return binlogtool.open(name, format=format, limits=r.limits, backend=r.backend, hints=hints)

    # -- new bytes -----------------------------------------------------------------------------------------------

    def pieces(self, before: Mapping[str, Reached], after: Mapping[str, Reached]) -> list[Planned | Told]:
        """Return what is new between two sets of positions: byte ranges to read, file by file, and findings."""
        new = [
            piece
            for name, one in after.items()
            for piece in self._pieces(name, before.get(name), one, self._earlier(name, {**before, **after}))
        ]
        gone: list[Told] = [
            Told(name, one.format, _changed(one, "removed before it was complete; what was not read is lost"))
            for name, one in before.items() if name not in after and not one.done
        ]  # fmt: skip
        return [*new, *gone]

    def _pieces(
        self, name: str, before: Reached | None, reached: Reached, earlier: str | None
    ) -> Iterator[Planned | Told]:
        if before == reached or (before is not None and before.without_definitions() == reached):
            return
        if before is not None and before.born != reached.born:
            text = "replaced by another one of its name, which is read from its beginning"
            yield Told(name, reached.format, _changed(before, text))
            before = None
        elif before is not None and before.done:
            size = reached.place.offset - before.place.offset
            why = "it was done (by --final, or a later file)" if self.strict else "a later file of the log was begun"
            text = f"extended by {size:,} bytes after {why}; they are not read"
            yield Told(name, reached.format, _changed(before, text))
            return
        for part in self._parts(name, before or Reached(), reached, earlier) if reached.begin else []:
            begin = 0 if part.start is None else part.start.offset
            end = reached.place.offset if part.end is None else part.end
            yield Planned(Member(name, name, reached.format, end - begin), part, reached, earlier)

    def _parts(self, name: str, before: Reached, reached: Reached, earlier: str | None) -> list[Part]:
        end = reached.place.offset
        if end - before.place.offset <= self.request.split_size:
            return [Part(before.begin, end)]
        try:
            with self.open(name, reached.format, earlier) as log:
                return parts_between(log.scan(log.files[0]), self.request.split_size, before.begin, end)
        except BinlogtoolError:
            return [Part(before.begin, end)]

    def is_as_planned(self, piece: Planned) -> bool:
        """Return False if the file was replaced since the read was planned; True also if it cannot be opened."""
        try:
            with self.open(piece.member.path, piece.member.format) as log:
                mark = piece.reached.mark
                return not mark or mark_of(log, piece.reached.place.offset) == mark
        except BinlogtoolError:
            return True


def _is_passing(name: str, path: str, format: str) -> bool:
    """Return True for files that the server only has for a moment, unless such a file was named itself."""
    patterns = () if name == path or format == "auto" else detect.by_name(format).files.passing
    return any(fnmatch.fnmatchcase(os.path.basename(name), pattern) for pattern in patterns)


def _changed(one: Reached, text: str) -> Finding:
    return finding("changed-while-read", one.place.offset, 0, f"the file was {text}")


def _forget(log: Listed, known: Files, before: Iterable[str]) -> None:
    """Drop those of the files `before` that are missing while a later file of their log exists, as after a purge.

    Nothing is dropped if all or the last files are missing: the file system may be unavailable, or the server was
    reset.
    """
    names, newest = {name for name, _ in log}, numbers(log[-1][0])
    for name in before:
        if name not in names and numbers(name) < newest:
            del known[name]
