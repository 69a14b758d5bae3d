"""Splits of a big file into parts that give the same records, numbers and findings as one pass over it.

They are planned by one pass over the frames: a part begins at a split point (`formats.cuts`), with the state that
holds
there. After the first damage there are no splits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.base import Format
from binlogtool.formats.cuts import Border, Cutter
from binlogtool.formats.layouts import Batch, Layout
from binlogtool.limits import KIB, MIB
from binlogtool.log.opened_file import LogFile
from binlogtool.log.scan import Scan
from binlogtool.log.segments import Account, Damage
from binlogtool.log.source import HEAD_BYTES, PartSource, is_url
from binlogtool.log.window import Window

if TYPE_CHECKING:
    from binlogtool.formats.cuts import CarryingCutter

_PIECES = 8
"""So many times in a part its end can be found."""

LEAST_PIECE = 16 * KIB


class Place(msgspec.Struct, frozen=True):
    """Where reading can start: file offset, number of the next record and of the next frame, and the state there."""

    offset: int
    record: int
    frame: int
    carried: Any = None


class Part(msgspec.Struct, frozen=True):
    """The bytes `[start, end)` of a file.

    start: None = its beginning, with the findings about its header. end: None = all that is there.
    """

    start: Place | None = None
    end: int | None = None

    def changed(self, file: LogFile) -> Finding | None:
        """Return a finding if these bytes changed while they were read; growth of a local file is no change."""
        found = file.changed()
        if found is None or self.end is None or is_url(file.source.name):
            return found
        before, after = (found.facts.get(name, -1) for name in ("size_before", "size_after"))
        return None if after > before >= self.end else found

    def scan(self, whole: Scan, format_: Format, layout: Layout) -> Scan:
        """Create the pass over this part; restores the state of its start into the layout's context."""
        source = whole.source if self.end is None else PartSource(whole.source, self.end)
        if self.start is None:
            return replace(whole, source=source)
        cutter = None if format_.reading.cutter is None else format_.reading.cutter(layout)
        assert cutter is not None  # it made the resume point
        level = cutter.resume(self.start.carried, self.start.record)
        return replace(
            whole, source=source, begin=self.start.offset, account=Account(), records=self.start.record,
            frames=self.start.frame, layout=whole.layout if level is None else replace(whole.layout, frame=level),
        )  # fmt: skip


WHOLE = Part()


class Cuts(msgspec.Struct):
    """Find the resume points of one file in one pass.

    Args:
        piece: bytes that are read at a time.
        skip: continue after damage.
    """

    whole: Scan
    piece: int = MIB
    begin: Place | None = None
    skip: bool = False

    def places(self) -> Iterator[Place]:
        """Yield every resume point at the end of a batch of frames; none where the format cannot split this file."""
        format_, layout, source = self.whole.format, self.whole.layout, self.whole.source
        cutter = None if format_.reading.cutter is None or source.size is None else format_.reading.cutter(layout)
        if cutter is None:
            return
        most = self.whole.limits.max_record
        piece = max(1, self.piece if most is None else min(self.piece, max(most, HEAD_BYTES)))
        whole = replace(self.whole, window=Window(source, piece), layout=cutter.layout)
        scan = Part(self.begin).scan(whole, format_, layout)
        if self.begin is not None:
            cutter.resume(self.begin.carried, self.begin.record)
        for segment in scan.segments():
            if isinstance(segment, Damage):
                if not self.skip or not segment.landed:
                    return
                cutter.damage()
            elif (border := cutter.feed(segment, scan.backend.compile)) is not None:
                yield _place(segment, border, cutter)


def _place(batch: Batch, border: Border, cutter: Cutter) -> Place:
    frames = border.frames
    records = batch.records.count if frames == batch.frames.count else frames
    return Place(border.offset, batch.first_record + records, batch.first_frame + frames, cutter.carried())


def carried_over(whole: Scan, part: Part = WHOLE) -> Any:
    """Return the state after the last record of a file that continues in the next file; None if there is none.

    Reads the bytes of `part`, the last one of the file.
    """
    format_, layout = whole.format, whole.layout
    found = None if format_.reading.cutter is None or not format_.reading.carries else format_.reading.cutter(layout)
    if found is None:
        return None
    cutter = cast("CarryingCutter", found)
    scan = part.scan(replace(whole, layout=cutter.layout), format_, layout)
    if part.start is not None:
        cutter.resume(part.start.carried, part.start.record)
    for segment in scan.segments():
        if isinstance(segment, Damage):
            if segment.tail == "damaged":
                cutter.damage()
        else:
            cutter.feed(segment, whole.backend.compile)
    return cutter.carried_over()


def parts(whole: Scan, size: int) -> list[Part]:
    """Return parts of at least `size` bytes each except the last; one part for a file that cannot be split."""
    return parts_between(whole, size, None, None)


def parts_between(whole: Scan, size: int, begin: Place | None, end: int | None) -> list[Part]:
    """Split `[begin, end)`. begin: None = the beginning of the file; end: None = all that is there."""
    stop = whole.source.size if end is None else end
    first = whole.layout.frames_at if begin is None else begin.offset
    if stop is None or stop - first <= size:
        return [Part(begin, end)]
    places: list[Place] = []
    wanted = first + size
    for place in Cuts(whole, min(MIB, max(LEAST_PIECE, size // _PIECES)), begin).places():
        if place.offset >= stop:
            break
        if place.offset >= wanted:
            places.append(place)
            wanted = place.offset + size
    return [
        Part(start, end if behind is None else behind.offset)
        for start, behind in zip([begin, *places], [*places, None], strict=True)
    ]
