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
from binlogtool.formats.tables import Column, Table, Told
from binlogtool.log.body_json import findings_text
from binlogtool.log.records import Block
from binlogtool.pipeline import rows
from binlogtool.pipeline.cells import arrow_type, kind_of, sql_type
from binlogtool.pipeline.images import IMAGES, REST, cells_of
from binlogtool.pipeline.object_columns import Field

if TYPE_CHECKING:
    from binlogtool.pipeline.request import Request

ENVELOPE: tuple[tuple[str, str], ...] = (
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

_IDS = "ids: "
"""Prefix of the table's other names in the comment of its images, so that a reader need not search for them again."""


def ddl(fields: Sequence[Field], ids: Iterable[str] = ()) -> str:
    """Return the Spark DDL of a table's rows. ids: other names of the table."""
    inside = ", ".join(f"{_quoted(field.name)}: {sql_type(field.kind)}" for field in fields)
    comment = (_IDS + json.dumps(sorted(ids))).replace("\\", "\\\\").replace("'", "\\'")
    images = tuple((name, f"struct<{inside}> COMMENT '{comment}'") for name in IMAGES)
    return ", ".join(f"`{name}` {kind}" for name, kind in (*ENVELOPE, *images, *REST))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def fields_of(schema: Any) -> tuple[Field, ...]:
    """Return the table's columns from a schema that Spark passes back or the user specified."""
    return tuple(Field(one.name, kind_of(one)) for one in schema["after"].dataType.fields)


def ids_of(schema: Any) -> frozenset[str] | None:
    """Return the table's other names from a schema of `build_ddl`; None if the schema has none (it is the user's
    own).
    """
    comment = schema["after"].metadata.get("comment", "")
    with contextlib.suppress(ValueError, TypeError):
        return frozenset(json.loads(comment.removeprefix(_IDS))) if comment.startswith(_IDS) else None
    return None


def selecting(request: Request, ids: Iterable[str]) -> Request:
    """Return the request limited to the records of its table. ids: other names of the table."""
    assert request.object is not None
    names = tuple(glob.escape(name) for name in (request.object, *sorted(ids)))
    return replace(request, selection=replace(request.selection, objects=names))


# -- rows ----------------------------------------------------------------------------------------------------------


class ObjectRows(msgspec.Struct, frozen=True):
    """Builds rows of one table from blocks of `Log.tables`.

    fields: its columns, in order. known: the table itself, as far as it is known beforehand.
    """

    fields: tuple[Field, ...]
    decode: str = "tables"
    known: tuple[Table, ...] = ()
    raw: bool = False

    def named(self, name: str, ids: Iterable[str]) -> ObjectRows:
        """Return a copy for a table of this name. ids: other names of the table."""
        columns = tuple(Column(field.name, field.kind) for field in self.fields)
        return replace(self, known=(Table(name, columns, ids=tuple(ids)),))

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        image = pa.struct([pa.field(name, arrow_type(kind)) for name, kind in self.fields])
        images = [pa.field(name, image) for name in IMAGES]
        outer = [[pa.field(name, arrow_type(kind)) for name, kind in part] for part in (ENVELOPE, REST)]
        return pa.schema([*outer[0], *images, *outer[1]])

    def native(self) -> None:
        """Return None: no compiled code builds row images."""

    def batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block; a record that cannot be decoded becomes a row without images."""
        made = [row for i in range(len(block)) for row in self._of(block, i)]
        for start in range(0, len(made), rows.MAX_BATCH_ROWS):
            yield pa.RecordBatch.from_pylist(made[start : start + rows.MAX_BATCH_ROWS], schema=self.schema)

    def damage(self, file: str, format: str, found: Finding) -> pa.RecordBatch:
        """Return the row for bytes that cannot be read."""
        row = {"file": rows.file_name(file), "offset": found.offset, "op": rows.DAMAGE}
        return pa.RecordBatch.from_pylist([row | {"findings": findings_text([found])}], schema=self.schema)

    def is_own(self, table: Table) -> bool:
        """Return True if the table is this one; records are selected by a name that other tables may share."""
        return not self.known or any(one.is_same(table) or one.name in table.names for one in self.known)

    def _of(self, block: Block, i: int) -> Iterator[dict[str, Any]]:
        told: Told = block.bodies[i]
        given = [(n, row) for n, row in enumerate((*told.rows, *told.emptied)) if self.is_own(row.table)]
        e, found = block.envelope, (*block.findings.get(i, ()), *told.findings)
        if told.changes is not None and not self.is_own(told.changes):
            found = tuple(one for one in found if one.severity is Severity.NOTE)
        seq = e.seq[i]
        base: dict[str, Any] = {
            "file": rows.file_name(block.file),
            "record": int(block.record[i]),
            "offset": int(block.offset[i]),
            "time": e.time[i],
            "seq": seq if seq is None or seq < 1 << 63 else None,
            "txn": None if e.txn[i] is None else str(e.txn[i]),
            "op": e.type[i],
        }
        if found:
            base["findings"] = findings_text(found)
        if not told.rows and any(one.severity is not Severity.NOTE for one in found):
            yield base
        for n, row in given:
            yield base | {"row": n, "op": row.op} | cells_of(row, self.fields)
