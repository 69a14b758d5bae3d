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
from binlogtool.formats.binlog_events.values.charsets import decoder_of
from binlogtool.formats.binlog_events.values.columns import Column, ColumnKind, Kind
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.jsonline import Quote
from binlogtool.formats.jsontext import text_table

RECORD_HEAD = 40
COLUMN_SIZE = 32
PAD = bytes(8)
"""Behind the last text: they are copied in steps of eight bytes."""

MOST_COLUMNS = 1024
"""Tables with more are left to the general writer."""

_ASCII = bytes(range(128))
_LATIN = bytes(range(0xA0, 0x100))
_NOT_OURS = ColumnKind(255, 0, 0, 1)
_ANY_BYTES = frozenset(Kind) - {Kind.DECIMAL, Kind.JSON, Kind.COMPRESSED}
"""Kinds of which all bytes are a value."""


def map_table(records: Sequence[bytes]) -> bytes:
    """Join records (see `encode_map_record`) to a table of maps."""
    at = 8 + 4 * len(records)
    head, parts = [len(records), 0], list[bytes]()
    for record in records:
        head.append(at if record else 0)
        parts.append(record)
        at += len(record)
    return b"".join([struct.pack(f">{len(head)}I", *head), *parts, PAD])


def map_record(
    known: TableMap, quote: Quote, shown: bool = True, names: frozenset[str] | None = None, *, rows_only: bool = False
) -> bytes:
    """Encode the record of a table map; empty if the kernels cannot read the map's rows.

    Args:
        quote: writes a value as JSON.
        include_body: False = the general writer prints the TABLE_MAP event itself.
        column_keys: keys of the columns to write; None = all.
        rows_only: write only the rows of a body.
    """
    try:
        kinds = column_kinds(known)
    except MalformedError:
        return b""
    if len(kinds) > MOST_COLUMNS:
        return b""
    texts = _Texts(RECORD_HEAD + COLUMN_SIZE * len(kinds))
    name = quote(known.qualified_name)
    title, behind = b'{"table_id":%d,"flags":' % known.table_id, b',"table":' + name + b',"rows":['
    body = quote(known.as_body()) if shown else b""
    head = [len(kinds), known.table_id_size]
    for text in (name, b"{}", b'{"flags":', b',"rows":[') if rows_only else (name, body, title, behind):
        head += texts.add(text)
    columns = []
    for column, kind, key in zip(known.columns, kinds, known.keys, strict=True):
        own, values = _own(column, kind), _values(column, quote)
        if names is None or key in names:
            columns += [*own, *texts.add(b"," + quote(key) + b":"), texts.add(values)[0] if values else 0, 0]
        else:
            columns += [*(own._replace(kind=0) if kind.kind in _ANY_BYTES else own), 0, 0, 0, 0]
    return struct.pack(f">{len(head) + len(columns)}I", *head, *columns) + texts.text


class _Texts:
    """Concatenated texts; `add` returns the offset and size of a text."""

    def __init__(self, at: int) -> None:
        self._at, self.text = at, b""

    def add(self, text: bytes) -> tuple[int, int]:
        place = self._at + len(self.text)
        self.text += text
        return place, len(text)


def _values(column: Column, quote: Quote) -> bytes:
    """Encode the texts of an ENUM or SET by number; empty if they are unknown."""
    return b"" if column.values is None else text_table({i: quote(text) for i, text in enumerate(column.values)})


def _own(column: Column, kind: ColumnKind) -> ColumnKind:
    """Map a kind to that of the kernels; the parameter of TEXT is the highest byte that equals its code point."""
    if kind.kind in (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP) and kind.parameter:
        return _NOT_OURS._replace(fixed=kind.fixed, prefix=0)
    if kind.kind != Kind.TEXT:
        return kind
    decode = decoder_of(column.charset)
    if decode(_ASCII) != _ASCII.decode():
        return _NOT_OURS._replace(prefix=kind.prefix)
    return kind._replace(parameter=255 if decode(_LATIN) == _LATIN.decode("latin-1") else 127)
