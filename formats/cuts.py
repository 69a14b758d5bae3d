"""Split points: frame boundaries where reading of a file can start, and the state that a reader needs there.

They are used to share a large file among readers, and to continue with a growing one. At a split point nothing before
it is open: no transaction, no record that continues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from binlogtool.formats.layouts import Batch, FrameLevel, Kernel, LogFileLayout


class SplitPoint(NamedTuple):
    """A position in the file, and the number of frames before it in the batch that it was found in."""

    offset: int
    frame_count: int


def split_after(batch: Batch, frame_count: int) -> SplitPoint | None:
    """Return the split point after the first `frame_count` frames of a batch; None if there are none."""
    return SplitPoint(batch.base + int(batch.frames["end"][frame_count - 1]), frame_count) if frame_count else None


KernelCompiler = Callable[[Kernel], Kernel]
"""Turns a kernel function into the fastest callable at hand."""


class SplitFinder(Protocol):
    """Find split points in the batches of one file, from its start or from a split point; belongs to one layout.

    layout: the layout to scan with: the file's own, or one that shows the split points.
    """

    layout: LogFileLayout

    def feed(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the last split point in this batch; where frames hold rows, the end of the batch or None."""

    def export_state(self) -> Any:
        """Return the state at the last split point, as plain JSON values."""

    def resume(self, state: Any, record: int) -> FrameLevel | None:
        """Restore exported state into the layout's context, for a reader that starts there with this record number.

        Returns the frame level at that position, if it is not the one that the file begins with
        (`FrameLevel.next_level`).
        """

    def skip_damage(self) -> None:
        """Note that a part of the file was skipped."""


class CarryingSplitFinder(SplitFinder, Protocol):
    """A split finder for logs whose files continue each other."""

    def export_state_for_next_file(self) -> Any:
        """Return the state that also holds in the next file of the log, as plain JSON values; None = there is none."""


class EveryFrameSplitFinder(msgspec.Struct):
    """Split finder for formats where each frame can be read without those before it."""

    layout: LogFileLayout

    def feed(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the end of the batch."""
        return split_after(batch, batch.frames.count)

    def export_state(self) -> None:
        """Return None: there is no state."""

    def resume(self, state: Any, record: int) -> None:
        """Do nothing: no state is needed."""

    def skip_damage(self) -> None:
        """Do nothing."""
