"""Layouts for which native code is compiled when the package is built."""

from __future__ import annotations

from binlogtool.formats.eblob.layout.dialects import DIALECTS
from binlogtool.formats.eblob.layout.layout import Log, frame_level
from binlogtool.formats.layouts import Layout


def layouts() -> list[Layout]:
    """Return one layout for each dialect."""
    return [Layout(one.title, one.frames_at, frame_level(one), context=Log(one)) for one in DIALECTS.values()]
