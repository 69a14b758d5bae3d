"""What `verify --report html=FILE` shows beside the report: bytes around damage, and records over time.

Both are read anew, once for each file, and only for this report. A file that cannot be read again has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from binlogtool import __version__
from binlogtool.cli.run import Run
from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Severity
from binlogtool.recovery.report import FileReport, Report

if TYPE_CHECKING:
    import binlogtool
    from binlogtool.report.series import Series
    from binlogtool.schema.annotation import Piece

_MOST_PIECES = 60
"""Annotated places of a file."""
_MOST_BYTES = 64 << 10
"""Bytes of a place; larger ones are not drawn."""
_MOST_FILES = 20
"""Files with annotated places."""


def verify_page(run: Run, report: Report, known: binlogtool.Hints | None) -> bytes:
    """The page."""
    from binlogtool.report import page

    files = [file for file in report.files if file.path != "-"]
    damaged = [file for file in files if any(found.severity is Severity.ERROR for found in file.findings)]
    spots = {file.path: _spots(run, file, known) for file in damaged[:_MOST_FILES]}
    return page.verify_page(report, __version__, page.Pictured(spots, _chart(run, files, known)))


def _spots(run: Run, file: FileReport, known: binlogtool.Hints | None) -> Sequence[Piece]:
    import binlogtool

    s = run.settings
    spots: list[Piece] = []
    with (
        suppress(BinlogtoolError),
        binlogtool.open(file.path, format=file.format, limits=s.limits, backend=s.backend, hints=known) as log,
    ):
        for piece in binlogtool.annotated(log, limits=s.limits, backend=s.backend, damage_only=True).pieces:
            if piece.rows and piece.end - piece.start <= _MOST_BYTES:
                spots.append(piece)
            if len(spots) >= _MOST_PIECES:
                break
    return spots


def _chart(run: Run, files: Sequence[FileReport], known: binlogtool.Hints | None) -> str:
    from binlogtool.report.chart import chart
    from binlogtool.report.series import Series

    series = Series("type")
    for file in files:
        with suppress(BinlogtoolError):
            _count(run, file, known, series)
    counted = series.end()
    timed = any(start for start, _ in counted.cells)
    title = files[0].path if len(files) == 1 else f"{len(files)} files"
    return chart(counted, title).decode("utf-8") if timed else ""


def _count(run: Run, file: FileReport, known: binlogtool.Hints | None, series: Series) -> None:
    import binlogtool
    from binlogtool.log.records import Block
    from binlogtool.log.select import Selection

    s = run.settings
    with binlogtool.open(file.path, format=file.format, limits=s.limits, backend=s.backend, hints=known) as log:
        for part in log.blocks(Selection(on_damage="skip"), decode="frame"):
            if isinstance(part, Block):
                series.block(part)
