"""Pass rows to Spark's writer with `mapInArrow`: the tasks of a job build them, count them, and hand them over as
Arrow.

Rows of a data source would be copied once more before they are written. PySpark's own mapInArrow requires pandas, which
is not needed here.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as compute
from pyspark.accumulators import AccumulatorParam

from binlogtool.pipeline import rows
from binlogtool.pipeline.writers import table_form
from binlogtool.pipeline.writers.table_form import TableFileOptions

if TYPE_CHECKING:
    from binlogtool.pipeline.datasource import BinlogReader


class RowTotals(msgspec.Struct, frozen=True):
    """Totals of rows that were passed to Spark.

    text_bytes: bytes of the texts as written. damage: rows that are not records. bytes: bytes of the logs, in records
      and
    damage.
    """

    rows: int = 0
    text_bytes: int = 0
    records: int = 0
    bytes: int = 0
    damage: int = 0

    def __add__(self, other: RowTotals) -> RowTotals:
        return RowTotals(*map(sum, zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)))


def total_rows(batch: pa.RecordBatch | pa.Table, file_options: TableFileOptions) -> RowTotals:
    """Return the totals of rows of `rows.SCHEMA` as they are written with these options."""
    damage = batch["record"].null_count
    text_size = sum(
        table_form.count_text_bytes(batch[name], file_options) for name in table_form.stored_text_columns(file_options)
    )
    size = compute.sum(batch["size"]).as_py() or 0
    return RowTotals(batch.num_rows, text_size, batch.num_rows - damage, size, damage)


class RowTotalsParam(AccumulatorParam[RowTotals]):  # type: ignore[misc]
    """Add up the totals of tasks; Spark counts each task once, when it has succeeded."""

    def zero(self, value: RowTotals) -> RowTotals:
        """Return the neutral value (PySpark interface)."""
        return RowTotals()

    def addInPlace(self, value1: RowTotals, value2: RowTotals) -> RowTotals:
        """Add two values (PySpark interface)."""
        return value1 + value2


class ArrowRowMapper:
    """Function that Spark calls in each task with numbers of groups; it yields their rows. totals: accumulator of
    `RowTotals`.
    """

    def __init__(self, reader: BinlogReader, file_options: TableFileOptions, totals: Any) -> None:
        self._groups = [pickle.dumps(group) for group in reader.partitions()]  # a task needs one of them only
        self._reader, self._file_options, self._totals = reader.for_tasks(), file_options, totals

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the groups with these numbers."""
        for number in (one for batch in numbers for one in batch.column(0).to_pylist()):
            for batch in self._reader.read(pickle.loads(self._groups[number])):
                self._totals.add(total_rows(batch, self._file_options))
                yield batch

    def to_dataframe(self, spark: Any) -> Any:
        """Return all rows as a DataFrame: one task per group, in their order."""
        from pyspark.sql import DataFrame
        from pyspark.sql.udf import UserDefinedFunction
        from pyspark.util import PythonEvalType

        tasks = len(self._groups)
        numbers = spark.range(0, tasks, 1, max(tasks, 1))
        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        function = UserDefinedFunction(self, rows.DDL, evalType=kind, name="binlogtool")
        return DataFrame(numbers._jdf.mapInArrow(function(numbers["id"])._jc, False, None), spark)
