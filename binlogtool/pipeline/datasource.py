"""The PySpark data source `binlogtool`: log files as rows of one table layout.

    spark.dataSource.register(BinlogSource)
    spark.read.format("binlogtool").option("columns", "file,offset,type,seq").load("/data/00000000000000000000.xlog")

A partition is a group of whole files, or one part of a big file, because a partition costs Spark far more than a
batch.
Damage becomes DAMAGE rows; a bad file never fails a job. Findings that are only notes (such as reserved space at the
end
of a file) become no rows; an incomplete record at the end becomes one if a later file of its log exists (`closing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition

from binlogtool.formats.detecting import Hints
from binlogtool.log.open import Log
from binlogtool.pipeline import objects, rows
from binlogtool.pipeline.closing import is_closed
from binlogtool.pipeline.making import Maker
from binlogtool.pipeline.members import open_member, read_member
from binlogtool.pipeline.object_columns import columns_of
from binlogtool.pipeline.request import SECRET, Request, from_options, hints_of, hints_to_json
from binlogtool.pipeline.table_definitions import with_histories
from binlogtool.pipeline.tasks import Member, Parts, Piece, can_split, grouped, packed, parts_of, planned

__all__ = [
    "SECRET", "BinlogReader", "BinlogSource", "Group", "Member", "Request", "grouped",
    "hints_to_json", "read_member",
]  # fmt: skip


class Group(InputPartition):  # type: ignore[misc]
    """The pieces that one task reads, in order."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(pieces)
        self.pieces = pieces


class BinlogSource(DataSource):  # type: ignore[misc]
    """Spark data source `format("binlogtool")`, with the option `request` or those of `request.from_options`.

    Option pushdown: "true" = filters of the query narrow what is read; Spark's setting
    `spark.sql.python.filterPushdown.enabled` must be on. Only for a DataFrame that serves one query: Spark 4.3 keeps
    the
    filters of one query, and later queries of the same DataFrame would get only its rows.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "binlogtool"

    def schema(self) -> str:
        """Return the selected columns as a Spark DDL string; those of an object are found by scanning the files."""
        request = from_options(self.options, files="object" in self.options)
        if request.object is None:
            return rows.view(request.columns, request.payload).ddl
        hints = hints_of(self.options)
        found = columns_of(with_histories(request, hints), hints)
        return objects.ddl(found.fields, found.ids)

    def reader(self, schema: Any) -> BinlogReader:
        """Return the reader for the options. schema: as returned by `schema`, or as the user specified it."""
        request, hints = from_options(self.options), hints_of(self.options)
        if "request" not in self.options:
            request = with_histories(request, hints)
        pushing = self.options.get("pushdown") == "true"
        make = PushingReader if pushing else BinlogReader
        if request.object is None:
            return make(request, hints, rows.view(request.columns, request.payload))
        told = objects.ids_of(schema)
        ids = columns_of(request, hints).ids if told is None else told
        own = objects.ObjectRows(objects.fields_of(schema)).named(request.object, ids)
        return make(objects.selecting(request, ids), hints, own)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return the reader that follows growing files."""
        from binlogtool.pipeline.streaming import BinlogStream

        return BinlogStream.of(self.options, schema)


class BinlogReader(DataSourceReader):  # type: ignore[misc]
    """Read log files as Arrow record batches; never raises because of the content of a file."""

    def __init__(self, request: Request, hints: Hints | None = None, maker: Maker = rows.ALL) -> None:
        self.request = request
        self.hints = hints
        self.maker = maker
        self._known = request.members

    def partitions(self) -> Sequence[Group]:
        """Return groups of files of similar total size, and the parts of big files."""
        r = self.request
        cuts = r.cuts or tuple(map(self._cut, r.members))
        tasks = planned(r.members, cuts, r.groups) if r.files is None else packed(r.members, cuts, r.files)
        return [Group(pieces) for pieces in tasks]

    def without_cuts(self) -> BinlogReader:
        """Return a copy without the list of parts, for tasks, which receive their own pieces."""
        return type(self)(replace(self.request, cuts=()), self.hints, self.maker)

    def _cut(self, member: Member) -> Parts | None:
        r = self.request
        if member.size <= r.split_size or not can_split(r.selection):
            return None
        return parts_of(member, r.split_size, r.backend, r.limits, r.hints_of(member, self.hints))

    def read(self, partition: Group) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, file after file."""
        for piece in partition.pieces:
            closed = partial(is_closed, piece.member, self._known, self._opened)
            yield from read_member(piece.member, self.request, self.hints, piece.part, self.maker, closed)

    def _opened(self, member: Member) -> Log:
        return open_member(member, self.request, self.hints)


class PushingReader(BinlogReader):
    """Reader that accepts filters (Spark refuses such a reader if filter pushdown is switched off)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the request by the filters; Spark applies all of them again."""
        from binlogtool.pipeline.pushdown import narrowed

        self.request = narrowed(self.request, filters)
        return filters
