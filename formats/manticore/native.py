"""Layouts for which native code is generated when the package is built."""

from __future__ import annotations

from binlogtool.formats.layouts import Layout
from binlogtool.formats.manticore.layout import REST, TORN_HEADER, LogContext, frame_level
from binlogtool.formats.manticore.schema import FIRST_VERSION, LAST_VERSION


def layouts() -> list[Layout]:
    """Return one layout per version, and those of files without records."""
    versions = range(FIRST_VERSION, LAST_VERSION + 1)
    logs = [Layout("", 0, frame_level(version), context=LogContext(version, None)) for version in versions]
    return [*(Layout("", 0, level) for level in (REST, TORN_HEADER)), *logs]
