"""Rows of a log by compiled code, which must be those of the general way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from binlogtool.limits import Limits
from binlogtool.log.select import Selection
from binlogtool.pipeline import rows
from binlogtool.pipeline.datasource import read_member
from binlogtool.pipeline.request import ReadRequest
from binlogtool.pipeline.tasks import TaskFile


def table(
    path: Path, backend: str, shown: rows.RowLayout = rows.DEFAULT_LAYOUT, selection: Selection = Selection()
) -> pa.Table:
    request = ReadRequest((), 1, backend, Limits(), selection)
    batches = list(read_member(TaskFile(str(path), "log", "auto", 0), request, builder=shown))
    for batch in batches:
        batch.validate(full=True)
        assert 0 < batch.num_rows <= rows.MAX_BATCH_ROWS
    return pa.Table.from_batches(batches, schema=shown.read_schema)


def same(path: Path, shown: rows.RowLayout = rows.DEFAULT_LAYOUT, selection: Selection = Selection()) -> pa.Table:
    made = table(path, "native", shown, selection)
    assert made.equals(table(path, "python", shown, selection))
    return made
