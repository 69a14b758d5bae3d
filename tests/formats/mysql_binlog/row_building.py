"""Hand-made TABLE_MAP and row event bodies for tests."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

TABLE_ID = 7


def lenenc(number: int) -> bytes:
    if number < 0xFB:
        return bytes([number])
    if number < 1 << 16:
        return b"\xfc" + number.to_bytes(2, "little")
    if number < 1 << 24:
        return b"\xfd" + number.to_bytes(3, "little")
    return b"\xfe" + number.to_bytes(8, "little")


def sized(data: bytes) -> bytes:
    return lenenc(len(data)) + data


def bits(flags: Sequence[bool]) -> bytes:
    """Lowest bit first."""
    number = sum(1 << place for place, flag in enumerate(flags) if flag)
    return number.to_bytes((len(flags) + 7) // 8, "little")


def optional(type_: int, value: bytes) -> bytes:
    return bytes([type_]) + sized(value)


def table_map_body(
    types: bytes, metadata: bytes = b"", more: bytes = b"", database: bytes = b"db", table: bytes = b"t"
) -> bytes:
    """more: optional metadata. All columns are nullable."""
    names = bytes([len(database)]) + database + b"\0" + bytes([len(table)]) + table + b"\0"
    head = TABLE_ID.to_bytes(6, "little") + struct.pack("<H", 1) + names
    return head + lenenc(len(types)) + types + sized(metadata) + bits([True] * len(types)) + more


def image(values: Iterable[bytes | None]) -> bytes:
    """One row image: the values as they are stored, None = NULL."""
    values = list(values)
    return bits([value is None for value in values]) + b"".join(value for value in values if value is not None)


def rows_body(
    columns: int,
    images: bytes,
    present: Sequence[Sequence[bool]] | None = None,
    extra: bytes | None = None,
    last: bool = True,
    flags: int = 0,
) -> bytes:
    """present: one list per bitmap. extra: the extra data of v2 without its length; None = v1. last: STMT_END_F; the
    row event after it needs a TABLE_MAP of its own. flags: other bits of the event's flags.
    """
    bitmaps = [[True] * columns] if present is None else present
    more = b"" if extra is None else (len(extra) + 2).to_bytes(2, "little") + extra
    head = TABLE_ID.to_bytes(6, "little") + struct.pack("<H", last | flags) + more
    return head + lenenc(columns) + b"".join(bits(bitmap) for bitmap in bitmaps) + images
