"""Illustrations of `verify --report html=FILE`: byte maps, bytes around damage, and records over time.

Each file is read once more, for this report only. A file that cannot be read again has no illustrations.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from binlogtool._version import __version__
from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Severity
from binlogtool.formats.detecting import Hints
from binlogtool.limits import Limits
from binlogtool.log.annotate import annotate_log
from binlogtool.log.how import ReadOptions
from binlogtool.log.open import LogReader, open_log
from binlogtool.log.records import RecordBlock
from binlogtool.log.scan import Scan
from binlogtool.log.select import Selection
from binlogtool.recovery.report import FileReport, Report
from binlogtool.recovery.verify import DEPTHS
from binlogtool.report.bytemap import ByteMap, make_byte_map
from binlogtool.report.chart import render_chart
from binlogtool.report.series import SeriesCounter
from binlogtool.report.verify_page import PageIllustrations, render_verify_page
from binlogtool.schema import backends
from binlogtool.schema.annotation import AnnotatedPiece

_MAX_SPOTS = 60
"""Annotated places of a file."""
_MAX_SPOT_BYTES = 64 << 10
"""Bytes of a place; larger ones are not drawn."""
_MAX_FILES = 20
"""Files with annotated places."""


def build_verify_page(report: Report, limits: Limits, backend: str, hints: Hints | None) -> bytes:
    """Collect the illustrations and render the page."""
    read_options: dict[str, Any] = {"limits": limits, "backend": backend, "hints": hints}
    files = [file for file in report.files if file.path != "-"]
    damaged = [file for file in files if any(found.severity is Severity.ERROR for found in file.findings)]
    spots = {file.path: _annotate_damage(file, read_options) for file in damaged[:_MAX_FILES]}
    maps = {file.path: mapped for file in files if file.size and (mapped := _map_bytes(file, read_options))}
    return render_verify_page(report, __version__, PageIllustrations(spots, _chart_records(files, read_options), maps))


def _map_bytes(file: FileReport, read_options: dict[str, Any]) -> ByteMap | None:
    with (
        suppress(BinlogtoolError),
        open_log(file.path, ReadOptions(format=file.format, **read_options), LogReader) as log,
    ):
        log_file, check_payload = log.files[0], file.details.get("depth") not in DEPTHS[: DEPTHS.index("payload")]
        scan = Scan(
            log_file.source,
            log_file.format,
            log_file.layout,
            backends.choose_backend(read_options["backend"]),
            read_options["limits"],
            check_payload,
        )
        return make_byte_map(scan, log_file, file.size)
    return None


def _annotate_damage(file: FileReport, read_options: dict[str, Any]) -> Sequence[AnnotatedPiece]:
    spots: list[AnnotatedPiece] = []
    with (
        suppress(BinlogtoolError),
        open_log(file.path, ReadOptions(format=file.format, **read_options), LogReader) as log,
    ):
        annotation = annotate_log(log, limits=read_options["limits"], backend=read_options["backend"], damage_only=True)
        for piece in annotation.pieces:
            if piece.rows and piece.end - piece.start <= _MAX_SPOT_BYTES:
                spots.append(piece)
            if len(spots) >= _MAX_SPOTS:
                break
    return spots


def _chart_records(files: Sequence[FileReport], read_options: dict[str, Any]) -> str:
    series = SeriesCounter("type")
    for file in files:
        with (
            suppress(BinlogtoolError),
            open_log(file.path, ReadOptions(format=file.format, **read_options), LogReader) as log,
        ):
            for part in log.blocks(Selection(), decode="frame"):
                if isinstance(part, RecordBlock):
                    series.encode_block(part)
    stats = series.finish()
    has_times = any(start for start, _ in stats.cells)
    title = files[0].path if len(files) == 1 else f"{len(files)} files"
    return render_chart(stats, title).decode("utf-8") if has_times else ""
