"""One table or space as a table with its own columns and types: `option("object", "shop.orders")`.

Each changed row is a row here: what happened (`op`), and the images as structs. A value that its column cannot hold (a
date 0000-00-00, bytes that are no text, a tuple longer than its format) is null there and stands in `unfit` as JSON, so
that nothing is lost. Columns of MySQL come from TABLE_MAP events (with names from the log or the option `schema`, else
@1, @2, …), those of Tarantool from the format in `_space`.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.log.bodies import findings_text, json_text
from binlogtool.log.records import Block
from binlogtool.pipeline import rows
from binlogtool.pipeline.cells import arrow_type, cell_maker, kind_of, sql_type
from binlogtool.pipeline.described import TUPLE, Field

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
"""Columns before the images. row: its place in the record, from 0. op: of rows of MySQL INSERT, UPDATE or DELETE, else
the record's type."""

REST: tuple[tuple[str, str], ...] = (
    ("key", "string"),
    ("ops", "string"),
    ("unfit", "string"),
    ("absent", "array<string>"),
    ("findings", "string"),
)
"""Columns behind them, texts as JSON. key, ops: of Tarantool's UPDATE, UPSERT and DELETE. unfit: path -> value. absent:
paths of columns that an image does not have, which tells them from those that are NULL."""

IMAGES = ("before", "after")
_OPS = {"WRITE": "INSERT", "UPDATE": "UPDATE", "PARTIAL": "UPDATE", "DELETE": "DELETE"}


def ddl(fields: Sequence[Field]) -> str:
    """The schema of an object's rows."""
    inside = ", ".join(f"{_quoted(field.name)}: {sql_type(field.kind)}" for field in fields)
    images = tuple((name, f"struct<{inside}>") for name in IMAGES)
    return ", ".join(f"`{name}` {kind}" for name, kind in (*ENVELOPE, *images, *REST))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def fields_of(schema: Any) -> tuple[Field, ...]:
    """The columns of the object in a schema that Spark gives back (or the user gave)."""
    return tuple(Field(one.name, kind_of(one)) for one in schema["after"].dataType.fields)


def selecting(request: Request, ids: Iterable[str]) -> Request:
    """The request for the records of its object only. ids: what else the object is called."""
    assert request.object is not None
    names = tuple(glob.escape(name) for name in (request.object, *sorted(ids)))
    return replace(request, selection=replace(request.selection, objects=names))


# -- its rows ----------------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """One changed row: images by name of column (None = there is none of this kind)."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    key: Any = None
    ops: Any = None


class ObjectRows(msgspec.Struct, frozen=True):
    """Turns blocks into rows of one object. fields: its columns, in order."""

    fields: tuple[Field, ...]
    decode: str = "full"
    raw: bool = False

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
        if made:
            yield pa.RecordBatch.from_pylist(made, schema=self.schema)

    def damage(self, file: str, format: str, found: Finding) -> pa.RecordBatch:
        """One row for bytes that cannot be read."""
        row = {"file": rows.file_name(file), "offset": found.offset, "op": rows.DAMAGE}
        return pa.RecordBatch.from_pylist([row | {"findings": findings_text([found])}], schema=self.schema)

    def _of(self, block: Block, i: int) -> Iterator[dict[str, Any]]:
        e, found = block.envelope, block.findings.get(i, ())
        seq, time = e.seq[i], e.time[i]
        base: dict[str, Any] = {
            "file": rows.file_name(block.file),
            "record": int(block.record[i]),
            "offset": int(block.offset[i]),
            "time": time,
            "seq": seq if seq is None or seq < 1 << 63 else None,
            "txn": None if e.txn[i] is None else str(e.txn[i]),
            "op": _OPS.get(e.type[i].split("_")[0], e.type[i]) if "ROWS" in e.type[i] else e.type[i],
        }
        if found:
            base["findings"] = findings_text(found)
        changes = list(_changes(block.bodies[i], [field.name for field in self.fields]))
        if not changes and found:
            yield base
        for n, change in enumerate(changes):
            yield base | {"row": n} | self._cells(change)

    def _cells(self, change: Change) -> dict[str, Any]:
        unfit: dict[str, Any] = {}
        row: dict[str, Any] = {name: self._image(name, getattr(change, name), unfit) for name in IMAGES}
        for name in ("key", "ops"):
            value = getattr(change, name)
            row[name] = None if value is None else json_text(value)
        row["unfit"] = json_text(unfit) if unfit else None
        row["absent"] = [path for name in IMAGES for path in self._absent(name, getattr(change, name))] or None
        return row

    def _absent(self, image: str, given: Mapping[str, Any] | None) -> Iterator[str]:
        if given is not None and len(given) < len(self.fields):
            yield from (f"{image}.{field.name}" for field in self.fields if field.name not in given)

    def _image(self, image: str, given: Mapping[str, Any] | None, unfit: dict[str, Any]) -> dict[str, Any] | None:
        if given is None:
            return None
        made: dict[str, Any] = {}
        for name, kind in self.fields:
            value = given.get(name)
            try:
                made[name] = None if value is None else _maker(kind)(value)
            except (ValueError, TypeError, ArithmeticError):
                unfit[f"{image}.{name}"] = value
        known = {field.name for field in self.fields}
        unfit.update({f"{image}.{name}": value for name, value in given.items() if name not in known})
        return made


_MAKERS: dict[str, Callable[[Any], Any]] = {}


def _maker(kind: str) -> Callable[[Any], Any]:
    made = _MAKERS.get(kind)
    if made is None:
        made = _MAKERS[kind] = cell_maker(kind)
    return made


def _changes(body: Any, names: Sequence[str]) -> Iterator[Change]:
    """The changed rows in the body of a record."""
    if not isinstance(body, Mapping):
        return
    if isinstance(body.get("rows"), list):
        for row in body["rows"]:
            yield Change(row.get("before"), row.get("after"))
    elif "space_id" in body:
        ops = body.get("ops")
        row = body.get("tuple")
        if ops is None and "key" in body:  # UPDATE has its operations as the tuple
            ops, row = row, None
        yield Change(None, None if row is None else _named(row, names), body.get("key"), ops)


def _named(row: Any, names: Sequence[str]) -> dict[str, Any]:
    if list(names) == [TUPLE]:
        return {TUPLE: row}
    values = row if isinstance(row, list) else [row]
    return {names[n] if n < len(names) else f"@{n + 1}": value for n, value in enumerate(values)}
