"""Render annotated bytes, and the comparison of two logs, as text, JSON, HTML and SVG.

The content security policy of an HTML page allows only its own style and script, by their hashes, and no requests. Data
for the script is in JSON blocks that browsers do not run.

The page holds bytes and fields as data; its script draws only what is near the visible part, and inserts text of the
log only as text. A piece with many fields becomes several sections, so that no section is long.

In text, each differing record is followed by its differing fields in A and in B; `^` marks the differing bytes.

In HTML, each differing record is followed by its differing fields in A and in B, with the differing bytes in colour. An
SVG picture shows only the first differences, and the number of the others.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from binlogtool.annotation.compare_logs import (
    DiffPart,
    DiffSide,
    EqualRange,
    FieldDiff,
    LogComparison,
    UnitDiff,
    diff_sign,
    join_equal_ranges,
    match_fields,
    path_in_record,
    row_bytes,
)
from binlogtool.errors import LimitError
from binlogtool.format_api.encode_json import JsonStyle, encode_document_in_pieces, pick_members
from binlogtool.report.format_numbers_and_names import format_count, format_offset, format_quantity
from binlogtool.report.verify_and_plan_text import findings_to_json
from binlogtool.terminal.escape_and_fold_text import escape
from binlogtool.terminal.hexdump import (
    HexdumpOptions,
    byte_character,
    draw_text,
    format_value,
    render_hexdump,
    render_markers,
    shorten_label,
    svg_head,
)

if TYPE_CHECKING:
    from binlogtool.findings import Finding
    from binlogtool.schema.annotation_types import AddressSpace, AnnotatedPiece, FieldRow

# --- HTML page ---


def escape_html(value: object) -> str:
    """Escape any text for HTML content or an attribute value; invisible characters become visible."""
    return html.escape(escape(str(value)))


DATA_TYPE = "application/deflate"


def render_section_data_script(
    start: int, data: bytes | bytearray, rows: Sequence[Sequence[Any]], marked_ranges: Sequence[Any] = ()
) -> str:
    """Return a compressed JSON block for the script of the page: the bytes, and rows with escaped texts.

    A row has its distance from the previous row and its length, because repeated numbers compress well.
    """
    at, compact = start, []
    for depth, row_start, row_end, *rest in rows:
        compact.append([depth, row_start - at, row_end - row_start, *rest])
        at = row_start
    value = [start, b64encode(data).decode("ascii"), compact, *([marked_ranges] if marked_ranges else [])]
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    data = packer.compress(msgspec.json.encode(value)) + packer.flush()
    return f'<script type="{DATA_TYPE}">{b64encode(data).decode("ascii")}</script>'


def html_head(title: str, *assets: str) -> str:
    """Return the page up to its body. assets: names of styles (`.css`) and scripts (`.js`)."""
    styles = [read_asset(name) for name in assets if name.endswith(".css")]
    scripts = [read_asset(name) for name in assets if name.endswith(".js")]
    policy = (
        f"default-src 'none'; style-src {_hash_sources(styles)}; script-src {_hash_sources(scripts)};"
        " base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="referrer" content="no-referrer">\n<title>{escape_html(title)}</title>\n'
        + "".join(f"<style>{style}</style>\n" for style in styles)
        + "</head>\n<body>\n"
    )


def render_end(*assets: str) -> str:
    """Return the scripts, and the end of the page."""
    return "".join(f"<script>{read_asset(name)}</script>\n" for name in assets) + "</body>\n</html>\n"


@cache
def read_asset(name: str) -> str:
    """Return the text of a style or script of this package."""
    return files("binlogtool.report").joinpath("assets", name).read_text("utf-8")


def _hash_sources(contents: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()) for content in contents)
    return " ".join(f"'sha256-{digest.decode('ascii')}'" for digest in digests) or "'none'"


# --- `hexdump-annotate -O html` ---

MAX_PAGE_BYTES = 4 << 20
"""Maximum number of bytes in a page, including decompressed bytes; more are refused."""
MAX_PAGE_FIELDS = 1_000_000
"""Maximum number of fields in a page; more are refused."""

_FIELDS_PER_SECTION = 256
"""Maximum number of fields in one section."""
_LEAF_FLAG, _BAD_FLAG, _DIFFERS_FLAG = 1, 2, 4
SCRIPT, STYLE = "annotated.js", "annotated.css"
DifferingFields = Mapping[tuple[str, str, int], Sequence[tuple[int, int]]]
"""Fields to highlight: (address space, path, start) -> the byte ranges that differ."""


def check_page_size(file: str, size: int) -> None:
    """Check that a page can show `size` bytes.

    Raises:
        LimitError: there are too many bytes.
    """
    if size > MAX_PAGE_BYTES:
        raise LimitError(
            f"{file}: a page shows at most {MAX_PAGE_BYTES:,} bytes and {MAX_PAGE_FIELDS:,} fields; choose a "
            f"part of it with"
            " --at POS --length 1MiB, --record N or --damage-only"
        )


class DiffPieceStyle(msgspec.Struct, frozen=True):
    """Style of one side of a difference.

    title, summary: texts of its heading. side: a CSS class. fields: the fields that differ.
    """

    title: str
    summary: str
    side: str
    fields: DifferingFields


class _OpenSection(msgspec.Struct):
    """Consecutive small pieces that become one section.

    Attributes:
        titles: Titles of the first and the last piece.
        rows: Rows in the form that the page's script reads.
    """

    start: int
    end: int
    titles: list[str]
    data: bytearray
    rows: list[list[Any]]
    count: int = 1

    def add(self, other: _OpenSection) -> None:
        """Append the pieces of another section."""
        self.end, self.count = other.end, self.count + 1
        self.titles[1:] = other.titles[-1:]
        self.data += other.data
        self.rows += other.rows

    def render(self, anchor: str) -> str:
        """Return the HTML of the section."""
        size = f"{self.end - self.start:,} bytes" if self.count == 1 else f"{self.count} parts"
        title = " … ".join(dict.fromkeys(self.titles))
        return (
            f'<section class="piece" id="{anchor}{self.start:x}" data-from="{self.start}" data-to="{self.end}"'
            f' data-rows="{len(self.rows)}"><h2><button type="button" aria-expanded="true">'
            f'<span class="at">{self.start:08x}</span> {escape_html(title)} <small>{size}</small></button></h2>'
            f'<div class="body"></div>'
            f"{render_section_data_script(self.start, self.data, self.rows)}</section>\n"
        )


class AnnotationPage(msgspec.Struct):
    """HTML page of annotated bytes, rendered piece by piece with the memory of one piece.

    Args:
        file: path.
        format: name of the format.
        size: bytes of the file, None = unknown.
        anchor: prefix of the anchors in the page.
        joins: small pieces without findings share a section; `render_end` must follow.
    """

    file: str
    format: str
    size: int | None
    anchor: str = "b"
    joins: bool = False
    _open: _OpenSection | None = None
    _bytes: int = 0
    _fields: int = 0
    _anchors: set[int] = msgspec.field(default_factory=set)

    def render_start(self) -> str:
        """Return the beginning of the page, before the pieces."""
        size = "" if self.size is None else f"{self.size:,} bytes"
        return (
            html_head(self.file, STYLE, SCRIPT)
            + f"<header><h1>{escape_html(os.path.basename(self.file))}</h1> "
            + f'<p class="about">{escape_html(self.format)} {size} <span>{escape_html(self.file)}</span></p>'
            + TOOLS
            + "</header>\n<main>\n"
        )

    def render_piece(self, piece: AnnotatedPiece, style: DiffPieceStyle | None = None) -> Iterator[str]:
        """Yield the HTML sections of a piece. style: its style as one side of a difference; None = no difference.

        Raises:
            LimitError: the page would be too large.
        """
        self._fields += len(piece.rows)
        if self.joins and _is_plain(piece):
            check_page_size(self.file, self._bytes if self._fields <= MAX_PAGE_FIELDS else MAX_PAGE_BYTES + 1)
            yield from self._add_piece_to_open_section(piece)
            return
        yield from self._close_section()
        title = _make_title(piece) if style is None else style.title
        for number, rows in enumerate(_split_sections(piece.rows)):
            check_page_size(self.file, self._bytes if self._fields <= MAX_PAGE_FIELDS else MAX_PAGE_BYTES + 1)
            yield self._render_section(piece, rows, title if number == 0 else f"{title} …", number == 0, style)

    def _add_piece_to_open_section(self, piece: AnnotatedPiece) -> Iterator[str]:
        """Add a piece to the open section; if the section is full, yield it first."""
        start, end = piece.rows[0].start, max(row.end for row in piece.rows)
        data = bytearray(_read_bytes(piece.spaces, "", start, end))
        self._bytes += len(data)
        part = _OpenSection(start, end, [_make_title(piece)], data, _encode_field_rows(piece.rows, {}))
        section = self._open
        if (
            section is not None
            and section.end == start
            and len(section.rows) + len(part.rows) <= 2 * _FIELDS_PER_SECTION
        ):
            section.add(part)
            return
        yield from self._close_section()
        self._open = part

    def _close_section(self) -> Iterator[str]:
        if self._open is not None:
            self._anchors.add(self._open.start)
            yield self._open.render(self.anchor)
            self._open = None

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
        marked_ranges = [place for row in rows for place in fields.get((row.space, row.path, row.start), ())]
        if style is None and not name:
            marked_ranges += [(byte, byte + 1) for byte in _list_flipped_bytes(piece) if start <= byte < stop]
        value = render_section_data_script(start, section_bytes, _encode_field_rows(rows, fields), marked_ranges)
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
        """Return the end of the page, after the pieces, with the findings (the style places them above the pieces)."""
        lines = "".join(
            f'<li class="{one.severity.label}">'
            + ("" if one.offset is None else f'<a href="#0x{one.offset:x}">0x{one.offset:08x}</a> ')
            + f"{_render_finding(one)}</li>"
            for one in findings
        )
        sections = "".join(self._close_section())
        findings_html = (
            f'<aside id="findings"><h2>{len(findings)} findings</h2><ul>{lines}</ul></aside>' if findings else ""
        )
        return f"{sections}{findings_html}</main>\n{render_end(SCRIPT)}"


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
    "<noscript><p>The bytes are drawn by the script of this page; without it, use the text output of hexdump-annotate."
    "</p></noscript>"
)


def _is_plain(piece: AnnotatedPiece) -> bool:
    """Return True for a small piece without findings in the file itself, not in decompressed data."""
    return (
        0 < len(piece.rows) <= _FIELDS_PER_SECTION
        and not (piece.findings or piece.damaged)
        and all(row.ok and not row.space for row in piece.rows)
    )


def _list_flipped_bytes(piece: AnnotatedPiece) -> list[int]:
    """Return the offsets of the bytes that have one flipped bit according to the findings."""
    offsets = [one.facts.get("flipped_byte") for one in piece.findings]
    return sorted({one for one in offsets if isinstance(one, int)})


def _make_title(piece: AnnotatedPiece) -> str:
    """Return the title of a piece: its name, and the first meaning in its content."""
    if not piece.rows:
        return ""
    meaning = next((row.meaning for row in piece.rows if not row.leaf and row.ok and row.meaning), "")
    return f"{piece.rows[0].path} {meaning}".strip()


def _render_finding(item: Finding) -> str:
    return f"<b>{escape_html(item.id)}</b> {escape_html(item.message)}"


def _split_sections(rows: Sequence[FieldRow]) -> Iterator[list[FieldRow]]:
    """Yield runs of rows in one address space, of at most _FIELDS_PER_SECTION rows."""
    run: list[FieldRow] = []
    for row in rows:
        if run and (len(run) >= _FIELDS_PER_SECTION or row.space != run[0].space):
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _read_bytes(spaces: Iterable[AddressSpace], name: str, start: int, stop: int) -> bytes:
    """Return the available bytes of a range in the named address space."""
    matching_spaces = (one for one in spaces if one.name == name and one.base <= start < one.base + len(one.data))
    return next((one.slice_bytes(start, stop) for one in matching_spaces), b"")


def _encode_field_rows(rows: Iterable[FieldRow], differing_fields: DifferingFields) -> list[list[Any]]:
    """Return [depth, start, end, name, value, meaning, flags] of each row; names are relative to the enclosing row."""
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
        flags |= _DIFFERS_FLAG if (row.space, row.path, row.start) in differing_fields else 0
        meaning = bits + escape(row.meaning)
        encoded.append([row.depth, row.start, row.end, escape(name), format_value(row.value), meaning, flags])
    return encoded


# --- `hexdump-annotate -O json` (binlogtool/annotate/1) ---

_STYLE = JsonStyle()


def fields_to_json(rows: Iterable[FieldRow]) -> Iterator[dict[str, Any]]:
    """Yield one member of `fields` per row, in file order, parents before their children."""
    for row in rows:
        yield {
            "path": row.path,
            "start": row.start,
            "end": row.end,
            "value": _STYLE.to_json_value(row.value),
            "meaning": row.meaning,
            "unit": row.unit,
            "bits": list(row.bits) if row.bits else None,
            **({"space": row.space} if row.space else {}),
            **({} if row.ok else {"ok": False}),
        }


def encode_annotation(
    file: str, size: int, rows: Iterable[FieldRow], list_findings: Callable[[], Sequence[Finding]]
) -> Iterator[bytes]:
    """Yield the document, piece by piece as the rows arrive. list_findings: called after the rows.

    The members `space` (of decompressed rows) and `ok` (of damaged rows) are additions to the documented shape.
    """

    def make_document() -> dict[str, Any]:
        findings = findings_to_json(list_findings())
        return {"schema": "binlogtool/annotate/1", "file": file, "size": size, "fields": [], "findings": findings}

    return encode_document_in_pieces(make_document, "fields", fields_to_json(rows))


# --- `hexdump-annotate --diff OTHER -O json` (binlogtool/diff/1) ---

_KINDS = {"~": "changed", "-": "only-a", "+": "only-b"}


class DiffJsonWriter:
    """Writer of the document, piece by piece as the parts arrive.

    Args:
        shows_all: also write the fields of units that only one side has.
    """

    def __init__(self, comparison: LogComparison, *, shows_all: bool) -> None:
        self._comparison, self._shows_all = comparison, shows_all
        self.difference_count = 0
        """Number of differences."""

    def encode(self, parts: Iterable[DiffPart]) -> Iterator[bytes]:
        """Yield the whole document."""
        return encode_document_in_pieces(self._make_envelope, "parts", self._iter_members(parts))

    def _make_envelope(self) -> dict[str, Any]:
        a, b = self._comparison.a, self._comparison.b
        return {
            "schema": "binlogtool/diff/1",
            "a": {"file": a.path, "size": a.size},
            "b": {"file": b.path, "size": b.size},
            "format": a.format.name,
            "parts": [],
            "differences": self.difference_count,
        }

    def _iter_members(self, parts: Iterable[DiffPart]) -> Iterator[dict[str, Any]]:
        for kind, group in groupby(parts, diff_sign):
            if kind == "=":
                for one in join_equal_ranges(group):
                    other_range = {"start": one.other_start, "end": one.other_start + one.end - one.start}
                    yield {
                        "kind": "same",
                        "a": {"start": one.start, "end": one.end},
                        "b": other_range,
                        "records": one.record_count,
                    }
            else:
                for part in group:
                    assert isinstance(part, UnitDiff)
                    self.difference_count += 1
                    yield {
                        "kind": _KINDS[kind],
                        "a": _side_to_json(part.a),
                        "b": _side_to_json(part.b),
                        **self._fields_member(part),
                    }

    def _fields_member(self, part: UnitDiff) -> dict[str, Any]:
        if part.a is not None and part.b is not None:
            compared = match_fields(part.a.piece(), part.b.piece())
            changed = [_field_to_json(one) for one in compared if not one.same]
            return {"fields": changed, "fields_same": len(compared) - len(changed)}
        side = part.a or part.b
        return {"fields": list(fields_to_json(side.piece().rows))} if self._shows_all and side is not None else {}


def _side_to_json(side: DiffSide | None) -> dict[str, Any] | None:
    """Return the position of a unit and the records in it; None for None."""
    if side is None:
        return None
    unit = side.unit
    return {
        **pick_members(unit, "start", "end", "kind"),
        "record": unit.record if unit.record_count else None,
        "records": unit.record_count,
        "types": list(dict.fromkeys(type_ for type_, _, _ in unit.content)),
    }


def _field_to_json(field: FieldDiff) -> dict[str, Any]:
    """Return one differing field with both of its sides.

    `bytes` are the differing ranges, counted from the field's first byte; absent if the sizes differ.
    """
    return {"a": _row_to_json(field.a), "b": _row_to_json(field.b), "bytes": [list(some) for some in field.ranges]}


def _row_to_json(row: FieldRow | None) -> dict[str, Any] | None:
    return None if row is None else next(fields_to_json([row]))


# --- `hexdump-annotate --diff OTHER` as text lines ---

MAX_SHOWN_RECORDS = 4
"""Maximum number of consecutive records of one side whose bytes are shown; further ones are only counted."""
_MAX_FIELD_LINES = 64
"""Maximum number of lines for a field, or for a record that only one side has."""
_COLORS = {"-": "31", "+": "32", "~": "33"}


class DiffText(msgspec.Struct):
    """Renderer of differences as text, with their count. shows_all: include equal parts, and every one-sided record."""

    options: HexdumpOptions
    shows_all: bool = False
    difference_count: int = 0
    """Number of differences."""

    def render(self, parts: Iterable[DiffPart]) -> Iterator[str]:
        """Yield lines without line ends."""
        for kind, group in groupby(parts, diff_sign):
            if kind == "=":
                yield from self._render_equal(group)
            elif kind == "~":
                for part in group:
                    yield from self._render_changed(part)
            else:
                yield from self._render_one_sided(kind, group)

    def _render_equal(self, parts: Iterable[DiffPart]) -> Iterator[str]:
        yield from (f"= {_describe_equal(one)}{_describe_move(one)}" for one in join_equal_ranges(parts))

    def _render_changed(self, part: DiffPart) -> Iterator[str]:
        assert isinstance(part, UnitDiff) and part.a is not None and part.b is not None
        self.difference_count += 1
        left, right = part.a.piece(), part.b.piece()
        field_diffs = match_fields(left, right)
        verdicts = sum(one.is_checksum_verdict_only for one in field_diffs)
        differing_count = sum(not one.same for one in field_diffs) - verdicts
        moved_text = "" if part.a.unit.start == part.b.unit.start else f", in B at {format_offset(part.b.unit.start)}"
        name, name_in_b = describe_diff_unit(part.a, left), describe_diff_unit(part.b, right)
        kind = name if name == name_in_b else f"{name}, in B {name_in_b}"
        summary = f"{format_count(differing_count)} of {format_quantity(len(field_diffs), 'field')} differ"
        if verdicts:
            summary += ", a checksum matches on one side only"
        if not differing_count and not verdicts:
            summary = "the decoded content is the same, the stored bytes are not"
        heading = f"{format_offset(part.a.unit.start)}  {kind}{moved_text}: {summary}"
        yield self._paint_line("~", heading)
        for same, group in groupby(field_diffs, lambda one: one.same):
            if same and not self.shows_all:
                yield f"    {format_quantity(sum(1 for _ in group), 'field')} the same"
            else:
                for field_diff in group:
                    yield from self._render_field(field_diff, left, right)

    def _render_field(self, field_diff: FieldDiff, left: AnnotatedPiece, right: AnnotatedPiece) -> Iterator[str]:
        if field_diff.same:
            assert field_diff.a is not None
            yield from (f"  {line}" for line in self._render_row(field_diff.a, left))
        else:
            for sign, row, piece in (("-", field_diff.a, left), ("+", field_diff.b, right)):
                if row is not None:
                    yield from self._render_field_side(sign, row, piece, field_diff)

    def _render_field_side(
        self, sign: str, row: FieldRow, piece: AnnotatedPiece, field_diff: FieldDiff
    ) -> Iterator[str]:
        """Yield the lines of a field, each with `^` under its differing bytes."""
        ranges = [(row.start + first, row.start + last) for first, last in field_diff.ranges]
        if ranges == [(row.start, row.end)]:
            ranges = []
        if ranges and row.end - row.start > self.options.width:
            row = row._replace(start=ranges[0][0], end=ranges[-1][1])
        line_offset = row.start - row.start % self.options.width
        for line in self._render_row(row, piece):
            yield self._paint_line(sign, line)
            if markers := render_markers(self.options, line, line_offset, ranges):
                yield f"  {markers}"
            line_offset += self.options.width

    def _render_row(self, row: FieldRow, piece: AnnotatedPiece) -> Iterator[str]:
        options = replace(self.options, squeeze=False)
        yield from _limit_lines(
            render_hexdump([row], piece.spaces, options, heading=False), None if self.shows_all else _MAX_FIELD_LINES
        )

    def _render_one_sided(self, sign: str, parts: Iterable[DiffPart]) -> Iterator[str]:
        """Yield lines about records that only one side has: the first with their bytes, the number of the others."""
        side_name, shown_count = "A" if sign == "-" else "B", 0
        rest: list[int] = []
        for part in parts:
            self.difference_count += 1
            assert isinstance(part, UnitDiff)
            side = part.a or part.b
            assert side is not None
            if shown_count >= MAX_SHOWN_RECORDS and not self.shows_all:
                rest = [rest[0] if rest else side.unit.start, side.unit.end, (rest[2] if rest else 0) + 1]
                continue
            shown_count += 1
            piece = side.piece()
            size = format_count(side.unit.end - side.unit.start)
            name, other = describe_diff_unit(side, piece), "B" if sign == "-" else "A"
            cut = "" if part.ends_at is None else f"; {other} ends inside it, at {format_offset(part.ends_at)}"
            yield self._paint_line(
                sign, f"{format_offset(side.unit.start)}  {name} only in {side_name}, {size} bytes{cut}"
            )
            lines = render_hexdump(piece.rows, piece.spaces, self.options, heading=False)
            for line in _limit_lines(lines, None if self.shows_all else _MAX_FIELD_LINES):
                yield self._paint_line(sign, line)
        if rest:
            start, end, rest_count = rest
            rest_text = (
                f"{format_offset(start)}..{format_offset(end)}  {format_count(rest_count)} more only "
                f"in {side_name}, {format_count(end - start)} bytes"
            )
            yield self._paint_line(sign, rest_text)

    def _paint_line(self, sign: str, line: str) -> str:
        return f"\x1b[{_COLORS[sign]}m{sign}\x1b[0m {line}" if self.options.color else f"{sign} {line}"


def _limit_lines(lines: Iterable[str], max_lines: int | None) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number == max_lines:
            yield "... more lines; --all shows them"
            return
        yield line


def describe_diff_unit(side: DiffSide, piece: AnnotatedPiece) -> str:
    """Return the name of a unit: its records with their types, or the name of its bytes."""
    unit = side.unit
    if unit.kind != "frame":
        return escape(piece.rows[0].path.partition(".")[0]) if piece.rows else unit.kind
    types = [type_ for type_, _, _ in unit.content]
    kinds = escape(", ".join(dict.fromkeys(types)))
    if unit.record_count == 0:
        return escape(piece.rows[0].path)
    numbers = f"record {format_count(unit.record)}"
    if unit.record_count > 1:
        numbers = f"records {format_count(unit.record)} to {format_count(unit.record + unit.record_count - 1)}"
    return f"{numbers} {kinds}".rstrip()


# --- `hexdump-annotate --diff OTHER -O html` ---


class DiffPage:
    """HTML page of the differences, rendered part by part. shows_all: show every one-sided record."""

    def __init__(self, comparison: LogComparison, *, shows_all: bool) -> None:
        self._comparison = comparison
        self._shows_all = shows_all
        self._page = AnnotationPage(comparison.a.path, comparison.a.format.name, comparison.a.size, anchor="a")
        self._is_full = False
        self.difference_count = 0
        """Number of differences."""

    def encode(self, parts: Iterable[DiffPart]) -> Iterator[bytes]:
        """Yield the page piece by piece."""
        for text in chain([self._render_start()], self._render_parts(parts), [f"</main>\n{render_end(SCRIPT)}"]):
            yield text.encode("utf-8")

    def _render_start(self) -> str:
        a, b = self._comparison.a, self._comparison.b
        names = f"{os.path.basename(a.path)} → {os.path.basename(b.path)}"
        sides = "".join(
            (
                f'<p class="about"><b class="side-{side.lower()}">{side}</b> {escape_html(file.path)} '
                f"{file.size or 0:,} bytes</p>"
            )
            for side, file in (("A", a), ("B", b))
        )
        tools = TOOLS.replace("next damage</", "next difference</")
        return (
            f"{html_head(names, STYLE, SCRIPT)}<header><h1>{escape_html(names)}</h1> "
            f'<p class="about">{escape_html(a.format.name)}</p>{sides}{tools}</header>\n<main>\n'
        )

    def _render_parts(self, parts: Iterable[DiffPart]) -> Iterator[str]:
        for kind, group in groupby(parts, diff_sign):
            if kind == "=":
                for one in join_equal_ranges(group):
                    yield self._render_line(f"= {_describe_equal(one).replace('  ', ' ')}{_describe_move(one)}")
            else:
                yield from self._render_consecutive_differences(group)

    def _render_consecutive_differences(self, parts: Iterable[DiffPart]) -> Iterator[str]:
        """Yield the HTML of consecutive differences of one kind; of one-sided records, only the first are shown."""
        rest: list[DiffSide] = []
        for number, part in enumerate(parts):
            assert isinstance(part, UnitDiff)
            self.difference_count += 1
            sides = [side for side in (part.a, part.b) if side is not None]
            if self._is_full or (len(sides) == 1 and number >= MAX_SHOWN_RECORDS and not self._shows_all):
                rest = [rest[0] if rest else sides[0], sides[-1]]
                continue
            try:
                yield from self._render_diff(part)
            except LimitError:
                self._is_full = True
                yield self._render_line("there are more differences than a page shows; use -O text for all of them")
        if rest and not self._is_full:
            yield self._render_line(
                f"{format_offset(rest[0].unit.start)}..{format_offset(rest[1].unit.end)} more of the same; "
                f"--all draws it"
            )

    def _render_diff(self, part: UnitDiff) -> Iterator[str]:
        pieces = [None if side is None else side.piece() for side in (part.a, part.b)]
        left, right = pieces
        field_diffs = match_fields(left, right) if left is not None and right is not None else []
        differing_count = sum(not one.same for one in field_diffs)
        for name, side, piece in zip("AB", (part.a, part.b), pieces, strict=True):
            if side is None or piece is None:
                continue
            summary = (
                f"{format_count(differing_count)} of {format_quantity(len(field_diffs), 'field')} differ"
                if field_diffs
                else f"only in {name}"
            )
            style = DiffPieceStyle(
                f"{name}: {describe_diff_unit(side, piece)}",
                summary,
                f"side-{name.lower()}",
                _differing_fields(field_diffs, name),
            )
            yield from self._page.render_piece(piece, style)

    @staticmethod
    def _render_line(line: str) -> str:
        return f'<p class="same">{escape_html(line)}</p>\n'


def _describe_equal(equal_range: EqualRange) -> str:
    records = f", {format_quantity(equal_range.record_count, 'record')}" if equal_range.record_count else ""
    place = f"{format_offset(equal_range.start)}..{format_offset(equal_range.end)}"
    return f"{place}  the same{records}, {format_count(equal_range.end - equal_range.start)} bytes"


def _describe_move(equal_range: EqualRange) -> str:
    is_moved = equal_range.start != equal_range.other_start
    return f", in B from {format_offset(equal_range.other_start)}" if is_moved else ""


def _differing_fields(field_diffs: Iterable[FieldDiff], side: str) -> dict[tuple[str, str, int], list[tuple[int, int]]]:
    """Return the differing fields of one side, with their differing byte ranges."""
    fields_of_side: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for field_diff in field_diffs:
        row = field_diff.a if side == "A" else field_diff.b
        if row is not None and not field_diff.same:
            sizes = {0 if of is None else of.end - of.start for of in (field_diff.a, field_diff.b)}
            ranges = field_diff.ranges or (((0, row.end - row.start),) if len(sizes) > 1 else ())
            fields_of_side[row.space, row.path, row.start] = [(row.start + i, row.start + j) for i, j in ranges]
    return fields_of_side


# --- `hexdump-annotate --diff OTHER -O svg` ---

MAX_LINES = 48
"""Maximum number of lines in a picture."""

_TOP_HEIGHT, _LINE_HEIGHT, _MAX_BYTES = 64, 22, 16
_SIGN_X, _OFFSET_X, _HEX_X, _TEXT_X, _VALUE_X = 24, 44, 140, 548, 704
_BYTE_WIDTH, _CHARACTER_WIDTH = 25, 9
_COLOURS = {"-": "#ffd7d5", "+": "#d3edd3"}
_STRONG_COLOURS = {"-": "#ff9c9c", "+": "#86d08e"}


class DiffSvg(msgspec.Struct):
    """SVG picture of the differences, with their count."""

    comparison: LogComparison
    difference_count: int = 0
    _lines: list[list[str]] = msgspec.field(default_factory=list)
    _omitted_count: int = 0
    """Number of differences that are not drawn."""
    _cut: bool = False
    """True if lines were left out."""

    def encode(self, parts: Iterable[DiffPart]) -> Iterator[bytes]:
        """Yield the picture as SVG, in one piece."""
        for kind, group in groupby(parts, diff_sign):
            for line in self._draw_equal(group) if kind == "=" else self._draw_different(kind, group):
                if len(self._lines) < MAX_LINES:
                    self._lines.append(line)
        if self._omitted_count:
            omitted_text = (
                f"not in this picture: {format_quantity(self._omitted_count, 'more difference')}; "
                f"-O text, html and json show all of them"
            )
            self._lines.append([draw_text(_SIGN_X, 15, omitted_text, "b")])
        elif not self.difference_count:
            self._lines.append([draw_text(_SIGN_X, 15, "nothing differs")])
        names = (escape(one.path.rpartition("/")[2]) for one in (self.comparison.a, self.comparison.b))
        title = "A {} · B {}".format(*names)
        height = _TOP_HEIGHT + _LINE_HEIGHT * len(self._lines) + 16
        rows = (
            f'<g transform="translate(0 {_TOP_HEIGHT + _LINE_HEIGHT * i})">{"".join(row)}</g>'
            for i, row in enumerate(self._lines)
        )
        yield "".join(f"{line}\n" for line in (*svg_head(title, height), *rows, "</svg>")).encode("utf-8")

    def _draw_equal(self, parts: Iterable[DiffPart]) -> Iterator[list[str]]:
        for equal_range in join_equal_ranges(parts):
            yield [draw_text(_SIGN_X, 15, "=", "d"), draw_text(_OFFSET_X, 15, _describe_equal(equal_range), "d")]

    def _draw_different(self, kind: str, parts: Iterable[DiffPart]) -> Iterator[list[str]]:
        for part in parts:
            assert isinstance(part, UnitDiff)
            self.difference_count += 1
            if len(self._lines) >= MAX_LINES:
                self._omitted_count += 1
            elif kind == "~":
                yield from self._draw_changed(part)
            else:
                yield self._draw_one_sided(kind, part)

    def _draw_one_sided(self, kind: str, part: UnitDiff) -> list[str]:
        side = part.a or part.b
        assert side is not None
        side_name, size = "A" if part.b is None else "B", format_count(side.unit.end - side.unit.start)
        text = (
            f"{format_offset(side.unit.start)}  {escape(describe_diff_unit(side, side.piece()))} only in "
            f"{side_name}, {size} bytes"
        )
        background = f'<rect x="{_SIGN_X - 4}" y="0" width="1228" height="20" rx="3" fill="{_COLOURS[kind]}"/>'
        return [background, draw_text(_SIGN_X, 15, kind), draw_text(_OFFSET_X, 15, text)]

    def _draw_changed(self, part: UnitDiff) -> Iterator[list[str]]:
        assert part.a is not None and part.b is not None
        left, right = part.a.piece(), part.b.piece()
        field_diffs = match_fields(left, right)
        differing = [one for one in field_diffs if not one.same]
        summary = (
            f"{len(differing)} of {format_quantity(len(field_diffs), 'field')} differ"
            if differing
            else "only stored bytes differ, the decoded content is the same"
        )
        text = f"{format_offset(part.a.unit.start)}  {escape(describe_diff_unit(part.a, left))}: {summary}"
        yield [draw_text(_SIGN_X, 15, "~", "b"), draw_text(_OFFSET_X, 15, text, "b")]
        for field_diff in differing:
            for sign, row, piece in (("-", field_diff.a, left), ("+", field_diff.b, right)):
                if row is not None:
                    yield list(_draw_field_side(sign, row, piece, field_diff))


def _draw_field_side(sign: str, row: FieldRow, piece: AnnotatedPiece, field_diff: FieldDiff) -> Iterator[str]:
    """Yield the text of one side of a field: its bytes from the first difference on, and its meaning."""
    first = max(0, field_diff.ranges[0][0] - 2) if field_diff.ranges and row.end - row.start > _MAX_BYTES else 0
    data = row_bytes(row, piece)[first : first + _MAX_BYTES]
    yield draw_text(_SIGN_X, 15, sign)
    yield draw_text(_OFFSET_X, 15, format_offset(row.start + first), "d")
    for number, byte in enumerate(data):
        at = first + number
        is_different = not field_diff.ranges or any(low <= at < high for low, high in field_diff.ranges)
        colour = (_STRONG_COLOURS if is_different else _COLOURS)[sign]
        x, text = _HEX_X + _BYTE_WIDTH * number, _TEXT_X + _CHARACTER_WIDTH * number
        yield f'<rect x="{x - 4}" y="0" width="{_BYTE_WIDTH}" height="20" fill="{colour}"/>'
        yield f'<rect x="{text}" y="0" width="{_CHARACTER_WIDTH}" height="20" fill="{colour}"/>'
        yield draw_text(x, 15, f"{byte:02x}")
        yield draw_text(text, 15, byte_character(byte))
    remaining_bytes = row.end - row.start - len(data)
    value = format_value(row.value)
    label = escape(path_in_record(row).removesuffix(".value")) + (f" = {value}" if value else "")
    yield draw_text(
        _VALUE_X,
        15,
        shorten_label(f"{label}  ({format_count(remaining_bytes)} bytes more)" if remaining_bytes > 0 else label),
        "" if row.ok else "b",
    )
