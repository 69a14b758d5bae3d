"""Batches of changed rows of one table: metadata columns of every row, and both row images as structs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from binlogtool.pipeline.cells import to_arrow_type
from binlogtool.pipeline.images import IMAGES, TRAILING_COLUMNS
from binlogtool.pipeline.object_columns import TypedColumn

METADATA_COLUMNS: tuple[tuple[str, str], ...] = (
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

OPERATION_COLUMNS = ("key", "ops")
CHANGED_COLUMN = "changed"
"""Only with the image `changes`: column with the names of the columns that an UPDATE changed."""


def to_arrow_fields(kinds: Sequence[tuple[str, str]]) -> list[pa.Field]:
    """Return Arrow fields for (name, type) pairs."""
    return [pa.field(name, to_arrow_type(kind)) for name, kind in kinds]


METADATA_FIELDS, TRAILING_FIELDS = to_arrow_fields(METADATA_COLUMNS), to_arrow_fields(TRAILING_COLUMNS)


class TableBatch(msgspec.Struct, frozen=True):
    """Rows of one table in the order of the log.

    fields: columns of the table, in the order of the structs `before` and `after` of the batch, which are between
    METADATA_COLUMNS and the trailing columns.
    """

    fields: tuple[TypedColumn, ...]
    batch: pa.RecordBatch

    def image(self, name: str) -> pa.StructArray:
        """Return the struct array of an image: before or after."""
        return self.batch.column(len(METADATA_COLUMNS) + IMAGES.index(name))


def batch_schema(fields: Sequence[TypedColumn]) -> pa.Schema:
    """Return the Arrow schema of a batch with these columns."""
    image = pa.struct([pa.field(name, to_arrow_type(kind)) for name, kind in fields])
    return pa.schema([*METADATA_FIELDS, *(pa.field(name, image) for name in IMAGES), *TRAILING_FIELDS])


def build_table_batch(fields: tuple[TypedColumn, ...], rows: list[dict[str, Any]]) -> TableBatch:
    """Build a batch from rows as dictionaries: metadata and trailing members, images as mappings."""
    return TableBatch(fields, pa.RecordBatch.from_pylist(rows, schema=batch_schema(fields)))
