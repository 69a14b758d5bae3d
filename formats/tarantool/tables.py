"""Spaces of a log as tables (`formats.base.Format.tables`): columns from the format in `_space`, else the whole
tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, finding
from binlogtool.formats.columns import integers
from binlogtool.formats.described import Noted
from binlogtool.formats.layouts import U64, Batch
from binlogtool.formats.tables import TUPLE, Column, Row, Table, Tables, Told
from binlogtool.formats.tarantool.codes import FileKind, RowType
from binlogtool.formats.tarantool.layout.layout import FileContext
from binlogtool.formats.tarantool.meaning import HAS_TSN, bodies
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES
from binlogtool.formats.tarantool.spaces.catalog import INDEX, SPACE
from binlogtool.limits import Limits

_ROWS = ("INSERT", "REPLACE", "UPDATE", "UPSERT", "DELETE")
_ID, _NAME, _FORMAT, _PARTS = 0, 2, 6, 5
"""Fields of `_space`, and the parts of a key in `_index`."""
_IS_COMMIT = 1
_TYPES: Mapping[Any, str] = {
    "unsigned": "bigint", "integer": "bigint", "int": "bigint", "uint": "bigint", "num": "bigint",
    "int8": "int", "uint8": "int", "int16": "int", "uint16": "int", "int32": "int", "uint32": "bigint",
    "int64": "bigint", "uint64": "bigint", "double": "double", "float32": "double", "float64": "double",
    "number": "double", "boolean": "boolean", "varbinary": "binary",
}  # fmt: skip
_MOST = (1 << 63) - 1
"""The largest value of a bigint. Few columns have unsigned values above it: only those become a type that joins less
easily, and only where such a value comes."""
_WIDE = "decimal(20,0)"
_UNSIGNED = ("unsigned", "uint", "uint64")
_AS_IT_IS = (Column(TUPLE, "string"),)


class SpaceTables(msgspec.Struct):
    """Table reader over the rows of a log.

    Attributes:
        spaces: tables by space number.
        open_transaction: number of the transaction that has not ended, or None.
        rename_note: text about a rename by the last record, "" if there was none.
    """

    spaces: dict[int, Table] = msgspec.field(default_factory=dict)
    open: int | None = None
    remark: str = ""

    def records(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> Iterator[Told]:
        """See `formats.tables.TableReader`."""
        columns = [
            integers(batch.records[name], start, stop) for name in ("type", "header_keys", "flags", "lsn", "tsn")
        ]
        is_log = context.kind is FileKind.XLOG
        made = bodies(context, batch, start, stop, limits)
        for index, (body, type_, keys, flags, lsn, difference) in enumerate(zip(made, *columns, strict=True), start):
            number = (lsn - difference if keys & HAS_TSN else lsn) & U64
            begins = is_log and number != self.open
            ends = is_log and (not keys & HAS_TSN or bool(flags & _IS_COMMIT))
            self.open = None if ends else number
            if isinstance(body, Finding):
                yield Told(findings=(body,), begins=begins, ends=ends)
                continue
            found: tuple[Finding, ...] = ()
            if isinstance(body, Noted):
                body, found = body
            told = self._told(TYPE_NAMES[type_], body, context)
            if type_ == RowType.DELETE_RANGE and isinstance(body, Mapping):
                table = self._table(body.get("space_id"), context)
                told, found = Told(changes=table), (*found, _range_finding(batch, index, table, body))
            yield replace(told, findings=found, begins=begins, ends=ends)

    def know(self, tables: Iterable[Table]) -> None:
        """See `formats.tables.TableReader`."""
        for table in tables:
            for number in (one for one in (table.name, *table.ids) if one.isdecimal()):
                self.spaces[int(number)] = replace(table, columns=_as_it_is(table.columns))

    def only(self, wants: Callable[[Table], bool]) -> None:
        """See `formats.tables.TableReader`."""

    def lost(self) -> None:
        """See `formats.tables.TableReader`."""
        self.open = None

    def _told(self, kind: str, body: Any, context: FileContext) -> Told:
        """Decode one body to a row change and the table definitions that it makes."""
        number = body.get("space_id") if isinstance(body, Mapping) else None
        if type(number) is not int or kind not in _ROWS:
            return Told()
        self.remark = ""
        described = tuple(self._learned(number, kind, body)) if number in (SPACE, INDEX) else ()
        table = self._table(number, context)
        row, operations = body.get("tuple"), body.get("ops")
        if operations is None and "key" in body:  # UPDATE has its operations as the tuple
            row, operations = None, row
        if isinstance(row, list) and any(type(value) is int and value > _MOST for value in row):
            wide = _widened(table, row)
            if wide is not table:
                table = self._known(number, wide)
                described = (*described, table)
        after = None if row is None else _named(row, table.columns)
        return Told(
            (Row(table, kind, None, after, body.get("key"), operations),), described=described, remark=self.remark
        )

    def _table(self, number: Any, context: FileContext) -> Table:
        """Return the table of a space; one with the whole tuple as its column if the space is not defined."""
        known = self.spaces.get(number) if type(number) is int else None
        name = str(context.spaces[number]) if type(number) is int else "?"
        return Table(name, _AS_IT_IS, ids=(str(number),)) if known is None else known

    # -- definitions in system spaces
    # ----------------------------------------------------------------------------------------

    def _learned(self, number: int, kind: str, body: Mapping[str, Any]) -> Iterator[Table]:
        """Yield the table that a row of `_space` or `_index` creates, alters or gives its primary key."""
        row, key = body.get("tuple"), body.get("key")
        if not isinstance(row, list):
            return
        if number == INDEX:
            if kind in ("INSERT", "REPLACE") and len(row) > _PARTS and row[1] == 0 and row[0] in self.spaces:
                yield self._known(row[0], replace(self.spaces[row[0]], key=_key(row[_PARTS], self.spaces[row[0]])))
        elif isinstance(key, list) and key:
            base = body.get("index_base", 0)
            known = self.spaces.get(key[0]) if type(key[0]) is int else None
            if known is not None and isinstance(base, int):
                yield self._known(key[0], _altered(known, row, base))
        elif len(row) > _NAME and type(row[_ID]) is int:
            columns = _columns(row[_FORMAT] if len(row) > _FORMAT else None)
            yield self._known(row[_ID], Table(str(row[_NAME]), columns, ids=(str(row[_ID]),)))

    def _known(self, number: int, table: Table) -> Table:
        """Store the definition of a space, and note a rename."""
        kept = self.spaces.get(number)
        if kept == table:
            return kept
        if kept is not None and kept.name != table.name:
            self.remark = f"{kept.name} is called {table.name} from here on"
        self.spaces[number] = table
        return table


def _range_finding(batch: Batch, index: int, table: Table, body: Mapping[str, Any]) -> Finding:
    """Report a row that deletes a range of keys: the log does not name the rows that it deletes."""
    frame, record = batch.frame_of(index), batch.first_record + index
    start, end = (int(batch.frames[name][frame]) for name in ("offset", "end"))
    keys = " to ".join(str(body.get(name))[:60] for name in ("begin_key", "end_key"))
    text = f"DELETE_RANGE deletes rows of {table.name} from {keys}: the log does not name them, the table has no rows "
    return finding("payload-undecodable", batch.base + start, end - start, text + "for them", record=record)


def _as_it_is(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the shared `_FALLBACK_COLUMNS` object for equal columns (it is compared by identity)."""
    return _AS_IT_IS if columns == _AS_IT_IS else columns


def _widened(table: Table, row: Sequence[Any]) -> Table:
    """Widen the bigint columns that cannot hold the unsigned values of a row; return the same table if all can."""
    pairs = zip(table.columns, (*row, *[None] * len(table.columns)), strict=False)
    columns = tuple(
        replace(column, type=_WIDE)
        if column.type == "bigint" and type(value) is int and _MOST < value <= U64
        else column
        for column, value in pairs
    )
    return table if columns == table.columns else replace(table, columns=columns)


def _altered(known: Table, operations: Sequence[Any], base: int) -> Table:
    """Apply the update operations of a `_space` row to a table: its name and its columns."""
    for one in operations:
        if not isinstance(one, list) or len(one) != 3 or one[0] != "=":
            continue
        if one[1] in (_NAME + base, "name"):
            known = replace(known, name=str(one[2]))
        elif one[1] in (_FORMAT + base, "format"):
            known = replace(known, columns=_columns(one[2]))
    return known


def _columns(form: Any) -> tuple[Column, ...]:
    """Create the columns that the format of a space defines; the fallback columns if it defines none."""
    known = [one for one in form if isinstance(one, Mapping)] if isinstance(form, list) else []
    named = (_column(str(c.get("name", f"@{n}")), c.get("type")) for n, c in enumerate(known, 1))
    return tuple(named) or _AS_IT_IS


def _column(name: str, type_: Any) -> Column:
    return Column(name, type_of(type_), _WIDE if type_ in _UNSIGNED else "")


def type_of(name: Any) -> str:
    """Map the type of a field to a column type; fields of any type become JSON text."""
    return _TYPES.get(name, "string") if isinstance(name, str) else "string"


def _key(parts: Any, table: Table) -> tuple[str, ...]:
    """Name the columns of a key; () if a part is no column."""
    places = [one.get("field") if isinstance(one, Mapping) else one[0] for one in parts if one] if parts else []
    names = [c.name for c in table.columns]
    known = [n for n in places if type(n) is int and 0 <= n < len(names)]
    return tuple(names[n] for n in known) if known == places and table.columns is not _AS_IT_IS else ()


def _named(row: Any, columns: Sequence[Column]) -> dict[str, Any]:
    """Map the values of a row to column names; values beyond the columns get `@number`."""
    if columns is _AS_IT_IS:
        return {TUPLE: row}
    values = row if isinstance(row, list) else [row]
    return {columns[n].name if n < len(columns) else f"@{n + 1}": value for n, value in enumerate(values)}


def tables() -> Tables:
    """Create the table rules of the format (`formats.base.Format.tables`)."""
    return Tables(SpaceTables, _ROWS, ("_space", "_index"), older=("*.snap",), operations=True)
