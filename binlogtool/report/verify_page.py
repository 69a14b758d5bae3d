"""HTML page of `verify --report html=FILE`: a map of each file, findings with links to their bytes, a timeline.

The page contains everything; it needs no network. Text of logs enters it only through `render.page`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from binlogtool.findings import Finding, Severity
from binlogtool.recovery.report import FileReport, Report
from binlogtool.render.annotated import TOOLS, AnnotatedPage
from binlogtool.render.page import end, head, text
from binlogtool.report.bytemap import ByteMap
from binlogtool.report.text import byte_account, state
from binlogtool.report.words import command, count, place, sentence, size
from binlogtool.schema.annotation import Piece

MOST_FINDINGS = 500
"""Findings of a file or set that are listed."""
_VALID = "valid-after-damage"
"""The finding whose range is no damage."""
_ASSETS = ("annotated.css", "report.css", "annotated.js")
_WIDE = 1000
"""Units of a strip; a finding takes at least three of them."""
Anchors = Sequence[tuple[int, int, str]]
"""Where annotated bytes begin and end, and the name of that place in the page."""
_FINE = ("header", "record", "padding", "preallocated")
_CLASSES = {"header": "header", "record": "records", "torn_tail": "torn tail"}


class Pictured(msgspec.Struct, frozen=True):
    """What the page shows beside the report.

    Attributes:
        spots: By path, annotated bytes around its damage.
        chart: SVG of records over time; "" = none.
        maps: By path, where the bytes of each class are.
    """

    spots: Mapping[str, Sequence[Piece]]
    chart: str = ""
    maps: Mapping[str, ByteMap] = msgspec.field(default_factory=dict)


def verify_page(report: Report, version: str, pictured: Pictured) -> bytes:
    """Render the report as one HTML document."""
    return "".join(_page(report, version, pictured)).encode("utf-8", "backslashreplace")


def _page(report: Report, version: str, pictured: Pictured) -> Iterator[str]:
    title = f"binlogtool verify: {report.status}"
    yield head(title, *_ASSETS)
    yield f'<header><h1>{text(title)}</h1><p class="about">binlogtool {text(version)}</p>{TOOLS}</header><main>\n'
    for failure in report.failures:
        yield f'<article class="file"><h2>{text(failure.path)} <span class="state error">not read</span></h2>'
        yield f"<p>{text(failure.message)}</p></article>\n"
    for number, file in enumerate(report.files):
        yield from _file(number, file, pictured.spots.get(file.path, ()), pictured.maps.get(file.path))
    for part in report.sets:
        if part.findings:
            yield f'<article class="file"><h2>{text(part.path)} <small>as one log</small></h2>'
            yield from _findings(part.findings, part.path, [])
            yield "</article>\n"
    if pictured.chart:
        yield f'<article class="file"><h2>Timeline</h2><div class="chart">{pictured.chart}</div></article>\n'
    if report.files:
        yield f"<p>{text(byte_account(report.files))}</p>"
    yield f"</main>\n{end('annotated.js')}"


def _file(number: int, file: FileReport, spots: Sequence[Piece], mapped: ByteMap | None) -> Iterator[str]:
    worst = max((found.severity for found in file.findings), default=Severity.NOTE)
    kind = "" if worst is Severity.NOTE else f" {worst.label}"
    records = "" if file.records is None else f" · {count(file.records)} records"
    yield f'<article class="file"><h2>{text(file.path)} <span class="state{kind}">{text(state(file))}</span></h2>'
    yield f"<p>{text(file.variant)} · {size(file.size)}{records} · {count(file.transactions)} transactions</p>\n"
    anchors = [(piece.start, piece.end, f"p{number}-{piece.start:x}") for piece in spots]
    if file.size:
        yield from _map(file)
        yield from _account(file, mapped, anchors)
    yield from _findings(file.findings, file.path, anchors)
    if spots:
        yield "<h3>Bytes around the damage</h3>\n"
        page = AnnotatedPage(file.path, file.format, file.size, anchor=f"b{number}-")
        for piece in spots:
            yield f'<div class="spot" id="p{number}-{piece.start:x}">'
            yield from page.piece(piece)
            yield "</div>\n"
    yield "</article>\n"


def _map(file: FileReport) -> Iterator[str]:
    """Render the file from its first byte to its last: how far it is durable, and where the findings are."""
    durable = file.durable_end
    yield '<h3>Where</h3><svg class="strip" viewBox="0 0 1000 26" preserveAspectRatio="none" role="img">'
    if durable:
        yield _bar("durable", 0, _at(durable, file.size), f"durable up to {place(durable)}")
    if durable is not None and durable < file.size:
        yield _bar("behind", _at(durable, file.size), _WIDE, f"behind the durable end {place(durable)}")
    for found in sorted(file.findings[:MOST_FINDINGS], key=lambda one: (-one.length, one.severity)):
        if found.offset is not None and found.length < file.size:
            first = _at(found.offset, file.size)
            last = max(_at(found.offset + found.length, file.size), first + 3)
            said = f"{place(found.offset)} {found.id}: {sentence(found)}"
            kind = "record" if found.id == _VALID else found.severity.label
            yield _bar(kind, first, last, said, top=5, high=16)
    yield f'</svg><p class="scale"><span>{place(0)}</span><span>{place(file.size)}</span></p>'
    yield _legend(file)


def _legend(file: FileReport) -> str:
    """Render the colours that occur in the strip."""
    told = {"durable": "durable"}
    if (file.durable_end or 0) < file.size:
        told["behind"] = "behind the durable end"
    for found in file.findings:
        told |= (
            {"record": "valid, behind damage"} if found.id == _VALID else {found.severity.label: found.severity.label}
        )
    return f'<ul class="legend">{"".join(_swatch(kind, said) for kind, said in told.items())}</ul>\n'


def _account(file: FileReport, mapped: ByteMap | None, anchors: Anchors) -> Iterator[str]:
    """Render every byte in its class: in its place, or as shares of the whole if the file could not be read again."""
    yield '<h3>What every byte is</h3><svg class="strip" viewBox="0 0 1000 26" preserveAspectRatio="none" role="img">'
    told = [(name, number) for name, number in file.bytes.items() if number]
    exact = mapped is not None and {name: n for name, n in mapped.bytes.items() if n} == dict(told)
    yield from _cells(mapped, anchors) if mapped is not None and exact else _shares(file, told)
    yield "</svg>"
    if mapped is None or not exact:
        yield '<p class="scale">How much there is of each class; where it is could not be read again.</p>'
    elif mapped.count < file.size:
        each = f"{mapped.count:,} cells of up to {size(-(-file.size // mapped.count))}"
        yield f'<p class="scale">{each}; each has the colour of the worst byte in it.</p>'
    yield '<ul class="legend">'
    for name, number in told:
        yield _swatch(name, f"{_words(name)} {number:,} ({100 * number / file.size:.4g} %)")
    yield "</ul>\n"


def _cells(mapped: ByteMap, anchors: Anchors) -> Iterator[str]:
    """Render each range in its place, with a link to its annotated bytes if the page has them."""
    for start, stop, name in mapped.bars():
        said = f"{_words(name)}: {place(start)} to {place(stop)}"
        bar = _bar(name, _at(start, mapped.size), _at(stop, mapped.size), said)
        shown = [(min(last, stop) - max(first, start), one) for first, last, one in anchors]
        most, anchor = max(shown, default=(0, ""))
        yield f'<a href="#{anchor}">{bar}</a>' if most > 0 and name not in _FINE else bar


def _shares(file: FileReport, told: Sequence[tuple[str, int]]) -> Iterator[str]:
    at = 0
    for name, number in told:
        yield _bar(name, _at(at, file.size), _at(at + number, file.size), f"{_words(name)}: {number:,} bytes")
        at += number


def _swatch(kind: str, said: str) -> str:
    return f'<li><svg viewBox="0 0 1 1"><rect class="k-{text(kind)}" width="1" height="1"/></svg>{text(said)}</li>'


def _words(name: str) -> str:
    return _CLASSES.get(name, name)


def _at(offset: int, whole: int) -> float:
    return round(min(offset, whole) * _WIDE / whole, 2)


def _bar(kind: str, first: float, last: float, said: str, *, top: int = 0, high: int = 26) -> str:
    return (
        f'<rect class="k-{text(kind)}" x="{first}" y="{top}" width="{last - first:.2f}" height="{high}">'
        f"<title>{text(said)}</title></rect>"
    )


def _findings(findings: Sequence[Finding], path: str, anchors: Anchors) -> Iterator[str]:
    if not findings:
        return
    yield f'<h3>{len(findings):,} finding{"" if len(findings) == 1 else "s"}</h3><ul class="found-list">'
    for found in findings[:MOST_FINDINGS]:
        yield f'<li class="{found.severity.label}">{_place(found, path, anchors)} <b>{text(found.id)}</b>'
        yield f" {text(sentence(found))}</li>\n"
    yield "</ul>\n"
    if len(findings) > MOST_FINDINGS:
        yield f"<p>{len(findings) - MOST_FINDINGS:,} more findings are not shown.</p>"


def _place(found: Finding, path: str, anchors: Anchors) -> str:
    """Render a link to the bytes if the page has them, else the command that shows them."""
    if found.offset is None:
        return ""
    at = found.offset
    anchor = next((name for start, stop, name in anchors if start <= at < stop), None)
    if anchor is not None:
        return f'<a href="#{anchor}">{place(at)}</a>'
    hint = command("hexdump-annotate", "--at", hex(at), path)
    return f'<code title="{text(hint)}">{place(at)}</code>'
