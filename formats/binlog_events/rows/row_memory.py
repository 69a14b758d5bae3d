"""The memory that kernels pass on while they write the rows of one event."""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s


class RowMemory(NamedTuple):
    """What is read and written.

    buf: bytes of the event; n: where its rows end. texts: constant texts and plans of tables; r: where the plan of this
    table is. out: the text; z: where its room ends.
    """

    buf: UInt8s
    n: int
    texts: UInt8s
    r: int
    out: MutableUInt8s
    z: int
