"""One table as a table with its own columns and types: `option("object", "shop.orders")`.

Each changed row is a row here: what happened (`op`), and the images as structs. A value that its column cannot hold (a
date 0000-00-00, bytes that are no text, a tuple longer than its format) is null there and stands in `unfit` as JSON, so
that nothing is lost. What columns a table has, and what rows a record has, is told by its format (`formats.tables`).
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
"""Columns before the images. row: its place in the record, from 0."""

_IDS = "ids: "
"""Before what else the object is called, in the comment of its images: so that a reader need not look for it again."""


def ddl(fields: Sequence[Field], ids: Iterable[str] = ()) -> str:
    """The schema of an object's rows. ids: what else the object is called."""
    inside = ", ".join(f"{_quoted(field.name)}: {sql_type(field.kind)}" for field in fields)
    comment = (_IDS + json.dumps(sorted(ids))).replace("\\", "\\\\").replace("'", "\\'")
    images = tuple((name, f"struct<{inside}> COMMENT '{comment}'") for name in IMAGES)
    return ", ".join(f"`{name}` {kind}" for name, kind in (*ENVELOPE, *images, *REST))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def fields_of(schema: Any) -> tuple[Field, ...]:
    """The columns of the object in a schema that Spark gives back (or the user gave)."""
    return tuple(Field(one.name, kind_of(one)) for one in schema["after"].dataType.fields)


def ids_of(schema: Any) -> frozenset[str] | None:
    """What else the object is called, by a schema of `ddl`; None = it does not say (it is the user's own)."""
    comment = schema["after"].metadata.get("comment", "")
    with contextlib.suppress(ValueError, TypeError):
        return frozenset(json.loads(comment.removeprefix(_IDS))) if comment.startswith(_IDS) else None
    return None


def selecting(request: Request, ids: Iterable[str]) -> Request:
    """The request for the records of its object only. ids: what else the object is called."""
    assert request.object is not None
    names = tuple(glob.escape(name) for name in (request.object, *sorted(ids)))
    return replace(request, selection=replace(request.selection, objects=names))


# -- its rows ----------------------------------------------------------------------------------------------------------


class ObjectRows(msgspec.Struct, frozen=True):
    """Turns blocks of `Log.tables` into rows of one object. fields: its columns, in order. known: itself, as far as it
    is known beforehand."""

    fields: tuple[Field, ...]
    decode: str = "tables"
    known: tuple[Table, ...] = ()
    raw: bool = False

    def named(self, name: str, ids: Iterable[str]) -> ObjectRows:
        """The same for an object of this name. ids: what else records call it."""
        columns = tuple(Column(field.name, field.kind) for field in self.fields)
        return replace(self, known=(Table(name, columns, ids=tuple(ids)),))

    @property
    def schema(self) -> pa.Schema:
        """As Arrow has it."""
        image = pa.struct([pa.field(name, arrow_type(kind)) for name, kind in self.fields])
        images = [pa.field(name, image) for name in IMAGES]
        outer = [[pa.field(name, arrow_type(kind)) for name, kind in part] for part in (ENVELOPE, REST)]
        return pa.schema([*outer[0], *images, *outer[1]])

    def native(self) -> None:
        """Images are not made by compiled code."""

    def batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The rows of a block; a record that cannot be decoded is one without images."""
        made = [row for i in range(len(block)) for row in self._of(block, i)]
        for start in range(0, len(made), rows.MAX_BATCH_ROWS):
            yield pa.RecordBatch.from_pylist(made[start : start + rows.MAX_BATCH_ROWS], schema=self.schema)

    def damage(self, file: str, format: str, found: Finding) -> pa.RecordBatch:
        """One row for bytes that cannot be read."""
        row = {"file": rows.file_name(file), "offset": found.offset, "op": rows.DAMAGE}
        return pa.RecordBatch.from_pylist([row | {"findings": findings_text([found])}], schema=self.schema)

    def is_own(self, table: Table) -> bool:
        """Records are chosen by a name that another table may have, too."""
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
