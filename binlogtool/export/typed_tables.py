"""Export typed tables: one directory of files for each table of a log.

The spool is Parquet, with the columns known at that time. If these are the final ones, the format is Parquet, and there
are no partitions, the spool file becomes the output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as compute
from msgspec.structs import replace

from binlogtool import limits
from binlogtool import limits as limits_module
from binlogtool.core import open_file as open_file_module
from binlogtool.core.json_text import finding_to_value
from binlogtool.core.open_log import LogReader, open_log
from binlogtool.core.record_selection import FileFinding, ReadOptions, RowBatch, Selection, add_selection_hints
from binlogtool.errors import InputOutputError
from binlogtool.export import table_files
from binlogtool.export.atomic_output import TABLES_FILE
from binlogtool.export.incremental import KnownTable, is_closed, is_damage
from binlogtool.export.manifest import (
    MAX_LISTED_FINDINGS,
    FindingTally,
    Manifest,
    ManifestCheck,
    ManifestInput,
    ManifestOutput,
    ProgressCallback,
    ProgressStep,
    TaskFile,
    absolute_path,
)
from binlogtool.export.output_options import TableFileOptions, TypedRowOptions, typed_selection
from binlogtool.export.table_files import ParquetTableFile, TableFileSink
from binlogtool.export.table_router import TableDirectories, TableRouter
from binlogtool.export.typed_columns import TableBatch, TableEvolution, TableLayout, read_older_tables, table_rules
from binlogtool.findings import Finding
from binlogtool.format_api.format import Hints
from binlogtool.format_api.tables_and_changes import TableSchema
from binlogtool.limits import Limits

# --- Output of one table ---

_MAX_GROUP_ROWS, _MAX_GROUP_BYTES, _GROUP_MEMORY_DIVISOR = 1 << 16, 32 << 20, 16
"""Limits of a group of rows that is written at once: rows, bytes, fraction of the memory limit."""
_WRITE_MEMORY_FACTOR = 2
"""Memory for writing a group to the spool, as a multiple of its size."""
_MAX_QUEUED_GROUPS = 1
"""Maximum number of groups that wait to be written; none if they are large."""
_ARRAY_BYTES = 512
"""Memory of an Arrow array in addition to its values."""
_MAX_OPEN_SPOOLS = 64
_SPOOL_FOLDER = ".aside"
GENERATION = "generation"
GENERATION_FIELD = pa.field(GENERATION, pa.int64())
"""Column of `--append`: the number of earlier files with the same name."""


class FileLayout(Protocol):
    """Columns of the files of a table (`evolution.TableLayout`)."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the files."""

    def to_table(self, table_batch: TableBatch) -> pa.Table:
        """Convert a batch to this layout."""

    def column_types(self) -> list[dict[str, str]]:
        """Return the table's columns with their Spark SQL types."""


class GenerationLayout:
    """A layout with a last column `generation`, and its value."""

    def __init__(self, layout: TableLayout, generation: int) -> None:
        self._layout, self._generation = layout, generation
        names = [f"{name}_" if name == GENERATION else name for name in layout.schema.names]
        self.schema = pa.schema(
            [*(field.with_name(name) for field, name in zip(layout.schema, names, strict=True)), GENERATION_FIELD]
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GenerationLayout) and self.schema.equals(other.schema)

    __hash__ = None  # type: ignore[assignment]

    def to_table(self, table_batch: TableBatch) -> pa.Table:
        """Convert a batch to this layout."""
        table = self._layout.to_table(table_batch)
        column = pa.repeat(pa.scalar(self._generation, pa.int64()), table.num_rows)
        return pa.Table.from_arrays([*table.columns, column], schema=self.schema)

    def column_types(self) -> list[dict[str, str]]:
        """Return the table's columns with their Spark SQL types."""
        return self._layout.column_types()


class TableOutput:
    """Output of one table.

    folder: where its files go. pool: writes in the background, one group after the other. max_memory: bytes that the
    job may use. generation: value of the column `generation` of the next rows; None = there is no such column.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        file_options: TableFileOptions,
        options: TypedRowOptions,
        pool: ThreadPoolExecutor,
        max_memory: int,
        *,
        operations: bool,
        generation: int | None = None,
    ) -> None:
        self.name, self.folder, self.rows, self.text_bytes = name, folder, 0, 0
        self.changes: list[str] = []
        self.evolution, self.generation = TableEvolution(), None if generation is None else int(generation)
        self._file_options, self._options, self._operations = file_options, options, operations
        self._pending, self._pending_rows, self._pending_bytes = list[TableBatch](), 0, 0
        self._pool, self._queued_writes, self._max_memory = pool, list[Future[None]](), max_memory
        self._max_group_bytes = min(_MAX_GROUP_BYTES, max_memory // _GROUP_MEMORY_DIVISOR)
        self._spool_paths: list[Path] = []
        self._open_spool: tuple[FileLayout, bool, ParquetTableFile] | None = None
        self._outputs: list[ManifestOutput] = []

    @property
    def layout(self) -> FileLayout:
        """Layout of the rows, as far as the columns are known now."""
        layout = TableLayout(
            self.evolution.fields, self.evolution.key, self._options.image, operations=self._operations
        )
        return layout if self.generation is None else GenerationLayout(layout, self.generation)

    def set_table(self, table: TableSchema, place: str) -> None:
        """Set the definition that is valid from here on; the first MAX_LISTED_FINDINGS changes are recorded."""
        self.changes += [f"{place}: {one}" for one in self.evolution.add_definition(table)][
            : MAX_LISTED_FINDINGS - len(self.changes)
        ]

    def to_dict(self, directory: str) -> dict[str, Any]:
        """Return the description of the table for the manifest. directory: its directory."""
        return {
            "name": self.name,
            "directory": directory,
            "rows": self.rows,
            "columns": self.layout.column_types(),
            "key": list(self.evolution.key),
            "changes": self.changes,
        }

    def add_batch(self, table_batch: TableBatch) -> None:
        """Add rows."""
        self._pending.append(table_batch)
        self._pending_rows += table_batch.batch.num_rows
        self._pending_bytes += table_batch.batch.nbytes + _ARRAY_BYTES * table_batch.array_count
        self.rows += table_batch.batch.num_rows
        if self._pending_rows >= _MAX_GROUP_ROWS or self._pending_bytes >= self._max_group_bytes:
            self.spool_pending()

    @property
    def pending_bytes(self) -> int:
        """Bytes of the rows in memory."""
        return self._pending_bytes

    @property
    def has_open_spool(self) -> bool:
        """True if a spool file is open, or will be by a queued write."""
        return self._open_spool is not None or bool(self._queued_writes)

    def spool_pending(self) -> None:
        """Write the pending rows to the spool in the background."""
        if not self._pending:
            return
        is_large = self._pending_bytes >= 2 * self._max_group_bytes
        self._wait_for_writes(0 if is_large else _MAX_QUEUED_GROUPS)
        self._queued_writes.append(self._pool.submit(self._write_spool, self._pending, self.layout))
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        if is_large:
            self._wait_for_writes()

    def _wait_for_writes(self, max_queued: int = 0) -> None:
        """Wait until at most `max_queued` groups are still to be written."""
        while len(self._queued_writes) > max_queued:
            self._queued_writes.pop(0).result()

    def _write_spool(self, pieces: list[TableBatch], layout: FileLayout) -> None:
        size = sum(piece.batch.nbytes for piece in pieces)
        limits.require_bytes(_WRITE_MEMORY_FACTOR * size)
        table, is_large = pa.concat_tables([layout.to_table(piece) for piece in pieces]), size >= 2 * _MAX_GROUP_BYTES
        if self._open_spool is None or self._open_spool[:2] != (layout, is_large):
            self._close_spool_file()
            (self.folder / _SPOOL_FOLDER).mkdir(parents=True, exist_ok=True)
            path = self.folder / _SPOOL_FOLDER / f"{len(self._spool_paths)}.parquet"
            self._spool_paths.append(path)
            codec = self._file_options.codec if self._file_options.to == "parquet" else "zstd"
            self._open_spool = layout, is_large, ParquetTableFile(path, layout.schema, codec, is_large=is_large)
        self._open_spool[2].write(table)

    def close_spool(self) -> None:
        """Close the open spool file; further rows go to another one."""
        self._wait_for_writes()
        self._close_spool_file()

    def _close_spool_file(self) -> None:
        if self._open_spool is not None:
            self._open_spool[2].close()
            self._open_spool = None

    # -- the output ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write the output files from the spool.

        Raises:
            InputOutputError: they do not hold what was spooled.
        """
        self.spool_pending()
        self.close_spool()
        schema = self.layout.schema
        sink = TableFileSink(self.folder, self._file_options, schema, self._max_memory)
        for path in self._spool_paths:
            self._publish_spool_file(path, schema, sink)
        sink.close()
        self.text_bytes += sink.text_bytes
        if self._spool_paths:
            (self.folder / _SPOOL_FOLDER).rmdir()
        for path in sink.paths:
            counts = table_files.count_file(self._file_options, self.folder, path, schema)
            self._outputs.append(counts.output)
            self.text_bytes -= counts.text_bytes
        written_rows = sum(one.rows for one in self._outputs)
        if written_rows != self.rows:
            text = f"{self.rows:,} rows were converted and {written_rows:,} written"
            raise InputOutputError(f"{self.name}: {text}; the output is not usable")

    def _publish_spool_file(self, path: Path, schema: pa.Schema, sink: TableFileSink) -> None:
        import pyarrow.parquet as parquet

        with parquet.ParquetFile(path) as file:
            can_rename = self._file_options.to == "parquet" and not self._file_options.partition_by
            if can_rename and file.schema_arrow.equals(schema):
                columns = table_files.stored_text_columns(self._file_options, schema)
                for i in range(file.num_row_groups):
                    texts = file.read_row_group(i, columns=columns)
                    self.text_bytes += table_files.count_text_bytes(texts, columns, self._file_options)
                path.rename(sink.new_path(""))
                return
            for batch in table_files.read_row_groups(file):
                sink.add(conform_table(pa.Table.from_batches([batch]), schema))
        path.unlink()

    @property
    def outputs(self) -> Sequence[ManifestOutput]:
        """Output files, relative to the directory."""
        return self._outputs


class TableMemory:
    """Bounds the memory and the open spool files of many tables. max_bytes: of the pending rows of all of them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._pending_bytes = max_bytes, 0
        self._pending, self._open_spools = dict[str, TableOutput](), dict[str, TableOutput]()

    def add_batch(self, target: TableOutput, table_batch: TableBatch) -> None:
        """Add rows to a table; write those of all tables if they need too much memory."""
        self._pending_bytes -= target.pending_bytes
        target.add_batch(table_batch)
        self._pending_bytes += target.pending_bytes
        self._pending[target.name] = target
        if target.has_open_spool:
            self._open_spools.pop(target.name, None)
            self._open_spools[target.name] = target
        if self._pending_bytes > self._max_bytes:
            self.spool_pending()
        elif len(self._open_spools) > _MAX_OPEN_SPOOLS:
            self._open_spools.pop(next(iter(self._open_spools))).close_spool()

    def spool_pending(self) -> None:
        """Write the pending rows of all tables."""
        for target in self._pending.values():
            target.spool_pending()
            target.close_spool()
        self._pending_bytes, self._pending, self._open_spools = 0, {}, {}


def check_text_bytes(targets: Iterable[TableOutput]) -> None:
    """Raise InputOutputError if the texts in the files of all tables are not those that were written."""
    if any(target.text_bytes for target in targets):
        raise InputOutputError("the texts of the output differ from those that were read; the output is not usable")


def conform_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of an older schema in the final one."""
    columns = [
        _widen_column(table[field.name], field.type)
        if field.name in table.schema.names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _widen_column(column: Any, kind: pa.DataType) -> Any:
    if column.type == kind:
        return column
    if not pa.types.is_struct(kind):
        return compute.cast(column, kind)
    structs = column.combine_chunks()
    structs = structs.chunk(0) if isinstance(structs, pa.ChunkedArray) else structs
    members = {field.name: inside for field, inside in zip(structs.type, structs.flatten(), strict=True)}
    inside = [
        _widen_column(members[f.name], f.type) if f.name in members else pa.nulls(len(structs), f.type) for f in kind
    ]
    return pa.StructArray.from_arrays(inside, fields=list(kind), mask=structs.is_null() if structs.null_count else None)


# --- Typed tables of a log ---

_MEMORY_DIVISOR = 4
"""Pending rows of all tables use at most this fraction of the memory limit."""
SCHEMA = "binlogtool/tables/1"


class TypedJob(msgspec.Struct, frozen=True):
    """One conversion into typed tables (`options`: their options)."""

    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None
    shape: TableFileOptions
    options: TypedRowOptions
    on_step: ProgressCallback | None = None

    def write(self, inputs: list[ManifestInput], stage: Path) -> Manifest:
        """Write a directory at `stage`.

        Raises:
            UsageError: a format has no tables, or no table matches the selection.
            InputOutputError, LimitError.
        """
        limits_module.set_resident_ceiling()
        stage.mkdir()
        with ThreadPoolExecutor(1) as pool:
            return self._run(_TypedJobState(self, inputs, stage, pool), inputs)

    def _run(self, state: _TypedJobState, inputs: list[ManifestInput]) -> Manifest:
        with self._open_log(inputs) as log:
            state.read_rows(log)
        if state.tables.finding_tally.errors and self.selection.on_damage == "stop":
            return state.build_manifest(complete=False)
        state.router.check_tables_exist()
        if not state.tables.finding_tally.counts:
            state.router.check_columns_exist()
        state.finish()
        return state.build_manifest(complete=True)

    def _open_log(self, inputs: list[ManifestInput]) -> LogReader:
        hints = add_selection_hints(self.selection, self.hints, script=True)
        log = LogReader(
            [(i.path, i.path, open_file_module.find_format(i.format)) for i in inputs],
            self.limits,
            self.backend,
            hints or Hints(),
        )
        log.open_first()
        return log


class TypedTables:
    """The tables of an output; receives their rows (`table_router.TableRowSink`).

    folder: of the output. pool: writes in the background. operations: see `TableLayout`. known: tables of earlier runs.
    generation: of the next rows, see `TableOutput`.
    """

    def __init__(
        self, folder: Path, shape: TableFileOptions, options: TypedRowOptions, limits: Limits, pool: ThreadPoolExecutor,
        *, operations: bool, known: Sequence[KnownTable] = (), generation: int | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.finding_tally, self.generation = folder, FindingTally(), generation
        self._shape, self._options, self._limits, self._pool, self._operations = (
            shape, options, limits, pool, operations
        )  # fmt: skip
        self._targets: dict[str, TableOutput] = {}
        self._memory = TableMemory(limits.max_memory // _MEMORY_DIVISOR)
        self._directories, self._known = TableDirectories(), {one.name: one for one in known}
        for name in self._known:
            self._directories.directory_of(name)

    def set_generation(self, generation: int) -> None:
        """Set the generation of the next rows; all earlier ones must have been flushed by their router."""
        if generation != self.generation:
            self._memory.spool_pending()
            for target in self.targets:
                target.generation = generation
            self.generation = generation

    def set_table(self, name: str, table: TableSchema, place: str) -> None:
        """Set the definition of a table; see `TableRowSink`."""
        self._get_target(name).set_table(table, place)

    def add_batch(self, name: str, table_batch: TableBatch) -> None:
        """Add rows of a table; see `TableRowSink`. Many tables together use no more memory than one."""
        self._memory.add_batch(self._get_target(name), table_batch)

    def report_finding(self, file: str, finding: Finding) -> None:
        """Record a finding; see `TableRowSink`."""
        self.finding_tally.add(file, finding_to_value(finding), damage=False)

    def _get_target(self, name: str) -> TableOutput:
        if name not in self._targets:
            folder, known = self.folder / self.directory_of(name), self._known.get(name)
            target = self._targets[name] = TableOutput(
                name, folder, self._shape, self._options, self._pool, self._limits.max_memory,
                operations=self._operations, generation=self.generation,
            )  # fmt: skip
            if known is not None:
                target.evolution.kinds.update(known.columns)
                target.evolution.key = known.key
        return self._targets[name]

    def directory_of(self, name: str) -> str:
        """Return the directory of a table in the output."""
        return self._directories.directory_of(name) if self._options.per_table else "."

    @property
    def targets(self) -> list[TableOutput]:
        """All tables, in the order in which they appeared."""
        return list(self._targets.values())

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(target.rows for target in self.targets)

    @property
    def outputs(self) -> list[ManifestOutput]:
        """The files of all tables, relative to the output."""
        return [
            replace(one, path=str(target.folder.relative_to(self.folder) / one.path))
            for target in self.targets
            for one in target.outputs
        ]

    def finish(self, on_step: ProgressCallback | None = None) -> None:
        """Write the output files.

        Raises:
            InputOutputError: they do not hold what was read.
        """
        for number, target in enumerate(self.targets):
            if on_step is not None:
                on_step(ProgressStep("writing", number, len(self.targets)))
            target.finish()
        check_text_bytes(self.targets)

    def describe(self) -> list[dict[str, Any]]:
        """Return the description of each table for the manifest."""
        return [target.to_dict(self.directory_of(target.name)) for target in self.targets]

    def to_known(self) -> tuple[KnownTable, ...]:
        """Return the tables for the next run."""
        tables = dict(self._known)
        for target in self.targets:
            columns = tuple(target.evolution.kinds.items())
            tables[target.name] = KnownTable(
                target.name, self.directory_of(target.name), columns, target.evolution.key
            )  # fmt: skip
        return tuple(tables.values())


class _TypedJobState:
    """State of a job."""

    def __init__(self, job: TypedJob, inputs: list[ManifestInput], stage: Path, pool: ThreadPoolExecutor) -> None:
        self.job, self.inputs, self.stage = job, inputs, stage
        rules = [table_rules(i.path, i.format) for i in inputs]
        operations = any(one is not None and one.operations for one in rules)
        self.tables = TypedTables(stage, job.shape, job.options, job.limits, pool, operations=operations)
        self.router = TableRouter(job.options, self.tables, job.limits)
        self._members = [TaskFile(absolute_path(i.path), i.path, i.format, i.size) for i in inputs]
        self._preceding_bytes = dict(zip((i.path for i in inputs), _preceding_sizes(inputs), strict=True))

    # -- reading -------------------------------------------------------------------------------------------------------

    def read_rows(self, log: LogReader) -> None:
        """Read all rows."""
        job = self.job
        known_tables = read_older_tables([(i.path, i.format) for i in self.inputs], job.limits, job.backend, job.hints)
        router = self.router
        for part in router.read_log(log, typed_selection(job.selection), known_tables):
            if isinstance(part, FileFinding):
                router.note_damage(part)
                self._record_trouble(part)
            elif isinstance(part, RowBatch):
                router.add_row_batch(part)
                self._report_progress(part.file, part.end)
            else:
                router.add_block(part)
                if len(part):
                    self._report_progress(part.file, int(part.offset[-1]) + int(part.size[-1]))
            if router.is_full:
                break
        self.router.flush()

    def _report_progress(self, file: str, end: int) -> None:
        if self.job.on_step is not None:
            total = sum(one.size for one in self.inputs)
            self.job.on_step(
                ProgressStep("converting", self._preceding_bytes[file] + end, total, self.router.rows_by_file.total())
            )

    def _record_trouble(self, trouble: FileFinding) -> None:
        member = next(m for m in self._members if m.name == trouble.file)
        is_damaged = is_damage(trouble.finding, partial(is_closed, member, self._members, self._open_member))
        self.tables.finding_tally.add(trouble.file, finding_to_value(trouble.finding), damage=is_damaged)
        if is_damaged:
            self.router.add_damage_row(trouble)

    def _open_member(self, member: TaskFile) -> LogReader:
        job = self.job
        return open_log(
            member.path,
            ReadOptions(format=member.format, limits=job.limits, backend=job.backend, hints=job.hints),
            LogReader,
        )

    # -- writing -------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write the output files.

        Raises:
            InputOutputError: they do not hold what was read.
        """
        self.tables.finish(self.job.on_step)
        if self.job.options.per_table:
            text = json.dumps({"schema": SCHEMA, "tables": self.tables.describe()}, indent=2)
            (self.stage / TABLES_FILE).write_text(text + "\n")
        (self.stage / "_SUCCESS").touch()

    def build_manifest(self, *, complete: bool) -> Manifest:
        """Build the manifest. complete: the output is published."""
        outputs, row_count, tally = self.tables.outputs, self.tables.rows, self.tables.finding_tally
        details: dict[str, Any] = {"tables": self.tables.describe()} if complete else {}
        if self.router.remarks:
            details["remarks"] = self.router.remarks
        if self.router.general_rows:
            details["general_rows"] = dict(self.router.general_rows)
        if self.router.unlogged_records:
            details["untold"] = self.router.unlogged_records
        return Manifest(
            to="",
            output="",
            complete=complete,
            on_damage=self.job.selection.on_damage,
            inputs=tuple(replace(i, records=self.router.rows_by_file[i.path]) for i in self.inputs),
            outputs=tuple(outputs),
            rows=row_count,
            damage=tally.damage_rows,
            findings=tuple(tally.listed),
            finding_counts=dict(tally.counts),
            checks=tuple(build_checks(row_count, outputs)) if complete else (),
            details=details,
        )


def build_checks(row_count: int, outputs: Sequence[ManifestOutput]) -> Iterator[ManifestCheck]:
    """Yield the checks of an output. row_count: number of rows."""
    counted_rows = sum(one.rows for one in outputs)
    yield ManifestCheck("rows-in-equal-rows-out", f"{row_count:,} rows made, {counted_rows:,} counted in the output")
    yield ManifestCheck("texts-in-equal-texts-out", "the bytes of all texts that were made, counted in the output")


def _preceding_sizes(inputs: list[ManifestInput]) -> Iterator[int]:
    before = 0
    for input_ in inputs:
        yield before
        before += input_.size
