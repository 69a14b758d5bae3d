"""Rows of a log for notebooks.

DuckDB, polars, pandas and delta-rs read an object with `__arrow_c_stream__` as a table, without copying.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from msgspec.structs import replace

from binlogtool.core.apply_where import ConditionColumnChecker
from binlogtool.core.divide_file import WHOLE_FILE, FilePart
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_and_selection_types import FileFinding, ReadOptions, RecordBlock, RowBatch, Selection
from binlogtool.errors import MissingExtraError, UsageError
from binlogtool.export import records_to_arrow, table_files
from binlogtool.export.atomic_output import create_work_folder
from binlogtool.export.incremental_positions import KnownTable
from binlogtool.export.manifest import MAX_LISTED_FINDINGS
from binlogtool.export.output_options import TableFileOptions, TypedRowOptions, is_part_selected, typed_selection
from binlogtool.export.read_one_table_as_arrow import (
    TableRowReader,
    TableSearch,
    build_single_table_options,
    report_unfinished,
    search_tables,
)
from binlogtool.export.read_rows_of_one_file import iter_tables
from binlogtool.export.records_to_arrow import OnFinding, RecordRowReader, resize_batches
from binlogtool.export.table_router import TableRouter
from binlogtool.export.table_spool import SpooledTable, SpoolSettings, TableSpool, TableSpools
from binlogtool.export.typed_columns import TableBatch
from binlogtool.findings import Finding
from binlogtool.format_api.row_output_interfaces import TableSchema

if TYPE_CHECKING:
    import pandas
    import polars

    from binlogtool.export.public_log_class import Log


# --- Reader of the changed rows of one table ---


def open_table_reader(log: Log, name: str, options: TypedRowOptions, selection: Selection) -> TableRowReader:
    """Find the columns of a table in one pass over the log, and return the reader of its changed rows.

    Damage and records that cannot be decoded give no rows.

    Raises:
        UsageError: the log does not contain the table.
    """
    search = TableSearch(name, options)
    search.read_older_files(log.paths, ReadOptions(limits=log.limits, backend=log.backend, hints=log.hints))
    known_tables = tuple(search.known_tables)
    search.read_log(log, selection)
    if not search.is_found and is_part_selected(selection):
        search.read_log(log, Selection())
    return TableRowReader(options, search.make_layout(), log.limits, known_tables=known_tables, keeps_all=False)


# --- Changed rows of many tables, which are read in one pass ---


class SpooledTables:
    """The changed rows of many tables, in temporary files."""

    def __init__(
        self, log: Log, searches: Mapping[str, TableSearch], image: str | None, columns: tuple[str, ...],
        selection: Selection,
    ) -> None:  # fmt: skip
        self._log, self._image, self._columns, self._selection = log, image, columns, selection
        self._layouts = {name: search.make_layout() for name, search in searches.items()}
        self._tables, self._findings = dict[str, SpooledTable](), dict[str, list[FileFinding]]()
        self._are_names_checked = False

    def open_rows(self, name: str, limit: int | None = None) -> LogRows:
        """Return the rows of a table; a requested column that it does not have is null. limit: maximum number of rows;
        None = all.
        """
        spooled = self._tables.get(name)
        if spooled is not None and limit is not None and spooled.rows > limit:
            selection = replace(self._selection, limit=limit)
            rows = create_log_rows(self._log, selection, name, self._image, self._columns)
        else:
            reader = SpooledTableReader(self, name)
            rows = LogRows(self._log, lambda _: reader, self._selection, self._columns, name)
        rows.allow_missing_columns()
        return rows

    def read_log(self, known: Sequence[TableSchema], folder: Path) -> None:
        """Read the rows of all tables. known: tables described by older files. folder: for the temporary files."""
        records, memory = typed_selection(self._selection), self._log.limits.max_memory

        def create(name: str, folder: Path, settings: SpoolSettings, known: KnownTable | None) -> TableSpool:
            return TableSpool(name, folder, replace(settings, make_layout=lambda _: self._layouts[name]), known=known)

        with self._log.reopen() as log, ThreadPoolExecutor(1) as pool:
            settings = SpoolSettings(lambda _: next(iter(self._layouts.values())), _SPOOL_FILES, pool, memory)
            spools, routers = TableSpools(folder, settings, create=create), dict[str, TableRouter]()
            for name in self._layouts:
                self._findings[name] = []
                sink = _SpoolSink(spools, name, self._findings[name])
                options = build_single_table_options(name, self._selection, self._image)
                routers[name] = TableRouter(options, sink, log.limits, keeps_undecoded=False)
            (first, *_) = routers.values()
            for item in first.read_log(log, records, known, WHOLE_FILE, lambda table: table.name in routers):
                _route_to_tables(item, routers, self._findings)
                if sum(router.pending_bytes for router in routers.values()) > memory // _PENDING_MEMORY_DIVISOR:
                    for router in routers.values():
                        router.flush_settled()
                if all(router.is_full for router in routers.values()):
                    break
            for name, router in routers.items():
                router.flush()
                report_unfinished(router.summary, partial(_add_finding, self._findings[name]))
            self._tables = {one.name: one for one in spools.finish()}

    def get_schema(self, name: str) -> pa.Schema:
        """Return the schema of the rows of a table."""
        return self._layouts[name].schema

    def get_findings(self, name: str) -> Sequence[FileFinding]:
        """Return the findings about the log for the rows of a table; at most 1000."""
        return self._findings[name]

    def read_batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table."""
        import pyarrow.parquet as parquet

        for written in self._tables[name].files if name in self._tables else ():
            with parquet.ParquetFile(written.path) as file:
                yield from table_files.read_row_groups(file)

    def check_names_once(self, check: Callable[[], None]) -> None:
        """Call a check of the names in the selection, unless it was called for another table."""
        if not self._are_names_checked:
            self._are_names_checked = True
            check()


_SPOOL_FILES = TableFileOptions("parquet", compression="none", typed=True)
_PENDING_MEMORY_DIVISOR = 8
"""Pending rows of all tables use at most this fraction of the memory limit."""


def _route_to_tables(
    item: RowBatch | RecordBlock | FileFinding,
    routers: Mapping[str, TableRouter],
    findings: Mapping[str, list[FileFinding]],
) -> None:
    """Route an item of a log to the routers of single tables: of a batch, each takes the rows of its table."""
    numbers = {name: number for number, name in enumerate(routers, 1)}
    rows_of_tables = None
    if isinstance(item, RowBatch):
        sizes = np.asarray(item.rows.row_counts)
        events_of_tables = np.zeros(len(sizes), dtype=np.int64)
        for run in item.rows.runs:
            events_of_tables[np.asarray(run.event_numbers)] = numbers.get(run.buffer.table.name, 0)
        rows_of_tables = np.repeat(events_of_tables, sizes)
        if item.row_marks is not None:
            rows_of_tables *= np.frombuffer(item.row_marks, dtype=np.uint8) != 0
    for name, router in routers.items():
        if not router.is_full:
            marks = None if rows_of_tables is None else (rows_of_tables == numbers[name]).tobytes()
            router.route(item, partial(_add_finding, findings[name]), marks)


def _add_finding(findings: list[FileFinding], item: FileFinding) -> bool:
    """Keep a finding; damage gives no rows."""
    if len(findings) < MAX_LISTED_FINDINGS:
        findings.append(item)
    return False


class _SpoolSink:
    """Passes the rows of one table to its spool (`TableRowSink`)."""

    def __init__(self, spools: TableSpools[TableSpool], name: str, findings: list[FileFinding]) -> None:
        self._spools, self._name, self._findings = spools, name, findings

    def set_table(self, name: str, table: TableSchema, place: str) -> None:
        """Ignore the definition: the layout is known."""

    def add_batch(self, name: str, table_batch: TableBatch) -> None:
        """Spool rows; see `TableRowSink`."""
        self._spools.add_batch(self._name, table_batch)

    def report_finding(self, file: str, finding: Finding) -> None:
        """Keep a finding; see `TableRowSink`."""
        _add_finding(self._findings, FileFinding(file, finding))


class SpooledTableReader:
    """Reader of the changed rows of one of many tables that were read in one pass (`RecordRowReader`)."""

    def __init__(self, tables: SpooledTables, name: str) -> None:
        self.tables, self._name = tables, name

    @property
    def read_schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return self.tables.get_schema(self._name)

    def read_batches(
        self, log: LogReader, name: str | None, selection: Selection, part: FilePart, on_finding: OnFinding
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the log that was read; see `RecordRowReader`."""
        for item in self.tables.get_findings(self._name):
            on_finding(item)
        yield from self.tables.read_batches(self._name)

    def build_damage_batch(self, file: str, format: str, damage_finding: Finding) -> pa.RecordBatch:
        """Return no row; see `RecordRowReader`."""
        return pa.RecordBatch.from_pylist([], self.read_schema)


@contextmanager
def spool_tables(
    log: Log, names: Sequence[str], selection: Selection, image: str | None, columns: tuple[str, ...]
) -> Iterator[SpooledTables]:
    """Read the changed rows of many tables; see `Log.spool_tables`.

    Raises:
        UsageError: the options contradict each other, or the log has two tables of one name.
    """
    first, searches = None, dict[str, TableSearch]()
    for name in names:
        searches[name] = TableSearch(name, build_single_table_options(name, selection, image), shared=first)
        first = first or searches[name]
    assert first is not None
    first.read_older_files(log.paths, ReadOptions(limits=log.limits, backend=log.backend, hints=log.hints))
    known = first.known_tables
    with log.reopen() as opened:
        search_tables(opened, searches, typed_selection(selection))
    tables = SpooledTables(log, searches, image, columns, selection)
    with create_work_folder() as folder:
        tables.read_log(known, folder)
        yield tables


# --- Rows of a log for notebooks ---

_MIN_DATETIME_US, _MAX_DATETIME_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Range of `datetime` in microseconds: years 1 to 9999."""


RowSource = Callable[["Log"], RecordRowReader]
"""Returns the reader of the rows of a log; it is called once."""


class LogRows:
    """Rows of a log, all with the same schema. Each iteration, export and query reads the log again.

    Damage is skipped and reported in `findings`: the content of a file raises no exception.
    """

    def __init__(
        self, log: Log, source: RowSource, selection: Selection, columns: Sequence[str], title: str
    ) -> None:  # fmt: skip
        self._log, self._source, self._selection, self._columns, self._title = log, source, selection, columns, title
        self._allows_missing = False
        self._schema: pa.Schema | None = None
        self._findings: tuple[FileFinding, ...] | None = None
        self._row_count: int | None = None

    def allow_missing_columns(self) -> None:
        """Return null for requested columns that the table does not have, and no row for a condition about one."""
        self._allows_missing = True

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns; the columns of a table are found in one pass over the log.

        Raises:
            UsageError: the table or a column does not exist.
            InputOutputError: a file cannot be read.
        """
        if self._schema is None:
            self._schema = _select_columns(
                self._reader.read_schema, self._columns, self._title, allows_missing=self._allows_missing
            )
        return self._schema

    @functools.cached_property
    def _reader(self) -> RecordRowReader:
        with self._log.reopen() as log:
            return self._source(log)

    @property
    def findings(self) -> tuple[FileFinding, ...]:
        """Findings about the log, as (file, finding); at most 1000.

        They come from the last complete pass; if there was none yet, the log is read once.

        Raises:
            As `schema`.
        """
        if self._findings is None:
            for _ in self._read_pass():
                pass
        return self._findings or ()

    def batches(self, size: int = records_to_arrow.MAX_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `size` rows; only a few of them are in memory at a time.

        Raises:
            UsageError: size is less than 1; no row is selected, and the log does not have a name in the selection
                (a column, a transaction); and as `schema`.
            InputOutputError: a file cannot be read any more.
        """
        if size < 1:
            raise UsageError(f"batches of {size} rows: must be at least 1")
        return resize_batches(self._read_pass(), size)

    def _read_pass(self, *, all_columns: bool = False) -> Iterator[pa.RecordBatch]:
        schema, findings, count = self.schema, list[FileFinding](), 0

        def add_finding(trouble: FileFinding) -> bool:
            if len(findings) < MAX_LISTED_FINDINGS:
                findings.append(trouble)
            return False

        with self._log.reopen() as log:
            for batch in self._reader.read_batches(log, None, self._selection, WHOLE_FILE, add_finding):
                yield batch if all_columns else _conform_batch(batch, schema)
                count += batch.num_rows
        if not count and isinstance(self._reader, SpooledTableReader):
            self._reader.tables.check_names_once(self._require_known_names)
        elif not count:
            self._require_known_names()
        self._findings, self._row_count = tuple(findings), count

    def _require_known_names(self) -> None:
        """Check that the log has the names in the selection, which selected nothing. Raises UsageError: it has not."""
        with self._log.reopen() as log:
            if self._selection.where is not None:
                if isinstance(self._reader, TableRowReader) and not self._allows_missing:
                    tracker = ConditionColumnChecker(self._selection.where, self._title)
                    tracker.add_columns(field.name for field in self._reader.layout.fields)
                    tracker.require_columns_exist()
                log.require_columns(self._selection.where)
            log.find_unmatched_names(replace(self._selection, where=None), 0).refuse_missing_names()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dictionaries: times are `datetime`, decimals `Decimal`; a time after year 9999 is None."""
        for batch in self.batches():
            yield from _to_dictionaries(batch)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream of batches (Arrow PyCapsule interface)."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__(requested_schema)

    def encode(self, form: str) -> Iterator[bytes]:
        """Yield the rows as bytes while they are read. form: jsonl, csv or arrow (an Arrow IPC stream).

        Raises:
            UsageError: the form is unknown; and as `schema`.
        """
        from binlogtool.export.encode_rows import encode_batches

        return encode_batches(form, self._title, self.schema, self.batches())

    def text_rows(self, size: int, image: str = "after") -> Iterator[tuple[list[str], list[list[str | None]]]]:
        """Yield (column names, at most `size` rows of texts) for display; None = NULL.

        Unless columns were named, the columns about a change are only `txn`, `op`, `time`, and the key and operations
        of changes that were logged without a row. image: the row image with which the rows were read.
        """
        from binlogtool.export.encode_rows import select_shown_columns, select_used_details, to_text_rows

        for batch in resize_batches(self._read_pass(all_columns=True), size):
            names = [name for name in self._columns if name in batch.schema.names] or [
                *select_used_details(batch, ("txn",)),
                *select_shown_columns(self.schema),
                *select_used_details(batch, ("key", "ops", *(("unfit",) if image == "both" else ()))),
            ]
            yield names, to_text_rows(batch, names, image)

    @property
    def row_count(self) -> int | None:
        """Number of rows in the last complete pass; None = no pass was completed yet."""
        return self._row_count

    def to_arrow(self) -> pa.Table:
        """Return all rows as a table in memory."""
        return pa.Table.from_batches(list(self.batches()), self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Return all rows as a pandas DataFrame in memory.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        _require_library("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return all rows as a polars DataFrame in memory.

        Raises:
            MissingExtraError: polars is not installed.
        """
        _require_library("polars")
        import polars

        return polars.DataFrame(self.to_arrow())  # keeps binlogtool's exceptions

    def __repr__(self) -> str:
        finding_text = "" if self._findings is None else f", {len(self._findings):,} findings"
        return f"<rows of {self._title}{finding_text}>"


def create_log_rows(
    log: Log, selection: Selection, table: str | None, image: str | None, columns: tuple[str, ...]
) -> LogRows:
    """Create the rows of a log; see `Log.rows`.

    Raises:
        UsageError: the options contradict each other.
    """
    if len(set(columns)) < len(columns):
        raise UsageError("columns: a name is given twice")
    if table is None:
        if image is not None:
            raise UsageError(f"image={image!r} applies to the rows of a table; name a table")
        layout = replace(records_to_arrow.create_layout(columns), reports_records=True)
        return LogRows(log, lambda _: layout, selection, columns, "records")
    options = build_single_table_options(table, selection, image)
    open_reader = partial(open_table_reader, name=table, options=options, selection=typed_selection(selection))
    return LogRows(log, open_reader, selection, columns, table)


def find_tables(log: Log, selection: Selection) -> list[str]:
    """Return the names of the tables in a log: tables with rows, and tables that are created."""
    return list(dict.fromkeys(table.name for table in iter_tables(log, typed_selection(selection))))


def _require_library(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        raise MissingExtraError(f"to_{library}() needs {library}: install it with `pip install {library}`")


def _select_columns(schema: pa.Schema, columns: Sequence[str], title: str, *, allows_missing: bool) -> pa.Schema:
    """Return the schema of the selected columns. title: of the rows. allows_missing: other columns are null.

    Raises:
        UsageError: a column does not exist.
    """
    if not allows_missing:
        for name in columns:
            _require_column(name, schema.names, title)
    fields = [schema.field(name) if name in schema.names else pa.field(name, pa.null()) for name in columns]
    return pa.schema(fields) if columns else schema


def _require_column(name: str, known: Sequence[str], title: str) -> None:
    """Raise UsageError if a requested column is not among the known ones. title: what has these columns."""
    if name not in known:
        suggestions = get_close_matches(name, known, 1)
        text = f"did you mean {suggestions[0]!r}?" if suggestions else f"there are {', '.join(known)}"
        raise UsageError(f"columns: there is no {name!r} in {title}; {text}")


def _conform_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema; those that the batch does not have are null."""
    if set(schema.names) <= set(batch.schema.names):
        return batch.select(schema.names)
    columns = [batch[one.name] if one.name in batch.schema.names else pa.nulls(len(batch), one.type) for one in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _to_dictionaries(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return list(batch.to_pylist())
    except OverflowError:
        columns = [_null_out_of_range_times(one) if pa.types.is_timestamp(one.type) else one for one in batch.columns]
        return list(pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist())


def _null_out_of_range_times(times: pa.Array) -> pa.Array:
    """Return the times, with null for times outside the range of `datetime`."""
    numbers = times.cast(pa.int64())
    fits = compute.and_(compute.greater_equal(numbers, _MIN_DATETIME_US), compute.less_equal(numbers, _MAX_DATETIME_US))
    return compute.if_else(fits, times, pa.scalar(None, times.type))
