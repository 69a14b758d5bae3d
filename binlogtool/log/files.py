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
from binlogtool.formats.detecting import Hints, PrecedingFiles
from binlogtool.limits import Limits
from binlogtool.log import watch
from binlogtool.log.filters import gtid_selection
from binlogtool.log.opened_file import LogFile, SiblingFiles, open_file, total_size
from binlogtool.log.parts import WHOLE_FILE, FilePart, compute_carried_state
from binlogtool.log.places import split_selection
from binlogtool.log.scan import Scan
from binlogtool.log.segments import ByteAccount
from binlogtool.log.select import Selection
from binlogtool.log.source import TruncatedSource, base_name, is_url
from binlogtool.schema import backends


class LogFiles:
    """One or more files, in order, and passes over them. Use as a context manager, or call `close`."""

    def __init__(
        self, files: list[tuple[str, str, Format | None]], limits: Limits, backend: str, hints: Hints = Hints()
    ) -> None:
        self._plan = files
        self._limits = limits
        self._backend = backend
        self._hints = hints
        self._opened_files: list[LogFile] = []
        self._shared: dict[str, Any] = {}
        self._carried_states: list[Any] = []
        watch.report_pass_start(total_size(path for path, _, _ in files))

    @property
    def files(self) -> tuple[LogFile, ...]:
        """All files, opened."""
        while len(self._opened_files) < len(self._plan):
            self._opened_files.append(self._open_file(len(self._opened_files)))
        return tuple(self._opened_files)

    def open_first(self) -> None:
        """Open the first file, so that a log that cannot be read is refused at once."""
        if not self._opened_files:
            self._opened_files.append(self._open_file(0))

    @cached_property
    def is_stream(self) -> bool:
        """True if one of the files can be read only once; cached, as it is asked for each of thousands of files."""
        return any(path == "-" or (os.path.exists(path) and not os.path.isfile(path)) for path, _, _ in self._plan)

    def reopen(self, hints: Hints | None = None) -> Self:
        """Return the same log unopened, for a pass beside this one. hints: in place of those it was opened with.

        Raises:
            UsageError: one of the files is a stream.
        """
        if self.is_stream:
            raise UsageError("a stream can be read once only, and this takes several passes: save it to a file first")
        return type(self)(self._plan, self._limits, self._backend, hints or self._hints)

    def _open_file(self, number: int, shared: dict[str, Any] | None = None) -> LogFile:
        path, name, format_ = self._plan[number]
        earlier = None
        if number and not self.is_stream:
            earlier = PrecedingFiles(base_name(self._plan[number - 1][0]), partial(self._get_carried_state, number))
        siblings, hints = SiblingFiles(self._shared if shared is None else shared, preceding=earlier), self._hints
        if number:
            hints = replace(hints, earlier=None)
        return open_file(path, name, format_, self._limits, siblings=siblings, hints=hints)

    def export_carried_state(self, number: int) -> str | None:
        """Return the state that earlier files carry over to file `number`, as `Hints.earlier`; None = there is none."""
        state = self._get_carried_state(number) if number else None
        if not state:
            return self._hints.earlier if not number else None
        return msgspec.json.encode({"name": base_name(self._plan[number - 1][0]), "carried": state}).decode()

    def _get_carried_state(self, number: int) -> Any:
        """Return the state that earlier files carry over to file `number`; reads those not yet read for it."""
        while len(self._carried_states) < number:
            self._carried_states.append(self._compute_carried_state(len(self._carried_states)))
        return self._carried_states[number - 1]

    def _compute_carried_state(self, number: int) -> Any:
        """Return the state that file `number` carries over to the next one, including the state carried to it."""
        try:
            file = self._open_file(number, {})
        except BinlogtoolError:
            return None
        try:
            return compute_carried_state(self.make_scan(file))
        finally:
            file.source.close()

    def _iter_files(self) -> Iterator[LogFile]:
        """Yield the files in order; those that were not open before are closed again: a set may have thousands."""
        for number in range(len(self._plan)):
            if number < len(self._opened_files):
                yield self._opened_files[number]
                continue
            file = self._open_file(number)
            try:
                yield file
            finally:
                file.source.close()

    def split_selection(self, selection: Selection) -> list[Selection]:
        """Return the part of a selection that applies to each file (`places.split_selection`)."""
        return split_selection(selection, [path for path, _, _ in self._plan], self._holds_records)

    def _holds_records(self, number: int) -> bool:
        """Return True if file `number` can hold records.

        True also for a file that cannot be read twice, or not at all: reading it reports what is wrong.
        """
        path, name, format_ = self._plan[number]
        if number < len(self._opened_files):
            return self._opened_files[number].layout.has_records
        if path == "-" or is_url(path):
            return True
        try:
            file = open_file(path, name, format_, self._limits, hints=self._hints)
        except BinlogtoolError:
            return True
        file.source.close()
        return file.layout.has_records

    def make_scan(self, file: LogFile, *, rows: bool = True, live: bool = False) -> Scan:
        """Create one pass over one file of this log."""
        backend = backends.choose_backend(self._backend)
        window = file.window if file.size is None else None
        return Scan(file.source, file.format, file.layout, backend, self._limits, rows, live, window)

    def _make_scans(self, file: LogFile, selection: Selection, part: FilePart) -> Iterator[Scan]:
        """Yield one pass over the file, over a part of it, or over each range that can hold selected records."""
        full_scan, find_ranges, demand = (
            self.make_scan(file, live=selection.live),
            file.format.reading.find_ranges,
            gtid_selection(selection),
        )
        if part != WHOLE_FILE:
            yield part.make_scan(full_scan, file.format, file.layout)
            return
        ranges = (
            None
            if find_ranges is None or demand is None or file.size is None
            else find_ranges(file.layout.context, demand)
        )
        if ranges is None:
            yield full_scan
            return
        for start, end in ranges:
            yield replace(full_scan, source=TruncatedSource(file.source, end), begin=start, account=ByteAccount())

    def close(self) -> None:
        """Close every file."""
        for file in self._opened_files:
            file.source.close()
        self._opened_files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
