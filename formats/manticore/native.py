"""What native code is made for when the package is built."""

from __future__ import annotations

from binlogtool.formats.layouts import Layout
from binlogtool.formats.manticore.layout import REST, TORN_HEADER, frame_level
from binlogtool.formats.manticore.schema import FIRST_VERSION, LAST_VERSION


def layouts() -> list[Layout]:
    """One for each version, and the files without records."""
    levels = [frame_level(version) for version in range(FIRST_VERSION, LAST_VERSION + 1)]
    return [Layout("", 0, level) for level in (REST, TORN_HEADER, *levels)]
