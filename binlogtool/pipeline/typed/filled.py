"""Table batches from column buffers that compiled code filled (`formats.tables.Cells`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import CodecError
from binlogtool.formats.tables import CellRows, CellRun, ColumnCells, Events
from binlogtool.limits import Limits
from binlogtool.log.body_json import json_text
from binlogtool.log.records import Crowd
from binlogtool.pipeline import rows
from binlogtool.pipeline.cells import arrow_type
from binlogtool.pipeline.images import IMAGES, maker
from binlogtool.pipeline.object_columns import Field
from binlogtool.pipeline.typed.batches import META, META_FIELDS, REST_FIELDS, Piece, piece_schema


class Run(NamedTuple):
    """Rows of one event.

    size: number of rows. sides: their images (1 = before, 2 = after, 3 = both). meta: metadata and trailing values of
      all of
    them; `commit` is that of the last row.
    """

    size: int
    sides: int
    meta: dict[str, Any]


class Runs(NamedTuple):
    """Rows of many events as numpy and Arrow arrays with one entry per event.

    meta: metadata columns except row and commit. rest: trailing columns that any event has.
    """

    sizes: Any
    sides: Any
    commits: Any
    meta: dict[str, pa.Array]
    rest: dict[str, pa.Array]


_OWN = ("row", "commit")
_KINDS = {field.name: field.type for field in META_FIELDS if field.name not in _OWN}
_REST = {field.name: field.type for field in REST_FIELDS if field.name != "unfit"}
OPS = {1: "DELETE", 2: "INSERT", 3: "UPDATE"}
"""Operation of rows with these images (1 = before, 2 = after, 3 = both)."""
_OPS = pa.array([None, *OPS.values()], pa.string())


def runs_of(told: Events, run: CellRun, fields: Sequence[Field], crowd: Crowd) -> Runs:
    """Return the metadata of the rows of one run of a row batch."""
    picks = np.asarray(run.picks)

    def of(values: Any) -> Any:
        return np.asarray(values)[picks]

    kinds, layouts, times = told.kinds, of(told.layouts), of(told.times)
    sides = np.array([side for side, _ in kinds], dtype=np.uint8)[layouts]
    seq, txn = _transactions(told, of(told.owners), of(told.serials))
    meta = {
        "op": _OPS.take(pa.array(sides)),
        "seq": seq,
        "txn": txn,
        "time": pa.array(times, pa.int64(), mask=times < 0).cast(_KINDS["time"]),
        "server": pa.array(of(told.origins)),
        "file": pa.repeat(pa.scalar(rows.file_name(crowd.file), pa.string()), len(picks)),
        "record": pa.array(of(told.which) + crowd.record),
        "offset": pa.array(of(told.places) + crowd.base),
    }
    rest = {}
    own = set(np.unique(layouts).tolist())  # the others are those of other tables
    if any(kinds[i][1] for i in own):
        lists = [absent_of(columns, fields) if i in own else None for i, (_, columns) in enumerate(kinds)]
        rest["absent"] = pa.array(lists, _REST["absent"]).take(pa.array(layouts))
    return Runs(of(told.sizes), sides, of(told.commits), meta, rest)


def _transactions(told: Events, owners: Any, serials: Any) -> tuple[pa.Array, pa.Array]:
    """Return the columns seq and txn."""
    which, plain = pa.array(owners, mask=owners < 0), serials >= 0
    texts = pa.array([text for text, _ in told.sources], pa.string()).take(which)
    numbers = pa.array(serials, mask=~plain | (owners < 0))
    if plain.all():
        return numbers, compute.binary_join_element_wise(texts, numbers.cast(pa.string()), "")
    known = [seq if seq is not None and -1 << 63 <= seq < 1 << 63 else None for _, seq in told.sources]
    seqs = compute.coalesce(numbers, pa.array(known, pa.int64()).take(which))
    ends = compute.coalesce(numbers.cast(pa.string()), pa.scalar(""))
    return seqs, compute.binary_join_element_wise(texts, ends, "")


def absent_of(columns: Sequence[tuple[int, int]], fields: Sequence[Field]) -> list[str] | None:
    """Return the paths of absent columns (`Cells.absent`)."""
    return [f"{IMAGES[side]}.{fields[index].name}" for side, index in columns] or None


def piece_of_cells(
    filled: CellRows,
    start: int,
    stop: int,
    runs: Sequence[Run | Runs],
    fields: tuple[Field, ...],
    limits: Limits,
) -> Piece:
    """Build a batch of the rows `[start, stop)`."""
    unfit, one = dict[int, dict[str, Any]](), _joined(list(_together(runs)))
    sides = np.repeat(one.sides, one.sizes)
    own = [pa.field(field.name, arrow_type(field.kind)) for field in fields]
    images = []
    for side, name in enumerate(IMAGES):
        there = sides >> side & 1
        if not there.any():
            images.append(pa.nulls(stop - start, pa.struct(own)))
            continue
        columns = [
            _column(filled.column(i, side, start, stop), field, f"{name}.{field.name}", unfit, limits)
            for i, field in enumerate(fields)
        ]
        mask = None if there.all() else pa.array(there == 0)
        images.append(pa.StructArray.from_arrays(columns, fields=own, mask=mask))
    places = None if (one.sizes == 1).all() else pa.array(np.repeat(np.arange(len(one.sizes)), one.sizes))
    made = [*_meta(one, places), *images, *_rest(one, places, unfit, stop - start)]
    return Piece(fields, pa.RecordBatch.from_arrays(made, schema=piece_schema(fields)))


def _together(runs: Sequence[Run | Runs]) -> Iterator[Runs]:
    """Yield runs as columns; consecutive single events are combined."""
    single = list[Run]()
    for run in runs:
        if isinstance(run, Run):
            single.append(run)
            continue
        if single:
            yield _of_single(single)
            single = []
        yield run
    if single:
        yield _of_single(single)


def _of_single(runs: Sequence[Run]) -> Runs:
    sizes, sides = np.array([run.size for run in runs]), np.array([run.sides for run in runs], dtype=np.uint8)
    commits = np.array([bool(run.meta["commit"]) for run in runs], dtype=np.int64)
    meta = {name: _array([run.meta[name] for run in runs], kind) for name, kind in _KINDS.items()}
    rest = {
        name: pa.array([run.meta.get(name) for run in runs], kind)
        for name, kind in _REST.items()
        if any(run.meta.get(name) for run in runs)
    }
    return Runs(sizes, sides, commits, meta, rest)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if all(value == values[0] for value in values):
        return pa.repeat(pa.scalar(values[0], kind), len(values))
    return pa.array(values, kind)


def _joined(runs: Sequence[Runs]) -> Runs:
    if len(runs) == 1:
        return runs[0]
    sizes, sides, commits = (np.concatenate(one) for one in list(zip(*runs, strict=True))[:3])
    meta = {name: pa.concat_arrays([run.meta[name] for run in runs]) for name in _KINDS}
    rest = {
        name: pa.concat_arrays([run.rest[name] if name in run.rest else pa.nulls(len(run.sizes), kind) for run in runs])
        for name, kind in _REST.items()
        if any(name in run.rest for run in runs)
    }
    return Runs(sizes, sides, commits, meta, rest)


def _of_rows(column: pa.Array, places: pa.Array | None) -> pa.Array:
    """Return a column with one value per row from one with a value per event."""
    return column if places is None else column.take(places)


def _rest(one: Runs, places: pa.Array | None, unfit: dict[int, dict[str, Any]], count: int) -> Iterator[pa.Array]:
    """Yield the trailing columns: unfit values, absent columns, findings."""
    for field in REST_FIELDS:
        if field.name == "unfit" and unfit:
            yield pa.array([json_text(unfit[i]) if i in unfit else None for i in range(count)], field.type)
        elif field.name in one.rest:
            yield _of_rows(one.rest[field.name], places)
        else:
            yield pa.nulls(count, field.type)


def _meta(one: Runs, places: pa.Array | None) -> Iterator[pa.Array]:
    ends = np.cumsum(one.sizes)
    for name, _ in META:
        if name == "row":
            yield pa.array((np.arange(ends[-1]) - np.repeat(ends - one.sizes, one.sizes)).astype(np.int32))
        elif name == "commit":
            marks = np.zeros(ends[-1], dtype=bool)
            marks[ends[one.commits != 0] - 1] = True
            yield pa.array(marks)
        else:
            yield _of_rows(one.meta[name], places)


def _column(cells: ColumnCells, field: Field, path: str, unfit: dict[int, dict[str, Any]], limits: Limits) -> pa.Array:
    kind, there = arrow_type(field.kind), np.asarray(cells.valid)
    valid = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little").tobytes())
    values = np.asarray(cells.values)
    if cells.leaf is not None:
        return _leaves(cells, there, field, path, unfit, limits)
    if cells.data is not None:
        first, last = int(values[0]), int(values[-1])
        data, ends = pa.py_buffer(bytes(cells.data[first:last])), (values - first).astype(np.int32)
        return pa.Array.from_buffers(kind, len(there), [valid, pa.py_buffer(ends.tobytes()), data])
    if cells.texts is not None:
        return _chosen(values, there, cells.texts, kind)
    return pa.Array.from_buffers(kind, len(there), [valid, pa.py_buffer(_narrow(values, kind).tobytes())])


def _narrow(values: Any, kind: pa.DataType) -> Any:
    if kind in (pa.int32(), pa.date32()):
        return values.astype(np.int32)
    return values.astype(np.uint32) if kind == pa.float32() else values


def _chosen(values: Any, there: Any, texts: Sequence[str], kind: pa.DataType) -> pa.Array:
    """Convert numbers of an ENUM or SET to their texts."""
    if pa.types.is_list(kind):
        masks, which = np.unique(np.where(there, values, 0), return_inverse=True)
        lists = [[text for bit, text in enumerate(texts) if int(mask) >> bit & 1] for mask in masks]
        known = pa.array(lists, kind)
    else:
        known, which = pa.array(["", *texts], kind), values
    return known.take(pa.array(np.where(there, which, 0), mask=~there.astype(bool)))


def _leaves(
    cells: ColumnCells, there: Any, field: Field, path: str, unfit: dict[int, dict[str, Any]], limits: Limits
) -> pa.Array:
    """Convert values one by one; those that the column cannot hold go to `unfit`."""
    make, made = maker(field.kind), list[Any]()
    assert cells.leaf is not None and cells.data is not None
    for i, is_there in enumerate(there.tolist()):
        if not is_there:
            made.append(None)
            continue
        raw = bytes(cells.data[cells.values[i] : cells.values[i + 1]])
        value: Any = raw
        try:
            value = cells.leaf(raw, limits)
            made.append(make(value))
        except (ValueError, TypeError, ArithmeticError, MalformedError, CodecError):
            made.append(None)
            unfit.setdefault(i, {})[path] = value
    return pa.array(made, arrow_type(field.kind))
