"""The PySpark data source `binlogtool`: log files in, rows of the one table layout out.

    spark.dataSource.register(BinlogSource)
    spark.read.format("binlogtool").option("columns", "file,offset,type,seq").load("/data/00000000000000000000.xlog")

A partition is a group of whole files, or one part of a big file: a partition costs Spark far more than a batch does.
Bad data becomes DAMAGE rows; one bad file never fails a job. What is only worth a note (the reserve at the end of a
file) becomes none; a record that broke off is more than that once a later file of its log was begun (`closing`).
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
    """What one task reads, in order."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(pieces)
        self.pieces = pieces


class BinlogSource(DataSource):  # type: ignore[misc]
    """`format("binlogtool")`; the option `request`, or those of `request.from_options`.

    pushdown: "true" = conditions of the query narrow what is read. Spark demands that its setting
    `spark.sql.python.filterPushdown.enabled` is on for that. Only for a DataFrame that serves one query: Spark 4.3
    keeps what was pushed down for one query, and later queries of the same DataFrame would get its rows only.
    """

    @classmethod
    def name(cls) -> str:
        """The name behind `format`."""
        return "binlogtool"

    def schema(self) -> str:
        """The columns that the options ask for, as a Spark DDL string; those of an object after a look at the files."""
        request = from_options(self.options, files="object" in self.options)
        if request.object is None:
            return rows.view(request.columns, request.payload).ddl
        hints = hints_of(self.options)
        found = columns_of(with_histories(request, hints), hints)
        return objects.ddl(found.fields, found.ids)

    def reader(self, schema: Any) -> BinlogReader:
        """The reader of this request. schema: as `schema` or the user said."""
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
        """The reader that follows growing files."""
        from binlogtool.pipeline.streaming import BinlogStream

        return BinlogStream.of(self.options, schema)


class BinlogReader(DataSourceReader):  # type: ignore[misc]
    """Yields Arrow record batches; never raises for what is in a file."""

    def __init__(self, request: Request, hints: Hints | None = None, maker: Maker = rows.ALL) -> None:
        self.request = request
        self.hints = hints
        self.maker = maker
        self._known = request.members

    def partitions(self) -> Sequence[Group]:
        """Groups of files of about the same number of bytes, and the parts of big files."""
        r = self.request
        cuts = r.cuts or tuple(map(self._cut, r.members))
        tasks = planned(r.members, cuts, r.groups) if r.files is None else packed(r.members, cuts, r.files)
        return [Group(pieces) for pieces in tasks]

    def without_cuts(self) -> BinlogReader:
        """The same for tasks, which are told what they read."""
        return type(self)(replace(self.request, cuts=()), self.hints, self.maker)

    def _cut(self, member: Member) -> Parts | None:
        r = self.request
        if member.size <= r.split_size or not can_split(r.selection):
            return None
        return parts_of(member, r.split_size, r.backend, r.limits, r.hints_of(member, self.hints))

    def read(self, partition: Group) -> Iterator[pa.RecordBatch]:
        """The rows of one group, file after file."""
        for piece in partition.pieces:
            closed = partial(is_closed, piece.member, self._known, self._opened)
            yield from read_member(piece.member, self.request, self.hints, piece.part, self.maker, closed)

    def _opened(self, member: Member) -> Log:
        return open_member(member, self.request, self.hints)


class PushingReader(BinlogReader):
    """A reader that takes conditions (Spark refuses one where pushing down is not switched on)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows the request; Spark applies all conditions again."""
        from binlogtool.pipeline.pushdown import narrowed

        self.request = narrowed(self.request, filters)
        return filters
