"""Lines of JSON by compiled code where it can, by the general writer where it cannot; nobody sees which.

Compiled code writes records until it meets one that is not its own. That one goes the general way; where many do, runs
of growing length go there, since each change of the hand costs as much as many records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from binlogtool.log.blocks import BLOCK, Blocks, Stretch
from binlogtool.log.records import Block
from binlogtool.report.plain import safe_json
from binlogtool.report.records import DEFAULT

if TYPE_CHECKING:
    from binlogtool.schema.jsonlines import LineWriter

T = TypeVar("T")

_FEW = 32
"""So many records by compiled code do not pay for the changes of the hand."""


class Lines(NamedTuple):
    """Finished lines of some records of a file; the bytes are valid until the next lines are made.

    record: their numbers in the file. offset: of the frame of the last one, in the file.
    """

    file: str
    record: range
    offset: tuple[int]
    data: memoryview


class NativeLines:
    """Turns stretches into lines, in the default style only."""

    def __init__(self) -> None:
        self._maker: Blocks | None = None
        self._writer: LineWriter | None = None
        self._run = 1

    def of(self, parts: Iterable[Stretch | T]) -> Iterator[Lines | Block | T]:
        """The same parts, with lines and blocks in place of stretches."""
        for part in parts:
            if isinstance(part, Stretch):
                yield from self.parts(part)
            else:
                yield part

    def parts(self, stretch: Stretch) -> Iterator[Lines | Block]:
        """The stretch in order: finished lines, and blocks for the general writer."""
        writer = self._writer_of(stretch.maker)
        if writer is None:
            yield from stretch.blocks(stretch.start, stretch.stop)
        else:
            yield from self._written(stretch, writer)

    def _written(self, stretch: Stretch, writer: LineWriter) -> Iterator[Lines | Block]:
        batch, at, stop = stretch.batch, stretch.start, stretch.stop
        places = writer.places(batch)
        if places is None:
            yield from stretch.blocks(at, stop)
            return
        while at < stop:
            data, reached, refused = writer.write(places, at, stop)
            if reached > at:
                last = batch.base + int(batch.frames["offset"][batch.frame_of(reached - 1)])
                record = range(batch.first_record + at, batch.first_record + reached)
                yield Lines(stretch.maker.file, record, (last,), data)
            if refused:
                self._run = min(2 * self._run, BLOCK) if reached - at < _FEW else 1
                after = min(reached + self._run, stop)
                yield from stretch.blocks(reached, after)
                reached = after
            at = reached

    def _writer_of(self, maker: Blocks) -> LineWriter | None:
        """The compiled writer of a file; None if its format has none, or if it could go deeper than the limits."""
        if maker is not self._maker:
            self._maker, self._run = maker, 1
            declared = maker.format.json
            line = None if declared is None else declared(maker.layout.context)
            self._writer = None
            if line is not None and line.depth <= maker.limits.max_depth:
                from binlogtool.schema.jsonlines import LineWriter

                head = b'{"file":' + quoted(DEFAULT.text(maker.file)) + b',"offset":'
                self._writer = LineWriter(line, maker.layout, head, quoted)
        return self._writer


def quoted(value: object) -> bytes:
    """Any JSON value as the general writer writes it."""
    return safe_json(msgspec.json.encode(value))
