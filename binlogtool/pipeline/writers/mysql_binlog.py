"""Writer of MariaDB binary logs: self-contained files of bounded size, and their index.

Each file has FORMAT_DESCRIPTION, GTID_LIST and BINLOG_CHECKPOINT, then transactions, and ends with ROTATE, the last one
with STOP. A transaction is never divided.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, MAGIC, EventType
from binlogtool.formats.binlog_events.events import writing
from binlogtool.formats.binlog_events.wire.description import FormatDescription, parse_description
from binlogtool.formats.bundling import PortableEventGroup
from binlogtool.limits import MIB
from binlogtool.pipeline.writers.continuity import GtidState, parse_gtid, record_gtid

DEFAULT_MAX_FILE_SIZE = 1024 * MIB
"""The servers' default of max_binlog_size."""

_ROTATE_FIELD_BYTES = 8


class WrittenBinlogFile(msgspec.Struct, frozen=True):
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
    limit: int = DEFAULT_MAX_FILE_SIZE
    state: GtidState = msgspec.field(default_factory=dict)
    written: list[WrittenBinlogFile] = msgspec.field(default_factory=list)
    _description: FormatDescription = writing.DEFAULT_DESCRIPTION
    _restarted: bool = False
    _created: int = 0
    _file: BinaryIO | None = None
    _offset: int = 0
    _transactions_in_file: int = 0
    _time: int = 0
    _server: int = 1

    @property
    def server_version(self) -> str:
        """Server version of the newest FORMAT_DESCRIPTION."""
        return self._description.server_version

    def add(self, bundle: PortableEventGroup) -> None:
        """Write the next transaction, or take a FORMAT_DESCRIPTION."""
        rest = bundle.events
        if rest[0][4] == EventType.FORMAT_DESCRIPTION:
            self._set_description(rest[0])
            rest = rest[1:]
        if rest:
            self._ensure_file(sum(map(len, rest)) + CHECKSUM_SIZE * len(rest), rest[0])
            for event in rest:
                self._write_event(event)
            self._transactions_in_file += 1
        if bundle.txn is not None:
            record_gtid(self.state, *parse_gtid(bundle.txn))

    def _set_description(self, event: bytes) -> None:
        """Take the FORMAT_DESCRIPTION of another server, or of a restart, which starts a new file."""
        parsed = parse_description(event)
        new = writing.description_for_new_file(parsed, 0)
        old = self._description
        self._created = parsed.create_timestamp
        if parsed.create_timestamp or (new.server_version, new.post_header_len) != (
            old.server_version, old.post_header_len,
        ):  # fmt: skip
            self._restarted = True
        self._description = new

    def _ensure_file(self, size: int, first: bytes) -> None:
        """Open the file that the next `size` bytes go to."""
        is_full = self._offset + size + self._rotate_size > self.limit
        if self._file is not None and self._transactions_in_file and (is_full or self._restarted):
            self._end_file(self._rotate_event())
        self._time = int.from_bytes(first[:4], "little") or self._time
        self._server = int.from_bytes(first[5:9], "little") or self._server
        if self._file is None:
            self._begin_file()

    def _begin_file(self) -> None:
        self._file = (self.folder / self._file_name).open("xb")
        self._file.write(MAGIC)
        self._offset, self._transactions_in_file = len(MAGIC), 0
        description = writing.description_for_new_file(self._description, self._created)
        self._write_new_event(EventType.FORMAT_DESCRIPTION, writing.encode_description_body(description))
        gtids = ((domain, server, number) for (domain, server), number in self.state.items())
        self._write_new_event(EventType.GTID_LIST, writing.encode_gtid_list_body(gtids))
        self._write_new_event(EventType.BINLOG_CHECKPOINT, writing.encode_checkpoint_body(self._file_name))
        self._restarted, self._created = False, 0

    def close(self) -> None:
        """Complete the last file, and write the index."""
        if self._file is None:
            self._begin_file()
        self._end_file(writing.encode_event(EventType.STOP, self._time, self._server, b""))
        lines = "".join(f"./{one.name}\n" for one in self.written)
        (self.folder / f"{self.base}.index").write_bytes(lines.encode("utf-8", "surrogateescape"))

    def abandon(self) -> None:
        """Close the open file without completing it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _end_file(self, last: bytes) -> None:
        assert self._file is not None
        self._write_event(last)
        self._file.close()
        self.written.append(WrittenBinlogFile(self._file_name, self._transactions_in_file, self._offset))
        self._file = None

    def _write_new_event(self, code: EventType, body: bytes) -> None:
        self._write_event(writing.encode_event(code, self._time, self._server, body))

    def _write_event(self, event: bytes) -> None:
        assert self._file is not None
        self._offset += self._file.write(writing.reframe_event(event, self._offset))

    def _rotate_event(self) -> bytes:
        body = writing.encode_rotate_body(self._numbered_name(len(self.written) + 2))
        return writing.encode_event(EventType.ROTATE, self._time, self._server, body)

    @property
    def _rotate_size(self) -> int:
        return HEADER_SIZE + _ROTATE_FIELD_BYTES + len(self._file_name) + CHECKSUM_SIZE

    @property
    def _file_name(self) -> str:
        """Name of the current or next file."""
        return self._numbered_name(len(self.written) + 1)

    def _numbered_name(self, number: int) -> str:
        return f"{self.base}.{number:06d}"
