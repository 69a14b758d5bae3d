"""Build the rows of records or of one table as Arrow record batches.

Layout version: `binlogtool/rows/1`; within a major version columns are only ever added. A byte range that could not be
read is also a row: type DAMAGE, no record number, the reason in `findings`. So the rows of a file account for all of
its bytes except its unused end and a record that a crash left unfinished in the last file, which are no damage.

For one table, each changed row is one row: the operation (`op`), and the row images as structs. A value that its column
cannot hold (a date 0000-00-00, bytes that are not text, a tuple longer than its format) is null there and is kept in
`unfit` as JSON. The format determines the columns of a table and the rows of a record
(`format_api.tables_and_changes`).
"""

from __future__ import annotations

import contextlib
import glob
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from binlogtool.core.json_text import encode_bodies, findings_to_json, to_json_bytes
from binlogtool.core.open_log import FilePart, LogReader
from binlogtool.core.record_blocks import BlockDecoder, CompiledRun, CompiledSplitter
from binlogtool.core.record_filter import RecordRange
from binlogtool.core.record_selection import FileFinding, RecordBlock, Selection
from binlogtool.errors import UsageError
from binlogtool.export.typed_columns import (
    IMAGES,
    TRAILING_COLUMNS,
    TypedColumn,
    from_spark_column,
    to_arrow_type,
    to_cells,
    to_sql_type,
)
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import JsonLine
from binlogtool.format_api.tables_and_changes import RecordTableRows, TableColumn, TableSchema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from binlogtool.export.manifest import ReadRequest
    from binlogtool.schema.json_line_codegen import CellColumns, CellWriter


# --- Rows from compiled code ---


class CompiledRows:
    """Converter of record ranges to batches of rows by compiled code, where possible.

    schema: columns of the rows. max_rows: maximum number of rows in a batch.
    """

    def __init__(self, schema: pa.Schema, max_rows: int) -> None:
        self._schema = schema
        self._max_rows = max_rows
        self._compiled = CompiledSplitter(self._create_writer)

    def build_parts(self, stretch: RecordRange, file: str) -> Iterator[pa.RecordBatch | RecordBlock]:
        """Yield the records of a range in order: finished batches, and blocks for the general path.

        file: file name in the rows.
        """
        for part in self._compiled.split_range(stretch):
            yield part if isinstance(part, RecordBlock) else self._build_batch(part, file)

    def _create_writer(self, line: JsonLine, maker: BlockDecoder) -> CellWriter:
        from binlogtool.schema.json_line_codegen import CellWriter

        body, extras = maker.decode == "full", "extras" in self._schema.names
        return CellWriter(line, maker.layout, to_json_bytes, self._max_rows, body=body, extras=extras)

    def _build_batch(self, run: CompiledRun[CellColumns], file: str) -> pa.RecordBatch:
        maker = run.record_range.decoder
        columns = ArrowColumns(run.data, file, maker.format.name, getattr(maker.layout.frame.checksum, "name", ""))
        return pa.RecordBatch.from_arrays([columns.build_column(one) for one in self._schema], schema=self._schema)


class ArrowColumns:
    """Converter of cells written by compiled code to Arrow columns."""

    def __init__(self, cells: CellColumns, file: str, format: str, algorithm: str) -> None:
        import numpy as np

        self._cells = cells
        self._valid = {name: np.asarray(valid) for name, valid in cells.valid.items()}
        self._constant = {"file": file, "format": format}
        self._algorithm = algorithm

    def build_column(self, field: pa.Field) -> pa.Array:
        """Return one column."""
        cells, name = self._cells, field.name
        if name in self._constant:
            return pa.repeat(self._constant[name], cells.count)
        if name == "checksum_ok":
            return self._build_array(field.type, name, self._validity_bitmap(name))
        if name in cells.numbers:
            return self._build_array(field.type, name, _copy_to_buffer(cells.numbers[name]))
        if name in cells.texts:
            return self._text_column(name)
        if name == "checksum_algorithm":
            return self._repeated_text_column(self._algorithm)
        return pa.nulls(cells.count, field.type)

    def _text_column(self, name: str) -> pa.Array:
        import numpy as np

        data, ends = self._cells.texts[name]
        return self._build_array(
            pa.string(), name, _copy_to_buffer(np.asarray(ends).astype("int32")), _copy_to_buffer(data[: ends[-1]])
        )

    def _repeated_text_column(self, text: str) -> pa.Array:
        """Return a column with a constant text in every row that has a checksum."""
        import numpy as np

        valid = self._valid["checksum_stored"]
        ends = np.concatenate([[0], np.cumsum(valid, dtype=np.int32) * len(text)]).astype(np.int32)
        data = pa.py_buffer(text.encode() * int(valid.sum()))
        return self._build_array(pa.string(), "checksum_stored", _copy_to_buffer(ends), data)

    def _build_array(self, kind: pa.DataType, name: str, *buffers: Any) -> pa.Array:
        valid = None if self._valid[name].all() else self._validity_bitmap(name)
        return pa.Array.from_buffers(kind, self._cells.count, [valid, *buffers])

    def _validity_bitmap(self, name: str) -> Any:
        import numpy as np

        return _copy_to_buffer(np.packbits(self._valid[name], bitorder="little"))


def _copy_to_buffer(values: memoryview | NDArray[np.generic]) -> Any:
    return pa.py_buffer(values.tobytes())


# --- Records as rows ---

DAMAGE = "DAMAGE"
MAX_BATCH_ROWS = 8192

COLUMNS: tuple[tuple[str, str], ...] = (
    ("file", "string"),
    ("format", "string"),
    ("record", "bigint"),
    ("offset", "bigint"),
    ("size", "bigint"),
    ("inner_offset", "bigint"),
    ("inner_size", "bigint"),
    ("type", "string"),
    ("seq", "bigint"),
    ("time", "timestamp"),
    ("object", "string"),
    ("origin", "bigint"),
    ("txn", "string"),
    ("checksum_algorithm", "string"),
    ("checksum_stored", "string"),
    ("checksum_computed", "string"),
    ("checksum_ok", "boolean"),
    ("body", "string"),
    ("extras", "string"),
    ("findings", "string"),
)
"""(name, Spark SQL type). record: null for DAMAGE rows. checksums: hexadecimal. body, extras, findings: JSON text."""

_ARROW_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "boolean": pa.bool_(),
}
SCHEMA = pa.schema([pa.field(name, _ARROW_TYPES[kind]) for name, kind in COLUMNS])
DDL = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)

RAW_COLUMN = "raw"
"""Optional column: the bytes of the record in its own address space."""

PAYLOADS = ("decoded", "raw", "none")

_INT64 = range(-(1 << 63), 1 << 63)


class RowLayout(msgspec.Struct, frozen=True):
    """Columns of the rows, in order. decode: how far records are decoded for them (full, header, frame)."""

    names: tuple[str, ...] = tuple(name for name, _ in COLUMNS)
    decode: str = "full"

    @property
    def read_schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return pa.schema([_RAW_FIELD if name == RAW_COLUMN else SCHEMA.field(name) for name in self.names])

    @property
    def ddl(self) -> str:
        """Spark DDL of the rows."""
        kinds = {**dict(COLUMNS), RAW_COLUMN: "binary"}
        return ", ".join(f"`{name}` {kinds[name]}" for name in self.names)

    @property
    def raw(self) -> bool:
        """True if the bytes of the records are included."""
        return RAW_COLUMN in self.names

    def compiled_builder(self) -> CompiledRows | None:
        """Return the compiled builder of these rows; None if raw bytes are included, which it does not support."""
        return None if self.raw else CompiledRows(self.read_schema, MAX_BATCH_ROWS)

    def build_batches(self, block: RecordBlock) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block; see `build_block_batches`."""
        return build_block_batches(block, layout=self)

    def build_damage_batch(self, file: str, format: str, damage_finding: Finding) -> pa.RecordBatch:
        """Return one DAMAGE row; see `build_damage_row`."""
        return build_damage_row(file, format, damage_finding, self)


_RAW_FIELD = pa.field(RAW_COLUMN, pa.binary())
DEFAULT_LAYOUT = RowLayout()


def create_layout(columns: Sequence[str] = (), payload: str = "decoded") -> RowLayout:
    """Return the layout of rows with these columns.

    Args:
        columns: names in order; () = all.
        payload: decoded = the decoded body, raw = the record's bytes instead, none = neither.

    Errors in a body are only found if `body` or `findings` are included and the payload is decoded.

    Raises:
        UsageError: a column does not exist, or is named twice.
    """
    if payload not in PAYLOADS:
        raise UsageError(f"payload {payload!r}: choose one of {', '.join(PAYLOADS)}")
    available = [RAW_COLUMN if name == "body" and payload == RAW_COLUMN else name for name, _ in COLUMNS]
    if payload == "none":
        available.remove("body")
    names = tuple(columns) or tuple(available)
    for name in names:
        if name not in available:
            raise UsageError(f"columns: {name!r} is none of {', '.join(available)}")
    if len(set(names)) < len(names):
        raise UsageError("columns: a name is given twice")
    full = payload == "decoded" and not {"body", "findings"}.isdisjoint(names)
    return RowLayout(names, "full" if full else "header" if "extras" in names else "frame")


def build_block_batches(
    block: RecordBlock, max_rows: int = MAX_BATCH_ROWS, layout: RowLayout = DEFAULT_LAYOUT
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a block, in order, in batches of at most `max_rows`."""
    for start in range(0, len(block), max_rows):
        yield _build_batch(block, range(start, min(start + max_rows, len(block))), layout)


def build_damage_row(
    file: str, format: str, damage_finding: Finding, layout: RowLayout = DEFAULT_LAYOUT
) -> pa.RecordBatch:
    """Return a batch of one DAMAGE row."""
    row: dict[str, list[Any]] = {
        "file": [printable_path(file)],
        "format": [format],
        "offset": [damage_finding.offset],
        "size": [damage_finding.length],
        "type": [DAMAGE],
        "findings": [findings_to_json([damage_finding])],
    }
    return pa.RecordBatch.from_pydict({name: row.get(name, [None]) for name in layout.names}, schema=layout.read_schema)


def _build_batch(block: RecordBlock, rows: range, layout: RowLayout) -> pa.RecordBatch:
    row_slice, envelope = slice(rows.start, rows.stop), block.envelope
    findings = {i: block.findings[i] for i in rows if i in block.findings}
    oversized = _OversizedNumbers(block, rows, findings)
    numbers = {
        name: oversized.replace_oversized(name, getattr(envelope, name)[row_slice])
        for name in _NUMBER_COLUMNS
        if name in layout.names
    }
    column_builders: dict[str, Callable[[], Any]] = {
        "file": lambda: [printable_path(block.file)] * len(rows),
        "format": lambda: [block.format] * len(rows),
        "record": lambda: [int(n) for n in block.record[row_slice]],
        "offset": lambda: [int(n) for n in block.offset[row_slice]],
        "size": lambda: [int(n) for n in block.size[row_slice]],
        "inner_offset": lambda: [i and i.offset for i in block.inner[row_slice]],
        "inner_size": lambda: [i and i.size for i in block.inner[row_slice]],
        "type": lambda: envelope.type[row_slice],
        "object": lambda: envelope.object[row_slice],
        "txn": lambda: [None if t is None else str(t) for t in envelope.txn[row_slice]],
        "checksum_algorithm": lambda: [c and c.algorithm for c in block.checksum[row_slice]],
        "checksum_stored": lambda: [c and f"{c.stored:08x}" for c in block.checksum[row_slice]],
        "checksum_computed": lambda: [c and f"{c.computed:08x}" for c in block.checksum[row_slice]],
        "checksum_ok": lambda: [c and c.ok for c in block.checksum[row_slice]],
        "body": lambda: encode_bodies(block.bodies[row_slice]) if block.bodies else [None] * len(rows),
        "extras": lambda: encode_bodies(block.extras[row_slice]) if block.extras else [None] * len(rows),
        "findings": lambda: [findings_to_json(findings.get(i, ())) for i in rows],
        RAW_COLUMN: lambda: None if block.raw is None else block.raw[row_slice],
    }
    columns = {name: numbers[name] if name in numbers else column_builders[name]() for name in layout.names}
    return pa.RecordBatch.from_pydict(columns, schema=layout.read_schema)


_NUMBER_COLUMNS = ("seq", "time", "origin")


def printable_path(path: str) -> str:
    """Return a path as text; bytes that are not UTF-8 are escaped."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


class _OversizedNumbers:
    """Replacer of numbers that exceed a signed 64-bit column: by null, with a finding that contains the number."""

    def __init__(self, block: RecordBlock, rows: range, findings: dict[int, tuple[Finding, ...]]) -> None:
        self._block = block
        self._rows = rows
        self._findings = findings

    def replace_oversized(self, name: str, values: Sequence[int | None]) -> list[int | None]:
        """Return `values` with None for those out of range."""
        fits = [value is None or value in _INT64 for value in values]
        if all(fits):
            return list(values)
        for i, fits_column, value in zip(self._rows, fits, values, strict=True):
            if not fits_column:
                self._findings[i] = (*self._findings.get(i, ()), self._oversized_finding(i, name, value))
        return [value if fine else None for fine, value in zip(fits, values, strict=True)]

    def _oversized_finding(self, i: int, name: str, value: int | None) -> Finding:
        offset, size = int(self._block.offset[i]), int(self._block.size[i])
        message = f"{name} {value} does not fit a signed 64-bit column"
        number = int(self._block.record[i])
        return make_finding("count-out-of-bounds", offset, size, message, record=number, column=name, value=value)


# --- One table with its own columns and types ---

LEADING_COLUMNS: tuple[tuple[str, str], ...] = (
    ("file", "string"),
    ("record", "bigint"),
    ("offset", "bigint"),
    ("row", "int"),
    ("time", "timestamp"),
    ("seq", "bigint"),
    ("txn", "string"),
    ("op", "string"),
)
"""Columns before the images. row: index of the row in the record, from 0."""

_IDS_PREFIX = "ids: "
"""Prefix of the table's other names in the comment of its images, which saves readers from searching for them."""


def build_ddl(fields: Sequence[TypedColumn], ids: Iterable[str] = ()) -> str:
    """Return the Spark DDL of a table's rows. ids: other names of the table."""
    inside = ", ".join(f"{_quote_name(field.name)}: {to_sql_type(field.kind)}" for field in fields)
    comment = (_IDS_PREFIX + json.dumps(sorted(ids))).replace("\\", "\\\\").replace("'", "\\'")
    images = tuple((name, f"struct<{inside}> COMMENT '{comment}'") for name in IMAGES)
    return ", ".join(f"`{name}` {kind}" for name, kind in (*LEADING_COLUMNS, *images, *TRAILING_COLUMNS))


def _quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def schema_fields(schema: Any) -> tuple[TypedColumn, ...]:
    """Return the table's columns from a schema that Spark passes back or the user specified."""
    return tuple(TypedColumn(one.name, from_spark_column(one)) for one in schema["after"].dataType.fields)


def schema_ids(schema: Any) -> frozenset[str] | None:
    """Return the table's other names from a schema of `build_ddl`; None for a schema specified by the user."""
    comment = schema["after"].metadata.get("comment", "")
    with contextlib.suppress(ValueError, TypeError):
        return frozenset(json.loads(comment.removeprefix(_IDS_PREFIX))) if comment.startswith(_IDS_PREFIX) else None
    return None


def select_object(request: ReadRequest, ids: Iterable[str]) -> ReadRequest:
    """Return the request limited to the records of its table. ids: other names of the table."""
    assert request.object is not None
    names = tuple(glob.escape(name) for name in (request.object, *sorted(ids)))
    return replace(request, selection=replace(request.selection, objects=names))


# -- rows ----------------------------------------------------------------------------------------------------------


class TableRowBuilder(msgspec.Struct, frozen=True):
    """Builder of the rows of one table from blocks of `Log.table_rows`.

    fields: the table's columns, in order. known: the part of its definition that is known before reading.
    """

    fields: tuple[TypedColumn, ...]
    decode: str = "tables"
    known: tuple[TableSchema, ...] = ()
    raw: bool = False

    def for_table(self, name: str, ids: Iterable[str]) -> TableRowBuilder:
        """Return a copy for a table of this name. ids: other names of the table."""
        columns = tuple(TableColumn(field.name, field.kind) for field in self.fields)
        return replace(self, known=(TableSchema(name, columns, ids=tuple(ids)),))

    @property
    def read_schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        image = pa.struct([pa.field(name, to_arrow_type(kind)) for name, kind in self.fields])
        images = [pa.field(name, image) for name in IMAGES]
        outer = [
            [pa.field(name, to_arrow_type(kind)) for name, kind in part] for part in (LEADING_COLUMNS, TRAILING_COLUMNS)
        ]
        return pa.schema([*outer[0], *images, *outer[1]])

    def compiled_builder(self) -> None:
        """Return None: there is no compiled code for row images."""

    def build_batches(self, block: RecordBlock) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block; a record that cannot be decoded becomes a row without images."""
        row_dicts = [row for i in range(len(block)) for row in self._record_rows(block, i)]
        for start in range(0, len(row_dicts), MAX_BATCH_ROWS):
            yield pa.RecordBatch.from_pylist(row_dicts[start : start + MAX_BATCH_ROWS], schema=self.read_schema)

    def build_damage_batch(self, file: str, format: str, damage_finding: Finding) -> pa.RecordBatch:
        """Return the row for bytes that cannot be read."""
        row = {"file": printable_path(file), "offset": damage_finding.offset, "op": DAMAGE}
        return pa.RecordBatch.from_pylist(
            [row | {"findings": findings_to_json([damage_finding])}], schema=self.read_schema
        )

    def is_own_table(self, table: TableSchema) -> bool:
        """Return True if this is the builder's table; records are selected by a name that other tables may share."""
        return not self.known or any(one.is_same_table(table) or one.name in table.names for one in self.known)

    def _record_rows(self, block: RecordBlock, i: int) -> Iterator[dict[str, Any]]:
        content: RecordTableRows = block.bodies[i]
        own_rows = [(n, row) for n, row in enumerate((*content.rows, *content.emptied)) if self.is_own_table(row.table)]
        envelope, findings = block.envelope, (*block.findings.get(i, ()), *content.findings)
        if content.changes is not None and not self.is_own_table(content.changes):
            findings = tuple(one for one in findings if one.severity is Severity.NOTE)
        seq = envelope.seq[i]
        base: dict[str, Any] = {
            "file": printable_path(block.file),
            "record": int(block.record[i]),
            "offset": int(block.offset[i]),
            "time": envelope.time[i],
            "seq": seq if seq is None or seq < 1 << 63 else None,
            "txn": None if envelope.txn[i] is None else str(envelope.txn[i]),
            "op": envelope.type[i],
        }
        if findings:
            base["findings"] = findings_to_json(findings)
        if not content.rows and any(one.severity is not Severity.NOTE for one in findings):
            yield base
        for row_index, row in own_rows:
            yield base | {"row": row_index, "op": row.op} | to_cells(row, self.fields)


# --- Row builders ---


class RowBuilder(Protocol):
    """Builder of rows."""

    @property
    def decode(self) -> str:
        """Depth to which records are decoded: frame, header, full, or tables (row changes of tables)."""

    @property
    def raw(self) -> bool:
        """True if the bytes of the records are needed."""

    def compiled_builder(self) -> CompiledRows | None:
        """Return the compiled builder of the same rows; None if there is none."""

    def build_batches(self, block: RecordBlock) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block."""

    def build_damage_batch(self, file: str, format: str, damage_finding: Finding) -> pa.RecordBatch:
        """Return the row for bytes that cannot be read."""


def read_row_parts(
    log: LogReader, name: str | None, selection: Selection, part: FilePart, builder: RowBuilder
) -> Iterator[pa.RecordBatch | RecordBlock | FileFinding]:
    """Yield finished rows where the compiled builder can make them, otherwise blocks and findings.

    name: the file name in finished rows; None = the name of the log's file.
    """
    compiled = builder.compiled_builder()
    if isinstance(builder, TableRowBuilder):
        rules = log.files[0].format.tables
        is_wanted = None
        if rules is not None and rules.statements and builder.known:
            selection, is_wanted = replace(selection, objects=()), builder.is_own_table
        yield from log.table_rows(selection, part=part, known_tables=builder.known, is_selected=is_wanted)
        return
    if compiled is None:
        yield from log.blocks(selection, decode=builder.decode, raw=builder.raw, part=part)
        return
    for log_part in log.record_ranges(selection, decode=builder.decode, part=part):
        if isinstance(log_part, RecordRange):
            yield from compiled.build_parts(log_part, printable_path(log_part.decoder.file if name is None else name))
        else:
            yield log_part
