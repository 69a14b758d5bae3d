"""`hexdump-annotate -O html`: bytes and field tree side by side, as one page that is written piece by piece.

The page holds bytes and fields as data; its script draws what is near the visible part, and inserts text of the log
only as text. A piece with many fields becomes several sections, so that no section is long.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.errors import LimitError
from binlogtool.findings import Finding
from binlogtool.render.escape import escape
from binlogtool.render.hexdump import format_value
from binlogtool.render.page import escape_html, html_head, render_data, render_end
from binlogtool.schema.annotation import AddressSpace, AnnotatedPiece, FieldRow

MAX_PAGE_BYTES = 4 << 20
"""Bytes of a page, unpacked ones counted: more is refused."""
MAX_PAGE_FIELDS = 1_000_000
"""Fields of a page: more is refused."""

_FIELDS_PER_SECTION = 256
"""Fields of a section."""
_LEAF_FLAG, _BAD_FLAG, _DIFFERS_FLAG = 1, 2, 4
SCRIPT, STYLE = "annotated.js", "annotated.css"
DifferingFields = Mapping[tuple[str, str, int], Sequence[tuple[int, int]]]
"""Fields that are marked, by space, path and start, and which bytes of theirs are."""


def check_page_size(file: str, size: int) -> None:
    """Check that a page can show so many bytes.

    Raises:
        LimitError: it cannot.
    """
    if size > MAX_PAGE_BYTES:
        raise LimitError(
            f"{file}: a page shows at most {MAX_PAGE_BYTES:,} bytes and {MAX_PAGE_FIELDS:,} fields; choose a "
            f"part of it with"
            " --at POS --length 1MiB, --record N or --damage-only"
        )


class DiffPieceStyle(msgspec.Struct, frozen=True):
    """How one side of a difference is shown. title, summary: its heading. side: a CSS class. fields: those that
    differ.
    """

    title: str
    summary: str
    side: str
    fields: DifferingFields


class AnnotationPage(msgspec.Struct):
    """The page as text, written while the pieces come; needs memory for one piece.

    Args:
        file: path.
        format: name of the format.
        size: bytes of the file, None = unknown.
        anchor: prefix of the anchors in the page.
    """

    file: str
    format: str
    size: int | None
    anchor: str = "b"
    _bytes: int = 0
    _fields: int = 0
    _anchors: set[int] = msgspec.field(default_factory=set)

    def render_start(self) -> str:
        """Return the page up to the pieces."""
        size = "" if self.size is None else f"{self.size:,} bytes"
        return (
            html_head(self.file, STYLE, SCRIPT)
            + f"<header><h1>{escape_html(os.path.basename(self.file))}</h1>"
            + f'<p class="about">{escape_html(self.format)} {size} <span>{escape_html(self.file)}</span></p>'
            + TOOLS
            + "</header>\n<main>\n"
        )

    def render_piece(self, piece: AnnotatedPiece, style: DiffPieceStyle | None = None) -> Iterator[str]:
        """Yield the sections of a piece. style: how it is shown as one side of a difference.

        Raises:
            LimitError: the page would be too large.
        """
        self._fields += len(piece.rows)
        title = _make_title(piece) if style is None else style.title
        for number, rows in enumerate(_split_sections(piece.rows)):
            check_page_size(self.file, self._bytes if self._fields <= MAX_PAGE_FIELDS else MAX_PAGE_BYTES + 1)
            yield self._render_section(piece, rows, title if number == 0 else f"{title} …", number == 0, style)

    def _render_section(
        self, piece: AnnotatedPiece, rows: Sequence[FieldRow], title: str, first: bool, style: DiffPieceStyle | None
    ) -> str:
        name = rows[0].space
        leaves = [row for row in rows if row.leaf] or [rows[0]._replace(end=rows[0].start)]
        start, stop = leaves[0].start, max(row.end for row in leaves)
        is_bad = not all(row.ok for row in rows) or (first and piece.damaged)
        findings_html = "".join(
            f'<p class="found {one.severity.label}">{_render_finding(one)}</p>' for one in piece.findings if first
        )
        space_html = f'<p class="packed">{escape_html(name)} (decompressed)</p>' if name else ""
        section_bytes = _read_bytes(piece.spaces, name, start, stop)
        self._bytes += len(section_bytes)
        fields = {} if style is None else style.fields
        differing_ranges = [place for row in rows for place in fields.get((row.space, row.path, row.start), ())]
        value = render_data(
            [
                start,
                b64encode(section_bytes).decode("ascii"),
                _encode_rows(rows, fields),
                *([differing_ranges] if differing_ranges else []),
            ]
        )
        kind = "" if style is None else f" differs {style.side}"
        anchor = "" if name or start in self._anchors else f' id="{self.anchor}{start:x}"'
        self._anchors.add(start)
        summary = f"{piece.end - piece.start:,} bytes{'' if style is None else f', {style.summary}'}"
        size = f" <small>{escape_html(summary)}</small>" if first else ""
        return (
            f'<section class="piece{" bad" if is_bad else ""}{kind}"{anchor} data-from="{start}" data-to="{stop}"'
            f' data-rows="{len(rows)}"{" data-packed" if name else ""}>'
            f'<h2><button type="button" aria-expanded="true"><span class="at">{start:08x}</span> '
            f"{escape_html(title)}{size}"
            f'</button></h2>{findings_html}{space_html}<div class="body"></div>{value}</section>\n'
        )

    def render_end(self, findings: Sequence[Finding]) -> str:
        """Return the page after the pieces; the style shows the findings above them."""
        lines = "".join(
            f'<li class="{one.severity.label}">'
            + ("" if one.offset is None else f'<a href="#0x{one.offset:x}">0x{one.offset:08x}</a> ')
            + f"{_render_finding(one)}</li>"
            for one in findings
        )
        findings_html = (
            f'<aside id="findings"><h2>{len(findings)} findings</h2><ul>{lines}</ul></aside>' if findings else ""
        )
        return f"{findings_html}</main>\n{render_end(SCRIPT)}"


TOOLS = (
    '<form id="tools" role="search"><input id="query" type="search" autocomplete="off" spellcheck="false"'
    ' placeholder="field, value or 0xoffset" aria-label="Search fields, values or an offset">'
    '<output id="hits" aria-live="polite"></output><button type="button" data-do="fold">fold all</button>'
    '<button type="button" data-do="damage">next damage</button>'
    '<button type="button" data-do="theme">light/dark</button>'
    '<button type="button" data-do="help" aria-expanded="false">?</button></form>'
    '<dl id="help" hidden><dt>↓ ↑</dt><dd>next, previous field</dd><dt>← →</dt><dd>close, open what is inside</dd>'
    "<dt>/</dt><dd>search</dd><dt>n N</dt><dd>next, previous hit</dd><dt>d D</dt><dd>next, previous damage</dd>"
    "<dt>f</dt><dd>fold all</dd><dt>t</dt><dd>light or dark</dd><dt>?</dt><dd>this help</dd></dl>"
    "<noscript><p>The bytes are drawn by the script of this page; without it, use the text of hexdump-annotate."
    "</p></noscript>"
)


def _make_title(piece: AnnotatedPiece) -> str:
    """Return the name of a piece, and the first meaning of its content."""
    if not piece.rows:
        return ""
    meaning = next((row.meaning for row in piece.rows if not row.leaf and row.ok and row.meaning), "")
    return f"{piece.rows[0].path} {meaning}".strip()


def _render_finding(item: Finding) -> str:
    return f"<b>{escape_html(item.id)}</b> {escape_html(item.message)}"


def _split_sections(rows: Sequence[FieldRow]) -> Iterator[list[FieldRow]]:
    """Yield runs of rows of one space, none of them long."""
    run: list[FieldRow] = []
    for row in rows:
        if run and (len(run) >= _FIELDS_PER_SECTION or row.space != run[0].space):
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _read_bytes(spaces: Iterable[AddressSpace], name: str, start: int, stop: int) -> bytes:
    """Return the bytes of a range, as far as they are given."""
    matching_spaces = (one for one in spaces if one.name == name and one.base <= start < one.base + len(one.data))
    return next((one.slice_bytes(start, stop) for one in matching_spaces), b"")


def _encode_rows(rows: Iterable[FieldRow], fields: DifferingFields) -> list[list[Any]]:
    """Return [depth, start, end, name, value, meaning, flags] of each row; names continue those of enclosing rows."""
    encoded: list[list[Any]] = []
    enclosing: list[FieldRow] = []
    for row in rows:
        while enclosing and enclosing[-1].depth >= row.depth:
            enclosing.pop()
        name = row.path
        if enclosing and name.startswith(enclosing[-1].path):
            name = name[len(enclosing[-1].path) :].removeprefix(".") or name
        enclosing.append(row)
        bits = f"[bits {row.bits[0]}..{row.bits[1]}] " if row.bits else ""
        flags = (_LEAF_FLAG if row.leaf else 0) | (0 if row.ok else _BAD_FLAG)
        flags |= _DIFFERS_FLAG if (row.space, row.path, row.start) in fields else 0
        meaning = bits + escape(row.meaning)
        encoded.append([row.depth, row.start, row.end, escape(name), format_value(row.value), meaning, flags])
    return encoded
