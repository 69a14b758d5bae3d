"""Rows of a log for notebooks: read on demand, anew for each use.

An object with `__arrow_c_stream__` is a table for DuckDB, polars, pandas and delta-rs; nothing is copied on the way.
"""

from __future__ import annotations

import glob
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as compute
from msgspec.structs import replace

from binlogtool.errors import MissingExtraError, UsageError
from binlogtool.log.records import Trouble
from binlogtool.log.select import Selection
from binlogtool.pipeline import rows
from binlogtool.pipeline.account import MAX_LISTED
from binlogtool.pipeline.recordrows import RecordRows
from binlogtool.pipeline.typed.notebook_rows import ChangedRows
from binlogtool.pipeline.typed.wishes import reach, wishes

if TYPE_CHECKING:
    import pandas
    import polars

    from binlogtool.pipeline.opened import Log
    from binlogtool.pipeline.typed.notebook_rows import OnFound


_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Range of `datetime` in microseconds: years 1 to 9999."""
_HELD = 8 << 20
"""Maximum bytes of small batches that are merged into one."""


class Maker(Protocol):
    """Reads a log as rows."""

    def schema(self, log: Log) -> pa.Schema:
        """Return the schema of the rows; called before any rows are read."""

    def batches(self, log: Log, found: OnFound) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one pass. found: receives findings with their file."""


class Rows:
    """Rows of a log, all with one schema. Each iteration, export and query reads the log anew.

    Damage is skipped and reported in `findings`: the content of a file raises no exception.
    """

    def __init__(self, log: Log, maker: Maker, columns: Sequence[str], title: str) -> None:
        self._log, self._maker, self._columns, self._title = log, maker, columns, title
        self._schema: pa.Schema | None = None
        self._found: tuple[Trouble, ...] | None = None

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns; those of a table are found by one pass over the log.

        Raises:
            UsageError: there is no such table or column.
            InputOutputError: a file cannot be read.
        """
        if self._schema is None:
            with self._log.again() as log:
                self._schema = _chosen(self._maker.schema(log), self._columns)
        return self._schema

    @property
    def findings(self) -> tuple[Trouble, ...]:
        """Findings about the log, as (file, finding); at most 1000.

        They are those of the last complete pass; if there was none yet, one is made.

        Raises:
            As `schema`.
        """
        if self._found is None:
            for _ in self._pass():
                pass
        return self._found or ()

    def batches(self, size: int = rows.MAX_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `size` rows; only a few of them are in memory at a time.

        Raises:
            UsageError: size is less than 1; and as `schema`.
            InputOutputError: a file cannot be read any more.
        """
        if size < 1:
            raise UsageError(f"batches of {size} rows: 1 is the least")
        return _sized(self._pass(), size)

    def _pass(self) -> Iterator[pa.RecordBatch]:
        names, found = self.schema.names, list[Trouble]()

        def add(one: Trouble) -> None:
            if len(found) < MAX_LISTED:
                found.append(one)

        with self._log.again() as log:
            for batch in self._maker.batches(log, add):
                yield batch.select(names)
        self._found = tuple(found)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dictionaries: times are `datetime`, decimals `Decimal`; a time after year 9999 is None."""
        for batch in self.batches():
            yield from _dictionaries(batch)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream of batches (Arrow PyCapsule interface)."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return all rows as a table in memory."""
        return pa.Table.from_batches(list(self.batches()), self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Return all rows as a pandas DataFrame in memory.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        _demand("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return all rows as a polars DataFrame in memory.

        Raises:
            MissingExtraError: polars is not installed.
        """
        _demand("polars")
        import polars

        return polars.DataFrame(self.to_arrow())  # keeps our own exceptions

    def __repr__(self) -> str:
        found = "" if self._found is None else f", {len(self._found):,} findings"
        return f"<rows of {self._title}{found}>"


def rows_of(log: Log, selection: Selection, table: str | None, image: str | None, columns: tuple[str, ...]) -> Rows:
    """Create the rows of a log; see `Log.rows`.

    Raises:
        UsageError: the options contradict each other.
    """
    if len(set(columns)) < len(columns):
        raise UsageError("columns: a name stands there twice")
    if table is None:
        if image is not None:
            raise UsageError(f"image={image!r} is for the rows of a table: name one")
        return Rows(log, RecordRows(rows.view(columns), selection), columns, "records")
    if selection.objects:
        raise UsageError(f"objects in the selection: the table is {table}; leave them out")
    chosen = replace(wishes(selection, image, per_table=False), objects=(glob.escape(table),), per_table=False)
    return Rows(log, ChangedRows(table, chosen, reach(selection)), columns, table)


def _demand(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        raise MissingExtraError(f"to_{library}() needs {library}: install it with `pip install {library}`")


def _chosen(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the selected columns.

    Raises:
        UsageError: there is no such column.
    """
    for name in columns:
        if name not in schema.names:
            near = get_close_matches(name, schema.names, 1)
            text = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(schema.names)}"
            raise UsageError(f"columns: there is no {name!r}; {text}")
    return pa.schema([schema.field(name) for name in columns]) if columns else schema


def _sized(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Merge small batches, and split large ones."""
    held, count, held_bytes = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        if held and (count + batch.num_rows > size or held_bytes > _HELD):
            yield _joined(held)
            held, count, held_bytes = [], 0, 0
        for start in range(0, batch.num_rows - size, size):
            yield batch.slice(start, size)
        rest = batch.slice((batch.num_rows - 1) // size * size) if batch.num_rows > size else batch
        if rest.num_rows:
            held.append(rest)
            count, held_bytes = count + rest.num_rows, held_bytes + rest.nbytes
    if held:
        yield _joined(held)


def _dictionaries(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return list(batch.to_pylist())
    except OverflowError:
        columns = [_datable(one) if pa.types.is_timestamp(one.type) else one for one in batch.columns]
        return list(pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist())


def _datable(times: pa.Array) -> pa.Array:
    """Return the times with those outside of `datetime`'s range as null."""
    numbers = times.cast(pa.int64())
    fits = compute.and_(compute.greater_equal(numbers, _FIRST), compute.less_equal(numbers, _LAST))
    return compute.if_else(fits, times, pa.scalar(None, times.type))


def _joined(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    return held[0] if len(held) == 1 else pa.concat_batches(held)
