"""Writer of MariaDB binary logs: self-contained files of bounded size, and their index.

Each file has FORMAT_DESCRIPTION, GTID_LIST and BINLOG_CHECKPOINT, then transactions, and ends with ROTATE, the last
one
with STOP. A transaction is never divided.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, MAGIC, EventType
from binlogtool.formats.binlog_events.events import writing
from binlogtool.formats.binlog_events.wire.description import FormatDescription, parse_description
from binlogtool.formats.bundling import Bundle
from binlogtool.limits import MIB
from binlogtool.pipeline.writers.continuity import State, book, gtid_numbers

DEFAULT_LIMIT = 1024 * MIB
"""The servers' default of max_binlog_size."""

_ROTATE_FIELDS = 8


class Written(msgspec.Struct, frozen=True):
    """One written file: its name, its number of transactions, its size in bytes."""

    name: str
    bundles: int
    size: int


class BinlogWriter(msgspec.Struct):
    """Writes `folder`/`base`.000001 and so on.

    limit: bytes of a file; only a file with a single transaction is larger. state: last GTIDs before the next
      transaction,
    for GTID_LIST.
    """

    folder: Path
    base: str
    limit: int = DEFAULT_LIMIT
    state: State = msgspec.field(default_factory=dict)
    written: list[Written] = msgspec.field(default_factory=list)
    _description: FormatDescription = writing.DEFAULT_DESCRIPTION
    _restarted: bool = False
    _created: int = 0
    _out: BinaryIO | None = None
    _at: int = 0
    _inside: int = 0
    _time: int = 0
    _server: int = 1

    @property
    def server_version(self) -> str:
        """Server version of the newest FORMAT_DESCRIPTION."""
        return self._description.server_version

    def add(self, bundle: Bundle) -> None:
        """Write the next transaction, or take a FORMAT_DESCRIPTION."""
        rest = bundle.events
        if rest[0][4] == EventType.FORMAT_DESCRIPTION:
            self._described(rest[0])
            rest = rest[1:]
        if rest:
            self._make_room(sum(map(len, rest)) + CHECKSUM_SIZE * len(rest), rest[0])
            for event in rest:
                self._put(event)
            self._inside += 1
        if bundle.txn is not None:
            book(self.state, *gtid_numbers(bundle.txn))

    def _described(self, event: bytes) -> None:
        """Take the FORMAT_DESCRIPTION of another server, or of a restart, which starts a new file."""
        said = parse_description(event)
        new = writing.started(said, 0)
        old = self._description
        self._created = said.create_timestamp
        if said.create_timestamp or (new.server_version, new.post_header_len) != (
            old.server_version, old.post_header_len,
        ):  # fmt: skip
            self._restarted = True
        self._description = new

    def _make_room(self, size: int, first: bytes) -> None:
        """Open the file that the next `size` bytes go to."""
        full = self._at + size + self._rotate_size > self.limit
        if self._out is not None and self._inside and (full or self._restarted):
            self._end_file(self._rotate())
        self._time = int.from_bytes(first[:4], "little") or self._time
        self._server = int.from_bytes(first[5:9], "little") or self._server
        if self._out is None:
            self._begin_file()

    def _begin_file(self) -> None:
        self._out = (self.folder / self._name).open("xb")
        self._out.write(MAGIC)
        self._at, self._inside = len(MAGIC), 0
        description = writing.started(self._description, self._created)
        self._made(EventType.FORMAT_DESCRIPTION, writing.description_body(description))
        listed = ((domain, server, number) for (domain, server), number in self.state.items())
        self._made(EventType.GTID_LIST, writing.gtid_list_body(listed))
        self._made(EventType.BINLOG_CHECKPOINT, writing.checkpoint_body(self._name))
        self._restarted, self._created = False, 0

    def close(self) -> None:
        """Complete the last file, and write the index."""
        if self._out is None:
            self._begin_file()
        self._end_file(writing.event(EventType.STOP, self._time, self._server, b""))
        lines = "".join(f"./{one.name}\n" for one in self.written)
        (self.folder / f"{self.base}.index").write_bytes(lines.encode("utf-8", "surrogateescape"))

    def abandon(self) -> None:
        """Close the open file without completing it."""
        if self._out is not None:
            self._out.close()
            self._out = None

    def _end_file(self, last: bytes) -> None:
        assert self._out is not None
        self._put(last)
        self._out.close()
        self.written.append(Written(self._name, self._inside, self._at))
        self._out = None

    def _made(self, code: EventType, body: bytes) -> None:
        self._put(writing.event(code, self._time, self._server, body))

    def _put(self, event: bytes) -> None:
        assert self._out is not None
        self._at += self._out.write(writing.reframed(event, self._at))

    def _rotate(self) -> bytes:
        body = writing.rotate_body(self._sibling(len(self.written) + 2))
        return writing.event(EventType.ROTATE, self._time, self._server, body)

    @property
    def _rotate_size(self) -> int:
        return HEADER_SIZE + _ROTATE_FIELDS + len(self._name) + CHECKSUM_SIZE

    @property
    def _name(self) -> str:
        """Name of the current or next file."""
        return self._sibling(len(self.written) + 1)

    def _sibling(self, number: int) -> str:
        return f"{self.base}.{number:06d}"
