"""`columns.ValueKind` as plain numbers, for kernels, which are translated with these as constants."""

from __future__ import annotations

from binlogtool.formats.binlog_events.values.columns import Kind

SIGNED = Kind.SIGNED.value
UNSIGNED = Kind.UNSIGNED.value
FLOAT = Kind.FLOAT.value
DOUBLE = Kind.DOUBLE.value
DECIMAL = Kind.DECIMAL.value
BIT = Kind.BIT.value
ENUM = Kind.ENUM.value
YEAR = Kind.YEAR.value
DATE = Kind.DATE.value
TIME2 = Kind.TIME2.value
DATETIME2 = Kind.DATETIME2.value
TIMESTAMP2 = Kind.TIMESTAMP2.value
TEXT = Kind.TEXT.value
UTF8 = Kind.UTF8.value
BYTES = Kind.BYTES.value
GEOMETRY = Kind.GEOMETRY.value
UUID = Kind.UUID.value

FIRST_MOMENT = DATE
"""Kinds of fixed width from here on are dates and times."""
FIRST_SIZED = TEXT
"""Kinds from here on have a length before their bytes."""
