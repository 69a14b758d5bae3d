"""HTML reports: `verify` with a map of each file, bytes around damage and a timeline; the page of a `stats` chart.

The ranges of a map come from the byte account of a scan, after each segment.

A page is self-contained; it needs no network. Text from logs enters it only through `escape_html`.

Each file is read once more for this report. A file that cannot be read again has no illustrations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from binlogtool._version import __version__
from binlogtool.annotation.annotate_file import annotate_log
from binlogtool.core.open_log import LogReader, open_log
from binlogtool.core.record_and_selection_types import ReadOptions, RecordBlock, Selection
from binlogtool.core.scan_file import DamagedRange, Scan
from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Finding, Severity
from binlogtool.report.format_numbers_and_names import (
    format_command,
    format_count,
    format_finding,
    format_offset,
    format_quantity,
    format_size,
)
from binlogtool.report.record_statistics import LogStats, SeriesCounter, format_step, render_chart
from binlogtool.report.render_annotated_bytes import TOOLS, AnnotationPage, escape_html, html_head, render_end
from binlogtool.report.verify_and_plan_text import STATE_STYLES, find_file_state_word, format_byte_account
from binlogtool.schema import backends
from binlogtool.verification.verify_logs import DEPTHS

if TYPE_CHECKING:
    from binlogtool.format_api.format import Hints
    from binlogtool.limits import Limits
    from binlogtool.schema.annotation_types import AnnotatedPiece
    from binlogtool.verification.verify_report import FileReport, Report

# --- Map of a file's bytes ---

MAX_CELLS = 1000
"""Maximum number of cells in a map."""

_CLASS_ORDER = ("header", "record", "damaged", "torn_tail", "unknown", "padding", "preallocated")
"""Order of the byte classes within one segment: records come before unused space."""

_CLASSES_BY_RANK = ("record", "padding", "preallocated", "header", "unknown", "torn_tail", "damaged")


class ByteRange(NamedTuple):
    """Bytes `[start, end)` of one byte class."""

    start: int
    end: int
    name: str


def iter_byte_ranges(scan: Scan) -> Iterator[ByteRange]:
    """Yield the byte ranges of a file in order; neighbouring ranges can have the same class."""
    position, accounted = 0, dict.fromkeys(_CLASS_ORDER, 0)

    def take_new_ranges() -> Iterator[ByteRange]:
        nonlocal position
        totals = scan.account.as_dict()
        for name in _CLASS_ORDER:
            start, position = position, position + max(0, totals[name] - accounted[name])
            accounted[name] = totals[name]
            if start < position:
                yield ByteRange(start, position, name)

    for segment in scan.segments():
        if not isinstance(segment, DamagedRange) or not segment.hollow:  # the scan may still reclassify these bytes
            yield from take_new_ranges()
    yield from take_new_ranges()


class ByteMap:
    """Map of a file of `size` bytes as cells; ranges smaller than a cell share a cell, which shows the worst class."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.cell_count = max(1, min(MAX_CELLS, size))
        self._ranks = [0] * self.cell_count
        self.bytes = dict.fromkeys(_CLASSES_BY_RANK, 0)

    def add_range(self, byte_range: ByteRange) -> None:
        """Add a range of the file."""
        rank = _CLASSES_BY_RANK.index(byte_range.name)
        self.bytes[byte_range.name] += byte_range.end - byte_range.start
        first, last = self._find_cell(byte_range.start), self._find_cell(byte_range.end - 1)
        for cell in range(first, last + 1):
            self._ranks[cell] = max(self._ranks[cell], rank)

    def _find_cell(self, offset: int) -> int:
        return min(offset * self.cell_count // self.size, self.cell_count - 1)

    def merge_cells(self) -> Sequence[ByteRange]:
        """Return neighbouring cells of one class as byte ranges."""
        merged, cell = list[ByteRange](), 0
        for rank, cells in groupby(self._ranks):
            start, cell = cell, cell + len(list(cells))
            merged.append(ByteRange(self._find_cell_start(start), self._find_cell_start(cell), _CLASSES_BY_RANK[rank]))
        return merged

    def _find_cell_start(self, cell: int) -> int:
        """Return the first byte of a cell."""
        return -(-cell * self.size // self.cell_count)


def make_byte_map(scan: Scan, size: int) -> ByteMap:
    """Scan a file and return its map; the scan must not have begun."""
    byte_map = ByteMap(size)
    for byte_range in iter_byte_ranges(scan):
        if byte_range.end <= size:
            byte_map.add_range(byte_range)
    return byte_map


# --- HTML page of `verify --report html=FILE` ---

MAX_FINDINGS = 500
"""Maximum number of listed findings of a file or set."""
_VALID_AFTER_DAMAGE = "valid-after-damage"
"""Id of the finding whose byte range is not damaged."""
_ASSETS = ("annotated.css", "report.css", "annotated.js")
_STRIP_WIDTH = 1000
"""Width of a strip in SVG units; a finding takes at least three units."""
Anchors = Sequence[tuple[int, int, str]]
"""(start, end, anchor) of annotated bytes: their range in the file and their anchor in the page."""
_INTACT_CLASSES = ("header", "record", "padding", "preallocated")
_CLASS_LABELS = {"header": "header", "record": "records", "torn_tail": "torn tail"}


class PageIllustrations(msgspec.Struct, frozen=True):
    """Illustrations of the report page.

    Attributes:
        spots: Path -> annotated bytes around the damage in the file.
        chart: SVG of records over time; "" = none.
        maps: Path -> the map of the file's byte classes.
    """

    spots: Mapping[str, Sequence[AnnotatedPiece]]
    chart: str = ""
    maps: Mapping[str, ByteMap] = msgspec.field(default_factory=dict)


def _render_page(report: Report, version: str, illustrations: PageIllustrations) -> Iterator[str]:
    title = f"binlogtool verify: {report.status}"
    yield html_head(title, *_ASSETS)
    yield (
        f'<header><h1>{escape_html(title)}</h1> <p class="about">binlogtool '
        f"{escape_html(version)}</p>{TOOLS}</header><main>\n"
    )
    yield from _render_summary(report)
    for failure in report.failures:
        yield f'<article class="file"><h2>{escape_html(failure.path)} <span class="state error">not read</span></h2>'
        yield f"<p>{escape_html(failure.message)}</p></article>\n"
    for set_report in report.sets:
        if set_report.findings:
            yield f'<article class="file"><h2>{escape_html(set_report.path)} <small>as one log</small></h2>'
            yield from _render_findings(set_report.findings, set_report.path, [])
            yield "</article>\n"
    for number, file in _sort_by_severity(report.files):
        yield from _render_file(number, file, illustrations.spots.get(file.path, ()), illustrations.maps.get(file.path))
    if illustrations.chart:
        yield f'<article class="file"><h2>Timeline</h2><div class="chart">{illustrations.chart}</div></article>\n'
    yield f"</main>\n{render_end('annotated.js')}"


def _sort_by_severity(files: Sequence[FileReport]) -> list[tuple[int, FileReport]]:
    """Return the files with their numbers, those with the worst findings first."""
    worst = {number: max((one.severity for one in file.findings), default=-1) for number, file in enumerate(files)}
    return sorted(enumerate(files), key=lambda one: -worst[one[0]])


def _render_summary(report: Report) -> Iterator[str]:
    """Render a summary, and a line with a link for each file that is not ok."""
    counts = [
        f'<b class="{level.label}">{format_quantity(report.count_findings(level), level.label)}</b>'
        for level in sorted(Severity, reverse=True)
        if report.count_findings(level)
    ]
    records = sum(file.records or 0 for file in report.files)
    size = format_size(sum(file.size for file in report.files))
    about = f"{format_quantity(len(report.files), 'file')} · {size} · {format_quantity(records, 'record')}"
    yield f'<article class="file" id="summary"><h2>Summary</h2><p>{about} · {", ".join(counts) or "no findings"}</p>\n'
    listed = [
        (number, file)
        for number, file in _sort_by_severity(report.files)
        if find_file_state_word(file) not in ("ok", "unchanged")
    ]
    if listed:
        yield '<ul class="found-list">'
        for number, file in listed[:MAX_FINDINGS]:
            kinds = ", ".join(dict.fromkeys(one.id for one in file.findings if one.severity > Severity.NOTE))
            link = f'<a href="#f{number}">{escape_html(file.path)}</a>'
            yield f"<li>{link} {_render_state(file)} {escape_html(kinds)}</li>\n"
        yield "</ul>\n"
    if report.files:
        yield f"<p>{escape_html(format_byte_account(report.files))}</p>"
    yield "</article>\n"


def _render_state(file: FileReport) -> str:
    state = find_file_state_word(file)
    kind = {"good": "", "error": " error"}.get(STATE_STYLES[state], " warning")
    return f'<span class="state{kind}">{escape_html(state)}</span>'


def _render_file(
    number: int, file: FileReport, spots: Sequence[AnnotatedPiece], byte_map: ByteMap | None
) -> Iterator[str]:
    records = "" if file.records is None else f" · {format_count(file.records)} records"
    yield f'<article class="file" id="f{number}"><h2>{escape_html(file.path)} {_render_state(file)}</h2>'
    yield (
        f"<p>{escape_html(file.variant)} · {format_size(file.size)}{records} · "
        f"{format_count(file.transactions)} transactions</p>\n"
    )
    anchors = [(piece.start, piece.end, f"p{number}-{piece.start:x}") for piece in spots]
    if file.size:
        yield from _render_durable_strip(file)
        yield from _render_byte_account(file, byte_map, anchors)
    yield from _render_findings(file.findings, file.path, anchors)
    if spots:
        yield "<h3>Bytes around the damage</h3>\n"
        page = AnnotationPage(file.path, file.format, file.size, anchor=f"b{number}-")
        for piece in spots:
            yield f'<div class="spot" id="p{number}-{piece.start:x}">'
            yield from page.render_piece(piece)
            yield "</div>\n"
    yield "</article>\n"


def _render_durable_strip(file: FileReport) -> Iterator[str]:
    """Render a strip for the whole file that shows the durable part and the positions of the findings."""
    durable = file.durable_end
    yield '<h3>Where</h3><svg class="strip" viewBox="0 0 1000 26" preserveAspectRatio="none" role="img">'
    if durable:
        yield _render_bar("durable", 0, _scale_offset(durable, file.size), f"durable up to {format_offset(durable)}")
    if durable is not None and durable < file.size:
        yield _render_bar(
            "behind",
            _scale_offset(durable, file.size),
            _STRIP_WIDTH,
            f"after the durable end {format_offset(durable)}",
        )
    for finding in sorted(file.findings[:MAX_FINDINGS], key=lambda one: (-one.length, one.severity)):
        if finding.offset is not None and finding.length < file.size:
            first = _scale_offset(finding.offset, file.size)
            last = max(_scale_offset(finding.offset + finding.length, file.size), first + 3)
            tooltip = f"{format_offset(finding.offset)} {finding.id}: {format_finding(finding)}"
            kind = "record" if finding.id == _VALID_AFTER_DAMAGE else finding.severity.label
            yield _render_bar(kind, first, last, tooltip, top=5, height=16)
    yield f'</svg><p class="scale"><span>{format_offset(0)}</span><span>{format_offset(file.size)}</span></p>'
    yield _render_legend(file)


def _render_legend(file: FileReport) -> str:
    """Render the colours that occur in the strip."""
    labels = {"durable": "durable"}
    if (file.durable_end or 0) < file.size:
        labels["behind"] = "after the durable end"
    for finding in file.findings:
        labels |= (
            {"record": "valid, after damage"}
            if finding.id == _VALID_AFTER_DAMAGE
            else {finding.severity.label: finding.severity.label}
        )
    return f'<ul class="legend">{"".join(_render_swatch(kind, said) for kind, said in labels.items())}</ul>\n'


def _render_byte_account(file: FileReport, byte_map: ByteMap | None, anchors: Anchors) -> Iterator[str]:
    """Render the byte classes as a map, or as shares of the file if it could not be read again."""
    yield '<h3>What every byte is</h3><svg class="strip" viewBox="0 0 1000 26" preserveAspectRatio="none" role="img">'
    class_sizes = [(name, number) for name, number in file.bytes.items() if number]
    is_exact = byte_map is not None and {name: n for name, n in byte_map.bytes.items() if n} == dict(class_sizes)
    yield from (
        _render_cells(byte_map, anchors) if byte_map is not None and is_exact else _render_shares(file, class_sizes)
    )
    yield "</svg>"
    if byte_map is None or not is_exact:
        yield '<p class="scale">Bytes of each class. The map is missing because the file could not be read again.</p>'
    elif byte_map.cell_count < file.size:
        cells_text = f"{byte_map.cell_count:,} cells of up to {format_size(-(-file.size // byte_map.cell_count))}"
        yield f'<p class="scale">{cells_text}; each has the colour of the worst byte in it.</p>'
    yield '<ul class="legend">'
    for name, number in class_sizes:
        yield _render_swatch(name, f"{_label_class(name)} {number:,} ({100 * number / file.size:.4g} %)")
    yield "</ul>\n"


def _render_cells(byte_map: ByteMap, anchors: Anchors) -> Iterator[str]:
    """Render each range of a map, with a link to its annotated bytes if the page has them."""
    for start, stop, name in byte_map.merge_cells():
        tooltip = f"{_label_class(name)}: {format_offset(start)} to {format_offset(stop)}"
        bar = _render_bar(name, _scale_offset(start, byte_map.size), _scale_offset(stop, byte_map.size), tooltip)
        overlaps = [(min(last, stop) - max(first, start), one) for first, last, one in anchors]
        overlap, anchor = max(overlaps, default=(0, ""))
        yield f'<a href="#{anchor}">{bar}</a>' if overlap > 0 and name not in _INTACT_CLASSES else bar


def _render_shares(file: FileReport, class_sizes: Sequence[tuple[str, int]]) -> Iterator[str]:
    position = 0
    for name, number in class_sizes:
        yield _render_bar(
            name,
            _scale_offset(position, file.size),
            _scale_offset(position + number, file.size),
            f"{_label_class(name)}: {number:,} bytes",
        )
        position += number


def _render_swatch(kind: str, label: str) -> str:
    return (
        f'<li><svg viewBox="0 0 1 1"><rect class="k-{escape_html(kind)}" width="1" '
        f'height="1"/></svg>{escape_html(label)}</li>'
    )


def _label_class(name: str) -> str:
    return _CLASS_LABELS.get(name, name)


def _scale_offset(offset: int, total_size: int) -> float:
    return round(min(offset, total_size) * _STRIP_WIDTH / total_size, 2)


def _render_bar(kind: str, first: float, last: float, tooltip: str, *, top: int = 0, height: int = 26) -> str:
    return (
        f'<rect class="k-{escape_html(kind)}" x="{first}" y="{top}" width="{last - first:.2f}" height="{height}">'
        f"<title>{escape_html(tooltip)}</title></rect>"
    )


def _render_findings(findings: Sequence[Finding], path: str, anchors: Anchors) -> Iterator[str]:
    if not findings:
        return
    yield f'<h3>{len(findings):,} finding{"" if len(findings) == 1 else "s"}</h3><ul class="found-list">'
    for finding in findings[:MAX_FINDINGS]:
        yield (
            f'<li class="{finding.severity.label}">{_render_place(finding, path, anchors)} '
            f"<b>{escape_html(finding.id)}</b>"
        )
        yield f" {escape_html(format_finding(finding))}</li>\n"
    yield "</ul>\n"
    if len(findings) > MAX_FINDINGS:
        yield f"<p>{len(findings) - MAX_FINDINGS:,} more findings are not shown.</p>"


def _render_place(finding: Finding, path: str, anchors: Anchors) -> str:
    """Render a link to the bytes of a finding if the page has them, else the command that shows them."""
    if finding.offset is None:
        return ""
    offset = finding.offset
    anchor = next((name for start, stop, name in anchors if start <= offset < stop), None)
    if anchor is not None:
        return f'<a href="#{anchor}">{format_offset(offset)}</a>'
    hint = format_command("hexdump-annotate", "--at", hex(offset), path)
    return f'<code title="{escape_html(hint)}">{format_offset(offset)}</code>'


# --- Illustrations of `verify --report html=FILE` ---

_MAX_SPOTS = 60
"""Maximum number of annotated spots in a file."""
_MAX_SPOT_BYTES = 64 << 10
"""Maximum bytes of a spot; larger spots are not drawn."""
_MAX_FILES = 20
"""Maximum number of files with annotated spots."""


def build_verify_page(report: Report, limits: Limits, backend: str, hints: Hints | None) -> bytes:
    """Collect the illustrations and render the page."""
    read_options: dict[str, Any] = {"limits": limits, "backend": backend, "hints": hints}
    files = [file for file in report.files if file.path != "-"]
    damaged = [file for file in files if any(found.severity is Severity.ERROR for found in file.findings)]
    spots = {file.path: _annotate_damage(file, read_options) for file in damaged[:_MAX_FILES]}
    maps = {file.path: mapped for file in files if file.size and (mapped := _map_bytes(file, read_options))}
    return "".join(
        _render_page(
            report, __version__, PageIllustrations(spots, _render_records_over_time(files, read_options), maps)
        )
    ).encode("utf-8", "backslashreplace")


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
        return make_byte_map(scan, file.size)
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


def _render_records_over_time(files: Sequence[FileReport], read_options: dict[str, Any]) -> str:
    series = SeriesCounter("type")
    for file in files:
        with (
            suppress(BinlogtoolError),
            open_log(file.path, ReadOptions(format=file.format, **read_options), LogReader) as log,
        ):
            for part in log.blocks(Selection(), decode="frame"):
                if isinstance(part, RecordBlock):
                    series.add_block(part)
    stats = series.finish()
    has_times = any(start for start, _ in stats.cells)
    title = files[0].path if len(files) == 1 else f"{len(files)} files"
    return render_chart(stats, title).decode("utf-8") if has_times else ""


# --- HTML page of `stats --chart FILE.html` ---

MAX_ROWS = 1000
"""Maximum number of rows in a table; further rows are only counted."""


def render_stats_page(series: LogStats, title: str) -> bytes:
    """Render the statistics and their chart as one HTML document."""
    groups = [(name, tally.records, tally.bytes) for name, tally in series.groups.items()]
    steps = [(format_step(start), tally.records, tally.bytes) for start, tally in series.sum_steps().items()]
    about = f"by {escape_html(series.by)}, steps of {escape_html(series.bucket)}"
    page = (
        html_head(title, "annotated.css", "report.css"),
        f'<header><h1>{escape_html(title)}</h1> <p class="about">{about}</p></header>',
        (
            f'<main><article class="file"><div '
            f'class="chart">{render_chart(series, title).decode("utf-8")}</div></article>\n'
        ),
        *_render_totals_table(series.by, groups),
        *_render_totals_table(f"time ({series.bucket})", steps),
        f"</main>\n{render_end()}",
    )
    return "".join(page).encode("utf-8", "backslashreplace")


def _render_totals_table(heading: str, rows: list[tuple[str | None, int, int]]) -> Iterator[str]:
    yield f'<article class="file"><table><tr><th>{escape_html(heading)}</th><th>records</th><th>bytes</th></tr>\n'
    for name, records, size in rows[:MAX_ROWS]:
        shown = escape_html("-" if name is None else name)
        yield (
            f'<tr><td>{shown}</td><td class="n">{format_count(records)}</td><td '
            f'class="n">{format_count(size)}</td></tr>\n'
        )
    more = len(rows) - MAX_ROWS
    yield f"</table>{f'<p>{format_count(more)} more are not shown.</p>' if more > 0 else ''}</article>\n"
