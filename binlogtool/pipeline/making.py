"""Row builders: turn the records of a log into Arrow batches, for Spark and for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.log.open import LogReader
from binlogtool.log.parts import FilePart
from binlogtool.log.records import FileFinding, RecordBlock
from binlogtool.log.select import Selection
from binlogtool.log.stretches import RecordRange
from binlogtool.pipeline import objects, rows
from binlogtool.pipeline.nativerows import CompiledRows


class RowBuilder(Protocol):
    """Builds rows. decode, raw: what it needs of the records (`Log.blocks`)."""

    @property
    def decode(self) -> str:
        """How far records are decoded: frame, header, full, or tables (row changes of tables)."""

    @property
    def raw(self) -> bool:
        """True if the bytes of the records are needed."""

    def compiled_builder(self) -> CompiledRows | None:
        """Return the compiled builder of the same rows; None if there is none."""

    def build_batches(self, block: RecordBlock) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block."""

    def build_damage_batch(self, file: str, format: str, damage_finding: Finding) -> pa.RecordBatch:
        """Return the row for bytes that cannot be read."""


def read_row_parts(
    log: LogReader, name: str | None, selection: Selection, part: FilePart, builder: RowBuilder
) -> Iterator[pa.RecordBatch | RecordBlock | FileFinding]:
    """Yield finished rows where the compiled builder made them, otherwise blocks and findings.

    name: the file name in finished rows; None = that of the log.
    """
    compiled = builder.compiled_builder()
    if isinstance(builder, objects.TableRowBuilder):
        rules = log.files[0].format.tables
        is_wanted = None
        if rules is not None and rules().statements and builder.known:
            selection, is_wanted = replace(selection, objects=()), builder.is_own_table
        yield from log.table_rows(selection, part=part, known_tables=builder.known, is_selected=is_wanted)
        return
    if compiled is None:
        yield from log.blocks(selection, decode=builder.decode, raw=builder.raw, part=part)
        return
    for log_part in log.record_ranges(selection, decode=builder.decode, part=part):
        if isinstance(log_part, RecordRange):
            yield from compiled.build_parts(
                log_part, rows.printable_path(log_part.decoder.file if name is None else name)
            )
        else:
            yield log_part
