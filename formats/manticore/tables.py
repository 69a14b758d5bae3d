"""Tables of a log (`formats.base.Format.tables`): added and deleted documents, and new values of attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.described import Noted
from binlogtool.formats.layouts import Batch
from binlogtool.formats.manticore.meaning import bodies, describe
from binlogtool.formats.tables import Column, Row, Table, Tables, Told
from binlogtool.limits import Limits

ID = "id"
_MOST_FIELDS = 256
"""That a table can have."""
_TYPES = {"integer": "bigint", "timestamp": "bigint", "bool": "bigint", "bigint": "bigint", "float": "float"}
"""Types of attributes; others are text, lists as JSON."""


class DocumentTables(msgspec.Struct):
    """Table reader over the transactions of a log.

    Attributes:
        tables: by name, with all attributes that occurred so far.
    """

    known: dict[str, Table] = msgspec.field(default_factory=dict)

    def records(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> Iterator[Told]:
        """See `formats.tables.TableReader`."""
        names = describe(context, batch, start, stop).object
        for name, body in zip(names, bodies(context, batch, start, stop, limits, stored=True), strict=True):
            if isinstance(body, Finding):
                yield Told(findings=(body,))
                continue
            body, found = body if isinstance(body, Noted) else (body, ())
            rows = list(self._rows(name, body)) if name is not None and "payload" in body else []
            yield Told(rows, found, () if name is None else (self._table(name),), ends=bool(rows))

    def know(self, tables: Iterable[Table]) -> None:
        """Do nothing: each file defines its tables itself."""

    def only(self, wants: Callable[[Table], bool]) -> None:
        """See `formats.tables.TableReader`."""

    def lost(self) -> None:
        """See `formats.tables.TableReader`."""

    def _table(self, name: str, attributes: Iterable[Mapping[str, Any]] = ()) -> Table:
        """Return a table, extended by the attributes that it does not have yet."""
        known = self.known.get(name) or Table(name, (Column(ID, "bigint"),), (ID,))
        there = {column.name for column in known.columns}
        new = {
            one["name"]: Column(one["name"], _TYPES.get(one["type_name"], "string"))
            for one in attributes
            if isinstance(one.get("name"), str) and one["name"] not in there
        }
        if new or name not in self.known:
            known = self.known[name] = Table(name, (*known.columns, *new.values()), known.key)
        return known

    def _rows(self, name: str, body: Mapping[str, Any]) -> Iterator[Row]:
        payload = body["payload"]
        kind = str(body.get("payload_op", ""))
        if not isinstance(payload, Mapping):
            return
        if "documents" in payload:
            table = self._table(name, payload["attributes"])
            for one in payload["documents"]:
                yield Row(table, "UPDATE", None, {ID: one["docid"], **one["values"]})
            return
        segment = payload.get("segment") or {}
        if "killed" not in payload or (payload.get("rows") and "docids" not in segment):
            yield Row(self._table(name), kind, None, None, operations=payload)
            return
        ids, fields = segment.get("docids", ()), segment.get("fields", ())
        documents = dict(zip(ids, fields, strict=True)) if len(ids) == len(fields) else {}
        names = [f"@{n}" for n in range(1, 1 + min(max(map(len, documents.values()), default=0), _MOST_FIELDS))]
        table = self._table(name, [{"name": one, "type_name": "string"} for one in names])
        came = {one: dict(zip(names, map(_text, documents.get(one, ())), strict=False)) for one in ids}
        yield from self._committed(table, came, payload["killed"])

    @staticmethod
    def _committed(table: Table, came: Mapping[int, Mapping[str, Any]], killed: Iterable[int]) -> Iterator[Row]:
        """Yield the rows of a commit. A document that is killed and added in one transaction is replaced."""
        gone = dict.fromkeys(killed)
        for one in gone:
            if one not in came:
                yield Row(table, "DELETE", {ID: one}, None)
        for one, fields in came.items():
            yield Row(table, "REPLACE" if one in gone else "INSERT", None, {ID: one, **fields})


def _text(data: bytes) -> str | bytes:
    """Decode a field; bytes if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def tables() -> Tables:
    """Create the table rules of the format (`formats.base.Format.tables`)."""
    return Tables(DocumentTables, operations=True)
