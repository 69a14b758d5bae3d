"""Batches of changed rows of one table: metadata columns of every row, and both row images as structs."""

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
"""Columns before those of the table. row: index in the record, from 0. commit: True for the last row of its
transaction; null if the log does not say."""

OPERATIONS = ("key", "ops")
CHANGED = "changed"
"""Only with the image `changes`: column with the names of the columns that an UPDATE changed."""


def fields_of(kinds: Sequence[tuple[str, str]]) -> list[pa.Field]:
    """Return Arrow fields for (name, type) pairs."""
    return [pa.field(name, arrow_type(kind)) for name, kind in kinds]


META_FIELDS, REST_FIELDS = fields_of(META), fields_of(REST)


class Piece(msgspec.Struct, frozen=True):
    """Rows of one table in the order of the log.

    fields: columns of the table, in the order of the structs `before` and `after` of the batch, which are between
    METADATA_COLUMNS and the trailing columns.
    """

    fields: tuple[Field, ...]
    batch: pa.RecordBatch

    def image(self, name: str) -> pa.StructArray:
        """Return the struct array of an image: before or after."""
        return self.batch.column(len(META) + IMAGES.index(name))


def piece_schema(fields: Sequence[Field]) -> pa.Schema:
    """Return the Arrow schema of a batch with these columns."""
    image = pa.struct([pa.field(name, arrow_type(kind)) for name, kind in fields])
    return pa.schema([*META_FIELDS, *(pa.field(name, image) for name in IMAGES), *REST_FIELDS])


def piece_of(fields: tuple[Field, ...], rows: list[dict[str, Any]]) -> Piece:
    """Build a batch from rows as dictionaries: metadata and trailing members, images as mappings."""
    return Piece(fields, pa.RecordBatch.from_pylist(rows, schema=piece_schema(fields)))
