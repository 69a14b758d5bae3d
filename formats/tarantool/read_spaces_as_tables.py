"""Spaces of a log as tables (`format_api.format.Format.tables`): columns from the format in `_space`, else the whole
tuple as one column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.format import BodyWithFindings
from binlogtool.format_api.layout import U64, Batch, to_int_list
from binlogtool.format_api.row_output_interfaces import (
    TUPLE,
    RecordTableRows,
    TableColumn,
    TableReader,
    TableRow,
    TableSchema,
)
from binlogtool.formats.tarantool.codes import ROW_KINDS, TYPE_NAMES, FileKind, RowType
from binlogtool.formats.tarantool.decode import HAS_TSN, decode_bodies
from binlogtool.formats.tarantool.spaces.catalog import BOX_INDEX_ID, BOX_SPACE_ID, parse_key_parts

if TYPE_CHECKING:
    from binlogtool.formats.tarantool.decode import TarantoolContext
    from binlogtool.limits import Limits

_ID_FIELD, _NAME_FIELD, _FORMAT_FIELD, _PARTS_FIELD = 0, 2, 6, 5
"""Field numbers of `_space`, and of the key parts in `_index`."""
_COMMIT_FLAG = 1
_COLUMN_TYPES: Mapping[Any, str] = {
    "unsigned": "bigint", "integer": "bigint", "int": "bigint", "uint": "bigint", "num": "bigint",
    "int8": "int", "uint8": "int", "int16": "int", "uint16": "int", "int32": "int", "uint32": "bigint",
    "int64": "bigint", "uint64": "bigint", "double": "double", "float32": "double", "float64": "double",
    "number": "double", "boolean": "boolean", "varbinary": "binary",
}  # fmt: skip
_MAX_BIGINT = (1 << 63) - 1
"""Largest bigint. Few columns have unsigned values above it: those get a wider type, harder to join, when such a value
occurs.
"""
_WIDE_TYPE = "decimal(20,0)"
_UNSIGNED_TYPES = ("unsigned", "uint", "uint64")
_FALLBACK_COLUMNS = (TableColumn(TUPLE, "string"),)


class SpaceTableReader(msgspec.Struct, TableReader):
    """Table reader over the rows of a log.

    Attributes:
        spaces: tables by space number, of the instance whose files are read.
        known_spaces: those that were given.
        instance: UUID of that instance.
        open_transaction: number of the transaction that has not ended, or None.
        rename_note: text about the rename that the last record made, "" if it made none.
    """

    spaces: dict[int, TableSchema] = msgspec.field(default_factory=dict)
    known_spaces: dict[int, TableSchema] = msgspec.field(default_factory=dict)
    instance: str | None = None
    open_transaction: int | None = None
    rename_note: str = ""

    def read_records(
        self, context: TarantoolContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; must be consumed in order."""
        columns = [
            to_int_list(batch.records[name], start, stop) for name in ("type", "header_keys", "flags", "lsn", "tsn")
        ]
        is_log = context.kind is FileKind.XLOG
        if context.instance != self.instance:
            self.spaces, self.instance = dict(self.known_spaces), context.instance
        decoded_bodies = decode_bodies(context, batch, start, stop, limits)
        for index, (body, type_, keys, flags, lsn, difference) in enumerate(
            zip(decoded_bodies, *columns, strict=True), start
        ):
            transaction = (lsn - difference if keys & HAS_TSN else lsn) & U64
            begins = is_log and transaction != self.open_transaction
            ends = is_log and (not keys & HAS_TSN or bool(flags & _COMMIT_FLAG))
            self.open_transaction = None if ends else transaction
            if isinstance(body, Finding):
                yield RecordTableRows(findings=(body,), begins=begins, ends=ends)
                continue
            findings: tuple[Finding, ...] = ()
            if isinstance(body, BodyWithFindings):
                body, findings = body
            change = self._decode_row_change(TYPE_NAMES[type_], body, context)
            if type_ == RowType.DELETE_RANGE and isinstance(body, Mapping):
                table = self._get_table_of_space(body.get("space_id"), context)
                change, findings = (
                    RecordTableRows(changes=table),
                    (*findings, _report_range_delete(batch, index, table, body)),
                )
            yield replace(change, findings=findings, begins=begins, ends=ends)

    def add_known_tables(self, tables: Iterable[TableSchema]) -> None:
        """Add table descriptions from other files; they apply if the records' own file has none."""
        for table in tables:
            for number in (one for one in (table.name, *table.ids) if one.isdecimal()):
                self.known_spaces[int(number)] = replace(
                    table, columns=_FALLBACK_COLUMNS if table.columns == _FALLBACK_COLUMNS else table.columns
                )
        self.spaces.update(self.known_spaces)

    def note_missing_records(self) -> None:
        """Handle a gap: records may be missing here."""
        self.open_transaction = None

    def _decode_row_change(self, kind: str, body: Any, context: TarantoolContext) -> RecordTableRows:
        """Decode one body to a row change and the table definitions in it."""
        space = body.get("space_id") if isinstance(body, Mapping) else None
        if type(space) is not int or kind not in ROW_KINDS:
            return RecordTableRows()
        self.rename_note = ""
        definitions = (
            tuple(self._apply_definition_row(space, kind, body)) if space in (BOX_SPACE_ID, BOX_INDEX_ID) else ()
        )
        table = self._get_table_of_space(space, context)
        row, operations = body.get("tuple"), body.get("ops")
        if operations is None and "key" in body:  # UPDATE has its operations as the tuple
            row, operations = None, row
        if isinstance(row, list) and any(type(value) is int and value > _MAX_BIGINT for value in row):
            pairs = zip(table.columns, (*row, *[None] * len(table.columns)), strict=False)
            columns = tuple(
                replace(column, type=_WIDE_TYPE)
                if column.type == "bigint" and type(value) is int and _MAX_BIGINT < value <= U64
                else column
                for column, value in pairs
            )
            widened = table if columns == table.columns else replace(table, columns=columns)
            if widened is not table:
                table = self._store_table(space, widened)
                definitions = (*definitions, table)
        after = None if row is None else _map_values_to_column_names(row, table.columns)
        return RecordTableRows(
            (TableRow(table, kind, None, after, body.get("key"), operations),),
            described=definitions,
            remark=self.rename_note,
        )

    def _get_table_of_space(self, number: Any, context: TarantoolContext) -> TableSchema:
        """Return the table of a space; if the space is not defined, a table with the whole tuple as its column."""
        table = self.spaces.get(number) if type(number) is int else None
        name = str(context.spaces[number]) if type(number) is int else "?"
        return TableSchema(name, _FALLBACK_COLUMNS, ids=(str(number),), is_partial=True) if table is None else table

    # -- definitions in system spaces
    # ----------------------------------------------------------------------------------------

    def _apply_definition_row(self, number: int, kind: str, body: Mapping[str, Any]) -> Iterator[TableSchema]:
        """Yield the table that a row of `_space` or `_index` creates, alters or gives its primary key."""
        row, key = body.get("tuple"), body.get("key")
        if not isinstance(row, list):
            return
        if number == BOX_INDEX_ID:
            table = self.spaces.get(row[0]) if row and type(row[0]) is int else None
            if kind in ("INSERT", "REPLACE") and len(row) > _PARTS_FIELD and row[1] == 0 and table is not None:
                yield self._store_table(row[0], replace(table, key=_get_key_column_names(row[_PARTS_FIELD], table)))
        elif isinstance(key, list) and key:
            base = body.get("index_base", 0)
            table = self.spaces.get(key[0]) if type(key[0]) is int else None
            if table is not None and isinstance(base, int):
                yield self._store_table(key[0], _apply_space_update(table, row, base))
        elif len(row) > _NAME_FIELD and type(row[_ID_FIELD]) is int:
            columns = _columns_from_format(row[_FORMAT_FIELD] if len(row) > _FORMAT_FIELD else None)
            yield self._store_table(
                row[_ID_FIELD], TableSchema(str(row[_NAME_FIELD]), columns, ids=(str(row[_ID_FIELD]),))
            )

    def _store_table(self, number: int, table: TableSchema) -> TableSchema:
        """Store the definition of a space, and note a rename."""
        previous = self.spaces.get(number)
        if previous == table:
            return previous
        if previous is not None and previous.name != table.name:
            self.rename_note = f"{previous.name} is called {table.name} from here on"
        self.spaces[number] = table
        return table


def _report_range_delete(batch: Batch, index: int, table: TableSchema, body: Mapping[str, Any]) -> Finding:
    """Report a row that deletes a range of keys: the log does not name the rows that it deletes."""
    frame, record = batch.frame_index(index), batch.first_record + index
    start, end = (int(batch.frames[name][frame]) for name in ("offset", "end"))
    keys = " to ".join(str(body.get(name))[:60] for name in ("begin_key", "end_key"))
    text = f"DELETE_RANGE deletes rows of {table.name} from {keys}: the log does not name them, the table has no rows "
    return make_finding("payload-undecodable", batch.base + start, end - start, text + "for them", record=record)


def _apply_space_update(table: TableSchema, operations: Sequence[Any], base: int) -> TableSchema:
    """Apply the update operations of a `_space` row to a table: its name and its columns."""
    for operation in operations:
        if not isinstance(operation, list) or len(operation) != 3 or operation[0] != "=":
            continue
        if operation[1] in (_NAME_FIELD + base, "name"):
            table = replace(table, name=str(operation[2]))
        elif operation[1] in (_FORMAT_FIELD + base, "format"):
            table = replace(table, columns=_columns_from_format(operation[2]))
    return table


def _columns_from_format(space_format: Any) -> tuple[TableColumn, ...]:
    """Create the columns that the format of a space defines; the fallback columns if it defines none."""
    field_definitions = (
        [one for one in space_format if isinstance(one, Mapping)] if isinstance(space_format, list) else []
    )
    columns = (_create_column(str(c.get("name", f"@{n}")), c.get("type")) for n, c in enumerate(field_definitions, 1))
    return tuple(columns) or _FALLBACK_COLUMNS


def _create_column(name: str, type_: Any) -> TableColumn:
    return TableColumn(name, map_field_type(type_), _WIDE_TYPE if type_ in _UNSIGNED_TYPES else "")


def map_field_type(name: Any) -> str:
    """Map the type of a field to a column type; fields of any type become JSON text."""
    return _COLUMN_TYPES.get(name, "string") if isinstance(name, str) else "string"


def _get_key_column_names(stored_parts: Any, table: TableSchema) -> tuple[str, ...]:
    """Return the column names of a key; () if a part is not a whole column."""
    parts = parse_key_parts(stored_parts)
    if table.columns is _FALLBACK_COLUMNS or any(part.path or part.field >= len(table.columns) for part in parts):
        return ()
    return tuple(table.columns[part.field].name for part in parts)


def _map_values_to_column_names(row: Any, columns: Sequence[TableColumn]) -> dict[str, Any]:
    """Map the values of a row to column names; values beyond the columns get `@number`."""
    if columns is _FALLBACK_COLUMNS:
        return {TUPLE: row}
    values = row if isinstance(row, list) else [row]
    return {columns[n].name if n < len(columns) else f"@{n + 1}": value for n, value in enumerate(values)}
