"""Write change messages as tables.

Members that differ from table to table (row images, keys, headers) are JSON texts. If the output is one table, or one
directory per table, the images instead have the table's columns with their types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from binlogtool.core.record_and_selection_types import ScriptSummary
from binlogtool.errors import UsageError
from binlogtool.export.envelopes.convert_values import ChangeMessage
from binlogtool.export.envelopes.maxwell import old_values_of_changed_columns
from binlogtool.export.manifest import FindingTally, Manifest, ReadRequest
from binlogtool.export.output_options import EnvelopeOptions, TypedRowOptions
from binlogtool.export.table_spool import SpooledTable, SpoolMemoryLimiter, TableSpool, TableSpools
from binlogtool.export.typed_columns import (
    TableBatch,
    TableEvolution,
    TypedColumn,
    ambiguous_table_error,
    build_row_cells,
    to_arrow_type,
    to_sql_type,
)
from binlogtool.export.write_json_sql_raw import StreamJob
from binlogtool.export.write_spooled_rows_to_table_files import conform_table
from binlogtool.export.write_typed_tables import RowKind, SpoolResult, TaskReader
from binlogtool.format_api.encode_json import encode_json
from binlogtool.format_api.row_output_interfaces import (
    TRUNCATE,
    ChangeEvent,
    SqlTable,
    TableColumn,
    TableRow,
    TableSchema,
    estimate_value_bytes,
    pad_binary_columns,
)

# --- Messages as rows of a table ---

ColumnTypes = Mapping[str, Any]
"""Column name -> type in Spark's notation; for a struct, the types of its members."""

TypedImages = Callable[[Mapping[str, Any], ChangeEvent, TableSchema, Sequence[TypedColumn]], dict[str, Any]]
"""Function (members of a message, change, table, columns of the table so far) -> typed images."""

_TRAILING_COLUMNS: ColumnTypes = {"unfit": "string", "absent": "array<string>"}
"""Columns after typed images: values that do not fit, as JSON, and columns that the log lacks."""
_SOURCE_COLUMNS: ColumnTypes = {
    "version": "string", "connector": "string", "name": "string", "ts_ms": "bigint", "snapshot": "string",
    "db": "string", "sequence": "string", "ts_us": "bigint", "ts_ns": "bigint", "table": "string",
    "server_id": "bigint", "gtid": "string", "file": "string", "pos": "bigint", "row": "int", "thread": "bigint",
    "query": "string",
}  # fmt: skip
_TRANSACTION_COLUMNS: ColumnTypes = {"id": "string", "total_order": "bigint", "data_collection_order": "bigint"}


class MessageRowLayout(msgspec.Struct, frozen=True):
    """Layout of the rows for the messages of an envelope.

    Args:
        columns: all columns, in order.
        images: the columns that hold row images.
        typed: function that returns the images with the columns of their table.
        rest: columns after typed images.
        lists: True if each image holds several rows, as texts.
    """

    columns: ColumnTypes
    images: tuple[str, ...]
    typed: TypedImages
    rest: ColumnTypes
    lists: bool

    def build_row(self, members: Mapping[str, Any], *, with_images: bool) -> dict[str, Any]:
        """Return the columns for a message; members without a column of their shape become JSON texts."""
        row: dict[str, Any] = {
            name: members.get(name) for name in self.columns if with_images or name not in self.images
        }
        for name, value in row.items():
            if self.columns[name] == "string" and value is not None and not isinstance(value, str):
                row[name] = encode_json(value).decode()
        return row


def build_changed_table_schema(change: ChangeEvent) -> TableSchema | None:
    """Return the table of a row change; None if its columns are unknown."""
    table = change.table
    if table is None or not table.columns:
        return None
    columns = tuple(TableColumn(column.name, column.kind) for column in table.columns)
    return TableSchema(table.full_name, columns, tuple(table.key))


def _image_cells(
    change: ChangeEvent, table: TableSchema, fields: Sequence[TypedColumn], *images: Any
) -> dict[str, Any]:
    """Return the cells of two images; columns that the table does not have at this time are not listed as absent."""
    change_columns = change.table.columns if change.table is not None else ()
    sizes = {one.name: one.size for one in change_columns if one.type == "binary"}
    cells = build_row_cells(
        TableRow(table, change.kind, *(pad_binary_columns(image, sizes) for image in images)), fields
    )
    table_columns = {column.name for column in table.columns}
    cells["absent"] = [path for path in cells["absent"] or () if path.partition(".")[2] in table_columns] or None
    return cells


def _debezium_images(
    members: Mapping[str, Any], change: ChangeEvent, table: TableSchema, fields: Sequence[TypedColumn]
) -> dict[str, Any]:
    images = [getattr(change, name) if members[name] is not None else None for name in ("before", "after")]
    cells = _image_cells(change, table, fields, *images)
    return {name: cells[name] for name in ("before", "after", "unfit", "absent")}


def _maxwell_images(
    members: Mapping[str, Any], change: ChangeEvent, table: TableSchema, fields: Sequence[TypedColumn]
) -> dict[str, Any]:
    """Return the typed images of a row; `changed` lists the columns in `old`, including those with NULL."""
    if "data" not in members:
        return {}
    old = old_values_of_changed_columns(change) if "old" in members else None
    data_cells = _image_cells(change, table, fields, None, change.before if change.after is None else change.after)
    old_cells = _image_cells(change, table, fields, old, None)
    absent = [path.replace("after.", "data.", 1) for path in data_cells["absent"] or ()]
    unfit = [text.replace(f'"{a}.', f'"{b}.') for text, a, b in (
        (data_cells["unfit"], "after", "data"), (old_cells["unfit"], "before", "old")) if text]  # fmt: skip
    return {
        "data": data_cells["after"],
        "old": old_cells["before"],
        "changed": None if old is None else list(old),
        "unfit": None if not unfit else f"{{{','.join(one[1:-1] for one in unfit)}}}",
        "absent": absent or None,
    }


def _canal_images(
    members: Mapping[str, Any], _: ChangeEvent, __: TableSchema, fields: Sequence[TypedColumn]
) -> dict[str, Any]:
    return {
        name: [{field.name: row.get(field.name) for field in fields} for row in members[name]]
        for name in ("data", "old")
        if members[name] is not None
    }


MESSAGE_LAYOUTS: Mapping[str, MessageRowLayout] = {
    "debezium": MessageRowLayout(
        {"key": "string", "headers": "string", "before": "string", "after": "string", "source": _SOURCE_COLUMNS,
         "transaction": _TRANSACTION_COLUMNS, "op": "string"},
        ("before", "after"), _debezium_images, _TRAILING_COLUMNS, False,
    ),
    "maxwell": MessageRowLayout(
        {"type": "string", "database": "string", "table": "string", "query": "string", "ts": "bigint", "xid": "bigint",
         "xoffset": "bigint", "commit": "boolean", "position": "string", "gtid": "string", "server_id": "bigint",
         "thread_id": "bigint", "primary_key": "string", "primary_key_columns": "array<string>", "data": "string",
         "old": "string", "sql": "string"},
        ("data", "old"), _maxwell_images, {"changed": "array<string>", **_TRAILING_COLUMNS}, False,
    ),
    "canal": MessageRowLayout(
        {"data": "string", "database": "string", "es": "bigint", "gtid": "string", "isDdl": "boolean",
         "mysqlType": "string", "old": "string", "pkNames": "array<string>", "sql": "string", "sqlType": "string",
         "table": "string", "type": "string"},
        ("data", "old"), _canal_images, {}, True,
    ),
}  # fmt: skip


# --- Output of the messages of one table, or of all tables ---

_MAX_BATCH_ROWS = 8192
_MAX_PENDING_BYTES, _HELD_MEMORY_DIVISOR = 8 << 20, 32
"""Limits of the pending messages of all tables: bytes, and fraction of the memory limit."""
_MESSAGE_BYTES = 1024
"""Memory of a pending message in addition to the values of its row images, in bytes."""


class MessageTableLayout:
    """Layout of the messages of a table. fields: the table's columns so far; None = images are texts."""

    def __init__(self, row_layout: MessageRowLayout, fields: Sequence[TypedColumn] | None) -> None:
        self.row_layout, self.fields = row_layout, fields

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the files."""
        kinds = self.row_layout.columns if self.fields is None else {**self.row_layout.columns, **self.row_layout.rest}
        images = () if self.fields is None else self.row_layout.images
        return pa.schema(
            [pa.field(n, self._image_type() if n in images else _arrow_type(kind)) for n, kind in kinds.items()]
        )

    def _image_type(self) -> pa.DataType:
        lists, fields = self.row_layout.lists, self.fields or ()
        row_type = pa.struct([pa.field(name, pa.string() if lists else to_arrow_type(kind)) for name, kind in fields])
        return pa.list_(row_type) if lists else row_type

    def to_table(self, table_batch: TableBatch) -> pa.Table:
        """Convert a batch to this layout."""
        return conform_table(pa.Table.from_batches([table_batch.batch]), self.schema)

    def column_types(self) -> list[dict[str, str]]:
        """Return the table's columns with their Spark SQL types."""
        return [{"name": name, "type": to_sql_type(kind)} for name, kind in self.fields or ()]


class MessageTableSpool(TableSpool):
    """Spools messages. typed: the images have the columns of one table."""

    def __init__(
        self, *arguments: Any, row_layout: MessageRowLayout, typed: bool, memory: SpoolMemoryLimiter, **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self._row_layout, self._typed, self._memory = row_layout, typed, memory
        self._pending_messages = list[dict[str, Any]]()
        self._last: Any = None
        self._table: Any = None

    def add_message(self, members: Mapping[str, Any], change: ChangeEvent) -> None:
        """Add the next message."""
        row = self._row_layout.build_row(members, with_images=not self._typed)
        if self._typed:
            self._update_table(change)
            if self._table is not None:
                row |= self._row_layout.typed(members, change, self._table, self.history.evolution.fields)
        self._pending_messages.append(row)
        if len(self._pending_messages) >= _MAX_BATCH_ROWS:
            self.flush()

    def _update_table(self, change: ChangeEvent) -> None:
        if change.table is self._last or (change.table is not None and not change.table.columns):
            return
        self._last, table = change.table, build_changed_table_schema(change)
        if table is not None:
            if self._table is None or table.columns != self._table.columns:
                self.flush()
            self._table = table
            self.set_table(table, f"{change.place.file} at {change.place.offset:,}")

    def flush(self) -> None:
        """Build a batch of the pending messages."""
        if self._pending_messages:
            batch = pa.RecordBatch.from_pylist(self._pending_messages, schema=self.layout.schema)
            self._pending_messages = []
            self._memory.add_batch(self, TableBatch((), batch))

    def finish(self, *, keep_empty: bool = False) -> SpooledTable:
        """Write what is pending; see `TableSpool`."""
        self.flush()
        return super().finish(keep_empty=keep_empty)


def _arrow_type(kind: str | ColumnTypes) -> pa.DataType:
    if isinstance(kind, str):
        return to_arrow_type(kind)
    return pa.struct([pa.field(name, _arrow_type(one)) for name, one in kind.items()])


# --- Change messages as tables ---


class MessageOutcome(msgspec.Struct):
    """Facts about the messages of a log, or of a part of it, beside their rows. See `StreamJob`.

    checksum: CRC-32 of the lines of a task.
    """

    records_by_file: Counter[str] = msgspec.field(default_factory=Counter)
    damaged: bool = False
    has_left_out: bool = False
    message_count: int = 0
    script_ends: list[ScriptSummary] = msgspec.field(default_factory=list)
    checksum: int = 0
    unplaced: set[str] = msgspec.field(default_factory=set)

    def add(self, other: MessageOutcome | StreamJob) -> None:
        """Add the facts about the next part of the log."""
        self.records_by_file += other.records_by_file
        self.damaged |= other.damaged
        self.has_left_out |= other.has_left_out
        self.message_count += other.message_count
        self.script_ends += other.script_ends


class MessageRows(RowKind, frozen=True):
    """Change messages as rows of tables.

    typed_options: options of tables with typed images; None = all messages in one table, images as texts. has_types:
    the format of the output has types for images.
    """

    options: EnvelopeOptions
    typed_options: TypedRowOptions | None
    has_types: bool

    @property
    def per_table(self) -> bool:
        """True if each table has its own directory."""
        return self.typed_options is not None and self.typed_options.per_table

    @property
    def is_typed(self) -> bool:
        """True if images have the columns of one table."""
        return self.typed_options is not None and self.has_types

    def make_layout(self, evolution: TableEvolution) -> MessageTableLayout:
        """Return the layout of the messages of a table."""
        return MessageTableLayout(MESSAGE_LAYOUTS[self.options.envelope], evolution.fields if self.is_typed else None)

    def spool_rows(self, reader: TaskReader, pool: ThreadPoolExecutor) -> SpoolResult:
        """Read what a task reads, and spool its messages."""
        tables, result = _MessageTables(self, reader, pool), SpoolResult([], FindingTally(), MessageOutcome())
        options = replace(self.options, tombstones=self.options.envelope != "debezium")
        for _ in self.read_messages_as_lines(reader, options, result, tables.add_message):
            pass
        result.outcome.unplaced = tables.unplaced
        result.tables = tables.spools.finish()
        return result

    def read_messages_as_lines(
        self, reader: TaskReader, options: EnvelopeOptions, spool_result: SpoolResult,
        message_sink: Callable[[ChangeMessage], None] | None = None,
    ) -> Iterator[bytes | memoryview]:  # fmt: skip
        """Yield the messages of what a task reads as lines, or pass them on; add to the findings and the outcome."""
        report, request, outcome, tally = (
            reader.make_progress(),
            reader.request,
            spool_result.outcome,
            spool_result.finding_tally,
        )
        for opened in reader.open_parts():
            stream = StreamJob(
                "jsonl", replace(request, selection=opened.selection), envelope=options,
                message_sink=message_sink, on_read=lambda file, end: report(file, end, outcome.message_count),
            )  # fmt: skip
            yield from stream.encode_parts(
                stream.count_parts_and_drop_damage(stream.read_parts(opened.log, opened.part), []), reader.folder
            )
            tally.merge(stream.finding_tally)
            outcome.add(stream)
            if tally.stops_conversion(opened.selection):
                break

    def find_undecodable_tables(self, outcome: MessageOutcome) -> set[str]:
        """Return the emptied tables that had no messages before."""
        return outcome.unplaced if self.per_table or not outcome.unplaced else {""}

    def merge_outcomes(self, outcomes: Sequence[MessageOutcome]) -> MessageOutcome:
        """Return the outcome of the log."""
        merged = MessageOutcome()
        for one in outcomes:
            merged.add(one)
        return merged

    def check_named_tables_exist(self, result: SpoolResult, table_names: Collection[str], request: ReadRequest) -> None:
        """Check that there are messages of the tables that the options name. Raises UsageError: there are none."""
        if self.typed_options is not None and self.typed_options.objects and not table_names:
            raise UsageError(f"--object {self.typed_options.objects[0]}: the log contains no change of such a table")

    def complete_manifest(self, manifest: Manifest, result: SpoolResult) -> Manifest:
        """Add the records of each input, the envelope, and why it stopped."""
        outcome: MessageOutcome = result.outcome
        details: dict[str, Any] = {"envelope": self.options.envelope}
        if not manifest.complete and not outcome.damaged:
            details["stopped_by"] = "options" if outcome.has_left_out else "envelope"
        details |= {k: v for k, v in manifest.details.items() if k != "tables" or self.typed_options is not None}
        inputs = tuple(replace(i, records=outcome.records_by_file[i.path]) for i in manifest.inputs)
        return replace(manifest, inputs=inputs, damage=0, details=details)


class _MessageTables:
    """Tables that receive messages."""

    def __init__(self, kind: MessageRows, reader: TaskReader, pool: ThreadPoolExecutor) -> None:
        self._kind, self.unplaced = kind, set[str]()
        self._first_table: SqlTable | None = None
        known, max_memory = reader.task.known, reader.request.limits.max_memory
        self.spools = TableSpools(
            reader.folder, kind.make_settings(reader.shape, reader.request, pool), known, create=self._create_spool
        )  # fmt: skip
        self._names = {one.name for one in known}
        self._max_pending_bytes, self._pending_bytes = min(_MAX_PENDING_BYTES, max_memory // _HELD_MEMORY_DIVISOR), 0

    def _create_spool(self, *arguments: Any, **more: Any) -> MessageTableSpool:
        kind = self._kind
        layout = MESSAGE_LAYOUTS[kind.options.envelope]
        return MessageTableSpool(
            *arguments, row_layout=layout, typed=kind.is_typed, memory=self.spools.memory, **more
        )  # fmt: skip

    def add_message(self, message: ChangeMessage) -> None:
        """Add the next message; Debezium's messages about transactions belong to another topic, and are left out."""
        typed_options, (members, change) = self._kind.typed_options, message
        assert isinstance(members, dict) and change is not None
        members = {**members, **members.get("value", {})}
        if self._kind.options.envelope == "debezium" and "op" not in members:
            return
        images = (image.values() for image in (change.before, change.after) if image)
        self._pending_bytes += _MESSAGE_BYTES + sum(map(estimate_value_bytes, chain(*images)))
        if self._pending_bytes > self._max_pending_bytes:
            self._pending_bytes = 0
            for spool in self.spools:
                spool.flush()
        if typed_options is None:
            self.spools[""].add_message(members, change)
            return
        table = change.table
        if table is None:
            return
        name = table.full_name
        if not self._kind.per_table:
            name = next(iter(self._names), name)
        if not table.columns:
            if change.kind != TRUNCATE:
                return  # a message about a statement, not about a row
            if name not in self._names:
                self.unplaced.add(name)
                return
        if not self._kind.per_table:
            self._refuse_second_table(table)
        self._names.add(name)
        self.spools[name].add_message(members, change)

    def _refuse_second_table(self, table: SqlTable) -> None:
        """Raise UsageError if messages about different tables would be mixed."""
        self._first_table = self._first_table or table
        if self._first_table is not table and self._first_table.full_name != table.full_name:
            raise ambiguous_table_error(table.display_name, self._first_table.full_name, table.full_name)
