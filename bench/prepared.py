"""A data source that hands over rows which were made before: what remains is the work of Spark's writer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from binlogtool.pipeline import rows

TASKS = 8


def prepare(out: Path, folder: Path) -> Path:
    """The rows of a Parquet output as Arrow files, one for each task, in batches like those of the reader."""
    import pyarrow.parquet as parquet

    folder.mkdir()
    table = parquet.read_table(sorted(out.glob("part-*"))).select(list(rows.SCHEMA.names)).cast(rows.SCHEMA)
    share = -(-table.num_rows // TASKS)
    for number in range(TASKS):
        with pa.OSFile(str(folder / f"{number}.arrow"), "wb") as sink, pa.ipc.new_file(sink, rows.SCHEMA) as writer:
            writer.write_table(table.slice(number * share, share), rows.MAX_BATCH_ROWS)
    return folder


class Prepared(DataSource):  # type: ignore[misc]
    """Arrow files as they are."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def schema(self) -> str:
        return rows.DDL

    def reader(self, schema: Any) -> PreparedReader:
        return PreparedReader(self.options["path"])


class PreparedReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(name) for name in sorted(os.listdir(self.folder))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(os.path.join(self.folder, partition.value)) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
