"""Files whose damage single flipped bits explain: the bits are put back, and the stored checksums prove the result."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.findings import Finding
from binlogtool.formats.heads import is_header_correction
from binlogtool.formats.layouts import RangeReader
from binlogtool.formats.repair_rules import ByteEdit, ResultPiece, RewrittenFile
from binlogtool.recovery.report import FileReport

FLIPPED_BIT_ADVICE = "--to-file NEW --keep-after-damage writes a copy with it put right"


def select_flipped_bits(report: FileReport) -> list[Finding]:
    """Return the findings that one flipped bit each explains."""
    return [one for one in report.findings if "flipped_byte" in one.facts]


def describe_flipped_bit(flip: Finding) -> str:
    """Name the flipped bit and its byte offset in words."""
    return f"bit {flip.facts['flipped_bit']} of byte {flip.facts['flipped_byte']:#x}"


def correct_flipped_bits(report: FileReport, name: str, read: RangeReader) -> RewrittenFile | None:
    """Return the rewritten file with every flipped bit put back that a finding names; None if there is none.

    Args:
        name: The file's name within its log set.

    The caller must verify that the result has no damage.
    """
    flipped_bits = select_flipped_bits(report)
    edits = [_flip_bit(int(one.facts["flipped_byte"]), int(one.facts["flipped_bit"]), read) for one in flipped_bits]
    if not edits:
        return None
    pieces = tuple(_split_into_pieces(sorted(set(edits)), report.size))
    why = "put right; the stored checksum proves the bytes around it"
    proof = [
        {"offset": one.facts["flipped_byte"], "message": f"{describe_flipped_bit(one)} {why}"} for one in flipped_bits
    ]
    return RewrittenFile(name, "rewrite", pieces, report.durable_end, 0, {"corrected": proof})


def plan_header_corrections(report: FileReport, read: RangeReader) -> tuple[ByteEdit, ...]:
    """Return the edits that put back the flipped bit of a header that was read with the bit corrected."""
    corrected_headers = [one for one in report.findings if is_header_correction(one)]
    return tuple(
        _flip_bit(int(one.facts["flipped_byte"]), int(one.facts["flipped_bit"]), read) for one in corrected_headers
    )


def _flip_bit(offset: int, bit: int, read: RangeReader) -> ByteEdit:
    old = read(offset, 1)
    return ByteEdit(offset, old, bytes(one ^ 1 << bit for one in old))


def _split_into_pieces(edits: list[ByteEdit], size: int) -> Iterator[ResultPiece]:
    position = 0
    for edit in edits:
        if edit.offset > position:
            yield ResultPiece(position, edit.offset)
        yield ResultPiece(data=edit.new)
        position = edit.offset + len(edit.new)
    if position < size:
        yield ResultPiece(position, size)
