"""Write records, typed rows or change messages as tables.

Columns of a table can appear in any part of a log, so each task spools rows with the columns that it knows. The driver
merges what the tasks know of tables, and other tasks write the files; records always have the same columns, so their
spooled files are those of the output. A task reads pieces of files from points where no transaction is open; what the
log says before them comes from one pass over its definitions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.divide_file import WHOLE_FILE, FilePart
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_and_selection_types import FileFinding, Selection
from binlogtool.errors import name_os_errors
from binlogtool.export import task_planning
from binlogtool.export.atomic_output import TABLES_FILE
from binlogtool.export.incremental_positions import KnownTable, has_later_file_with_records, is_damage
from binlogtool.export.manifest import (
    FindingTally,
    Manifest,
    ManifestCheck,
    ManifestInput,
    ManifestOutput,
    ReadRequest,
    TaskFile,
    TaskPiece,
    piece_size,
)
from binlogtool.export.output_options import TableFileOptions, TypedRowOptions, is_part_selected
from binlogtool.export.read_rows_of_one_file import iter_tables, read_definitions, select_tables_before_piece
from binlogtool.export.records_to_arrow import DAMAGE
from binlogtool.export.run_tasks import TaskRunner
from binlogtool.export.table_router import RouterSummary, TableRouter
from binlogtool.export.table_spool import (
    FileLayout,
    FindingCounter,
    SpooledDefinitions,
    SpooledTable,
    SpoolSettings,
    TableSpool,
    TableSpools,
)
from binlogtool.export.task_planning import TASKS_FOLDER, TableJob, TaskLimits, new_task_folder
from binlogtool.export.typed_columns import (
    TableEvolution,
    TableLayout,
    find_common_wider_type,
    read_older_table_definitions,
    table_rules,
)
from binlogtool.export.write_spooled_rows_to_table_files import (
    FinishedFile,
    FinishTask,
    TableDirectories,
    TableFinisher,
    publish_files,
)
from binlogtool.findings import SET_LINK_IDS
from binlogtool.format_api.format import Hints
from binlogtool.format_api.row_output_interfaces import TableSchema

# --- What one task reads ---


class SpoolTask(msgspec.Struct, frozen=True, kw_only=True):
    """Pieces that one task reads, in order.

    number: its place among the tasks. is_whole_log: they are all files, which are read as one log. known: the tables of
    the log before the task. known_tables: for each piece, the tables that other records describe before it.
    reported_tables: see `Hints`.
    """

    number: int
    pieces: tuple[TaskPiece, ...]
    is_whole_log: bool = False
    known: tuple[KnownTable, ...] = ()
    reported_tables: tuple[str, ...] = ()
    known_tables: tuple[tuple[TableSchema, ...], ...] = ()

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return sum(map(piece_size, self.pieces))


def join_tasks(tasks: Sequence[SpoolTask]) -> SpoolTask:
    """Merge several consecutive tasks into one."""
    pieces = join_pieces([piece for task in tasks for piece in task.pieces])
    known_tables = dict[str, tuple[TableSchema, ...]]()
    for task in reversed(tasks):
        known_tables |= {one.member.path: known for one, known in zip(task.pieces, task.known_tables, strict=True)}
    return replace(tasks[0], pieces=pieces, known_tables=tuple(known_tables[one.member.path] for one in pieces))


class OpenedPart(NamedTuple):
    """A part of a log that is open, and how to read it. known_tables: described by records before it."""

    log: LogReader
    selection: Selection
    part: FilePart
    known_tables: Sequence[TableSchema]


class TaskReader(msgspec.Struct, frozen=True):
    """Opens what a task reads. folder: for its files."""

    task: SpoolTask
    request: ReadRequest
    shape: TableFileOptions
    folder: Path
    limits: TaskLimits

    def open_parts(self) -> Iterator[OpenedPart]:
        """Yield the parts of the task, one after the other.

        Raises:
            InputOutputError: a file cannot be read.
        """
        request, task = self.request, self.task
        if task.is_whole_log:
            members = request.members
            older = read_older_table_definitions([(one.path, one.format) for one in members], request.read_options())
            with self._open_log(members, request) as log:
                log.open_first()
                yield OpenedPart(log, request.selection, WHOLE_FILE, older)
            return
        for piece, known_tables in zip(task.pieces, task.known_tables, strict=True):
            member = piece.member
            with self._open_log((member,), request.for_member(member)) as log:
                yield OpenedPart(log, member.selection or request.selection, piece.part, known_tables)

    def _open_log(self, members: Sequence[TaskFile], request: ReadRequest) -> LogReader:
        files = [(one.name, one.name, open_file_module.find_format(one.format)) for one in members]
        return LogReader([*files], request.limits, request.backend, request.hints or Hints())

    def is_damage(self, trouble: FileFinding) -> bool:
        """Return True if a finding means that bytes could not be read as they should be."""
        member = next(one for one in self.request.members if one.name == trouble.file)
        closed = partial(has_later_file_with_records, member, self.request.members, self.request.open_member)
        return is_damage(trouble.finding, closed)

    def make_progress(self) -> Callable[[str, int, int], None]:
        """Return the function that receives a file, the end of what was read of it, and the number of rows so far.

        It raises LimitError after the deadline.
        """
        before, done = dict[str, int](), 0
        for piece in self.task.pieces:
            before[piece.member.name] = done - (0 if piece.part.start is None else piece.part.start.offset)
            done += piece_size(piece)
        return lambda file, end, rows: self.limits.check_deadline_and_report(before[file] + end, rows)


class SpoolResult(msgspec.Struct):
    """Result of a task. outcome: of its kind of rows."""

    tables: list[SpooledTable]
    finding_tally: FindingTally
    outcome: Any


class RowKind(msgspec.Struct, frozen=True):
    """A kind of rows of tables: records, typed rows, or change messages."""

    @property
    def per_table(self) -> bool:
        """True if each table has its own directory."""
        return False

    @property
    def needs_definitions(self) -> bool:
        """False if all rows have the same columns, whatever earlier files say of tables."""
        return True

    @property
    def needs_record_numbers(self) -> bool:
        """True if rows are selected by record number; the log is then read by one task."""
        return False

    def make_layout(self, evolution: TableEvolution) -> FileLayout:
        """Return the layout of the files of a table with these columns."""
        raise NotImplementedError

    def make_settings(
        self,
        shape: TableFileOptions,
        request: ReadRequest,
        pool: ThreadPoolExecutor | None,
        file_size: int | None = None,
    ) -> SpoolSettings:
        """Return the settings of spools for an output; without definitions, their files are those of the output."""
        options = shape.spool_options if self.needs_definitions else shape
        return SpoolSettings(self.make_layout, options, pool, request.limits.max_memory, file_size)

    def spool_rows(self, reader: TaskReader, pool: ThreadPoolExecutor) -> SpoolResult:
        """Read the pieces of one task and write their rows to the spool."""
        raise NotImplementedError

    def find_undecodable_tables(self, outcome: Any) -> set[str]:
        """Return the tables whose records this task could not decode because their definitions are only in earlier
        tasks.
        """
        return set()

    def is_transaction_split_between(self, first: Any, second: Any) -> bool:
        """Return True if a transaction continues from one task in the next; both must then be one task."""
        return False

    def check_named_tables_exist(self, result: SpoolResult, table_names: Collection[str], request: ReadRequest) -> None:
        """Check the merged result of all tasks, and their tables. Raises UsageError: the options name others."""

    def merge_outcomes(self, outcomes: Sequence[Any]) -> Any:
        """Return the outcome of all tasks."""
        raise NotImplementedError

    def merge_results(self, results: Sequence[SpoolResult]) -> SpoolResult:
        """Return the findings and the outcome of all tasks."""
        merged = SpoolResult([], FindingTally(), self.merge_outcomes([one.outcome for one in results]))
        for one in results:
            merged.finding_tally.merge(one.finding_tally)
        return merged

    def get_finished_files(self, outcome: Any) -> list[FinishedFile] | None:
        """Return the files of the output if the tasks wrote them; None = they are made of the spool."""
        return None

    def complete_manifest(self, manifest: Manifest, result: SpoolResult) -> Manifest:
        """Add the facts that only this kind of rows has."""
        raise NotImplementedError


class TableSpooler(msgspec.Struct, frozen=True):
    """Carries out spool tasks. stage: absolute path of the output."""

    request: ReadRequest
    kind: RowKind
    shape: TableFileOptions
    stage: str
    limits: TaskLimits

    def execute(self, task: SpoolTask) -> SpoolResult:
        """Spool the rows of a task.

        Raises:
            UsageError: a format has no tables.
            InputOutputError, LimitError.
        """
        folder = new_task_folder(self.stage, task.number)
        request = (
            self.request.with_hints(reported_tables=task.reported_tables) if task.reported_tables else self.request
        )
        reader = TaskReader(task, request, self.shape, folder, self.limits)
        with name_os_errors(self.stage, "cannot be written", by_file=True), ThreadPoolExecutor(1) as pool:
            return self.kind.spool_rows(reader, pool)


# --- Typed rows ---


class TypedRows(RowKind, frozen=True):
    """Typed rows of tables. operations: a change can be a key and operations, without images."""

    options: TypedRowOptions
    operations: bool

    @property
    def per_table(self) -> bool:
        """True if each table has its own directory."""
        return self.options.per_table

    @property
    def needs_record_numbers(self) -> bool:
        """True if rows are counted."""
        return bool(self.options.skip) or self.options.limit is not None

    def make_layout(self, evolution: TableEvolution) -> TableLayout:
        """Return the layout of the files of a table."""
        return TableLayout(evolution.fields, evolution.key, self.options.image, operations=self.operations)

    def spool_rows(self, reader: TaskReader, pool: ThreadPoolExecutor) -> SpoolResult:
        """Read what a task reads, and spool its rows."""
        known = reader.task.known
        settings = self.make_settings(reader.shape, reader.request, pool)
        tables = TableSpools[TableSpool](reader.folder, settings, known)
        router = TableRouter(self.options, tables, reader.request.limits, known=[one.name for one in known])
        self.route_task_rows(reader, router, tables)
        return SpoolResult(tables.finish(), tables.finding_tally, router.summary)

    def route_task_rows(self, reader: TaskReader, router: TableRouter, finding_counter: FindingCounter) -> None:
        """Route the rows of what a task reads. finding_counter: receive the findings."""
        report = reader.make_progress()

        def on_finding(item: FileFinding) -> bool:
            if item.finding.id in SET_LINK_IDS:  # the conversion reports it, whatever a task reads
                return False
            return finding_counter.count_finding_and_return_damage(item, damage=reader.is_damage(item))

        for log, selection, part, known_tables in reader.open_parts():
            for file, end in router.route_log(log, selection, known_tables, part, on_finding):
                report(file, end, router.summary.rows_by_file.total())
            if router.is_full or finding_counter.finding_tally.stops_conversion(selection):
                break
        router.flush()

    def find_undecodable_tables(self, outcome: RouterSummary) -> set[str]:
        """Return the tables without rows so far whose records could not be decoded."""
        return outcome.unplaced if self.per_table else set()

    def is_transaction_split_between(self, first: RouterSummary, second: RouterSummary) -> bool:
        """Return True if the last row of the first task belongs to a transaction that the second one ends."""
        return first.is_open and second.ends_earlier

    def merge_outcomes(self, outcomes: Sequence[RouterSummary]) -> RouterSummary:
        """Return the summary of the log."""
        summary = RouterSummary()
        for one, following in zip(outcomes, (*outcomes[1:], None), strict=True):
            summary.merge(one)
            if following is None or not one.is_continued_by(following):
                summary.add_unfinished(one.open_transaction)
        return summary

    def _add_unselected_tables(self, outcome: RouterSummary, request: ReadRequest) -> None:
        """Add the tables that the log has only outside the selection, if one that the options name is missing."""
        if any(outcome.find_missing(self.options)):
            for member in request.members:
                if not member.trouble and table_rules(member.path, member.format) is not None:
                    with request.open_member(member) as log:
                        outcome.seen.update((table.name, table) for table in iter_tables(log, Selection()))

    def check_named_tables_exist(self, result: SpoolResult, table_names: Collection[str], request: ReadRequest) -> None:
        """Check that the tables and columns that the options name exist. Raises UsageError: one does not."""
        if is_part_selected(request.selection):
            self._add_unselected_tables(result.outcome, request)
        result.outcome.check_tables_exist(self.options)
        if self.options.objects and not table_names:
            result.outcome.add_remark(f"the selection contains no row of {', '.join(self.options.objects)}")
        if not result.finding_tally.counts:
            result.outcome.check_columns_exist(self.options)

    def complete_manifest(self, manifest: Manifest, result: SpoolResult) -> Manifest:
        """Add the rows of each input, and what the log says about tables."""
        summary: RouterSummary = result.outcome
        inputs = tuple(replace(i, records=summary.rows_by_file[i.path]) for i in manifest.inputs)
        return replace(manifest, inputs=inputs, details={**manifest.details, **summary.describe()})


# --- Tables of all tasks ---


class MergedTable:
    """A table of the output: the rows that all tasks spooled for it, in the order of the log."""

    def __init__(self, name: str) -> None:
        self.name, self.history, self.spooled = name, SpooledDefinitions(), list[SpooledTable]()

    def can_convert_exactly(self, spooled_table: SpooledTable, row_kind: RowKind) -> bool:
        """Return True if the rows of a task can be converted exactly to the columns of the table so far."""
        if not self.history.evolution.kinds or not spooled_table.definitions:
            return True
        history = SpooledDefinitions(self.history.to_known(self.name))
        for table, place in spooled_table.definitions:
            history.add_definition(table, place)
        local, merged = TableEvolution(), history.evolution
        local.kinds.update(spooled_table.kinds)
        names, merged_names = (
            dict(
                zip(evolution.kinds, [c["name"] for c in row_kind.make_layout(evolution).column_types()], strict=False)
            )
            for evolution in (local, merged)
        )
        columns = {(column.name, column.type) for table, _ in spooled_table.definitions for column in table.columns}
        return (
            all(_can_widen(type_, merged.kinds[name]) for name, type_ in local.kinds.items())
            and all(find_common_wider_type(type_, merged.kinds[name]) == merged.kinds[name] for name, type_ in columns)
            and all(names.get(name) == merged_names.get(name) for name in local.kinds)
            and bool(spooled_table.definitions[0][0].key or not merged.key)
        )

    def add(self, one: SpooledTable) -> None:
        """Add the rows that the next task spooled.

        Raises:
            UsageError: it is of another table.
        """
        for table, place in one.definitions:
            self.history.add_definition(table, place)
        self.spooled.append(one)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(one.rows for one in self.spooled)


def _can_widen(kind: str, wider: str) -> bool:
    """Return True if values of one type are the same values in a wider one; of a text that depends on the way."""
    return kind == wider or (wider != "string" and find_common_wider_type(kind, wider) == wider)


class EarlierTables(NamedTuple):
    """Tables of the log before the part of a task: those known there, and those already reported; see `SpoolTask`."""

    known: tuple[KnownTable, ...]
    reported_tables: tuple[str, ...]


def merge_tables_and_find_repeats(
    results: Sequence[SpoolResult], row_kind: RowKind
) -> tuple[dict[str, MergedTable], dict[int, EarlierTables]]:
    """Return the tables of all results; and for each result that must be repeated, by number, the tables to know.

    Tables are in the order in which they appeared; rows without a table come last.
    """
    tables, repeated, reported = dict[str, MergedTable](), dict[int, EarlierTables](), set[str]()
    for number, result in enumerate(results):
        known = tuple(one.history.to_known(one.name) for one in tables.values())
        keys = [one.name if row_kind.per_table else "" for one in result.tables]
        pairs = [(tables.get(key), one) for key, one in zip(keys, result.tables, strict=True)]
        is_misplaced = not row_kind.find_undecodable_tables(result.outcome).isdisjoint(tables)
        is_repeating = not result.finding_tally.diverging_tables.isdisjoint(reported)
        is_consistent = all(table is None or table.can_convert_exactly(one, row_kind) for table, one in pairs)
        if is_misplaced or is_repeating or not is_consistent:
            repeated[number] = EarlierTables(known, tuple(sorted(reported)))
        reported |= result.finding_tally.diverging_tables
        for key, one in zip(keys, result.tables, strict=True):
            tables.setdefault(key, MergedTable(one.name)).add(one)
    if DAMAGE in tables:
        tables[DAMAGE] = tables.pop(DAMAGE)
    return tables, repeated


# --- The job ---

SCHEMA = "binlogtool/tables/1"


class RowTableJob(TableJob, frozen=True, kw_only=True):
    """One conversion to tables of one kind of rows."""

    kind: RowKind

    def write(self, inputs: list[ManifestInput], stage: Path) -> Manifest:
        """Write a directory at `stage`.

        Raises:
            UsageError: a format has no tables, or no table matches the selection.
            InputOutputError, LimitError.
        """
        with self.open_job_runner(inputs) as (runner, limits):
            request, inputs, tasks = self._plan_spool_tasks(runner, inputs)
            stage.mkdir()
            spooler = TableSpooler(request, self.kind, self.shape, str(stage.absolute()), limits)
            results = self._run_spool_tasks_until_consistent(runner, spooler, tasks)
            tables, _ = merge_tables_and_find_repeats(results, self.kind)
            result = self.kind.merge_results(results)
            if result.finding_tally.stops_conversion(request.selection):
                return self._build_manifest(inputs, result, {}, {}, runner)
            self.kind.check_named_tables_exist(result, tables, request)
            outputs = self._write_final_files(runner, tables, stage, self.kind.get_finished_files(result.outcome))
            return self._build_manifest(inputs, result, tables, outputs, runner)

    def _run_spool_tasks_until_consistent(
        self, runner: TaskRunner, spooler: TableSpooler, tasks: list[SpoolTask]
    ) -> list[SpoolResult]:
        """Run the tasks; repeat a task that turns out to depend on earlier ones, with the tables that they found."""
        results = runner.run_tasks("converting", tasks, spooler.execute)
        while cuts := [
            n
            for n in range(1, len(tasks))
            if self.kind.is_transaction_split_between(results[n - 1].outcome, results[n].outcome)
        ]:
            starts = [n for n in range(len(tasks)) if n not in cuts]
            tasks, old_results = [join_tasks(tasks[a:b]) for a, b in pairwise([*starts, len(tasks)])], results
            again = [n for n, (a, b) in enumerate(pairwise([*starts, len(old_results)])) if b - a > 1]
            results = [old_results[start] for start in starts]
            for n, result in zip(
                again, runner.run_tasks("converting", [tasks[n] for n in again], spooler.execute), strict=True
            ):
                results[n] = result
        _, known = merge_tables_and_find_repeats(results, self.kind)
        if not known:
            return results
        again_known = [replace(tasks[n], **before._asdict()) for n, before in known.items()]
        for n, result in zip(known, runner.run_tasks("converting", again_known, spooler.execute), strict=True):
            results[n] = result
        return results

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _plan_spool_tasks(
        self, runner: TaskRunner, inputs: list[ManifestInput]
    ) -> tuple[ReadRequest, list[ManifestInput], list[SpoolTask]]:
        """Return the request, the inputs with their hashes, and the spool tasks: one for the whole log, or one per
        group of pieces.
        """
        size, parallel = sum(i.size for i in inputs), runner.parallel_task_count
        task_count = self.shape.estimate_file_count(size, parallel)
        if not self.kind.needs_definitions:
            request, inputs, shares = self.plan_tasks(runner, inputs, task_count if parallel > 1 else 1)
            return request, inputs, [SpoolTask(number=n, pieces=pieces) for n, pieces in enumerate(shares)]
        task_count = max(task_count, min(parallel, ceil(size / task_planning.MIN_SPLIT_SIZE)))
        if parallel == 1 or self.kind.needs_record_numbers or task_count == 1:
            request = self.build_request(self.build_members(inputs))
            pieces = tuple(map(TaskPiece, request.members))
            return request, inputs, [SpoolTask(number=0, pieces=pieces, is_whole_log=True)]
        request, inputs, shares = self.plan_tasks(runner, inputs, task_count)
        definitions, shares = read_definitions(request), list(filter(None, map(join_pieces, shares)))
        known_tables = [
            tuple(select_tables_before_piece(definitions, request, piece) for piece in pieces) for pieces in shares
        ]
        return (
            request,
            inputs,
            [
                SpoolTask(number=n, pieces=pieces, known_tables=known)
                for n, (pieces, known) in enumerate(zip(shares, known_tables, strict=True))
            ],
        )

    def _write_final_files(
        self, runner: TaskRunner, tables: dict[str, MergedTable], output_folder: Path, files: list[FinishedFile] | None
    ) -> dict[str, list[ManifestOutput]]:
        """Write and publish the files of all tables; return them by table, relative to the output.

        files: those of the only table; None = they are not written yet.
        """
        finished = {key: files or [] for key in tables}
        if files is None:
            finished = self._finish_spooled(runner, tables, output_folder)
        outputs, directories = dict[str, list[ManifestOutput]](), self._directories(tables)
        for key, files in finished.items():
            published = publish_files(files, output_folder / directories[key])
            outputs[key] = [replace(one, path=str(Path(directories[key], one.path))) for one in published]
        shutil.rmtree(output_folder / TASKS_FOLDER, ignore_errors=True)
        if self.kind.per_table:
            text = json.dumps({"schema": SCHEMA, "tables": self._describe_tables(tables)}, indent=2)
            (output_folder / TABLES_FILE).write_text(text + "\n")
        (output_folder / "_SUCCESS").touch()
        return outputs

    def _finish_spooled(
        self, runner: TaskRunner, tables: dict[str, MergedTable], stage: Path
    ) -> dict[str, list[FinishedFile]]:
        schemas = {key: self.kind.make_layout(table.history.evolution).schema for key, table in tables.items()}
        parts = [(key, one) for key, table in tables.items() for one in table.spooled]
        tasks = [FinishTask(number, one, schemas[key]) for number, (key, one) in enumerate(parts)]
        finisher = TableFinisher(self.shape, str(stage.absolute()), self.request.limits.max_memory)
        finished = {key: list[FinishedFile]() for key in tables}
        for (key, _), files in zip(parts, runner.run_tasks("writing", tasks, finisher.execute), strict=True):
            finished[key] += files
        return finished

    def _directories(self, tables: dict[str, MergedTable]) -> dict[str, str]:
        """Return the directory of each table in the output."""
        directories = TableDirectories()
        return {
            key: directories.get_table_directory(table.name) if self.kind.per_table else "."
            for key, table in tables.items()
        }

    # -- the manifest --------------------------------------------------------------------------------------------------

    def _describe_tables(self, tables: dict[str, MergedTable]) -> list[dict[str, Any]]:
        directories = self._directories(tables)
        return [
            table.history.describe(
                table.name, directories[key], table.rows,
                self.kind.make_layout(table.history.evolution).column_types(),
            )
            for key, table in tables.items()
        ]  # fmt: skip

    def _build_manifest(
        self, inputs: list[ManifestInput], result: SpoolResult, tables: dict[str, MergedTable],
        outputs: dict[str, list[ManifestOutput]], runner: TaskRunner,
    ) -> Manifest:  # fmt: skip
        """Build the manifest. outputs: of a complete conversion."""
        tally, rows, selection = result.finding_tally, sum(t.rows for t in tables.values()), self.request.selection
        all_outputs = tuple(one for files in outputs.values() for one in files)
        details: dict[str, Any] = {"spark": spark} if (spark := runner.describe()) else {}
        checks = tuple[ManifestCheck, ...]()
        if not tally.stops_conversion(selection):
            details, checks = {"tables": self._describe_tables(tables), **details}, build_checks(rows, all_outputs)
        manifest = tally.build_manifest(
            selection, inputs=tuple(inputs), outputs=all_outputs, rows=rows, damage=tally.damage_rows, checks=checks,
            details=details,
        )  # fmt: skip
        return self.kind.complete_manifest(manifest, result)


def build_checks(row_count: int, outputs: Sequence[ManifestOutput]) -> tuple[ManifestCheck, ...]:
    """Return the checks of an output. row_count: number of rows."""
    counts = f"decoded: {row_count:,}; counted in the output: {sum(one.rows for one in outputs):,}"
    texts = "the bytes of all decoded texts, counted in the output"
    return ManifestCheck("rows-in-equal-rows-out", counts), ManifestCheck("texts-in-equal-texts-out", texts)


# --- Pieces of tasks ---


def join_pieces(pieces: Sequence[TaskPiece]) -> tuple[TaskPiece, ...]:
    """Return the pieces with adjacent parts of a file joined, without files after the last selected position."""
    joined = list[TaskPiece]()
    for piece in pieces:
        if piece.member.selection is not None and piece.member.selection.stop == "0":
            continue
        if joined and joined[-1].member == piece.member:
            piece = TaskPiece(piece.member, FilePart(joined.pop().part.start, piece.part.end))
        joined.append(piece)
    return tuple(joined)


def create_typed_row_kind(options: TypedRowOptions, files: Iterable[tuple[str, str]]) -> TypedRows:
    """Return the kind of rows for these (path, format) pairs."""
    rules = [table_rules(path, format_) for path, format_ in files]
    return TypedRows(options, any(one is not None and one.operations for one in rules))
