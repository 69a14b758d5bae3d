"""Row images of changed rows as cells of typed columns, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from binlogtool.formats.tables import Row
from binlogtool.log.body_json import json_text
from binlogtool.pipeline.cells import cell_maker
from binlogtool.pipeline.object_columns import Field

IMAGES = ("before", "after")

REST: tuple[tuple[str, str], ...] = (
    ("key", "string"),
    ("ops", "string"),
    ("unfit", "string"),
    ("absent", "array<string>"),
    ("findings", "string"),
)
"""Columns after the images, texts as JSON. key, ops: of changes without images. unfit: path -> value. absent: paths of
columns that an image does not have, which tells them from those that are NULL."""


def cells_of(row: Row, fields: Sequence[Field]) -> dict[str, Any]:
    """Return the cells before, after, key, ops, unfit and absent of a row; texts are JSON, images map column names to
    values.
    """
    unfit: dict[str, Any] = {}
    cells: dict[str, Any] = {name: _image(name, getattr(row, name), fields, unfit) for name in IMAGES}
    for name, value in (("key", row.key), ("ops", row.operations)):
        cells[name] = None if value is None else json_text(value)
    cells["unfit"] = json_text(unfit) if unfit else None
    cells["absent"] = [path for name in IMAGES for path in _absent(name, getattr(row, name), fields)] or None
    return cells


def _absent(image: str, given: Mapping[str, Any] | None, fields: Sequence[Field]) -> Iterator[str]:
    if given is not None:
        yield from (f"{image}.{field.name}" for field in fields if field.name not in given)


def _image(
    image: str, given: Mapping[str, Any] | None, fields: Sequence[Field], unfit: dict[str, Any]
) -> dict[str, Any] | None:
    if given is None:
        return None
    made: dict[str, Any] = {}
    for name, kind in fields:
        value = given.get(name)
        try:
            made[name] = None if value is None else maker(kind)(value)
        except (ValueError, TypeError, ArithmeticError):
            unfit[f"{image}.{name}"] = value
    unfit.update({f"{image}.{name}": value for name, value in given.items() if name not in made})
    return made


_MAKERS: dict[str, Callable[[Any], Any]] = {}


def maker(kind: str) -> Callable[[Any], Any]:
    """Return the cached converter of a column type (see `make_cell_converter`)."""
    made = _MAKERS.get(kind)
    if made is None:
        made = _MAKERS[kind] = cell_maker(kind)
    return made
