"""Schema evolution of a table: columns are added by name and become wider; rows are converted to the result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as compute

from binlogtool.formats.tables import TUPLE, TableSchema
from binlogtool.log.body_json import to_json_text
from binlogtool.pipeline.cells import to_arrow_type, to_sql_type, widen_type
from binlogtool.pipeline.images import IMAGES
from binlogtool.pipeline.object_columns import TypedColumn
from binlogtool.pipeline.typed.batches import (
    CHANGED_COLUMN,
    METADATA_COLUMNS,
    METADATA_FIELDS,
    OPERATION_COLUMNS,
    TRAILING_FIELDS,
    TableBatch,
)
from binlogtool.pipeline.typed.missing import PartialImages, find_partial_images

_METADATA_NAMES = frozenset(name for name, _ in METADATA_COLUMNS)


class TableEvolution:
    """Columns of one table so far. kinds: name -> type. key: columns of its key, as last described."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.key: tuple[str, ...] = ()
        self._last: TableSchema | None = None

    def add_definition(self, table: TableSchema) -> list[str]:
        """Merge the table's current definition; return the changes as texts."""
        before, self._last, self.key = self._last, table, table.key or self.key
        if before is not None and before.columns == table.columns:
            return []
        changes = []
        for name, kind in [(c.name, c.type) for c in table.columns]:
            old_kind = self.kinds.get(name)
            self.kinds[name] = kind if old_kind is None else widen_type(old_kind, kind) or old_kind
            if before is None:
                continue
            if old_kind is None:
                changes.append(f"the column {name} ({kind}) is new")
            elif self.kinds[name] != old_kind:
                changes.append(f"the column {name} ({old_kind}) is {self.kinds[name]} now")
            elif widen_type(old_kind, kind) is None:
                changes.append(f"the column {name} is {old_kind}: what comes as {kind} stands in unfit")
        removed = {c.name for c in before.columns} - {c.name for c in table.columns} if before is not None else ()
        return changes + [f"the column {name} is not there any more" for name in sorted(removed)]

    @property
    def fields(self) -> tuple[TypedColumn, ...]:
        """Columns in the order in which they appeared."""
        return tuple(TypedColumn(name, kind) for name, kind in self.kinds.items())


class TableLayout:
    """Columns of the files of a table. operations: include columns for changes without images."""

    def __init__(self, fields: Sequence[TypedColumn], key: Sequence[str], image: str, *, operations: bool) -> None:
        self.fields, self.key, self.image = tuple(fields), frozenset(key), image
        self.operations = operations

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableLayout) and self.schema.equals(other.schema)

    __hash__ = None  # type: ignore[assignment]

    @property
    def column_names(self) -> list[str]:
        """Names of the table's columns in files; those that equal a metadata name get a trailing `_`."""
        file_names, used = list[str](), {*_METADATA_NAMES, *(field.name for field in self._trailing_fields())}
        used |= {CHANGED_COLUMN} if self.image == "changes" else set()
        for name, _ in self.fields:
            while name.casefold() in used:
                name += "_"
            used.add(name.casefold())
            file_names.append(name)
        return file_names

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the files."""
        flat = [
            pa.field(name, to_arrow_type(kind)) for name, (_, kind) in zip(self.column_names, self.fields, strict=True)
        ]
        if self.image == "both" and flat:
            image = pa.struct([pa.field(name, to_arrow_type(kind)) for name, kind in self.fields])
            table_fields = [pa.field(name, image) for name in IMAGES]
        else:
            table_fields = flat + ([pa.field(CHANGED_COLUMN, pa.list_(pa.string()))] if self.image == "changes" else [])
        return pa.schema([*METADATA_FIELDS, *table_fields, *self._trailing_fields()])

    def column_types(self) -> list[dict[str, str]]:
        """Return the table's columns with their Spark SQL types."""
        return [
            {"name": n, "type": to_sql_type(kind)} for n, (_, kind) in zip(self.column_names, self.fields, strict=True)
        ]

    def _trailing_fields(self) -> list[pa.Field]:
        return [field for field in TRAILING_FIELDS if self.operations or field.name not in OPERATION_COLUMNS]

    def to_table(self, table_batch: TableBatch) -> pa.Table:
        """Convert a batch to this layout."""
        batch, unfit = table_batch.batch, dict[int, dict[str, Any]]()
        images = {name: self._conform_image(table_batch, name, unfit) for name in self._needed_images(table_batch)}
        columns: dict[str, Any] = {name: batch.column(name) for name in batch.schema.names if name not in IMAGES}
        if unfit:
            columns["unfit"] = _merge_unfit(columns["unfit"], unfit)
        before, after = table_batch.image("before"), table_batch.image("after")
        flat = self.image in ("after", "changes")
        partial = find_partial_images(batch.column("absent"), before, after) if flat else None
        columns["absent"] = columns["absent"] if partial is None else partial.unfilled
        arrays = [columns[name] for name, _ in METADATA_COLUMNS]
        arrays += self._build_table_columns(before, after, images, partial)
        arrays += [columns[field.name] for field in self._trailing_fields()]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _needed_images(self, table_batch: TableBatch) -> tuple[str, ...]:
        if self.image == "before":
            return ("before",)
        is_full = table_batch.batch.column("absent").null_count == len(table_batch.batch)
        return ("after",) if self.image == "after" and is_full and not table_batch.image("after").null_count else IMAGES

    def _build_table_columns(
        self,
        before: pa.StructArray,
        after: pa.StructArray,
        images: dict[str, list[pa.Array]],
        partial: PartialImages | None,
    ) -> list[pa.Array]:
        if not self.fields:
            return [pa.nulls(len(after), pa.list_(pa.string()))] if self.image == "changes" else []
        if self.image == "both":
            return [
                _build_struct(images["before"], self.fields, before),
                _build_struct(images["after"], self.fields, after),
            ]
        if self.image == "before":
            return images["before"]
        merged = images["after"]
        if partial is not None:
            named = zip(self.fields, images["before"], merged, strict=True)
            merged = [partial.fill_column(field.name, old, new) for field, old, new in named]
        if after.null_count and before.null_count < len(before):
            has_after = after.is_valid()
            merged = [_choose_values(has_after, new, old) for new, old in zip(merged, images["before"], strict=True)]
        if self.image == "after":
            return merged
        return self._build_change_columns(compute.and_(before.is_valid(), after.is_valid()), images, merged, partial)

    def _build_change_columns(
        self, update: pa.Array, images: dict[str, list[pa.Array]], merged: list[pa.Array], partial: PartialImages | None
    ) -> list[pa.Array]:
        """Keep only the changed values and the key of an UPDATE. update: mask of the rows that are one."""
        columns, changed = [], list[pa.Array]()
        for field, old, new, value in zip(self.fields, images["before"], images["after"], merged, strict=True):
            is_changed = compute.and_(update, _compare_values(old, new))
            is_changed = is_changed if partial is None else partial.find_changed(field.name, is_changed)
            changed.append(is_changed)
            shown = compute.or_(compute.invert(update), is_changed)
            columns.append(
                value if field.name in self.key else _choose_values(shown, value, pa.nulls(len(value), value.type))
            )
        names = self.column_names
        changed_marks = [column.to_pylist() for column in changed]
        updates = update.to_pylist()
        lists = [
            [name for name, mark in zip(names, changed_marks, strict=True) if mark[i]] if updates[i] else None
            for i in range(len(update))
        ]
        return [*columns, pa.array(lists, pa.list_(pa.string()))]

    def _conform_image(self, table_batch: TableBatch, image: str, unfit: dict[int, dict[str, Any]]) -> list[pa.Array]:
        """Return the columns of an image in the order and with the types of this layout."""
        image_array = table_batch.image(image)
        source_columns = {
            field.name: (field.kind, column)
            for field, column in zip(table_batch.fields, image_array.flatten(), strict=True)
        }
        columns = []
        for name in source_columns.keys() - {field.name for field in self.fields}:
            _collect_unfit(source_columns[name][1], f"{image}.{name}", unfit)
        for name, kind in self.fields:
            if name not in source_columns:
                columns.append(pa.nulls(len(image_array), to_arrow_type(kind)))
                continue
            source_kind, values = source_columns[name]
            if source_kind != kind and widen_type(source_kind, kind) != kind:
                _collect_unfit(values, f"{image}.{name}", unfit)
                values = pa.nulls(len(image_array), to_arrow_type(kind))
            columns.append(_cast_array(values, to_arrow_type(kind)))
        return columns


def _cast_array(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else compute.cast(values, kind)


def _build_struct(columns: list[pa.Array], fields: Sequence[TypedColumn], like: pa.StructArray) -> pa.StructArray:
    own = [pa.field(name, to_arrow_type(kind)) for name, kind in fields]
    mask = like.is_null() if like.null_count else None
    return pa.StructArray.from_arrays(columns, fields=own, mask=mask)


def _choose_values(mask: pa.Array, first: pa.Array, second: pa.Array) -> pa.Array:
    """Return values from the first array where `mask` is true, otherwise from the second."""
    if first.null_count == len(first) and second.null_count == len(second):
        return first
    return compute.if_else(mask, first, second)


def _compare_values(old: pa.Array, new: pa.Array) -> pa.Array:
    """Return a mask of the values that differ; NULL counts as a value."""
    if pa.types.is_nested(old.type):
        pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
        return pa.array([a != b for a, b in pairs], pa.bool_())
    unequal = compute.fill_null(compute.not_equal(old, new), False)
    return compute.or_(unequal, compute.xor(old.is_valid(), new.is_valid()))


def _collect_unfit(values: pa.Array, path: str, unfit: dict[int, dict[str, Any]]) -> None:
    for i, value in enumerate(values.to_pylist()):
        if value is not None:
            unfit.setdefault(i, {})[path] = value if isinstance(value, bytes | int | float | list) else str(value)


def _merge_unfit(column: pa.Array, unfit: dict[int, dict[str, Any]]) -> pa.Array:
    texts = column.to_pylist()
    for i, more in unfit.items():
        texts[i] = to_json_text({**(json.loads(texts[i]) if texts[i] else {}), **more})
    return pa.array(texts, pa.string())


def has_unknown_columns(fields: Sequence[TypedColumn]) -> bool:
    """Return True if nothing is known about the columns."""
    return [name for name, _ in fields] == [TUPLE]


def prefix_place(changes: Sequence[str], place: str) -> Iterator[str]:
    """Yield texts about changes, each with its place in the log."""
    yield from (f"{place}: {one}" for one in changes)
