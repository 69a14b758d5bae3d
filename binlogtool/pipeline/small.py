"""Small jobs: starting Spark's Python workers would take longer than the work.

So their rows are built in this process, by the reader that executors use, and handed to Spark as one Arrow table.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from binlogtool import memory
from binlogtool.errors import LimitError
from binlogtool.formats.detecting import Hints
from binlogtool.limits import MIB
from binlogtool.pipeline import notes, rows
from binlogtool.pipeline.account import FindingTally
from binlogtool.pipeline.datasource import BinlogReader
from binlogtool.pipeline.handing import RowTotals, total_rows
from binlogtool.pipeline.request import ReadRequest
from binlogtool.pipeline.writers.table_form import TableFileOptions

MAX_INPUT_BYTES = 4 * MIB
"""Maximum total size of the files of a small job."""

MAX_OUTPUT_BYTES = 64 * MIB
"""Maximum size of its rows in memory; a compressed log may exceed it."""

MAX_INPUT_FILES = 256


class SmallJobRows(msgspec.Struct, frozen=True):
    """Rows of all files, in order, and the notes that no row represents."""

    rows: pa.Table
    note_tally: FindingTally

    def row_totals(self, file_options: TableFileOptions) -> RowTotals:
        """Return the totals of the rows that Spark gets."""
        return total_rows(self.rows, file_options)


def is_small_job(sizes: Sequence[int]) -> bool:
    """Return True if files of these sizes (bytes) are a small job."""
    return len(sizes) <= MAX_INPUT_FILES and sum(sizes) <= MAX_INPUT_BYTES


def build_small_job_rows(request: ReadRequest, hints: Hints | None, deadline: float | None) -> SmallJobRows | None:
    """Build the rows of a request; None if they are too large for this path. deadline: deadline (`time.monotonic`).

    Raises:
        LimitError: the deadline passed.
    """
    note_tally, batches, size = FindingTally(), list[pa.RecordBatch](), 0
    memory.set_resident_ceiling()
    with tempfile.TemporaryDirectory(prefix="binlogtool-") as folder:
        notes_folder = Path(folder) / notes.FOLDER
        reader = BinlogReader(replace(request, groups=1, notes=str(notes_folder)), hints)
        for group in reader.partitions():
            for batch in reader.read(group):
                batches.append(batch)
                size += batch.nbytes
                if size > MAX_OUTPUT_BYTES:
                    return None
                if deadline is not None and time.monotonic() > deadline:
                    raise LimitError("the time limit ended the work")
        notes.collect_notes(notes_folder, note_tally)
    return SmallJobRows(pa.Table.from_batches(batches, rows.SCHEMA), note_tally)
