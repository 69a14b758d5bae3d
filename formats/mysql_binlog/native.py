"""What native code is made for when the package is built."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from binlogtool.formats.base import Layout
from binlogtool.formats.mysql_binlog.codes import HEADER_SIZE
from binlogtool.formats.mysql_binlog.description import FormatDescription
from binlogtool.formats.mysql_binlog.index import NOTHING
from binlogtool.formats.mysql_binlog.layout import INNER, SEALED_LEVEL, FileContext
from binlogtool.formats.mysql_binlog.schema import CLEAR, EVENTS
from binlogtool.formats.mysql_binlog.tracking import Tracker


def layouts() -> Iterator[Layout]:
    """One for each form of events, those before encrypted ones, encrypted ones, and the lists of files."""
    described = FormatDescription(4, "", 0, HEADER_SIZE, b"", None)
    sealed = FileContext(described, Tracker(), sealed=True)
    for schema in EVENTS.values():
        level = replace(SEALED_LEVEL, schema=schema)
        yield Layout("", 0, level, context=FileContext(described, Tracker()), inner=INNER)
    yield from (Layout("", 0, replace(SEALED_LEVEL, schema=schema), context=sealed) for schema in CLEAR.values())
    yield Layout("", 0, SEALED_LEVEL, context=sealed)
    yield Layout("", 0, NOTHING, context=sealed)
