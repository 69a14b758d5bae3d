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
from binlogtool.pipeline.account import Account
from binlogtool.pipeline.datasource import BinlogReader
from binlogtool.pipeline.handing import Handed, counted
from binlogtool.pipeline.request import Request
from binlogtool.pipeline.writers.table_form import Shape

INPUT = 4 * MIB
"""Maximum total size of the files of a small job."""

OUTPUT = 64 * MIB
"""Maximum size of its rows in memory; a compressed log may exceed it."""

FILES = 256


class Made(msgspec.Struct, frozen=True):
    """Rows of all files, in order, and the notes that no row represents."""

    rows: pa.Table
    notes: Account

    def handed(self, shape: Shape) -> Handed:
        """Return the totals of the rows that Spark gets."""
        return counted(self.rows, shape)


def is_small(sizes: Sequence[int]) -> bool:
    """Return True if files of these sizes (bytes) are a small job."""
    return len(sizes) <= FILES and sum(sizes) <= INPUT


def made(request: Request, hints: Hints | None, end: float | None) -> Made | None:
    """Build the rows of a request; None if they are too large for this path. end: deadline (`time.monotonic`).

    Raises:
        LimitError: the deadline passed.
    """
    account, taken, size = Account(), list[pa.RecordBatch](), 0
    memory.keep_resident()
    with tempfile.TemporaryDirectory(prefix="binlogtool-") as folder:
        kept = Path(folder) / notes.FOLDER
        reader = BinlogReader(replace(request, groups=1, notes=str(kept)), hints)
        for group in reader.partitions():
            for batch in reader.read(group):
                taken.append(batch)
                size += batch.nbytes
                if size > OUTPUT:
                    return None
                if end is not None and time.monotonic() > end:
                    raise LimitError("the time limit ended the work")
        notes.take(kept, account)
    return Made(pa.Table.from_batches(taken, rows.SCHEMA), account)
