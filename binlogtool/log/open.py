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
from binlogtool.findings import CHANGED_LATER, Finding, Severity, make_finding
from binlogtool.formats.base import Format
from binlogtool.formats.changes import ChangeReader
from binlogtool.formats.detecting import Hints
from binlogtool.formats.layouts import Batch
from binlogtool.formats.scripting import ScriptOptions, ScriptWriter
from binlogtool.formats.tables import TableReader, TableSchema
from binlogtool.limits import Limits
from binlogtool.log.blocks import BlockDecoder
from binlogtool.log.bundles import SelectedEventGroup, read_event_groups
from binlogtool.log.crowds import RowBatchSplitter
from binlogtool.log.files import LogFiles
from binlogtool.log.filters import RecordFilter
from binlogtool.log.how import ReadOptions
from binlogtool.log.named import resolve_logs
from binlogtool.log.opened_file import LogFile
from binlogtool.log.parts import WHOLE_FILE, FilePart
from binlogtool.log.passages import SqlFragmentSplitter
from binlogtool.log.places import select_nothing
from binlogtool.log.records import FileFinding, Record, RecordBlock, RowBatch, ScriptSummary, ScriptText, SqlFragment
from binlogtool.log.salvaging import SalvageMarker, SalvageReader, decode_all_rows
from binlogtool.log.segments import DamagedRange, SalvagedRecords
from binlogtool.log.select import Selection, can_miss_later_changes, read_everything, refuse_salvage, refuse_where
from binlogtool.log.stretches import RecordRange
from binlogtool.schema import backends

if TYPE_CHECKING:
    from binlogtool.log.unknown_columns import ColumnTracker
    from binlogtool.log.unmatched import NameCensus, UnmatchedNames
    from binlogtool.log.where_lines import CompiledCondition
    from binlogtool.log.where_rows import RowCondition

T = TypeVar("T")
S = TypeVar("S", bound=RecordBlock | RowBatch | SqlFragment | FileFinding)
L = TypeVar("L", bound="LogReader")
Splitter = Callable[[BlockDecoder, Batch, RecordFilter], Iterator[T]]
"""What makes the parts of a log from a batch."""


def _block_splitter(_file: LogFile) -> Splitter[RecordBlock]:
    return BlockDecoder.decode_batch


class PassOptions(msgspec.Struct, Generic[T], frozen=True):
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
    script_of: Callable[[Format], ScriptWriter] | None = None
    row_condition: RowCondition | None = None
    reader_of: Callable[[Format], TableReader] | None = None
    reads_on: bool = False

    def make_decoder(self, file: LogFile, limits: Limits) -> BlockDecoder:
        """Create the block decoder of one file."""
        script = None if self.script_of is None else self.script_of(file.format)
        reader = None if self.reader_of is None else self.reader_of(file.format)
        return BlockDecoder(
            file.path, file.format, file.layout, limits, self.decode, self.raw, script, self.row_condition, reader
        )  # fmt: skip


class LogReader(LogFiles):
    """Records of one or more files, in order. Use as a context manager, or call `close`."""

    _column_tracker: ColumnTracker | None = None
    """Of a log that is read once only: what was learned of the columns of a condition."""
    _name_census: NameCensus | None = None
    """The same of the names in it."""
    _last_filter: RecordFilter | None = None
    """What the last pass chose by."""

    def blocks(
        self,
        selection: Selection = Selection(),
        *,
        decode: str = "full",
        raw: bool = False,
        part: FilePart = WHOLE_FILE,
    ) -> Iterator[RecordBlock | FileFinding]:
        """Yield blocks of the selected records; damage between them is a `FileFinding`. part: of a log of one file."""
        items = self._run_pass(selection, PassOptions(_block_splitter, decode, raw), part)
        return items if selection.tail is None else _take_last(items, selection.tail)

    def record_ranges(
        self, selection: Selection = Selection(), *, decode: str = "full", part: FilePart = WHOLE_FILE
    ) -> Iterator[RecordRange | RecordBlock | FileFinding]:
        """Yield record ranges in place of blocks, in files that are worth compiled code (`log.compiled`)."""
        if selection.tail is not None:
            return self.blocks(selection, decode=decode, part=part)
        return self._run_pass(selection, PassOptions(self._range_splitter, decode), part)

    def statements(
        self, selection: Selection = Selection(), options: ScriptOptions = ScriptOptions()
    ) -> Iterator[RecordBlock | SqlFragment | ScriptText | FileFinding]:
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
        refuse_salvage(selection, "a script of statements")
        row_condition: RowCondition | None = None
        if selection.where is not None:
            from binlogtool.log.where_rows import make_row_condition

            row_condition = make_row_condition(selection.where)
            self._track_columns(selection.where)
            selection, options = replace(selection, where=None), row_condition.apply_to(options)

        def start_script(format_: Format) -> ScriptWriter:
            if format_.output.start_script is None:
                raise UsageError(f"the records of {format_.name} cannot be written as statements for a server")
            return format_.output.start_script(options)

        options = replace(
            options, is_partial=options.flashback and (row_condition is not None or can_miss_later_changes(selection))
        )
        is_complete = True
        for part in self._write_scripts(
            selection, self._fragment_splitter, start_script, row_condition, reads_on=options.is_partial
        ):
            is_complete = is_complete and not any(one.severity is Severity.ERROR for one in _iter_findings(part))
            yield part
        if row_condition is not None and is_complete and not row_condition.found:
            self.require_columns(row_condition.text)

    def change_messages(
        self, selection: Selection, make_writer: Callable[[ChangeReader], ScriptWriter]
    ) -> Iterator[RecordBlock | ScriptText | FileFinding]:
        """Yield row changes as messages: blocks whose bodies are lines, and lines between them.

        Args:
            make_writer: creates the writer of the messages.

        Raises:
            UsageError: the format has no row changes, or single records are requested.
        """
        refuse_salvage(selection, "messages about changes")
        refuse_where(selection, "messages about changes")

        def start_script(format_: Format) -> ScriptWriter:
            if format_.output.start_changes is None:
                raise UsageError(f"the records of {format_.name} tell no changes of tables; --envelope is not for them")
            return make_writer(format_.output.start_changes())

        yield from self._write_scripts(selection, _block_splitter, start_script)

    def _write_scripts(
        self,
        selection: Selection,
        splitter: Callable[[LogFile], Splitter[S]],
        start_script: Callable[[Format], ScriptWriter],
        row_condition: RowCondition | None = None,
        *,
        reads_on: bool = False,
    ) -> Iterator[S | RecordBlock | ScriptText | FileFinding]:
        """Yield the selected records as one text.

        Args:
            start_script: creates the writer; there is one for each format.
            reads_on: see `PassOptions`.
        """
        scripts: dict[str, ScriptWriter] = {}

        def script_of(format_: Format) -> ScriptWriter:
            return scripts.get(format_.name) or scripts.setdefault(format_.name, start_script(format_))

        for part in self._run_pass(
            selection, PassOptions(splitter, script_of=script_of, row_condition=row_condition, reads_on=reads_on)
        ):
            yield part
            if isinstance(part, FileFinding) and part.finding.severity is Severity.ERROR:
                gap_text = f"not here: {part.file}: {_format_range(part.finding)}{part.finding.message}"
                yield from (ScriptText(script.note_gap(gap_text)) for script in scripts.values())
            stop_findings = [script.stop_finding for script in scripts.values() if script.stop_finding is not None]
            yield from (FileFinding(part.file, found) for found in stop_findings if not isinstance(part, ScriptText))
            if stop_findings:
                break
        for script in scripts.values():
            yield ScriptText(script.finish(), ScriptSummary(script.row_changes, script.is_empty))
            yield from (FileFinding(self._plan[-1][0], found) for found in script.final_findings())

    def table_rows(
        self,
        selection: Selection,
        *,
        part: FilePart = WHOLE_FILE,
        known_tables: Sequence[TableSchema] = (),
        cells: bool = False,
        is_selected: Callable[[TableSchema], bool] | None = None,
    ) -> Iterator[RecordBlock | FileFinding]:
        """Yield the table rows of the selected records: blocks whose bodies are `formats.tables.RecordTableRows`.

        Args:
            known_tables: table descriptions from other files.
            cells: rows may be yielded as cells.
            is_selected: rows of other tables may be left out; None = all are selected.

        Raises:
            UsageError: the format has no tables, or unproven records are requested.
        """
        return self._read_tables(selection, BlockDecoder.decode_batch, known_tables, is_selected, part, cells=cells)

    def require_columns(self, where: str) -> None:
        """Check that a table of the log has each column that a condition names; for a condition that selected
        nothing.

        Reads the log again; a stream must have been read with this condition.

        Raises:
            UsageError: no table has the column.
        """
        from binlogtool.log.unknown_columns import ColumnTracker

        if self.is_stream:
            tracker = self._column_tracker
        else:
            tracker = ColumnTracker(where)
            with self.reopen() as log:
                for _ in log._run_pass(Selection(), PassOptions(lambda _: tracker.read_batch)):
                    if not tracker.missing:
                        break
        if tracker is not None:
            tracker.require_known()

    def track_names(self, selection: Selection) -> None:
        """Prepare `find_unmatched` for this selection on a stream, before the next pass."""
        from binlogtool.log.unmatched import NameCensus

        census = NameCensus(selection, self._hints.schema)
        self._name_census = census if self.is_stream and census.is_needed else None

    def find_unmatched(self, selection: Selection, selected_count: int) -> UnmatchedNames:
        """Return what the selection names and this log does not have, after a pass; reads the log again where needed.

        selected_count: how many records the pass selected.
        """
        from binlogtool.log.unmatched import NameCensus, UnmatchedNames

        census, last_filter = NameCensus(selection, self._hints.schema), self._last_filter
        if not census.is_needed or (
            selected_count and last_filter is not None and (last_filter.is_done or not last_filter.has_unmatched)
        ):
            return UnmatchedNames()
        if self.is_stream:
            return UnmatchedNames() if self._name_census is None else self._name_census.find_unmatched()
        with self.reopen(replace(self._hints, objects=True)) as log:
            for _ in log._run_pass(Selection(), PassOptions(lambda _: census.read_batch)):
                pass
        return census.find_unmatched()

    def row_batches(
        self,
        selection: Selection,
        *,
        known_tables: Sequence[TableSchema] = (),
        is_selected: Callable[[TableSchema], bool] | None = None,
    ) -> Iterator[RowBatch | RecordBlock | FileFinding]:
        """Yield table rows as `table_rows` does, with rows as cells, and many records at once in compiled code."""
        return self._read_tables(
            selection, RowBatchSplitter().split_batch, known_tables, is_selected, WHOLE_FILE, cells=True
        )

    def _read_tables(
        self,
        selection: Selection,
        split: Splitter[S],
        known_tables: Sequence[TableSchema],
        is_selected: Callable[[TableSchema], bool] | None,
        part: FilePart,
        *,
        cells: bool,
    ) -> Iterator[S | RecordBlock | FileFinding]:
        refuse_salvage(selection, "rows of tables")
        readers: dict[str, TableReader] = {}

        def reader_of(format_: Format) -> TableReader:
            if format_.tables is None:
                raise UsageError(f"the records of {format_.name} have no tables: convert them without --object")
            if format_.name not in readers:
                rules, backend = format_.tables(), backends.choose_backend(self._backend)
                compiled = rules.make_compiled_reader if cells and backend.name == "native" else None
                readers[format_.name] = rules.make_reader() if compiled is None else compiled(backend.compile_kernel)
                readers[format_.name].add_known_tables(known_tables)
                if is_selected is not None:
                    readers[format_.name].limit_to(is_selected)
            return readers[format_.name]

        for item in self._run_pass(selection, PassOptions(lambda _: split, reader_of=reader_of), part):
            yield item
            if isinstance(item, FileFinding) and item.finding.severity is Severity.ERROR:
                for reader in readers.values():
                    reader.note_gap()

    def event_groups(self, selection: Selection) -> Iterator[SelectedEventGroup | FileFinding]:
        """Yield the event groups of a server's log, in order; damage between them is yielded as `FileFinding`.

        Raises:
            UsageError: the records of a file are not events of such a log.
        """
        refuse_where(selection, "a log")
        record_filter = RecordFilter(selection)
        for file_selection, file in zip(self.split_selection(selection), self._iter_files(), strict=False):
            record_filter.start_file(file_selection, file.size, file.format.output, file.layout.page_size)
            scan = self.make_scan(file, live=selection.live)
            yield from (FileFinding(file.path, found) for found in file.layout.findings)
            yield from read_event_groups(file.path, scan, record_filter, self._limits)
            yield from (FileFinding(file.path, found) for found in (file.find_change(),) if found)
            if reason := scan.incomplete or scan.over_limit:
                raise LimitError(f"{file.path}: {reason}")
            if record_filter.is_done:
                return

    def _track_columns(self, where: str | None) -> None:
        """Track the columns of a stream while it is read."""
        if where is not None and self.is_stream:
            from binlogtool.log.unknown_columns import ColumnTracker

            self._column_tracker = ColumnTracker(where)

    def _range_splitter(self, _file: LogFile) -> Splitter[RecordRange | RecordBlock]:
        return (
            BlockDecoder.split_batch
            if backends.choose_backend(self._backend).name == "native"
            else BlockDecoder.decode_batch
        )

    def _compile_condition(self, decoder: BlockDecoder, record_filter: RecordFilter) -> CompiledCondition | None:
        if record_filter.where is None or backends.choose_backend(self._backend).name != "native":
            return None
        from binlogtool.log.where_lines import compile_row_condition

        return compile_row_condition(decoder, record_filter.where)

    def _fragment_splitter(self, file: LogFile) -> Splitter[SqlFragment | RecordBlock]:
        backend = backends.choose_backend(self._backend)
        return (
            SqlFragmentSplitter(backend).split_batch
            if backend.name == "native" and file.layout.make_assembler is None
            else BlockDecoder.decode_batch
        )

    def _run_pass(
        self, selection: Selection, options: PassOptions[T], part: FilePart = WHOLE_FILE
    ) -> Iterator[T | RecordBlock | FileFinding]:
        record_filter = self._last_filter = RecordFilter(replace(selection, tail=None))
        self._track_columns(selection.where)
        file_selections, files = self.split_selection(selection), self._iter_files()
        for number, file_selection in enumerate(
            chain(file_selections, repeat(select_nothing(selection)) if options.reads_on else ())
        ):
            try:
                file = next(files, None)
            except BinlogtoolError as error:
                if number < len(file_selections):
                    raise
                yield FileFinding(self._plan[number][0], _make_unread_finding(str(error)))
                return
            if file is None:
                return
            is_after_selection = options.reads_on and (number >= len(file_selections) or record_filter.over)
            record_filter.start_file(file_selection, file.size, file.format.output, file.layout.page_size)
            decoder = options.make_decoder(file, self._limits)
            record_filter.lines = self._compile_condition(decoder, record_filter)
            split, marker = options.splitter(file), SalvageMarker(decoder, record_filter)
            if part.start is None:
                yield from (_make_file_finding(file.path, found, is_after_selection) for found in file.layout.findings)
            for scan in self._make_scans(file, read_everything(selection) if options.reads_on else selection, part):
                is_salvaging = selection.on_damage == "salvage" and decoder.script is None
                scan.salvage_reader = SalvageReader(scan) if is_salvaging else None
                for segment in scan.read_segments():
                    if isinstance(segment, SalvagedRecords):
                        yield from marker.decode_salvaged(segment)
                        if record_filter.is_done:
                            return
                        continue
                    batch = segment.good_records if isinstance(segment, DamagedRange) else segment
                    if isinstance(segment, DamagedRange):
                        is_after_selection = is_after_selection or (options.reads_on and record_filter.over)
                        yield from (
                            _make_file_finding(file.path, found, is_after_selection) for found in segment.findings
                        )
                        if selection.on_damage == "stop" and segment.tail == "damaged":
                            return
                        if segment.framed_records is not None and (is_salvaging or options.decode == "header"):
                            yield from decode_all_rows(segment, decoder, record_filter)
                            batch = None
                    if batch is not None:
                        marker.reset()
                        if self._column_tracker is not None:
                            self._column_tracker.track_batch(decoder, batch)
                        if self._name_census is not None:
                            self._name_census.track_batch(decoder, batch)
                        yield from split(decoder, batch, record_filter)
                    if record_filter.is_done and not options.reads_on:
                        return
                if reason := scan.incomplete or scan.over_limit:
                    raise LimitError(f"{file.path}: {reason}")
            yield from (FileFinding(file.path, found) for found in (part.find_change(file),) if found)

    def records(
        self,
        start: str | None = None,
        *,
        on_damage: str = "skip",
        selection: Selection = Selection(),
        decode: str = "full",
    ) -> Iterator[Record]:
        """Yield the selected records one by one; damage between them is skipped (`verify` reports it)."""
        full_selection = replace(selection, start=start or selection.start, on_damage=on_damage)
        for block in self.blocks(full_selection, decode=decode):
            if isinstance(block, RecordBlock):
                yield from block


def _make_file_finding(path: str, item: Finding, is_after_selection: bool) -> FileFinding:
    """Create a finding for a file. is_after_selection: nothing there is selected; it is read for later changes only."""
    return FileFinding(
        path, _make_unread_finding(item.message) if is_after_selection and item.severity is Severity.ERROR else item
    )


def _make_unread_finding(reason: str) -> Finding:
    text = f"not checked: whether the chosen rows were changed again later, from here on: {reason}"
    return make_finding(CHANGED_LATER, None, 0, text)


def _iter_findings(part: RecordBlock | SqlFragment | ScriptText | FileFinding) -> Iterator[Finding]:
    """Yield the findings of one item."""
    if isinstance(part, FileFinding):
        yield part.finding
    elif isinstance(part, RecordBlock):
        yield from chain.from_iterable(part.findings.values())


def _format_range(item: Finding) -> str:
    """Return the byte range of a finding as text."""
    return "" if item.offset is None else f"bytes {item.offset:,} to {item.offset + item.length:,}: "


def _take_last(blocks: Iterator[RecordBlock | FileFinding], count: int) -> Iterator[RecordBlock | FileFinding]:
    """Yield the last `count` records, as blocks of one; findings are passed on at once."""
    last_records: deque[tuple[RecordBlock, int]] = deque(maxlen=count)
    for block in blocks:
        if isinstance(block, RecordBlock):
            last_records.extend((block, i) for i in range(max(0, len(block) - count), len(block)))
        else:
            yield block
    yield from (block.part(i, i + 1) for block, i in last_records)


def open_log(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    read_options: ReadOptions,
    log_class: type[L],
) -> L:
    """Open a log as `binlogtool.open` does. log_class: the class to create."""
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    files = [
        (group.member_path(name), name, group.format)
        for one in paths
        for group in resolve_logs(os.fspath(one), read_options.format)
        for name in group.names
    ]
    if not files:
        raise UnknownFormatError("no log file was named")
    log = log_class(files, read_options.limits, read_options.backend, read_options.hints or Hints())
    try:
        log.open_first()
    except BaseException:
        log.close()
        raise
    return log
