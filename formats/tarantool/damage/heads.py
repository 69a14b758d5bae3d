"""Find one flipped bit in a text header: in the type, the version, their line ends, or the key of a required line.

Other lines do not prevent the rows from being read, or could be right in many ways. The server refuses such a file all
the same, or skips it under force: what it says about the stored header goes into the finding, for the replay.
Source: `docs/spec/tarantool.md#text-header`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from binlogtool.findings import Finding, Severity
from binlogtool.formats.detecting import FileHead
from binlogtool.formats.heads import HeaderFlip, correct_head
from binlogtool.formats.layouts import LogFileLayout
from binlogtool.formats.tarantool.codes import BLOCK_START_PATTERN, FileKind
from binlogtool.formats.tarantool.layout.header import HEADER_SEARCH_SIZE, KNOWN_KEYS
from binlogtool.formats.tarantool.layout.layout import read_layout
from binlogtool.limits import Limits

_BLOCK_OR_END = re.compile(BLOCK_START_PATTERN + rb"|\xd5\x10\xad\xed")
_VALID_HEADER = re.compile(
    rb"(?:%s)\n(?:[^\n]+\n)?(?:(?:%s):[^\n]*\n)*\n" % ("|".join(FileKind).encode(), "|".join(KNOWN_KEYS).encode())
)
"""A header of a known type in which each line has a key that is known."""
_FIRST_LINES_SIZE = 12
"""Bytes of the longest type and version, with their line ends."""
_MAX_LINE_SIZE = 128
_WHOLE_LINE_DIAGNOSES = ("bad_header", "unknown_header_key")
"""Diagnoses of a line that is wrong as a whole."""

_PROOF = "the lines of the header and the block behind it prove it"


def find_header_flips(head: FileHead) -> Iterator[HeaderFlip]:
    """Yield the one bit flip that leaves nothing wrong with a header (`formats.heads`); nothing if several do."""
    first_block = _BLOCK_OR_END.search(head.data, 0, HEADER_SEARCH_SIZE)
    stored_layout = read_layout(head, Limits())
    errors = [one for one in stored_layout.findings if one.severity is Severity.ERROR]
    if first_block is None or not errors:
        return
    from binlogtool.formats.tarantool.replay.startup import predict_header_fault  # few heads are damaged

    fault = predict_header_fault(head.name, stored_layout.findings, stored_layout.context)
    if fault is None:
        return
    server_facts = {"server": "refuse", "server_offset": fault[0], "server_says": fault[1]}
    start, size = errors[0].offset or 0, errors[0].length or 1
    places = [
        (byte, bit)
        for byte in sorted(_list_candidate_bytes(stored_layout, errors[0], first_block.start()))
        for bit in range(8)
    ]
    flips = [
        HeaderFlip(*place, _PROOF, start, size, errors[0].id, str(errors[0].facts["diagnosis"]), server_facts)
        for place in places
    ]
    text = bytearray(head.data[: first_block.start()])
    valid_flips = [
        flip
        for flip in flips
        if _is_valid_after_flip(text, flip) and _is_clean_header(correct_head(head, flip), first_block.start())
    ]
    if len(valid_flips) == 1:
        yield valid_flips[0]


def _list_candidate_bytes(stored_layout: LogFileLayout, error: Finding, end: int) -> set[int]:
    """List the offsets where the flipped bit can be, in a header of `end` bytes."""
    if not stored_layout.readable:
        return {*range(min(_FIRST_LINES_SIZE, end)), *range(max(0, end - 2), end)}
    if error.facts["diagnosis"] not in _WHOLE_LINE_DIAGNOSES or error.offset is None or error.length > _MAX_LINE_SIZE:
        return set()
    return set(range(error.offset, error.offset + error.length))


def _is_valid_after_flip(text: bytearray, flip: HeaderFlip) -> bool:
    """Check the header's lines with one bit flipped. Cheap: most flips fail here, without reading a layout."""
    flip.correct_bytes(0, text)
    is_valid = _VALID_HEADER.fullmatch(text) is not None
    flip.correct_bytes(0, text)
    return is_valid


def _is_clean_header(head: FileHead, end: int) -> bool:
    """Check that a header of `end` bytes is readable and has no findings."""
    candidate = read_layout(head, Limits())
    return candidate.readable and candidate.frames_at == end and not candidate.findings
