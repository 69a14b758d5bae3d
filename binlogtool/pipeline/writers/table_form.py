"""Options of table files (format, compression, partitions), and writing them with Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.limits import MIB
from binlogtool.pipeline.extras import require
from binlogtool.pipeline.writers.partitions import NO_TEXT, NULL_PARTITION

COMPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "parquet": ("zstd", "gzip", "snappy", "lz4_raw", "none"),
    "orc": ("zstd", "zlib", "snappy", "lz4", "none"),
    "csv": ("none", "gzip", "bzip2"),
    "json": ("none", "gzip", "bzip2"),
    "avro": ("deflate", "bzip2", "xz", "none"),
}
"""Compressions of each table format; the first one is the default."""

FILE_SIZE = 256 * MIB
"""Approximate size of an output file in bytes."""

LEAST_FILE = 32 * MIB
"""Files are not made smaller than this to keep all cores busy, as small files take more space."""

_GROWTH: Mapping[str, float] = {"parquet": 0.3, "orc": 0.3, "avro": 0.5, "csv": 8.0, "json": 12.0}
"""Bytes of an output for one of a log with small records (Parquet measured with 200 MiB of them, the
others with 20 MiB); large records need less."""
_PACKED = 10.0
"""Factor by which compressed texts are smaller."""

DERIVED = ("date", "hour")
"""Columns derived from `time` (UTC), for partitions only: 2026-01-31, and 0 to 23."""

PARTITIONS = (
    "file", "format", "type", "seq", "object", "origin", "txn", "checksum_algorithm", "checksum_ok", *DERIVED,
)  # fmt: skip
"""Columns that can be partitions; the others differ from row to row."""

TYPED_PARTITIONS = ("op", "server", "file", *DERIVED)
"""The same for typed rows of tables."""

TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
"""Times in CSV and JSON, with the microseconds that Spark would leave out."""

_OPTIONS: Mapping[str, Mapping[str, str]] = {
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

_FORMULA = r"^[=+\-@\t\r]"


class Shape(msgspec.Struct, frozen=True):
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

    def files(self, size: int, cores: int) -> int:
        """Return the number of files for logs of `size` bytes, with `cores` parallel tasks."""
        made = size * _GROWTH[self.to]
        if _GROWTH[self.to] > 1 and self.codec != "none":
            made /= _PACKED
        wanted = self.file_size or FILE_SIZE
        return max(ceil(made / wanted), min(cores, ceil(made / min(wanted, LEAST_FILE))), 1)

    def check(self) -> None:
        """Check the options before any work starts.

        Raises:
            UsageError: an option is not possible.
            MissingExtraError: a library that writes tables is not installed.
        """
        known = COMPRESSIONS[self.to]
        if self.compression not in (None, *known):
            raise UsageError(f"--compression {self.compression}: {self.to} can have {', '.join(known)}")
        known = TYPED_PARTITIONS if self.typed else PARTITIONS
        for name in self.partition_by:
            if name not in known:
                raise UsageError(f"--partition-by {name}: choose of {', '.join(known)}")
        if len(set(self.partition_by)) < len(self.partition_by):
            raise UsageError("--partition-by names a column twice")
        if self.typed and self.file_size is not None:
            raise UsageError("--target-file-size is for records; rows of tables are in files of their own sizes")
        if self.csv_safe and self.to != "csv":
            raise UsageError("--csv-safe is for --to csv")
        avro, engine = self.to == "avro", "numpy" if self.typed else "pyspark"
        extra = "arrow" if self.typed and not avro else "spark"
        require(f"--to {self.to}", engine, "pyarrow", *(("fastavro",) if avro else ()), extra=extra)

    @property
    def codec(self) -> str:
        """Name of the compression."""
        return self.compression or COMPRESSIONS[self.to][0]

    @property
    def stored(self) -> tuple[str, ...]:
        """Columns in the files; those of partitions are only in directory names."""
        from binlogtool.pipeline import rows

        return tuple(name for name, _ in rows.COLUMNS if name not in self.partition_by)


def texts(shape: Shape) -> tuple[str, ...]:
    """Return the stored columns of text."""
    return tuple(name for name in _texts() if name in shape.stored)


def _texts() -> tuple[str, ...]:
    from binlogtool.pipeline import rows

    return tuple(name for name, kind in rows.COLUMNS if kind == "string")


def stored_text(shape: Shape, text: str) -> str:
    """Return a text as it is stored in the output."""
    return f"'{text}" if shape.csv_safe and re.match(_FORMULA, text) else text


def shaped(frame: Any, shape: Shape) -> Any:
    """Return the DataFrame with partition columns and safe CSV texts."""
    from pyspark.sql import functions as sql

    if shape.csv_safe:
        frame = frame.withColumns({name: _neutral(name) for name in texts(shape)})
    frame = frame.withColumns({name: _named(name) for name in shape.partition_by if name in _texts()})
    if "date" in shape.partition_by:
        frame = frame.withColumn("date", sql.date_format("time", "yyyy-MM-dd"))
    if "hour" in shape.partition_by:
        frame = frame.withColumn("hour", sql.hour("time"))
    return frame


def _named(name: str) -> Any:
    from pyspark.sql import functions as sql

    column = sql.col(name)
    quoted = sql.when(column.isin(NO_TEXT, NULL_PARTITION), sql.concat(sql.lit("%5F"), sql.substring(column, 2, 1000)))
    return sql.when(column.isNull() | (column == ""), NO_TEXT).otherwise(quoted.otherwise(column))


def _neutral(name: str) -> Any:
    from pyspark.sql import functions as sql

    column = sql.col(name)
    return sql.when(column.rlike(_FORMULA), sql.concat(sql.lit("'"), column)).otherwise(column)


def text_bytes(column: Any, shape: Shape) -> int:
    """Return the number of bytes of the texts of an Arrow column, as they will be written."""
    import pyarrow.compute as compute

    size = compute.sum(compute.binary_length(column)).as_py() or 0
    if shape.csv_safe:
        size += compute.sum(compute.match_substring_regex(column, _FORMULA)).as_py() or 0
    return int(size)


def write(frame: Any, shape: Shape, place: str, spark: Any) -> None:
    """Write a DataFrame with Spark. place: URI of a directory that does not exist yet."""
    if shape.to == "avro":
        from binlogtool.pipeline.writers.avro import AvroFiles

        spark.dataSource.register(AvroFiles)
        spark.createDataFrame([], "nothing int")  # makes it this thread's session, where the data source is looked up
        if shape.partition_by:
            frame = frame.sortWithinPartitions(*shape.partition_by)
        options = {"partitions": ",".join(shape.partition_by), "codec": shape.codec, "place": place}
        frame.write.format(AvroFiles.name()).options(**options).mode("append").save()
        return
    options = {"compression": shape.codec, **_OPTIONS.get(shape.to, {})}
    frame.write.format(shape.to).options(**options).partitionBy(*shape.partition_by).save(place)
