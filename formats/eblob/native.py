"""What native code is made for when the package is built."""

from __future__ import annotations

from binlogtool.formats.eblob.layout.dialects import DIALECTS
from binlogtool.formats.eblob.layout.layout import frame_level
from binlogtool.formats.layouts import Layout


def layouts() -> list[Layout]:
    """One for each dialect."""
    return [Layout(dialect.title, dialect.frames_at, frame_level(dialect)) for dialect in DIALECTS.values()]
