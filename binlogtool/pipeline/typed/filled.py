"""Table batches from column buffers that compiled code filled (`formats.tables.CellSlice`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import DecompressionError
from binlogtool.formats.tables import CellBuffer, CellRun, ColumnCells, EventRows
from binlogtool.limits import Limits
from binlogtool.log.body_json import to_json_text
from binlogtool.log.records import RowBatch
from binlogtool.pipeline import rows
from binlogtool.pipeline.cells import to_arrow_type
from binlogtool.pipeline.images import IMAGES, get_cell_converter
from binlogtool.pipeline.object_columns import TypedColumn
from binlogtool.pipeline.typed.batches import (
    METADATA_COLUMNS,
    METADATA_FIELDS,
    TRAILING_FIELDS,
    TableBatch,
    batch_schema,
)


class TableRun(NamedTuple):
    """Rows of one event.

    size: number of rows. sides: their images (1 = before, 2 = after, 3 = both). meta: metadata and trailing values of
      all of
    them; `commit` is that of the last row.
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
        "file": pa.repeat(pa.scalar(rows.printable_path(row_batch.file), pa.string()), len(picks)),
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
