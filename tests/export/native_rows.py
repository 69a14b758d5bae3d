"""Rows of a log by compiled code, which must be those of the general way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from binlogtool.core.record_and_selection_types import Selection
from binlogtool.export import records_to_arrow
from binlogtool.export.manifest import ReadRequest, TaskFile
from binlogtool.export.read_rows_of_one_file import read_file_rows
from binlogtool.limits import Limits


def table(
    path: Path,
    backend: str,
    shown: records_to_arrow.RowLayout = records_to_arrow.DEFAULT_LAYOUT,
    selection: Selection = Selection(),
) -> pa.Table:
    request = ReadRequest((), 1, backend, Limits(), selection)
    batches = list(read_file_rows(TaskFile(str(path), "log", "auto", 0), request, reader=shown))
    for batch in batches:
        batch.validate(full=True)
        assert 0 < batch.num_rows <= records_to_arrow.MAX_BATCH_ROWS
    return pa.Table.from_batches(batches, schema=shown.read_schema)


def same(
    path: Path, shown: records_to_arrow.RowLayout = records_to_arrow.DEFAULT_LAYOUT, selection: Selection = Selection()
) -> pa.Table:
    made = table(path, "native", shown, selection)
    assert made.equals(table(path, "python", shown, selection))
    return made
