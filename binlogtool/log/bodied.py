"""Blocks whose bodies are decoded by compiled code: it writes them as JSON, and the JSON is parsed.

That is several times as fast as decoding events one by one. Bodies that plain JSON cannot express (bytes, and
everything else with a `$` marker) and records that compiled code refuses are decoded by Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec import json
from msgspec.structs import replace

from binlogtool import memory
from binlogtool.formats.jsonline import JsonLine
from binlogtool.log.blocks import Blocks
from binlogtool.log.body_json import quoted
from binlogtool.log.compiled import Compiled, Run
from binlogtool.log.records import Block
from binlogtool.log.stretches import BLOCK, Stretch

if TYPE_CHECKING:
    from binlogtool.schema.jsoncells import Cells, CellWriter

_MARK = b'"$'
"""Begins the name of what JSON has no word for; as a text it is rare enough."""

FEW = 256
"""So many records by compiled code do not pay for its room, which each file needs anew."""

_decode = json.Decoder(list[Any]).decode


class BodiedBlocks:
    """Make blocks of record ranges, file by file. min_records: fewer records of a file are decoded by Python."""

    def __init__(self, few: int = FEW) -> None:
        self._few = few
        self._compiled: Compiled[Cells] = Compiled(self._writer)
        self._bare: tuple[Blocks, Blocks] | None = None

    def of(self, stretch: Stretch) -> Iterator[Block]:
        """Yield the records of a range, in order."""
        if stretch.stop - stretch.start < self._few and not self._compiled.is_at(stretch.maker):
            yield from stretch.blocks(stretch.start, stretch.stop)
            return
        for part in self._compiled.parts(stretch):
            yield self._block(part) if isinstance(part, Run) else part

    def _writer(self, line: JsonLine, maker: Blocks) -> CellWriter:
        from binlogtool.schema.jsoncells import CellWriter

        return CellWriter(line, maker.layout, quoted, BLOCK, extras=False)

    def _block(self, run: Run[Cells]) -> Block:
        maker, batch = run.stretch.maker, run.stretch.batch
        if self._bare is None or self._bare[0] is not maker:
            self._bare = maker, replace(maker, decode="header")
        envelope = maker.describe(batch, run.start, run.stop)
        block = self._bare[1].block(batch, run.start, run.stop, envelope)
        return replace(block, bodies=_bodies(run))


def _bodies(run: Run[Cells]) -> Sequence[Any]:
    data, ends = run.data.texts["body"]
    text, places = bytes(data[: ends[-1]]), ends.tolist()
    parts = [text[low:high] or b"null" for low, high in pairwise(places)]
    whole = b"[" + b",".join(parts) + b"]"
    memory.demand_json(whole)
    bodies: list[Any] = _decode(whole)
    if _MARK in text:
        maker, batch = run.stretch.maker, run.stretch.batch
        for i, part in enumerate(parts):
            if _MARK in part:
                at = run.start + i
                bodies[i] = maker.format.output.bodies(maker.layout.context, batch, at, at + 1, maker.limits)[0]
    return bodies
