"""Route row changes to their tables, in the log's order.

Rows that belong to no table go to DAMAGE. A table with that name is shown as `DAMAGE` in backticks.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from msgspec import structs

from binlogtool import limits as limits_module
from binlogtool.core.apply_where import ConditionColumnChecker, make_row_condition
from binlogtool.core.divide_file import FilePart
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_and_selection_types import FileFinding, RecordBlock, RowBatch, Selection
from binlogtool.errors import UsageError
from binlogtool.export import records_to_arrow
from binlogtool.export.manifest import MAX_LISTED_FINDINGS
from binlogtool.export.output_options import TableFilter, TypedRowOptions, describe_missing_table, describe_other_table
from binlogtool.export.records_to_arrow import DAMAGE
from binlogtool.export.row_event_numpy_columns import EventMetadataColumns, EventTextIndex
from binlogtool.export.row_origin_columns import (
    describe_row_transaction,
    describe_transaction,
    format_place,
    has_content,
    has_transaction_ends,
    record_metadata,
)
from binlogtool.export.typed_columns import (
    IMAGES,
    METADATA_COLUMNS,
    METADATA_FIELDS,
    TRAILING_FIELDS,
    TableBatch,
    TypedColumn,
    batch_schema,
    build_row_cells,
    build_table_batch,
    check_same_table,
    get_cell_converter,
    has_names,
    to_arrow_type,
)
from binlogtool.findings import SET_LINK_IDS, Finding, Severity
from binlogtool.format_api.encode_json import findings_to_json, to_json_text
from binlogtool.format_api.row_output_interfaces import (
    CellBuffer,
    CellSlice,
    ColumnCells,
    RecordTableRows,
    TableRow,
    TableSchema,
    estimate_row_bytes,
    split_table_name,
)
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.limits import Limits


def display_name(name: str) -> str:
    """Return the name of a table in an output; a table called DAMAGE is quoted."""
    return f"`{name}`" if name == DAMAGE else name


# --- Table batches from column buffers ---


class TableRun(NamedTuple):
    """Rows of one event.

    size: number of rows. sides: their images (1 = before, 2 = after, 3 = both). meta: metadata and trailing values of
    all rows; `commit` applies to the last row.
    """

    size: int
    sides: int
    meta: dict[str, Any]


_EVENT_COLUMNS = ("sizes", "sides", "absent", "times", "servers", "files", "records", "offsets", "sources", "serials")


class EventRun(NamedTuple):
    """Rows of some events of a row batch."""

    columns: EventMetadataColumns
    events: Any


class EventRowsColumns(NamedTuple):
    """Rows of many events as numpy and Arrow arrays with one entry per event.

    commits, selected: one entry per row; selected: None = all. meta: metadata columns except row and commit.
    rest: trailing columns that any of the events has.
    """

    sizes: Any
    sides: Any
    commits: Any
    selected: Any
    meta: dict[str, pa.Array]
    rest: dict[str, pa.Array]


_PER_ROW_COLUMNS = ("row", "commit")
_METADATA_TYPES = {field.name: field.type for field in METADATA_FIELDS if field.name not in _PER_ROW_COLUMNS}
_TRAILING_TYPES = {field.name: field.type for field in TRAILING_FIELDS if field.name != "unfit"}
OPERATION_BY_SIDES = {1: "DELETE", 2: "INSERT", 3: "UPDATE"}
"""Operation of rows with these images (1 = before, 2 = after, 3 = both)."""


@functools.cache
def _operation_names() -> pa.Array:
    """Return the operations by sides; not at import, since the first `pa.array` imports pandas (0.3 s)."""
    return pa.array([None, *OPERATION_BY_SIDES.values()], pa.string())


def _combine_event_runs(
    runs: Sequence[EventRun], fields: Sequence[TypedColumn], event_texts: EventTextIndex
) -> EventRowsColumns:
    """Return the metadata of the rows of these events."""

    def take(name: str) -> Any:
        pieces = [getattr(columns, name)[events] for columns, events in runs]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    columns = {name: take(name) for name in _EVENT_COLUMNS}
    rows = [one.columns.row_indexes(one.events) for one in runs]
    commits = np.concatenate([one.columns.commits[picked] for one, picked in zip(runs, rows, strict=True)])
    selected = None
    if any(one.columns.selected is not None for one in runs):
        masks = [
            np.ones(len(picked), dtype=bool) if one.columns.selected is None else one.columns.selected[picked]
            for one, picked in zip(runs, rows, strict=True)
        ]
        selected = np.concatenate(masks)
    seq, txn = _transaction_columns(list(event_texts.sources), columns["sources"], columns["serials"])
    times = columns["times"]
    meta = {
        "op": _operation_names().take(pa.array(columns["sides"])),
        "seq": seq,
        "txn": txn,
        "time": pa.array(times, pa.int64(), mask=times < 0).cast(_METADATA_TYPES["time"]),
        "server": pa.array(columns["servers"]),
        "file": pa.array(list(event_texts.files), pa.string()).take(pa.array(columns["files"])),
        "record": pa.array(columns["records"]),
        "offset": pa.array(columns["offsets"]),
    }
    rest = {}
    if (used := set(np.unique(columns["absent"]).tolist())) != {0}:  # other events may belong to other tables
        lists = [absent_paths(one, fields) if number in used else None for one, number in event_texts.absent.items()]
        rest["absent"] = pa.array(lists, _TRAILING_TYPES["absent"]).take(pa.array(columns["absent"]))
    return EventRowsColumns(columns["sizes"], columns["sides"], commits, selected, meta, rest)


def _transaction_columns(
    sources: Sequence[tuple[str | None, int | None]], owners: Any, serials: Any
) -> tuple[pa.Array, pa.Array]:
    """Return the columns seq and txn. owners: index of each event's source, -1 = none."""
    source_indexes, has_serial = pa.array(owners, mask=owners < 0), serials >= 0
    texts = pa.array([text for text, _ in sources], pa.string()).take(source_indexes)
    numbers = pa.array(serials, mask=~has_serial | (owners < 0))
    if has_serial.all():
        return numbers, compute.binary_join_element_wise(texts, numbers.cast(pa.string()), "")
    source_seqs = [seq if seq is not None and -1 << 63 <= seq < 1 << 63 else None for _, seq in sources]
    seqs = compute.coalesce(numbers, pa.array(source_seqs, pa.int64()).take(source_indexes))
    suffixes = compute.coalesce(numbers.cast(pa.string()), pa.scalar(""))
    return seqs, compute.binary_join_element_wise(texts, suffixes, "")


def absent_paths(columns: Sequence[tuple[int, int]], fields: Sequence[TypedColumn]) -> list[str] | None:
    """Return the paths of absent columns (such as `after.name`); None = there are none."""
    return [f"{IMAGES[side]}.{fields[index].name}" for side, index in columns] or None


def build_batch_from_cells(
    cells: CellSlice, event_columns: EventRowsColumns, fields: tuple[TypedColumn, ...], limits: Limits
) -> TableBatch:
    """Build a batch of these rows; their `sides` and `absent` are in `event_columns`."""
    unfit, start, stop = dict[int, dict[str, Any]](), cells.start, cells.start + cells.size
    sides = np.repeat(event_columns.sides, event_columns.sizes)
    image_fields = [pa.field(field.name, to_arrow_type(field.kind)) for field in fields]
    images = []
    for side, name in enumerate(IMAGES):
        has_image = sides >> side & 1
        if not has_image.any():
            images.append(pa.nulls(cells.size, pa.struct(image_fields)))
            continue
        columns = [
            _cells_to_arrow_column(
                cells.buffer.read_column(i, side, start, stop), field, f"{name}.{field.name}", unfit, limits
            )
            for i, field in enumerate(fields)
        ]
        mask = None if has_image.all() else pa.array(has_image == 0)
        images.append(pa.StructArray.from_arrays(columns, fields=image_fields, mask=mask))
    event_indexes = (
        None
        if (event_columns.sizes == 1).all()
        else pa.array(np.repeat(np.arange(len(event_columns.sizes)), event_columns.sizes))
    )
    arrays = [
        *_metadata_columns(event_columns, event_indexes),
        *images,
        *_trailing_columns(event_columns, event_indexes, unfit, cells.size),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=batch_schema(fields))
    if event_columns.selected is not None:
        batch = batch.filter(pa.array(event_columns.selected))
    return TableBatch(fields, batch)


def _build_columns_of_runs(
    runs: Sequence[TableRun | EventRun], fields: Sequence[TypedColumn], event_texts: EventTextIndex
) -> EventRowsColumns:
    """Return the metadata of runs as columns; consecutive runs of the same kind are combined."""
    joined = list[EventRowsColumns]()
    for kind, group in groupby(runs, type):
        found: list[Any] = list(group)
        joined.append(
            _combine_table_runs(found) if kind is TableRun else _combine_event_runs(found, fields, event_texts)
        )
    return _concatenate_runs(joined)


def _combine_table_runs(runs: Sequence[TableRun]) -> EventRowsColumns:
    """Return the metadata of single events, given as dictionaries, as columns with one entry per event."""
    sizes, sides = np.array([run.size for run in runs]), np.array([run.sides for run in runs], dtype=np.uint8)
    commits = np.zeros(sizes.sum(), dtype=bool)
    commits[np.cumsum(sizes)[[bool(run.meta["commit"]) for run in runs]] - 1] = True
    meta = {name: _build_array([run.meta[name] for run in runs], kind) for name, kind in _METADATA_TYPES.items()}
    rest = {
        name: pa.array([run.meta.get(name) for run in runs], kind)
        for name, kind in _TRAILING_TYPES.items()
        if any(run.meta.get(name) for run in runs)
    }
    return EventRowsColumns(sizes, sides, commits, None, meta, rest)


def _build_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if all(value == values[0] for value in values):
        return pa.repeat(pa.scalar(values[0], kind), len(values))
    return pa.array(values, kind)


def _concatenate_runs(runs: Sequence[EventRowsColumns]) -> EventRowsColumns:
    if len(runs) == 1:
        return runs[0]
    sizes, sides, commits = (np.concatenate(one) for one in list(zip(*runs, strict=True))[:3])
    selected = None
    if any(run.selected is not None for run in runs):
        selected = np.concatenate(
            [np.ones(len(run.commits), dtype=bool) if run.selected is None else run.selected for run in runs]
        )
    meta = {name: pa.concat_arrays([run.meta[name] for run in runs]) for name in _METADATA_TYPES}
    rest = {
        name: pa.concat_arrays([run.rest[name] if name in run.rest else pa.nulls(len(run.sizes), kind) for run in runs])
        for name, kind in _TRAILING_TYPES.items()
        if any(name in run.rest for run in runs)
    }
    return EventRowsColumns(sizes, sides, commits, selected, meta, rest)


def _expand_to_rows(column: pa.Array, event_indexes: pa.Array | None) -> pa.Array:
    """Expand a column with one value per event to one value per row."""
    return column if event_indexes is None else column.take(event_indexes)


def _trailing_columns(
    event_columns: EventRowsColumns, event_indexes: pa.Array | None, unfit: dict[int, dict[str, Any]], count: int
) -> Iterator[pa.Array]:
    """Yield the trailing columns: unfit values, absent columns, findings."""
    for field in TRAILING_FIELDS:
        if field.name == "unfit" and unfit:
            yield pa.array([to_json_text(unfit[i]) if i in unfit else None for i in range(count)], field.type)
        elif field.name in event_columns.rest:
            yield _expand_to_rows(event_columns.rest[field.name], event_indexes)
        else:
            yield pa.nulls(count, field.type)


def _metadata_columns(event_columns: EventRowsColumns, event_indexes: pa.Array | None) -> Iterator[pa.Array]:
    ends = np.cumsum(event_columns.sizes)
    for name, _ in METADATA_COLUMNS:
        if name == "row":
            yield pa.array(
                (np.arange(ends[-1]) - np.repeat(ends - event_columns.sizes, event_columns.sizes)).astype(np.int32)
            )
        elif name == "commit":
            yield pa.array(event_columns.commits)
        else:
            yield _expand_to_rows(event_columns.meta[name], event_indexes)


def _cells_to_arrow_column(
    cells: ColumnCells, field: TypedColumn, column_path: str, unfit_values: dict[int, dict[str, Any]], limits: Limits
) -> pa.Array:
    """Return the cells of a column as an Arrow array; values that do not fit become null and are added to
    `unfit_values`.
    """
    kind, flags = to_arrow_type(field.kind), np.asarray(cells.valid)
    converted = _convert_raw_values(cells, field, column_path, unfit_values, limits) if (flags == 2).any() else None
    if not (flags == 1).any():
        return pa.nulls(len(flags), kind) if converted is None else pa.array(converted, kind)
    stored_values = _build_stored_values(cells, flags == 1, kind)
    if converted is None:
        return stored_values
    return compute.if_else(pa.array(flags == 2), pa.array(converted, kind), stored_values)


def _build_stored_values(cells: ColumnCells, is_valid: Any, kind: pa.DataType) -> pa.Array:
    valid = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little").tobytes())
    values = np.asarray(cells.values)
    if cells.data is not None:
        first, last = int(values[0]), int(values[-1])
        limits_module.require_value_bytes(last - first)
        data, ends = pa.py_buffer(bytes(cells.data[first:last])), (values - first).astype(np.int32)
        return pa.Array.from_buffers(kind, len(is_valid), [valid, pa.py_buffer(ends.tobytes()), data])
    if cells.texts is not None:
        return _map_enum_set_to_texts(values, is_valid, cells.texts, kind)
    return pa.Array.from_buffers(kind, len(is_valid), [valid, pa.py_buffer(_narrow_integers(values, kind).tobytes())])


def _narrow_integers(values: Any, kind: pa.DataType) -> Any:
    if kind in (pa.int32(), pa.date32()):
        return values.astype(np.int32)
    return values.astype(np.uint32) if kind == pa.float32() else values


def _map_enum_set_to_texts(values: Any, is_valid: Any, texts: Sequence[str], arrow_type: pa.DataType) -> pa.Array:
    """Convert numbers of an ENUM or SET to their texts."""
    if pa.types.is_list(arrow_type):
        masks, which = np.unique(np.where(is_valid, values, 0), return_inverse=True)
        lists = [[text for bit, text in enumerate(texts) if int(mask) >> bit & 1] for mask in masks]
        choices = pa.array(lists, arrow_type)
    else:
        choices, which = pa.array(["", *texts], arrow_type), values
    return choices.take(pa.array(np.where(is_valid, which, 0), mask=~is_valid))


def _convert_raw_values(
    cells: ColumnCells, field: TypedColumn, path: str, unfit: dict[int, dict[str, Any]], limits: Limits
) -> list[Any] | None:
    """Convert raw values one by one; those that the column cannot hold go to `unfit`.

    Returns:
        One value per cell; None if the column can hold none of them.
    """
    convert, converted = get_cell_converter(field.kind), dict[int, Any]()
    for i, raw in cells.iter_raw():
        value: Any = raw
        try:
            value = cells.decode_raw(raw, limits)
            converted[i] = convert(value)
        except (ValueError, TypeError, ArithmeticError, MalformedError, DecompressionError):
            unfit.setdefault(i, {})[path] = value
    return [converted.get(i) for i in range(len(cells.valid))] if converted else None


# --- Table router ---

_MAX_BATCH_ROWS = 8192
_TABLE_MEMORY_DIVISOR, _TOTAL_MEMORY_DIVISOR = 32, 8
"""Pending rows of one table, and of all tables, use at most these fractions of the memory limit."""
_RUN_BYTES, _EVENT_BYTES = 512, 160
"""Approximate memory, in bytes, of a run of rows, and of the metadata of an event."""
_BATCH_MEMORY_FACTOR = 2
"""Memory for building a batch, as a multiple of the size of its rows."""


class TableRowSink(Protocol):
    """Receiver of the rows of tables. name: name of a table, or DAMAGE for rows that belong to no table."""

    def set_table(self, name: str, table: TableSchema, place: str) -> None:
        """Set the definition of a table that is valid from this place in the log on."""

    def add_batch(self, name: str, table_batch: TableBatch) -> None:
        """Receive rows of a table."""

    def report_finding(self, file: str, finding: Finding) -> None:
        """Receive a finding about a record."""


class RouterSummary(msgspec.Struct):
    """Facts about a log, or a part of it, beside its rows.

    Args:
        seen: tables of the log, selected or not.
        columns: names of columns of its tables, if rows are selected by a condition.
        remarks: texts about changes of tables, with their place, and the table that has only one such text, or "".
        unlogged_records: number of records whose rows are not in the log.
        other_unlogged_records: number of such records of tables that are not selected.
        rows_by_file: number of rows by file.
        skipped_rows: number of selected rows that were skipped.
        general_rows: reason -> number of rows that were decoded record by record.
        unplaced: tables without rows so far whose records could not be decoded.
        is_open: at the end, the transaction of the last row has not ended.
        open_transaction: text about this transaction, "" if the format has no ends of transactions.
        ends_earlier: the transaction of an earlier row ends here, before any other row.
        has_begun: a transaction begins or ends.
        unfinished: the remarks about transactions without end.
    """

    seen: dict[str, TableSchema] = msgspec.field(default_factory=dict)
    columns: set[str] = msgspec.field(default_factory=set)
    remarks: list[tuple[str, str]] = msgspec.field(default_factory=list)
    unlogged_records: int = 0
    other_unlogged_records: int = 0
    rows_by_file: Counter[str] = msgspec.field(default_factory=Counter)
    skipped_rows: int = 0
    general_rows: Counter[str] = msgspec.field(default_factory=Counter)
    unplaced: set[str] = msgspec.field(default_factory=set)
    is_open: bool = False
    open_transaction: str = ""
    ends_earlier: bool = False
    has_begun: bool = False
    unfinished: list[str] = msgspec.field(default_factory=list)
    _remarked_tables: set[str] = msgspec.field(default_factory=set)

    def add_remark(self, text: str, table: str = "") -> None:
        """Add a text; only the first MAX_LISTED_FINDINGS are kept. table: the text is the only one about this table."""
        if len(self.remarks) < MAX_LISTED_FINDINGS and (not table or table not in self._remarked_tables):
            self.remarks.append((text, table))
            self._remarked_tables.add(table)

    def merge(self, other: RouterSummary) -> None:
        """Add the summary of the next part of the log."""
        self.seen.update(other.seen)
        self.columns |= other.columns
        for remark in other.remarks:
            self.add_remark(*remark)
        self.unlogged_records += other.unlogged_records
        self.other_unlogged_records += other.other_unlogged_records
        self.rows_by_file += other.rows_by_file
        self.skipped_rows += other.skipped_rows
        self.general_rows += other.general_rows

    def describe(self) -> dict[str, Any]:
        """Return the details for the manifest."""
        details = {
            "remarks": [text for text, _ in sorted(self.remarks, key=lambda one: not one[1])],  # tables first
            "general_rows": dict(self.general_rows),
            "untold": self.unlogged_records,
        }
        return {name: value for name, value in details.items() if value}

    def add_unfinished(self, text: str) -> None:
        """Add a remark about a transaction without end. text: names it; "" = there is none."""
        if text and len(self.unfinished) < MAX_LISTED_FINDINGS:
            text = f"{text} has no end in the part read; its rows are included, with commit = false"
            self.unfinished.append(text)
            self.add_remark(text)

    def is_continued_by(self, other: RouterSummary) -> bool:
        """Return True if the next part of the log may continue the open transaction."""
        return self.is_open and (other.ends_earlier or not other.has_begun)

    def record_transaction_boundary(self, *, ends: bool) -> None:
        """Note that a transaction begins, or ends, without a row before."""
        if not self.has_begun:
            self.ends_earlier, self.has_begun = ends and not self.rows_by_file, True

    def find_missing(self, options: TypedRowOptions) -> Iterator[str]:
        """Yield the patterns that match no table that was seen."""
        for pattern in options.objects:
            if not any(options.with_pattern(pattern).is_selected(one) for one in self.seen.values()):
                yield pattern

    def check_tables_exist(self, options: TypedRowOptions) -> None:
        """Raise UsageError if a pattern matches no table of the log."""
        for pattern in self.find_missing(options):
            message = describe_missing_table(self.seen, pattern)
            if count := self.unlogged_records + self.other_unlogged_records:
                message += (
                    f" (because of binlog_format it also lacks the rows that {count:,} "
                    f"{'statement' if count == 1 else 'statements'} changed)"
                )
            raise UsageError(f"--object {pattern}: {message}")

    def check_columns_exist(self, options: TypedRowOptions) -> None:
        """Raise UsageError if no row was selected and the condition names a column that no table has."""
        if options.where is not None and not self.rows_by_file.total() and not self.skipped_rows:
            tracker = ConditionColumnChecker(options.where)
            tracker.add_columns(self.columns)
            tracker.require_columns_exist()


class _PendingMemory(msgspec.Struct):
    """Approximate memory of the pending rows of all tables, in bytes."""

    bytes: int = 0


class _PendingRows:
    """Rows of one table that will become a batch, as dictionaries or as cells.

    names: texts that the columns of events refer to.
    """

    def __init__(
        self, name: str, sink: TableRowSink, limits: Limits, pending_memory: _PendingMemory, names: EventTextIndex
    ) -> None:
        self.name, self._sink, self._limits, self._pending_memory = name, sink, limits, pending_memory
        self._names = names
        self.filled: CellBuffer | None = None
        self._start = self._stop = 0
        self._runs: list[TableRun | EventRun] = []
        self.fields: tuple[TypedColumn, ...] = ()
        self.table: TableSchema | None = None
        self.rows: list[dict[str, Any]] = []
        self.size = 0

    def build_and_pass_batch(self) -> None:
        """Build a batch of the pending rows, and pass it on."""
        rows, filled, runs, size = self.rows, self.filled, self._runs, self.size
        self.rows, self.filled, self._runs, self.size = [], None, [], 0
        self._pending_memory.bytes -= size
        if rows:
            limits_module.require_free_memory(_BATCH_MEMORY_FACTOR * size)
            self._sink.add_batch(self.name, build_table_batch(self.fields, rows))
        if filled is not None:
            cells = CellSlice(filled, self._start, self._stop - self._start, 0)
            event_columns = _build_columns_of_runs(runs, self.fields, self._names)
            self._sink.add_batch(self.name, build_batch_from_cells(cells, event_columns, self.fields, self._limits))

    def add_cells(self, filled: CellBuffer, start: int, size: int, run: TableRun | EventRun) -> None:
        """Add `size` rows of cells from `start`."""
        if filled is not self.filled or start != self._stop or self.rows:
            self.build_and_pass_batch()
            self.filled, self._start = filled, start
        self._stop = start + size
        self._runs.append(run)
        self.add_memory_use(filled.size_in_bytes + _RUN_BYTES * len(self._runs) - self.size)

    def set_names(self, names: EventTextIndex) -> None:
        """Set the texts that events refer to; only while no rows are pending."""
        self._names = names

    def add_memory_use(self, byte_count: int) -> None:
        """Add to the memory of the pending rows."""
        self.size += byte_count
        self._pending_memory.bytes += byte_count

    def set_table(self, table: TableSchema, place: str) -> None:
        """Set the definition of the table for the following rows. place: its place in the log, as text."""
        if self.table is None or (self.table.columns, self.table.key) != (table.columns, table.key):
            self.build_and_pass_batch()
            self.fields = tuple(TypedColumn(c.name, c.type) for c in table.columns)
        self._sink.set_table(self.name, table, place)
        self.table = table


class _LastRow(NamedTuple):
    """Last row of an open transaction: `values[key]` is its `commit`. pending: the rows that contain it.

    place: text about the transaction; "" = the format has no ends of transactions.
    """

    values: Any
    key: Any
    pending: _PendingRows | None
    place: str


class TableRouter:
    """Router that takes the parts of `Log.table_rows` and `Log.row_batches`, and passes their rows to a sink.

    keeps_undecoded: create rows for records that cannot be decoded. keeps_emptied: create rows for statements that
    empty or drop a table. known: names of tables that had rows before. on_rename: receives the old and new names of
    tables, after their rows so far; implies `keeps_emptied`. summary: receives the facts.
    """

    def __init__(
        self, options: TypedRowOptions, sink: TableRowSink, limits: Limits, *, keeps_undecoded: bool = True,
        keeps_emptied: bool = False, known: Iterable[str] = (),
        on_rename: Callable[[str, str], None] | None = None, summary: RouterSummary | None = None,
    ) -> None:  # fmt: skip
        self.summary = RouterSummary() if summary is None else summary
        self._options, self._sink, self._limits = options, sink, limits
        self._keeps_undecoded, self._keeps_emptied = keeps_undecoded, keeps_emptied or on_rename is not None
        self._on_rename = on_rename
        self._tables: dict[str, _PendingRows] = {}
        self._last: _LastRow | None = None
        self._names, self._event_bytes = EventTextIndex(), 0
        self._row_condition = None if options.where is None else make_row_condition(options.where)
        self._pending_memory = _PendingMemory()
        self._max_table_bytes, self._max_total_bytes = (
            limits.max_memory // _TABLE_MEMORY_DIVISOR,
            limits.max_memory // _TOTAL_MEMORY_DIVISOR,
        )
        self.is_selected = TableFilter(options)
        for name in known:
            self._get_pending(name)

    def route_log(
        self, log: LogReader, selection: Selection, known_tables: Sequence[TableSchema], part: FilePart,
        on_finding: Callable[[FileFinding], bool],
    ) -> Iterator[tuple[str, int]]:  # fmt: skip
        """Route the rows of a part of a log, until the limit of rows is reached; yield (file, end of what was read).

        Args:
            known_tables: tables described by other files.
            on_finding: receives findings about bytes; returns True if there must be a row for bytes that could not be
                read.
        """
        for item in self.read_log(log, selection, known_tables, part, self.is_selected):
            self.route(item, on_finding)
            if isinstance(item, RowBatch):
                yield item.file, item.end
            elif isinstance(item, RecordBlock) and len(item):
                yield item.file, int(item.offset[-1]) + int(item.size[-1])
            if self.is_full:
                break

    def route(
        self,
        item: RowBatch | RecordBlock | FileFinding,
        on_finding: Callable[[FileFinding], bool],
        marks: bytes | None = None,
    ) -> None:
        """Route the rows of one item of a log. marks: for each row of a batch, 1 = it may be selected; None = all may.
        on_finding: see `route_log`.
        """
        if isinstance(item, RowBatch):
            self._add_row_batch(item if marks is None else item._replace(row_marks=marks))
        elif isinstance(item, RecordBlock):
            self._add_block(item)
        else:
            if item.finding.id not in SET_LINK_IDS:
                self._record_unreadable_bytes(item)
            if on_finding(item):
                self.add_damage_row(item)

    def read_log(
        self,
        log: LogReader,
        selection: Selection,
        known_tables: Sequence[TableSchema],
        part: FilePart,
        is_selected: Callable[[TableSchema], bool],
    ) -> Iterator[RowBatch | RecordBlock | FileFinding]:
        """Return the parts of a log in the fastest form that the options allow. is_selected: which tables are read."""
        condition = None if self._row_condition is None else self._row_condition.condition
        needs_values = bool(self._options.skip) or (condition is not None and condition.needs_body)
        return log.row_batches(
            selection,
            part=part,
            known_tables=known_tables,
            is_selected=is_selected,
            condition=condition,
            cells=not needs_values,
        )

    @property
    def is_full(self) -> bool:
        """True if the limit of rows is reached."""
        return self._options.limit is not None and self.summary.rows_by_file.total() >= self._options.limit

    def _add_block(self, block: RecordBlock) -> None:
        """Route the rows of a block of records."""
        if self._row_condition is not None:
            self._row_condition.set_block_members(block)
        for i, content in enumerate(block.bodies):
            if content is not None and content.begins:
                self._record_transaction_begin()
                self.summary.record_transaction_boundary(ends=False)
            if content is not None and content.described:
                self._add_tables_of_log(content.described)
            is_emptied = (
                self._keeps_emptied and content is not None and bool(content.emptied or content.dropped_database)
            )
            if block.findings.get(i) or is_emptied or (content is not None and has_content(content)):
                self._add_record(block, i, RecordTableRows() if content is None else content)

    def _add_row_batch(self, row_batch: RowBatch) -> None:
        """Route the rows of a batch of records that compiled code decoded."""
        events = row_batch.rows
        self._add_tables_of_log(events.described)
        if events.closes:
            self._mark_transaction_end()
        elif events.begins:
            self._record_transaction_begin()
            self.summary.record_transaction_boundary(ends=False)
        if self._pending_memory.bytes + self._event_bytes > self._max_total_bytes or self._names.has_too_many:
            self.flush_settled()
        if not events.runs:
            return
        columns = EventMetadataColumns(row_batch, self._names)
        self._event_bytes += _EVENT_BYTES * len(columns.sizes)
        if (selected := self._mask_selected_rows(row_batch, columns.row_count)) is not None:
            columns.select_rows(selected)
        if columns.mark_commits_and_report_missing(events.commits):
            self._mark_transaction_end()
        last_row, last_pending = columns.find_last_selected_row(), None
        last_event = -1 if last_row is None else int(np.searchsorted(columns.ends, last_row, side="right"))
        for run in events.runs:
            numbers = np.asarray(run.event_numbers)
            if selected is not None and not selected[columns.row_indexes(numbers)].any():
                continue
            size = int(columns.sizes[numbers].sum())
            place = f"{records_to_arrow.printable_path(row_batch.file)} at {int(columns.offsets[numbers[0]]):,}"
            pending = self._pending_for_table(run.buffer.table, place)
            pending.add_cells(run.buffer, run.start, size, EventRun(columns, numbers))
            if last_event in run.event_numbers:
                last_pending = pending
        self.summary.rows_by_file[row_batch.file] += columns.row_count if selected is None else int(selected.sum())
        self._record_unfinished_transactions(row_batch, columns)
        if not events.open or (last_row is None and int(columns.groups[-1])):
            self._last = None
        elif last_row is not None:
            last = last_event if last_event >= 0 else 0
            place = describe_transaction(
                row_batch.file, int(columns.offsets[last]), columns.format_transaction_of_event(last)
            )
            self._last = _LastRow(columns.commits, last_row, last_pending, place)

    def _mask_selected_rows(self, row_batch: RowBatch, row_count: int) -> Any:
        """Return the mask of the selected rows of a batch; None = all."""
        limit, skip = self._options.limit, self._options.skip - self.summary.skipped_rows
        marks = row_batch.row_marks
        if marks is None and limit is None and not skip:
            return None
        selected = np.ones(row_count, dtype=bool) if marks is None else np.frombuffer(marks, dtype=np.uint8) != 0
        chosen = np.flatnonzero(selected)
        skipped = min(skip, len(chosen))
        self.summary.skipped_rows += skipped
        selected[chosen[:skipped]] = False
        if limit is not None:
            selected[chosen[skipped + limit - self.summary.rows_by_file.total() :]] = False
        return selected

    def _add_tables_of_log(self, tables: Iterable[TableSchema]) -> None:
        """Note tables that the log contains."""
        for table in tables:
            self.summary.seen[table.name] = table
            if self._row_condition is not None:
                self.summary.columns.update(column.name for column in table.columns)

    def _record_transaction_begin(self) -> None:
        """Note that a transaction begins; the open one, if there is one, has no end."""
        self.summary.add_unfinished(self._describe_open())
        self._last = None

    def _record_unfinished_transactions(self, row_batch: RowBatch, columns: EventMetadataColumns) -> None:
        """Note the transactions without end after which another one begins in a batch."""
        events = row_batch.rows
        for group, event in columns.find_unfinished_transactions(events.commits, is_last_open=events.open):
            if event is None:
                if not group:
                    self.summary.add_unfinished(self._describe_open())
            elif (group or self.summary.has_begun) and not self.is_full:
                offset = int(columns.offsets[event])
                text = describe_transaction(row_batch.file, offset, columns.format_transaction_of_event(event))
                self.summary.add_unfinished(text)
        if columns.groups[-1] or not events.open:
            self.summary.record_transaction_boundary(ends=False)

    def _describe_open(self) -> str:
        """Return a text about the transaction of the last row; "" if it has ended, or no end is expected."""
        return "" if self._last is None or self.is_full or not self.summary.has_begun else self._last.place

    def flush(self) -> None:
        """Build batches of all pending rows."""
        self.summary.is_open, self.summary.open_transaction = self._last is not None, self._describe_open()
        for pending in self._tables.values():
            pending.build_and_pass_batch()

    @property
    def pending_bytes(self) -> int:
        """Memory of the pending rows."""
        return self._pending_memory.bytes

    def flush_settled(self) -> None:
        """Flush all tables except the one whose last row may still become the last row of its transaction."""
        last = None if self._last is None else self._last.pending
        for pending in self._tables.values():
            if pending is not last:
                pending.build_and_pass_batch()
        self._event_bytes = 0
        if last is None or last.filled is None:
            self._names = EventTextIndex()
            for pending in self._tables.values():
                pending.set_names(self._names)

    def _add_record(self, block: RecordBlock, i: int, content: RecordTableRows) -> None:
        """Route the rows of one record that was decoded record by record, report its findings, and mark a transaction
        end.
        """
        if content.changes is not None and not self._options.may_select_ignoring_case(content.changes):
            content = self._count_unlogged_change_of_other_table(block, i, content, content.changes)
        findings = tuple(
            filter(self._options.is_finding_about_selected_table, (*block.findings.get(i, ()), *content.findings))
        )
        meta = record_metadata(block, i, content, findings) | {
            "commit": False if has_transaction_ends(block.format) else None
        }
        if content.remark:
            self.summary.add_remark(f"{format_place(block, i)}: {content.remark}")
        for finding in findings:
            self._sink.report_finding(block.file, finding)
        if (
            max((one.severity for one in findings), default=0) > Severity.NOTE
            and not content.rows
            and not content.cells
        ):
            self.summary.unlogged_records += any(one.severity is Severity.ERROR for one in findings)
            self._add_undecoded_record(meta, block.envelope.object[i])
        if content.reason:
            self.summary.general_rows[content.reason] += (
                len(content.rows) if content.cells is None else content.cells.size
            )
        if content.cells is not None:
            self._add_cells(content.cells, meta, block, i)
        for row_index, row in self._select_rows(content.rows, i):
            self._add_row(row, meta | {"row": row_index}, block, i)
        for row_index, row in self._select_rows(self._list_rows_of_emptied_tables(content), i):
            pending = self._get_pending(display_name(row.table.name))
            self._add_row_without_images(pending, meta | {"op": row.op, "row": row_index})
        for old, new in content.renamed if self._on_rename is not None else ():
            self._flush_and_report_rename(display_name(old), display_name(new))
        if content.ends:
            self._mark_transaction_end()

    def _list_rows_of_emptied_tables(self, content: RecordTableRows) -> Sequence[TableRow]:
        """Return the rows about tables that a record empties or drops."""
        if not self._keeps_emptied:
            return ()
        database = content.dropped_database
        dropped = [one for one in self.summary.seen.values() if database and split_table_name(one.name)[0] == database]
        return [*content.emptied, *(TableRow(table, "DROP", None, None) for table in dropped)]

    def _flush_and_report_rename(self, old_name: str, new_name: str) -> None:
        assert self._on_rename is not None
        for pending in self._tables.values():
            pending.build_and_pass_batch()
        for name in (old_name, new_name):
            self._tables.pop(name, None)
        self._on_rename(old_name, new_name)

    def _count_unlogged_change_of_other_table(
        self, block: RecordBlock, i: int, content: RecordTableRows, table: TableSchema
    ) -> RecordTableRows:
        """Count an unlogged change of a table that is not selected, and drop its findings except notes."""
        self.summary.other_unlogged_records += 1
        self._last = None
        self.summary.add_remark(f"{format_place(block, i)}: {describe_other_table(table.name)}", table.name)
        return structs.replace(
            content, findings=tuple(one for one in content.findings if one.severity is Severity.NOTE)
        )

    def _mark_transaction_end(self) -> None:
        """Mark the last row as the end of its transaction."""
        if self._last is not None:
            self._last.values[self._last.key] = True
        else:
            self.summary.record_transaction_boundary(ends=True)
        self._last = None

    def _select_rows(self, rows_of_record: Sequence[TableRow], i: int) -> Iterator[tuple[int, TableRow]]:
        """Yield the selected rows of a record, with their indexes in it."""
        matches: bool | Sequence[bool] = True
        if self._row_condition is not None and rows_of_record:
            matches = self._row_condition.select_rows(
                i, lambda: {"rows": [{"before": r.before, "after": r.after} for r in rows_of_record]}
            )
        for row_index, row in enumerate(rows_of_record):
            if self.summary.seen.get(row.table.name) is not row.table:
                self._add_tables_of_log((row.table,))
            if not self.is_selected(row.table) or not (matches if isinstance(matches, bool) else matches[row_index]):
                continue
            if self.summary.skipped_rows < self._options.skip:
                self.summary.skipped_rows += 1
            elif not self.is_full:
                yield row_index, row

    def _add_cells(self, cells: CellSlice, meta: dict[str, Any], block: RecordBlock, i: int) -> None:
        """Add the rows of a record that compiled code decoded."""
        filled, limit = cells.buffer, self._options.limit
        row_count = cells.size if limit is None else min(cells.size, limit - self.summary.rows_by_file.total())
        if (
            not row_count
            or not self.is_selected(filled.table)
            or (self._row_condition and not self._row_condition.select_rows(i, dict))
        ):
            return
        pending = self._pending_for_table(filled.table, format_place(block, i))
        row_meta = meta | {"op": OPERATION_BY_SIDES[cells.sides]}
        self._last = _LastRow(row_meta, "commit", pending, describe_row_transaction(row_meta))
        if cells.absent:
            row_meta["absent"] = absent_paths(cells.absent, pending.fields)
        pending.add_cells(filled, cells.start, row_count, TableRun(row_count, cells.sides, row_meta))
        self.summary.rows_by_file[block.file] += row_count

    def _add_row(self, row: TableRow, meta: dict[str, Any], block: RecordBlock, i: int) -> None:
        pending = self._pending_for_table(row.table, format_place(block, i))
        size, pending_memory = estimate_row_bytes(row), self._pending_memory
        if (
            pending.filled is not None
            or len(pending.rows) >= _MAX_BATCH_ROWS
            or pending.size + size > self._max_table_bytes
        ):
            pending.build_and_pass_batch()
        if pending_memory.bytes + size > self._max_total_bytes:
            self.flush()
        row_values = meta | build_row_cells(row, pending.fields) | {"op": row.op}
        self._last = _LastRow(row_values, "commit", pending, describe_row_transaction(meta))
        pending.rows.append(row_values)
        self.summary.rows_by_file[block.file] += 1
        pending.add_memory_use(size)

    def _pending_for_table(self, table: TableSchema, place: str) -> _PendingRows:
        """Return the pending rows of a table, after setting its current definition."""
        pending = self._get_pending(display_name(table.name))
        if pending.table is not table:
            check_same_table(pending.table or table, table)
            self._add_tables_of_log((table,))
            if not has_names(table):
                text = f"{table.name}: its column names are unknown; give its CREATE TABLE with --schema FILE.sql"
                self.summary.add_remark(text, table.name)
            pending.set_table(table, place)
        return pending

    def _get_pending(self, name: str) -> _PendingRows:
        if not self._options.per_table:
            name = next(iter(self._tables), name)
        if name not in self._tables:
            self._tables[name] = _PendingRows(name, self._sink, self._limits, self._pending_memory, self._names)
        return self._tables[name]

    # -- rows without a table --------------------------------------------------------------------------------------

    def _add_undecoded_record(self, meta: dict[str, Any], name: str | None) -> None:
        """Add a DAMAGE row for a record that cannot be decoded; it may have ended its transaction."""
        self._last = None
        if self._keeps_undecoded:
            pending = self._tables.get(display_name(name)) if name is not None else None
            if pending is None and name is not None:
                self.summary.unplaced.add(display_name(name))
            self._add_row_without_images(pending or self._pending_for_damage(), meta)

    def _record_unreadable_bytes(self, trouble: FileFinding) -> None:
        """Note unreadable bytes, which may have contained the end of the open transaction."""
        if trouble.finding.severity is Severity.ERROR:
            self._last = None

    def add_damage_row(self, trouble: FileFinding) -> None:
        """Add a row for bytes that could not be read."""
        meta = {
            "op": records_to_arrow.DAMAGE,
            "file": records_to_arrow.printable_path(trouble.file),
            "offset": trouble.finding.offset,
        }
        self._add_row_without_images(
            self._pending_for_damage(), meta | {"findings": findings_to_json([trouble.finding])}
        )

    def _pending_for_damage(self) -> _PendingRows:
        """Return the pending rows for rows without a table: those of DAMAGE, or of the table if there is only one."""
        return self._get_pending(records_to_arrow.DAMAGE if self._options.per_table else self._options.objects[0])

    def _add_row_without_images(self, pending: _PendingRows, meta: dict[str, Any]) -> None:
        if pending.filled is not None:
            pending.build_and_pass_batch()
        pending.rows.append(meta | {"before": None, "after": None})
