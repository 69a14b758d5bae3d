"""Read event groups: a COMMIT record, its out-of-band data, and the events in commit order.

See docs/spec/mariadb_innodb_binlog.md#commit, #out-of-band-data and #payload-events. The record says where a group
ends, so `binlog_events.transactions.boundaries` is not used here: it is only checked that the events are one
transaction, or a single statement, as their GTID event says.

The shape of a forest of out-of-band data follows from the number of its nodes. Node i has height 1 (a leaf), or is the
parent of the last two trees if these have the same height; in both cases its right link leads to node i - 1. So the
right links alone give all positions, from the last node to the first, each position smaller than the one before; the
left links must agree with them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from copy import copy
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.layout import Batch, ColumnTable, Kernel, RecordPositions, zeroed_int64
from binlogtool.format_api.schema_fields import (
    Int64s,
    MalformedError,
    MutableInt64s,
    UInt8s,
    kernel,
    load_int64,
    load_uint32,
    make_unpacker,
)
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.decode import (
    NO_RECORD,
    NO_TRANSACTION,
    EventTracker,
    OwningTransaction,
    TableMaps,
    TrackedBatch,
)
from binlogtool.formats.binlog_events.decode import BinlogFileContext as EventContext
from binlogtool.formats.binlog_events.event_schemas import SCAN_COLUMNS, XID, load_xid
from binlogtool.formats.binlog_events.gtid.gtid_events import DOMAIN_ID, FLAGS2, SEQ_NO, read_mariadb_number
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.transactions.boundaries import STANDALONE
from binlogtool.formats.binlog_events.transactions.boundaries import TransactionGroupState as Transactions
from binlogtool.formats.binlog_events.wire_format import (
    CHECKSUM_SIZE,
    DELETE_COMPRESSED_V2,
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    END_LOG_POS_AT,
    EVENT_SIZE_AT,
    GTID,
    HEADER_SIZE,
    QUERY,
    QUERY_COMPRESSED,
    ROW_EVENTS,
    SERVER_ID_AT,
    TYPE_AT,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
    ChecksumAlgorithm,
    EventType,
    FormatDescription,
    load_header,
    parse_format_description,
    supports_checksums,
)
from binlogtool.formats.binlog_events.wire_format import XID as XID_EVENT
from binlogtool.formats.mariadb_innodb_binlog.records.join_chunks_to_records import RecordAssembler
from binlogtool.formats.mariadb_innodb_binlog.records.parse_records import (
    NO_POSITION,
    CommitRecord,
    IbbGtid,
    IbbPosition,
    OobNode,
    OobReference,
    PageStore,
    RecordBytes,
    UnreadableError,
    parse_commit_header,
    parse_oob_node_header,
)
from binlogtool.formats.mariadb_innodb_binlog.schema import (
    EVENT,
    IbbFileContext,
    IbbRecordType,
    read_compressed_integer,
)

# --- COMMIT records and their event groups ---

FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_COMMIT = int(IbbRecordType.COMMIT)
_unpack_event_head = make_unpacker(EVENT, "timestamp", "type_code", "server_id")
_XID_END = HEADER_SIZE + XID.sizeof()
_INT63_MASK = (1 << 63) - 1
_NUMBERS_PER_COMMIT = 10


class GroupFirstEvent(NamedTuple):
    """First event of a group; None = unknown.

    `time`: microseconds since 1970.
    """

    type_code: int | None
    gtid: IbbGtid | None
    time: int | None
    server_id: int | None


NO_GROUP_HEAD = GroupFirstEvent(None, None, None, None)


def read_first_event(data: RecordBytes, offset: int) -> GroupFirstEvent:
    """Read the header and GTID of the event at `data[offset]`."""
    if len(data) < offset + HEADER_SIZE:
        return NO_GROUP_HEAD
    second, code, server = _unpack_event_head(data, offset)
    time = second * 1_000_000 if second else None
    body = offset + HEADER_SIZE
    if code != GTID or len(data) < body + FLAGS2:
        return GroupFirstEvent(code, None, time, server)
    domain, seq_no = read_mariadb_number(bytes(data[body : body + FLAGS2]))
    return GroupFirstEvent(code, IbbGtid(domain, server, seq_no), time, server)


def read_gtid_flags(data: RecordBytes, offset: int) -> int:
    """Read the flags of the GTID event at `data[offset]`; 0 if there is no such event."""
    end = offset + HEADER_SIZE + FLAGS2
    return data[end] if len(data) > end and data[offset + TYPE_AT] == GTID else 0


def read_commit_head(data: RecordBytes) -> GroupFirstEvent:
    """Read the first event in a COMMIT record."""
    try:
        return read_first_event(data, parse_commit_header(data).payload_at)
    except MalformedError:
        return NO_GROUP_HEAD


# -- batches -----------------------------------------------------------------------------------------------------------


@kernel(load_uint32)
def count_events_and_find_xid(buf: UInt8s, pos: int, limit: int) -> tuple[int, int, int, int]:
    """Walk the consecutive events in `buf[pos:limit]`.

    Returns:
        (number of events, position of the first event that does not fit or `limit`, position of the first XID event or
        -1, number of statements and row events).
    """
    events = 0
    xid_at = -1
    changes = 0
    while limit - pos >= HEADER_SIZE:
        size = load_uint32(buf, pos + EVENT_SIZE_AT)
        if size < HEADER_SIZE or size > limit - pos:
            return events, pos, xid_at, changes
        code = buf[pos + TYPE_AT]
        if code == XID_EVENT and xid_at < 0:
            xid_at = pos
        if (
            code == QUERY
            or WRITE_ROWS_V1 <= code <= DELETE_ROWS_V1
            or WRITE_ROWS_V2 <= code <= DELETE_ROWS_V2
            or QUERY_COMPRESSED <= code <= DELETE_COMPRESSED_V2
        ):
            changes += 1
        events += 1
        pos += size
    return events, pos, xid_at, changes


@kernel(load_uint32, load_int64, load_xid, read_compressed_integer, count_events_and_find_xid)
def write_and_count_commit_numbers(
    buf: UInt8s, count: int, codes: Int64s, lows: Int64s, highs: Int64s, out: MutableInt64s
) -> int:
    """Write ten numbers per COMMIT record to `out` (see `CommitNumbers`); return the number of COMMIT records."""
    commit_count = 0
    for i in range(count):
        if codes[i] != _COMMIT:
            continue
        low = lows[i]
        high = highs[i]
        out_at = _NUMBERS_PER_COMMIT * commit_count
        commit_count += 1
        out[out_at] = i
        for k in range(1, _NUMBERS_PER_COMMIT):
            out[out_at + k] = 0
        nodes, pos = read_compressed_integer(buf, low, high)
        out[out_at + 1] = nodes
        if pos < 0 or nodes != 0:
            out[out_at + 2] = -1
            continue
        out[out_at + 2] = pos - low
        if high - pos < HEADER_SIZE:
            continue
        out[out_at + 3] = buf[pos + TYPE_AT]
        events, end, xid_at, changes = count_events_and_find_xid(buf, pos, high)
        out[out_at + 4] = events if end == high else -1
        out[out_at + 5] = load_uint32(buf, pos + SERVER_ID_AT)
        if xid_at >= 0 and high - xid_at >= _XID_END:
            xid, _end = load_xid(buf, xid_at + HEADER_SIZE, high)
            out[out_at + 8] = xid & _INT63_MASK
            out[out_at + 9] = high - xid_at - _XID_END
        body = pos + HEADER_SIZE
        is_gtid = buf[pos + TYPE_AT] == GTID
        if is_gtid and high > body + FLAGS2 and buf[body + FLAGS2] & STANDALONE and (xid_at >= 0 or changes > 1):
            out[out_at + 9] = 1
        if is_gtid and high >= body + FLAGS2:
            out[out_at + 6] = load_uint32(buf, body + DOMAIN_ID)
            out[out_at + 7] = load_int64(buf, body + SEQ_NO)
    return commit_count


class CommitNumbers(NamedTuple):
    """Facts about a COMMIT record of a batch.

    `record_index`: index in the batch. `payload_at`: offset of its events; -1 = the header is malformed, or there is
    out-of-band data, so nothing else is known. `type_code`: type of the first event. `events`: number of events; -1 =
    they do not fill the payload exactly. `seq_no`: -1 without a GTID event. `xid`: number in the first XID event; 0 =
    none. `joined`: not 0 = the group is neither one transaction nor a single statement: events follow its XID, or there
    are several statements although its GTID event has the flag STANDALONE.
    """

    record_index: int
    nodes: int
    payload_at: int
    type_code: int
    events: int
    server_id: int
    domain_id: int
    seq_no: int
    xid: int = 0
    joined: int = 0

    @property
    def gtid(self) -> IbbGtid | None:
        """GTID of the group; None without a GTID event."""
        return IbbGtid(self.domain_id, self.server_id, self.seq_no & _U64) if self.type_code == GTID else None


_U64 = (1 << 64) - 1


class CommitScanner:
    """Runs `write_and_count_commit_numbers` over batches."""

    def __init__(self, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._run = compile_kernel(write_and_count_commit_numbers)
        self._out = array("q")

    def iter_commit_numbers(self, batch: Batch) -> Iterator[CommitNumbers]:
        """Yield facts about the COMMIT records of a batch, in order."""
        count = batch.frames.count
        if len(self._out) < _NUMBERS_PER_COMMIT * count:
            self._out = array("q", bytes(8 * _NUMBERS_PER_COMMIT * count))
        columns = [batch.frames[name] for name in ("type_code", "offset", "end")]
        commit_count = int(self._run(batch.window, count, *columns, self._out))
        numbers = self._out[: _NUMBERS_PER_COMMIT * commit_count].tolist()
        return (
            CommitNumbers(*numbers[at : at + _NUMBERS_PER_COMMIT]) for at in range(0, len(numbers), _NUMBERS_PER_COMMIT)
        )


# --- Check, piece by piece, that events fill a group ---

_unpack_size = make_unpacker(EVENT, "event_size")
CHANGE_EVENTS = frozenset((EventType.QUERY, EventType.QUERY_COMPRESSED, *ROW_EVENTS))
_XID = int(EventType.XID)
_unpack_xid = make_unpacker(XID, "xid")


class EventTilingChecker(msgspec.Struct):
    """Checks that the events of a group fill its bytes exactly; the bytes are added in pieces.

    `events`: complete headers so far. `is_broken`: an impossible event size was found. `xid`: number in the first XID
    event; 0 = none so far. `after_xid`: events after the XID event. `changes`: statements, and events with rows.
    """

    events: int = 0
    is_broken: bool = False
    xid: int = 0
    after_xid: int = 0
    changes: int = 0
    _skip: int = 0
    _head: bytearray = msgspec.field(default_factory=bytearray)

    def check_next_bytes(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        offset, size = 0, len(data)
        while offset < size and not self.is_broken:
            if self._skip:
                step = min(self._skip, size - offset)
                self._skip -= step
                offset += step
                continue
            step = min(self._head_size - len(self._head), size - offset)
            self._head += data[offset : offset + step]
            offset += step
            if len(self._head) == self._head_size:
                self._process_head()

    @property
    def _head_size(self) -> int:
        """Number of bytes of the current event that are inspected: its header, or the whole of an XID event."""
        return _XID_END if len(self._head) > TYPE_AT and self._head[TYPE_AT] == _XID else END_LOG_POS_AT

    def _process_head(self) -> None:
        length = _unpack_size(self._head)[0]
        self.is_broken = length < max(HEADER_SIZE, len(self._head))
        self._skip = length - len(self._head)
        self.events += 1
        self.after_xid += bool(self.xid)
        self.changes += self._head[TYPE_AT] in CHANGE_EVENTS
        if len(self._head) == _XID_END and not self.xid:
            self.xid = _unpack_xid(self._head, HEADER_SIZE)[0]
        self._head.clear()

    @property
    def has_several_statements(self) -> bool:
        """True if the group has more than one statement that is complete by itself."""
        return self.xid > 0 or self.changes > 1

    @property
    def is_complete(self) -> bool:
        """True if the last event ended with the last byte."""
        return not self.is_broken and not self._skip and not self._head


# --- Out-of-band data ---

_MAX_HEADER_AND_BYTE = 46
"""Size of the longest node header plus one byte of data."""

NODE_COST = 128
"""Number of bytes that each node adds to the size of a group in addition to its data, for the size limit."""

_OOB_DATA = IbbRecordType.OOB_DATA


class OobForest:
    """Tree of out-of-band records of one commit: checks links and order; `iter_pieces` reads the data.

    Attributes:
        problem: what is wrong although all nodes are present.
        nodes: number of nodes.

    Args:
        before: position of the record with the reference; all nodes must be before it.
        max_bytes: size limit of a group in bytes.

    Raises:
        UnreadableError: a node is missing, invalid, or not where the shape demands it; `oob-too-large`: over the limit.
    """

    def __init__(self, store: PageStore, reference: OobReference, before: IbbPosition, max_bytes: int) -> None:
        self._store = store
        self._links_flat = array("Q")
        self.reference = reference
        self.problem: UnreadableError | None = None
        last = reference.last
        if not last or last >= before:
            raise UnreadableError(f"the last out-of-band node at {last} is not before {before}", "oob-shape")
        self.nodes = read_oob_node_header(store, last).node_index + 1
        if self.nodes * NODE_COST > max_bytes:
            text = f"{self.nodes:,} nodes of out-of-band data are more than the ceiling of {max_bytes:,} bytes allows"
            raise UnreadableError(text, "oob-too-large")
        if self.nodes != reference.nodes:
            node_text = f"the last out-of-band node at {last} has index {self.nodes - 1}"
            text = f"{node_text}, the reference has {reference.nodes} nodes"
            self.problem = UnreadableError(text, "oob-shape")
        self._follow_right_links(before)
        self._check_left_links()

    def node_place(self, index: int) -> IbbPosition:
        """Return the position of a node."""
        at = 4 * (self.nodes - 1 - index)
        return IbbPosition(self._links_flat[at], self._links_flat[at + 1])

    def iter_places(self) -> Iterator[IbbPosition]:
        """Yield the positions of the nodes, by index."""
        return map(self.node_place, range(self.nodes))

    def iter_pieces(self) -> Iterator[memoryview]:
        """Yield the data in order, chunk by chunk; raise UnreadableError if a record is incomplete."""
        for place in self.iter_places():
            # The data of the node at a position, without its header
            store = self._store
            head = b""
            skipped = False
            for piece in store.iter_record_pieces(place, _OOB_DATA):
                if skipped:
                    yield piece
                    continue
                head += piece
                if len(head) >= _MAX_HEADER_AND_BYTE:
                    yield memoryview(head)[parse_oob_node_header(head).data_at :]
                    skipped = True
            if not skipped:
                yield memoryview(head)[parse_oob_node_header(head).data_at :]

    def _follow_right_links(self, before: IbbPosition) -> None:
        """Follow the right links from the last node to the first."""
        place, above = self.reference.last, before
        for index in range(self.nodes - 1, -1, -1):
            if not place:
                raise UnreadableError(f"out-of-band node {index} is not linked", "oob-shape")
            if place >= above:
                raise UnreadableError(f"out-of-band node {index} at {place} is not before {above}", "oob-shape")
            node = read_oob_node_header(self._store, place)
            if node.node_index != index:
                text = f"the out-of-band node at {place} has index {node.node_index}, expected {index}"
                raise UnreadableError(text, "oob-shape")
            self._links_flat.extend((*place, *node.left))
            place, above = node.right, place
        if place:
            raise UnreadableError(f"the first out-of-band node at {above} has a link to {place}", "oob-shape")
        if above != self.reference.first:
            text = f"the first out-of-band node is at {above}, the reference says {self.reference.first}"
            raise UnreadableError(text, "oob-shape")

    def _check_left_links(self) -> None:
        """Check that the left links agree with the shape."""
        heights: list[int] = []
        for index in range(self.nodes):
            expected = NO_POSITION
            if len(heights) > 1 and heights[-1] == heights[-2]:
                height = heights.pop()
                heights[-1] += 1
                expected = self.node_place(index - (1 << height))
            else:
                heights.append(1)
            at = 4 * (self.nodes - 1 - index)
            left = IbbPosition(self._links_flat[at + 2], self._links_flat[at + 3])
            if left != expected:
                if left:
                    read_oob_node_header(self._store, left)  # raises an error if there is no node
                text = f"out-of-band node {index} has the left link {left}, the shape demands {expected}"
                raise UnreadableError(text, "oob-shape")


def read_oob_node_header(store: PageStore, position: IbbPosition) -> OobNode:
    """Read the header of the node at a position; raise UnreadableError if there is none."""
    head = b""
    for piece in store.iter_record_pieces(position, _OOB_DATA):
        head += piece[:_MAX_HEADER_AND_BYTE]
        if len(head) >= _MAX_HEADER_AND_BYTE:
            break
    try:
        return parse_oob_node_header(head)
    except MalformedError as error:
        raise UnreadableError(f"the out-of-band node at {position}: {error.args[0]}", "oob-shape") from None


# --- Event groups ---

FINDING_IDS = {"oob-too-large": "inflate-limit", "oob-shape": "payload-undecodable"}
"""Finding ids by diagnosis; all other diagnoses use dangling-reference."""


class EventGroup(msgspec.Struct, frozen=True):
    """One event group.

    `position`: position of its COMMIT record. `size`: bytes of the COMMIT record in the file. `record`: number of the
    COMMIT record in the file. `head`: its first event. `references`: references to its out-of-band data.
    `payload_size`: bytes of `data` that are in the COMMIT record. `data`: all events, consecutive, without checksums.
    `problem`: what is wrong although all data is present.
    """

    position: IbbPosition
    size: int
    record: int
    head: GroupFirstEvent
    references: tuple[OobReference, ...]
    payload_size: int
    data: bytes
    problem: Finding | None = None

    @property
    def gtid(self) -> IbbGtid | None:
        """GTID of the group; None for a FORMAT_DESCRIPTION that a restart wrote."""
        return self.head.gtid


class CommitGroupReader:
    """Reads the groups of one file; caches a few pages, so use one reader per file."""

    def __init__(self, context: IbbFileContext, store: PageStore | None = None) -> None:
        self._context = context
        self.store = store or PageStore(context)

    def read_group(self, batch: Batch, index: int) -> EventGroup | Finding:
        """Read the group of COMMIT record `index` of a batch."""
        assert batch.positions is not None
        offset, size = int(batch.positions[0][index]), int(batch.positions[1][index])
        record = batch.first_record + index
        low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
        data = batch.window[low:high]
        try:
            commit = parse_commit_header(data)
        except MalformedError as error:
            text = f"{error.args[0]}"
            return make_finding(error.finding_id, offset, size, text, record=record, diagnosis="commit-malformed")
        position = IbbPosition(self._context.number or 0, offset)
        head = read_first_event(data, commit.payload_at)
        try:
            all_data, forest_problem = self._join_payload_and_oob_data(data, commit, position)
        except UnreadableError as error:
            return report_unreadable_group(error, offset, size, record, head)
        problem = (
            None if forest_problem is None else report_unreadable_group(forest_problem, offset, size, record, head)
        )
        payload_size = len(data) - commit.payload_at
        return EventGroup(position, size, record, head, commit.references, payload_size, all_data, problem)

    def _join_payload_and_oob_data(
        self, commit_bytes: memoryview, commit: CommitRecord, position: IbbPosition
    ) -> tuple[bytes, UnreadableError | None]:
        """Return all events of a group, and what is wrong with its out-of-band data although all of it is present."""
        joined, max_bytes = bytearray(commit_bytes[commit.payload_at :]), self._context.max_group
        problem = None
        for reference in commit.references:
            forest = OobForest(self.store, reference, position, max_bytes)
            problem = problem or forest.problem
            for piece in forest.iter_pieces():
                joined += piece
                if len(joined) > max_bytes:
                    raise UnreadableError(f"a group of more than {max_bytes:,} bytes", "oob-too-large")
        return bytes(joined), problem


def report_unreadable_group(
    error: UnreadableError, offset: int, size: int, record: int, head: GroupFirstEvent
) -> Finding:
    """Create the finding about a COMMIT record whose out-of-band data cannot be read."""
    finding_id = FINDING_IDS.get(error.diagnosis, "dangling-reference")
    hint = "; --max inflate=SIZE raises it" if error.diagnosis == "oob-too-large" else ""
    text = f"{error.diagnosis}: {error}{hint}"
    gtid = None if head.gtid is None else str(head.gtid)
    return make_finding(finding_id, offset, size, text, record=record, diagnosis=error.diagnosis, gtid=gtid)


# --- Events of groups without out-of-band data ---

EVENT_COLUMNS = ("offset", "end", "checksum", *SCAN_COLUMNS)
"""Names of the columns of events; events have no checksums."""

_OFFSET, _END, _, _TIME, _TYPE, _SERVER, _SIZE, _POSITION, _FLAGS, _BODY_START, _BODY_END, _ = range(len(EVENT_COLUMNS))
_FIRST_PLACE_COLUMN = len(EVENT_COLUMNS)
"""Index of the first `RecordPlaces` column; these columns follow the event columns."""
_MAX_BATCH_EVENTS = 1 << 14
"""Maximum number of events in a batch."""


@kernel(load_header)
def append_group_event_columns(buf: UInt8s, pos: int, limit: int, out: MutableInt64s, event_index: int) -> int:
    """Append the events in `buf[pos:limit]` to the columns, from row `event_index` on.

    Returns:
        Number of events after the last one; -1 = the bytes are not only events, the columns are full, or there is a
        FORMAT_DESCRIPTION.
    """
    while pos < limit:
        if limit - pos < HEADER_SIZE or event_index == _MAX_BATCH_EVENTS:
            return -1
        time, code, server, size, position, flags, _body = load_header(buf, pos, limit)
        if size < HEADER_SIZE or size > limit - pos or code == FORMAT_DESCRIPTION:
            return -1
        out[_MAX_BATCH_EVENTS * _OFFSET + event_index] = pos
        out[_MAX_BATCH_EVENTS * _END + event_index] = pos + size
        out[_MAX_BATCH_EVENTS * _TIME + event_index] = time
        out[_MAX_BATCH_EVENTS * _TYPE + event_index] = code
        out[_MAX_BATCH_EVENTS * _SERVER + event_index] = server
        out[_MAX_BATCH_EVENTS * _SIZE + event_index] = size
        out[_MAX_BATCH_EVENTS * _POSITION + event_index] = position
        out[_MAX_BATCH_EVENTS * _FLAGS + event_index] = flags
        out[_MAX_BATCH_EVENTS * _BODY_START + event_index] = pos + HEADER_SIZE
        out[_MAX_BATCH_EVENTS * _BODY_END + event_index] = pos + size
        event_index += 1
        pos += size
    return event_index


@kernel(append_group_event_columns, read_compressed_integer)
def unfold_groups_until_unsupported(
    buf: UInt8s, record: int, count: int, codes: Int64s, lows: Int64s, highs: Int64s, places: Int64s, sizes: Int64s,
    first_record: int, out: MutableInt64s,
) -> tuple[int, int]:  # fmt: skip
    """Read the events of the groups from `record` on; return (first group for the general path, events read)."""
    event_count = 0
    while record < count:
        if codes[record] == _COMMIT:
            nodes, pos = read_compressed_integer(buf, lows[record], highs[record])
            if pos < 0 or nodes != 0:
                return record, event_count
            group_end = append_group_event_columns(buf, pos, highs[record], out, event_count)
            if group_end < 0:
                return record, event_count
            while event_count < group_end:
                out[_MAX_BATCH_EVENTS * _FIRST_PLACE_COLUMN + event_count] = places[record]
                out[_MAX_BATCH_EVENTS * (_FIRST_PLACE_COLUMN + 1) + event_count] = sizes[record]
                out[_MAX_BATCH_EVENTS * (_FIRST_PLACE_COLUMN + 2) + event_count] = first_record + record
                out[_MAX_BATCH_EVENTS * (_FIRST_PLACE_COLUMN + 3) + event_count] = pos
                event_count += 1
        record += 1
    return count, event_count


class GroupWithoutOobReader:
    """Runs `unfold_groups_until_unsupported` over batches."""

    def __init__(self, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._run = compile_kernel(unfold_groups_until_unsupported)
        self._out = zeroed_int64(_MAX_BATCH_EVENTS * (len(EVENT_COLUMNS) + len(RecordPositions._fields)))

    def unfold_next_groups(self, batch: Batch, first_record_index: int) -> tuple[Batch | None, int]:
        """Read the events of the groups from record `first_record_index` on; return (events, first group for the
        general path).
        """
        assert batch.positions is not None
        record_columns = [batch.frames[name] for name in ("type_code", "offset", "end")]
        next_record, count = self._run(
            batch.window,
            first_record_index,
            batch.frames.count,
            *record_columns,
            *batch.positions[:2],
            batch.first_record,
            self._out,
        )
        columns = [self._out[start : start + count] for start in range(0, len(self._out), _MAX_BATCH_EVENTS)]
        frames = dict(zip(EVENT_COLUMNS, columns, strict=False))
        return make_event_batch(
            batch.window, frames, RecordPositions(*columns[_FIRST_PLACE_COLUMN:])
        ) if count else None, next_record


def make_event_batch(window: memoryview, frames: dict[str, Any], places: RecordPositions) -> Batch:
    """Create a batch of events."""
    assert places.record is not None
    first = int(places.record[0])
    table = ColumnTable(len(places.offset), frames)
    return Batch(0, window, table, window, None, (), (), first, first, positions=places)


# --- Level `event` ---

_unpack_event_header = make_unpacker(EVENT, "timestamp", "type_code", "server_id", "event_size", "end_log_pos", "flags")
_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)

DESCRIPTION_KEY = "mariadb-innodb-binlog.description"
"""Key under which the files of a log share the current FORMAT_DESCRIPTION."""

DEFAULT_DESCRIPTION = FormatDescription(4, "12.3.0-MariaDB", 0, HEADER_SIZE, b"", ChecksumAlgorithm.NONE.value)
"""FORMAT_DESCRIPTION to assume if the log has none: an empty log begins without it."""


class _GroupTracker(EventTracker):
    """Tracks transactions and table maps of groups, each group independently.

    Only definitions of tables are carried from one group to the next. `owner` is that of the group's first event: a
    group may hold several events that are complete by themselves.
    """

    _batch: Batch | None = None

    def track_batch(self, batch: Batch) -> TrackedBatch:
        """Return the owners and table maps of the events of complete groups."""
        if batch is not self._batch:
            self.container_record = NO_RECORD
            self._last_notes = (
                self.compiled_tracker(batch)
                if self.compiled_tracker
                else self.track_records(batch, 0, batch.frames.count)
            )
            self._batch = batch
        return self._last_notes

    def track_records(self, batch: Batch, start: int, stop: int) -> TrackedBatch:
        """Return the transaction and the table map of each of the events `[start, stop)`."""
        owners, maps = list[OwningTransaction](), list[TableMap | None]()
        for group, events in groupby(batch.record_numbers(start, stop)):
            stop, owner, begins = start + len(list(events)), self.current_transaction, group != self.container_record
            if begins:
                self.container_record, self.transactions, self.current_transaction = (
                    group,
                    Transactions(),
                    NO_TRANSACTION,
                )
                self.maps.forget_all_maps()
            group_owners, group_maps = super().track_records(batch, start, stop)
            self.current_transaction = group_owners[0] if begins else owner
            owners += [self.current_transaction] * len(group_owners)
            maps += group_maps
            start = stop
        return TrackedBatch(owners, maps)

    def copy(self) -> _GroupTracker:
        """Return an independent copy."""
        return _make_tracker(None if self.maps.history is None else self.maps.history.copy())


def _make_tracker(history: TableHistory | None) -> _GroupTracker:
    return _GroupTracker(maps=TableMaps(6, is_mariadb=True, history=history), container_record=NO_RECORD)


class GroupEventDecoder:
    """Describes and decodes the events of one file's groups."""

    def __init__(self, context: IbbFileContext) -> None:
        history = None if context.hints.as_stored else TableHistory(context.hints.schema, context.earlier)
        if history is not None and context.declared:
            history.import_state(context.declared)
        tracker = _make_tracker(history)
        description = context.shared.get(DESCRIPTION_KEY, DEFAULT_DESCRIPTION)
        self.context = EventContext(description, tracker, events_at=0, name=context.name, hints=context.hints)
        self._shared = context.shared

    def fork(self) -> GroupEventDecoder:
        """Return an independent copy."""
        clone = copy(self)
        clone.context = replace(self.context, tracker=self.context.tracker.copy())
        clone._shared = dict(self._shared)
        return clone

    def set_description(self, description: FormatDescription) -> None:
        """Set the FORMAT_DESCRIPTION that a starting server wrote; it applies to all later groups."""
        self.context.description = self._shared[DESCRIPTION_KEY] = description

    def add_gap(self) -> None:
        """Handle a gap: groups are missing, which may include DDL statements."""
        self.context.tracker.reset()


class EventAssembler:
    """`Assembler` of the events of groups, from their COMMIT records.

    A batch has the events of many groups without out-of-band data, or of one group with out-of-band data.
    """

    def __init__(self, context: IbbFileContext, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._records = RecordAssembler(context, compile_kernel)
        self._groups, self._plain_groups = CommitGroupReader(context), GroupWithoutOobReader(compile_kernel)
        self.events = context.events = GroupEventDecoder(context)

    @property
    def next_number(self) -> int:
        """Number of the next record."""
        return self._records.next_number

    def assemble(self, batch: Batch) -> Iterator[Batch | Finding]:
        """Yield the events of the groups whose COMMIT records end in these pages."""
        yield from self._convert_records(self._records.assemble(batch))

    def skip_damage(self, start: int, end: int) -> Iterator[Batch | Finding]:
        """Yield the events of groups whose COMMIT records end before the skipped pages."""
        yield from self._convert_records(self._records.skip_damage(start, end))
        self.events.add_gap()

    def finish(self) -> Iterator[Batch | Finding]:
        """Yield the events of the group whose COMMIT record continues in the next file."""
        yield from self._convert_records(self._records.finish())

    def _convert_records(self, batches: Iterator[Batch | Finding]) -> Iterator[Batch | Finding]:
        for item in batches:
            if isinstance(item, Finding):
                yield self._note_missing_group(item)
            else:
                yield from self._convert_batch(item)

    def _convert_batch(self, records: Batch) -> Iterator[Batch | Finding]:
        index = 0
        while index < records.frames.count:
            events, index = self._plain_groups.unfold_next_groups(records, index)
            if events is not None:
                yield events
            if index < records.frames.count:
                group = self._groups.read_group(records, index)
                yield from (
                    [self._note_missing_group(group)] if isinstance(group, Finding) else self.iter_group_events(group)
                )
                index += 1

    def _note_missing_group(self, problem: Finding) -> Finding:
        if problem.severity is Severity.ERROR:
            self.events.add_gap()
        return problem

    def iter_group_events(self, group: EventGroup) -> Iterator[Batch | Finding]:
        """Yield the events of a group, and findings about them."""
        if group.problem is not None:
            yield group.problem
        columns, end = self._event_columns(group.data)
        count = len(columns["offset"])
        if count:
            places = RecordPositions(*([one] * count for one in (group.position.offset, group.size, group.record, 0)))
            yield make_event_batch(memoryview(group.data), columns, places)
        if end < len(group.data):
            text = f"{len(group.data) - end:,} bytes after event {count} of the group are not an event"
            problem = make_finding(
                "payload-undecodable", group.position.offset, group.size, text, record=group.record,
                diagnosis="event-misaligned", inner_offset=end,
            )  # fmt: skip
            yield self._note_missing_group(problem)

    def _event_columns(self, data: bytes) -> tuple[dict[str, array[int]], int]:
        """Return the consecutive events in the bytes as columns, and the position where they end."""
        columns = {name: array("q") for name in EVENT_COLUMNS}
        append_to = [columns[name].append for name in EVENT_COLUMNS]
        offset, size = 0, len(data)
        while size - offset >= HEADER_SIZE:
            time, code, server, length, position, flags = _unpack_event_header(data, offset)
            if not HEADER_SIZE <= length <= size - offset:
                break
            end = offset + length
            stop = (
                end - self._apply_description_and_get_checksum_size(data[offset:end])
                if code == _FORMAT_DESCRIPTION
                else end
            )
            values = (offset, end, 0, time, code, server, length, position, flags, offset + HEADER_SIZE, stop, 0)
            for append, value in zip(append_to, values, strict=True):
                append(value)
            offset = end
        return columns, offset

    def _apply_description_and_get_checksum_size(self, event: bytes) -> int:
        """Apply a FORMAT_DESCRIPTION; return the size of the checksum after it."""
        try:
            description = parse_format_description(event)
        except MalformedError:
            return 0
        self.events.set_description(description)
        return CHECKSUM_SIZE if supports_checksums(description.server_version) else 0
