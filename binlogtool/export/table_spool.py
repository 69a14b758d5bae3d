"""Typed rows of tables in a spool: Parquet files of each table, with the columns known at that time.

If these are the final columns, the format of the output is Parquet, and there are no partitions, a file of the spool
becomes one of the output (`spool_to_table_files`).
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
from binlogtool.export.table_files import ParquetTableFile
from binlogtool.export.typed_columns import TableBatch, TableEvolution, check_same_table
from binlogtool.findings import Finding, finding_to_value
from binlogtool.format_api.row_output_interfaces import TableSchema

# --- Rows of one table in the spool ---

_MAX_GROUP_ROWS, _MAX_GROUP_BYTES, _GROUP_MEMORY_DIVISOR = 1 << 16, 32 << 20, 16
"""Limits of a group of rows that is written at once: rows, bytes, fraction of the memory limit."""
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
        changes = self.evolution.add_definition(table)
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

    definitions: see `SpooledDefinitions`. kinds: its columns after them. paths: Parquet files in the order of the rows,
    with the columns known at that time.
    """

    name: str
    rows: int
    definitions: tuple[tuple[TableSchema, str], ...]
    kinds: tuple[tuple[str, str], ...]
    paths: tuple[str, ...]


class TableSpool:
    """Writes the rows of one table to the spool.

    folder: where its files go. make_layout: the layout for the columns so far. codec: of Parquet. pool: writes in the
    background, one group after the other. max_memory: bytes that the job may use.

    Attributes:
        generation: value of the column `generation` of the next rows; None = there is no such column.
    """

    def __init__(
        self, name: str, folder: Path, make_layout: MakeLayout, codec: str, pool: ThreadPoolExecutor, max_memory: int,
        *, known: KnownTable | None = None,
    ) -> None:  # fmt: skip
        self.name, self.rows, self.history = name, 0, SpooledDefinitions(known)
        self.generation: int | None = None
        self._folder, self._make_layout, self._codec = folder, make_layout, codec
        self._pending, self._pending_rows, self._pending_bytes = list[TableBatch](), 0, 0
        self._pool, self._queued_writes = pool, list[Future[None]]()
        self._max_group_bytes = min(_MAX_GROUP_BYTES, max_memory // _GROUP_MEMORY_DIVISOR)
        self._paths: list[Path] = []
        self._open_file: tuple[FileLayout, bool, ParquetTableFile] | None = None

    @property
    def layout(self) -> FileLayout:
        """Layout of the rows, as far as the columns are known now."""
        layout = self._make_layout(self.history.evolution)
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
        if self._pending_rows >= _MAX_GROUP_ROWS or self._pending_bytes >= self._max_group_bytes:
            self.write_pending()

    @property
    def pending_bytes(self) -> int:
        """Size in bytes of the rows in memory."""
        return self._pending_bytes

    @property
    def has_open_file(self) -> bool:
        """True if a file is open, or will be by a queued write."""
        return self._open_file is not None or bool(self._queued_writes)

    def write_pending(self) -> None:
        """Write the pending rows in the background."""
        if not self._pending:
            return
        is_large = self._pending_bytes >= 2 * self._max_group_bytes
        self._wait_for_writes(0 if is_large else _MAX_QUEUED_GROUPS)
        self._queued_writes.append(self._pool.submit(self._write_group, self._pending, self.layout))
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        if is_large:
            self._wait_for_writes()

    def _wait_for_writes(self, max_queued: int = 0) -> None:
        """Wait until at most `max_queued` groups are still to be written."""
        while len(self._queued_writes) > max_queued:
            self._queued_writes.pop(0).result()

    def _write_group(self, pieces: list[TableBatch], layout: FileLayout) -> None:
        size = sum(piece.batch.nbytes for piece in pieces)
        limits.require_bytes(_WRITE_MEMORY_FACTOR * size)
        table, is_large = pa.concat_tables([layout.to_table(piece) for piece in pieces]), size >= 2 * _MAX_GROUP_BYTES
        if self._open_file is None or self._open_file[:2] != (layout, is_large):
            self._close_open_file()
            self._folder.mkdir(parents=True, exist_ok=True)
            self._paths.append(self._folder / f"{len(self._paths)}.parquet")
            file = ParquetTableFile(self._paths[-1], layout.schema, self._codec, is_large=is_large)
            self._open_file = layout, is_large, file
        self._open_file[2].write(table)

    def close_file(self) -> None:
        """Close the open file; further rows go to another one."""
        self._wait_for_writes()
        self._close_open_file()

    def _close_open_file(self) -> None:
        if self._open_file is not None:
            self._open_file[2].close()
            self._open_file = None

    def finish(self) -> SpooledTable:
        """Write what is pending, and return what was written."""
        self.write_pending()
        self.close_file()
        paths, history = tuple(map(str, self._paths)), self.history
        kinds = tuple(history.evolution.kinds.items())
        return SpooledTable(self.name, self.rows, tuple(history.definitions), kinds, paths)


# --- All tables ---

_MEMORY_DIVISOR = 4
"""Pending rows of all tables use at most this fraction of the memory limit."""
S = TypeVar("S", bound=TableSpool)


class TableMemory:
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


class TableSpools(Generic[S]):
    """The tables of an output; together they use no more memory than one.

    folder: for their files. create: creates the spool of a table, from its name, its directory and `known`.
    known: tables of earlier parts of the log. generation: see `TableSpool`.
    """

    def __init__(
        self, folder: Path, create: Callable[..., S], memory: TableMemory,
        known: Sequence[KnownTable] = (), generation: int | None = None,
    ) -> None:  # fmt: skip
        self._folder, self._create, self._generation, self.memory = folder, create, generation, memory
        self._known, self._by_name = {one.name: one for one in known}, dict[str, S]()

    def __getitem__(self, name: str) -> S:
        """Return the spool of a table, which is created."""
        if name not in self._by_name:
            folder = self._folder / f"{len(self._by_name):06}"
            self._by_name[name] = self._create(name, folder, known=self._known.get(name))
            self._by_name[name].generation = self._generation
        return self._by_name[name]

    def __iter__(self) -> Iterator[S]:
        """Yield the tables, in the order in which they appeared."""
        return iter(self._by_name.values())

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(one.rows for one in self)

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


class TypedTables(FindingCounter):
    """Tables that receive typed rows (`table_router.TableRowSink`)."""

    def __init__(self, spools: TableSpools[TableSpool]) -> None:
        super().__init__()
        self.spools = spools

    def set_table(self, name: str, table: TableSchema, place: str) -> None:
        """Set the definition of a table; see `TableRowSink`."""
        self.spools[name].set_table(table, place)

    def add_batch(self, name: str, table_batch: TableBatch) -> None:
        """Add rows of a table; see `TableRowSink`."""
        self.spools.memory.add_batch(self.spools[name], table_batch)
