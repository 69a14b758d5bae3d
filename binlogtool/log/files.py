"""The files of a log, opened on demand, and passes over each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Earlier, Hints
from binlogtool.limits import Limits
from binlogtool.log import watch
from binlogtool.log.filters import gtid_demand
from binlogtool.log.opened_file import Around, LogFile, open_file, volume
from binlogtool.log.parts import WHOLE, Part, carried_over
from binlogtool.log.places import shares
from binlogtool.log.scan import Scan
from binlogtool.log.segments import Account
from binlogtool.log.select import Selection
from binlogtool.log.source import PartSource, base_name, is_url
from binlogtool.schema import backends


class Files:
    """One or more files, in order, and passes over them. Use as a context manager, or call `close`."""

    def __init__(
        self, files: list[tuple[str, str, Format | None]], limits: Limits, backend: str, hints: Hints = Hints()
    ) -> None:
        self._plan = files
        self._limits = limits
        self._backend = backend
        self._hints = hints
        self._open: list[LogFile] = []
        self._shared: dict[str, Any] = {}
        self._carried: list[Any] = []
        watch.begins(volume(path for path, _, _ in files))

    @property
    def files(self) -> tuple[LogFile, ...]:
        """All files, opened."""
        while len(self._open) < len(self._plan):
            self._open.append(self._opened(len(self._open)))
        return tuple(self._open)

    def check(self) -> None:
        """Open the first file, so that a log that cannot be read is refused at once."""
        if not self._open:
            self._open.append(self._opened(0))

    @cached_property
    def is_stream(self) -> bool:
        """True if one of the files can be read only once; cached, as it is asked for each of thousands of files."""
        return any(path == "-" or (os.path.exists(path) and not os.path.isfile(path)) for path, _, _ in self._plan)

    def again(self, hints: Hints | None = None) -> Self:
        """Return the same log unopened, for a pass beside this one. hints: in place of those it was opened with.

        Raises:
            UsageError: one of the files is a stream.
        """
        if self.is_stream:
            raise UsageError("a stream can be read once only, and this takes several passes: save it to a file first")
        return type(self)(self._plan, self._limits, self._backend, hints or self._hints)

    def _opened(self, number: int, shared: dict[str, Any] | None = None) -> LogFile:
        path, name, format_ = self._plan[number]
        earlier = None
        if number and not self.is_stream:
            earlier = Earlier(base_name(self._plan[number - 1][0]), partial(self._carried_to, number))
        around, hints = Around(self._shared if shared is None else shared, earlier=earlier), self._hints
        if number:
            hints = replace(hints, earlier=None)
        return open_file(path, name, format_, self._limits, around=around, hints=hints)

    def carried_to(self, number: int) -> str | None:
        """Return the state that earlier files carry over to file `number`, as `Hints.earlier`; None = there is none."""
        carried = self._carried_to(number) if number else None
        if not carried:
            return self._hints.earlier if not number else None
        return msgspec.json.encode({"name": base_name(self._plan[number - 1][0]), "carried": carried}).decode()

    def _carried_to(self, number: int) -> Any:
        """Return the state that earlier files carry over to file `number`; reads those not yet read for it."""
        while len(self._carried) < number:
            self._carried.append(self._carried_over(len(self._carried)))
        return self._carried[number - 1]

    def _carried_over(self, number: int) -> Any:
        """Return the state that file `number` carries over to the next one, including the state carried to it."""
        try:
            file = self._opened(number, {})
        except BinlogtoolError:
            return None
        try:
            return carried_over(self.scan(file))
        finally:
            file.source.close()

    def _each(self) -> Iterator[LogFile]:
        """Yield the files in order; those that were not open before are closed again: a set may have thousands."""
        for number in range(len(self._plan)):
            if number < len(self._open):
                yield self._open[number]
                continue
            file = self._opened(number)
            try:
                yield file
            finally:
                file.source.close()

    def shares(self, selection: Selection) -> list[Selection]:
        """Return the part of a selection that applies to each file (`places.split_selection`)."""
        return shares(selection, [path for path, _, _ in self._plan], self._holds_records)

    def _holds_records(self, number: int) -> bool:
        """Return True if file `number` can hold records.

        True also for a file that cannot be read twice, or not at all: reading it reports what is wrong.
        """
        path, name, format_ = self._plan[number]
        if number < len(self._open):
            return self._open[number].layout.records
        if path == "-" or is_url(path):
            return True
        try:
            file = open_file(path, name, format_, self._limits, hints=self._hints)
        except BinlogtoolError:
            return True
        file.source.close()
        return file.layout.records

    def scan(self, file: LogFile, *, rows: bool = True, live: bool = False) -> Scan:
        """Create one pass over one file of this log."""
        backend = backends.choose(self._backend)
        window = file.window if file.size is None else None
        return Scan(file.source, file.format, file.layout, backend, self._limits, rows, live, window)

    def _scans(self, file: LogFile, selection: Selection, part: Part) -> Iterator[Scan]:
        """Yield one pass over the file, over a part of it, or over each range that can hold selected records."""
        whole, seek, demand = self.scan(file, live=selection.live), file.format.reading.seek, gtid_demand(selection)
        if part != WHOLE:
            yield part.scan(whole, file.format, file.layout)
            return
        parts = None if seek is None or demand is None or file.size is None else seek(file.layout.context, demand)
        if parts is None:
            yield whole
            return
        for start, end in parts:
            yield replace(whole, source=PartSource(file.source, end), begin=start, account=Account())

    def close(self) -> None:
        """Close every file."""
        for file in self._open:
            file.source.close()
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
