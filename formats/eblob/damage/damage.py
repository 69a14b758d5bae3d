"""Classify damage in terms of this format (docs/spec/eblob-binlog.md#8-verify)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.eblob.layout.dialects import Dialect
from binlogtool.formats.eblob.layout.layout import Unread
from binlogtool.formats.eblob.schema import MAX_SIZE, RECORD_HEADER
from binlogtool.formats.layouts import Layout

BAD_TYPE = "bad record type"
TYPE_ZERO = "end of records inside the data: type 0 with valid records after it"
FLAGS_SET = "record flags not zero"
PAST_THE_END = "record runs past the end of the file"
ABOVE = "size above 2^63"
OVERFLOW = "meta_size + data_size overflows"
TOO_LARGE = "size larger than any file"
NO_HEADER = "next record header is not valid"
HOLE = "broken record, resync needed"
NO_SPLIT = "metadata larger than the record"

_WORD = 1 << 64
_SIGNED = 1 << 63
_TAILS: Mapping[str, str] = MappingProxyType({"torn-tail": "torn tail", "garbage-tail": "garbage tail"})
_CLEAN = "clean (preallocated zeros after the last record)"
_ZERO_TAIL = "clean or zero tail"


def explain_damage(layout: Layout, data: memoryview, offset: int, found: Finding) -> Finding:
    """Return the finding with a `diagnosis` in its facts, and whether eblob itself stops here."""
    if found.id in _TAILS:
        return _with(found, _TAILS[found.id])
    if found.id == "zero-tail":
        return _zeros(layout, found)
    if found.id not in ("bad-magic", "length-out-of-bounds", "bad-header") or "ceiling" in found.facts:
        return found
    dialect: Dialect = layout.context.dialect
    head = bytes(data[: dialect.head])
    if len(head) < dialect.head or dialect.head != RECORD_HEADER:
        return _with(found, PAST_THE_END if found.id == "length-out-of-bounds" else BAD_TYPE)
    explained = _header(dialect, head, found)
    layout.context.unread = Unread(offset, head, explained.facts["diagnosis"])
    return explained


def _with(found: Finding, diagnosis: str, id_: str | None = None, **facts: Any) -> Finding:
    text = found.message
    if diagnosis.replace(" ", "-") != found.id:
        text = f"{diagnosis}: {text}"
    known = MappingProxyType({**found.facts, "diagnosis": diagnosis, **facts})
    return replace(found, id=id_ or found.id, message=text, facts=known)


def _zeros(layout: Layout, found: Finding) -> Finding:
    """Classify zeros after the last record: normal if the log reserves space."""
    whole_header = found.length >= layout.context.dialect.head
    diagnosis = _CLEAN if whole_header else _ZERO_TAIL
    return _with(found, diagnosis, "preallocated-tail" if layout.context.preallocates else None)


def _header(dialect: Dialect, head: bytes, found: Finding) -> Finding:
    """Classify a bad record header by the first rule that it breaks."""
    order = ">" if dialect.byte_order == "big" else "<"
    kind, first, second, fourth = struct.unpack_from(f"{order}QQQQ", head)
    flags, sizes = (second, (first,)) if dialect.name == "a0" else (fourth, (first, second))
    if not any(head):
        return _with(found, HOLE, stops_here=True)
    if kind not in dialect.types:
        plausible = not flags and max(sizes) <= MAX_SIZE and not any(head[96:])
        return _with(found, _wrong_type(kind) if plausible else NO_HEADER, stops_here=True)
    if flags:
        sane = max(sizes) <= MAX_SIZE
        return _with(found, FLAGS_SET if sane else NO_HEADER, "bad-header", stops_here=True)
    return _with(found, _wrong_size(dialect, sizes))


def _wrong_type(kind: int) -> str:
    return BAD_TYPE if kind else TYPE_ZERO


def _wrong_size(dialect: Dialect, sizes: tuple[int, ...]) -> str:
    total = RECORD_HEADER + (sizes[0] if dialect.name in ("a", "a0") else sum(sizes))
    if total >= _WORD:
        return OVERFLOW
    if max(sizes) >= _SIGNED:
        return ABOVE
    if dialect.name == "a" and sizes[1] > sizes[0]:
        return NO_SPLIT
    return TOO_LARGE if max(sizes) > MAX_SIZE else PAST_THE_END
