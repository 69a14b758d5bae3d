"""`columns.ValueKind` as plain numbers, for kernels, which are translated with these as constants."""

from __future__ import annotations

from binlogtool.formats.binlog_events.values.columns import ValueKind

SIGNED = ValueKind.SIGNED.value
UNSIGNED = ValueKind.UNSIGNED.value
FLOAT = ValueKind.FLOAT.value
DOUBLE = ValueKind.DOUBLE.value
DECIMAL = ValueKind.DECIMAL.value
BIT = ValueKind.BIT.value
ENUM = ValueKind.ENUM.value
YEAR = ValueKind.YEAR.value
DATE = ValueKind.DATE.value
TIME2 = ValueKind.TIME2.value
DATETIME2 = ValueKind.DATETIME2.value
TIMESTAMP2 = ValueKind.TIMESTAMP2.value
TEXT = ValueKind.TEXT.value
UTF8 = ValueKind.UTF8.value
BYTES = ValueKind.BYTES.value
GEOMETRY = ValueKind.GEOMETRY.value
UUID = ValueKind.UUID.value

FIRST_TEMPORAL = DATE
"""Kinds of fixed width from here on are dates and times."""
FIRST_SIZED = TEXT
"""Kinds from here on have a length before their bytes."""
