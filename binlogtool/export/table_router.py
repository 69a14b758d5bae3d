"""Route row changes to their tables, in the log's order.

Rows that belong to no table are in DAMAGE. A table of that name is shown as `DAMAGE` in backticks.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from msgspec import structs

from binlogtool import limits as limits_module
from binlogtool.core import open_file as open_file_module
from binlogtool.core.json_text import findings_to_json, to_json_text
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_selection import FileFinding, RecordBlock, RowBatch, Selection
from binlogtool.core.where_filter import ColumnTracker, make_row_condition
from binlogtool.errors import UsageError, suggest_names
from binlogtool.export import record_rows
from binlogtool.export.manifest import MAX_LISTED_FINDINGS
from binlogtool.export.output_options import TableFilter, TypedRowOptions, describe_other_table
from binlogtool.export.record_rows import DAMAGE
from binlogtool.export.typed_columns import (
    IMAGES,
    METADATA_COLUMNS,
    METADATA_FIELDS,
    TRAILING_FIELDS,
    TableBatch,
    TypedColumn,
    batch_schema,
    build_table_batch,
    check_same_table,
    get_cell_converter,
    to_arrow_type,
    to_cells,
)
from binlogtool.findings import Finding, Severity
from binlogtool.format_api.field_types import MalformedError
from binlogtool.format_api.layout import DecompressionError
from binlogtool.format_api.outputs import (
    CellBuffer,
    CellRun,
    CellSlice,
    ColumnCells,
    EventRows,
    RecordTableRows,
    TableRow,
    TableSchema,
    estimate_row_bytes,
)
from binlogtool.limits import Limits

# --- Directory names of tables ---

_SAFE = " !#$&'()+,-.;=@[]^_`{}~"
_MAX_NAME_BYTES = 200
"""Maximum bytes of a name; file systems allow 255, and readers append suffixes."""


def display_name(name: str) -> str:
    """Return the name of a table in an output; a table called DAMAGE is quoted."""
    return f"`{name}`" if name == DAMAGE else name


class TableDirectories:
    """Assigns each table a directory, in the order in which tables appear."""

    def __init__(self) -> None:
        self._names = {DAMAGE: DAMAGE}
        self._used_names = {DAMAGE.casefold()}

    def directory_of(self, name: str) -> str:
        """Return the directory of a table: the same one each time.

        On file systems that ignore case another table may already have the plain name; then letters are escaped.
        """
        if name not in self._names:
            directory = _quote_name(name)
            if directory.casefold() in self._used_names:
                directory = _fit_name("".join(_escape_letter(c) for c in name), name)
            self._names[name] = directory
            self._used_names.add(directory.casefold())
        return self._names[name]


def _quote_name(name: str) -> str:
    return _fit_name(quote(name, safe=_SAFE, errors="surrogatepass"), name)


def _fit_name(directory: str, name: str) -> str:
    """Escape a leading `.` or `_`, which readers ignore, and replace the end of a too long name by a hash."""
    if directory[:1] in ("", ".", "_"):
        directory = f"%{ord(directory[0]):02X}{directory[1:]}" if directory else "%"
    if len(directory) <= _MAX_NAME_BYTES:
        return directory
    head = re.sub(r"%.?\Z", "", directory[: _MAX_NAME_BYTES - 17])
    return f"{head}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _escape_letter(letter: str) -> str:
    plain = letter.isascii() and letter.isalpha()
    return f"%{ord(letter):02X}" if plain else quote(letter, safe=_SAFE, errors="surrogatepass")


# --- Table batches from column buffers ---


class TableRun(NamedTuple):
    """Rows of one event.

    size: number of rows. sides: their images (1 = before, 2 = after, 3 = both). meta: metadata and trailing values of
    all of them; `commit` is that of the last row.
    """

    size: int
    sides: int
    meta: dict[str, Any]


class EventRowsColumns(NamedTuple):
    """Rows of many events as numpy and Arrow arrays with one entry per event.

    meta: metadata columns except row and commit. rest: trailing columns that any event has.
    """

    sizes: Any
    sides: Any
    commits: Any
    meta: dict[str, pa.Array]
    rest: dict[str, pa.Array]


_PER_ROW_COLUMNS = ("row", "commit")
_METADATA_TYPES = {field.name: field.type for field in METADATA_FIELDS if field.name not in _PER_ROW_COLUMNS}
_TRAILING_TYPES = {field.name: field.type for field in TRAILING_FIELDS if field.name != "unfit"}
OPERATION_BY_SIDES = {1: "DELETE", 2: "INSERT", 3: "UPDATE"}
"""Operation of rows with these images (1 = before, 2 = after, 3 = both)."""
_OPERATION_NAMES = pa.array([None, *OPERATION_BY_SIDES.values()], pa.string())


def build_event_columns(
    events: EventRows, run: CellRun, fields: Sequence[TypedColumn], row_batch: RowBatch
) -> EventRowsColumns:
    """Return the metadata of the rows of one run of a row batch."""
    picks = np.asarray(run.event_numbers)

    def pick(values: Any) -> Any:
        return np.asarray(values)[picks]

    layout_kinds, layouts, times = events.kinds, pick(events.kind_indexes), pick(events.times)
    sides = np.array([side for side, _ in layout_kinds], dtype=np.uint8)[layouts]
    seq, txn = _transaction_columns(events, pick(events.owners), pick(events.serials))
    meta = {
        "op": _OPERATION_NAMES.take(pa.array(sides)),
        "seq": seq,
        "txn": txn,
        "time": pa.array(times, pa.int64(), mask=times < 0).cast(_METADATA_TYPES["time"]),
        "server": pa.array(pick(events.origins)),
        "file": pa.repeat(pa.scalar(record_rows.printable_path(row_batch.file), pa.string()), len(picks)),
        "record": pa.array(pick(events.record_indexes) + row_batch.record),
        "offset": pa.array(pick(events.offsets) + row_batch.base),
    }
    rest = {}
    used_layouts = set(np.unique(layouts).tolist())  # the others are those of other tables
    if any(layout_kinds[i][1] for i in used_layouts):
        lists = [
            absent_paths(columns, fields) if i in used_layouts else None for i, (_, columns) in enumerate(layout_kinds)
        ]
        rest["absent"] = pa.array(lists, _TRAILING_TYPES["absent"]).take(pa.array(layouts))
    return EventRowsColumns(pick(events.row_counts), sides, pick(events.commits), meta, rest)


def _transaction_columns(events: EventRows, owners: Any, serials: Any) -> tuple[pa.Array, pa.Array]:
    """Return the columns seq and txn."""
    source_indexes, has_serial = pa.array(owners, mask=owners < 0), serials >= 0
    texts = pa.array([text for text, _ in events.sources], pa.string()).take(source_indexes)
    numbers = pa.array(serials, mask=~has_serial | (owners < 0))
    if has_serial.all():
        return numbers, compute.binary_join_element_wise(texts, numbers.cast(pa.string()), "")
    source_seqs = [seq if seq is not None and -1 << 63 <= seq < 1 << 63 else None for _, seq in events.sources]
    seqs = compute.coalesce(numbers, pa.array(source_seqs, pa.int64()).take(source_indexes))
    suffixes = compute.coalesce(numbers.cast(pa.string()), pa.scalar(""))
    return seqs, compute.binary_join_element_wise(texts, suffixes, "")


def absent_paths(columns: Sequence[tuple[int, int]], fields: Sequence[TypedColumn]) -> list[str] | None:
    """Return the paths of absent columns (`Cells.absent`)."""
    return [f"{IMAGES[side]}.{fields[index].name}" for side, index in columns] or None


def build_batch_from_cells(
    filled: CellBuffer,
    start: int,
    stop: int,
    runs: Sequence[TableRun | EventRowsColumns],
    fields: tuple[TypedColumn, ...],
    limits: Limits,
) -> TableBatch:
    """Build a batch of the rows `[start, stop)`."""
    unfit, event_columns = dict[int, dict[str, Any]](), _concatenate_runs(list(_group_runs(runs)))
    sides = np.repeat(event_columns.sides, event_columns.sizes)
    image_fields = [pa.field(field.name, to_arrow_type(field.kind)) for field in fields]
    images = []
    for side, name in enumerate(IMAGES):
        has_image = sides >> side & 1
        if not has_image.any():
            images.append(pa.nulls(stop - start, pa.struct(image_fields)))
            continue
        columns = [
            _build_column(filled.read_column(i, side, start, stop), field, f"{name}.{field.name}", unfit, limits)
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
        *_trailing_columns(event_columns, event_indexes, unfit, stop - start),
    ]
    return TableBatch(fields, pa.RecordBatch.from_arrays(arrays, schema=batch_schema(fields)))


def _group_runs(runs: Sequence[TableRun | EventRowsColumns]) -> Iterator[EventRowsColumns]:
    """Yield runs as columns; consecutive single events are combined."""
    single = list[TableRun]()
    for run in runs:
        if isinstance(run, TableRun):
            single.append(run)
            continue
        if single:
            yield _combine_single_runs(single)
            single = []
        yield run
    if single:
        yield _combine_single_runs(single)


def _combine_single_runs(runs: Sequence[TableRun]) -> EventRowsColumns:
    sizes, sides = np.array([run.size for run in runs]), np.array([run.sides for run in runs], dtype=np.uint8)
    commits = np.array([bool(run.meta["commit"]) for run in runs], dtype=np.int64)
    meta = {name: _build_array([run.meta[name] for run in runs], kind) for name, kind in _METADATA_TYPES.items()}
    rest = {
        name: pa.array([run.meta.get(name) for run in runs], kind)
        for name, kind in _TRAILING_TYPES.items()
        if any(run.meta.get(name) for run in runs)
    }
    return EventRowsColumns(sizes, sides, commits, meta, rest)


def _build_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if all(value == values[0] for value in values):
        return pa.repeat(pa.scalar(values[0], kind), len(values))
    return pa.array(values, kind)


def _concatenate_runs(runs: Sequence[EventRowsColumns]) -> EventRowsColumns:
    if len(runs) == 1:
        return runs[0]
    sizes, sides, commits = (np.concatenate(one) for one in list(zip(*runs, strict=True))[:3])
    meta = {name: pa.concat_arrays([run.meta[name] for run in runs]) for name in _METADATA_TYPES}
    rest = {
        name: pa.concat_arrays([run.rest[name] if name in run.rest else pa.nulls(len(run.sizes), kind) for run in runs])
        for name, kind in _TRAILING_TYPES.items()
        if any(name in run.rest for run in runs)
    }
    return EventRowsColumns(sizes, sides, commits, meta, rest)


def _expand_to_rows(column: pa.Array, event_indexes: pa.Array | None) -> pa.Array:
    """Return a column with one value per row from one with a value per event."""
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
            marks = np.zeros(ends[-1], dtype=bool)
            marks[ends[event_columns.commits != 0] - 1] = True
            yield pa.array(marks)
        else:
            yield _expand_to_rows(event_columns.meta[name], event_indexes)


def _build_column(
    cells: ColumnCells, field: TypedColumn, path: str, unfit: dict[int, dict[str, Any]], limits: Limits
) -> pa.Array:
    kind, is_valid = to_arrow_type(field.kind), np.asarray(cells.valid)
    valid = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little").tobytes())
    values = np.asarray(cells.values)
    if cells.leaf is not None:
        return _convert_values(cells, is_valid, field, path, unfit, limits)
    if cells.data is not None:
        first, last = int(values[0]), int(values[-1])
        data, ends = pa.py_buffer(bytes(cells.data[first:last])), (values - first).astype(np.int32)
        return pa.Array.from_buffers(kind, len(is_valid), [valid, pa.py_buffer(ends.tobytes()), data])
    if cells.texts is not None:
        return _map_to_texts(values, is_valid, cells.texts, kind)
    return pa.Array.from_buffers(kind, len(is_valid), [valid, pa.py_buffer(_narrow_integers(values, kind).tobytes())])


def _narrow_integers(values: Any, kind: pa.DataType) -> Any:
    if kind in (pa.int32(), pa.date32()):
        return values.astype(np.int32)
    return values.astype(np.uint32) if kind == pa.float32() else values


def _map_to_texts(values: Any, is_valid: Any, texts: Sequence[str], kind: pa.DataType) -> pa.Array:
    """Convert numbers of an ENUM or SET to their texts."""
    if pa.types.is_list(kind):
        masks, which = np.unique(np.where(is_valid, values, 0), return_inverse=True)
        lists = [[text for bit, text in enumerate(texts) if int(mask) >> bit & 1] for mask in masks]
        choices = pa.array(lists, kind)
    else:
        choices, which = pa.array(["", *texts], kind), values
    return choices.take(pa.array(np.where(is_valid, which, 0), mask=~is_valid.astype(bool)))


def _convert_values(
    cells: ColumnCells, is_valid: Any, field: TypedColumn, path: str, unfit: dict[int, dict[str, Any]], limits: Limits
) -> pa.Array:
    """Convert values one by one; those that the column cannot hold go to `unfit`."""
    convert, converted = get_cell_converter(field.kind), list[Any]()
    assert cells.leaf is not None and cells.data is not None
    for i, is_present in enumerate(is_valid.tolist()):
        if not is_present:
            converted.append(None)
            continue
        raw = bytes(cells.data[cells.values[i] : cells.values[i + 1]])
        value: Any = raw
        try:
            value = cells.leaf(raw, limits)
            converted.append(convert(value))
        except (ValueError, TypeError, ArithmeticError, MalformedError, DecompressionError):
            converted.append(None)
            unfit.setdefault(i, {})[path] = value
    return pa.array(converted, to_arrow_type(field.kind))


# --- Table router ---

_MAX_BATCH_ROWS = 8192
_TABLE_MEMORY_DIVISOR, _TOTAL_MEMORY_DIVISOR = 32, 8
"""Pending rows of one table, and of all tables, use at most these fractions of the memory limit."""
_MAX_NAMED_TABLES = 8
_BATCH_MEMORY_FACTOR = 2
"""Memory for building a batch, as a multiple of the size of its rows."""


class TableRowSink(Protocol):
    """Receives the rows of tables. name: of a table, or DAMAGE for rows that belong to none."""

    def set_table(self, name: str, table: TableSchema, place: str) -> None:
        """Set the definition of a table that is valid from this place in the log."""

    def add_batch(self, name: str, table_batch: TableBatch) -> None:
        """Receive rows of a table."""

    def report_finding(self, file: str, finding: Finding) -> None:
        """Receive a finding about a record."""


class _PendingMemory(msgspec.Struct):
    """Approximate memory of the pending rows of all tables, in bytes."""

    bytes: int = 0


class _PendingRows:
    """Rows of one table that will become a batch, as dictionaries or as cells."""

    def __init__(self, name: str, sink: TableRowSink, limits: Limits, pending_memory: _PendingMemory) -> None:
        self.name, self._sink, self._limits, self._pending_memory = name, sink, limits, pending_memory
        self.filled: CellBuffer | None = None
        self._start = self._stop = 0
        self._runs: list[TableRun | EventRowsColumns] = []
        self.fields: tuple[TypedColumn, ...] = ()
        self.table: TableSchema | None = None
        self.rows: list[dict[str, Any]] = []
        self.size = 0

    def flush(self) -> None:
        """Build a batch of the pending rows, and pass it on."""
        if self.rows:
            limits_module.require_bytes(_BATCH_MEMORY_FACTOR * self.size)
            self._pending_memory.bytes -= self.size
            rows, self.rows, self.size = self.rows, [], 0
            self._sink.add_batch(self.name, build_table_batch(self.fields, rows))
        if self.filled is not None:
            table_batch = build_batch_from_cells(
                self.filled, self._start, self._stop, self._runs, self.fields, self._limits
            )
            self._sink.add_batch(self.name, table_batch)
            self.filled, self._runs = None, []

    def add_cells(self, filled: CellBuffer, start: int, size: int, run: TableRun | EventRowsColumns) -> None:
        """Add `size` rows of cells from `start`."""
        if filled is not self.filled or start != self._stop or self.rows:
            self.flush()
            self.filled, self._start = filled, start
        self._stop = start + size
        self._runs.append(run)

    def set_table(self, table: TableSchema, place: str) -> None:
        """Set the definition of the table for the following rows. place: in the log, as text."""
        if self.table is None or self.table.columns != table.columns:
            self.flush()
            self.fields = tuple(TypedColumn(c.name, c.type) for c in table.columns)
        self._sink.set_table(self.name, table, place)
        self.table = table


class TableRouter:
    """Takes blocks and row batches of `Log.table_rows` and `Log.row_batches`, and passes their rows to a sink.

    keeps_undecoded: create rows for records that cannot be decoded.

    Attributes:
        seen: tables of the log, selected or not.
        remarks: texts about changes of tables, with their place; at most MAX_LISTED_FINDINGS.
        untold: number of records whose rows are not in the log.
        others: number of further such records, of tables that are not selected.
        taken: number of rows by file.
    """

    def __init__(
        self, options: TypedRowOptions, sink: TableRowSink, limits: Limits, *, keeps_undecoded: bool = True
    ) -> None:
        self.seen: dict[str, TableSchema] = {}
        self.remarks: list[str] = []
        self.unlogged_records = self.other_unlogged_records = 0
        self._remarked_tables = set[str]()
        self.rows_by_file = Counter[str]()
        self._options, self._sink, self._limits, self._keeps_undecoded = options, sink, limits, keeps_undecoded
        self._tables: dict[str, _PendingRows] = {}
        self._last: tuple[Any, Any] | None = None
        self._row_condition = None if options.where is None else make_row_condition(options.where)
        self._condition_columns = None if options.where is None else ColumnTracker(options.where)
        self._skipped_rows, self._pending_memory = 0, _PendingMemory()
        self._max_table_bytes, self._max_total_bytes = (
            limits.max_memory // _TABLE_MEMORY_DIVISOR,
            limits.max_memory // _TOTAL_MEMORY_DIVISOR,
        )
        self.is_selected = TableFilter(options)

    def read_log(
        self, log: LogReader, selection: Selection, known_tables: Sequence[TableSchema]
    ) -> Iterator[RowBatch | RecordBlock | FileFinding]:
        """Return the parts of a log in the fastest form that the options allow.

        known_tables: tables described by other files.
        """
        if self._row_condition is None and not self._options.skip and self._options.limit is None:
            return log.row_batches(selection, known_tables=known_tables, is_selected=self.is_selected)
        needs_rows = self._options.skip or (
            self._row_condition is not None and self._row_condition.condition.needs_body
        )
        return log.table_rows(selection, known_tables=known_tables, cells=not needs_rows, is_selected=self.is_selected)

    @property
    def is_full(self) -> bool:
        """True if the limit of rows is reached."""
        return self._options.limit is not None and self.rows_by_file.total() >= self._options.limit

    def add_block(self, block: RecordBlock) -> None:
        """Route the rows of a block of records."""
        if self._row_condition is not None:
            self._row_condition.set_block(block)
        for i, content in enumerate(block.bodies):
            if content is not None and content.begins:
                self._last = None
            if content is not None and content.described:
                self._note_tables(content.described)
            if block.findings.get(i) or (content is not None and _has_content(content)):
                self._add_record(block, i, RecordTableRows() if content is None else content)

    def add_row_batch(self, crowd: RowBatch) -> None:
        """Route the rows of a batch of records that compiled code decoded."""
        events = crowd.rows
        self._note_tables(events.described)
        if events.closes:
            self._mark_transaction_end()
        elif events.begins:
            self._last = None
        for run in events.runs:
            first = run.event_numbers[0]
            place = f"{record_rows.printable_path(crowd.file)} at {crowd.base + events.offsets[first]:,}"
            pending = self._pending_for_table(run.buffer.table, place)
            event_columns = build_event_columns(events, run, pending.fields, crowd)
            size = int(event_columns.sizes.sum())
            pending.add_cells(run.buffer, run.start, size, event_columns)
            self.rows_by_file[crowd.file] += size
            if run.event_numbers[-1] == len(events.record_indexes) - 1:
                self._last = (event_columns.commits, -1) if events.open else None

    def _note_tables(self, tables: Iterable[TableSchema]) -> None:
        """Note tables that the log contains."""
        for table in tables:
            self.seen[table.name] = table
            if self._condition_columns is not None:
                self._condition_columns.add_columns(column.name for column in table.columns)

    def flush(self) -> None:
        """Build batches of all pending rows."""
        for pending in self._tables.values():
            pending.flush()

    def _add_record(self, block: RecordBlock, i: int, content: RecordTableRows) -> None:
        if content.changes is not None and not self._options.may_be_selected(content.changes):
            content = self._note_other_table(block, i, content, content.changes)
        findings = tuple(filter(self._options.is_relevant, (*block.findings.get(i, ()), *content.findings)))
        meta = _record_metadata(block, i, content, findings) | {
            "commit": False if _has_transaction_ends(block.format) else None
        }
        if content.remark and len(self.remarks) < MAX_LISTED_FINDINGS:
            self.remarks.append(f"{_format_place(block, i)}: {content.remark}")
        for finding in findings:
            self._sink.report_finding(block.file, finding)
        if (
            max((one.severity for one in findings), default=0) > Severity.NOTE
            and not content.rows
            and not content.cells
        ):
            self.unlogged_records += any(one.severity is Severity.ERROR for one in findings)
            self._add_undecoded_record(meta, block.envelope.object[i])
        if content.cells is not None:
            self._add_cells(content.cells, meta, block, i)
        for row_index, row in self._select_rows(content.rows, i):
            self._add_row(row, meta | {"row": row_index}, block, i)
        if content.ends:
            self._mark_transaction_end()

    def _note_other_table(
        self, block: RecordBlock, i: int, content: RecordTableRows, table: TableSchema
    ) -> RecordTableRows:
        """Note an unlogged change of a table that is not selected, and drop its findings except notes."""
        self.other_unlogged_records += 1
        self._last = None
        if table.name not in self._remarked_tables and len(self.remarks) < MAX_LISTED_FINDINGS:
            self._remarked_tables.add(table.name)
            self.remarks.append(f"{_format_place(block, i)}: {describe_other_table(table.name)}")
        return structs.replace(
            content, findings=tuple(one for one in content.findings if one.severity is Severity.NOTE)
        )

    def _mark_transaction_end(self) -> None:
        """Mark the last row as the end of its transaction."""
        if self._last is not None:
            row, commit_key = self._last
            row[commit_key] = True
        self._last = None

    def _select_rows(self, rows_of_record: Sequence[TableRow], i: int) -> Iterator[tuple[int, TableRow]]:
        """Yield the selected rows of a record, with their indexes in it."""
        matches: bool | Sequence[bool] = True
        if self._row_condition is not None and rows_of_record:
            matches = self._row_condition.select_rows(
                i, lambda: {"rows": [{"before": r.before, "after": r.after} for r in rows_of_record]}
            )
        for row_index, row in enumerate(rows_of_record):
            if self.seen.get(row.table.name) is not row.table:
                self._note_tables((row.table,))
            if not self.is_selected(row.table) or not (matches if isinstance(matches, bool) else matches[row_index]):
                continue
            if self._skipped_rows < self._options.skip:
                self._skipped_rows += 1
            elif not self.is_full:
                yield row_index, row

    def _add_cells(self, cells: CellSlice, meta: dict[str, Any], block: RecordBlock, i: int) -> None:
        """Add the rows of a record that compiled code decoded."""
        filled, limit = cells.buffer, self._options.limit
        row_count = cells.size if limit is None else min(cells.size, limit - self.rows_by_file.total())
        if (
            not row_count
            or not self.is_selected(filled.table)
            or (self._row_condition and not self._row_condition.select_rows(i, dict))
        ):
            return
        pending = self._pending_for_table(filled.table, _format_place(block, i))
        row_meta = meta | {"op": OPERATION_BY_SIDES[cells.sides]}
        self._last = row_meta, "commit"
        if cells.absent:
            row_meta["absent"] = absent_paths(cells.absent, pending.fields)
        pending.add_cells(filled, cells.start, row_count, TableRun(row_count, cells.sides, row_meta))
        self.rows_by_file[block.file] += row_count

    def _add_row(self, row: TableRow, meta: dict[str, Any], block: RecordBlock, i: int) -> None:
        pending = self._pending_for_table(row.table, _format_place(block, i))
        size, pending_memory = estimate_row_bytes(row), self._pending_memory
        if (
            pending.filled is not None
            or len(pending.rows) >= _MAX_BATCH_ROWS
            or pending.size + size > self._max_table_bytes
        ):
            pending.flush()
        if pending_memory.bytes + size > self._max_total_bytes:
            self.flush()
        row_values = meta | to_cells(row, pending.fields) | {"op": row.op}
        self._last = row_values, "commit"
        pending.rows.append(row_values)
        self.rows_by_file[block.file] += 1
        pending.size += size
        pending_memory.bytes += size

    def _pending_for_table(self, table: TableSchema, place: str) -> _PendingRows:
        """Return the pending rows of a table, after setting its current definition."""
        pending = self._get_pending(display_name(table.name))
        if pending.table is not table:
            check_same_table(pending.table or table, table)
            pending.set_table(table, place)
        return pending

    def _get_pending(self, name: str) -> _PendingRows:
        if not self._options.per_table:
            name = next(iter(self._tables), name)
        if name not in self._tables:
            self._tables[name] = _PendingRows(name, self._sink, self._limits, self._pending_memory)
        return self._tables[name]

    # -- rows without a table --------------------------------------------------------------------------------------

    def _add_undecoded_record(self, meta: dict[str, Any], name: str | None) -> None:
        """Add a row for a record whose rows are unknown; one of them may have been the last of its transaction."""
        self._last = None
        if self._keeps_undecoded:
            pending = self._tables.get(display_name(name)) if name is not None else None
            self._add_row_without_images(pending or self._pending_for_damage(), meta)

    def note_damage(self, trouble: FileFinding) -> None:
        """Note unreadable bytes, which may have contained the end of the open transaction."""
        if trouble.finding.severity is Severity.ERROR:
            self._last = None

    def add_damage_row(self, trouble: FileFinding) -> None:
        """Add a row for bytes that could not be read."""
        meta = {
            "op": record_rows.DAMAGE,
            "file": record_rows.printable_path(trouble.file),
            "offset": trouble.finding.offset,
        }
        self._add_row_without_images(
            self._pending_for_damage(), meta | {"findings": findings_to_json([trouble.finding])}
        )

    def _pending_for_damage(self) -> _PendingRows:
        """Return where rows without a table go: DAMAGE, or the table if there is only one."""
        return self._get_pending(record_rows.DAMAGE if self._options.per_table else self._options.objects[0])

    def _add_row_without_images(self, pending: _PendingRows, meta: dict[str, Any]) -> None:
        if pending.filled is not None:
            pending.flush()
        pending.rows.append(meta | {"before": None, "after": None})

    # -- the end -------------------------------------------------------------------------------------------------------

    def check_tables_exist(self) -> None:
        """Raise UsageError if a pattern matches no table of the log."""
        self._note_tables(one.table for one in self._tables.values() if one.table is not None)
        for pattern in self._options.objects:
            if not any(self._options.with_pattern(pattern).is_selected(one) for one in self.seen.values()):
                message = describe_missing_table(self.seen, pattern)
                if count := self.unlogged_records + self.other_unlogged_records:
                    message += (
                        f" (it also does not contain which rows {count:,} statements changed, because of binlog_format)"
                    )
                raise UsageError(f"--object {pattern}: {message}")

    def check_columns_exist(self) -> None:
        """Raise UsageError if no row was selected and no table has a column that the condition names."""
        if self._condition_columns is not None and not self.rows_by_file.total() and not self._skipped_rows:
            self._condition_columns.require_known()


def describe_missing_table(tables: Iterable[str], name: str = "") -> str:
    """Return a text that a table is not among these, with the most similar names."""
    names = sorted(tables)
    if suggestion := suggest_names(name, names):
        return f"the log contains no such table{suggestion}"
    ellipsis = ", …" if names[_MAX_NAMED_TABLES:] else ""
    listing = f"it has {', '.join(names[:_MAX_NAMED_TABLES])}{ellipsis}" if names else "it has none"
    return f"the log contains no such table; {listing}"


def _record_metadata(
    block: RecordBlock, i: int, content: RecordTableRows, findings: tuple[Finding, ...]
) -> dict[str, Any]:
    envelope = block.envelope
    return {
        "op": envelope.type[i],
        "seq": _fit_int64(envelope.seq[i]),
        "txn": None if envelope.txn[i] is None else str(envelope.txn[i]),
        "time": _fit_int64(envelope.time[i] if content.time is None else content.time),
        "server": _fit_int64(envelope.origin[i]),
        "file": record_rows.printable_path(block.file),
        "record": int(block.record[i]),
        "offset": int(block.offset[i]),
        "findings": findings_to_json(findings),
    }


@functools.cache
def _has_transaction_ends(format: str) -> bool:
    """Return True if logs of this format contain the end of transactions."""
    rules = open_file_module.find_format(format).tables
    return rules is None or rules().transactions


def _fit_int64(value: int | None) -> int | None:
    """Return a number that fits a signed 64-bit column; otherwise None."""
    return value if value is not None and -1 << 63 <= value < 1 << 63 else None


def _has_content(content: RecordTableRows) -> bool:
    return bool(content.rows or content.cells or content.ends or content.findings or content.remark)


def _format_place(block: RecordBlock, i: int) -> str:
    return f"{record_rows.printable_path(block.file)} at {int(block.offset[i]):,}"
