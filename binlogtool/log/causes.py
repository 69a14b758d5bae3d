"""Evidence that the engine collects for the search for the cause of damage, and the resulting finding."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from binlogtool import formats
from binlogtool.findings import Finding
from binlogtool.formats.detecting import FileHead
from binlogtool.formats.layouts import FrameLevel
from binlogtool.log import damage
from binlogtool.log.clues import DamagedRegion, DamageEvidence
from binlogtool.log.detect import CERTAIN_SCORE
from binlogtool.log.forensics import MAX_FLIPPED_FRAME, find_cause, find_tail_cause
from binlogtool.log.source import HEAD_BYTES, Source, read_range
from binlogtool.schema.scanner import Backend, Scanner, StopReason

_CHECKSUM_RIGHT = 1


class CauseFinder:
    """Search for causes in one file; what it learns about the file (sectors) serves all of its findings."""

    def __init__(self, source: Source, format: str, frame: FrameLevel, backend: Backend) -> None:
        assert source.size is not None
        probe = backend.make_scanner(frame.schema, frame.columns, 1)
        foreign = partial(_find_foreign_format, format)
        self._evidence = DamageEvidence(
            partial(read_range, source), source.size, partial(_proven_frame_size, probe),
            partial(damage.checksum_difference, frame),
            None if frame.checksum is None else frame.checksum.poly, frame.align, frame.claimed_offset, foreign,
            partial(_frame_size, probe),
        )  # fmt: skip

    def add_cause(self, item: Finding, region: DamagedRegion) -> Finding:
        """Return the finding with the cause in its facts, and in one clause of its message."""
        flip = (item.facts["flipped_byte"], item.facts["flipped_bit"]) if "flipped_byte" in item.facts else None
        low, high = item.facts.get("covered", (0, 0))
        region = region._replace(flip=flip, covered=high - low)
        likely = (find_tail_cause if item.id == "torn-tail" else find_cause)(self._evidence, region)
        if likely is None or (item.id == "garbage-tail" and likely.kind == "torn-write"):  # no record broke off there
            return item
        is_in_message = flip is not None and likely.kind == "flipped-bit"
        message = item.message if is_in_message else f"{item.message}; likely cause: {likely.words}"
        return replace(item, message=message, facts=MappingProxyType({**item.facts, **likely.facts}))


def find_end_past_file(scanner: Scanner, data: memoryview, position: int, size: int) -> int:
    """Return where the frame at `position` would end beyond the file; -1 = it does not say.

    Args:
        data: its first bytes.
        size: its declared size at least.
    """
    if not 0 <= size <= MAX_FLIPPED_FRAME:
        return -1
    padded = bytearray(data).ljust(size + HEAD_BYTES, b"\0")
    table, stop = scanner.scan(padded, 0, len(padded), False)
    if table.count:  # its checksum may be zero, and then it has none
        return position + int(table["end"][0])
    return position + stop.need if stop.reason == StopReason.CHECKSUM else -1


def _proven_frame_size(probe: Scanner, data: bytes | bytearray) -> int:
    table = probe.probe(data, 0, len(data))
    return int(table["end"][0]) if table.count and int(table["checksum"][0]) == _CHECKSUM_RIGHT else 0


def _frame_size(probe: Scanner, data: bytes) -> int:
    table = probe.probe(data, 0, len(data))
    return int(table["end"][0]) if table.count else 0


def _find_foreign_format(own_format: str, data: bytes) -> str | None:
    """Return the name of another log format whose files start with these bytes, if that is certain."""
    head = FileHead(data, "", len(data))
    others = (one for one in formats.iter_formats() if one.name != own_format)
    return next((one.name for one in others if one.reading.detect(head).score >= CERTAIN_SCORE), None)
