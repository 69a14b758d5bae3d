"""Salvage: well-framed records in damaged ranges that nothing proves, each marked with the reason.

A frame is well framed if everything but its checksum is right: its fields, its content, the format's own proof, and
what follows it. Then its checksum is stale, or one flipped bit explains the difference: the record is shown with this
bit corrected, and a finding says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.layouts import Batch, Doubted, Doubtful
from binlogtool.log import damage as damages
from binlogtool.log.blocks import Blocks
from binlogtool.log.filters import Filter
from binlogtool.log.hidden import LONGEST, hidden, tried
from binlogtool.log.payloads import Payloads, Piece
from binlogtool.log.records import Block, Checked
from binlogtool.log.scan import Scan
from binlogtool.log.segments import Damage, Unproven
from binlogtool.log.source import Source
from binlogtool.log.window import HeldSource, Window
from binlogtool.schema.scanner import Scanner, StopReason

_CHUNK = 1 << 20
_BORDER = 64
_TRIES, _EACH = 16_384, 256
"""Bits that are tried, in all of a file, where one may hide a frame; and one more for so many bytes of the file."""
STALE, CORRECTED = "stale checksum", "one corrected bit"


class Salvager:
    """Find well-framed records in the damaged ranges of one scan (`segments.UnprovenReader`).

    Records of several frames are found also where one of these is unproven.
    """

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        layout, apart = scan.layout, scan.format.reading.apart
        self._turn()
        self._tries = _TRIES + (scan.source.size or 0) // _EACH
        self._doubtful: Doubtful | None = None
        if layout.assemble is not None and layout.doubtful is not None:
            context = layout.context if apart is None else apart(layout.context)
            self._doubtful = layout.doubtful(context, scan.backend.compile, self._doubt)

    def _turn(self) -> None:
        """Adopt the current layout of the scan: after a FORMAT_DESCRIPTION inside a file events may end differently."""
        layout, scan = self.scan.layout, self.scan
        self._level = layout.frame
        self._probe: Scanner = scan.backend.scanner(layout.frame.schema, layout.frame.columns, 1)
        self._payloads = Payloads(layout, scan.backend, scan.limits)

    def damage(self, damage: Damage) -> Iterator[Unproven]:
        """Yield the frames of a damaged range, or the records that end in them; of a stream only what is in memory."""
        if self._level is not self.scan.layout.frame:
            self._turn()
        source, doubtful = self._source(damage), self._doubtful
        if damage.payload:
            return
        if damage.tail == "preallocated":
            yield from () if doubtful is None else self._made(doubtful.damage(damage.start, damage.end))
            return
        if self.scan.layout.assemble is None:
            yield from () if source is None else self._frames(damage, Window(source, _CHUNK))
        elif doubtful is not None and source is not None:
            yield from self._records(damage, Window(source, _CHUNK), doubtful)
        elif doubtful is not None:
            yield from self._made(doubtful.damage(damage.start, damage.end))

    def good(self, batch: Batch) -> Iterator[Unproven]:
        """Yield the records that end in these frames; see `UnprovenReader`."""
        return iter(()) if self._doubtful is None else self._made(self._doubtful.feed(batch))

    def finish(self) -> Iterator[Unproven]:
        """Yield what is left at the end of the file; see `UnprovenReader`."""
        return iter(()) if self._doubtful is None else self._made(self._doubtful.finish())

    def _records(self, damage: Damage, window: Window, doubtful: Doubtful) -> Iterator[Unproven]:
        """Yield the records that end in frames of a damaged range; the frames are at fixed distances."""
        step = self.scan.layout.frame.align
        for at in range(damage.start, damage.end, step):
            data = self._whole(window, at, damage.end)
            found = None if data is None else self._doubt(data, at)
            batch = None if found is None else self._batch(found[0], at, self.scan.records)
            if batch is None or found is None:
                yield from self._made(doubtful.damage(at, min(at + step, damage.end)))
            else:
                yield from self._made(doubtful.feed(batch, found[1]))

    def _made(self, doubted: Iterator[Doubted]) -> Iterator[Unproven]:
        for batch, why in doubted:
            yield Unproven(batch.numbered(self.scan.records), why, b"")

    def _doubt(self, data: bytes, at: int) -> tuple[bytes, Finding] | None:
        """Correct a frame; see `formats.layouts.FrameCorrector`."""
        layout = self.scan.layout
        found = damages.checksum_mismatch(layout, data, at, self.scan.records)
        for why, copy in self._copies(data, at, found):
            return copy, _told(found, why)
        return None

    def _copies(self, data: bytes, at: int, found: Finding) -> Iterator[tuple[str, bytes]]:
        """Yield the frame with the flipped bit corrected, and with the checksum recomputed."""
        if (copy := damages.corrected(data, at, found)) is not None:
            yield CORRECTED, copy
        if (copy := damages.restamped(self.scan.layout, data, found)) is not None:
            yield STALE, copy

    def _source(self, damage: Damage) -> Source | None:
        """Return a source where the bytes of the range can be read again."""
        source, window = self.scan.source, self.scan.window
        if source.size is not None:
            return source
        return None if window is None or window.base > damage.start else HeldSource(source.name, window)

    def _frames(self, damage: Damage, window: Window) -> Iterator[Unproven]:
        at = damage.start
        number = damage.findings[0].record or 0 if damage.findings else 0
        while at < damage.end:
            one = self._frame(window, at, damage.end, number) or self._hidden(window, at, damage.end, number)
            if one is None:
                following = self._next(window, at + 1, damage.end)
                if following is None:
                    return
                at = following
            else:
                yield one
                number += one.batch.records.count
                at += len(one.data)

    def _next(self, window: Window, at: int, end: int) -> int | None:
        """Return where the next frame can begin."""
        sync, align = self.scan.layout.frame.sync, self.scan.layout.frame.align
        if align > 1:
            place = at + (self.scan.layout.frames_at - at) % align
            return place if place < end else None
        if sync is None:
            return None
        while at < end:
            window.load(at, min(end, at + _CHUNK))
            found = re.compile(sync, re.DOTALL).search(window.buffer, at - window.base, window.length)
            if found is not None:
                place = window.base + found.start()
                del found  # releases the buffer
                return place if place < end else None
            at = max(at + 1, window.end - _BORDER)
            if window.ended:
                return None
        return None

    def _frame(self, window: Window, at: int, end: int, number: int) -> Unproven | None:
        """Return the frame at `at`, if it is well framed and ends where it must."""
        data = self._whole(window, at, end)
        if data is None:
            return None
        layout = self.scan.layout
        found = damages.checksum_mismatch(layout, data, at, number)
        for why, copy in self._copies(data, at, found):
            batch = self._batch(copy, at, number)
            if batch is not None and (why == CORRECTED or self._believed(window, copy, at, end)):
                return Unproven(batch, (_told(found, why),), data)
        return None

    def _hidden(self, window: Window, at: int, end: int, number: int) -> Unproven | None:
        """Return the frame at `at`, if one flipped bit hides where it begins or ends."""
        layout = self.scan.layout
        if self._tries <= 0 or layout.frame.checksum is None or layout.frame.align > 1:
            return None
        self._tries -= len(tried(layout.frame))
        window.load(at, min(end, at + LONGEST))
        data = bytes(window.view(at, min(end, at + LONGEST)))
        found = hidden(layout.frame, self._probe, data)
        batch = None if found is None else self._batch(found.copy, at, number)
        if found is None or batch is None:
            return None
        here = data[: len(found.copy)]
        why = damages.hidden_bit(layout, found.copy, here, at, number, (found.byte, found.bit))
        return Unproven(batch, (_told(why, CORRECTED),), here)

    def _whole(self, window: Window, at: int, end: int) -> bytes | None:
        """Return the bytes of the frame at `at`, if its checksum is the only thing wrong with it."""
        need = at + self.scan.layout.frame.min_size
        while True:
            window.load(at, min(need, end))
            table, stop = self._probe.scan(window.buffer, at - window.base, window.length)
            if table.count:
                return None
            if stop.reason == StopReason.CHECKSUM:
                border = window.base + stop.need
                return bytes(window.view(at, border)) if border <= end else None
            wanted = window.base + stop.need
            if stop.reason != StopReason.SHORT or wanted > end or wanted <= max(need, window.end):
                return None
            if wanted - at > self.scan.max_frame:
                return None
            need = wanted

    def _batch(self, copy: bytes, at: int, number: int) -> Batch | None:
        """Return the records of a frame with a matching checksum; None if they do not follow the format."""
        table, _ = self._probe.scan(copy, 0, len(copy))
        if not table.count or int(table["end"][0]) != len(copy):
            return None
        view = memoryview(copy)
        pieces = list(self._payloads.pieces(view, at, table))
        if len(pieces) != 1 or not isinstance(pieces[0], Piece):
            return None
        p = pieces[0]
        batch = Batch(at, view, p.frames, p.arena, p.rows, p.starts, p.packed, number, self.scan.frames)
        return replace(batch, inner={i: one.numbered(number + i) for i, one in p.inner.items()})

    def _believed(self, window: Window, copy: bytes, at: int, end: int) -> bool:
        """Return True if the frame passes the format's own proof, and another frame can begin after it."""
        level, border = self.scan.layout.frame, at + len(copy)
        if border == end and level.align == 1:
            return True
        if level.prove is not None and not level.prove(copy, self.scan.layout.context):
            return False
        window.load(at, border + _BORDER)
        rest = bytes(window.view(border, border + _BORDER))
        return level.sync is None or re.compile(level.sync, re.DOTALL).match(rest) is not None


def all_rows(damage: Damage, maker: Blocks, wanted: Filter) -> Iterator[Block]:
    """Yield the good rows of a frame, and between them those that cannot be decoded, each of these with its finding."""
    kept, framed, reached = damage.kept, damage.framed, 0
    if kept is None or framed is None:
        return
    heads = replace(maker, decode="header")
    for i, found in enumerate(damage.findings):
        place = (found.record or 0) - kept.first_record
        yield from maker.between(kept, wanted, reached, place)
        reached = place
        for block in heads.between(framed, wanted, i, i + 1) if i < framed.records.count else ():
            yield replace(block, findings={0: (found,)}, bodies=[None] if maker.decode == "full" else [])
    yield from maker.between(kept, wanted, reached, kept.records.count)


class Marker:
    """Make marked records of salvaged ones.

    What they teach the format applies to the records after them up to the next proven one, which must not depend on
    it.
    """

    def __init__(self, maker: Blocks, wanted: Filter) -> None:
        self._maker, self._wanted = maker, wanted
        self._own: Blocks | None = None

    def blocks(self, one: Unproven) -> Iterator[Block]:
        """Yield the marked records. Compiled conditions follow the proven records only, and are not used for these."""
        if self._own is None:
            apart, layout = self._maker.format.reading.apart, self._maker.layout
            context = layout.context if apart is None else apart(layout.context)
            self._own = replace(self._maker, layout=replace(layout, context=context))
        lines, self._wanted.lines = self._wanted.lines, None
        for block in self._own.of(one.batch, self._wanted):
            yield _marked(block, one)
        self._wanted.lines = lines

    def proven(self) -> None:
        """Forget what salvaged records taught: proven records come next."""
        self._own = None


def _told(found: Finding, why: str) -> Finding:
    told = replace(found, message=f"unproven ({why}): {found.message}")
    return replace(told, facts={**found.facts, "unproven": why})


def _marked(block: Block, one: Unproven) -> Block:
    facts = one.why[0].facts
    stored, computed = int(facts["stored"], 16), int(facts["computed"], 16)
    checked = Checked(
        facts["algorithm"], stored, computed, stored == computed
    )  # the checksum does not cover all of a frame
    raw = [one.data] if one.data and one.batch.rows is None and block.raw is not None else block.raw
    found = {i: (*one.why, *block.findings.get(i, ())) for i in range(len(block))}
    return replace(block, checksum=[checked] * len(block), findings=found, raw=raw)
