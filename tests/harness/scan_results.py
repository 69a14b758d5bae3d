"""What the product's one walk gives: to the judge of `verify`, and to the lines of `dump`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

import binlogtool
from binlogtool.core.decode_batches import RecordLocations
from binlogtool.core.open_file import open_file
from binlogtool.core.record_and_selection_types import RecordBlock, Selection
from binlogtool.findings import Finding
from binlogtool.format_api.format import Format, Hints, Validator
from binlogtool.format_api.layout import Batch, LogFileLayout
from binlogtool.limits import Limits
from binlogtool.verification.verify_logs import LogVerifyOptions, verify_file
from binlogtool.verification.verify_report import FileReport


@dataclass
class Judged:
    """What verify says of a file, and what its judge was given: record offsets, borders of frames, given-up ranges.

    assembled: records are put together of pieces of frames, so that the borders are those of records.
    """

    report: FileReport | None = None
    records: list[int] = field(default_factory=list)
    frames: list[tuple[int, int]] = field(default_factory=list)
    damage: list[tuple[int, int]] = field(default_factory=list)
    assembled: bool = False


def judged(path: Path, format: Format, backend: str, hints: Hints = Hints()) -> Judged:
    """Verifies a file.

    Raises:
        UnknownFormatError.
    """
    seen = Judged()

    class Spy:
        def __init__(self, judge: Validator, layout: LogFileLayout) -> None:
            self.finish, self._judge, self._layout = judge.finish, judge, layout

        def skip_damage(self, start: int, end: int) -> None:
            seen.damage.append((start, end))
            self._judge.skip_damage(start, end)

        def validate_batch(self, batch: Batch) -> Sequence[Finding]:
            count = batch.records.count
            seen.records += RecordLocations(batch, self._layout, 0, count).list_file_offsets() if count else ()
            offsets, ends = batch.frames["offset"], batch.frames["end"]
            frames = range(batch.frames.count)
            seen.frames += ((batch.base + int(offsets[i]), batch.base + int(ends[i])) for i in frames)
            return self._judge.validate_batch(batch)

    judging = replace(
        format.validation, validator=lambda layout, *rest: Spy(format.validation.validator(layout, *rest), layout)
    )
    spied = replace(format, validation=judging)
    file = open_file(str(path), path.name, spied, Limits(), hints=hints)
    seen.assembled = file.layout.make_assembler is not None
    try:
        seen.report = verify_file(file, LogVerifyOptions(backend=backend, hints=hints)).report
    finally:
        file.source.close()
    return seen


def dumped(
    path: Path,
    format: Format,
    backend: str,
    on_damage: str = "skip",
    start: str | None = None,
    hints: Hints = Hints(),
) -> list[int]:
    """Where the records are that dump prints; those inside another record are lines, but not counted."""
    found: dict[int, int] = {}
    with binlogtool.open(path, format=format.name, backend=backend, hints=hints) as log:
        for block in log.blocks(Selection(on_damage=on_damage, start=start)):
            if isinstance(block, RecordBlock):
                found.update(zip(block.record, block.offset, strict=True))
    assert list(found) == sorted(found)
    return list(found.values())
