"""The PySpark data source `binlogtool`: log files as rows of one table layout.

    spark.dataSource.register(BinlogSource)
    spark.read.format("binlogtool").option("columns", "file,offset,type,seq").load("/data/00000000000000000000.xlog")

A partition is a group of whole files, or one part of a big file, because a partition costs Spark far more than a
batch.
Damage becomes DAMAGE rows; a bad file never fails a job. Findings that are only notes (such as reserved space at the
end of a file) become no rows; an incomplete record at the end becomes one if a later file of its log exists
(`closing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition

from binlogtool.formats.detecting import Hints
from binlogtool.log.open import LogReader
from binlogtool.pipeline import objects, rows
from binlogtool.pipeline.closing import is_closed
from binlogtool.pipeline.making import RowBuilder
from binlogtool.pipeline.members import open_member, read_member
from binlogtool.pipeline.object_columns import collect_columns
from binlogtool.pipeline.request import HINTS_OPTION, ReadRequest, hints_to_json, parse_hints, parse_options
from binlogtool.pipeline.table_definitions import add_histories
from binlogtool.pipeline.tasks import (
    Parts,
    TaskFile,
    TaskPiece,
    can_split,
    find_parts,
    group_files,
    pack_tasks,
    plan_tasks,
)

__all__ = [
    "HINTS_OPTION",
    "BinlogReader",
    "BinlogSource",
    "ReadPartition",
    "ReadRequest",
    "TaskFile",
    "group_files",
    "hints_to_json",
    "read_member",
]  # fmt: skip


class ReadPartition(InputPartition):  # type: ignore[misc]
    """The pieces that one task reads, in order."""

    def __init__(self, pieces: tuple[TaskPiece, ...]) -> None:
        super().__init__(pieces)
        self.pieces = pieces


class BinlogSource(DataSource):  # type: ignore[misc]
    """Spark data source `format("binlogtool")`, with the option `request` or those of `request.from_options`.

    Option pushdown: "true" = filters of the query narrow what is read; Spark's setting
    `spark.sql.python.filterPushdown.enabled` must be on. Only for a DataFrame that serves one query: Spark 4.3 keeps
    the filters of one query, and later queries of the same DataFrame would get only its rows.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "binlogtool"

    def schema(self) -> str:
        """Return the selected columns as a Spark DDL string; those of an object are found by scanning the files."""
        request = parse_options(self.options, files="object" in self.options)
        if request.object is None:
            return rows.create_layout(request.columns, request.payload).ddl
        hints = parse_hints(self.options)
        collector = collect_columns(add_histories(request, hints), hints)
        return objects.build_ddl(collector.fields, collector.ids)

    def reader(self, schema: Any) -> BinlogReader:
        """Return the reader for the options. schema: as returned by `schema`, or as the user specified it."""
        request, hints = parse_options(self.options), parse_hints(self.options)
        if "request" not in self.options:
            request = add_histories(request, hints)
        has_pushdown = self.options.get("pushdown") == "true"
        reader_class = PushdownReader if has_pushdown else BinlogReader
        if request.object is None:
            return reader_class(request, hints, rows.create_layout(request.columns, request.payload))
        schema_ids = objects.schema_ids(schema)
        ids = collect_columns(request, hints).ids if schema_ids is None else schema_ids
        builder = objects.TableRowBuilder(objects.schema_fields(schema)).for_table(request.object, ids)
        return reader_class(objects.select_object(request, ids), hints, builder)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return the reader that follows growing files."""
        from binlogtool.pipeline.streaming import BinlogStream

        return BinlogStream.from_options(self.options, schema)


class BinlogReader(DataSourceReader):  # type: ignore[misc]
    """Read log files as Arrow record batches; never raises because of the content of a file."""

    def __init__(
        self, request: ReadRequest, hints: Hints | None = None, builder: RowBuilder = rows.DEFAULT_LAYOUT
    ) -> None:
        self.request = request
        self.hints = hints
        self.builder = builder
        self._all_members = request.members

    def partitions(self) -> Sequence[ReadPartition]:
        """Return groups of files of similar total size, and the parts of big files."""
        request = self.request
        parts_by_member = request.cuts or tuple(map(self._split_member, request.members))
        tasks = (
            plan_tasks(request.members, parts_by_member, request.groups)
            if request.files is None
            else pack_tasks(request.members, parts_by_member, request.files)
        )
        return [ReadPartition(pieces) for pieces in tasks]

    def for_tasks(self) -> BinlogReader:
        """Return a copy without the list of parts, for tasks, which receive their own pieces."""
        return type(self)(replace(self.request, cuts=()), self.hints, self.builder)

    def _split_member(self, member: TaskFile) -> Parts | None:
        request = self.request
        if member.size <= request.split_size or not can_split(request.selection):
            return None
        return find_parts(
            member, request.split_size, request.backend, request.limits, request.member_hints(member, self.hints)
        )

    def read(self, partition: ReadPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, file after file."""
        for piece in partition.pieces:
            closed = partial(is_closed, piece.member, self._all_members, self._open_member)
            yield from read_member(piece.member, self.request, self.hints, piece.part, self.builder, closed)

    def _open_member(self, member: TaskFile) -> LogReader:
        return open_member(member, self.request, self.hints)


class PushdownReader(BinlogReader):
    """Reader that accepts filters (Spark refuses such a reader if filter pushdown is switched off)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the request by the filters; Spark applies all of them again."""
        from binlogtool.pipeline.pushdown import narrow_request

        self.request = narrow_request(self.request, filters)
        return filters
