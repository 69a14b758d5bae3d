"""Layouts for which native code is generated when the package is built."""

from __future__ import annotations

from binlogtool.formats.drizzle.layout import FRAME, VARIANT
from binlogtool.formats.layouts import LogFileLayout


def layouts() -> list[LogFileLayout]:
    """Return the layout of readable logs."""
    return [LogFileLayout(VARIANT, 0, FRAME)]
