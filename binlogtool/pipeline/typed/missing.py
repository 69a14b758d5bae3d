"""Partial row images (`binlog_row_image`): columns that an image lacks, filled from the other image.

A partial before image has what identifies the row, a partial after image what was set: a column that the after image of
an UPDATE lacks is unchanged, so its value is that of the before image, if it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as compute

_AFTER, _BEFORE = "after.", "before."
_SEPARATOR = "\0"
"""Never part of a column name."""


class PartialImages:
    """Absent columns of the rows of a batch. absent: its column of that name. update: mask of rows with two images."""

    def __init__(self, absent: pa.Array, update: pa.Array) -> None:
        joined = compute.binary_join(absent, _SEPARATOR).dictionary_encode()
        texts = [*joined.dictionary.to_pylist(), None]
        names = [None if text is None else [one for one in text.split(_SEPARATOR) if one] for text in texts]
        self._kinds = [(is_update, one) for one in names for is_update in (False, True)]
        numbers = compute.fill_null(joined.indices, len(texts) - 1)
        self._picks = compute.add(compute.multiply(numbers, 2), compute.cast(update, pa.int32()))
        self._type = absent.type

    def _updates_lacking(self, path: str) -> pa.Array | None:
        """Return a mask of the UPDATEs whose image lacks a column; None if there are none."""
        marks = [is_update and names is not None and path in names for is_update, names in self._kinds]
        return pa.array(marks, pa.bool_()).take(self._picks) if any(marks) else None

    def fill_column(self, name: str, old: pa.Array, new: pa.Array) -> pa.Array:
        """Return a column after the change, with absent values taken from before it."""
        lacks = self._updates_lacking(_AFTER + name)
        return new if lacks is None else compute.if_else(lacks, old, new)

    def find_changed(self, name: str, differs: pa.Array) -> pa.Array:
        """Return a mask of the UPDATEs that set a column. differs: those whose two images have different values."""
        set_alone, unchanged = self._updates_lacking(_BEFORE + name), self._updates_lacking(_AFTER + name)
        differs = differs if set_alone is None else compute.or_(differs, set_alone)
        return differs if unchanged is None else compute.and_(differs, compute.invert(unchanged))

    @property
    def unfilled(self) -> pa.Array:
        """The column `absent` without what could be filled."""
        return pa.array([_unfilled_paths(*kind) for kind in self._kinds], self._type).take(self._picks)


def _unfilled_paths(is_update: bool, names: Sequence[str] | None) -> list[str] | None:
    if names is None or not is_update:
        return None if names is None else list(names)
    unfilled: Any = [one for one in names if one[: len(_AFTER)] != _AFTER or _BEFORE + one[len(_AFTER) :] in names]
    return unfilled or None


def find_partial_images(absent: pa.Array, before: pa.Array, after: pa.Array) -> PartialImages | None:
    """Return the absent columns of a batch; None if all images are full."""
    if absent.null_count == len(absent):
        return None
    return PartialImages(absent, compute.and_(before.is_valid(), after.is_valid()))
