"""How far one file of a growing log was read, as a streaming query keeps it, and how far it can be read now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from binlogtool.limits import KIB, MIB
from binlogtool.log import marks
from binlogtool.log.open import Log
from binlogtool.log.parts import Cuts, Part, Place, carried_over
from binlogtool.log.source import PartSource, read_range

_START = Place(0, 0, 0)
_LEAST_PIECE = 4 * KIB
_PIECES = 8
"""So many times in a limit its end can be found."""


class Budget(msgspec.Struct):
    """What may still be read; None = no limit."""

    files: int | None = None
    bytes: int | None = None

    @property
    def spent(self) -> bool:
        """Nothing more?"""
        return (self.files is not None and self.files < 1) or (self.bytes is not None and self.bytes < 1)

    def take(self, size: int) -> None:
        """Books one file with so many bytes."""
        if self.files is not None:
            self.files -= 1
        if self.bytes is not None:
            self.bytes -= size


class Reached(msgspec.Struct, frozen=True):
    """How far one file was read.

    place: offset 0 = nothing yet; of a file that is done, what it carries over to the next one is carried. done: to its
    end. mark: see `mark_of`; "" while no record was read. born: how often there was another file of this name before.
    """

    place: Place = _START
    format: str = "auto"
    done: bool = False
    mark: str = ""
    born: int = 0

    @property
    def begin(self) -> Place | None:
        """Where to go on; None = at the beginning of the file."""
        return self.place if self.place.offset else None

    def bytes_since(self, before: Reached | None) -> int:
        """Bytes between the two."""
        same = before is not None and before.born == self.born
        return self.place.offset - (before.place.offset if same and before is not None else 0)

    def without_definitions(self) -> Reached:
        """The same of a file that is done, where the next one was begun: nobody needs them any more."""
        return replace(self, place=replace(self.place, carried=None)) if self.done else self

    def as_dict(self) -> dict[str, Any]:
        """As Spark keeps it: texts and numbers."""
        made = asdict(self.place) | {"carried": json.dumps(self.place.carried, separators=(",", ":"))}
        return made | {"format": self.format, "done": self.done, "mark": self.mark, "born": self.born}

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> Reached:
        """The same again."""
        place = Place(kept["offset"], kept["record"], kept["frame"], json.loads(kept["carried"]))
        return cls(place, kept["format"], kept["done"], kept["mark"], kept["born"])


def advanced(log: Log, before: Reached, end: int, most: int | None, *, closed: bool) -> Reached | None:
    """How far the file of a log can be read, not beyond `end`; None = no further, and nothing else is new.

    most: bytes, but at least up to the next place. closed: what stands before `end` is all that the file will have.
    """
    at = before.place.offset
    if closed and (most is None or end - at <= most):
        return _done(log, before, end)
    place = _furthest(log, before.begin, end, most)
    if is_ended(log, before.place if place is None else place, end):
        return _done(log, before, end)
    if place is not None:
        return replace(before, place=place, mark=mark_of(log, place.offset) if place.record else "")
    if closed:
        return _done(log, before, end)
    return before if before.born and not at else None


def is_ended(log: Log, place: Place, end: int) -> bool:
    """Does the mark by which a server ends a file for good stand between a place and the end?"""
    file = log.files[0]
    mark = file.layout.frame.end_mark if file.layout.final else None
    if mark is None or not place.record or (place.offset + len(mark), file.size) != (end, end):
        return False
    return read_range(file.source, place.offset, len(mark)) == mark


def _done(log: Log, before: Reached, end: int) -> Reached:
    carried = carried_over(log.scan(log.files[0]), Part(before.begin, end))
    return grown(
        log, replace(before, place=replace(_START, offset=before.place.offset, carried=carried), done=True), end
    )


def grown(log: Log, before: Reached, end: int) -> Reached:
    """The same file with its end further on."""
    end = max(end, before.place.offset)
    return replace(before, place=replace(before.place, offset=end), mark=mark_of(log, end))


def is_cut(log: Log) -> bool:
    """Are there places to go on at in the file of a log?"""
    file = log.files[0]
    return file.format.reading.cutter is not None and file.format.reading.cutter(file.layout) is not None


def has_place(log: Log, end: int) -> bool:
    """Is there one behind a record?"""
    return any(place.record for place in _places(log, None, end, MIB))


def _furthest(log: Log, begin: Place | None, end: int, most: int | None) -> Place | None:
    """The last place not more than `most` bytes further on, else the first one."""
    at, found = 0 if begin is None else begin.offset, None
    piece = MIB if most is None else min(MIB, max(_LEAST_PIECE, most // _PIECES))
    for place in _places(log, begin, end, piece) if end > at else ():
        if found is not None and most is not None and place.offset > at + most:
            break
        found = place
    return found


def _places(log: Log, begin: Place | None, end: int, piece: int) -> Iterator[Place]:
    scan = log.scan(log.files[0])
    whole = replace(scan, source=PartSource(scan.source, end))
    at = 0 if begin is None else begin.offset
    return (place for place in Cuts(whole, piece, begin, skip=True).places() if place.offset > at)


def mark_of(log: Log, offset: int) -> str:
    """What tells the file of a log from another one of its name (`log.marks`)."""
    return marks.mark_of(log.files[0], offset)


def is_other(before: Reached, log: Log) -> bool:
    """Is the file of a log not the one that was read so far?"""
    at = before.place.offset
    return (log.files[0].size or 0) < at or (before.mark != "" and mark_of(log, at) != before.mark)
