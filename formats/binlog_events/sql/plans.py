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
from binlogtool.formats.binlog_events.rows.table_map_bytes import MAX_COMPILED_COLUMNS, PAD, encode_map_table
from binlogtool.formats.binlog_events.sql.client import DELIMITER
from binlogtool.formats.binlog_events.sql.event_record import build_event_template
from binlogtool.formats.binlog_events.sql.kernels.walk import (
    CAST,
    EVENT_RECORD_COLUMN_SIZE,
    EVENT_RECORD_HEAD_SIZE,
    GENERATED,
    HEX,
    KEY,
    NO_CONDITION,
    NUMBER,
    STAMPED,
)
from binlogtool.formats.binlog_events.sql.literals import (
    UTF8MB4_COMPATIBLE_CHARSETS,
    UTF8MB4_SAFE_CHARSETS,
    quote_identifier,
    quote_string,
)
from binlogtool.formats.binlog_events.sql.row_events import RowEventWriter
from binlogtool.formats.binlog_events.sql.rows import AUTO_UPDATED_TYPES, HAS_TRIGGERS, reason_without_statements
from binlogtool.formats.binlog_events.values.charsets import charset_decoder
from binlogtool.formats.binlog_events.values.columns import ColumnKind, ColumnType, TableMapColumn, ValueKind
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.jsontext import build_text_table

_MAX_PAD = 255
_MAX_TEMPLATE_BYTES = 1 << 25
_UNSUPPORTED_KIND = 255
_BY_VALUE = frozenset(
    {
        ValueKind.FLOAT, ValueKind.DOUBLE, ValueKind.DECIMAL, ValueKind.BIT, ValueKind.YEAR, ValueKind.DATE,
        ValueKind.TIME2, ValueKind.DATETIME2,
        ValueKind.TIMESTAMP2, ValueKind.UUID,
    }
)  # fmt: skip
_ASCII, _LATIN1 = bytes(range(128)), bytes(range(0xA0, 0x100))


class StatementTemplates:
    """Templates of all known table maps, rebuilt when more is known or was reported about tables."""

    def __init__(self, texts: bytes) -> None:
        self._state: tuple[object, tuple[int, ...]] = (None, ())
        self._texts = self._prefix = texts

    def get_texts(self, maps: list[TableMap], rows: RowEventWriter, description: FormatDescription) -> bytes:
        """Return all texts of the kernels.

        Args:
            maps: the table maps, a list that only grows, or another list.
        """
        state = (len(maps), rows.knowledge.version, len(rows.reported))
        if self._state[0] is not maps or self._state[1] != state:
            self._state, bytes_left, records = (maps, state), _MAX_TEMPLATE_BYTES, list[bytes]()
            for table in maps:
                record = build_template(table, rows, description) if bytes_left > 0 else b""
                bytes_left -= len(record)
                records.append(record)
            self._texts = self._prefix + encode_map_table(records)
        return self._texts


def build_template(table: TableMap, rows: RowEventWriter, description: FormatDescription) -> bytes:
    """Return the template of a table; empty if kernels do not write its rows or a finding about it is due."""
    knowledge = rows.knowledge
    keyed_table = knowledge.describe_with_key(table)
    if rows.wording.rows == "exact":
        return _memoize(table, "events", build_event_template)
    reason = knowledge.reason_against_statements(keyed_table, description) or reason_without_statements(keyed_table)
    if reason is not None:
        is_reported = keyed_table.flags & HAS_TRIGGERS or not rows.is_unreported(keyed_table, reason)
        return _memoize(table, "events", build_event_template) if is_reported else b""
    if rows.is_unreported(keyed_table, knowledge.find_caveat(keyed_table)):
        return b""
    return _memoize(keyed_table, "plan", _build_statement_template)


def _memoize(table: TableMap, memo_key: str, build: Callable[[TableMap], bytes]) -> bytes:
    """Return what `build` builds for a table, cached in the table's memo under a key."""
    template: bytes | None = table.memo.get(memo_key)
    if template is None:
        template = table.memo[memo_key] = build(table)
    return template


def _build_statement_template(table: TableMap) -> bytes:
    """Build the template of a table whose rows are written as statements."""
    try:
        kinds = column_kinds(table)
    except MalformedError:
        return b""
    if len(kinds) > MAX_COMPILED_COLUMNS:
        return b""
    key_columns = {index for index, _ in table.primary_key or ()}
    texts = [quote_identifier(table.database) + b"." + quote_identifier(table.table)]
    at = EVENT_RECORD_HEAD_SIZE + EVENT_RECORD_COLUMN_SIZE * len(kinds)
    head = [len(kinds), at, len(texts[0]), len(key_columns), 0, 0]
    at += len(texts[0])
    columns = list[int]()
    for index, (column, kind) in enumerate(zip(table.columns, kinds, strict=True)):
        entry, text, flags = _column_entry(column, kind)
        column_name = quote_identifier(column.name or "")
        if DELIMITER in column_name + text:
            return b""
        columns += [
            *entry,
            at,
            len(column_name),
            at + len(column_name) if text else 0,
            len(text),
            flags | KEY * (index in key_columns),
            0,
        ]
        texts += [column_name, text]
        at += len(column_name) + len(text)
    if DELIMITER in texts[0]:
        return b""
    return struct.pack(f">{len(head) + len(columns)}I", *head, *columns) + b"".join(texts) + PAD


def _column_entry(column: TableMapColumn, kind: ColumnKind) -> tuple[ColumnKind, bytes, int]:
    """Return a column's kind as the kernels know it, its texts, and its flags."""
    flags = (GENERATED if column.generated else 0) | (STAMPED if column.type in AUTO_UPDATED_TYPES else 0)
    unsupported = kind._replace(kind=_UNSUPPORTED_KIND)
    if kind.kind in (ValueKind.ENUM, ValueKind.SET):
        return kind, _enum_texts(column, kind.kind), flags | NUMBER
    if kind.kind in (ValueKind.TEXT, ValueKind.UTF8) and column.charset is not None:
        flags |= CAST if column.charset in UTF8MB4_COMPATIBLE_CHARSETS else CAST | HEX
        if column.charset not in UTF8MB4_SAFE_CHARSETS:
            return kind._replace(kind=ValueKind.BYTES, parameter=0), f"_{column.charset} ".encode(), flags
        return (kind if kind.kind == ValueKind.UTF8 else _set_charset_limit(column.charset, kind)), b"", flags
    if kind.kind == ValueKind.BYTES:
        width = column.metadata if column.type == ColumnType.STRING else 0
        return (kind._replace(parameter=width) if width <= _MAX_PAD else unsupported), b"", flags
    if kind.kind in (ValueKind.GEOMETRY, ValueKind.VECTOR):
        unsupported = kind if kind.kind == ValueKind.GEOMETRY else kind._replace(kind=ValueKind.BYTES, parameter=0)
        return unsupported, b"", flags | NO_CONDITION
    if kind.kind in (ValueKind.SIGNED, ValueKind.UNSIGNED):
        return (kind if column.unsigned is not None else unsupported), b"", flags
    return (kind if kind.kind in _BY_VALUE else unsupported), b"", flags


def _set_charset_limit(charset: str, kind: ColumnKind) -> ColumnKind:
    """Return the kind with the highest byte that equals the code point of its character."""
    decoder = charset_decoder(charset)
    if decoder(_ASCII) != _ASCII.decode():
        return kind._replace(kind=_UNSUPPORTED_KIND)
    return kind._replace(parameter=255 if decoder(_LATIN1) == _LATIN1.decode("latin-1") else 127)


def _enum_texts(column: TableMapColumn, kind: int) -> bytes:
    """Return the texts of an ENUM or SET as literals; those of a SET without quotation marks."""
    if column.values is None:
        return b""
    literals = [quote_string(text) for text in column.values]
    return build_text_table(dict(enumerate(literals if kind == ValueKind.ENUM else [text[1:-1] for text in literals])))
