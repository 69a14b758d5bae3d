"""Write events and whole files of a MariaDB binary log, and prove that no transaction is missing.

An event keeps its bytes except event_size and end_log_pos, and ends with its checksum
(docs/spec/mysql_binlog.md#common-header).

Each file begins with FORMAT_DESCRIPTION, GTID_LIST and BINLOG_CHECKPOINT and ends with ROTATE, the last file with STOP.
A transaction is never split between files.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.row_output_interfaces import PortableEventGroup, PriorGtids
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.gtid.gtid_events import format_range
from binlogtool.formats.binlog_events.gtid.gtid_sets import GtidSet, IntervalSet, format_gtid_set, subtract_intervals
from binlogtool.formats.binlog_events.wire_format import (
    CHECKSUM_SIZE,
    EVENT_SIZE_AT,
    FLAGS_AT,
    HEADER_SIZE,
    MAGIC,
    PACKED_HEADER,
    TYPE_AT,
    ChecksumAlgorithm,
    EventType,
    FormatDescription,
    parse_format_description,
    read_event_size,
)
from binlogtool.limits import MIB

# --- Events of a new MariaDB log file ---

_T = EventType
_SIZES = struct.Struct("<II")
_DESCRIPTION = struct.Struct("<H50sIB")
_GTID = struct.Struct("<IIQ")
_UINT32_MASK: Final = 0xFFFFFFFF
_MIN_GTID_LIST_BYTES: Final = 6
_MAX_LISTED_GTIDS: Final = (1 << 28) - 1

DEFAULT_SERVER_VERSION: Final = "12.3.0-MariaDB"
"""Server version for a log whose server is unknown: the first version that stores its binary log in InnoDB."""

_LAST_TYPE: Final = EventType.PARTIAL_ROW_DATA
POST_HEADER_SIZES: Final[dict[int, int]] = {
    _T.START_V3: 56, _T.QUERY: 13, _T.ROTATE: 8, _T.LOAD: 18, _T.CREATE_FILE: 4, _T.APPEND_BLOCK: 4, _T.EXEC_LOAD: 4,
    _T.DELETE_FILE: 4, _T.NEW_LOAD: 18, _T.FORMAT_DESCRIPTION: _DESCRIPTION.size + _LAST_TYPE,
    _T.BEGIN_LOAD_QUERY: 4, _T.EXECUTE_LOAD_QUERY: 26, _T.TABLE_MAP: 8, _T.WRITE_ROWS_V1: 8, _T.UPDATE_ROWS_V1: 8,
    _T.DELETE_ROWS_V1: 8, _T.INCIDENT: 2, _T.WRITE_ROWS_V2: 10, _T.UPDATE_ROWS_V2: 10, _T.DELETE_ROWS_V2: 10,
    _T.PARTIAL_UPDATE_ROWS: 10, _T.TRANSACTION_PAYLOAD: 10, _T.HEARTBEAT_V2: 10, _T.BINLOG_CHECKPOINT: 4, _T.GTID: 19,
    _T.GTID_LIST: 4, _T.QUERY_COMPRESSED: 13, _T.WRITE_ROWS_COMPRESSED_V1: 8, _T.UPDATE_ROWS_COMPRESSED_V1: 8,
    _T.DELETE_ROWS_COMPRESSED_V1: 8, _T.WRITE_ROWS_COMPRESSED_V2: 10, _T.UPDATE_ROWS_COMPRESSED_V2: 10,
    _T.DELETE_ROWS_COMPRESSED_V2: 10, _T.PARTIAL_ROW_DATA: 9,
}  # fmt: skip
"""Usual size of the fixed part of each event's body in bytes, which FORMAT_DESCRIPTION declares; of other types 0."""

DEFAULT_DESCRIPTION: Final = FormatDescription(
    binlog_version=4,
    server_version=DEFAULT_SERVER_VERSION,
    create_timestamp=0,
    header_length=HEADER_SIZE,
    post_header_len=bytes(POST_HEADER_SIZES.get(code, 0) for code in range(1, _LAST_TYPE + 1)),
    checksum_alg=ChecksumAlgorithm.CRC32.value,
)
"""FORMAT_DESCRIPTION of a MariaDB server of the default version."""


def split_events(data: bytes) -> list[bytes]:
    """Split consecutive events.

    Raises:
        MalformedError: an event size is less than that of a header, or exceeds the remaining bytes.
    """
    events: list[bytes] = []
    offset, size = 0, len(data)
    while offset < size:
        length = read_event_size(data, offset)
        if size - offset < HEADER_SIZE or not HEADER_SIZE <= length <= size - offset:
            raise MalformedError(f"{size - offset:,} bytes after event {len(events)} of the group are not an event")
        events.append(data[offset : offset + length])
        offset += length
    return events


def add_position_and_checksum(event: bytes, position: int) -> bytes:
    """Return an event without checksum in the form that is stored at `position` of a file with checksums."""
    size = len(event) + CHECKSUM_SIZE
    unchecked = (
        event[:EVENT_SIZE_AT]
        + _SIZES.pack(size, (position + size) & _UINT32_MASK)
        + event[EVENT_SIZE_AT + _SIZES.size :]
    )
    return unchecked + zlib.crc32(unchecked).to_bytes(CHECKSUM_SIZE, "little")


def encode_event(type_code: EventType, time: int, server_id: int, body: bytes) -> bytes:
    """Encode an event without checksum; its position is set later.

    `time`: seconds since 1970.
    """
    return PACKED_HEADER.pack(time, type_code, server_id, HEADER_SIZE + len(body), 0, 0) + body


def make_description_for_new_file(description: FormatDescription, create_timestamp: int) -> FormatDescription:
    """Return the description for the start of a new file with checksums; `create_timestamp`: see `create_timestamp`."""
    post_headers = description.post_header_len or DEFAULT_DESCRIPTION.post_header_len
    crc32 = ChecksumAlgorithm.CRC32.value
    return replace(
        description,
        post_header_len=post_headers,
        create_timestamp=create_timestamp,
        checksum_alg=crc32,
        flags=0,
        event=b"",
    )


def encode_description_body(description: FormatDescription) -> bytes:
    """Encode the body of FORMAT_DESCRIPTION without its checksum."""
    version = description.server_version.encode("utf-8", "replace")[:49]
    fixed = _DESCRIPTION.pack(4, version, description.create_timestamp, HEADER_SIZE)
    return fixed + description.post_header_len + bytes([ChecksumAlgorithm.CRC32])


def encode_gtid_list_body(gtids: Iterable[tuple[int, int, int]]) -> bytes:
    """Encode the body of GTID_LIST.

    Args:
        gtids: (domain, server, sequence number); the newest GTID of a domain is last.

    Raises:
        MalformedError: there are more GTIDs than the event can count.
    """
    packed = b"".join(_GTID.pack(domain, server, number) for domain, server, number in gtids)
    count = len(packed) // _GTID.size
    if count > _MAX_LISTED_GTIDS:
        raise MalformedError(f"{count:,} pairs of domain and server do not fit into a GTID_LIST")
    return (count.to_bytes(4, "little") + packed).ljust(_MIN_GTID_LIST_BYTES, b"\0")


def encode_checkpoint_body(oldest_file_name: str) -> bytes:
    """Encode the body of BINLOG_CHECKPOINT; `oldest_file_name`: the oldest file that crash recovery needs."""
    encoded = oldest_file_name.encode("utf-8", "surrogateescape")
    return len(encoded).to_bytes(4, "little") + encoded


def encode_rotate_body(next_file_name: str) -> bytes:
    """Encode the body of a ROTATE to the start of the next file."""
    return len(MAGIC).to_bytes(8, "little") + next_file_name.encode("utf-8", "surrogateescape")


# --- GTID gaps ---

GtidSource = tuple[int, int]
LastGtidNumbers = dict[GtidSource, int]
_MAX_SHOWN = 8


def record_newest_gtid(state: LastGtidNumbers, domain: int, server_id: int, number: int) -> None:
    """Record a GTID as the newest of its domain: it moves to the end of the state, as in GTID_LIST."""
    state.pop((domain, server_id), None)
    state[domain, server_id] = number


def parse_mariadb_gtid(text: str) -> tuple[int, int, int]:
    """Parse a GTID's text into (domain, server, number)."""
    domain, server, number = map(int, text.split("-"))
    return domain, server, number


class GtidContinuity(msgspec.Struct):
    """Tracks GTID states and transactions of a log to find lost transactions.

    state: state after the transactions read so far; None before the first.
    """

    state: LastGtidNumbers | None = None
    _lost: list[tuple[str, int, int]] = msgspec.field(default_factory=list)
    _seen: dict[str, IntervalSet] = msgspec.field(default_factory=dict)
    _last: dict[int, int] = msgspec.field(default_factory=dict)
    _after_damage: bool = False
    _checked_domains: set[int] = msgspec.field(default_factory=set)

    def record_damage(self) -> None:
        """Record that bytes were skipped, which may have contained transactions."""
        self._after_damage = True
        self._checked_domains.clear()

    def record_unread_transaction(self, gtid: str) -> None:
        """Record a transaction whose GTID is known but which could not be read."""
        domain, server, number = parse_mariadb_gtid(gtid)
        self._lost.append((f"{domain}-{server}", number, number + 1))
        self._advance_state(domain, server, number)

    def list_lost_transactions(self) -> list[str]:
        """Return the transactions that are missing and did not appear later, by source: `0-1-5..7`."""
        missed: dict[str, IntervalSet] = {}
        for source, low, high in self._lost:
            for start, stop in subtract_intervals([(low, high)], list(self._seen.get(source, ()))):
                missed.setdefault(source, IntervalSet()).add_interval(start, stop)
        return [item for item in format_gtid_set(GtidSet(missed)).split(",") if item]

    def record_read_transaction(self, transaction: PortableEventGroup) -> None:
        """Record a transaction that was read; after damage, a gap before it counts as lost."""
        if transaction.txn is None:
            return
        domain, server, number = parse_mariadb_gtid(transaction.txn)
        self._seen.setdefault(f"{domain}-{server}", IntervalSet()).add_interval(number, number + 1)
        if self._after_damage and domain not in self._checked_domains:
            self._record_lost_range(domain, server, number - 1)
            self._checked_domains.add(domain)
        self._advance_state(domain, server, number)

    def compare_with_prior_gtids(self, prior_gtids: PriorGtids) -> Iterator[Finding]:
        """Compare a state in the log; yield a finding if it lists transactions that were not read."""
        if self.state is None:
            if prior_gtids.is_complete:
                for gtid in prior_gtids.gtids:
                    self._advance_state(*gtid)
            return
        before = len(self._lost)
        for domain, server, number in prior_gtids.gtids:
            if number > self.state.get((domain, server), 0):
                self._record_lost_range(domain, server, number)
                self._advance_state(domain, server, number)
        missed = [f"{source}-{low}..{high - 1}" for source, low, high in self._lost[before:]]
        if missed and not self._after_damage:
            text = f"transactions that the log lists are missing: {', '.join(missed[:_MAX_SHOWN])}"
            yield make_finding("gap-in-sequence", None, 0, text + (" …" if len(missed) > _MAX_SHOWN else ""))
        if prior_gtids.is_complete:
            self._after_damage = False

    def _record_lost_range(self, domain: int, server_id: int, number: int) -> None:
        first = self._last.get(domain, 0) + 1
        if first <= number:
            self._lost.append((f"{domain}-{server_id}", first, number + 1))

    def _advance_state(self, domain: int, server_id: int, number: int) -> None:
        self.state = {} if self.state is None else self.state
        record_newest_gtid(self.state, domain, server_id, number)
        self._last[domain] = number


# --- Digest of transactions ---

_MUTABLE_BYTES = slice(EVENT_SIZE_AT, FLAGS_AT)


class TransactionDigest(msgspec.Struct):
    """Counts, GTIDs, and a hash over all that a conversion must preserve: events without size, position and checksum.

    gtid_runs: GTIDs in log order: domain-server -> [first, last] of each run without gaps.
    """

    bundles: int = 0
    events: int = 0
    gtid_runs: dict[str, list[list[int]]] = msgspec.field(default_factory=dict)
    _hash: Any = msgspec.field(default_factory=hashlib.sha256)

    def add_transaction(self, transaction: PortableEventGroup) -> None:
        """Add the next transaction; FORMAT_DESCRIPTION events belong to the log format and are ignored."""
        events = [event for event in transaction.events if event[TYPE_AT] != EventType.FORMAT_DESCRIPTION]
        self.bundles += bool(events)
        self.events += len(events)
        if transaction.txn is not None:
            source, _, text = transaction.txn.rpartition("-")
            number, runs = int(text), self.gtid_runs.setdefault(source, [])
            if runs and runs[-1][1] + 1 == number:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        for event in events:
            self._hash.update(event[: _MUTABLE_BYTES.start] + event[_MUTABLE_BYTES.stop :])

    def list_gtids(self) -> list[str]:
        """Return a text like `0-1-5..42` for each run of GTIDs."""
        return [
            f"{source}-{format_range(low, high + 1, '..')}"
            for source, runs in self.gtid_runs.items()
            for low, high in runs
        ]

    @property
    def sha256(self) -> str:
        """SHA-256 of the events so far."""
        return str(self._hash.hexdigest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionDigest) and self._comparison_key == other._comparison_key

    @property
    def _comparison_key(self) -> tuple[Any, ...]:
        return self.bundles, self.events, self.gtid_runs, self.sha256


# --- Writer of MariaDB binary logs ---

DEFAULT_MAX_FILE_SIZE = 1024 * MIB
"""Default max_binlog_size of the servers, in bytes."""

_ROTATE_FIELD_BYTES = 8


class WrittenBinlogFile(msgspec.Struct, frozen=True):
    """One written file: its name, its number of transactions, its size in bytes."""

    name: str
    bundles: int
    size: int


class BinlogWriter(msgspec.Struct):
    """Writes the files `folder`/`base`.000001 and so on.

    max_file_bytes: maximum size of a file in bytes; only a file with a single transaction may be larger. state: last
    GTIDs before the next transaction, for GTID_LIST.
    """

    folder: Path
    base: str
    max_file_bytes: int = DEFAULT_MAX_FILE_SIZE
    state: LastGtidNumbers = msgspec.field(default_factory=dict)
    written: list[WrittenBinlogFile] = msgspec.field(default_factory=list)
    _description: FormatDescription = DEFAULT_DESCRIPTION
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

    def write_transaction(self, transaction: PortableEventGroup) -> None:
        """Write the next transaction, or use a FORMAT_DESCRIPTION."""
        rest = transaction.events
        if rest[0][TYPE_AT] == EventType.FORMAT_DESCRIPTION:
            self._use_description(rest[0])
            rest = rest[1:]
        if rest:
            self._open_file_for_transaction(sum(map(len, rest)) + CHECKSUM_SIZE * len(rest), rest[0])
            for event in rest:
                self._write_event(event)
            self._transactions_in_file += 1
        if transaction.txn is not None:
            record_newest_gtid(self.state, *parse_mariadb_gtid(transaction.txn))

    def _use_description(self, event: bytes) -> None:
        """Use the FORMAT_DESCRIPTION of another server, or of a restart; it starts a new file."""
        parsed = parse_format_description(event)
        new = make_description_for_new_file(parsed, 0)
        old = self._description
        self._created = parsed.create_timestamp
        if parsed.create_timestamp or (new.server_version, new.post_header_len) != (
            old.server_version, old.post_header_len,
        ):  # fmt: skip
            self._restarted = True
        self._description = new

    def _open_file_for_transaction(self, size: int, first: bytes) -> None:
        """Open the file to which the next `size` bytes belong."""
        is_full = self._offset + size + self._rotate_size > self.max_file_bytes
        if self._file is not None and self._transactions_in_file and (is_full or self._restarted):
            body = encode_rotate_body(self._numbered_name(len(self.written) + 2))
            self._complete_file(encode_event(EventType.ROTATE, self._time, self._server, body))
        self._time = int.from_bytes(first[:4], "little") or self._time
        self._server = int.from_bytes(first[5:9], "little") or self._server
        if self._file is None:
            self._start_new_file()

    def _start_new_file(self) -> None:
        """Create the next numbered file with magic, FORMAT_DESCRIPTION, GTID_LIST and BINLOG_CHECKPOINT."""
        self._file = (self.folder / self._file_name).open("xb")
        self._file.write(MAGIC)
        self._offset, self._transactions_in_file = len(MAGIC), 0
        description = make_description_for_new_file(self._description, self._created)
        self._write_new_event(EventType.FORMAT_DESCRIPTION, encode_description_body(description))
        gtids = ((domain, server, number) for (domain, server), number in self.state.items())
        self._write_new_event(EventType.GTID_LIST, encode_gtid_list_body(gtids))
        self._write_new_event(EventType.BINLOG_CHECKPOINT, encode_checkpoint_body(self._file_name))
        self._restarted, self._created = False, 0

    def complete_and_write_index(self) -> None:
        """Complete the last file, and write the index."""
        if self._file is None:
            self._start_new_file()
        self._complete_file(encode_event(EventType.STOP, self._time, self._server, b""))
        lines = "".join(f"./{one.name}\n" for one in self.written)
        (self.folder / f"{self.base}.index").write_bytes(lines.encode("utf-8", "surrogateescape"))

    def abandon(self) -> None:
        """Close the open file without completing it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _complete_file(self, last_event: bytes) -> None:
        assert self._file is not None
        self._write_event(last_event)
        self._file.close()
        self.written.append(WrittenBinlogFile(self._file_name, self._transactions_in_file, self._offset))
        self._file = None

    def _write_new_event(self, type_code: EventType, body: bytes) -> None:
        self._write_event(encode_event(type_code, self._time, self._server, body))

    def _write_event(self, event: bytes) -> None:
        assert self._file is not None
        self._offset += self._file.write(add_position_and_checksum(event, self._offset))

    @property
    def _rotate_size(self) -> int:
        return HEADER_SIZE + _ROTATE_FIELD_BYTES + len(self._file_name) + CHECKSUM_SIZE

    @property
    def _file_name(self) -> str:
        """Name of the current or next file."""
        return self._numbered_name(len(self.written) + 1)

    def _numbered_name(self, number: int) -> str:
        return f"{self.base}.{number:06d}"
