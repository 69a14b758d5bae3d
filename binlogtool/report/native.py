"""Encode records as lines of JSON in compiled code (`log.compiled`), and hand over the blocks that it cannot encode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from binlogtool.formats.jsonline import JsonLine
from binlogtool.log.blocks import Blocks
from binlogtool.log.body_json import quoted
from binlogtool.log.compiled import Compiled
from binlogtool.log.plain import DEFAULT
from binlogtool.log.records import Block
from binlogtool.log.stretches import Stretch

if TYPE_CHECKING:
    from binlogtool.schema.jsonlines import LineWriter

T = TypeVar("T")


class Lines(NamedTuple):
    """Finished lines of some records of a file; the bytes are valid until the next lines are made.

    Attributes:
        record: Numbers of the records in the file, in order.
        offset: Of the frame of the last one, in the file.
    """

    file: str
    record: Sequence[int]
    offset: tuple[int]
    data: memoryview


class NativeLines:
    """Encodes record ranges as lines, in the default style only."""

    def __init__(self) -> None:
        self._compiled = Compiled(_writer)

    def of(self, parts: Iterable[Stretch | T]) -> Iterator[Lines | Block | T]:
        """Yield the same parts, with lines and blocks in place of record ranges."""
        for part in parts:
            if isinstance(part, Stretch):
                yield from self.parts(part)
            else:
                yield part

    def parts(self, stretch: Stretch) -> Iterator[Lines | Block]:
        """Yield the range in order: finished lines, and blocks for the general encoder."""
        for part in self._compiled.parts(stretch):
            if isinstance(part, Block):
                yield part
            else:
                place = stretch.batch.place_of(stretch.last(part.start, part.stop))
                yield Lines(stretch.maker.file, stretch.records(part.start, part.stop), (place.offset,), part.data)


def _writer(line: JsonLine, maker: Blocks) -> LineWriter:
    from binlogtool.schema.jsonlines import LineWriter

    head = b'{"file":' + quoted(DEFAULT.text(maker.file)) + b',"offset":'
    return LineWriter(line, maker.layout, head, quoted)
