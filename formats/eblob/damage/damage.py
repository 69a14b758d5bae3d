"""Classify damage in terms of this format (docs/spec/eblob.md#validation)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.eblob.layout.dialects import EblobDialect
from binlogtool.formats.eblob.layout.layout import UnreadableHeader
from binlogtool.formats.eblob.schema import MAX_SIZE, RECORD_HEADER_SIZE
from binlogtool.formats.layouts import LogFileLayout

BAD_TYPE = "bad record type"
TYPE_ZERO = "end of records inside the data: type 0 with valid records after it"
FLAGS_SET = "record flags not zero"
PAST_THE_END = "record runs past the end of the file"
SIZE_ABOVE_INT64 = "size above 2^63"
SIZE_OVERFLOW = "meta_size + data_size overflows"
SIZE_TOO_LARGE = "size larger than any file"
NO_HEADER = "next record header is not valid"
HOLE = "broken record, resync needed"
METADATA_TOO_LARGE = "metadata larger than the record"

_UINT64_LIMIT = 1 << 64
_INT64_LIMIT = 1 << 63
_TAILS: Mapping[str, str] = MappingProxyType({"torn-tail": "torn tail", "garbage-tail": "garbage tail"})
_CLEAN_ZEROS = "clean (preallocated zeros after the last record)"
_ZERO_TAIL = "clean or zero tail"


def explain_damage(layout: LogFileLayout, data: memoryview, offset: int, problem: Finding) -> Finding:
    """Return the finding with a `diagnosis` in its facts, and whether eblob itself stops here."""
    if problem.id in _TAILS:
        return _with_diagnosis(problem, _TAILS[problem.id])
    if problem.id == "zero-tail":
        return _classify_zeros(layout, problem)
    if problem.id not in ("bad-magic", "length-out-of-bounds", "bad-header") or "ceiling" in problem.facts:
        return problem
    dialect: EblobDialect = layout.context.dialect
    head = bytes(data[: dialect.record_header_size])
    if len(head) < dialect.record_header_size or dialect.record_header_size != RECORD_HEADER_SIZE:
        return _with_diagnosis(problem, PAST_THE_END if problem.id == "length-out-of-bounds" else BAD_TYPE)
    explained = _classify_record_header(dialect, head, problem)
    layout.context.unreadable_header = UnreadableHeader(offset, head, explained.facts["diagnosis"])
    return explained


def _with_diagnosis(problem: Finding, diagnosis: str, finding_id: str | None = None, **facts: Any) -> Finding:
    text = problem.message
    if diagnosis.replace(" ", "-") != problem.id:
        text = f"{diagnosis}: {text}"
    all_facts = MappingProxyType({**problem.facts, "diagnosis": diagnosis, **facts})
    return replace(problem, id=finding_id or problem.id, message=text, facts=all_facts)


def _classify_zeros(layout: LogFileLayout, problem: Finding) -> Finding:
    """Classify zeros after the last record: normal if the log reserves space."""
    whole_header = problem.length >= layout.context.dialect.record_header_size
    diagnosis = _CLEAN_ZEROS if whole_header else _ZERO_TAIL
    return _with_diagnosis(problem, diagnosis, "preallocated-tail" if layout.context.is_preallocated else None)


def _classify_record_header(dialect: EblobDialect, head: bytes, problem: Finding) -> Finding:
    """Classify a bad record header by the first rule that it breaks."""
    order = ">" if dialect.byte_order == "big" else "<"
    record_type, first, second, fourth = struct.unpack_from(f"{order}QQQQ", head)
    flags, sizes = (second, (first,)) if dialect.name == "a0" else (fourth, (first, second))
    if not any(head):
        return _with_diagnosis(problem, HOLE, stops_here=True)
    if record_type not in dialect.types:
        plausible = not flags and max(sizes) <= MAX_SIZE and not any(head[96:])
        return _with_diagnosis(problem, _type_diagnosis(record_type) if plausible else NO_HEADER, stops_here=True)
    if flags:
        has_valid_sizes = max(sizes) <= MAX_SIZE
        return _with_diagnosis(problem, FLAGS_SET if has_valid_sizes else NO_HEADER, "bad-header", stops_here=True)
    return _with_diagnosis(problem, _size_diagnosis(dialect, sizes))


def _type_diagnosis(record_type: int) -> str:
    return BAD_TYPE if record_type else TYPE_ZERO


def _size_diagnosis(dialect: EblobDialect, sizes: tuple[int, ...]) -> str:
    total = RECORD_HEADER_SIZE + (sizes[0] if dialect.name in ("a", "a0") else sum(sizes))
    if total >= _UINT64_LIMIT:
        return SIZE_OVERFLOW
    if max(sizes) >= _INT64_LIMIT:
        return SIZE_ABOVE_INT64
    if dialect.name == "a" and sizes[1] > sizes[0]:
        return METADATA_TOO_LARGE
    return SIZE_TOO_LARGE if max(sizes) > MAX_SIZE else PAST_THE_END
