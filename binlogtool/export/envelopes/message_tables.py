"""Change messages as tables.

Members that differ from table to table (row images, keys, headers) are JSON texts. If the output is one table, or one
directory per table, the images instead have the table's columns with their types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from binlogtool import limits as limits_module
from binlogtool.core.open_log import LogReader, open_log
from binlogtool.core.record_selection import ReadOptions, Selection
from binlogtool.errors import UsageError
from binlogtool.export.atomic_output import TABLES_FILE
from binlogtool.export.envelopes.maxwell import old_values
from binlogtool.export.envelopes.values import MessageLine
from binlogtool.export.manifest import Manifest, ManifestInput, ProgressCallback, ProgressStep
from binlogtool.export.ordered_output import StreamJob
from binlogtool.export.output_options import EnvelopeOptions, TableFileOptions, TypedRowOptions
from binlogtool.export.table_router import TableDirectories
from binlogtool.export.typed_columns import (
    TableBatch,
    TypedColumn,
    ambiguous_table_error,
    to_arrow_type,
    to_cells,
    to_sql_type,
)
from binlogtool.export.typed_tables import SCHEMA, TableOutput, build_checks, check_text_bytes, conform_table
from binlogtool.format_api.format import Hints
from binlogtool.format_api.tables_and_changes import (
    TRUNCATE,
    ChangeEvent,
    SqlTable,
    TableColumn,
    TableRow,
    TableSchema,
    pad_image,
)
from binlogtool.limits import Limits

# --- Messages as rows of a table ---

ColumnTypes = Mapping[str, Any]
"""Names of columns and their types, as Spark writes them; of a struct its members."""

TypedImages = Callable[[dict[str, Any], ChangeEvent, TableSchema, Sequence[TypedColumn]], dict[str, Any] | None]
"""A row with its images as JSON, its change, its table, and the fields that the table has had so far."""

_NULL = msgspec.Raw(b"null")
_TRAILING_COLUMNS: ColumnTypes = {"unfit": "string", "absent": "array<string>"}
"""Columns after typed images: values that do not fit, as JSON, and columns that the log does not have."""
_SOURCE_COLUMNS: ColumnTypes = {
    "version": "string", "connector": "string", "name": "string", "ts_ms": "bigint", "snapshot": "string",
    "db": "string", "sequence": "string", "ts_us": "bigint", "ts_ns": "bigint", "table": "string",
    "server_id": "bigint", "gtid": "string", "file": "string", "pos": "bigint", "row": "int", "thread": "bigint",
    "query": "string",
}  # fmt: skip
_TRANSACTION_COLUMNS: ColumnTypes = {"id": "string", "total_order": "bigint", "data_collection_order": "bigint"}


class MessageRowLayout(msgspec.Struct, frozen=True):
    """Conversion of the messages of an envelope to rows.

    Args:
        columns: all columns, in order.
        images: those that hold row images.
        row: converts a message to columns.
        typed: returns the images with the given fields of their table; None = it has none.
        rest: columns after typed images.
        lists: True if each image holds several rows, of texts.
    """

    columns: ColumnTypes
    images: tuple[str, ...]
    row: Callable[[bytes], dict[str, Any]]
    typed: TypedImages
    rest: ColumnTypes
    lists: bool


def to_table(change: ChangeEvent) -> TableSchema | None:
    """Return the table of a row change; None if its columns are unknown."""
    table = change.table
    if table is None or not table.columns:
        return None
    columns = tuple(TableColumn(column.name, column.kind) for column in table.columns)
    return TableSchema(table.full_name, columns, tuple(table.key))


def _image_cells(
    change: ChangeEvent, table: TableSchema, fields: Sequence[TypedColumn], *images: Any
) -> dict[str, Any]:
    """Return the cells of two images; columns that the table does not have now are not listed as absent."""
    change_columns = change.table.columns if change.table is not None else ()
    sizes = {one.name: one.size for one in change_columns if one.type == "binary"}
    cells = to_cells(TableRow(table, change.kind, *(pad_image(image, sizes) for image in images)), fields)
    table_columns = {column.name for column in table.columns}
    cells["absent"] = [path for path in cells["absent"] or () if path.partition(".")[2] in table_columns] or None
    return cells


def _raw_to_text(raw: msgspec.Raw) -> str | None:
    data = bytes(raw)
    return None if data == b"null" else data.decode()


# -- Debezium ----------------------------------------------------------------------------------------------------------


class _DebeziumValue(msgspec.Struct):
    op: str
    source: dict[str, Any]
    before: msgspec.Raw = _NULL
    after: msgspec.Raw = _NULL
    transaction: dict[str, Any] | None = None


class _DebeziumMessage(msgspec.Struct):
    value: _DebeziumValue
    key: msgspec.Raw = _NULL
    headers: msgspec.Raw = _NULL


def _debezium_row(line: bytes) -> dict[str, Any]:
    message = _decode_debezium(line)
    value = message.value
    return {
        "key": _raw_to_text(message.key),
        "headers": _raw_to_text(message.headers),
        "before": _raw_to_text(value.before),
        "after": _raw_to_text(value.after),
        "source": value.source,
        "transaction": value.transaction,
        "op": value.op,
    }


def _debezium_images(
    row: dict[str, Any], change: ChangeEvent, table: TableSchema, fields: Sequence[TypedColumn]
) -> dict[str, Any] | None:
    images = [getattr(change, name) if row[name] is not None else None for name in ("before", "after")]
    cells = _image_cells(change, table, fields, *images)
    return {name: cells[name] for name in ("before", "after", "unfit", "absent")}


# -- Maxwell -----------------------------------------------------------------------------------------------------------


class _MaxwellMessage(msgspec.Struct):
    type: str
    database: str
    table: str | None = None
    query: str | None = None
    ts: int | None = None
    xid: int | None = None
    xoffset: int | None = None
    commit: bool | None = None
    position: str | None = None
    gtid: str | None = None
    server_id: int | None = None
    thread_id: int | None = None
    primary_key: msgspec.Raw = _NULL
    primary_key_columns: list[str] | None = None
    data: msgspec.Raw = _NULL
    old: msgspec.Raw = _NULL
    sql: str | None = None


def _maxwell_row(line: bytes) -> dict[str, Any]:
    message = _decode_maxwell(line)
    members = {name: getattr(message, name) for name in message.__struct_fields__}
    return {name: _raw_to_text(value) if isinstance(value, msgspec.Raw) else value for name, value in members.items()}


def _maxwell_images(
    row: dict[str, Any], change: ChangeEvent, table: TableSchema, fields: Sequence[TypedColumn]
) -> dict[str, Any] | None:
    """Return the typed images of a row; `changed` lists the columns in `old`, where NULL may be a value."""
    if row["data"] is None:
        return None
    old = old_values(change) if row["old"] is not None else None
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


# -- Canal -------------------------------------------------------------------------------------------------------------


class _CanalMessage(msgspec.Struct):
    data: msgspec.Raw
    database: str
    es: int | None
    gtid: str
    isDdl: bool
    mysqlType: msgspec.Raw
    old: msgspec.Raw
    pkNames: list[str] | None
    sql: str
    sqlType: msgspec.Raw
    table: str
    type: str


def _canal_row(line: bytes) -> dict[str, Any]:
    message = _decode_canal(line)
    members = {name: getattr(message, name) for name in message.__struct_fields__}
    return {name: _raw_to_text(value) if isinstance(value, msgspec.Raw) else value for name, value in members.items()}


def _canal_images(
    row: dict[str, Any], _: ChangeEvent, __: TableSchema, fields: Sequence[TypedColumn]
) -> dict[str, Any] | None:
    if row["data"] is None:
        return None
    decoded = {name: None if row[name] is None else msgspec.json.decode(row[name]) for name in ("data", "old")}
    return {
        name: None if rows is None else [_complete_row(one, fields) for one in rows] for name, rows in decoded.items()
    }


def _complete_row(row: dict[str, Any], fields: Sequence[TypedColumn]) -> dict[str, Any]:
    return {name: row.get(name) for name, _ in fields}


_decode_debezium = msgspec.json.Decoder(_DebeziumMessage).decode
_decode_maxwell = msgspec.json.Decoder(_MaxwellMessage).decode
_decode_canal = msgspec.json.Decoder(_CanalMessage).decode

MESSAGE_LAYOUTS: Mapping[str, MessageRowLayout] = {
    "debezium": MessageRowLayout(
        {"key": "string", "headers": "string", "before": "string", "after": "string", "source": _SOURCE_COLUMNS,
         "transaction": _TRANSACTION_COLUMNS, "op": "string"},
        ("before", "after"), _debezium_row, _debezium_images, _TRAILING_COLUMNS, False,
    ),
    "maxwell": MessageRowLayout(
        {"type": "string", "database": "string", "table": "string", "query": "string", "ts": "bigint", "xid": "bigint",
         "xoffset": "bigint", "commit": "boolean", "position": "string", "gtid": "string", "server_id": "bigint",
         "thread_id": "bigint", "primary_key": "string", "primary_key_columns": "array<string>", "data": "string",
         "old": "string", "sql": "string"},
        ("data", "old"), _maxwell_row, _maxwell_images, {"changed": "array<string>", **_TRAILING_COLUMNS}, False,
    ),
    "canal": MessageRowLayout(
        {"data": "string", "database": "string", "es": "bigint", "gtid": "string", "isDdl": "boolean",
         "mysqlType": "string", "old": "string", "pkNames": "array<string>", "sql": "string", "sqlType": "string",
         "table": "string", "type": "string"},
        ("data", "old"), _canal_row, _canal_images, {}, True,
    ),
}  # fmt: skip


# --- Output of the messages of one table, or of all tables ---

_MAX_BATCH_ROWS = 8192
_MAX_PENDING_BYTES, _HELD_MEMORY_DIVISOR = 8 << 20, 32
"""Limits of pending messages: bytes, and fraction of the memory limit."""


class MessageTableLayout:
    """Columns of the messages of a table. fields: the table's columns so far; None = images are texts."""

    def __init__(self, row_layout: MessageRowLayout, fields: Sequence[TypedColumn] | None) -> None:
        self.row_layout, self.fields = row_layout, fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageTableLayout) and self.schema.equals(other.schema)

    __hash__ = None  # type: ignore[assignment]

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


class MessageTableOutput(TableOutput):
    """Output of messages. typed: the images have the columns of one table."""

    def __init__(self, *arguments: Any, row_layout: MessageRowLayout, typed: bool) -> None:
        super().__init__(*arguments, operations=False)
        self._max_pending_size = min(_MAX_PENDING_BYTES, arguments[-1] // _HELD_MEMORY_DIVISOR)
        self._row_layout, self._typed = row_layout, typed
        self._pending_messages, self._pending_size = list[dict[str, Any]](), 0
        self._last: Any = None
        self._table: Any = None

    @property
    def layout(self) -> MessageTableLayout:
        """Layout of the messages, as far as the columns are known now."""
        return MessageTableLayout(self._row_layout, self.evolution.fields if self._typed else None)

    def add_message(self, line: MessageLine) -> None:
        """Add the next message."""
        data, change = line
        row = self._row_layout.row(data)
        if self._typed:
            assert change is not None
            self._update_table(change)
            images = None
            if self._table is not None:
                images = self._row_layout.typed(row, change, self._table, self.evolution.fields)
            row.update(images or dict.fromkeys(self._row_layout.images))
        self._pending_messages.append(row)
        self._pending_size += len(data)
        if len(self._pending_messages) >= _MAX_BATCH_ROWS or self._pending_size >= self._max_pending_size:
            self.flush()

    def _update_table(self, change: ChangeEvent) -> None:
        if change.table is self._last or (change.table is not None and not change.table.columns):
            return
        self._last, table = change.table, to_table(change)
        if table is not None:
            if self._table is None or table.columns != self._table.columns:
                self.flush()
            self._table = table
            self.set_table(table, f"{change.place.file} at {change.place.offset:,}")

    def flush(self) -> None:
        """Build a batch of the pending messages."""
        if self._pending_messages:
            batch = pa.RecordBatch.from_pylist(self._pending_messages, schema=self.layout.schema)
            self._pending_messages, self._pending_size = [], 0
            self.add_batch(TableBatch((), batch))

    def finish(self) -> None:
        """Write the output files; see `TableOutput`."""
        self.flush()
        super().finish()


def _arrow_type(kind: str | ColumnTypes) -> pa.DataType:
    if isinstance(kind, str):
        return to_arrow_type(kind)
    return pa.struct([pa.field(name, _arrow_type(one)) for name, one in kind.items()])


# --- Change messages as tables ---

_MEMORY_DIVISOR = 4
"""Pending messages of all tables use at most this fraction of the memory limit."""


class MessagesJob(msgspec.Struct, frozen=True):
    """One conversion of messages to tables.

    typed_options: options of tables with typed images; None = all messages in one table, images as texts.
    """

    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None
    shape: TableFileOptions
    options: EnvelopeOptions
    typed_options: TypedRowOptions | None = None
    on_step: ProgressCallback | None = None

    def write(self, format: str, inputs: list[ManifestInput], stage: Path) -> Manifest:
        """Write a directory at `stage`.

        Raises:
            UsageError: a format has no row changes, or no table matches the selection.
            InputOutputError, LimitError.
        """
        limits_module.set_resident_ceiling()
        stage.mkdir()
        with ThreadPoolExecutor(1) as pool:
            return _MessagesJobState(self, stage, pool).run(format, inputs)


class _MessagesJobState:
    """State of a job."""

    def __init__(self, job: MessagesJob, stage: Path, pool: ThreadPoolExecutor) -> None:
        self.job, self.stage, self.pool = job, stage, pool
        self._targets: dict[str, MessageTableOutput] = {}
        self._directories = TableDirectories()
        self._first_table: SqlTable | None = None
        self._per_table = job.typed_options is not None and job.typed_options.per_table
        if job.shape.partition_by:
            raise UsageError(
                "--partition-by cannot be used with --envelope; --per-table makes a directory for each table"
            )

    def run(self, format: str, inputs: list[ManifestInput]) -> Manifest:
        """Read the log, and write the output."""
        job = self.job
        options = replace(job.options, tombstones=job.options.envelope != "debezium")
        stream = StreamJob(
            "jsonl", job.limits, job.backend, job.selection, job.hints, None, on_step=job.on_step, envelope=options,
            message_sink=self._add_message,
        )  # fmt: skip
        files = [i.path for i in inputs]
        with open_log(
            files, ReadOptions(format=format, limits=job.limits, backend=job.backend, hints=job.hints), LogReader
        ) as log:
            for _ in stream.account_parts(stream.read_parts(log), inputs):
                self._limit_memory()
        if job.selection.on_damage == "stop" and stream.finding_tally.errors:
            return stream.build_manifest(inputs, (), (), complete=False)
        if not self._targets:
            self._handle_no_messages()
        self._write_outputs()
        return self._build_manifest(stream, inputs)

    def _add_message(self, line: MessageLine) -> None:
        typed_options, change = self.job.typed_options, line[1]
        if typed_options is None:
            return self._get_target("").add_message(line)
        table = None if change is None else change.table
        if change is None or table is None:
            return None
        name = table.full_name
        if table.columns or (change.kind == TRUNCATE and (name if self._per_table else "") in self._targets):
            if not self._per_table:
                self._check_single_table(table)
            self._get_target(name).add_message(line)
        return None  # a message about a statement, not about a row

    def _check_single_table(self, table: SqlTable) -> None:
        """Raise UsageError if messages about different tables would be mixed."""
        self._first_table = self._first_table or table
        if self._first_table is not table and self._first_table.full_name != table.full_name:
            raise ambiguous_table_error(table.display_name, self._first_table.full_name, table.full_name)

    def _get_target(self, name: str) -> MessageTableOutput:
        key = name if self._per_table else ""
        if key not in self._targets:
            job, folder = self.job, self.stage / self._directories.directory_of(name) if self._per_table else self.stage
            self._targets[key] = MessageTableOutput(
                name, folder, job.shape, job.typed_options or TypedRowOptions(), self.pool, job.limits.max_memory,
                row_layout=MESSAGE_LAYOUTS[job.options.envelope],
                typed=job.typed_options is not None and job.shape.to != "csv",
            )  # fmt: skip
        return self._targets[key]

    def _limit_memory(self) -> None:
        """Spool pending messages if all tables together exceed the memory of one."""
        if sum(one.pending_bytes for one in self._targets.values()) > self.job.limits.max_memory // _MEMORY_DIVISOR:
            for target in self._targets.values():
                target.flush()
                target.spool_pending()
                target.close_spool()

    def _handle_no_messages(self) -> None:
        """Raise UsageError if a table was named; otherwise create an empty output."""
        typed_options = self.job.typed_options
        if typed_options is not None and typed_options.objects:
            raise UsageError(f"--object {typed_options.objects[0]}: the log contains no change of such a table")
        if typed_options is None:
            self._get_target("")

    def _write_outputs(self) -> None:
        for number, target in enumerate(self._targets.values()):
            if self.job.on_step is not None:
                self.job.on_step(ProgressStep("writing", number, len(self._targets)))
            target.finish()
        check_text_bytes(self._targets.values())
        if self._per_table:
            text = json.dumps({"schema": SCHEMA, "tables": list(self._describe_tables())}, indent=2)
            (self.stage / TABLES_FILE).write_text(text + "\n")
        (self.stage / "_SUCCESS").touch()

    def _describe_tables(self) -> Iterator[dict[str, Any]]:
        for target in self._targets.values():
            yield target.to_dict(self._directories.directory_of(target.name) if self._per_table else ".")

    def _build_manifest(self, stream: StreamJob, inputs: list[ManifestInput]) -> Manifest:
        outputs = tuple(
            replace(one, path=str(target.folder.relative_to(self.stage) / one.path))
            for target in self._targets.values()
            for one in target.outputs
        )
        row_count = sum(target.rows for target in self._targets.values())
        manifest = stream.build_manifest(inputs, outputs, tuple(build_checks(row_count, outputs)), complete=True)
        table_details = {} if self.job.typed_options is None else {"tables": list(self._describe_tables())}
        return replace(manifest, rows=row_count, details={**manifest.details, **table_details})
