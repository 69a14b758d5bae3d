"""Layouts for which native code is compiled when the package is built."""

from __future__ import annotations

from binlogtool.format_api.layout import LogFileLayout
from binlogtool.formats.mariadb_innodb_binlog.event_groups import GroupEventDecoder
from binlogtool.formats.mariadb_innodb_binlog.layout import make_page_level
from binlogtool.formats.mariadb_innodb_binlog.schema import PAGE_SIZE_SHIFTS, IbbFileContext


def native_layouts() -> list[LogFileLayout]:
    """Return one layout for each page size, with events as records."""
    return [
        LogFileLayout("", 0, make_page_level(1 << shift), context=_make_context(1 << shift))
        for shift in PAGE_SIZE_SHIFTS
    ]


def _make_context(page_size: int) -> IbbFileContext:
    context = IbbFileContext(None, page_size, None, True, None, "event", "", 0, 0)
    context.events = GroupEventDecoder(context)
    return context
