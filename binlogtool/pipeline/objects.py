"""One table with its own columns and types: `option("object", "shop.orders")`.

Each changed row is one row here: the operation (`op`), and the row images as structs. A value that its column cannot
hold (a date 0000-00-00, bytes that are not text, a tuple longer than its format) is null there and is kept in `unfit`
as JSON. The format determines the columns of a table and the rows of a record (`formats.tables`).
"""

from __future__ import annotations

import contextlib
import glob
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.tables import RecordTableRows, TableColumn, TableSchema
from binlogtool.log.body_json import findings_to_json
from binlogtool.log.records import RecordBlock
from binlogtool.pipeline import rows
from binlogtool.pipeline.cells import from_spark_column, to_arrow_type, to_sql_type
from binlogtool.pipeline.images import IMAGES, TRAILING_COLUMNS, to_cells
from binlogtool.pipeline.object_columns import TypedColumn

if TYPE_CHECKING:
    from binlogtool.pipeline.request import ReadRequest

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
"""Columns before the images. row: its index in the record, from 0."""

_IDS_PREFIX = "ids: "
"""Prefix of the table's other names in the comment of its images, so that a reader need not search for them again."""


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
    """Return the table's other names from a schema of `build_ddl`; None if the schema has none (it is the user's
    own).
    """
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
    """Builds rows of one table from blocks of `Log.table_rows`.

    fields: its columns, in order. known: the table itself, as far as it is known beforehand.
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
        """Return None: no compiled code builds row images."""

    def build_batches(self, block: RecordBlock) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block; a record that cannot be decoded becomes a row without images."""
        row_dicts = [row for i in range(len(block)) for row in self._record_rows(block, i)]
        for start in range(0, len(row_dicts), rows.MAX_BATCH_ROWS):
            yield pa.RecordBatch.from_pylist(row_dicts[start : start + rows.MAX_BATCH_ROWS], schema=self.read_schema)

    def build_damage_batch(self, file: str, format: str, damage_finding: Finding) -> pa.RecordBatch:
        """Return the row for bytes that cannot be read."""
        row = {"file": rows.printable_path(file), "offset": damage_finding.offset, "op": rows.DAMAGE}
        return pa.RecordBatch.from_pylist(
            [row | {"findings": findings_to_json([damage_finding])}], schema=self.read_schema
        )

    def is_own_table(self, table: TableSchema) -> bool:
        """Return True if the table is this one; records are selected by a name that other tables may share."""
        return not self.known or any(one.is_same_table(table) or one.name in table.names for one in self.known)

    def _record_rows(self, block: RecordBlock, i: int) -> Iterator[dict[str, Any]]:
        content: RecordTableRows = block.bodies[i]
        own_rows = [(n, row) for n, row in enumerate((*content.rows, *content.emptied)) if self.is_own_table(row.table)]
        envelope, findings = block.envelope, (*block.findings.get(i, ()), *content.findings)
        if content.changes is not None and not self.is_own_table(content.changes):
            findings = tuple(one for one in findings if one.severity is Severity.NOTE)
        seq = envelope.seq[i]
        base: dict[str, Any] = {
            "file": rows.printable_path(block.file),
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
