"""What native code is made for when the package is built."""

from __future__ import annotations

from binlogtool.formats.drizzle.layout import FRAME, VARIANT
from binlogtool.formats.layouts import Layout


def layouts() -> list[Layout]:
    """The one that is walked."""
    return [Layout(VARIANT, 0, FRAME)]
