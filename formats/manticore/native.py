"""Layouts for which native code is generated when the package is built."""

from __future__ import annotations

from binlogtool.formats.layouts import LogFileLayout
from binlogtool.formats.manticore.layout import (
    META_REST_LEVEL,
    TORN_HEADER_LEVEL,
    ManticoreLogContext,
    create_frame_level,
)
from binlogtool.formats.manticore.schema import FIRST_VERSION, LAST_VERSION


def layouts() -> list[LogFileLayout]:
    """Return one layout per version, and those of files without records."""
    versions = range(FIRST_VERSION, LAST_VERSION + 1)
    logs = [
        LogFileLayout("", 0, create_frame_level(version), context=ManticoreLogContext(version, None))
        for version in versions
    ]
    return [*(LogFileLayout("", 0, level) for level in (META_REST_LEVEL, TORN_HEADER_LEVEL)), *logs]
