"""Row builders: turn the records of a log into Arrow batches, for Spark and for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.log.open import Log
from binlogtool.log.parts import Part
from binlogtool.log.records import Block, Trouble
from binlogtool.log.select import Selection
from binlogtool.log.stretches import Stretch
from binlogtool.pipeline import objects, rows
from binlogtool.pipeline.nativerows import NativeRows


class Maker(Protocol):
    """Builds rows. decode, raw: what it needs of the records (`Log.blocks`)."""

    @property
    def decode(self) -> str:
        """How far records are decoded: frame, header, full, or tables (row changes of tables)."""

    @property
    def raw(self) -> bool:
        """True if the bytes of the records are needed."""

    def native(self) -> NativeRows | None:
        """Return the compiled builder of the same rows; None if there is none."""

    def batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block."""

    def damage(self, file: str, format: str, found: Finding) -> pa.RecordBatch:
        """Return the row for bytes that cannot be read."""


def made_of(
    log: Log, name: str | None, selection: Selection, part: Part, maker: Maker
) -> Iterator[pa.RecordBatch | Block | Trouble]:
    """Yield finished rows where the compiled builder made them, otherwise blocks and findings.

    name: the file name in finished rows; None = that of the log.
    """
    native = maker.native()
    if isinstance(maker, objects.ObjectRows):
        rules = log.files[0].format.tables
        wants = None
        if rules is not None and rules().statements and maker.known:
            selection, wants = replace(selection, objects=()), maker.is_own
        yield from log.tables(selection, part=part, known=maker.known, wants=wants)
        return
    if native is None:
        yield from log.blocks(selection, decode=maker.decode, raw=maker.raw, part=part)
        return
    for one in log.stretches(selection, decode=maker.decode, part=part):
        if isinstance(one, Stretch):
            yield from native.parts(one, rows.file_name(one.maker.file if name is None else name))
        else:
            yield one
