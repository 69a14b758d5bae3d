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
from binlogtool.render.hexdump import shown
from binlogtool.render.page import data, end, head, text
from binlogtool.schema.annotation import FieldRow, Piece, Space

MOST_BYTES = 4 << 20
"""Bytes of a page, unpacked ones counted: more is refused."""
MOST_FIELDS = 1_000_000
"""Fields of a page: more is refused."""

_SECTION = 256
"""Fields of a section."""
_LEAF, _BAD, _DIFFERS = 1, 2, 4
SCRIPT, STYLE = "annotated.js", "annotated.css"
Marks = Mapping[tuple[str, str, int], Sequence[tuple[int, int]]]
"""Fields that are marked, by space, path and start, and which bytes of theirs are."""


def refuse_large(file: str, size: int) -> None:
    """Check that a page can show so many bytes.

    Raises:
        LimitError: it cannot.
    """
    if size > MOST_BYTES:
        raise LimitError(
            f"{file}: a page shows at most {MOST_BYTES:,} bytes and {MOST_FIELDS:,} fields; choose a part of it with"
            " --at POS --length 1MiB, --record N or --damage-only"
        )


class Marked(msgspec.Struct, frozen=True):
    """How one side of a difference is shown. title, says: its heading. side: a CSS class. fields: those that differ."""

    title: str
    says: str
    side: str
    fields: Marks


class AnnotatedPage(msgspec.Struct):
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

    def begin(self) -> str:
        """Return the page up to the pieces."""
        size = "" if self.size is None else f"{self.size:,} bytes"
        return (
            head(self.file, STYLE, SCRIPT)
            + f"<header><h1>{text(os.path.basename(self.file))}</h1>"
            + f'<p class="about">{text(self.format)} {size} <span>{text(self.file)}</span></p>'
            + TOOLS
            + "</header>\n<main>\n"
        )

    def piece(self, piece: Piece, marked: Marked | None = None) -> Iterator[str]:
        """Yield the sections of a piece. style: how it is shown as one side of a difference.

        Raises:
            LimitError: the page would be too large.
        """
        self._fields += len(piece.rows)
        title = _title(piece) if marked is None else marked.title
        for number, rows in enumerate(_sections(piece.rows)):
            refuse_large(self.file, self._bytes if self._fields <= MOST_FIELDS else MOST_BYTES + 1)
            yield self._section(piece, rows, title if number == 0 else f"{title} …", number == 0, marked)

    def _section(self, piece: Piece, rows: Sequence[FieldRow], title: str, first: bool, marked: Marked | None) -> str:
        name = rows[0].space
        leaves = [row for row in rows if row.leaf] or [rows[0]._replace(end=rows[0].start)]
        start, stop = leaves[0].start, max(row.end for row in leaves)
        bad = not all(row.ok for row in rows) or (first and piece.damaged)
        found = "".join(f'<p class="found {one.severity.label}">{_said(one)}</p>' for one in piece.findings if first)
        where = f'<p class="packed">{text(name)} (decompressed)</p>' if name else ""
        held = _bytes(piece.spaces, name, start, stop)
        self._bytes += len(held)
        fields = {} if marked is None else marked.fields
        places = [place for row in rows for place in fields.get((row.space, row.path, row.start), ())]
        value = data([start, b64encode(held).decode("ascii"), _rows(rows, fields), *([places] if places else [])])
        kind = "" if marked is None else f" differs {marked.side}"
        anchor = "" if name or start in self._anchors else f' id="{self.anchor}{start:x}"'
        self._anchors.add(start)
        says = f"{piece.end - piece.start:,} bytes{'' if marked is None else f', {marked.says}'}"
        size = f" <small>{text(says)}</small>" if first else ""
        return (
            f'<section class="piece{" bad" if bad else ""}{kind}"{anchor} data-from="{start}" data-to="{stop}"'
            f' data-rows="{len(rows)}"{" data-packed" if name else ""}>'
            f'<h2><button type="button" aria-expanded="true"><span class="at">{start:08x}</span> {text(title)}{size}'
            f'</button></h2>{found}{where}<div class="body"></div>{value}</section>\n'
        )

    def end(self, findings: Sequence[Finding]) -> str:
        """Return the page after the pieces; the style shows the findings above them."""
        lines = "".join(
            f'<li class="{one.severity.label}">'
            + ("" if one.offset is None else f'<a href="#0x{one.offset:x}">0x{one.offset:08x}</a> ')
            + f"{_said(one)}</li>"
            for one in findings
        )
        told = f'<aside id="findings"><h2>{len(findings)} findings</h2><ul>{lines}</ul></aside>' if findings else ""
        return f"{told}</main>\n{end(SCRIPT)}"


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


def _title(piece: Piece) -> str:
    """Return the name of a piece, and the first meaning of its content."""
    if not piece.rows:
        return ""
    said = next((row.meaning for row in piece.rows if not row.leaf and row.ok and row.meaning), "")
    return f"{piece.rows[0].path} {said}".strip()


def _said(found: Finding) -> str:
    return f"<b>{text(found.id)}</b> {text(found.message)}"


def _sections(rows: Sequence[FieldRow]) -> Iterator[list[FieldRow]]:
    """Yield runs of rows of one space, none of them long."""
    run: list[FieldRow] = []
    for row in rows:
        if run and (len(run) >= _SECTION or row.space != run[0].space):
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _bytes(spaces: Iterable[Space], name: str, start: int, stop: int) -> bytes:
    """Return the bytes of a range, as far as they are given."""
    here = (one for one in spaces if one.name == name and one.base <= start < one.base + len(one.data))
    return next((one.cut(start, stop) for one in here), b"")


def _rows(rows: Iterable[FieldRow], fields: Marks) -> list[list[Any]]:
    """Return [depth, start, end, name, value, meaning, flags] of each row; names continue those of enclosing rows."""
    told: list[list[Any]] = []
    above: list[FieldRow] = []
    for row in rows:
        while above and above[-1].depth >= row.depth:
            above.pop()
        name = row.path
        if above and name.startswith(above[-1].path):
            name = name[len(above[-1].path) :].removeprefix(".") or name
        above.append(row)
        bits = f"[bits {row.bits[0]}..{row.bits[1]}] " if row.bits else ""
        marks = (_LEAF if row.leaf else 0) | (0 if row.ok else _BAD)
        marks |= _DIFFERS if (row.space, row.path, row.start) in fields else 0
        meaning = bits + escape(row.meaning)
        told.append([row.depth, row.start, row.end, escape(name), shown(row.value), meaning, marks])
    return told
