"""Find one flipped bit in a text header: in the type, the version, their line ends, or the key of a required line.

Other lines do not prevent the rows from being read, or could be right in many ways. The server refuses such a file
all
the same, or skips it under force: what it says about the stored header goes into the finding, for the replay.
Source: `docs/spec/tarantool-xlog.md#11-text-header`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from binlogtool.findings import Finding, Severity
from binlogtool.formats.detecting import Head
from binlogtool.formats.heads import HeadFlip, corrected
from binlogtool.formats.layouts import Layout
from binlogtool.formats.tarantool.codes import START, FileKind
from binlogtool.formats.tarantool.layout.header import KNOWN_KEYS, SURE_BYTES
from binlogtool.formats.tarantool.layout.layout import layout
from binlogtool.limits import Limits

_BEHIND = re.compile(START + rb"|\xd5\x10\xad\xed")
_WHOLE = re.compile(
    rb"(?:%s)\n(?:[^\n]+\n)?(?:(?:%s):[^\n]*\n)*\n" % ("|".join(FileKind).encode(), "|".join(KNOWN_KEYS).encode())
)
"""A header of a known type in which each line has a key that is known."""
_FIRST_LINES = 12
"""Bytes of the longest type and version, with their line ends."""
_LONGEST_LINE = 128
_LINES = ("bad_header", "unknown_header_key")
"""Diagnoses of a line that is wrong as a whole."""

_PROOF = "the lines of the header and the block behind it prove it"


def heads(head: Head) -> Iterator[HeadFlip]:
    """Yield the one bit flip that leaves nothing wrong with a header (`formats.heads`); nothing if several do."""
    found = _BEHIND.search(head.data, 0, SURE_BYTES)
    as_it_is = layout(head, Limits())
    wrong = [one for one in as_it_is.findings if one.severity is Severity.ERROR]
    if found is None or not wrong:
        return
    from binlogtool.formats.tarantool.replay.startup import header_fault  # few heads are damaged

    fault = header_fault(head.name, as_it_is.findings, as_it_is.context)
    if fault is None:
        return
    more = {"server": "refuse", "server_offset": fault[0], "server_says": fault[1]}
    start, size = wrong[0].offset or 0, wrong[0].length or 1
    places = [(byte, bit) for byte in sorted(_suspects(as_it_is, wrong[0], found.start())) for bit in range(8)]
    flips = [
        HeadFlip(*place, _PROOF, start, size, wrong[0].id, str(wrong[0].facts["diagnosis"]), more) for place in places
    ]
    text = bytearray(head.data[: found.start()])
    right = [flip for flip in flips if _reads(text, flip) and _is_right(corrected(head, flip), found.start())]
    if len(right) == 1:
        yield right[0]


def _suspects(as_it_is: Layout, wrong: Finding, end: int) -> set[int]:
    """List the offsets where the flipped bit can be, in a header of `end` bytes."""
    if not as_it_is.readable:
        return {*range(min(_FIRST_LINES, end)), *range(max(0, end - 2), end)}
    if wrong.facts["diagnosis"] not in _LINES or wrong.offset is None or wrong.length > _LONGEST_LINE:
        return set()
    return set(range(wrong.offset, wrong.offset + wrong.length))


def _reads(text: bytearray, flip: HeadFlip) -> bool:
    """Check the header's lines with one bit flipped. Cheap: most flips fail here, without reading a layout."""
    flip.put_right(0, text)
    good = _WHOLE.fullmatch(text) is not None
    flip.put_right(0, text)
    return good


def _is_right(head: Head, end: int) -> bool:
    """Check that a header of `end` bytes is readable and has no findings."""
    made = layout(head, Limits())
    return made.readable and made.frames_at == end and not made.findings
