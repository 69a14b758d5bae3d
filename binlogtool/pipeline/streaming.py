"""The streaming reader: follows growing and rotating logs, and hands out each durable record once.

An offset tells of each file how far it was read, always to a place where no transaction is open: `{file: {offset,
record, frame, carried, done}}`, in bytes and numbers as in `log.parts.Place`. What is behind the last such place waits.
When something was written to a later file of the log, a file is read to its end, whatever stands there: it is done.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from os.path import basename, dirname
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader

from binlogtool.errors import BinlogtoolError
from binlogtool.formats.base import Hints
from binlogtool.log.open import Log
from binlogtool.log.parts import Cuts, Part, Place, parts_between
from binlogtool.log.records import Block
from binlogtool.log.select import Selection
from binlogtool.pipeline import rows
from binlogtool.pipeline.inputs import files_of
from binlogtool.pipeline.request import Request
from binlogtool.pipeline.source import Group, read_member
from binlogtool.pipeline.splits import Member, Piece

Offset = Mapping[str, Mapping[str, Any]]

_NUMBER = re.compile(r"\d+")


class BinlogStream(DataSourceStreamReader):  # type: ignore[misc]
    """`spark.readStream.format("binlogtool")` with the options of the batch reader."""

    def __init__(self, paths: Sequence[str], format: str, request: Request, hints: Hints | None = None) -> None:
        self.paths = paths
        self.format = format
        self.request = request
        self.hints = hints

    def initialOffset(self) -> dict[str, Any]:
        """Nothing was read."""
        return {}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> dict[str, Any]:
        """How far each file can be read now. A file that cannot be read stays where it is."""
        known = {name: dict(one) for name, one in (start or {}).items()}
        for log in self._logs():
            later = False
            for name, format_ in reversed(log):
                before = known.get(name)
                if before is None or not before["done"]:
                    reached = self._reached(name, format_, before, closed=later)
                    if reached is not None:
                        known[name] = reached
                later = later or self._is_written(name, format_, known.get(name))
        return known

    def _logs(self) -> Iterator[list[tuple[str, str]]]:
        """Files that a server writes one after the other, with their format: those whose names differ in numbers."""
        for path in self.paths:
            try:
                found = files_of(path, self.format)
            except BinlogtoolError:
                continue
            logs: dict[str, list[tuple[str, str]]] = {}
            for one in found:
                logs.setdefault(os.path.join(dirname(one[0]), _NUMBER.sub("#", basename(one[0]))), []).append(one)
            yield from logs.values()

    def _reached(
        self, name: str, format: str, before: Mapping[str, Any] | None, *, closed: bool
    ) -> dict[str, Any] | None:
        """The offset in one file; None = as before. closed: it will not grow any more."""
        begin = None if before is None else place_of(before)
        try:
            with self._open(name, format) as log:
                file = log.files[0]
                size = file.size or 0
                if not closed and begin is not None and size <= begin.offset:
                    return None
                cuts = Cuts(log.scan(file), begin=begin, skip=True)
                end = deque(cuts.places(), 1)
        except BinlogtoolError:
            return None
        if closed:
            return to_offset(Place(max(size, 0 if begin is None else begin.offset), 0, 0), done=True)
        return to_offset(end[0]) if end else None

    def _is_written(self, name: str, format: str, reached: Mapping[str, Any] | None) -> bool:
        """Are whole records in this file? Then those before are complete, also what goes on in it (pages of .ibb)."""
        if reached is not None:
            return reached["record"] > 0 or bool(reached["done"])
        try:
            with self._open(name, format) as log:
                if (
                    log.files[0].format.cutter is not None
                    and log.files[0].format.cutter(log.files[0].layout) is not None
                ):
                    return False  # not yet
                return any(isinstance(one, Block) for one in log.blocks(Selection(limit=1), decode="frame"))
        except BinlogtoolError:
            return False

    def _open(self, name: str, format: str) -> Log:
        import binlogtool

        r = self.request
        return binlogtool.open(name, format=format, limits=r.limits, backend=r.backend, hints=self.hints)

    def partitions(self, start: Offset, end: Offset) -> Sequence[Group]:
        """What came between two offsets: one part of a file each."""
        made: list[Group] = []
        for name, reached in end.items():
            before = start.get(name)
            if before != reached:
                made += [
                    Group((Piece(Member(name, name, self.format, 0), part),))
                    for part in self._parts(name, before, reached)
                ]
        return made

    def _parts(self, name: str, before: Mapping[str, Any] | None, reached: Mapping[str, Any]) -> list[Part]:
        begin, end = None if before is None else place_of(before), int(reached["offset"])
        try:
            with self._open(name, self.format) as log:
                return parts_between(log.scan(log.files[0]), self.request.split_size, begin, end)
        except BinlogtoolError:
            return [Part(begin, end)]

    def read(self, partition: Group) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        for piece in partition.pieces:
            shown = rows.view(self.request.columns, self.request.payload)
            yield from read_member(piece.member, self.request, self.hints, piece.part, shown)


def place_of(offset: Mapping[str, Any]) -> Place:
    """The place in a file that an offset tells."""
    return Place(offset["offset"], offset["record"], offset["frame"], json.loads(offset["carried"]))


def to_offset(place: Place, *, done: bool = False) -> dict[str, Any]:
    """The same as what Spark keeps: texts and numbers. done: the file was read to its end."""
    carried = json.dumps(place.carried, separators=(",", ":"))
    return {
        "offset": place.offset, "record": place.record, "frame": place.frame, "carried": carried, "done": done,
    }  # fmt: skip
