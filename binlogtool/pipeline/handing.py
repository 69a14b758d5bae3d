"""Rows on their way to Spark's writer: the tasks of a job make them, count them, and hand them over as Arrow.

By `mapInArrow`: rows of a data source are copied once more before they are written. PySpark's own method of that name
asks for pandas, which nothing here needs.
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
from binlogtool.pipeline.writers.table_form import Shape

if TYPE_CHECKING:
    from binlogtool.pipeline.datasource import BinlogReader


class Handed(msgspec.Struct, frozen=True):
    """What was handed over. text_bytes: of the texts that will stand in the output. damage: rows that stand for no
    record. bytes: in the logs, of records and damage."""

    rows: int = 0
    text_bytes: int = 0
    records: int = 0
    bytes: int = 0
    damage: int = 0

    def __add__(self, other: Handed) -> Handed:
        return Handed(*map(sum, zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)))


def counted(made: pa.RecordBatch | pa.Table, shape: Shape) -> Handed:
    """What is in rows of `rows.SCHEMA` that are written in this shape."""
    damage = made["record"].null_count
    texts = sum(table_form.text_bytes(made[name], shape) for name in table_form.texts(shape))
    size = compute.sum(made["size"]).as_py() or 0
    return Handed(made.num_rows, texts, made.num_rows - damage, size, damage)


class Sums(AccumulatorParam[Handed]):  # type: ignore[misc]
    """Adds what tasks counted; Spark takes it of each task once, when it has succeeded."""

    def zero(self, value: Handed) -> Handed:
        """See PySpark."""
        return Handed()

    def addInPlace(self, value1: Handed, value2: Handed) -> Handed:
        """See PySpark."""
        return value1 + value2


class Handing:
    """What each task calls with the number of its group. sums: an accumulator of `Handed`."""

    def __init__(self, reader: BinlogReader, shape: Shape, sums: Any) -> None:
        self._groups = [pickle.dumps(group) for group in reader.partitions()]  # a task needs one of them only
        self._reader, self._shape, self._sums = reader.without_cuts(), shape, sums

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of these groups."""
        for number in (one for batch in numbers for one in batch.column(0).to_pylist()):
            for made in self._reader.read(pickle.loads(self._groups[number])):
                self._sums.add(counted(made, self._shape))
                yield made

    def frame(self, spark: Any) -> Any:
        """All rows as a DataFrame: a task for each group, in their order."""
        from pyspark.sql import DataFrame
        from pyspark.sql.udf import UserDefinedFunction
        from pyspark.util import PythonEvalType

        tasks = len(self._groups)
        numbers = spark.range(0, tasks, 1, max(tasks, 1))
        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        function = UserDefinedFunction(self, rows.DDL, evalType=kind, name="binlogtool")
        return DataFrame(numbers._jdf.mapInArrow(function(numbers["id"])._jc, False, None), spark)
