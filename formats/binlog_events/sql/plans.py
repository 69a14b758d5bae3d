"""Templates of row statements, as bytes for the kernels of `sql.kernels.rows`: how rows of a table become SQL.

    template  number of columns, offset and size of the table's name, number of key columns, offset
              and size of the TABLE_MAP body (0: its rows are written as statements), then per column:
              kind, parameter, width, bytes of the length, (offset, size) of its name, offset and size
              of its texts (or of what precedes its hexadecimal digits), and flags

All numbers are 32 bits, big-endian; offsets count from the start of the template.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from binlogtool.formats.binlog_events.rows.table_map import TableMap, column_kinds
from binlogtool.formats.binlog_events.rows.table_map_bytes import MOST_COLUMNS, PAD, map_table
from binlogtool.formats.binlog_events.sql.client import DELIMITER
from binlogtool.formats.binlog_events.sql.event_record import event_record
from binlogtool.formats.binlog_events.sql.kernels.walk import (
    CAST,
    COLUMN_SIZE,
    GENERATED,
    HEAD_SIZE,
    HEX,
    KEY,
    NO_CONDITION,
    NUMBER,
    STAMPED,
)
from binlogtool.formats.binlog_events.sql.literals import PLAIN_TEXT, SAME_BYTES, name, quoted
from binlogtool.formats.binlog_events.sql.row_events import RowEvents
from binlogtool.formats.binlog_events.sql.rows import HAS_TRIGGERS, STAMPS, refused
from binlogtool.formats.binlog_events.values.charsets import decoder_of
from binlogtool.formats.binlog_events.values.columns import Column, ColumnKind, ColumnType, Kind
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.jsontext import text_table

_LONGEST_PAD = 255
_MOST_BYTES = 1 << 25
_NOT_OURS = 255
_BY_VALUE = frozenset(
    {
        Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL, Kind.BIT, Kind.YEAR, Kind.DATE, Kind.TIME2, Kind.DATETIME2,
        Kind.TIMESTAMP2, Kind.UUID,
    }
)  # fmt: skip
_ASCII, _LATIN = bytes(range(128)), bytes(range(0xA0, 0x100))


class Plans:
    """Templates of all known table maps, rebuilt when more is known or was reported about tables."""

    def __init__(self, texts: bytes) -> None:
        self._made: tuple[object, tuple[int, ...]] = (None, ())
        self._texts = self._before = texts

    def texts(self, maps: list[TableMap], rows: RowEvents, described: FormatDescription) -> bytes:
        """Return all texts of the kernels.

        Args:
            maps: the table maps, a list that only grows, or another list.
        """
        state = (len(maps), rows.knowledge.version, len(rows.inexact))
        if self._made[0] is not maps or self._made[1] != state:
            self._made, room, records = (maps, state), _MOST_BYTES, list[bytes]()
            for known in maps:
                record = plan(known, rows, described) if room > 0 else b""
                room -= len(record)
                records.append(record)
            self._texts = self._before + map_table(records)
        return self._texts


def plan(table: TableMap, rows: RowEvents, described: FormatDescription) -> bytes:
    """Return the template of a table; empty if kernels do not write its rows or a finding about it is due."""
    knowledge = rows.knowledge
    known = knowledge.keyed(table)
    if rows.wording.rows == "exact":
        return _kept(table, "events", event_record)
    why = knowledge.doubt(known, described) or refused(known)
    if why is not None:
        silent = known.flags & HAS_TRIGGERS or not rows.is_news(known, why)
        return _kept(table, "events", event_record) if silent else b""
    if rows.is_news(known, knowledge.unsure(known)):
        return b""
    return _kept(known, "plan", _plan)


def _kept(table: TableMap, what: str, make: Callable[[TableMap], bytes]) -> bytes:
    """Return what `build` builds for a table, cached in the table's memo under a key."""
    made: bytes | None = table.memo.get(what)
    if made is None:
        made = table.memo[what] = make(table)
    return made


def _plan(table: TableMap) -> bytes:
    """Build the template of a table whose rows are written as statements."""
    try:
        kinds = column_kinds(table)
    except MalformedError:
        return b""
    if len(kinds) > MOST_COLUMNS:
        return b""
    places = {index for index, _ in table.primary_key or ()}
    texts = [name(table.database) + b"." + name(table.table)]
    at = HEAD_SIZE + COLUMN_SIZE * len(kinds)
    head = [len(kinds), at, len(texts[0]), len(places), 0, 0]
    at += len(texts[0])
    columns = list[int]()
    for index, (column, kind) in enumerate(zip(table.columns, kinds, strict=True)):
        own, text, flags = _column(column, kind)
        title = name(column.name or "")
        if DELIMITER in title + text:
            return b""
        columns += [*own, at, len(title), at + len(title) if text else 0, len(text), flags | KEY * (index in places), 0]
        texts += [title, text]
        at += len(title) + len(text)
    if DELIMITER in texts[0]:
        return b""
    return struct.pack(f">{len(head) + len(columns)}I", *head, *columns) + b"".join(texts) + PAD


def _column(column: Column, kind: ColumnKind) -> tuple[ColumnKind, bytes, int]:
    """Return a column's kind as the kernels know it, its texts, and its flags."""
    flags = (GENERATED if column.generated else 0) | (STAMPED if column.type in STAMPS else 0)
    own = kind._replace(kind=_NOT_OURS)
    if kind.kind in (Kind.ENUM, Kind.SET):
        return kind, _choices(column, kind.kind), flags | NUMBER
    if kind.kind in (Kind.TEXT, Kind.UTF8) and column.charset is not None:
        flags |= CAST if column.charset in SAME_BYTES else CAST | HEX
        if column.charset not in PLAIN_TEXT:
            return kind._replace(kind=Kind.BYTES, parameter=0), f"_{column.charset} ".encode(), flags
        return (kind if kind.kind == Kind.UTF8 else _latin(column.charset, kind)), b"", flags
    if kind.kind == Kind.BYTES:
        pad = column.metadata if column.type == ColumnType.STRING else 0
        return (kind._replace(parameter=pad) if pad <= _LONGEST_PAD else own), b"", flags
    if kind.kind in (Kind.GEOMETRY, Kind.VECTOR):
        own = kind if kind.kind == Kind.GEOMETRY else kind._replace(kind=Kind.BYTES, parameter=0)
        return own, b"", flags | NO_CONDITION
    if kind.kind in (Kind.SIGNED, Kind.UNSIGNED):
        return (kind if column.unsigned is not None else own), b"", flags
    return (kind if kind.kind in _BY_VALUE else own), b"", flags


def _latin(charset: str, kind: ColumnKind) -> ColumnKind:
    """Return the kind with the highest byte that equals the code point of its character."""
    decode = decoder_of(charset)
    if decode(_ASCII) != _ASCII.decode():
        return kind._replace(kind=_NOT_OURS)
    return kind._replace(parameter=255 if decode(_LATIN) == _LATIN.decode("latin-1") else 127)


def _choices(column: Column, kind: int) -> bytes:
    """Return the texts of an ENUM or SET as literals; those of a SET without quotation marks."""
    if column.values is None:
        return b""
    made = [quoted(text) for text in column.values]
    return text_table(dict(enumerate(made if kind == Kind.ENUM else [text[1:-1] for text in made])))
