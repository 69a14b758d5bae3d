"""Files whose damage single flipped bits explain: the bits are put back, and the stored checksums prove the result."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.findings import Finding
from binlogtool.formats.heads import is_corrected
from binlogtool.formats.layouts import Read
from binlogtool.formats.repair_rules import Edit, Piece, Remade
from binlogtool.recovery.report import FileReport

WAY = "--to-file NEW --keep-after-damage writes a copy with it put right"


def flips(report: FileReport) -> list[Finding]:
    """Return the findings that one flipped bit each explains."""
    return [one for one in report.findings if "flipped_byte" in one.facts]


def told(found: Finding) -> str:
    """Name the flipped bit and its byte offset in words."""
    return f"bit {found.facts['flipped_bit']} of byte {found.facts['flipped_byte']:#x}"


def corrected(report: FileReport, name: str, read: Read) -> Remade | None:
    """Return the rewritten file with every flipped bit put back that a finding names; None if there is none.

    Args:
        name: The file's name within its log set.

    The caller must verify that the result has no damage.
    """
    found = flips(report)
    edits = [_edit(int(one.facts["flipped_byte"]), int(one.facts["flipped_bit"]), read) for one in found]
    if not edits:
        return None
    pieces = tuple(_pieces(sorted(set(edits)), report.size))
    why = "put right; the stored checksum proves the bytes around it"
    proof = [{"offset": one.facts["flipped_byte"], "message": f"{told(one)} {why}"} for one in found]
    return Remade(name, "rewrite", pieces, report.durable_end, 0, {"corrected": proof})


def head_edits(report: FileReport, read: Read) -> tuple[Edit, ...]:
    """Return the edits that put back the flipped bit of a header that was read with the bit corrected."""
    found = [one for one in report.findings if is_corrected(one)]
    return tuple(_edit(int(one.facts["flipped_byte"]), int(one.facts["flipped_bit"]), read) for one in found)


def _edit(byte: int, bit: int, read: Read) -> Edit:
    old = read(byte, 1)
    return Edit(byte, old, bytes(one ^ 1 << bit for one in old))


def _pieces(edits: list[Edit], size: int) -> Iterator[Piece]:
    place = 0
    for edit in edits:
        if edit.offset > place:
            yield Piece(place, edit.offset)
        yield Piece(data=edit.new)
        place = edit.offset + len(edit.new)
    if place < size:
        yield Piece(place, size)
