"""Tables of a log (`format_api.format.Format.tables`): added and deleted documents, and new values of attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from binlogtool.findings import Finding
from binlogtool.format_api.format import BodyWithFindings
from binlogtool.format_api.layout import Batch
from binlogtool.format_api.tables_and_changes import RecordTableRows, TableColumn, TableRow, TableSchema, TableSupport
from binlogtool.formats.manticore.decode import decode_bodies, describe_records
from binlogtool.limits import Limits

ID_COLUMN = "id"
_MAX_FIELDS = 256
"""Most fields that a table can have."""
_COLUMN_TYPES = {"integer": "bigint", "timestamp": "bigint", "bool": "bigint", "bigint": "bigint", "float": "float"}
"""Column types of attributes; others are text, lists as JSON."""


class DocumentTables(msgspec.Struct):
    """Table reader over the transactions of a log. tables: by name, with all attributes that occurred so far."""

    tables: dict[str, TableSchema] = msgspec.field(default_factory=dict)

    def read_records(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; to be consumed in order."""
        names = describe_records(context, batch, start, stop).object
        for name, body in zip(names, decode_bodies(context, batch, start, stop, limits, stored=True), strict=True):
            if isinstance(body, Finding):
                yield RecordTableRows(findings=(body,))
                continue
            body, findings = body if isinstance(body, BodyWithFindings) else (body, ())
            rows = list(self._decode_rows(name, body)) if name is not None and "payload" in body else []
            yield RecordTableRows(rows, findings, () if name is None else (self._get_table(name),), ends=bool(rows))

    def add_known_tables(self, tables: Iterable[TableSchema]) -> None:
        """Ignore known tables: each file defines its tables itself."""

    def limit_to(self, is_selected: Callable[[TableSchema], bool]) -> None:
        """Allow the reader to leave out the rows of other tables; their descriptions are still reported."""

    def note_gap(self) -> None:
        """Note that records may be missing here."""

    def _get_table(self, name: str, attributes: Iterable[Mapping[str, Any]] = ()) -> TableSchema:
        """Return a table, extended by the attributes that it does not have yet."""
        table = self.tables.get(name) or TableSchema(name, (TableColumn(ID_COLUMN, "bigint"),), (ID_COLUMN,))
        present_names = {column.name for column in table.columns}
        new_columns = {
            one["name"]: TableColumn(one["name"], _COLUMN_TYPES.get(one["type_name"], "string"))
            for one in attributes
            if isinstance(one.get("name"), str) and one["name"] not in present_names
        }
        if new_columns or name not in self.tables:
            table = self.tables[name] = TableSchema(name, (*table.columns, *new_columns.values()), table.key)
        return table

    def _decode_rows(self, name: str, body: Mapping[str, Any]) -> Iterator[TableRow]:
        payload = body["payload"]
        kind = str(body.get("payload_op", ""))
        if not isinstance(payload, Mapping):
            return
        if "documents" in payload:
            table = self._get_table(name, payload["attributes"])
            for item in payload["documents"]:
                yield TableRow(table, "UPDATE", None, {ID_COLUMN: item["docid"], **item["values"]})
            return
        segment = payload.get("segment") or {}
        if "killed" not in payload or (payload.get("rows") and "docids" not in segment):
            yield TableRow(self._get_table(name), kind, None, None, operations=payload)
            return
        ids, fields = segment.get("docids", ()), segment.get("fields", ())
        documents = dict(zip(ids, fields, strict=True)) if len(ids) == len(fields) else {}
        names = [f"@{n}" for n in range(1, 1 + min(max(map(len, documents.values()), default=0), _MAX_FIELDS))]
        table = self._get_table(name, [{"name": one, "type_name": "string"} for one in names])
        added = {one: dict(zip(names, map(_decode_text, documents.get(one, ())), strict=False)) for one in ids}
        yield from self._create_commit_rows(table, added, payload["killed"])

    @staticmethod
    def _create_commit_rows(
        table: TableSchema, added: Mapping[int, Mapping[str, Any]], killed: Iterable[int]
    ) -> Iterator[TableRow]:
        """Yield the rows of a commit. A document that is killed and added in one transaction is replaced."""
        deleted = dict.fromkeys(killed)
        for docid in deleted:
            if docid not in added:
                yield TableRow(table, "DELETE", {ID_COLUMN: docid}, None)
        for docid, fields in added.items():
            yield TableRow(table, "REPLACE" if docid in deleted else "INSERT", None, {ID_COLUMN: docid, **fields})


def _decode_text(data: bytes) -> str | bytes:
    """Decode a field; bytes if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def create_tables() -> TableSupport:
    """Create the table rules of the format (`format_api.format.Format.tables`)."""
    return TableSupport(DocumentTables, operations=True)
