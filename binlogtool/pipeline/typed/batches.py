"""Rows of tables on their way into files: what all rows have, and pieces of one table with both images as structs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from binlogtool.pipeline.cells import arrow_type
from binlogtool.pipeline.images import IMAGES, REST
from binlogtool.pipeline.object_columns import Field

META: tuple[tuple[str, str], ...] = (
    ("op", "string"),
    ("seq", "bigint"),
    ("txn", "string"),
    ("time", "timestamp"),
    ("server", "bigint"),
    ("file", "string"),
    ("record", "bigint"),
    ("offset", "bigint"),
    ("row", "int"),
    ("commit", "boolean"),
)
"""Columns before those of the table. row: its place in the record, from 0. commit: is it the last row of its
transaction? Null where the log does not tell."""

OPERATIONS = ("key", "ops")
CHANGED = "changed"
"""Only with the image `changes`: names of the columns that an UPDATE changed."""


def fields_of(kinds: Sequence[tuple[str, str]]) -> list[pa.Field]:
    """Columns of Arrow."""
    return [pa.field(name, arrow_type(kind)) for name, kind in kinds]


META_FIELDS, REST_FIELDS = fields_of(META), fields_of(REST)


class Piece(msgspec.Struct, frozen=True):
    """Rows of one table in the order of the log. fields: its columns, in the order of the structs `before` and `after`
    of the batch, which stand between the columns of META and REST."""

    fields: tuple[Field, ...]
    batch: pa.RecordBatch

    def image(self, name: str) -> pa.StructArray:
        """before or after."""
        return self.batch.column(len(META) + IMAGES.index(name))


def piece_schema(fields: Sequence[Field]) -> pa.Schema:
    """Of a piece with these columns."""
    image = pa.struct([pa.field(name, arrow_type(kind)) for name, kind in fields])
    return pa.schema([*META_FIELDS, *(pa.field(name, image) for name in IMAGES), *REST_FIELDS])


def piece_of(fields: tuple[Field, ...], rows: list[dict[str, Any]]) -> Piece:
    """A piece of rows one by one: members of META and REST, images as maps."""
    return Piece(fields, pa.RecordBatch.from_pylist(rows, schema=piece_schema(fields)))
