"""Rows of tables in a spool: files of each table, with the columns known at that time.

A file that has the final columns and the format of the output becomes one of the output
(`write_spooled_rows_to_table_files`): all
files of records, and those of typed rows if the output is Parquet without partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa

from binlogtool import limits
from binlogtool.core.record_and_selection_types import FileFinding
from binlogtool.export.incremental_positions import KnownTable
from binlogtool.export.manifest import MAX_LISTED_FINDINGS, FindingTally
from binlogtool.export.output_options import TableFileOptions
from binlogtool.export.table_files import MAX_GROUP_ROWS, TableFileSink, WrittenFile, limit_group_bytes
from binlogtool.export.typed_columns import TableBatch, TableEvolution, check_same_table
from binlogtool.findings import Finding, finding_to_value
from binlogtool.format_api.row_output_interfaces import TableSchema

# --- Rows of one table in the spool ---

_WRITE_MEMORY_FACTOR = 2
"""Memory for writing a group to the spool, as a multiple of its size."""
_MAX_QUEUED_GROUPS = 1
"""Maximum number of groups that wait to be written; none if they are large."""
_ARRAY_BYTES = 512
"""Memory of an Arrow array in addition to its values, in bytes."""
_MAX_OPEN_FILES = 64
GENERATION = "generation"
GENERATION_FIELD = pa.field(GENERATION, pa.int64())
"""Column of `--append`: the number of earlier files with the same name."""


class FileLayout(Protocol):
    """Layout of the files of a table (`typed_columns.TableLayout`)."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the files."""

    def to_table(self, table_batch: TableBatch) -> pa.Table:
        """Convert a batch to this layout."""

    def column_types(self) -> list[dict[str, str]]:
        """Return the table's columns with their Spark SQL types."""


MakeLayout = Callable[[TableEvolution], FileLayout]


class GenerationLayout:
    """Layout with the last column `generation`, which has a constant value."""

    def __init__(self, layout: FileLayout, generation: int) -> None:
        self._layout, self._generation = layout, generation
        names = [f"{name}_" if name == GENERATION else name for name in layout.schema.names]
        self.schema = pa.schema(
            [*(field.with_name(name) for field, name in zip(layout.schema, names, strict=True)), GENERATION_FIELD]
        )

    def to_table(self, table_batch: TableBatch) -> pa.Table:
        """Convert a batch to this layout."""
        table = self._layout.to_table(table_batch)
        column = pa.repeat(pa.scalar(self._generation, pa.int64()), table.num_rows)
        return pa.Table.from_arrays([*table.columns, column], schema=self.schema)

    def column_types(self) -> list[dict[str, str]]:
        """Return the table's columns with their Spark SQL types."""
        return self._layout.column_types()


class SpooledDefinitions:
    """Definitions of one table, in the order of the log. known: the table as it was before.

    Attributes:
        evolution: its columns so far.
        definitions: those that differ from the one before, with their places.
        changes: what they changed, as texts with places; at most MAX_LISTED_FINDINGS.
    """

    def __init__(self, known: KnownTable | None = None) -> None:
        self.evolution, self.changes = TableEvolution(), list[str]()
        self.definitions: list[tuple[TableSchema, str]] = []
        if known is not None:
            self.evolution.kinds.update(known.columns)
            self.evolution.key = known.key

    def add_definition(self, table: TableSchema, place: str) -> None:
        """Add the definition that is valid from here on.

        Raises:
            UsageError: it is that of another table.
        """
        last, kinds, key = self.evolution.last, dict(self.evolution.kinds), self.evolution.key
        check_same_table(last or table, table)
        changes = self.evolution.merge_definition_and_describe_changes(table)
        self.changes += [f"{place}: {one}" for one in changes][: MAX_LISTED_FINDINGS - len(self.changes)]
        is_same = last is not None and last.columns == table.columns and last.name == table.name
        has_effect = (kinds, key) != (self.evolution.kinds, self.evolution.key)
        if has_effect or (not is_same and len(self.changes) < MAX_LISTED_FINDINGS):
            self.definitions.append((table, place))

    def to_known(self, name: str, directory: str = "") -> KnownTable:
        """Return the table for the records that follow."""
        return KnownTable(name, directory, tuple(self.evolution.kinds.items()), self.evolution.key)

    def describe(self, name: str, directory: str, row_count: int, columns: list[dict[str, str]]) -> dict[str, Any]:
        """Return the description of the table for the manifest. directory: in the output."""
        return {
            "name": name, "directory": directory, "rows": row_count, "columns": columns,
            "key": list(self.evolution.key), "changes": self.changes,
        }  # fmt: skip


class SpooledTable(msgspec.Struct, frozen=True):
    """The rows of one table in the spool.

    definitions: see `SpooledDefinitions`. kinds: its columns after them. files: in the order of the rows (unless they
    are partitions), with the columns known at that time. options: of the files; None = they are no table files.
    """

    name: str
    rows: int
    definitions: tuple[tuple[TableSchema, str], ...]
    kinds: tuple[tuple[str, str], ...]
    files: tuple[WrittenFile, ...]
    options: TableFileOptions | None = None


class SpoolSettings(msgspec.Struct, frozen=True):
    """Settings for writing the tables of a spool.

    make_layout: the layout for the columns so far. options: of the files. pool: writes in the background, one group
    after the other; None = write at once. max_memory: bytes that the job may use. file_size: see `TableFileSink`.
    """

    make_layout: MakeLayout
    options: TableFileOptions
    pool: ThreadPoolExecutor | None
    max_memory: int
    file_size: int | None = None


class TableSpool:
    """Writes the rows of one table to the spool. folder: where its files go. known: the table as it was before.

    Attributes:
        generation: value of the column `generation` of the next rows; None = there is no such column.
    """

    def __init__(
        self, name: str, folder: Path, settings: SpoolSettings, *, known: KnownTable | None = None
    ) -> None:  # fmt: skip
        self.name, self.rows, self.history = name, 0, SpooledDefinitions(known)
        self.generation: int | None = None
        self._folder, self._settings = folder, settings
        self._pending, self._pending_rows, self._pending_bytes = list[TableBatch](), 0, 0
        self._queued_writes = list[Future[None]]()
        max_bytes = limit_group_bytes(settings.options, settings.max_memory)
        self._max_group_bytes = 0 if settings.options.partition_by else max_bytes
        self._sinks: list[TableFileSink] = []

    @property
    def layout(self) -> FileLayout:
        """Layout of the rows, as far as the columns are known now."""
        layout = self._settings.make_layout(self.history.evolution)
        return layout if self.generation is None else GenerationLayout(layout, self.generation)

    def set_table(self, table: TableSchema, place: str) -> None:
        """Set the definition that is valid from here on."""
        self.history.add_definition(table, place)

    def add_batch(self, table_batch: TableBatch) -> None:
        """Add rows."""
        self._pending.append(table_batch)
        self._pending_rows += table_batch.batch.num_rows
        self._pending_bytes += table_batch.batch.nbytes + _ARRAY_BYTES * table_batch.array_count
        self.rows += table_batch.batch.num_rows
        if self._pending_rows >= MAX_GROUP_ROWS or self._pending_bytes >= self._max_group_bytes:
            self.write_pending()

    @property
    def pending_bytes(self) -> int:
        """Size in bytes of the rows in memory."""
        return self._pending_bytes

    @property
    def has_open_file(self) -> bool:
        """True if a file is open, or will be by a queued write."""
        return bool(self._queued_writes) or (bool(self._sinks) and self._sinks[-1].has_open_files)

    def write_pending(self) -> None:
        """Write the pending rows, in the background if there is a pool."""
        if not self._pending:
            return
        is_large, pending = self._pending_bytes >= 2 * self._max_group_bytes, self._pending
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        if self._settings.pool is None:
            self._write_group(pending, self.layout)
            return
        self._wait_for_writes(0 if is_large else _MAX_QUEUED_GROUPS)
        self._queued_writes.append(self._settings.pool.submit(self._write_group, pending, self.layout))
        if is_large:
            self._wait_for_writes()

    def _wait_for_writes(self, max_queued: int = 0) -> None:
        """Wait until at most `max_queued` groups are still to be written."""
        while len(self._queued_writes) > max_queued:
            self._queued_writes.pop(0).result()

    def _write_group(self, pieces: list[TableBatch], layout: FileLayout) -> None:
        limits.require_free_memory(_WRITE_MEMORY_FACTOR * sum(piece.batch.nbytes for piece in pieces))
        sink = self._get_sink(layout.schema)
        sink.add(pa.concat_tables([layout.to_table(piece) for piece in pieces]))
        if not self._settings.options.partition_by:
            sink.write_pending()

    def _get_sink(self, schema: pa.Schema) -> TableFileSink:
        """Return the sink of rows with these columns; there is a new one when the columns change."""
        if not self._sinks or not self._sinks[-1].schema.equals(schema):
            for sink in self._sinks[-1:]:
                sink.close()
            folder = self._folder / str(len(self._sinks))
            one = self._settings
            self._sinks.append(TableFileSink(folder, one.options, schema, one.max_memory, one.file_size))
        return self._sinks[-1]

    def close_file(self) -> None:
        """Close the open files; further rows go to others."""
        self._wait_for_writes()
        for sink in self._sinks[-1:]:
            sink.close()

    def abandon(self) -> None:
        """Close all files after an error; errors of closing are ignored."""
        for write in self._queued_writes:
            write.exception()
        for sink in self._sinks[-1:]:
            sink.abandon()

    def finish(self, *, keep_empty: bool = False) -> SpooledTable:
        """Write what is pending, and return what was written. keep_empty: see `TableFileSink.close`."""
        self.write_pending()
        self.close_file()
        if keep_empty:
            self._get_sink(self.layout.schema).close(keep_empty=True)
        files, history = tuple(file for sink in self._sinks for file in sink.files), self.history
        kinds = tuple(history.evolution.kinds.items())
        return SpooledTable(self.name, self.rows, tuple(history.definitions), kinds, files, self._settings.options)


# --- All tables ---

_MEMORY_DIVISOR = 4
"""Pending rows of all tables use at most this fraction of the memory limit."""
S = TypeVar("S", bound=TableSpool)


class SpoolMemoryLimiter:
    """Bounds the memory and the open files of many tables. max_memory: bytes that the job may use."""

    def __init__(self, max_memory: int) -> None:
        self._max_bytes, self._pending_bytes = max_memory // _MEMORY_DIVISOR, 0
        self._pending, self._open_files = dict[str, TableSpool](), dict[str, TableSpool]()

    def add_batch(self, target: TableSpool, table_batch: TableBatch) -> None:
        """Add rows to a table; write those of all tables if they need too much memory."""
        self._pending_bytes -= target.pending_bytes
        target.add_batch(table_batch)
        self._pending_bytes += target.pending_bytes
        self._pending[target.name] = target
        if target.has_open_file:
            self._open_files.pop(target.name, None)
            self._open_files[target.name] = target
        if self._pending_bytes > self._max_bytes:
            self.write_pending()
        elif len(self._open_files) > _MAX_OPEN_FILES:
            self._open_files.pop(next(iter(self._open_files))).close_file()

    def write_pending(self) -> None:
        """Write the pending rows of all tables."""
        for target in self._pending.values():
            target.write_pending()
            target.close_file()
        self._pending_bytes, self._pending, self._open_files = 0, {}, {}


class FindingCounter:
    """Counts the findings about records and bytes."""

    def __init__(self) -> None:
        self.finding_tally = FindingTally()

    def report_finding(self, file: str, finding: Finding) -> None:
        """Record a finding; see `table_router.TableRowSink`."""
        self.finding_tally.add(file, finding_to_value(finding), damage=False)

    def count_finding_and_return_damage(self, item: FileFinding, *, damage: bool) -> bool:
        """Record a finding about bytes, and return `damage`: whether they could not be read as they should be."""
        self.finding_tally.add(item.file, finding_to_value(item.finding), damage=damage)
        return damage


class TableSpools(FindingCounter, Generic[S]):
    """The tables of an output (`table_router.TableRowSink`); together they use no more memory than one.

    folder: for their files. known: tables of earlier parts of the log. generation: see `TableSpool`. create: creates
    the spool of a table, as `TableSpool`.
    """

    def __init__(
        self, folder: Path, settings: SpoolSettings, known: Sequence[KnownTable] = (), generation: int | None = None,
        create: Callable[..., S] = TableSpool,  # type: ignore[assignment]
    ) -> None:  # fmt: skip
        super().__init__()
        self._folder, self._settings, self._create, self._generation = folder, settings, create, generation
        self.memory = SpoolMemoryLimiter(settings.max_memory)
        self._known, self._by_name = {one.name: one for one in known}, dict[str, S]()

    def __getitem__(self, name: str) -> S:
        """Return the spool of a table, which is created."""
        if name not in self._by_name:
            folder = self._folder / f"{len(self._by_name):06}"
            self._by_name[name] = self._create(name, folder, self._settings, known=self._known.get(name))
            self._by_name[name].generation = self._generation
        return self._by_name[name]

    def __iter__(self) -> Iterator[S]:
        """Yield the tables, in the order in which they appeared."""
        return iter(self._by_name.values())

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(one.rows for one in self)

    def set_table(self, name: str, table: TableSchema, place: str) -> None:
        """Set the definition of a table; see `TableRowSink`."""
        self[name].set_table(table, place)

    def add_batch(self, name: str, table_batch: TableBatch) -> None:
        """Add rows of a table; see `TableRowSink`."""
        self.memory.add_batch(self[name], table_batch)

    def abandon(self) -> None:
        """Close all files after an error; errors of closing are ignored."""
        for one in self:
            one.abandon()

    def set_generation(self, generation: int) -> None:
        """Set the generation of the next rows; their router must have flushed all earlier ones."""
        if generation != self._generation:
            self._generation = generation
            self.memory.write_pending()
            for spool in self:
                spool.generation = generation

    def finish(self) -> list[SpooledTable]:
        """Write what is pending, and return the tables."""
        return [one.finish() for one in self]
