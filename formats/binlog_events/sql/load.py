"""LOAD DATA in a script: its data, logged before the statement, go to a file next to the script."""

from __future__ import annotations

import struct

import msgspec

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.sql.scene import EventContext, Unwritable
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.scripting import SidecarFiles

_T = EventType
LOAD_DATA_EVENTS = (_T.BEGIN_LOAD_QUERY, _T.APPEND_BLOCK, _T.DELETE_FILE)

_LOAD_QUERY_FIELDS = struct.Struct("<IIIB")
_QUERY_HEADER_SIZE = 13
_DUPLICATES = {1: b" IGNORE", 2: b" REPLACE"}


class LoadDataFiles(msgspec.Struct):
    """Files for LOAD DATA that the log contains; `names` by their number in the log, until they are used."""

    sidecar_files: SidecarFiles | None
    names: dict[int, str] = msgspec.field(default_factory=dict)
    file_count: int = 0

    def add_part(self, context: EventContext) -> None:
        """Store a part of a file, or drop a file that is not used.

        Raises:
            MalformedError: the event has no file number.
            Unwritable: the file is unknown.
        """
        body = context.event.body
        if len(body) < 4:
            raise MalformedError("the number of the file is cut short")
        number = int.from_bytes(body[:4], "little")
        if context.event.code == _T.DELETE_FILE:
            self.names.pop(number, None)
            return
        if self.sidecar_files is None:
            return  # reported where the file is used
        if context.event.code == _T.BEGIN_LOAD_QUERY:
            self.file_count += 1
            self.names[number] = f"load-{self.file_count:06d}"
        elif number not in self.names:
            raise Unwritable("the beginning of the file is missing")
        self.sidecar_files.add(self.names[number], bytes(body[4:]))

    def format_load_data(self, context: EventContext, sql: bytes) -> bytes:
        """Return the LOAD DATA statement with the path of its file.

        Raises:
            MalformedError: the offsets of the file name do not fit.
            Unwritable: there is no such file, or no directory for it.
        """
        number, start, end, duplicates = _LOAD_QUERY_FIELDS.unpack_from(context.event.body, _QUERY_HEADER_SIZE)
        if self.sidecar_files is None:
            raise Unwritable("LOAD DATA needs a place for the file whose parts stand in the log; name one")
        name = self.names.pop(number, None)
        if name is None:
            raise Unwritable("the file whose parts stand in front of LOAD DATA is not there")
        if not start <= end <= len(sql):
            raise MalformedError(f"the name of the file is at {start} to {end} of {len(sql)} bytes")
        path = (
            self.sidecar_files.path(name).replace("\\", "\\\\").replace("'", "\\'").encode("utf-8", "surrogateescape")
        )
        return b"%b LOCAL INFILE '%b'%b INTO%b" % (sql[:start], path, _DUPLICATES.get(duplicates, b""), sql[end:])
