"""The PySpark data source `binlogtool`, and conditions of a query that it pushes down to files and records.

Conditions only reduce what is read; Spark applies each of them again, so they affect the time, not the result.

    spark.dataSource.register(BinlogSource)
    spark.read.format("binlogtool").option("columns", "file,offset,type,seq").load("/data/00000000000000000000.xlog")

A partition is a group of whole files, or one part of a big file, because a partition costs Spark far more than a batch.
Damage becomes DAMAGE rows; a bad file never fails a job. Findings that are only notes (such as reserved space at the
end of a file) become no rows; an incomplete record at the end becomes one if a later file of its log exists
(`closing`).
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import BinlogtoolError
from binlogtool.export import read_one_table_as_arrow, records_to_arrow
from binlogtool.export.incremental_positions import has_later_file_with_records
from binlogtool.export.manifest import (
    Parts,
    ReadRequest,
    TaskFile,
    TaskPiece,
    can_select_records_independently,
    find_broken_links,
    find_parts,
    pack_tasks,
    parse_data_source_options,
)
from binlogtool.export.read_one_table_as_arrow import TableRowReader
from binlogtool.export.read_rows_of_one_file import (
    add_carried_states,
    read_definitions,
    read_file_rows,
    select_tables_before_piece,
)
from binlogtool.export.records_to_arrow import RecordRowReader
from binlogtool.findings import Finding
from binlogtool.format_api.row_output_interfaces import TableSchema

# --- Filter pushdown ---

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LOWER = (EqualTo, GreaterThan, GreaterThanOrEqual)
_UPPER = (EqualTo, LessThan, LessThanOrEqual)


def narrow_request(request: ReadRequest, filters: Iterable[Filter]) -> ReadRequest:
    """Narrow the request to what the conditions include, as far as that can be determined before reading."""
    if not can_select_records_independently(request.selection):  # limit and skip must apply before Spark's conditions
        return request
    narrowers = _NARROWERS if request.object is None else {"file": _narrow_files}  # rows have times of their own
    for condition in filters:
        column: Sequence[str] = getattr(condition, "attribute", ())
        narrow = narrowers.get(column[0]) if len(column) == 1 else None
        request = request if narrow is None else narrow(request, condition)
    return request


def _allowed_texts(condition: Filter) -> tuple[str, ...] | None:
    """Return the texts that a condition allows; None if it does not list texts."""
    values: Any = (
        condition.value if isinstance(condition, In) else (condition.value,) if isinstance(condition, EqualTo) else ()
    )
    return tuple(values) if values and all(isinstance(value, str) for value in values) else None


def _narrow_files(request: ReadRequest, condition: Filter) -> ReadRequest:
    names = _allowed_texts(condition)
    if names is None:
        return request
    members = tuple(m for m in request.members if records_to_arrow.printable_path(m.name) in names)
    return replace(request, members=members)


def _narrow_types(request: ReadRequest, condition: Filter) -> ReadRequest:
    names = _allowed_texts(condition)
    if names is None or request.selection.types:
        return request
    return _with_selection(request, types=names)


def _narrow_objects(request: ReadRequest, condition: Filter) -> ReadRequest:
    names = _allowed_texts(condition)
    if names is None or request.selection.objects:
        return request
    return _with_selection(request, objects=tuple(glob.escape(name) for name in names))


def _narrow_time(request: ReadRequest, condition: Filter) -> ReadRequest:
    value = getattr(condition, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return request
    microseconds, selection = (value - _EPOCH) // _MICROSECOND, request.selection
    if isinstance(condition, _LOWER):
        request = _with_selection(
            request,
            start_time=microseconds if selection.start_time is None else max(microseconds, selection.start_time),
        )
    if isinstance(condition, _UPPER):
        request = _with_selection(
            request,
            stop_time=microseconds + 1 if selection.stop_time is None else min(microseconds + 1, selection.stop_time),
        )
    return request


def _narrow_sequence(request: ReadRequest, condition: Filter) -> ReadRequest:
    value, selection = getattr(condition, "value", None), request.selection
    if type(value) is not int or value < 0:
        return request
    if isinstance(condition, _LOWER) and selection.start is None:
        request = _with_selection(request, start=f"seq:{value}")
    if isinstance(condition, _UPPER) and selection.stop is None:
        request = _with_selection(request, stop=f"seq:{value + 1}")
    return request


def _with_selection(request: ReadRequest, **changes: Any) -> ReadRequest:
    selection: Selection = replace(request.selection, **changes)
    return replace(request, selection=selection)


_NARROWERS: Mapping[str, Callable[[ReadRequest, Filter], ReadRequest]] = {
    "file": _narrow_files,
    "type": _narrow_types,
    "object": _narrow_objects,
    "time": _narrow_time,
    "seq": _narrow_sequence,
}


# --- The PySpark data source `binlogtool` ---


class ReadPartition(InputPartition):  # type: ignore[misc]
    """The pieces that one task reads, in order.

    known_tables: for each, the tables that are described before it. holes: findings about files that are missing before
    these files.
    """

    def __init__(
        self,
        pieces: tuple[TaskPiece, ...],
        known_tables: tuple[tuple[TableSchema, ...], ...],
        holes: tuple[tuple[TaskFile, Finding], ...] = (),
    ) -> None:
        super().__init__(pieces)
        self.pieces, self.known_tables, self.holes = pieces, known_tables, holes


def find_missing_file_findings(
    request: ReadRequest, all_members: Iterable[TaskFile]
) -> dict[str, tuple[TaskFile, Finding]]:
    """Find the files before which files of the same log are missing: path -> the file, and what is missing.

    all_members: also files that filters leave out, which are not missing.
    """
    members = {one.path: one for one in all_members if not one.trouble}
    with suppress(BinlogtoolError):
        found = find_broken_links(members, request.selection, request.read_options())
        return {one.file: (members[one.file], one.finding) for one in found if one.finding.id == "missing-member"}
    return {}


class BinlogSource(DataSource):  # type: ignore[misc]
    """Spark data source `format("binlogtool")`, with the options of `export.manifest.parse_data_source_options`.

    Option pushdown: "true" = filters of the query reduce what is read; Spark's setting
    `spark.sql.python.filterPushdown.enabled` must be on. Only for a DataFrame that serves one query: Spark 4.3 keeps
    the filters of one query, and later queries of the same DataFrame would get only its rows.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "binlogtool"

    def schema(self) -> str:
        """Return the selected columns as a Spark DDL string; the columns of a table are found by scanning the files."""
        request = parse_data_source_options(self.options, finds_files="object" in self.options)
        if request.object is None:
            return records_to_arrow.create_layout(request.columns, request.payload).ddl
        layout = read_one_table_as_arrow.search_table(add_carried_states(request)).make_layout()
        return read_one_table_as_arrow.build_ddl(layout, request.columns)

    def reader(self, schema: Any) -> BinlogReader:
        """Return the reader for the options. schema: as returned by `schema`, or as the user specified it."""
        request = add_carried_states(parse_data_source_options(self.options))
        has_pushdown = self.options.get("pushdown") == "true"
        return (PushdownReader if has_pushdown else BinlogReader)(
            request, read_one_table_as_arrow.make_row_reader(request, schema)
        )

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return the reader that follows growing files."""
        from binlogtool.spark.streaming import BinlogStream

        return BinlogStream.from_options(self.options, schema)


class BinlogReader(DataSourceReader):  # type: ignore[misc]
    """Reader of log files as Arrow record batches; the content of a file never raises an exception."""

    def __init__(self, request: ReadRequest, reader: RecordRowReader = records_to_arrow.DEFAULT_LAYOUT) -> None:
        self.request = request
        self.reader = reader
        self._all_members = request.members

    def partitions(self) -> Sequence[ReadPartition]:
        """Return groups of files and of parts of big files, with similar total sizes."""
        request = self.request
        parts_by_member = tuple(map(self._split_member, request.members))
        part_count = sum(len(parts or ()) for parts in parts_by_member)
        definitions = [] if request.object is None else read_definitions(request)
        holes = find_missing_file_findings(request, self._all_members)
        return [
            ReadPartition(
                pieces,
                tuple(select_tables_before_piece(definitions, request, piece) for piece in pieces),
                tuple(holes.pop(piece.member.path) for piece in pieces if piece.member.path in holes),
            )
            for pieces in pack_tasks(request.members, parts_by_member, request.groups + part_count)
        ]

    def _split_member(self, member: TaskFile) -> Parts | None:
        request = self.request
        if member.size <= request.split_size or not can_select_records_independently(request.selection):
            return None
        return find_parts(member, request.split_size, request)

    def read(self, partition: ReadPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, file after file."""
        for member, finding in partition.holes:
            yield self.reader.build_damage_batch(member.name, member.format, finding)
        for piece, known_tables in zip(partition.pieces, partition.known_tables, strict=True):
            closed = partial(has_later_file_with_records, piece.member, self._all_members, self.request.open_member)
            reader = self.reader
            if isinstance(reader, TableRowReader):
                reader = replace(reader, known_tables=known_tables)
            yield from read_file_rows(piece.member, self.request, piece.part, reader, closed)


class PushdownReader(BinlogReader):
    """Reader that accepts filters (Spark refuses such a reader if filter pushdown is switched off)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the request by the filters; Spark applies all of them again."""

        self.request = narrow_request(self.request, filters)
        return filters
