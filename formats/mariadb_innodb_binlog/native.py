"""Layouts for which native code is compiled when the package is built."""

from __future__ import annotations

from binlogtool.formats.layouts import Layout
from binlogtool.formats.mariadb_innodb_binlog.codes import SHIFTS
from binlogtool.formats.mariadb_innodb_binlog.groups.events import Events
from binlogtool.formats.mariadb_innodb_binlog.layout import page_level
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext


def layouts() -> list[Layout]:
    """Return one layout for each page size, with events as records."""
    return [Layout("", 0, page_level(1 << shift), context=_context(1 << shift)) for shift in SHIFTS]


def _context(page_size: int) -> FileContext:
    context = FileContext(None, page_size, None, True, None, "event", "", 0, 0)
    context.events = Events(context)
    return context
