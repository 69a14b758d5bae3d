"""Streaming reader of Spark: follow growing and rotating logs, and yield each durable record once.

An offset contains how far each file was read, always up to a point where no transaction is open
(`export.incremental_positions.ReadPosition`); later bytes wait for the next such point. Once a later
file of the log was written to, a file is read to its end and finished. A finished file that its server removed is
dropped, so that the offset does not grow with the age of the log.

Changes that a running server never makes become DAMAGE rows (`changed-while-read`), and the query continues: a reset of
one log must not stop the reading of all others. A file that was replaced (RESET MASTER, a restored copy) is then read
from its beginning. If a file is replaced after its new bytes were planned and before they were read, a DAMAGE row takes
their place.
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
from binlogtool.export import records_to_arrow
from binlogtool.export.incremental_positions import (
    GrowingFileFinding,
    IncrementalInput,
    PlannedRead,
    ReadBudget,
    ReadPosition,
    ReadPositions,
)
from binlogtool.export.manifest import (
    ReadRequest,
    TaskFile,
    list_task_files,
    pack_consecutive_by_size,
    parse_data_source_options,
    parse_load_paths,
)
from binlogtool.export.read_one_table_as_arrow import TableRowReader, make_row_reader, search_table
from binlogtool.export.read_rows_of_one_file import add_carried_states, read_file_rows
from binlogtool.export.records_to_arrow import RecordRowReader
from binlogtool.findings import make_finding
from binlogtool.format_api.row_output_interfaces import TableColumn, TableSchema
from binlogtool.limits import parse_size


class StreamPartition(InputPartition):  # type: ignore[misc]
    """The pieces that one task reads. ids: other names of the request's table."""

    def __init__(self, pieces: Sequence[PlannedRead | GrowingFileFinding], ids: Sequence[str]) -> None:
        super().__init__(pieces)
        self.pieces = pieces
        self.ids = ids


class BinlogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """`spark.readStream.format("binlogtool")` with the options of the batch reader, and maxFilesPerTrigger or
    maxBytesPerTrigger.
    """

    def __init__(
        self, paths: Sequence[str], format: str, request: ReadRequest,
        reader: RecordRowReader = records_to_arrow.DEFAULT_LAYOUT, limit: ReadLimit | None = None,
    ) -> None:  # fmt: skip
        self.source = IncrementalInput(paths, format, request)
        self.request = request
        self.reader = reader
        self.limit = limit

    @classmethod
    def from_options(cls, options: Mapping[str, str], schema: Any) -> BinlogStream:
        """Create the reader for the options of a query. schema: schema of the rows, as Spark passes it.

        Raises:
            UsageError: an option has an invalid value.
        """
        request = parse_data_source_options(options, finds_files=False)
        paths, format_ = parse_load_paths(options), options.get("format", "auto")
        for path in paths:
            if "*" in path and not os.path.exists(path):  # otherwise the query would wait for it
                raise UsageError(f"{path}: patterns are not supported; name the directory of the log")
        return cls(paths, format_, request, make_row_reader(request, schema), parse_read_limit(options))

    # -- offsets ---------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a query that has not read anything yet."""
        return {"files": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch that the options set."""
        return self.limit or ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Ignore files and bytes that appear after this call."""
        self.source.ignore_later_growth()

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the offset up to which each file is read next; a file that cannot be read keeps its position."""
        positions = parse_positions(start)
        self.source.advance_positions_in_place(positions, to_budget(limit))
        offset = {"files": {name: one.to_dict() for name, one in positions.items()}}
        return offset | self._find_table_ids(start or {})

    def _find_table_ids(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Return the table's other names, to be kept in the offset: the file that defines them may be removed later."""
        if self.request.object is None or start.get("ids") is not None:
            return {"ids": start["ids"]} if "ids" in start else {}
        members = tuple(member for path in self.source.paths for member in self._list_members(path))
        ids = search_table(add_carried_states(replace(self.request, members=members))).ids
        return {"ids": sorted(ids)} if ids else {}

    def _list_members(self, path: str) -> list[TaskFile]:
        try:
            return list_task_files(path, self.source.format)
        except BinlogtoolError:
            return []

    # -- reading ----------------------------------------------------------------------------------------------

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[StreamPartition]:
        """Return the new content between two offsets as partitions of similar sizes."""
        pieces, request = self.source.list_reads(parse_positions(start), parse_positions(end)), self.request
        sizes = [piece.member.size if isinstance(piece, PlannedRead) else 0 for piece in pieces]
        count = request.groups + sum(size >= request.split_size for size in sizes)
        return [
            StreamPartition(share, end.get("ids") or ()) for share in pack_consecutive_by_size(pieces, sizes, count)
        ]

    def read(self, partition: StreamPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        reader = self.reader
        if isinstance(reader, TableRowReader) and self.request.object is not None:
            columns = tuple(TableColumn(field.name, field.kind) for field in reader.layout.fields)
            table = TableSchema(self.request.object, columns, ids=tuple(partition.ids))
            reader = replace(reader, known_tables=(table,))
        for piece in partition.pieces:
            if isinstance(piece, GrowingFileFinding):
                yield reader.build_damage_batch(piece.file, piece.format, piece.finding)
            elif self.source.is_as_planned(piece):
                is_file_closed = partial(bool, piece.reached.done)
                request = self.request if piece.earlier is None else self.request.with_hints(earlier=piece.earlier)
                yield from read_file_rows(piece.member, request, piece.part, reader, is_file_closed)
            else:
                found = make_finding("changed-while-read", 0, 0, "the file was replaced before its new bytes were read")
                yield reader.build_damage_batch(piece.member.name, piece.member.format, found)


def parse_positions(offset: Mapping[str, Any] | None) -> ReadPositions:
    """Return the read positions in an offset."""
    return {name: ReadPosition.from_dict(one) for name, one in (offset or {}).get("files", {}).items()}


def parse_read_limit(options: Mapping[str, str]) -> ReadLimit | None:
    """Return the limit of a micro-batch: maxFilesPerTrigger (a number) or maxBytesPerTrigger (such as `1GiB`).

    Raises:
        UsageError: both options are given, or a value is not positive.
    """
    files, size = options.get("maxFilesPerTrigger"), options.get("maxBytesPerTrigger")
    if files is not None and size is not None:
        raise UsageError("choose one of maxFilesPerTrigger and maxBytesPerTrigger")
    if files is not None:
        if not files.isascii() or not files.isdecimal() or int(files) < 1:
            raise UsageError(f"maxFilesPerTrigger {files!r}: must be a number of at least 1")
        return ReadMaxFiles(int(files))
    if size is None:
        return None
    if (max_bytes := parse_size(size)) < 1:
        raise UsageError(f"maxBytesPerTrigger {size!r}: must be a size of at least 1 byte")
    return ReadMaxBytes(max_bytes)


def to_budget(limit: ReadLimit | None) -> ReadBudget:
    """Return the budget of one micro-batch."""
    if isinstance(limit, ReadMaxFiles):
        return ReadBudget(files=limit.max_files)
    return ReadBudget(bytes=limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)
