"""A data source that hands over rows which were made before: what remains is the work of Spark's writer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from binlogtool.export import records_to_arrow


def prepare(out: Path, folder: Path) -> Path:
    """The rows of a Parquet output as Arrow files, one for each of its parts (there was one for each task), in batches
    like those of the reader."""
    import pyarrow.parquet as parquet

    folder.mkdir()
    for number, part in enumerate(sorted(out.glob("part-*"))):
        with (
            parquet.ParquetFile(part) as file,
            pa.OSFile(str(folder / f"{number:05d}.arrow"), "wb") as sink,
            pa.ipc.new_file(sink, records_to_arrow.SCHEMA) as writer,
        ):
            for batch in file.iter_batches(records_to_arrow.MAX_BATCH_ROWS, columns=records_to_arrow.SCHEMA.names):
                writer.write_table(pa.Table.from_batches([batch]).cast(records_to_arrow.SCHEMA))
    return folder


def nothing(folder: Path, tasks: int) -> Path:
    """As many Arrow files, without any rows: what remains is what a task costs."""
    folder.mkdir()
    for number in range(tasks):
        with pa.OSFile(str(folder / f"{number:05d}.arrow"), "wb") as sink:
            pa.ipc.new_file(sink, records_to_arrow.SCHEMA).close()
    return folder


class Prepared(DataSource):  # type: ignore[misc]
    """Arrow files as they are."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def schema(self) -> str:
        return records_to_arrow.DDL

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
