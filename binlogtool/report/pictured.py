"""Illustrations of `verify --report html=FILE`: byte maps, bytes around damage, and records over time.

Each file is read once more, for this report only. A file that cannot be read again has no illustrations.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import binlogtool
from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Severity
from binlogtool.formats.detecting import Hints
from binlogtool.limits import Limits
from binlogtool.log.records import Block
from binlogtool.log.scan import Scan
from binlogtool.log.select import Selection
from binlogtool.recovery.report import FileReport, Report
from binlogtool.recovery.verify import DEPTHS
from binlogtool.report.bytemap import ByteMap, byte_map
from binlogtool.report.chart import chart
from binlogtool.report.series import Series
from binlogtool.report.verify_page import Pictured, verify_page
from binlogtool.schema import backends
from binlogtool.schema.annotation import Piece

_MOST_PIECES = 60
"""Annotated places of a file."""
_MOST_BYTES = 64 << 10
"""Bytes of a place; larger ones are not drawn."""
_MOST_FILES = 20
"""Files with annotated places."""


def pictured_page(report: Report, limits: Limits, backend: str, hints: Hints | None) -> bytes:
    """Collect the illustrations and render the page."""
    reading: dict[str, Any] = {"limits": limits, "backend": backend, "hints": hints}
    files = [file for file in report.files if file.path != "-"]
    damaged = [file for file in files if any(found.severity is Severity.ERROR for found in file.findings)]
    spots = {file.path: _spots(file, reading) for file in damaged[:_MOST_FILES]}
    maps = {file.path: mapped for file in files if file.size and (mapped := _mapped(file, reading))}
    return verify_page(report, binlogtool.__version__, Pictured(spots, _chart(files, reading), maps))


def _mapped(file: FileReport, reading: dict[str, Any]) -> ByteMap | None:
    with suppress(BinlogtoolError), binlogtool.open(file.path, format=file.format, **reading) as log:
        own, deep = log.files[0], file.details.get("depth") not in DEPTHS[: DEPTHS.index("payload")]
        scan = Scan(own.source, own.format, own.layout, backends.choose(reading["backend"]), reading["limits"], deep)
        return byte_map(scan, own, file.size)
    return None


def _spots(file: FileReport, reading: dict[str, Any]) -> Sequence[Piece]:
    spots: list[Piece] = []
    with suppress(BinlogtoolError), binlogtool.open(file.path, format=file.format, **reading) as log:
        shown = binlogtool.annotated(log, limits=reading["limits"], backend=reading["backend"], damage_only=True)
        for piece in shown.pieces:
            if piece.rows and piece.end - piece.start <= _MOST_BYTES:
                spots.append(piece)
            if len(spots) >= _MOST_PIECES:
                break
    return spots


def _chart(files: Sequence[FileReport], reading: dict[str, Any]) -> str:
    series = Series("type")
    for file in files:
        with suppress(BinlogtoolError), binlogtool.open(file.path, format=file.format, **reading) as log:
            for part in log.blocks(Selection(), decode="frame"):
                if isinstance(part, Block):
                    series.block(part)
    counted = series.end()
    timed = any(start for start, _ in counted.cells)
    title = files[0].path if len(files) == 1 else f"{len(files)} files"
    return chart(counted, title).decode("utf-8") if timed else ""
