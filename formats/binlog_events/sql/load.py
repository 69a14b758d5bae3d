"""LOAD DATA in a script: its data, logged before the statement, go to a file next to the script."""

from __future__ import annotations

import struct

import msgspec

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.sql.scene import Scene, Unwritable
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.scripting import Shelf

_T = EventType
PARTS = (_T.BEGIN_LOAD_QUERY, _T.APPEND_BLOCK, _T.DELETE_FILE)

_PLACES = struct.Struct("<IIIB")
_FIXED = 13
_DUPLICATES = {1: b" IGNORE", 2: b" REPLACE"}


class Loads(msgspec.Struct):
    """Files for LOAD DATA that the log contains; `names` by their number in the log, until they are used."""

    shelf: Shelf | None
    names: dict[int, str] = msgspec.field(default_factory=dict)
    count: int = 0

    def part(self, scene: Scene) -> None:
        """Store a part of a file, or drop a file that is not used.

        Raises:
            MalformedError: the event has no file number.
            Unwritable: the file is unknown.
        """
        body = scene.event.body
        if len(body) < 4:
            raise MalformedError("the number of the file is cut short")
        number = int.from_bytes(body[:4], "little")
        if scene.event.code == _T.DELETE_FILE:
            self.names.pop(number, None)
            return
        if self.shelf is None:
            return  # reported where the file is used
        if scene.event.code == _T.BEGIN_LOAD_QUERY:
            self.count += 1
            self.names[number] = f"load-{self.count:06d}"
        elif number not in self.names:
            raise Unwritable("the beginning of the file is missing")
        self.shelf.add(self.names[number], bytes(body[4:]))

    def statement(self, scene: Scene, sql: bytes) -> bytes:
        """Return the LOAD DATA statement with the path of its file.

        Raises:
            MalformedError: the offsets of the file name do not fit.
            Unwritable: there is no such file, or no directory for it.
        """
        number, start, end, duplicates = _PLACES.unpack_from(scene.event.body, _FIXED)
        if self.shelf is None:
            raise Unwritable("LOAD DATA needs a place for the file whose parts stand in the log; name one")
        name = self.names.pop(number, None)
        if name is None:
            raise Unwritable("the file whose parts stand in front of LOAD DATA is not there")
        if not start <= end <= len(sql):
            raise MalformedError(f"the name of the file is at {start} to {end} of {len(sql)} bytes")
        path = self.shelf.path(name).replace("\\", "\\\\").replace("'", "\\'").encode("utf-8", "surrogateescape")
        return b"%b LOCAL INFILE '%b'%b INTO%b" % (sql[:start], path, _DUPLICATES.get(duplicates, b""), sql[end:])
