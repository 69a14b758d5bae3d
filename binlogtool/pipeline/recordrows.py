"""Records of a log as rows for notebooks (`notebook.RowSource`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from binlogtool.log.open import LogReader
from binlogtool.log.parts import WHOLE_FILE
from binlogtool.log.records import FileFinding, RecordBlock
from binlogtool.log.select import Selection
from binlogtool.pipeline.making import read_row_parts
from binlogtool.pipeline.rows import RowLayout


class RecordRowSource:
    """Yields one row for each record (`pipeline.rows`); damage is not a row."""

    def __init__(self, view: RowLayout, selection: Selection) -> None:
        self._view, self._selection = view, selection

    def read_schema(self, log: LogReader) -> pa.Schema:
        """Return the schema; see `notebook.RowSource`."""
        return self._view.read_schema

    def build_batches(self, log: LogReader, on_finding: Callable[[FileFinding], None]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one pass; see `notebook.RowSource`."""
        for part in read_row_parts(log, None, self._selection, WHOLE_FILE, self._view):
            if isinstance(part, FileFinding):
                on_finding(part)
            elif isinstance(part, RecordBlock):
                for findings in part.findings.values():
                    for finding in findings:
                        on_finding(FileFinding(part.file, finding))
                yield from self._view.build_batches(part)
            else:
                yield part
