"""Typed columns of a table: Arrow types, cells, row images, and the schema as it evolves over a log.

A partial before image contains the columns that identify the row, a partial after image those that were set: a column
that the after image of an UPDATE lacks is unchanged, so it has the value of the before image, if that contains it.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as compute
from msgspec.structs import replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.open_file import base_name, is_url
from binlogtool.core.open_log import LogReader, open_log
from binlogtool.core.record_and_selection_types import ReadOptions, RecordBlock, Selection
from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.export.manifest import list_files, resolve_format
from binlogtool.format_api.encode_json import to_json_text
from binlogtool.format_api.row_output_interfaces import (
    GEOMETRY,
    JSON,
    MAX_DECIMAL_DIGITS,
    TableRow,
    TableSchema,
    TableSupport,
)

# --- Column types of a table as Spark names them ---

_ARROW_TYPES = {
    "string": pa.string(),
    JSON: pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<string>": pa.list_(pa.string()),
    "array<double>": pa.list_(pa.float64()),
    GEOMETRY: pa.struct([("srid", pa.int64()), ("wkb", pa.binary())]),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def to_sql_type(kind: str) -> str:
    """Return the Spark SQL type of a column; JSON columns become strings with a comment."""
    return f"string COMMENT '{JSON}'" if kind == JSON else kind


def column_type_from_spark_field(spark_field: Any) -> str:
    """Return the column type of a field in a schema that Spark passes back."""
    plain: str = spark_field.dataType.simpleString()
    return JSON if plain == "string" and spark_field.metadata.get("comment") == JSON else plain


def to_arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a column type.

    Raises:
        UsageError: the type is not supported.
    """
    digits = _DECIMAL.fullmatch(kind)
    if digits:
        return pa.decimal128(int(digits[1]), int(digits[2]))
    if kind not in _ARROW_TYPES:
        raise UsageError(
            f"columns of type {kind} are not supported; choose one of {', '.join(_ARROW_TYPES)}, decimal(p,s)"
        )
    return _ARROW_TYPES[kind]


# -- wider types -------------------------------------------------------------------------------------------------------

_INTEGER_DIGITS = {"int": 10, "bigint": 19}
"""Maximum number of decimal digits of each type."""
_INTEGER_BITS = {"int": 32, "bigint": 64}
_TEXT_CONVERTIBLE = frozenset(
    ("boolean", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz", "string", JSON)
)


def find_common_wider_type(first: str, second: str) -> str | None:
    """Return the type that can hold the values of both types; None if there is none."""
    if first == second:
        return first
    if {first, second} <= {"float", "double"}:
        return "double"
    if {first, second} <= set(_INTEGER_DIGITS):
        return "bigint"
    sizes = [_count_whole_and_fraction_digits(kind) for kind in (first, second)]
    if sizes[0] is not None and sizes[1] is not None:
        whole, scale = (max(pair) for pair in zip(*sizes, strict=True))
        return f"decimal({whole + scale},{scale})" if whole + scale <= MAX_DECIMAL_DIGITS else "string"
    fits = all(
        kind in _TEXT_CONVERTIBLE or _count_whole_and_fraction_digits(kind) is not None for kind in (first, second)
    )
    return "string" if fits else None


def _count_whole_and_fraction_digits(sql_type: str) -> tuple[int, int] | None:
    """Return the maximum number of digits before and after the decimal point; None if the type is not a number."""
    if sql_type in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[sql_type], 0
    digits = _DECIMAL.fullmatch(sql_type)
    return None if digits is None else (int(digits[1]) - int(digits[2]), int(digits[2]))


# -- values ------------------------------------------------------------------------------------------------------------


def make_cell_converter(kind: str) -> Callable[[Any], Any]:
    """Return the function that converts a value for a column of this type.

    It raises ValueError, TypeError or ArithmeticError for values that the column cannot hold exactly.
    """
    digits = _DECIMAL.fullmatch(kind)
    return partial(_to_decimal, int(digits[1]), int(digits[2])) if digits else _CONVERTERS[kind]


def _to_integer(bits: int, value: Any) -> int:
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError
    return value


def _to_decimal(precision: int, scale: int, value: Any) -> Decimal:
    if type(value) not in (int, str):
        raise TypeError
    number = Decimal(value)
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or -exponent > scale or len(digits) + exponent > precision - scale:
        raise ValueError
    return number


def _to_double(value: Any) -> float:
    number = float(value) if type(value) in (int, float) else None
    if number is None or number != value:
        raise ValueError
    return number


_TEXT_WRAPPERS = frozenset({"$decimal", "$uuid"})


def _to_text(value: Any) -> str:
    """Return text unchanged, decimals and UUIDs as text, anything else as JSON; raise TypeError for bytes."""
    if isinstance(value, bytes):
        raise TypeError
    if isinstance(value, Mapping) and len(value) == 1 and not _TEXT_WRAPPERS.isdisjoint(value):
        (value,) = value.values()
    if isinstance(value, str):
        value.encode()
        return value
    return to_json_text(value)


def _to_json(value: Any) -> str:
    return to_json_text(None if value == {"$json": None} else value)


def _to_binary(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else memoryview(value).tobytes()


def _to_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _to_local_datetime(value: Any) -> datetime:
    return datetime.fromisoformat(value)


def _to_utc_datetime(value: Any) -> datetime:
    return datetime.fromisoformat(value).replace(tzinfo=UTC)


def _to_list(convert_item: Callable[[Any], Any], value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return [convert_item(one) for one in value]


def _to_geometry(value: Any) -> dict[str, Any]:
    return {"srid": _to_integer(64, value["srid"]), "wkb": _to_binary(value["wkb"])}


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "string": _to_text,
    JSON: _to_json,
    "binary": _to_binary,
    "boolean": _to_boolean,
    "int": partial(_to_integer, 32),
    "bigint": partial(_to_integer, 64),
    "float": _to_double,
    "double": _to_double,
    "date": date.fromisoformat,
    "timestamp": _to_utc_datetime,
    "timestamp_ntz": _to_local_datetime,
    "array<string>": partial(_to_list, _to_text),
    "array<double>": partial(_to_list, _to_double),
    GEOMETRY: _to_geometry,
}


# --- Columns of a table as its log describes them ---


class TypedColumn(NamedTuple):
    """Column of a table: its name, and its type in Spark's notation."""

    name: str
    kind: str


def check_same_table(table: TableSchema, other: TableSchema) -> None:
    """Raise UsageError if rows of two different tables would be mixed."""
    if not table.is_same_table(other):
        raise ambiguous_table_error(other.display_name or other.name, table.name, other.name)


def ambiguous_table_error(shown: str, first: str, second: str) -> UsageError:
    """Return the error for two tables, given by their full names, that are shown with the same name."""
    names = " and ".join(sorted((first, second)))
    return UsageError(f"{shown}: the log has two tables of this name: {names}; name one of them")


def table_rules(path: str, format_: str) -> TableSupport | None:
    """Return the table rules of a file's format; None if its logs have no tables."""
    try:
        return open_file_module.find_format(resolve_format(path, format_)).tables
    except BinlogtoolError:
        return None


def list_older_files(files: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the older files in the directories of these files that may describe their tables, the latest first.

    The last one yielded is the first that describes all tables.
    """
    folders = dict[str, set[str]]()
    for path, format_ in files:
        rules = table_rules(path, format_)
        if not is_url(path) and rules is not None and rules.older:
            folders.setdefault(os.path.dirname(os.path.abspath(path)), set()).add(os.path.abspath(path))
    for folder, named_paths in folders.items():
        with contextlib.suppress(BinlogtoolError):
            folder_files = list_files(folder, "auto")
            first = min(
                (n for n, (path, _) in enumerate(folder_files) if os.path.abspath(path) in named_paths), default=0
            )
            yield from _walk_back(folder_files[:first])


def read_older_table_definitions(files: Sequence[tuple[str, str]], options: ReadOptions) -> list[TableSchema]:
    """Return the tables that older files describe, for given (path, format) pairs."""
    tables = dict[tuple[str, ...], TableSchema]()
    for path, format_ in reversed(list(list_older_files(files))):
        rules = table_rules(path, format_)
        selection = Selection(types=rules.types, objects=rules.objects) if rules is not None else Selection()
        with open_log(path, replace(options, format=format_), LogReader) as log:
            for block in log.table_rows(selection, known_tables=tuple(tables.values())):
                for content in block.bodies if isinstance(block, RecordBlock) else ():
                    tables.update({table.ids: table for table in content.described})
    return list(tables.values())


def _walk_back(files: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for path, format_ in reversed(files):
        yield path, format_
        rules = table_rules(path, format_)
        if rules is not None and any(fnmatch.fnmatchcase(base_name(path), one) for one in rules.older):
            return


# --- Row images of changed rows as cells of typed columns, row by row ---

IMAGES = ("before", "after")

TRAILING_COLUMNS: tuple[tuple[str, str], ...] = (
    ("key", "string"),
    ("ops", "string"),
    ("unfit", "string"),
    ("absent", "array<string>"),
    ("findings", "string"),
)
"""Columns after the images, texts as JSON. key, ops: of changes without images. unfit: path -> value. absent: paths of
columns that an image lacks, to distinguish them from NULL values."""


def build_row_cells(row: TableRow, fields: Sequence[TypedColumn]) -> dict[str, Any]:
    """Return the cells before, after, key, ops, unfit and absent of a row.

    Texts are JSON; images map column names to values.
    """
    unfit: dict[str, Any] = {}
    cells: dict[str, Any] = {name: _convert_image(name, getattr(row, name), fields, unfit) for name in IMAGES}
    for name, value in (("key", row.key), ("ops", row.operations)):
        cells[name] = None if value is None else to_json_text(value)
    cells["unfit"] = to_json_text(unfit) if unfit else None
    images = [(name, values) for name in IMAGES if (values := getattr(row, name)) is not None]
    cells["absent"] = [
        f"{name}.{one.name}" for name, values in images for one in fields if one.name not in values
    ] or None
    return cells


def _convert_image(
    image: str, values: Mapping[str, Any] | None, fields: Sequence[TypedColumn], unfit: dict[str, Any]
) -> dict[str, Any] | None:
    if values is None:
        return None
    cells: dict[str, Any] = {}
    for name, kind in fields:
        value = values.get(name)
        try:
            cells[name] = None if value is None else get_cell_converter(kind)(value)
        except (ValueError, TypeError, ArithmeticError):
            unfit[f"{image}.{name}"] = value
    unfit.update({f"{image}.{name}": value for name, value in values.items() if name not in cells})
    return cells


_IMAGE_CONVERTERS: dict[str, Callable[[Any], Any]] = {}


def get_cell_converter(kind: str) -> Callable[[Any], Any]:
    """Return the cached converter of a column type (see `make_cell_converter`)."""
    converter = _IMAGE_CONVERTERS.get(kind)
    if converter is None:
        converter = _IMAGE_CONVERTERS[kind] = make_cell_converter(kind)
    return converter


# --- Partial row images (`binlog_row_image`) ---

_AFTER, _BEFORE = "after.", "before."
_SEPARATOR = "\0"
"""Separator that no column name contains."""


class PartialImages:
    """Absent columns of the rows of a batch. absent: the batch's column `absent`. update: mask of the UPDATEs."""

    def __init__(self, absent: pa.Array, update: pa.Array) -> None:
        joined = compute.binary_join(absent, _SEPARATOR).dictionary_encode()
        texts = [*joined.dictionary.to_pylist(), None]
        names = [None if text is None else [one for one in text.split(_SEPARATOR) if one] for text in texts]
        self._kinds = [(is_update, one) for one in names for is_update in (False, True)]
        numbers = compute.fill_null(joined.indices, len(texts) - 1)
        self._picks = compute.add(compute.multiply(numbers, 2), compute.cast(update, pa.int32()))
        self._type = absent.type

    def _mask_updates_lacking_column(self, column_path: str) -> pa.Array | None:
        """Return a mask of the UPDATEs whose image lacks a column; None if there are none."""
        marks = [is_update and names is not None and column_path in names for is_update, names in self._kinds]
        return pa.array(marks, pa.bool_()).take(self._picks) if any(marks) else None

    def fill_absent_after_values(self, column_name: str, before_values: pa.Array, after_values: pa.Array) -> pa.Array:
        """Return a column of the after image, with absent values taken from the before image."""
        lacks = self._mask_updates_lacking_column(_AFTER + column_name)
        return after_values if lacks is None else compute.if_else(lacks, before_values, after_values)

    def mask_updates_setting_column(self, column_name: str, differs: pa.Array) -> pa.Array:
        """Return a mask of the UPDATEs that set a column. differs: mask of rows whose images have different values."""
        set_alone, unchanged = (
            self._mask_updates_lacking_column(_BEFORE + column_name),
            self._mask_updates_lacking_column(_AFTER + column_name),
        )
        differs = differs if set_alone is None else compute.or_(differs, set_alone)
        return differs if unchanged is None else compute.and_(differs, compute.invert(unchanged))

    @property
    def unfilled(self) -> pa.Array:
        """The column `absent`, without the columns that could be filled."""
        return pa.array([_list_paths_without_value(*kind) for kind in self._kinds], self._type).take(self._picks)


def _list_paths_without_value(is_update: bool, absent_paths: Sequence[str] | None) -> list[str] | None:
    if absent_paths is None or not is_update:
        return None if absent_paths is None else list(absent_paths)
    unfilled: Any = [
        one for one in absent_paths if one[: len(_AFTER)] != _AFTER or _BEFORE + one[len(_AFTER) :] in absent_paths
    ]
    return unfilled or None


def find_partial_images(absent: pa.Array, before: pa.Array, after: pa.Array) -> PartialImages | None:
    """Return the absent columns of a batch; None if all images are full."""
    if absent.null_count == len(absent):
        return None
    return PartialImages(absent, compute.and_(before.is_valid(), after.is_valid()))


# --- Batches of changed rows of one table ---

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
"""Columns before those of the table. row: index of the row in the record, from 0. commit: True for the last row of its
transaction; null if the log does not contain the end."""

OPERATION_COLUMNS = ("key", "ops")
CHANGED_COLUMN = "changed"
"""Column with the names of the columns that an UPDATE changed; only with the image `changes`."""


def to_arrow_fields(kinds: Sequence[tuple[str, str]]) -> list[pa.Field]:
    """Return Arrow fields for (name, type) pairs."""
    return [pa.field(name, to_arrow_type(kind)) for name, kind in kinds]


METADATA_FIELDS, TRAILING_FIELDS = to_arrow_fields(METADATA_COLUMNS), to_arrow_fields(TRAILING_COLUMNS)


class TableBatch(msgspec.Struct, frozen=True):
    """Rows of one table in the order of the log.

    fields: columns of the table, in the order of the structs `before` and `after`, which the batch has between
    METADATA_COLUMNS and the trailing columns.
    """

    fields: tuple[TypedColumn, ...]
    batch: pa.RecordBatch

    @property
    def array_count(self) -> int:
        """Number of Arrow arrays, including those in structs."""
        return int(self.batch.num_columns) + len(IMAGES) * len(self.fields)

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


# --- Schema evolution of a table ---

_METADATA_NAMES = frozenset(name for name, _ in METADATA_COLUMNS)


def has_names(table: TableSchema) -> bool:
    """Return False if the columns of a table are known only by their positions (@1, @2, …)."""
    return not table.columns or table.columns[0].name != "@1"


class TableEvolution:
    """Columns of one table so far.

    Attributes:
        kinds: name -> type.
        key: columns of its key, as last described.
        last: its last definition.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.key: tuple[str, ...] = ()
        self.last: TableSchema | None = None

    def merge_definition_and_describe_changes(self, table: TableSchema) -> list[str]:
        """Merge the table's current definition; return the changes as texts."""
        before, self.last, self.key = self.last, table, table.key or self.key
        if before is not None and before.columns == table.columns:
            return []
        changes, is_first, is_partial = list[str](), not self.kinds, (before or table).is_partial
        for name, kind in [(c.name, c.type) for c in table.columns]:
            old_kind = self.kinds.get(name)
            self.kinds[name] = kind if old_kind is None else find_common_wider_type(old_kind, kind) or old_kind
            has_both_names = has_names(before or table) and has_names(table)
            if is_first or (is_partial and old_kind is None) or not has_both_names:
                continue
            if old_kind is None:
                changes.append(f"the column {name} ({kind}) is new")
            elif self.kinds[name] != old_kind:
                changes.append(f"the column {name} ({old_kind}) is {self.kinds[name]} now")
            elif find_common_wider_type(old_kind, kind) is None:
                changes.append(f"the column {name} is {old_kind}: values of type {kind} are kept in unfit")
        if before is None or before.is_partial or not (has_names(before) and has_names(table)):
            return changes
        removed = {c.name for c in before.columns} - {c.name for c in table.columns}
        return changes + [f"the column {name} no longer exists" for name in sorted(removed)]

    @property
    def fields(self) -> tuple[TypedColumn, ...]:
        """Columns in the order in which they appeared."""
        return tuple(TypedColumn(name, kind) for name, kind in self.kinds.items())


class TableLayout:
    """Layout of the files of a table. operations: include columns for changes without images."""

    def __init__(self, fields: Sequence[TypedColumn], key: Sequence[str], image: str, *, operations: bool) -> None:
        self.fields, self.key, self.image = tuple(fields), frozenset(key), image
        self.operations = operations

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
            merged = [partial.fill_absent_after_values(field.name, old, new) for field, old, new in named]
        if after.null_count and before.null_count < len(before):
            has_after = after.is_valid()
            merged = [_choose_values(has_after, new, old) for new, old in zip(merged, images["before"], strict=True)]
        if self.image == "after":
            return merged
        return self._build_change_columns(compute.and_(before.is_valid(), after.is_valid()), images, merged, partial)

    def _build_change_columns(
        self, update: pa.Array, images: dict[str, list[pa.Array]], merged: list[pa.Array], partial: PartialImages | None
    ) -> list[pa.Array]:
        """Keep only the changed values and the key of UPDATEs. update: mask of the UPDATEs."""
        columns, changed = [], list[pa.Array]()
        for field, old, new, value in zip(self.fields, images["before"], images["after"], merged, strict=True):
            is_changed = compute.and_(update, _mark_differing_values(old, new))
            is_changed = is_changed if partial is None else partial.mask_updates_setting_column(field.name, is_changed)
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
        columns, own_names = [], {field.name for field in self.fields}
        for name in [name for name in source_columns if name not in own_names]:
            _collect_unfit(source_columns[name][1], f"{image}.{name}", unfit)
        for name, kind in self.fields:
            if name not in source_columns:
                columns.append(pa.nulls(len(image_array), to_arrow_type(kind)))
                continue
            source_kind, values = source_columns[name]
            if source_kind != kind and find_common_wider_type(source_kind, kind) != kind:
                values, rest = _split_fitting(values, kind)
                _collect_unfit(rest, f"{image}.{name}", unfit)
            columns.append(values if values.type == to_arrow_type(kind) else compute.cast(values, to_arrow_type(kind)))
        return columns


def _split_fitting(values: pa.Array, kind: str) -> tuple[pa.Array, pa.Array]:
    """Return the values that fit a column of another type, and the others; only whole numbers can fit."""
    if kind not in _INTEGER_BITS or not (pa.types.is_integer(values.type) or getattr(values.type, "scale", 1) == 0):
        return pa.nulls(len(values), to_arrow_type(kind)), values
    limit = 1 << _INTEGER_BITS[kind] - 1
    fits = pa.array([value is not None and -limit <= value < limit for value in values.to_pylist()])
    return compute.if_else(fits, values, None), compute.if_else(fits, None, values)


def _build_struct(columns: list[pa.Array], fields: Sequence[TypedColumn], like: pa.StructArray) -> pa.StructArray:
    own = [pa.field(name, to_arrow_type(kind)) for name, kind in fields]
    mask = like.is_null() if like.null_count else None
    return pa.StructArray.from_arrays(columns, fields=own, mask=mask)


def _choose_values(mask: pa.Array, first: pa.Array, second: pa.Array) -> pa.Array:
    """Return values from the first array where `mask` is true, otherwise from the second."""
    if first.null_count == len(first) and second.null_count == len(second):
        return first
    return compute.if_else(mask, first, second)


def _mark_differing_values(old: pa.Array, new: pa.Array) -> pa.Array:
    """Return a mask of the values that differ; NULL is compared like a value."""
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
