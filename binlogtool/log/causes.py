"""Evidence that the engine collects for the search for the cause of damage, and the resulting finding."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from binlogtool import formats
from binlogtool.findings import Finding
from binlogtool.formats.detecting import Head
from binlogtool.formats.layouts import FrameLevel
from binlogtool.log import damage
from binlogtool.log.clues import Clues, Region
from binlogtool.log.detect import CERTAIN
from binlogtool.log.forensics import FLIPPED, cause, cut_off
from binlogtool.log.source import HEAD_BYTES, Source, read_range
from binlogtool.schema.scanner import Backend, Scanner, StopReason

_RIGHT = 1


class Causes:
    """Search for causes in one file; what it learns about the file (sectors) serves all of its findings."""

    def __init__(self, source: Source, format: str, frame: FrameLevel, backend: Backend) -> None:
        assert source.size is not None
        probe = backend.scanner(frame.schema, frame.columns, 1)
        foreign = partial(_foreign, format)
        self._clues = Clues(
            partial(read_range, source), source.size, partial(_whole, probe), partial(damage.syndrome, frame),
            None if frame.checksum is None else frame.checksum.poly, frame.align, frame.claims, foreign,
            partial(_framed, probe),
        )  # fmt: skip

    def told(self, found: Finding, region: Region) -> Finding:
        """Return the finding with the cause in its facts, and in one clause of its message."""
        flip = (found.facts["flipped_byte"], found.facts["flipped_bit"]) if "flipped_byte" in found.facts else None
        low, high = found.facts.get("covered", (0, 0))
        region = region._replace(flip=flip, covered=high - low)
        likely = (cut_off if found.id == "torn-tail" else cause)(self._clues, region)
        if likely is None or (found.id == "garbage-tail" and likely.kind == "torn-write"):  # no record broke off there
            return found
        known = flip is not None and likely.kind == "flipped-bit"
        message = found.message if known else f"{found.message}; likely cause: {likely.words}"
        return replace(found, message=message, facts=MappingProxyType({**found.facts, **likely.facts}))


def past_the_file(scanner: Scanner, data: memoryview, position: int, size: int) -> int:
    """Return where the frame at `position` would end beyond the file; -1 = it does not say.

    Args:
        data: its first bytes.
        size: its declared size at least.
    """
    if not 0 <= size <= FLIPPED:
        return -1
    padded = bytearray(data).ljust(size + HEAD_BYTES, b"\0")
    table, stop = scanner.scan(padded, 0, len(padded), False)
    if table.count:  # its checksum may be zero, and then it has none
        return position + int(table["end"][0])
    return position + stop.need if stop.reason == StopReason.CHECKSUM else -1


def _whole(probe: Scanner, data: bytes | bytearray) -> int:
    table = probe.probe(data, 0, len(data))
    return int(table["end"][0]) if table.count and int(table["checksum"][0]) == _RIGHT else 0


def _framed(probe: Scanner, data: bytes) -> int:
    table = probe.probe(data, 0, len(data))
    return int(table["end"][0]) if table.count else 0


def _foreign(own: str, data: bytes) -> str | None:
    """Return the name of another log format whose files start with these bytes, if that is certain."""
    head = Head(data, "", len(data))
    others = (one for one in formats.each() if one.name != own)
    return next((one.name for one in others if one.reading.detect(head).score >= CERTAIN), None)
