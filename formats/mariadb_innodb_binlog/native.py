"""What native code is made for when the package is built."""

from __future__ import annotations

from binlogtool.formats.layouts import Layout
from binlogtool.formats.mariadb_innodb_binlog.codes import SHIFTS
from binlogtool.formats.mariadb_innodb_binlog.layout import page_level


def layouts() -> list[Layout]:
    """One for each size of pages."""
    return [Layout("", 0, page_level(1 << shift)) for shift in SHIFTS]
