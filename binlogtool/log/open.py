"""A log opened for reading: one file, the files of a set in order, or several files one after the other."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError, LimitError, UnknownFormatError, UsageError
from binlogtool.findings import CHANGED_LATER, Finding, Severity, finding
from binlogtool.formats.base import Format
from binlogtool.formats.changes import Changes
from binlogtool.formats.detecting import Hints
from binlogtool.formats.layouts import Batch
from binlogtool.formats.scripting import Script, Wording
from binlogtool.formats.tables import Table, TableReader
from binlogtool.limits import Limits
from binlogtool.log.blocks import Blocks
from binlogtool.log.bundles import Bundled, bundled
from binlogtool.log.crowds import Crowds
from binlogtool.log.files import Files
from binlogtool.log.filters import Filter
from binlogtool.log.how import How
from binlogtool.log.named import groups
from binlogtool.log.opened_file import LogFile
from binlogtool.log.parts import WHOLE, Part
from binlogtool.log.passages import Passages
from binlogtool.log.places import nothing_of
from binlogtool.log.records import Block, Crowd, Passage, Record, ScriptEnd, Text, Trouble
from binlogtool.log.salvaging import Marker, Salvager, all_rows
from binlogtool.log.segments import Damage, Unproven
from binlogtool.log.select import Selection, ends_early, proven_only, whole_of, whole_only
from binlogtool.log.stretches import Stretch
from binlogtool.schema import backends

if TYPE_CHECKING:
    from binlogtool.log.unknown_columns import Columns
    from binlogtool.log.unmatched import Census, Unmatched
    from binlogtool.log.where_lines import RowLines
    from binlogtool.log.where_rows import RowWhere

T = TypeVar("T")
S = TypeVar("S", bound=Block | Crowd | Passage | Trouble)
L = TypeVar("L", bound="Log")
Splitter = Callable[[Blocks, Batch, Filter], Iterator[T]]
"""What makes the parts of a log from a batch."""


def _blocks(_file: LogFile) -> Splitter[Block]:
    return Blocks.of


class Making(msgspec.Struct, Generic[T], frozen=True):
    """What a pass over a log yields, and how its records are decoded.

    Args:
        splitter: file -> function that turns a batch into the yielded items.
        decode, raw: see `BlockDecoder`.
        script_of, row_condition: for passes whose bodies are text of a script.
        reader_of: for passes whose bodies are table rows.
        reads_on: the script also sees the records after the selection, to the end of the last file.
    """

    splitter: Callable[[LogFile], Splitter[T]]
    decode: str = "full"
    raw: bool = False
    script_of: Callable[[Format], Script] | None = None
    choice: RowWhere | None = None
    reader_of: Callable[[Format], TableReader] | None = None
    reads_on: bool = False

    def of(self, file: LogFile, limits: Limits) -> Blocks:
        """Create the block decoder of one file."""
        script = None if self.script_of is None else self.script_of(file.format)
        reader = None if self.reader_of is None else self.reader_of(file.format)
        return Blocks(
            file.path, file.format, file.layout, limits, self.decode, self.raw, script, self.choice, reader
        )  # fmt: skip


class Log(Files):
    """Records of one or more files, in order. Use as a context manager, or call `close`."""

    _columns: Columns | None = None
    """Of a log that is read once only: what was learned of the columns of a condition."""
    _census: Census | None = None
    """The same of the names in it."""
    _wanted: Filter | None = None
    """What the last pass chose by."""

    def blocks(
        self, selection: Selection = Selection(), *, decode: str = "full", raw: bool = False, part: Part = WHOLE
    ) -> Iterator[Block | Trouble]:
        """Yield blocks of the selected records; damage between them is a `FileFinding`. part: of a log of one file."""
        made = self._made(selection, Making(_blocks, decode, raw), part)
        return made if selection.tail is None else _last(made, selection.tail)

    def stretches(
        self, selection: Selection = Selection(), *, decode: str = "full", part: Part = WHOLE
    ) -> Iterator[Stretch | Block | Trouble]:
        """Yield record ranges in place of blocks, in files that are worth compiled code (`log.compiled`)."""
        if selection.tail is not None:
            return self.blocks(selection, decode=decode, part=part)
        return self._made(selection, Making(self._splitter, decode), part)

    def statements(
        self, selection: Selection = Selection(), wording: Wording = Wording()
    ) -> Iterator[Block | Passage | Text | Trouble]:
        """Yield the selected records as an SQL script: blocks whose bodies are text, and text between them.

        With a condition (`Selection.where`) all records are read that have rows it selects; the other rows are not
        written.

        Raises:
            UsageError: the records of this format are not statements, the last ones are requested, or no table has a
                column that the condition names.
            RefusedError: for a flashback, the last transaction is incomplete.
        """
        if selection.tail is not None:
            raise UsageError("the last records cannot be written as statements: name a position to start from")
        proven_only(selection, "a script of statements")
        choice: RowWhere | None = None
        if selection.where is not None:
            from binlogtool.log.where_rows import row_choice

            choice = row_choice(selection.where)
            self._note(selection.where)
            selection, wording = replace(selection, where=None), choice.worded(wording)

        def begun(format_: Format) -> Script:
            if format_.output.sql is None:
                raise UsageError(f"the records of {format_.name} cannot be written as statements for a server")
            return format_.output.sql(wording)

        wording = replace(wording, partial=wording.undo and (choice is not None or ends_early(selection)))
        sure = True
        for part in self._scripted(selection, self._passages, begun, choice, reads_on=wording.partial):
            sure = sure and not any(one.severity is Severity.ERROR for one in _found(part))
            yield part
        if choice is not None and sure and not choice.found:
            self.demand_columns(choice.text)

    def messages(self, selection: Selection, begin: Callable[[Changes], Script]) -> Iterator[Block | Text | Trouble]:
        """Yield row changes as messages: blocks whose bodies are lines, and lines between them.

        Args:
            begin: creates the writer of the messages.

        Raises:
            UsageError: the format has no row changes, or single records are requested.
        """
        proven_only(selection, "messages about changes")
        whole_only(selection, "messages about changes")

        def begun(format_: Format) -> Script:
            if format_.output.changes is None:
                raise UsageError(f"the records of {format_.name} tell no changes of tables; --envelope is not for them")
            return begin(format_.output.changes())

        yield from self._scripted(selection, _blocks, begun)

    def _scripted(
        self,
        selection: Selection,
        splitter: Callable[[LogFile], Splitter[S]],
        begun: Callable[[Format], Script],
        choice: RowWhere | None = None,
        *,
        reads_on: bool = False,
    ) -> Iterator[S | Block | Text | Trouble]:
        """Yield the selected records as one text.

        Args:
            start_script: creates the writer; there is one for each format.
            reads_on: see `PassOptions`.
        """
        scripts: dict[str, Script] = {}

        def script_of(format_: Format) -> Script:
            return scripts.get(format_.name) or scripts.setdefault(format_.name, begun(format_))

        for part in self._made(selection, Making(splitter, script_of=script_of, choice=choice, reads_on=reads_on)):
            yield part
            if isinstance(part, Trouble) and part.finding.severity is Severity.ERROR:
                what = f"not here: {part.file}: {_range(part.finding)}{part.finding.message}"
                yield from (Text(script.lost(what)) for script in scripts.values())
            ends = [script.stopped for script in scripts.values() if script.stopped is not None]
            yield from (Trouble(part.file, found) for found in ends if not isinstance(part, Text))
            if ends:
                break
        for script in scripts.values():
            yield Text(script.end(), ScriptEnd(script.row_changes, script.is_empty))
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
        """Yield the table rows of the selected records: blocks whose bodies are `formats.tables.RecordTableRows`.

        Args:
            known: table descriptions from other files.
            cells: rows may be yielded as cells.
            is_selected: rows of other tables may be left out; None = all are selected.

        Raises:
            UsageError: the format has no tables, or unproven records are requested.
        """
        return self._tables(selection, Blocks.of, known, wants, part, cells=cells)

    def demand_columns(self, where: str) -> None:
        """Check that a table of the log has each column that a condition names; for a condition that selected
        nothing.

        Reads the log again; a stream must have been read with this condition.

        Raises:
            UsageError: no table has the column.
        """
        from binlogtool.log.unknown_columns import Columns

        if self.is_stream:
            found = self._columns
        else:
            found = Columns(where)
            with self.again() as log:
                for _ in log._made(Selection(), Making(lambda _: found.of)):
                    if not found.missing:
                        break
        if found is not None:
            found.demand()

    def watch_names(self, selection: Selection) -> None:
        """Prepare `find_unmatched` for this selection on a stream, before the next pass."""
        from binlogtool.log.unmatched import Census

        census = Census(selection, self._hints.schema)
        self._census = census if self.is_stream and census.is_needed else None

    def unmatched(self, selection: Selection, chosen: int) -> Unmatched:
        """Return what the selection names and this log does not have, after a pass; reads the log again where needed.

        selected_count: how many records the pass selected.
        """
        from binlogtool.log.unmatched import Census, Unmatched

        census, wanted = Census(selection, self._hints.schema), self._wanted
        if not census.is_needed or (chosen and wanted is not None and (wanted.done or not wanted.unmatched)):
            return Unmatched()
        if self.is_stream:
            return Unmatched() if self._census is None else self._census.found()
        with self.again(replace(self._hints, objects=True)) as log:
            for _ in log._made(Selection(), Making(lambda _: census.of)):
                pass
        return census.found()

    def crowds(
        self, selection: Selection, *, known: Sequence[Table] = (), wants: Callable[[Table], bool] | None = None
    ) -> Iterator[Crowd | Block | Trouble]:
        """Yield table rows as `table_rows` does, with rows as cells, and many records at once in compiled code."""
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

        for one in self._made(selection, Making(lambda _: split, reader_of=reader_of), part):
            yield one
            if isinstance(one, Trouble) and one.finding.severity is Severity.ERROR:
                for reader in readers.values():
                    reader.lost()

    def bundles(self, selection: Selection) -> Iterator[Bundled | Trouble]:
        """Yield the event groups of a server's log, in order; damage between them is yielded as `FileFinding`.

        Raises:
            UsageError: the records of a file are not events of such a log.
        """
        whole_only(selection, "a log")
        wanted = Filter(selection)
        for share, file in zip(self.shares(selection), self._each(), strict=False):
            wanted.begin(share, file.size, file.format.output, file.layout.page)
            scan = self.scan(file, live=selection.live)
            yield from (Trouble(file.path, found) for found in file.layout.findings)
            yield from bundled(file.path, scan, wanted, self._limits)
            yield from (Trouble(file.path, found) for found in (file.changed(),) if found)
            if reason := scan.incomplete or scan.over_ceiling:
                raise LimitError(f"{file.path}: {reason}")
            if wanted.done:
                return

    def _note(self, where: str | None) -> None:
        """Track the columns of a stream while it is read."""
        if where is not None and self.is_stream:
            from binlogtool.log.unknown_columns import Columns

            self._columns = Columns(where)

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

    def _made(self, selection: Selection, making: Making[T], part: Part = WHOLE) -> Iterator[T | Block | Trouble]:
        wanted = self._wanted = Filter(replace(selection, tail=None))
        self._note(selection.where)
        shares, files = self.shares(selection), self._each()
        for number, share in enumerate(chain(shares, repeat(nothing_of(selection)) if making.reads_on else ())):
            try:
                file = next(files, None)
            except BinlogtoolError as error:
                if number < len(shares):
                    raise
                yield Trouble(self._plan[number][0], _unread(str(error)))
                return
            if file is None:
                return
            is_behind = making.reads_on and (number >= len(shares) or wanted.over)
            wanted.begin(share, file.size, file.format.output, file.layout.page)
            maker = making.of(file, self._limits)
            wanted.lines = self._lines(maker, wanted)
            split, marker = making.splitter(file), Marker(maker, wanted)
            if part.start is None:
                yield from (_trouble(file.path, found, is_behind) for found in file.layout.findings)
            for scan in self._scans(file, whole_of(selection) if making.reads_on else selection, part):
                salvaged = selection.on_damage == "salvage" and maker.script is None
                scan.beside = Salvager(scan) if salvaged else None
                for segment in scan.all_there():
                    if isinstance(segment, Unproven):
                        yield from marker.blocks(segment)
                        if wanted.done:
                            return
                        continue
                    batch = segment.kept if isinstance(segment, Damage) else segment
                    if isinstance(segment, Damage):
                        is_behind = is_behind or (making.reads_on and wanted.over)
                        yield from (_trouble(file.path, found, is_behind) for found in segment.findings)
                        if selection.on_damage == "stop" and segment.tail == "damaged":
                            return
                        if segment.framed is not None and (salvaged or making.decode == "header"):
                            yield from all_rows(segment, maker, wanted)
                            batch = None
                    if batch is not None:
                        marker.proven()
                        if self._columns is not None:
                            self._columns.look(maker, batch)
                        if self._census is not None:
                            self._census.look(maker, batch)
                        yield from split(maker, batch, wanted)
                    if wanted.done and not making.reads_on:
                        return
                if reason := scan.incomplete or scan.over_ceiling:
                    raise LimitError(f"{file.path}: {reason}")
            yield from (Trouble(file.path, found) for found in (part.changed(file),) if found)

    def records(
        self,
        start: str | None = None,
        *,
        on_damage: str = "skip",
        selection: Selection = Selection(),
        decode: str = "full",
    ) -> Iterator[Record]:
        """Yield the selected records one by one; damage between them is skipped (`verify` reports it)."""
        chosen = replace(selection, start=start or selection.start, on_damage=on_damage)
        for block in self.blocks(chosen, decode=decode):
            if isinstance(block, Block):
                yield from block


def _trouble(path: str, found: Finding, is_behind: bool) -> Trouble:
    """Create a finding for a file. is_after_selection: nothing there is selected; it is read for later changes only."""
    return Trouble(path, _unread(found.message) if is_behind and found.severity is Severity.ERROR else found)


def _unread(why: str) -> Finding:
    text = f"not checked: whether the chosen rows were changed again later, from here on: {why}"
    return finding(CHANGED_LATER, None, 0, text)


def _found(part: Block | Passage | Text | Trouble) -> Iterator[Finding]:
    """Yield the findings of one item."""
    if isinstance(part, Trouble):
        yield part.finding
    elif isinstance(part, Block):
        yield from chain.from_iterable(part.findings.values())


def _range(found: Finding) -> str:
    """Return the byte range of a finding as text."""
    return "" if found.offset is None else f"bytes {found.offset:,} to {found.offset + found.length:,}: "


def _last(blocks: Iterator[Block | Trouble], count: int) -> Iterator[Block | Trouble]:
    """Yield the last `count` records, as blocks of one; findings are passed on at once."""
    kept: deque[tuple[Block, int]] = deque(maxlen=count)
    for block in blocks:
        if isinstance(block, Block):
            kept.extend((block, i) for i in range(max(0, len(block) - count), len(block)))
        else:
            yield block
    yield from (block.part(i, i + 1) for block, i in kept)


def open_log(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    how: How,
    kind: type[L],
) -> L:
    """Open a log as `binlogtool.open` does. kind: the class to create."""
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    files = [
        (group.member_path(name), name, group.format)
        for one in paths
        for group in groups(os.fspath(one), how.format)
        for name in group.names
    ]
    if not files:
        raise UnknownFormatError("no log file was named")
    log = kind(files, how.limits, how.backend, how.hints or Hints())
    try:
        log.check()
    except BaseException:
        log.close()
        raise
    return log
