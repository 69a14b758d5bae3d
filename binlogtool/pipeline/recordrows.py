"""Records of a log as rows for notebooks (`notebook.RowSource`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from binlogtool.log.open import Log
from binlogtool.log.parts import WHOLE
from binlogtool.log.records import Block, Trouble
from binlogtool.log.select import Selection
from binlogtool.pipeline.making import made_of
from binlogtool.pipeline.rows import View


class RecordRows:
    """Yields one row for each record (`pipeline.rows`); damage is not a row."""

    def __init__(self, view: View, selection: Selection) -> None:
        self._view, self._selection = view, selection

    def schema(self, log: Log) -> pa.Schema:
        """Return the schema; see `notebook.RowSource`."""
        return self._view.schema

    def batches(self, log: Log, found: Callable[[Trouble], None]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one pass; see `notebook.RowSource`."""
        for one in made_of(log, None, self._selection, WHOLE, self._view):
            if isinstance(one, Trouble):
                found(one)
            elif isinstance(one, Block):
                for each in one.findings.values():
                    for finding in each:
                        found(Trouble(one.file, finding))
                yield from self._view.batches(one)
            else:
                yield one
