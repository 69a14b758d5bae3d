"""Streaming reader of Spark: follow growing and rotating logs, and yield each durable record once.

An offset contains how far each file was read, always up to a point where no transaction is open
(`stream_offset.ReadPosition`); what comes after the last such point waits. Once a later file of the log was written
to, a
file is read to its end: it is done. A finished file that its server removed is dropped, so the offset stays as small
as
the log is.

Events that a server never causes become DAMAGE rows (`changed-while-read`), and the query continues: a reset of one
log
must not stop the reading of all others. A file that was replaced (RESET MASTER, a restored copy) is then read from
its
beginning. If a file is replaced after its new bytes were planned and before they were read, such a row takes their
place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.findings import finding
from binlogtool.formats.detecting import Hints
from binlogtool.limits import parse_size
from binlogtool.pipeline import objects, rows
from binlogtool.pipeline.balance import in_groups
from binlogtool.pipeline.growing import Files, Growing, Planned, Told
from binlogtool.pipeline.making import Maker
from binlogtool.pipeline.members import read_member
from binlogtool.pipeline.object_columns import columns_of
from binlogtool.pipeline.request import Request, from_options, hints_of, members_of, paths_of
from binlogtool.pipeline.stream_offset import Budget, Reached
from binlogtool.pipeline.table_definitions import with_histories
from binlogtool.pipeline.tasks import Member


class Share(InputPartition):  # type: ignore[misc]
    """Pieces that one task reads. ids: other names of the request's table."""

    def __init__(self, pieces: Sequence[Planned | Told], ids: Sequence[str]) -> None:
        super().__init__(pieces)
        self.pieces = pieces
        self.ids = ids


class BinlogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """`spark.readStream.format("binlogtool")` with the options of the batch reader, and maxFilesPerTrigger or
    maxBytesPerTrigger.
    """

    def __init__(
        self, paths: Sequence[str], format: str, request: Request, hints: Hints | None = None,
        maker: Maker = rows.ALL, limit: ReadLimit | None = None,
    ) -> None:  # fmt: skip
        self.growing = Growing(paths, format, request, hints)
        self.request = request
        self.hints = hints
        self.maker = maker
        self.limit = limit

    @classmethod
    def of(cls, options: Mapping[str, str], schema: Any) -> BinlogStream:
        """Create the reader for the options of a query. schema: of its rows, as Spark passes it.

        Raises:
            UsageError: an option has an invalid value.
        """
        request = from_options(options, files=False)
        made: Maker = (
            rows.view(request.columns, request.payload) if request.object is None
            else objects.ObjectRows(objects.fields_of(schema))
        )  # fmt: skip
        paths, format_ = paths_of(options), options.get("format", "auto")
        for path in paths:
            if "*" in path and not os.path.exists(path):  # otherwise the query would wait for it
                raise UsageError(f"{path}: name the directory of the log; patterns are not looked up")
        return cls(paths, format_, request, hints_of(options), made, limit_of(options))

    # -- offsets ---------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a query that has read nothing."""
        return {"files": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options set."""
        return self.limit or ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Ignore files and bytes that appear after this call."""
        self.growing.freeze()

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return how far each file is to be read; a file that cannot be read keeps its position."""
        known = files_in(start)
        self.growing.advance(known, budget_of(limit))
        made = {"files": {name: one.as_dict() for name, one in known.items()}}
        return made | self._ids(start or {})

    def _ids(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Return the table's other names once they are found; later its definition may be in a file that was
        removed.
        """
        if self.request.object is None or start.get("ids") is not None:
            return {"ids": start["ids"]} if "ids" in start else {}
        members = tuple(member for path in self.growing.paths for member in self._members(path))
        found = columns_of(with_histories(replace(self.request, members=members), self.hints), self.hints)
        return {"ids": sorted(found.ids)} if found.described else {}

    def _members(self, path: str) -> list[Member]:
        try:
            return members_of(path, self.growing.format)
        except BinlogtoolError:
            return []

    # -- reading ----------------------------------------------------------------------------------------------

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[Share]:
        """Return what is new between two offsets: parts of big files, and groups of small ones."""
        pieces = self.growing.pieces(files_in(start), files_in(end))
        return [Share(share, end.get("ids") or ()) for share in self._shared(pieces)]

    def _shared(self, pieces: Sequence[Planned | Told]) -> Iterator[list[Planned | Told]]:
        r = self.request
        sizes = [piece.member.size if isinstance(piece, Planned) else 0 for piece in pieces]
        yield from ([piece] for piece, size in zip(pieces, sizes, strict=True) if size >= r.split_size)
        small = [i for i, size in enumerate(sizes) if size < r.split_size]
        yield from in_groups([pieces[i] for i in small], [sizes[i] for i in small], r.groups)

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        request, maker, name = self.request, self.maker, self.request.object
        if name is not None and isinstance(maker, objects.ObjectRows):
            request, maker = objects.selecting(request, partition.ids), maker.named(name, partition.ids)
        for piece in partition.pieces:
            if isinstance(piece, Told):
                yield self.maker.damage(piece.file, piece.format, piece.finding)
            elif self.growing.is_as_planned(piece):
                closed = partial(bool, piece.reached.done)
                hints = self.hints
                if piece.earlier is not None:
                    hints = replace(hints or Hints(), earlier=piece.earlier)
                yield from read_member(piece.member, request, hints, piece.part, maker, closed)
            else:
                found = finding("changed-while-read", 0, 0, "the file was replaced before its new bytes were read")
                yield self.maker.damage(piece.member.name, piece.member.format, found)


def files_in(offset: Mapping[str, Any] | None) -> Files:
    """Return the read positions in an offset."""
    return {name: Reached.from_dict(one) for name, one in (offset or {}).get("files", {}).items()}


def limit_of(options: Mapping[str, str]) -> ReadLimit | None:
    """Return the limit of a micro-batch: maxFilesPerTrigger (a number) or maxBytesPerTrigger (such as `1GiB`).

    Raises:
        UsageError: both are given, or a value is not positive.
    """
    files, size = options.get("maxFilesPerTrigger"), options.get("maxBytesPerTrigger")
    if files is not None and size is not None:
        raise UsageError("choose one of maxFilesPerTrigger and maxBytesPerTrigger")
    if files is not None:
        if not files.isascii() or not files.isdecimal() or int(files) < 1:
            raise UsageError(f"maxFilesPerTrigger {files!r}: give a number from 1 on")
        return ReadMaxFiles(int(files))
    if size is None:
        return None
    if (most := parse_size(size)) < 1:
        raise UsageError(f"maxBytesPerTrigger {size!r}: give a size from 1 byte on")
    return ReadMaxBytes(most)


def budget_of(limit: ReadLimit | None) -> Budget:
    """Return the budget of one micro-batch."""
    if isinstance(limit, ReadMaxFiles):
        return Budget(files=limit.max_files)
    return Budget(bytes=limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)
