"""Where the reading of a file can begin anew: borders of frames, and what a reader must know who begins there.

Used to share a big file among readers, and to go on with a growing one. A border is a place behind which nothing of the
frames before it is open: no transaction, no record that goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from binlogtool.formats.layouts import Batch, FrameLevel, Kernel, Layout


class Border(NamedTuple):
    """A place in the file, and how many frames of the batch that it was found in stand before it."""

    offset: int
    frames: int


def behind(batch: Batch, frames: int) -> Border | None:
    """The border behind so many frames of a batch; None behind none."""
    return Border(batch.base + int(batch.frames["end"][frames - 1]), frames) if frames else None


Compile = Callable[[Kernel], Kernel]
"""Turns a kernel function into the fastest callable at hand."""


class Cutter(Protocol):
    """Follows the batches of one file, from its start or from a border; belongs to one layout.

    layout: what the file is walked with to find borders: its own, or one that shows where they are.
    """

    layout: Layout

    def feed(self, batch: Batch, compile_: Compile) -> Border | None:
        """The last border in this batch; where frames hold rows, the end of the batch or none."""

    def carried(self) -> Any:
        """What holds at the last border, as plain JSON values."""

    def resume(self, carried: Any, record: int) -> FrameLevel | None:
        """Puts what was carried into the layout's context, for a reader that begins there with this record number.

        Returns the level that holds there, if it is not the one that the file begins with (`FrameLevel.turn`).
        """

    def damage(self) -> None:
        """A part of the file was skipped."""


class CarryingCutter(Cutter, Protocol):
    """One whose files go on from each other."""

    def carried_over(self) -> Any:
        """What holds at the last border and in the next file of the log, as plain JSON values; None = nothing."""


class Everywhere(msgspec.Struct):
    """Each frame can be read without those before it."""

    layout: Layout

    def feed(self, batch: Batch, compile_: Compile) -> Border | None:
        """Behind the last one."""
        return behind(batch, batch.frames.count)

    def carried(self) -> None:
        """Nothing."""

    def resume(self, carried: Any, record: int) -> None:
        """Nothing is needed."""

    def damage(self) -> None:
        """Makes no difference."""
