"""Schema evolution of a table: columns are added by name and become wider; rows are converted to the result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as compute

from binlogtool.formats.tables import TUPLE, Table
from binlogtool.log.body_json import json_text
from binlogtool.pipeline.cells import arrow_type, sql_type, widened
from binlogtool.pipeline.images import IMAGES
from binlogtool.pipeline.object_columns import Field
from binlogtool.pipeline.typed.batches import CHANGED, META, META_FIELDS, OPERATIONS, REST_FIELDS, Piece
from binlogtool.pipeline.typed.missing import Missing, missing_of

_TAKEN = frozenset(name for name, _ in META)


class Grown:
    """Columns of one table so far. kinds: name -> type. key: columns of its key, as last described."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.key: tuple[str, ...] = ()
        self._last: Table | None = None

    def take(self, table: Table) -> list[str]:
        """Merge the table's current definition; return the changes as texts."""
        before, self._last, self.key = self._last, table, table.key or self.key
        if before is not None and before.columns == table.columns:
            return []
        told = []
        for name, kind in [(c.name, c.type) for c in table.columns]:
            known = self.kinds.get(name)
            self.kinds[name] = kind if known is None else widened(known, kind) or known
            if before is None:
                continue
            if known is None:
                told.append(f"the column {name} ({kind}) is new")
            elif self.kinds[name] != known:
                told.append(f"the column {name} ({known}) is {self.kinds[name]} now")
            elif widened(known, kind) is None:
                told.append(f"the column {name} is {known}: what comes as {kind} stands in unfit")
        gone = {c.name for c in before.columns} - {c.name for c in table.columns} if before is not None else ()
        return told + [f"the column {name} is not there any more" for name in sorted(gone)]

    @property
    def fields(self) -> tuple[Field, ...]:
        """Columns in the order in which they appeared."""
        return tuple(Field(name, kind) for name, kind in self.kinds.items())


class Form:
    """Columns of the files of a table. operations: include columns for changes without images."""

    def __init__(self, fields: Sequence[Field], key: Sequence[str], image: str, *, operations: bool) -> None:
        self.fields, self.key, self.image = tuple(fields), frozenset(key), image
        self.operations = operations

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Form) and self.schema.equals(other.schema)

    __hash__ = None  # type: ignore[assignment]

    @property
    def names(self) -> list[str]:
        """Names of the table's columns in files; those that equal a metadata name get a trailing `_`."""
        made, taken = list[str](), {*_TAKEN, *(field.name for field in self._rest())}
        taken |= {CHANGED} if self.image == "changes" else set()
        for name, _ in self.fields:
            while name.casefold() in taken:
                name += "_"
            taken.add(name.casefold())
            made.append(name)
        return made

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the files."""
        flat = [pa.field(name, arrow_type(kind)) for name, (_, kind) in zip(self.names, self.fields, strict=True)]
        if self.image == "both" and flat:
            image = pa.struct([pa.field(name, arrow_type(kind)) for name, kind in self.fields])
            own = [pa.field(name, image) for name in IMAGES]
        else:
            own = flat + ([pa.field(CHANGED, pa.list_(pa.string()))] if self.image == "changes" else [])
        return pa.schema([*META_FIELDS, *own, *self._rest()])

    def types(self) -> list[dict[str, str]]:
        """Return the table's columns with their Spark SQL types."""
        return [{"name": n, "type": sql_type(kind)} for n, (_, kind) in zip(self.names, self.fields, strict=True)]

    def _rest(self) -> list[pa.Field]:
        return [field for field in REST_FIELDS if self.operations or field.name not in OPERATIONS]

    def table(self, piece: Piece) -> pa.Table:
        """Convert a batch to this layout."""
        batch, unfit = piece.batch, dict[int, dict[str, Any]]()
        images = {name: self._conformed(piece, name, unfit) for name in self._needed(piece)}
        columns: dict[str, Any] = {name: batch.column(name) for name in batch.schema.names if name not in IMAGES}
        if unfit:
            columns["unfit"] = _more(columns["unfit"], unfit)
        before, after = piece.image("before"), piece.image("after")
        flat = self.image in ("after", "changes")
        missing = missing_of(batch.column("absent"), before, after) if flat else None
        columns["absent"] = columns["absent"] if missing is None else missing.left
        made = [columns[name] for name, _ in META]
        made += self._own(before, after, images, missing)
        made += [columns[field.name] for field in self._rest()]
        return pa.Table.from_arrays(made, schema=self.schema)

    def _needed(self, piece: Piece) -> tuple[str, ...]:
        if self.image == "before":
            return ("before",)
        is_full = piece.batch.column("absent").null_count == len(piece.batch)
        return ("after",) if self.image == "after" and is_full and not piece.image("after").null_count else IMAGES

    def _own(
        self, before: pa.StructArray, after: pa.StructArray, images: dict[str, list[pa.Array]], missing: Missing | None
    ) -> list[pa.Array]:
        if not self.fields:
            return [pa.nulls(len(after), pa.list_(pa.string()))] if self.image == "changes" else []
        if self.image == "both":
            return [_struct(images["before"], self.fields, before), _struct(images["after"], self.fields, after)]
        if self.image == "before":
            return images["before"]
        merged = images["after"]
        if missing is not None:
            named = zip(self.fields, images["before"], merged, strict=True)
            merged = [missing.filled(field.name, old, new) for field, old, new in named]
        if after.null_count and before.null_count < len(before):
            there = after.is_valid()
            merged = [_either(there, new, old) for new, old in zip(merged, images["before"], strict=True)]
        if self.image == "after":
            return merged
        return self._changes(compute.and_(before.is_valid(), after.is_valid()), images, merged, missing)

    def _changes(
        self, update: pa.Array, images: dict[str, list[pa.Array]], merged: list[pa.Array], missing: Missing | None
    ) -> list[pa.Array]:
        """Keep only the changed values and the key of an UPDATE. update: mask of the rows that are one."""
        made, changed = [], list[pa.Array]()
        for field, old, new, value in zip(self.fields, images["before"], images["after"], merged, strict=True):
            other = compute.and_(update, _differ(old, new))
            other = other if missing is None else missing.changed(field.name, other)
            changed.append(other)
            shown = compute.or_(compute.invert(update), other)
            made.append(value if field.name in self.key else _either(shown, value, pa.nulls(len(value), value.type)))
        names = self.names
        marks = [column.to_pylist() for column in changed]
        updates = update.to_pylist()
        lists = [
            [name for name, mark in zip(names, marks, strict=True) if mark[i]] if updates[i] else None
            for i in range(len(update))
        ]
        return [*made, pa.array(lists, pa.list_(pa.string()))]

    def _conformed(self, piece: Piece, image: str, unfit: dict[int, dict[str, Any]]) -> list[pa.Array]:
        """Return the columns of an image in the order and with the types of this layout."""
        given = piece.image(image)
        own = {field.name: (field.kind, column) for field, column in zip(piece.fields, given.flatten(), strict=True)}
        made = []
        for name in own.keys() - {field.name for field in self.fields}:
            _set_aside(own[name][1], f"{image}.{name}", unfit)
        for name, kind in self.fields:
            if name not in own:
                made.append(pa.nulls(len(given), arrow_type(kind)))
                continue
            was, values = own[name]
            if was != kind and widened(was, kind) != kind:
                _set_aside(values, f"{image}.{name}", unfit)
                values = pa.nulls(len(given), arrow_type(kind))
            made.append(_cast(values, arrow_type(kind)))
        return made


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else compute.cast(values, kind)


def _struct(columns: list[pa.Array], fields: Sequence[Field], like: pa.StructArray) -> pa.StructArray:
    own = [pa.field(name, arrow_type(kind)) for name, kind in fields]
    mask = like.is_null() if like.null_count else None
    return pa.StructArray.from_arrays(columns, fields=own, mask=mask)


def _either(there: pa.Array, one: pa.Array, other: pa.Array) -> pa.Array:
    """Return values from the first array where `there` is true, otherwise from the second."""
    if one.null_count == len(one) and other.null_count == len(other):
        return one
    return compute.if_else(there, one, other)


def _differ(old: pa.Array, new: pa.Array) -> pa.Array:
    """Return a mask of the values that differ; NULL counts as a value."""
    if pa.types.is_nested(old.type):
        pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
        return pa.array([a != b for a, b in pairs], pa.bool_())
    unequal = compute.fill_null(compute.not_equal(old, new), False)
    return compute.or_(unequal, compute.xor(old.is_valid(), new.is_valid()))


def _set_aside(values: pa.Array, path: str, unfit: dict[int, dict[str, Any]]) -> None:
    for i, value in enumerate(values.to_pylist()):
        if value is not None:
            unfit.setdefault(i, {})[path] = value if isinstance(value, bytes | int | float | list) else str(value)


def _more(column: pa.Array, unfit: dict[int, dict[str, Any]]) -> pa.Array:
    texts = column.to_pylist()
    for i, more in unfit.items():
        texts[i] = json_text({**(json.loads(texts[i]) if texts[i] else {}), **more})
    return pa.array(texts, pa.string())


def untold(fields: Sequence[Field]) -> bool:
    """Return True if nothing is known about the columns."""
    return [name for name, _ in fields] == [TUPLE]


def words(told: Sequence[str], place: str) -> Iterator[str]:
    """Yield texts about changes, each with its place in the log."""
    yield from (f"{place}: {one}" for one in told)
