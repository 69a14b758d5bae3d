"""Layouts for which native code is compiled when the package is built."""

from __future__ import annotations

from binlogtool.formats.eblob.layout.dialects import DIALECTS
from binlogtool.formats.eblob.layout.layout import EblobFileContext, make_frame_level
from binlogtool.formats.layouts import LogFileLayout


def native_layouts() -> list[LogFileLayout]:
    """Return one layout for each dialect."""
    return [
        LogFileLayout(one.title, one.frames_at, make_frame_level(one), context=EblobFileContext(one))
        for one in DIALECTS.values()
    ]
