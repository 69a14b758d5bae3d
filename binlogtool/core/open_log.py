"""Open a log for reading: one file, the files of a set in order, or parts of a big file; report names in a selection
that do not occur in the log.

The parts are planned by one pass over the frames: a part begins at a split point (`format_api.layout`), with the
reader's state at that point. After the first damage there are no splits.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec
from msgspec.structs import replace

from binlogtool.core import notify_progress_listener
from binlogtool.core.damage_in_selection import UndecidedDamage
from binlogtool.core.decode_batches import (
    BlockDecoder,
    RowBatchReader,
    SelectedEventGroup,
    SqlFragmentWriter,
    read_event_groups,
)
from binlogtool.core.divide_file import WHOLE_FILE, FilePart, compute_state_for_next_file
from binlogtool.core.log_set_continuity import LogSetContinuityChecker, SelectedLinks
from binlogtool.core.open_file import (
    LogFile,
    SiblingFiles,
    TruncatedSource,
    base_name,
    is_stream_path,
    is_url,
    open_file,
    total_size,
)
from binlogtool.core.record_and_selection_types import (
    FileFinding,
    ReadOptions,
    Record,
    RecordBlock,
    RowBatch,
    ScriptSummary,
    ScriptText,
    Selection,
    SqlFragment,
    can_miss_later_changes,
    describe_rounded_time_bounds,
    is_empty_selection,
    limit_selection_to_files,
    refuse_salvage,
    refuse_where,
    remove_position_bounds,
    select_nothing,
)
from binlogtool.core.record_filter import (
    RecordFilter,
    RecordRange,
    extract_gtid_selection,
)
from binlogtool.core.resolve_paths import resolve_logs
from binlogtool.core.salvage_records import UnprovenRecordDecoder, UnprovenRecordReader, decode_good_and_bad_rows
from binlogtool.core.scan_file import ByteAccount, DamagedRange, SalvagedRecords, Scan
from binlogtool.core.unmatched_names import UnmatchedNameFinder, UnmatchedNames
from binlogtool.errors import (
    BinlogtoolError,
    LimitError,
    UnknownFormatError,
    UsageError,
    format_name_suggestions,
    join_names,
)
from binlogtool.findings import CHANGED_LATER, ORDER_IDS, SET_LINK_IDS, Finding, Severity, make_finding
from binlogtool.format_api.format import Format, Hints, PrecedingFiles
from binlogtool.format_api.layout import Batch
from binlogtool.format_api.row_output_interfaces import (
    ChangeReader,
    CompiledTableReader,
    DatabaseRenames,
    ScriptOptions,
    ScriptWriter,
    TableReader,
    TableSchema,
)
from binlogtool.limits import Limits
from binlogtool.schema import backends

if TYPE_CHECKING:
    from binlogtool.core.apply_where import CompiledCondition, ConditionColumnChecker, RowCondition
    from binlogtool.query.evaluate import Condition


# --- Splits of a big file ---

# --- Files of a log, opened on demand ---


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
        self._carried_states: list[tuple[str, Any]] = []
        notify_progress_listener.report_pass_start(total_size(path for path, _, _ in files))

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
        """True if one of the files can be read only once; cached, as it is needed for each of thousands of files."""
        return any(is_stream_path(path) for path, _, _ in self._plan)

    def reopen(self, hints: Hints | None = None) -> Self:
        """Return the same log unopened, for a second pass at the same time. hints: replace those of this log.

        Raises:
            UsageError: one of the files is a stream.
        """
        if self.is_stream:
            raise UsageError("a stream can be read only once, and this takes several passes; save it to a file first")
        return type(self)(self._plan, self._limits, self._backend, hints or self._hints)

    def _open_file(self, number: int, shared: dict[str, Any] | None = None) -> LogFile:
        path, name, format_ = self._plan[number]
        earlier = None
        if number and not self.is_stream:
            earlier = PrecedingFiles(
                base_name(self._plan[number - 1][0]), partial(self._get_state_from_earlier_files, number)
            )
        siblings, hints = SiblingFiles(self._shared if shared is None else shared, preceding=earlier), self._hints
        if number:
            hints = replace(hints, earlier=None)
        return open_file(path, name, format_, self._limits, siblings=siblings, hints=hints)

    def export_state_from_earlier_files(self, file_number: int) -> str | None:
        """Return the state that earlier files carry over to file `file_number`, as `Hints.earlier`; None = no state."""
        state = self._get_format_and_state_before(file_number)[1] if file_number else None
        if not state:
            return self._hints.earlier if not file_number else None
        return msgspec.json.encode({"name": base_name(self._plan[file_number - 1][0]), "carried": state}).decode()

    def _get_state_from_earlier_files(self, file_number: int, format_name: str) -> Any:
        """Return the state that earlier files carry over to file `file_number` of this format; None = of another
        format.
        """
        earlier_format, state = self._get_format_and_state_before(file_number)
        return state if earlier_format == format_name else None

    def _get_format_and_state_before(self, file_number: int) -> tuple[str, Any]:
        """Return the format of the file before file `file_number`, and the state that earlier files carry over to
        it.
        """
        while len(self._carried_states) < file_number:
            self._carried_states.append(self._compute_format_and_state_after(len(self._carried_states)))
        return self._carried_states[file_number - 1]

    def _compute_format_and_state_after(self, file_number: int) -> tuple[str, Any]:
        """Return the format of file `file_number`, and the state that it carries over to the next one, with that
        before.
        """
        try:
            file = self._open_file(file_number, {})
        except BinlogtoolError:
            return "", None
        try:
            return file.format.name, compute_state_for_next_file(self.make_scan(file))
        finally:
            file.source.close()

    def _iter_files(self) -> Iterator[LogFile]:
        """Yield the files in order; close again those that were not open before, as a set may have thousands."""
        for number in range(len(self._plan)):
            if number < len(self._opened_files):
                yield self._opened_files[number]
                continue
            file = self._open_file(number)
            try:
                yield file
            finally:
                file.source.close()

    def limit_selection_to_files(self, selection: Selection) -> list[Selection]:
        """Return the part of a selection that applies to each file."""
        return limit_selection_to_files(selection, [path for path, _, _ in self._plan], self._can_hold_records)

    def _can_hold_records(self, file_number: int) -> bool:
        """Return True if file `file_number` can hold records.

        True also for a file that cannot be read twice, or not at all: reading it reports what is wrong.
        """
        path, name, format_ = self._plan[file_number]
        if file_number < len(self._opened_files):
            return self._opened_files[file_number].layout.has_records
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
            extract_gtid_selection(selection),
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


# --- A log opened for reading ---

T = TypeVar("T")
S = TypeVar("S", bound=RecordBlock | RowBatch | SqlFragment | FileFinding)
L = TypeVar("L", bound="LogReader")
BatchReader = Callable[[BlockDecoder, Batch, RecordFilter], Iterator[T]]
"""Function that turns a batch into the items that a pass yields."""


def _make_block_reader(_file: LogFile) -> BatchReader[RecordBlock]:
    return BlockDecoder.decode_batch


class PassOptions(msgspec.Struct, Generic[T], frozen=True):
    """Options of a pass over a log: the items that it yields, and how its records are decoded.

    Args:
        make_reader: file -> function that turns a batch into the yielded items.
        decode, raw: see `BlockDecoder`.
        script_of, row_condition: for passes whose bodies are text of a script.
        reader_of: for passes whose bodies are table rows.
        reads_past_selection: the script also sees the records after the selection, to the end of the last file.
        checks_links: report where the files of the log do not follow each other.
    """

    make_reader: Callable[[LogFile], BatchReader[T]]
    decode: str = "full"
    raw: bool = False
    script_of: Callable[[Format], ScriptWriter] | None = None
    row_condition: RowCondition | None = None
    reader_of: Callable[[Format], TableReader] | None = None
    reads_past_selection: bool = False
    checks_links: bool = True

    def make_decoder(self, file: LogFile, limits: Limits) -> BlockDecoder:
        """Create the block decoder of one file."""
        script = None if self.script_of is None else self.script_of(file.format)
        reader = None if self.reader_of is None else self.reader_of(file.format)
        return BlockDecoder(
            file.path, file.format, file.layout, limits, self.decode, self.raw, script, self.row_condition, reader
        )  # fmt: skip


def _start_script(options: ScriptOptions, format_: Format) -> ScriptWriter:
    if format_.output.start_script is None:
        raise UsageError(f"the records of {format_.name} cannot be written as statements for a server")
    return format_.output.start_script(options)


class LogReader(LogFiles):
    """Records of one or more files, in order. Use as a context manager, or call `close`."""

    _column_tracker: ConditionColumnChecker | None = None
    """Tracker of the condition's columns while a stream is read; None = not needed."""
    _name_finder: UnmatchedNameFinder | None = None
    """Census of the names in a stream while it is read; None = not needed."""
    _last_filter: RecordFilter | None = None
    """The filter of the last pass."""
    checks_links = True  # False if the set was verified as a whole

    def blocks(
        self,
        selection: Selection = Selection(),
        *,
        decode: str = "full",
        raw: bool = False,
        part: FilePart = WHOLE_FILE,
    ) -> Iterator[RecordBlock | FileFinding]:
        """Yield blocks of the selected records; damage between them is a `FileFinding`. part: for a log of one file."""
        options = PassOptions(_make_block_reader, decode, raw, checks_links=selection.tail is None)
        items = self._run_pass(selection, options, part)
        return items if selection.tail is None else take_last_records(items, selection.tail)

    def record_ranges(
        self, selection: Selection = Selection(), *, decode: str = "full", part: FilePart = WHOLE_FILE
    ) -> Iterator[RecordRange | RecordBlock | FileFinding]:
        """Yield record ranges instead of blocks, for files that are worth compiled code (`core.decode_batches`)."""
        if selection.tail is not None:
            return self.blocks(selection, decode=decode, part=part)
        return self._run_pass(selection, PassOptions(self._make_range_reader, decode), part)

    def statements(
        self, selection: Selection = Selection(), options: ScriptOptions = ScriptOptions()
    ) -> Iterator[RecordBlock | SqlFragment | ScriptText | FileFinding]:
        """Yield the selected records as an SQL script: blocks whose bodies are text, and text between them.

        With a condition (`Selection.where`), only the rows for which it is true are written.

        Raises:
            UsageError: the records of this format are not statements, the last ones are requested, or no table has a
                column that the condition names.
            RefusedError: for a flashback, the last transaction is incomplete.
        """
        if selection.tail is not None:
            raise UsageError("--tail cannot be combined with statements; give a position to start from")
        refuse_salvage(selection, "a script of statements")
        row_condition: RowCondition | None = None
        if selection.where is not None:
            from binlogtool.core.apply_where import make_row_condition

            row_condition = make_row_condition(selection.where)
            self._track_columns(selection.where)
            selection, options = replace(selection, where=None), row_condition.add_to_script_options(options)

        options = replace(
            options, is_partial=options.flashback and (row_condition is not None or can_miss_later_changes(selection))
        )
        if not self.is_stream:
            self._require_renamed_databases(options)
        is_complete = True
        start_script = partial(_start_script, options)
        for part in self._write_scripts(
            selection, self._make_fragment_writer, start_script, row_condition, reads_past_selection=options.is_partial
        ):
            is_complete = is_complete and not any(one.severity is Severity.ERROR for one in _iter_findings(part))
            yield part
        if row_condition is not None and is_complete and not row_condition.found:
            self.require_columns(row_condition.text)
        if self.is_stream and is_complete:
            _refuse_unseen_databases(options.rename_databases)

    def _require_renamed_databases(self, options: ScriptOptions) -> None:
        """Check that the log has each database that a script renames; read it until all were seen.

        Raises:
            UsageError: it lacks one; the script would change the database of that name on the server.
        """
        renames = options.rename_databases
        if not renames:
            return

        start_script = partial(_start_script, ScriptOptions(rename_databases=renames))
        with self.reopen() as log:
            for _ in log._write_scripts(Selection(), self._make_fragment_writer, start_script):
                if not renames.unseen:
                    return
        _refuse_unseen_databases(renames)

    def change_messages(
        self,
        selection: Selection,
        make_writer: Callable[[ChangeReader], ScriptWriter],
        *,
        part: FilePart = WHOLE_FILE,
    ) -> Iterator[SqlFragment | RecordBlock | ScriptText | FileFinding]:
        """Yield row changes as messages: blocks whose bodies are lines, lines of many records, and lines between them.

        Args:
            make_writer: creates the writer of the messages.

        Raises:
            UsageError: the format has no row changes, or a condition (`Selection.where`) is given.
        """
        refuse_salvage(selection, "change messages")
        refuse_where(selection, "change messages")

        def start_script(format_: Format) -> ScriptWriter:
            if format_.output.start_changes is None:
                raise UsageError(f"the records of {format_.name} have no row changes; --envelope cannot be used")
            return make_writer(format_.output.start_changes())

        yield from self._write_scripts(selection, self._make_fragment_writer, start_script, part=part)

    def _write_scripts(
        self,
        selection: Selection,
        make_reader: Callable[[LogFile], BatchReader[S]],
        start_script: Callable[[Format], ScriptWriter],
        row_condition: RowCondition | None = None,
        *,
        reads_past_selection: bool = False,
        part: FilePart = WHOLE_FILE,
    ) -> Iterator[S | RecordBlock | ScriptText | FileFinding]:
        """Yield the selected records as one text.

        Args:
            start_script: creates the writer of a format.
            reads_past_selection: see `PassOptions`.
        """
        scripts: dict[str, ScriptWriter] = {}

        def script_of(format_: Format) -> ScriptWriter:
            return scripts.get(format_.name) or scripts.setdefault(format_.name, start_script(format_))

        options = PassOptions(
            make_reader, script_of=script_of, row_condition=row_condition, reads_past_selection=reads_past_selection
        )
        later_changes: list[str] = []
        for item in self._run_pass(selection, options, part):
            yield item
            if isinstance(item, FileFinding) and item.finding.id == CHANGED_LATER:
                later_changes.append(item.finding.message)
            if isinstance(item, FileFinding) and item.finding.severity is Severity.ERROR:
                label = "wrong order" if item.finding.id in ORDER_IDS else "left out here"
                gap_text = f"{label}: {item.file}: {_format_range(item.finding)}{item.finding.message}"
                yield from (ScriptText(script.write_text_for_gap(gap_text)) for script in scripts.values())
            stop_findings = [script.stop_finding for script in scripts.values() if script.stop_finding is not None]
            yield from (FileFinding(item.file, found) for found in stop_findings if not isinstance(item, ScriptText))
            if stop_findings:
                break
        for script in scripts.values():
            yield ScriptText(script.finish(), ScriptSummary(script.row_changes, script.is_empty))
            findings = script.final_findings()
            yield from (FileFinding(self._plan[-1][0], found) for found in findings)
            later_changes += [found.message for found in findings if found.id == CHANGED_LATER]
        if later_changes:  # the last text of a flashback is its beginning
            yield ScriptText(b"".join(map(_format_later_change_comment, later_changes)))

    def table_rows(
        self,
        selection: Selection,
        *,
        part: FilePart = WHOLE_FILE,
        known_tables: Sequence[TableSchema] = (),
        is_selected: Callable[[TableSchema], bool] | None = None,
    ) -> Iterator[RecordBlock | FileFinding]:
        """Yield the table rows of the selected records: blocks whose bodies are `RecordTableRows`.

        Args:
            known_tables: table descriptions from other files.
            is_selected: whether the rows of a table are needed; others may be left out; None = all are needed.

        Raises:
            UsageError: the format has no tables, or salvaged records are requested.
        """
        return self._read_tables(selection, BlockDecoder.decode_batch, known_tables, is_selected, part)

    def require_columns(self, where: str) -> None:
        """Check that each column in a condition exists in some table of the log; for a condition that selected nothing.

        Reads the log again; a stream must have been read with this condition.

        Raises:
            UsageError: no table has the column.
        """
        from binlogtool.core.apply_where import ConditionColumnChecker

        if self.is_stream:
            tracker = self._column_tracker
        else:
            tracker = ConditionColumnChecker(where)
            with self.reopen() as log:
                for _ in log._run_pass(
                    Selection(), PassOptions(lambda _: tracker.read_table_definitions, checks_links=False)
                ):
                    if not tracker.missing_columns:
                        break
        if tracker is not None:
            tracker.require_columns_exist()

    def collect_names_in_next_pass(self, selection: Selection) -> None:
        """Prepare `find_unmatched_names` for this selection on a stream, before the next pass."""
        finder = UnmatchedNameFinder(selection, self._hints.schema)
        self._name_finder = finder if self.is_stream and finder.is_needed else None

    def find_unmatched_names(self, selection: Selection, selected_count: int) -> UnmatchedNames:
        """Return the names in the selection that this log lacks, and positions inside records, after a pass that
        selected `selected_count` records; the log is reread where needed.
        """
        finder, last_filter = UnmatchedNameFinder(selection, self._hints.schema), self._last_filter
        remarks = () if last_filter is None else last_filter.inside.values()
        whole = any(file.format.output.has_whole_seconds for file in self._opened_files[:1])
        inside = UnmatchedNames(absent=(*describe_rounded_time_bounds(selection, has_whole_seconds=whole), *remarks))
        if not finder.is_needed or (
            selected_count and last_filter is not None and (last_filter.is_done or not last_filter.has_unmatched_names)
        ):
            return inside
        unmatched = self._complete_unmatched_names(finder, is_empty=not selected_count)
        return replace(unmatched, absent=(*unmatched.absent, *inside.absent))

    def _complete_unmatched_names(self, finder: UnmatchedNameFinder, *, is_empty: bool) -> UnmatchedNames:
        if self.is_stream:
            return (
                UnmatchedNames() if (one := self._name_finder) is None else one.find_unmatched_names(is_empty=is_empty)
            )
        with self.reopen(replace(self._hints, objects=True)) as log:
            for _ in log._run_pass(
                Selection(), PassOptions(lambda _: finder.collect_names_as_batch_reader, checks_links=False)
            ):
                pass
        return finder.find_unmatched_names(is_empty=is_empty)

    def row_batches(
        self,
        selection: Selection,
        *,
        part: FilePart = WHOLE_FILE,
        known_tables: Sequence[TableSchema] = (),
        is_selected: Callable[[TableSchema], bool] | None = None,
        condition: Condition | None = None,
        cells: bool = True,
    ) -> Iterator[RowBatch | RecordBlock | FileFinding]:
        """Yield table rows as `table_rows` does, or as row batches of many records where compiled code can read them.

        condition: sets `RowBatch.row_marks`; it is not applied to the rows of blocks. cells: batches may hold cells.
        """
        from binlogtool.core.apply_where import CompiledRowCondition

        batch_reader = RowBatchReader(None if condition is None else CompiledRowCondition(condition)).read_batch
        return self._read_tables(selection, batch_reader, known_tables, is_selected, part, compiled=True, cells=cells)

    def _read_tables(
        self,
        selection: Selection,
        batch_reader: BatchReader[S],
        known_tables: Sequence[TableSchema],
        is_selected: Callable[[TableSchema], bool] | None,
        part: FilePart = WHOLE_FILE,
        *,
        compiled: bool = False,
        cells: bool = False,
    ) -> Iterator[S | RecordBlock | FileFinding]:
        """Run a pass with one table reader for each format; tell the readers where records may be missing."""
        refuse_salvage(selection, "table rows")
        readers: dict[str, TableReader] = {}

        def reader_of(format_: Format) -> TableReader:
            if format_.tables is None:
                raise UsageError(f"the records of {format_.name} have no tables; convert them without --object")
            if format_.name not in readers:
                rules, backend = format_.tables, backends.choose_backend(self._backend)
                make = rules.make_compiled_reader if compiled and backend.name == "native" else None
                readers[format_.name] = rules.make_reader() if make is None else make(backend.compile_kernel)
                readers[format_.name].add_known_tables(known_tables)
                if is_selected is not None:
                    readers[format_.name].limit_to_tables(is_selected)
                if not cells and isinstance(reader := readers[format_.name], CompiledTableReader):
                    reader.use_values_instead_of_cells()
            return readers[format_.name]

        for item in self._run_pass(selection, PassOptions(lambda _: batch_reader, reader_of=reader_of), part):
            yield item
            found = item.finding if isinstance(item, FileFinding) else None
            if found is not None and found.severity is Severity.ERROR and found.id not in SET_LINK_IDS:
                for reader in readers.values():
                    reader.note_missing_records()

    def event_groups(self, selection: Selection) -> Iterator[SelectedEventGroup | FileFinding]:
        """Yield the event groups of a server's log, in order; damage between them is yielded as `FileFinding`.

        Raises:
            UsageError: the records of a file are not events of such a log.
        """
        refuse_where(selection, "a log")
        record_filter = RecordFilter(selection)
        for file_selection, file in zip(self.limit_selection_to_files(selection), self._iter_files(), strict=False):
            record_filter.start_file(file_selection, file.size, file.format.output, file.layout.page_size)
            scan = self.make_scan(file, live=selection.live)
            yield from (FileFinding(file.path, found) for found in file.layout.findings)
            yield from read_event_groups(file.path, scan, record_filter, self._limits)
            yield from (FileFinding(file.path, found) for found in (file.find_change_since_open(),) if found)
            if reason := scan.incomplete or scan.over_limit:
                raise LimitError(f"{file.path}: {reason}")
            if record_filter.is_done:
                return

    def _track_columns(self, where: str | None) -> None:
        """Track the columns of a stream while it is read."""
        if where is not None and self.is_stream:
            from binlogtool.core.apply_where import ConditionColumnChecker

            self._column_tracker = ConditionColumnChecker(where)

    def _make_range_reader(self, _file: LogFile) -> BatchReader[RecordRange | RecordBlock]:
        return (
            BlockDecoder.select_ranges
            if backends.choose_backend(self._backend).name == "native"
            else BlockDecoder.decode_batch
        )

    def _compile_condition(self, decoder: BlockDecoder, record_filter: RecordFilter) -> CompiledCondition | None:
        if record_filter.where is None or backends.choose_backend(self._backend).name != "native":
            return None
        from binlogtool.core.apply_where import compile_condition_if_supported

        return compile_condition_if_supported(decoder, record_filter.where)

    def _make_fragment_writer(self, file: LogFile) -> BatchReader[SqlFragment | RecordBlock]:
        backend = backends.choose_backend(self._backend)
        return (
            SqlFragmentWriter(backend).write_batch
            if backend.name == "native" and file.layout.make_assembler is None
            else BlockDecoder.decode_batch
        )

    def _make_link_checker(self) -> LogSetContinuityChecker | None:
        hints = replace(self._hints, earlier=None, level=None, objects=False)
        reopen_file = lambda f: open_file(f.path, f.name, f.format, self._limits, hints=hints)  # noqa: E731
        return LogSetContinuityChecker(reopen_file, self.make_scan, self._limits) if self.checks_links else None

    def find_broken_links(self, selection: Selection) -> list[FileFinding]:
        """Return where the files of the log do not follow each other, for readers that read them one by one."""
        record_filter = RecordFilter(selection)
        links, findings = SelectedLinks(self._make_link_checker(), record_filter), list[FileFinding]()
        for file_selection, file in zip(self.limit_selection_to_files(selection), self._iter_files(), strict=False):
            record_filter.start_file(file_selection, file.size, file.format.output, file.layout.page_size)
            findings += links.find_selected_breaks_before(file, file_selection)
            findings += [] if is_empty_selection(file_selection) else links.mark_selected_and_take_breaks()
        return findings

    def _run_pass(
        self, selection: Selection, options: PassOptions[T], part: FilePart = WHOLE_FILE
    ) -> Iterator[T | RecordBlock | FileFinding]:
        reads_past = options.reads_past_selection
        record_filter = self._last_filter = RecordFilter(replace(selection, tail=None), limits=self._limits)
        self._track_columns(selection.where)
        file_selections, files = self.limit_selection_to_files(selection), self._iter_files()
        links = SelectedLinks(self._make_link_checker() if options.checks_links else None, record_filter)
        damage = UndecidedDamage(record_filter) if reads_past and selection.on_damage == "stop" else None
        later_selections = repeat(select_nothing(selection)) if reads_past else ()
        for number, file_selection in enumerate(chain(file_selections, later_selections)):
            try:
                file = next(files, None)
            except BinlogtoolError as error:
                if number < len(file_selections):
                    raise
                yield FileFinding(self._plan[number][0], _make_unread_finding(str(error)))
                return
            if file is None:
                decided = None if damage is None else damage.decide_deferred_damage(None)
                yield from _iter_decided_damage_findings(decided, links.has_selected)
                return
            is_after_selection = reads_past and (number >= len(file_selections) or record_filter.over)
            record_filter.start_file(file_selection, file.size, file.format.output, file.layout.page_size)
            for found in _iter_link_findings(links, file, file_selection, reads_past, is_after_selection):
                yield found
                if _ends_reading(selection, found):
                    return
            decoder = options.make_decoder(file, self._limits)
            record_filter.lines = self._compile_condition(decoder, record_filter)
            read_batch, marker = options.make_reader(file), UnprovenRecordDecoder(decoder, record_filter)
            if part.start is None:
                yield from (_make_file_finding(file.path, found, is_after_selection) for found in file.layout.findings)
            scanned = remove_position_bounds(selection) if reads_past else selection
            for scan in self._make_scans(file, scanned, part):
                is_salvaging = selection.on_damage == "salvage" and decoder.script is None
                scan.unproven_reader = UnprovenRecordReader(scan) if is_salvaging else None
                for segment in scan.iter_segments_and_salvaged():
                    if isinstance(segment, SalvagedRecords):
                        yield from marker.decode_salvaged(segment)
                        if record_filter.is_done:
                            return
                        continue
                    batch = segment.good_records if isinstance(segment, DamagedRange) else segment
                    if isinstance(segment, DamagedRange):
                        is_after_selection = is_after_selection or (reads_past and record_filter.over)
                        if not is_after_selection and record_filter.is_outside_positions(segment.start, segment.end):
                            reads_later = reads_past and links.has_selected
                            yield from _iter_unselected_damage(file.path, segment.findings, reads_later=reads_later)
                            continue
                        if damage is not None and batch is None and damage.defer_damage(file, segment, decoder.script):
                            continue
                        yield from (_make_file_finding(file.path, one, is_after_selection) for one in segment.findings)
                        if selection.on_damage == "stop" and segment.tail == "damaged":
                            return
                        if segment.framed_records is not None and (is_salvaging or options.decode == "header"):
                            yield from decode_good_and_bad_rows(segment, decoder, record_filter)
                            batch = None
                    if batch is not None:
                        decided = None if damage is None else damage.decide_damage_before_batch(file, batch)
                        for found in _iter_decided_damage_findings(decided, links.has_selected):
                            yield found
                            if _ends_reading(selection, found):
                                return
                        marker.forget_salvaged_state()
                        if self._column_tracker is not None:
                            self._column_tracker.collect_columns_of_batch(decoder, batch)
                        if self._name_finder is not None:
                            self._name_finder.collect_names_of_batch(decoder, batch)
                        for item in read_batch(decoder, batch, record_filter):
                            for found in links.mark_selected_and_take_breaks():
                                yield found
                                if _ends_reading(selection, found):
                                    return
                            yield item
                    if record_filter.is_done and not reads_past:
                        return
                if reason := scan.incomplete or scan.over_limit:
                    raise LimitError(f"{file.path}: {reason}")
            yield from (FileFinding(file.path, found) for found in (part.find_change_since_open(file),) if found)

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


def _refuse_unseen_databases(renames: DatabaseRenames) -> None:
    """Raise UsageError if a database to rename is not among those of the log."""
    for name in renames.unseen:
        known = join_names(sorted(renames.seen))
        suggestion = format_name_suggestions(name, renames.seen) or (f"; it has {known}" if known else "")
        raise UsageError(f"--rewrite {name}->{renames[name]}: the log has no database {name}{suggestion}")


def _ends_reading(selection: Selection, found: FileFinding) -> bool:
    """Return whether a pass ends at this finding."""
    return selection.on_damage == "stop" and found.finding.severity is Severity.ERROR


def _make_file_finding(path: str, item: Finding, is_after_selection: bool) -> FileFinding:
    """Create a finding for a file. is_after_selection: no selected record follows; only later changes are read."""
    return FileFinding(
        path, _make_unread_finding(item.message) if is_after_selection and item.severity is Severity.ERROR else item
    )


def _iter_unselected_damage(path: str, findings: Iterable[Finding], *, reads_later: bool) -> Iterator[FileFinding]:
    """Yield damage that has no selected record: as notes, or as ranges not checked for later changes."""
    for one in findings:
        if reads_later and one.severity is Severity.ERROR:
            yield FileFinding(path, _make_unread_finding(one.message))
        else:
            yield FileFinding(path, one.copy_with_severity(Severity.NOTE))


def _iter_link_findings(
    links: SelectedLinks, file: LogFile, file_selection: Selection, reads_past_selection: bool, is_after_selection: bool
) -> Iterator[FileFinding]:
    """Yield findings about the link to the previous file.

    reads_past_selection: the pass continues after its selection.
    """
    for one in links.find_selected_breaks_before(file, file_selection):
        yield _make_file_finding(one.file, one.finding, is_after_selection)
    if reads_past_selection:
        yield from (_make_file_finding(*one, is_after_selection=True) for one in links.unselected)


def _iter_decided_damage_findings(
    decided: tuple[bool, list[tuple[LogFile, Finding]]] | None, has_selected: bool
) -> Iterator[FileFinding]:
    """Yield the findings about damage of which it is known whether it concerns the selection."""
    is_selected, findings = decided or (True, [])
    for file, found in findings:
        if is_selected:
            yield FileFinding(file.path, found)
        else:
            yield from _iter_unselected_damage(file.path, (found,), reads_later=has_selected)


def _make_unread_finding(reason: str) -> Finding:
    text = f"from here on, later changes of the selected rows were not checked: {reason}"
    return make_finding(CHANGED_LATER, None, 0, text)


def _format_later_change_comment(text: str) -> bytes:
    """Return a text as a comment of one line for a client."""
    printable = "".join(one if one.isprintable() else "?" for one in f"{CHANGED_LATER}: {text}")
    return f"# {printable}\n".encode("ascii", "backslashreplace")


def _iter_findings(part: RecordBlock | SqlFragment | ScriptText | FileFinding) -> Iterator[Finding]:
    """Yield the findings of one item."""
    if isinstance(part, FileFinding):
        yield part.finding
    elif isinstance(part, RecordBlock):
        yield from chain.from_iterable(part.findings.values())


def _format_range(item: Finding) -> str:
    """Return the byte range of a finding as text for a message."""
    return "" if item.offset is None or not item.length else f"bytes {item.offset:,} to {item.offset + item.length:,}: "


def take_last_records(items: Iterator[RecordBlock | T], count: int) -> Iterator[RecordBlock | T]:
    """Yield the last `count` records, each as its own block; findings are passed on at once."""
    last_records: deque[tuple[RecordBlock, int]] = deque(maxlen=count)
    for block in items:
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
        raise UnknownFormatError("no log file was given")
    log = log_class(files, read_options.limits, read_options.backend, read_options.hints or Hints())
    try:
        log.open_first()
    except BaseException:
        log.close()
        raise
    return log
