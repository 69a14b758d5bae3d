"""Row images of changed rows as cells of typed columns, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from binlogtool.formats.tables import TableRow
from binlogtool.log.body_json import to_json_text
from binlogtool.pipeline.cells import make_cell_converter
from binlogtool.pipeline.object_columns import TypedColumn

IMAGES = ("before", "after")

TRAILING_COLUMNS: tuple[tuple[str, str], ...] = (
    ("key", "string"),
    ("ops", "string"),
    ("unfit", "string"),
    ("absent", "array<string>"),
    ("findings", "string"),
)
"""Columns after the images, texts as JSON. key, ops: of changes without images. unfit: path -> value. absent: paths of
columns that an image does not have, which tells them from those that are NULL."""


def to_cells(row: TableRow, fields: Sequence[TypedColumn]) -> dict[str, Any]:
    """Return the cells before, after, key, ops, unfit and absent of a row; texts are JSON, images map column names to
    values.
    """
    unfit: dict[str, Any] = {}
    cells: dict[str, Any] = {name: _convert_image(name, getattr(row, name), fields, unfit) for name in IMAGES}
    for name, value in (("key", row.key), ("ops", row.operations)):
        cells[name] = None if value is None else to_json_text(value)
    cells["unfit"] = to_json_text(unfit) if unfit else None
    cells["absent"] = [path for name in IMAGES for path in _absent_columns(name, getattr(row, name), fields)] or None
    return cells


def _absent_columns(image: str, values: Mapping[str, Any] | None, fields: Sequence[TypedColumn]) -> Iterator[str]:
    if values is not None:
        yield from (f"{image}.{field.name}" for field in fields if field.name not in values)


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
