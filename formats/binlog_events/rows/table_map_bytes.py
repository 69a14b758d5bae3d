"""Encode table maps as one table of bytes for the JSON kernels: how to read columns, and all texts ready to copy.

    table    number of maps, an unused number, offset of each map's record (0 = left to the general writer)
    record   number of columns, bytes of the table id, then (offset, size) of the texts: object, body, title, names
             then per column: kind, parameter, width, bytes of the length, (offset, size) of its key, offset of its
             values

All numbers are 32 bits, big-endian. Offsets in a record count from its start, the others from the start of the table.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from binlogtool.formats.binlog_events.rows.table_map import TableMap, column_kinds
from binlogtool.formats.binlog_events.values.charsets import charset_decoder
from binlogtool.formats.binlog_events.values.columns import ColumnKind, TableMapColumn, ValueKind
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.jsonline import JsonEncoder
from binlogtool.formats.jsontext import build_text_table

RECORD_HEAD = 40
COLUMN_SIZE = 32
PAD = bytes(8)
"""Behind the last text: they are copied in steps of eight bytes."""

MAX_COMPILED_COLUMNS = 1024
"""Tables with more are left to the general writer."""

_ASCII = bytes(range(128))
_LATIN1_UPPER = bytes(range(0xA0, 0x100))
_UNSUPPORTED_KIND = ColumnKind(255, 0, 0, 1)
_UNCHECKED_KINDS = frozenset(ValueKind) - {ValueKind.DECIMAL, ValueKind.JSON, ValueKind.COMPRESSED}
"""Kinds of which all bytes are a value."""


def encode_map_table(records: Sequence[bytes]) -> bytes:
    """Join records (see `encode_map_record`) to a table of maps."""
    at = 8 + 4 * len(records)
    head, parts = [len(records), 0], list[bytes]()
    for record in records:
        head.append(at if record else 0)
        parts.append(record)
        at += len(record)
    return b"".join([struct.pack(f">{len(head)}I", *head), *parts, PAD])


def encode_map_record(
    table_map: TableMap,
    quote: JsonEncoder,
    include_body: bool = True,
    column_keys: frozenset[str] | None = None,
    *,
    rows_only: bool = False,
) -> bytes:
    """Encode the record of a table map; empty if the kernels cannot read the map's rows.

    Args:
        quote: writes a value as JSON.
        include_body: False = the general writer prints the TABLE_MAP event itself.
        column_keys: keys of the columns to write; None = all.
        rows_only: write only the rows of a body.
    """
    try:
        kinds = column_kinds(table_map)
    except MalformedError:
        return b""
    if len(kinds) > MAX_COMPILED_COLUMNS:
        return b""
    texts = _TextPool(RECORD_HEAD + COLUMN_SIZE * len(kinds))
    name = quote(table_map.qualified_name)
    title, rows_title = b'{"table_id":%d,"flags":' % table_map.table_id, b',"table":' + name + b',"rows":['
    body = quote(table_map.as_body()) if include_body else b""
    head = [len(kinds), table_map.table_id_size]
    for text in (name, b"{}", b'{"flags":', b',"rows":[') if rows_only else (name, body, title, rows_title):
        head += texts.add(text)
    columns = []
    for column, kind, key in zip(table_map.columns, kinds, table_map.column_keys, strict=True):
        kernel_kind, values = _kernel_kind(column, kind), _encode_choices(column, quote)
        if column_keys is None or key in column_keys:
            columns += [*kernel_kind, *texts.add(b"," + quote(key) + b":"), texts.add(values)[0] if values else 0, 0]
        else:
            columns += [*(kernel_kind._replace(kind=0) if kind.kind in _UNCHECKED_KINDS else kernel_kind), 0, 0, 0, 0]
    return struct.pack(f">{len(head) + len(columns)}I", *head, *columns) + texts.text


class _TextPool:
    """Concatenated texts; `add` returns the offset and size of a text."""

    def __init__(self, start: int) -> None:
        self._at, self.text = start, b""

    def add(self, text: bytes) -> tuple[int, int]:
        place = self._at + len(self.text)
        self.text += text
        return place, len(text)


def _encode_choices(column: TableMapColumn, quote: JsonEncoder) -> bytes:
    """Encode the texts of an ENUM or SET by number; empty if they are unknown."""
    return b"" if column.values is None else build_text_table({i: quote(text) for i, text in enumerate(column.values)})


def _kernel_kind(column: TableMapColumn, kind: ColumnKind) -> ColumnKind:
    """Map a kind to that of the kernels; the parameter of TEXT is the highest byte that equals its code point."""
    if kind.kind in (ValueKind.TIME, ValueKind.DATETIME, ValueKind.TIMESTAMP) and kind.parameter:
        return _UNSUPPORTED_KIND._replace(fixed=kind.fixed, prefix=0)
    if kind.kind != ValueKind.TEXT:
        return kind
    decode = charset_decoder(column.charset)
    if decode(_ASCII) != _ASCII.decode():
        return _UNSUPPORTED_KIND._replace(prefix=kind.prefix)
    return kind._replace(parameter=255 if decode(_LATIN1_UPPER) == _LATIN1_UPPER.decode("latin-1") else 127)
