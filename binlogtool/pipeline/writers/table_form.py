"""Options of table files (format, compression, partitions), and writing them with Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.limits import MIB
from binlogtool.pipeline.extras import require_extra
from binlogtool.pipeline.writers.partitions import NO_TEXT, NULL_PARTITION

COMPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "parquet": ("zstd", "gzip", "snappy", "lz4_raw", "none"),
    "orc": ("zstd", "zlib", "snappy", "lz4", "none"),
    "csv": ("none", "gzip", "bzip2"),
    "json": ("none", "gzip", "bzip2"),
    "avro": ("deflate", "bzip2", "xz", "none"),
}
"""Compressions of each table format; the first one is the default."""

DEFAULT_FILE_SIZE = 256 * MIB
"""Approximate size of an output file in bytes."""

MIN_FILE_SIZE = 32 * MIB
"""Files are not made smaller than this to keep all cores busy, as small files take more space."""

_GROWTH: Mapping[str, float] = {"parquet": 0.3, "orc": 0.3, "avro": 0.5, "csv": 8.0, "json": 12.0}
"""Bytes of an output for one of a log with small records (Parquet measured with 200 MiB of them, the
others with 20 MiB); large records need less."""
_TEXT_COMPRESSION_RATIO = 10.0
"""Factor by which compressed texts are smaller."""

DERIVED_PARTITIONS = ("date", "hour")
"""Columns derived from `time` (UTC), for partitions only: 2026-01-31, and 0 to 23."""

RECORD_PARTITIONS = (
    "file", "format", "type", "seq", "object", "origin", "txn", "checksum_algorithm", "checksum_ok",
    *DERIVED_PARTITIONS,
)  # fmt: skip
"""Columns that can be partitions; the others differ from row to row."""

TYPED_PARTITIONS = ("op", "server", "file", *DERIVED_PARTITIONS)
"""The same for typed rows of tables."""

TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
"""Times in CSV and JSON, with the microseconds that Spark would leave out."""

_WRITER_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "csv": {
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "timestampFormat": TIME_FORMAT,
    },
    "json": {"timestampFormat": TIME_FORMAT, "ignoreNullFields": "false"},
}
"""CSV as in RFC 4180: an empty text is "", null has no quotation marks."""

_FORMULA_START = r"^[=+\-@\t\r]"


class TableFileOptions(msgspec.Struct, frozen=True):
    """Options of table files.

    Args:
        to: the format.
        partition_by: columns whose values become directories.
        compression: None = the format's default.
        csv_safe: put an apostrophe before CSV texts that a spreadsheet would take for formulas.
        typed: the rows are those of tables (`pipeline.typed`), not records.
        file_size: approximate bytes of a file; None = DEFAULT_FILE_SIZE.
    """

    to: str
    partition_by: tuple[str, ...] = ()
    compression: str | None = None
    csv_safe: bool = False
    typed: bool = False
    file_size: int | None = None

    def estimate_file_count(self, size: int, cores: int) -> int:
        """Return the number of files for logs of `size` bytes, with `cores` parallel tasks."""
        output_size = size * _GROWTH[self.to]
        if _GROWTH[self.to] > 1 and self.codec != "none":
            output_size /= _TEXT_COMPRESSION_RATIO
        file_size = self.file_size or DEFAULT_FILE_SIZE
        return max(ceil(output_size / file_size), min(cores, ceil(output_size / min(file_size, MIN_FILE_SIZE))), 1)

    def check(self) -> None:
        """Check the options before any work starts.

        Raises:
            UsageError: an option is not possible.
            MissingExtraError: a library that writes tables is not installed.
        """
        allowed = COMPRESSIONS[self.to]
        if self.compression not in (None, *allowed):
            raise UsageError(f"--compression {self.compression}: {self.to} can have {', '.join(allowed)}")
        allowed = TYPED_PARTITIONS if self.typed else RECORD_PARTITIONS
        for name in self.partition_by:
            if name not in allowed:
                raise UsageError(f"--partition-by {name}: choose of {', '.join(allowed)}")
        if len(set(self.partition_by)) < len(self.partition_by):
            raise UsageError("--partition-by names a column twice")
        if self.typed and self.file_size is not None:
            raise UsageError("--target-file-size is for records; rows of tables are in files of their own sizes")
        if self.csv_safe and self.to != "csv":
            raise UsageError("--csv-safe is for --to csv")
        avro, engine = self.to == "avro", "numpy" if self.typed else "pyspark"
        extra = "arrow" if self.typed and not avro else "spark"
        require_extra(f"--to {self.to}", engine, "pyarrow", *(("fastavro",) if avro else ()), extra=extra)

    @property
    def codec(self) -> str:
        """Name of the compression."""
        return self.compression or COMPRESSIONS[self.to][0]

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """Columns in the files; those of partitions are only in directory names."""
        from binlogtool.pipeline import rows

        return tuple(name for name, _ in rows.COLUMNS if name not in self.partition_by)


def stored_text_columns(file_options: TableFileOptions) -> tuple[str, ...]:
    """Return the stored columns of text."""
    return tuple(name for name in _text_columns() if name in file_options.stored_columns)


def _text_columns() -> tuple[str, ...]:
    from binlogtool.pipeline import rows

    return tuple(name for name, kind in rows.COLUMNS if kind == "string")


def to_stored_text(file_options: TableFileOptions, text: str) -> str:
    """Return a text as it is stored in the output."""
    return f"'{text}" if file_options.csv_safe and re.match(_FORMULA_START, text) else text


def prepare_frame(frame: Any, file_options: TableFileOptions) -> Any:
    """Return the DataFrame with partition columns and safe CSV texts."""
    from pyspark.sql import functions as sql

    if file_options.csv_safe:
        frame = frame.withColumns({name: _neutralize_formulas(name) for name in stored_text_columns(file_options)})
    frame = frame.withColumns(
        {name: _partition_column(name) for name in file_options.partition_by if name in _text_columns()}
    )
    if "date" in file_options.partition_by:
        frame = frame.withColumn("date", sql.date_format("time", "yyyy-MM-dd"))
    if "hour" in file_options.partition_by:
        frame = frame.withColumn("hour", sql.hour("time"))
    return frame


def _partition_column(name: str) -> Any:
    from pyspark.sql import functions as sql

    column = sql.col(name)
    quoted = sql.when(column.isin(NO_TEXT, NULL_PARTITION), sql.concat(sql.lit("%5F"), sql.substring(column, 2, 1000)))
    return sql.when(column.isNull() | (column == ""), NO_TEXT).otherwise(quoted.otherwise(column))


def _neutralize_formulas(name: str) -> Any:
    from pyspark.sql import functions as sql

    column = sql.col(name)
    return sql.when(column.rlike(_FORMULA_START), sql.concat(sql.lit("'"), column)).otherwise(column)


def count_text_bytes(column: Any, file_options: TableFileOptions) -> int:
    """Return the number of bytes of the texts of an Arrow column, as they will be written."""
    import pyarrow.compute as compute

    size = compute.sum(compute.binary_length(column)).as_py() or 0
    if file_options.csv_safe:
        size += compute.sum(compute.match_substring_regex(column, _FORMULA_START)).as_py() or 0
    return int(size)


def write_frame(frame: Any, file_options: TableFileOptions, target_uri: str, spark: Any) -> None:
    """Write a DataFrame with Spark. target_uri: URI of a directory that does not exist yet."""
    if file_options.to == "avro":
        from binlogtool.pipeline.writers.avro import AvroDataSource

        spark.dataSource.register(AvroDataSource)
        spark.createDataFrame([], "nothing int")  # makes it this thread's session, where the data source is looked up
        if file_options.partition_by:
            frame = frame.sortWithinPartitions(*file_options.partition_by)
        options = {"partitions": ",".join(file_options.partition_by), "codec": file_options.codec, "place": target_uri}
        frame.write.format(AvroDataSource.name()).options(**options).mode("append").save()
        return
    options = {"compression": file_options.codec, **_WRITER_OPTIONS.get(file_options.to, {})}
    frame.write.format(file_options.to).options(**options).partitionBy(*file_options.partition_by).save(target_uri)
