"""Columns of memory that compiled code filled (`formats.tables.Cells`) as pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from binlogtool.formats.base import CodecError
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.tables import CellRows, ColumnCells
from binlogtool.limits import Limits
from binlogtool.log.bodies import json_text
from binlogtool.pipeline.cells import arrow_type
from binlogtool.pipeline.described import Field
from binlogtool.pipeline.images import IMAGES, maker
from binlogtool.pipeline.typed.pieces import META, META_FIELDS, REST_FIELDS, Piece, piece_schema


class Run(NamedTuple):
    """The rows of an event: how many, their images (1 = before, 2 = after, 3 = both), and what stands in META and REST
    of all of them; its `commit` is that of the last one."""

    size: int
    sides: int
    meta: dict[str, Any]


def piece_of_cells(
    filled: CellRows, start: int, stop: int, runs: Sequence[Run], fields: tuple[Field, ...], limits: Limits
) -> Piece:
    """The rows `[start, stop)`."""
    unfit = dict[int, dict[str, Any]]()
    counts = np.array([run.size for run in runs])
    sides = np.repeat(np.array([run.sides for run in runs], dtype=np.uint8), counts)
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
    made = [*_meta(runs, counts), *images, *_rest(runs, counts, unfit)]
    return Piece(fields, pa.RecordBatch.from_arrays(made, schema=piece_schema(fields)))


def _rest(runs: Sequence[Run], counts: Any, unfit: dict[int, dict[str, Any]]) -> Iterator[pa.Array]:
    """What does not fit and what is absent; nothing else is told of these rows."""
    total = int(counts.sum())
    for field in REST_FIELDS:
        if field.name == "unfit" and unfit:
            yield pa.array([json_text(unfit[i]) if i in unfit else None for i in range(total)], field.type)
        elif field.name == "absent" and any("absent" in run.meta for run in runs):
            yield _repeated([run.meta.get("absent") for run in runs], field.type, counts)
        else:
            yield pa.nulls(total, field.type)


def _meta(runs: Sequence[Run], counts: Any) -> list[pa.Array]:
    ends = np.cumsum(counts)
    made = []
    for (name, _), field in zip(META, META_FIELDS, strict=True):
        if name == "row":
            made.append(pa.array((np.arange(ends[-1]) - np.repeat(ends - counts, counts)).astype(np.int32)))
        elif name == "commit":
            marks = np.zeros(ends[-1], dtype=bool)
            marks[ends[[bool(run.meta["commit"]) for run in runs]] - 1] = True
            made.append(pa.array(marks))
        else:
            made.append(_repeated([run.meta[name] for run in runs], field.type, counts))
    return made


def _repeated(values: list[Any], kind: pa.DataType, counts: Any) -> pa.Array:
    """Each value so many times."""
    if all(value == values[0] for value in values):
        return pa.repeat(pa.scalar(values[0], kind), int(counts.sum()))
    if (not pa.types.is_integer(kind) and not pa.types.is_timestamp(kind)) or None in values:
        return pa.array(values, kind).take(pa.array(np.repeat(np.arange(len(values)), counts)))
    return pa.array(np.repeat(np.array(values, dtype=np.int64), counts)).cast(kind)


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
    """Numbers of an ENUM or SET as their texts."""
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
    """Values that are made one by one."""
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
