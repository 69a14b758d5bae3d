"""A log opened for reading: one file, the files of a set in order, or several files one after the other."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec
from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError, InputOutputError, LimitError, UnknownFormatError, UsageError
from binlogtool.findings import Finding, Severity
from binlogtool.formats.base import Format
from binlogtool.formats.changes import Changes
from binlogtool.formats.detecting import Head, Hints, Readable
from binlogtool.formats.heads import corrected, unveiled
from binlogtool.formats.layouts import Batch, Layout, Read
from binlogtool.formats.scripting import Script, Wording
from binlogtool.formats.tables import Table, TableReader
from binlogtool.limits import Limits
from binlogtool.log import detect, watch
from binlogtool.log.blocks import Blocks
from binlogtool.log.bundles import Bundled, bundled
from binlogtool.log.crowds import Crowds
from binlogtool.log.filters import Filter, gtid_demand
from binlogtool.log.named import groups
from binlogtool.log.parts import WHOLE, Part
from binlogtool.log.passages import Passages
from binlogtool.log.places import shares
from binlogtool.log.records import Block, Crowd, Passage, Record, Text, Trouble
from binlogtool.log.salvaging import Marker, Salvager, all_rows
from binlogtool.log.scan import Scan
from binlogtool.log.segments import Account, Damage, Unproven
from binlogtool.log.select import Selection, proven_only, whole_only
from binlogtool.log.source import (
    HEAD_BYTES,
    BytesSource,
    FileSource,
    PartSource,
    Source,
    base_name,
    is_url,
    open_source,
    read_range,
    reopened,
)
from binlogtool.log.stretches import Stretch
from binlogtool.log.window import Window
from binlogtool.schema import backends

if TYPE_CHECKING:
    from binlogtool.log.where_lines import RowLines
    from binlogtool.log.where_rows import RowWhere

_MIB = 1 << 20

T = TypeVar("T")
S = TypeVar("S", bound=Block | Crowd | Passage | Trouble)
L = TypeVar("L", bound="Log")
Splitter = Callable[[Blocks, Batch, Filter], Iterator[T]]
"""What makes the parts of a log from a batch."""


class LogFile(msgspec.Struct, frozen=True):
    """One file of a log. `name` is relative to the set's directory (the path itself when there is no set)."""

    path: str
    name: str
    format: Format
    layout: Layout
    source: Source
    window: Window

    @property
    def size(self) -> int | None:
        """Bytes, None for a stream."""
        return self.source.size


def open_file(
    path: str,
    name: str,
    format_: Format | None,
    limits: Limits,
    source: Source | None = None,
    shared: dict[str, Any] | None = None,
    hints: Hints = Hints(),
    beside: Callable[[str], Read | None] | None = None,
) -> LogFile:
    """Opens one file and reads its head. shared: the same dictionary for all files of a log (see `Head`).

    beside: other files of the directory, where they are not those on the disk.

    Raises:
        InputOutputError, UnknownFormatError.
    """
    source = source or open_source(path)
    try:
        window = Window(source, _MIB)
        window.load(0, HEAD_BYTES)
        size = source.size if source.size is not None else (window.end if window.ended else None)
        peek = None if source.size is None else partial(read_range, source)
        data = bytes(window.view(0, HEAD_BYTES))
        if beside is None and source.size is not None and not isinstance(source, BytesSource):
            beside = partial(read_beside, path)
        redo = None if hints.redo is None else readable(hints.redo)
        head = Head(data, base_name(path), size, {} if shared is None else shared, peek, hints, beside, redo)
        chosen = format_ or detect.detect(head)
        _check_level(chosen, hints)
        if hints.objects and hints.level is None:
            head = replace(head, hints=replace(hints, level=chosen.reading.event_level))
        layout = _layout(chosen, head, limits)
        if layout.unveil is not None:
            source = _unveiled(source, layout)
            window = Window(source, _MIB)
        return LogFile(path, name, chosen, layout, source, window)
    except BaseException:
        source.close()
        raise


def _layout(format_: Format, head: Head, limits: Limits) -> Layout:
    """The layout of the file, where one flipped bit explains a damaged head that of the head with it put right."""
    flips = () if format_.reading.heads is None or head.size is None else format_.reading.heads(head)
    for flip in flips:
        made = format_.reading.layout(corrected(head, flip), limits)
        if made.readable and made.unveil is None:
            return unveiled(made, flip)
    return format_.reading.layout(head, limits)


def volume(paths: Iterable[str]) -> int:
    """Bytes of these files together; those that are no local files count nothing."""
    return sum(map(_size_of, paths))


def _size_of(path: str) -> int:
    try:
        status = os.stat(path)
    except OSError:  # it may be gone meanwhile
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def read_beside(path: str, name: str) -> Read | None:
    """The bytes of another file in the directory of `path`; it is opened for each read: a set may have thousands."""
    if is_url(path):
        return _beside_url(path, os.path.basename(name))
    other = os.path.join(os.path.dirname(os.path.realpath(path)), os.path.basename(name))
    return reopened(other) if os.path.isfile(other) and not os.path.islink(other) else None


def _beside_url(url: str, name: str) -> Read | None:
    place, mark, query = url.partition("?")
    other = f"{os.path.dirname(place)}/{name}{mark}{query}"
    try:
        source = open_source(other)
    except InputOutputError:
        return None
    return partial(read_range, source)


def readable(path: str) -> Readable:
    """A file that the user named, opened for each read.

    Raises:
        InputOutputError: it cannot be opened.
    """
    source = FileSource(path)
    source.close()
    return Readable(reopened(path), source.size or 0)


def _check_level(format_: Format, hints: Hints) -> None:
    level = hints.level
    if level is not None and level not in format_.reading.levels:
        known = ", ".join(format_.reading.levels) or "only one"
        raise UsageError(f"--level {level}: {format_.name} has {known}")
    if level is not None and hints.objects and format_.reading.event_level not in (None, level):
        text = f"--level {level}: such records of {format_.name} have no object, and are no statements"
        raise UsageError(f"{text}; --level {format_.reading.event_level} has these")


def _unveiled(source: Source, layout: Layout) -> Source:
    """The plain bytes of an encrypted file."""
    from binlogtool.log.veiled import VeiledSource

    if source.size is None:
        raise InputOutputError(f"{source.name}: an encrypted log cannot be read from a stream; name the file")
    assert layout.unveil is not None
    return VeiledSource(source, layout.unveil)


class Log:
    """Records of one or more files, in order. Use as a context manager, or call `close`."""

    def __init__(
        self, files: list[tuple[str, str, Format | None]], limits: Limits, backend: str, hints: Hints = Hints()
    ) -> None:
        self._plan = files
        self._limits = limits
        self._backend = backend
        self._hints = hints
        self._open: list[LogFile] = []
        self._shared: dict[str, Any] = {}
        watch.begins(volume(path for path, _, _ in files))

    @property
    def files(self) -> tuple[LogFile, ...]:
        """All files, opened."""
        while len(self._open) < len(self._plan):
            path, name, format_ = self._plan[len(self._open)]
            self._open.append(self._opened(path, name, format_))
        return tuple(self._open)

    def check(self) -> None:
        """Opens the first file: a log that cannot be read is refused at once."""
        if not self._open:
            self._open.append(self._opened(*self._plan[0]))

    def again(self, hints: Hints | None = None) -> Self:
        """The same files, to be opened anew: for a pass beside this one. hints: others than it was opened with.

        Raises:
            UsageError: one of them is a stream.
        """
        if any(path == "-" or (os.path.exists(path) and not os.path.isfile(path)) for path, _, _ in self._plan):
            raise UsageError("a stream can be read once only, and this takes several passes: save it to a file first")
        return type(self)(self._plan, self._limits, self._backend, hints or self._hints)

    def _opened(self, path: str, name: str, format_: Format | None) -> LogFile:
        return open_file(path, name, format_, self._limits, shared=self._shared, hints=self._hints)

    def _each(self) -> Iterator[LogFile]:
        """The files one after the other; those that were not open before are closed again: a set may have thousands."""
        for number, (path, name, format_) in enumerate(self._plan):
            if number < len(self._open):
                yield self._open[number]
                continue
            file = self._opened(path, name, format_)
            try:
                yield file
            finally:
                file.source.close()

    def shares(self, selection: Selection) -> list[Selection]:
        """What a selection means in each file (`places.shares`)."""
        return shares(selection, [path for path, _, _ in self._plan], self._holds_records)

    def _holds_records(self, number: int) -> bool:
        """Can the file of this number hold records? One that cannot be looked at twice, or not at all, is taken for
        one that can: reading it tells what is wrong."""
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
        """One pass over one file of this log."""
        backend = backends.choose(self._backend)
        window = file.window if file.size is None else None
        return Scan(file.source, file.format, file.layout, backend, self._limits, rows, live, window)

    def _scans(self, file: LogFile, selection: Selection, part: Part) -> Iterator[Scan]:
        """One pass over the file, over a part of it, or over each of its parts that can hold what is wanted."""
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

    def blocks(
        self, selection: Selection = Selection(), *, decode: str = "full", raw: bool = False, part: Part = WHOLE
    ) -> Iterator[Block | Trouble]:
        """Blocks of the selected records; damage between them comes as `Trouble`. part: of a log of one file."""
        made = self._made(selection, decode, raw, lambda _: Blocks.of, part=part)
        return made if selection.tail is None else _last(made, selection.tail)

    def stretches(
        self, selection: Selection = Selection(), *, decode: str = "full", part: Part = WHOLE
    ) -> Iterator[Stretch | Block | Trouble]:
        """The same, with stretches in place of blocks in files that are worth compiled code (`log.compiled`)."""
        if selection.tail is not None:
            return self.blocks(selection, decode=decode, part=part)
        return self._made(selection, decode, False, self._splitter, part=part)

    def statements(
        self, selection: Selection = Selection(), wording: Wording = Wording()
    ) -> Iterator[Block | Passage | Text | Trouble]:
        """The selected records as a script for a server: blocks whose bodies are text, and text between them.

        All records are read of which the condition (`Selection.where`) chooses rows: the others are not written.

        Raises:
            UsageError: the records of this format are no statements, or the last ones are asked for.
            RefusedError: `wording.undo`, and the last transaction is not whole.
        """
        if selection.tail is not None:
            raise UsageError("the last records cannot be written as statements: name a position to start from")
        proven_only(selection, "a script of statements")
        choice: RowWhere | None = None
        if selection.where is not None:
            from binlogtool.log.where_rows import row_choice

            choice = row_choice(selection.where)
            selection, wording = replace(selection, where=None), choice.worded(wording)

        def begun(format_: Format) -> Script:
            if format_.output.sql is None:
                raise UsageError(f"the records of {format_.name} cannot be written as statements for a server")
            return format_.output.sql(wording)

        yield from self._scripted(selection, self._passages, begun, choice)

    def messages(self, selection: Selection, begin: Callable[[Changes], Script]) -> Iterator[Block | Text | Trouble]:
        """The changes of rows as messages: blocks whose bodies are lines, and lines between them. begin: starts what
        makes them.

        Raises:
            UsageError: the format tells no such changes, or single records are asked for.
        """
        proven_only(selection, "messages about changes")
        whole_only(selection, "messages about changes")

        def begun(format_: Format) -> Script:
            if format_.output.changes is None:
                raise UsageError(f"the records of {format_.name} tell no changes of tables; --envelope is not for them")
            return begin(format_.output.changes())

        yield from self._scripted(selection, lambda _: Blocks.of, begun)

    def _scripted(
        self,
        selection: Selection,
        splitter: Callable[[LogFile], Splitter[S]],
        begun: Callable[[Format], Script],
        choice: RowWhere | None = None,
    ) -> Iterator[S | Block | Text | Trouble]:
        """The selected records as one text. begun: starts what makes it; there is one for each format."""
        scripts: dict[str, Script] = {}

        def script_of(format_: Format) -> Script:
            return scripts.get(format_.name) or scripts.setdefault(format_.name, begun(format_))

        for part in self._made(selection, "full", False, splitter, script_of, choice=choice):
            yield part
            if isinstance(part, Trouble) and part.finding.severity is Severity.ERROR:
                what = f"not here: {part.file}: {_range(part.finding)}{part.finding.message}"
                yield from (Text(script.lost(what)) for script in scripts.values())
            ends = [script.stopped for script in scripts.values() if script.stopped is not None]
            yield from (Trouble(part.file, found) for found in ends if not isinstance(part, Text))
            if ends:
                break
        for script in scripts.values():
            yield Text(script.end())
            yield from (Trouble(self._plan[-1][0], found) for found in script.remarks())

    def tables(
        self,
        selection: Selection,
        *,
        part: Part = WHOLE,
        known: Sequence[Table] = (),
        cells: bool = False,
        wants: Callable[[Table], bool] | None = None,
    ) -> Iterator[Block | Trouble]:
        """What the selected records tell of the tables of the log: blocks whose bodies are `formats.tables.Told`.

        known: what other files say of tables. cells: rows may come as cells. wants: rows of other tables may be left
        out; None = all are wanted.

        Raises:
            UsageError: the format has no tables, or records that are not proven are asked for.
        """
        return self._tables(selection, Blocks.of, known, wants, part, cells=cells)

    def crowds(
        self, selection: Selection, *, known: Sequence[Table] = (), wants: Callable[[Table], bool] | None = None
    ) -> Iterator[Crowd | Block | Trouble]:
        """The same, with rows as cells, and what many records tell at once where compiled code knows it."""
        return self._tables(selection, Crowds().of, known, wants, WHOLE, cells=True)

    def _tables(
        self,
        selection: Selection,
        split: Splitter[S],
        known: Sequence[Table],
        wants: Callable[[Table], bool] | None,
        part: Part,
        *,
        cells: bool,
    ) -> Iterator[S | Block | Trouble]:
        proven_only(selection, "rows of tables")
        readers: dict[str, TableReader] = {}

        def reader_of(format_: Format) -> TableReader:
            if format_.tables is None:
                raise UsageError(f"the records of {format_.name} have no tables: convert them without --object")
            if format_.name not in readers:
                rules, backend = format_.tables(), backends.choose(self._backend)
                compiled = rules.compiled if cells and backend.name == "native" else None
                readers[format_.name] = rules.read() if compiled is None else compiled(backend.compile)
                readers[format_.name].know(known)
                if wants is not None:
                    readers[format_.name].only(wants)
            return readers[format_.name]

        for one in self._made(selection, "full", False, lambda _: split, part=part, reader_of=reader_of):
            yield one
            if isinstance(one, Trouble) and one.finding.severity is Severity.ERROR:
                for reader in readers.values():
                    reader.lost()

    def bundles(self, selection: Selection) -> Iterator[Bundled | Trouble]:
        """The transactions of a server's log, in order; damage between them comes as `Trouble`.

        Raises:
            UsageError: the records of a file are no events of such a log.
        """
        whole_only(selection, "a log")
        wanted = Filter(selection)
        for share, file in zip(self.shares(selection), self._each(), strict=False):
            wanted.begin(share, file.size, file.format.output.gtids, file.layout.page)
            scan = self.scan(file, live=selection.live)
            yield from (Trouble(file.path, found) for found in file.layout.findings)
            yield from bundled(file.path, scan, wanted, self._limits)
            yield from (Trouble(file.path, found) for found in (file.source.changed(),) if found)
            if reason := scan.incomplete or scan.over_ceiling:
                raise LimitError(f"{file.path}: {reason}")
            if wanted.done:
                return

    def _splitter(self, _file: LogFile) -> Splitter[Stretch | Block]:
        return Blocks.stretches if backends.choose(self._backend).name == "native" else Blocks.of

    def _lines(self, maker: Blocks, wanted: Filter) -> RowLines | None:
        if wanted.where is None or backends.choose(self._backend).name != "native":
            return None
        from binlogtool.log.where_lines import row_lines

        return row_lines(maker, wanted.where)

    def _passages(self, file: LogFile) -> Splitter[Passage | Block]:
        backend = backends.choose(self._backend)
        return Passages(backend).of if backend.name == "native" and file.layout.assemble is None else Blocks.of

    def _made(
        self,
        selection: Selection,
        decode: str,
        raw: bool,
        splitter: Callable[[LogFile], Splitter[T]],
        script_of: Callable[[Format], Script] | None = None,
        part: Part = WHOLE,
        choice: RowWhere | None = None,
        reader_of: Callable[[Format], TableReader] | None = None,
    ) -> Iterator[T | Block | Trouble]:
        wanted = Filter(replace(selection, tail=None))
        for share, file in zip(self.shares(selection), self._each(), strict=False):
            wanted.begin(share, file.size, file.format.output.gtids, file.layout.page)
            script = None if script_of is None else script_of(file.format)
            reader = None if reader_of is None else reader_of(file.format)
            maker = Blocks(file.path, file.format, file.layout, self._limits, decode, raw, script, choice, reader)
            wanted.lines = self._lines(maker, wanted)
            split, marker = splitter(file), Marker(maker, wanted)
            if part.start is None:
                yield from (Trouble(file.path, found) for found in file.layout.findings)
            for scan in self._scans(file, selection, part):
                salvaged = selection.on_damage == "salvage" and script is None
                scan.beside = Salvager(scan) if salvaged else None
                for segment in scan.all_there():
                    if isinstance(segment, Unproven):
                        yield from marker.blocks(segment)
                        if wanted.done:
                            return
                        continue
                    batch = segment.kept if isinstance(segment, Damage) else segment
                    if isinstance(segment, Damage):
                        yield from (Trouble(file.path, found) for found in segment.findings)
                        if selection.on_damage == "stop" and segment.tail == "damaged":
                            return
                        if segment.framed is not None and (salvaged or decode == "header"):
                            yield from all_rows(segment, maker, wanted)
                            batch = None
                    if batch is not None:
                        marker.proven()
                        yield from split(maker, batch, wanted)
                    if wanted.done:
                        return
                if reason := scan.incomplete or scan.over_ceiling:
                    raise LimitError(f"{file.path}: {reason}")
            yield from (Trouble(file.path, found) for found in (part.changed(file.source),) if found)

    def records(
        self,
        start: str | None = None,
        *,
        on_damage: str = "skip",
        selection: Selection = Selection(),
        decode: str = "full",
    ) -> Iterator[Record]:
        """The selected records one by one; damage between them is passed over (`verify` tells it)."""
        chosen = replace(selection, start=start or selection.start, on_damage=on_damage)
        for block in self.blocks(chosen, decode=decode):
            if isinstance(block, Block):
                yield from block

    def close(self) -> None:
        """Closes every file."""
        for file in self._open:
            file.source.close()
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _range(found: Finding) -> str:
    """The bytes that a finding is about, in words."""
    return "" if found.offset is None else f"bytes {found.offset:,} to {found.offset + found.length:,}: "


def _last(blocks: Iterator[Block | Trouble], count: int) -> Iterator[Block | Trouble]:
    """The last `count` records, as blocks of one; troubles are passed on at once."""
    kept: deque[tuple[Block, int]] = deque(maxlen=count)
    for block in blocks:
        if isinstance(block, Block):
            kept.extend((block, i) for i in range(max(0, len(block) - count), len(block)))
        else:
            yield block
    yield from (block.part(i, i + 1) for block, i in kept)


def open_log(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    format: str = "auto",
    limits: Limits = Limits(),
    backend: str = "auto",
    hints: Hints | None = None,
    kind: type[L],
) -> L:
    """See `binlogtool.open`. kind: of log."""
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    files = [
        (group.member_path(name), name, group.format)
        for one in paths
        for group in groups(os.fspath(one), format)
        for name in group.names
    ]
    if not files:
        raise UnknownFormatError("no log file was named")
    log = kind(files, limits, backend, hints or Hints())
    try:
        log.check()
    except BaseException:
        log.close()
        raise
    return log
