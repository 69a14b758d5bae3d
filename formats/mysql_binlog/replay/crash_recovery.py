"""Predict crash recovery: how the server reads its newest log and decides on prepared transactions.

MariaDB (`TC_LOG_BINLOG::recover`) and MySQL (`binlog::Binlog_recovery`) verify checksums only with
master_verify_checksum or source_verify_checksum, which are off by default. So a damaged event is used as long as its
length and body can be read.

MySQL truncates the newest file after the last complete transaction; MariaDB leaves it and starts a new one.
Both commit transactions prepared in the engines if their XIDs are in the log, and roll back the others.
Source: docs/spec/mysql_binlog.md#transactions-and-truncation.
"""

from __future__ import annotations

import enum
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import DecodedRecords
from binlogtool.format_api.layout import RangeReader
from binlogtool.format_api.replay_rules import ExaminedFile
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError, get_fixed_field_offset
from binlogtool.formats.binlog_events.event_schemas import decode_body
from binlogtool.formats.binlog_events.gtid.gtid_events import FLAGS2, GTID_LOG, read_gtid_text
from binlogtool.formats.binlog_events.replay.simulated_applier import (
    ExecutedGtids,
    decode_body_text,
    read_listed_gtids,
)
from binlogtool.formats.binlog_events.rows.table_map import validate_required_table_map_fields
from binlogtool.formats.binlog_events.transactions.boundaries import STANDALONE, XaId
from binlogtool.formats.binlog_events.wire_format import (
    CHECKSUM_SIZE,
    FLAGS_AT,
    HEADER_SIZE,
    MAGIC,
    MAX_EVENT_SIZE,
    SERVER_ID_AT,
    TYPE_AT,
    ChecksumAlgorithm,
    EventFlag,
    EventType,
    FormatDescription,
    clear_in_use_flag,
    has_valid_checksum,
    parse_format_description,
    read_event_size,
    unpack_transaction_payload,
)
from binlogtool.formats.mysql_binlog.index_and_state_files import (
    LogName,
    parse_log_name,
)
from binlogtool.formats.mysql_binlog.replay.crash_recovery_commit_marks import (
    XA_FINISH,
    LogSanitizer,
    TransactionEndEvent,
    get_xa_id,
)
from binlogtool.formats.mysql_binlog.replay.logs_to_apply import ReplayedLog, get_base_name
from binlogtool.formats.mysql_binlog.replay.mariadb_event_checks import is_event_accepted, is_fixed_size_accepted
from binlogtool.formats.mysql_binlog.validate.event_rules import is_unknown_to_mariadb
from binlogtool.formats.mysql_binlog.validate.gtid_rules import BinlogFacts, FileReference
from binlogtool.limits import Limits

# --- The newest log as crash recovery reads it ---

MAX_EVENTS = 100_000
"""Maximum number of events after the first damage that are read one by one."""

_CHECKSUM_ALGORITHMS = frozenset(ChecksumAlgorithm)

_T = EventType
_FIRST_MARIADB_TYPE = 160
_IGNORED_BY_MARIADB = frozenset(range(_T.GTID_LOG, _T.XA_PREPARE)) | {_T.HEARTBEAT_V2}
"""Event types of MySQL whose events MariaDB 10.11 and 11.8 read over, whatever their bodies are."""

_UNCERTAIN_TYPES = frozenset(
    {
        _T.START_V3, _T.LOAD, _T.SLAVE, _T.CREATE_FILE, _T.APPEND_BLOCK, _T.EXEC_LOAD, _T.DELETE_FILE, _T.NEW_LOAD,
        _T.PRE_GA_WRITE_ROWS, _T.PRE_GA_UPDATE_ROWS, _T.PRE_GA_DELETE_ROWS, _T.HEARTBEAT, _T.HEARTBEAT_V2,
        _T.TRANSACTION_CONTEXT, _T.VIEW_CHANGE, _T.START_ENCRYPTION, _T.PARTIAL_ROW_DATA,
    }
)  # fmt: skip
"""Event types that only some server versions know, or that make a server do more than read the event."""

_ROWS_V1_TYPES = frozenset({_T.WRITE_ROWS_V1, _T.UPDATE_ROWS_V1, _T.DELETE_ROWS_V1})
"""Row events that MySQL 9.7 does not decode, and 5.5 writes."""


class _ReaderReaction(enum.Enum):
    """Reaction of a reader that does not verify checksums to a damaged event."""

    READ = 1
    END = 2
    UNCERTAIN = 3


_REACTIONS = {True: _ReaderReaction.READ, False: _ReaderReaction.END, None: _ReaderReaction.UNCERTAIN}
"""Reaction of MariaDB to a damaged event that it accepts, does not accept, or may accept."""


class RecoveryExtent(msgspec.Struct, frozen=True):
    """Part of the newest log that recovery reads.

    `end`: offset after its last event. `uncertain_from`: offset of the first damaged event at which reading may end
    earlier. `checkpoints`: the BINLOG_CHECKPOINT events before the end, in order. `damaged_from`: offset from which on
    the server reads other events than the validator; None without damage. `first_event_at`: offset after a damaged
    FORMAT_DESCRIPTION; otherwise 0.
    """

    end: int
    uncertain_from: int | None = None
    checkpoints: tuple[FileReference, ...] = ()
    damaged_from: int | None = None
    first_event_at: int = 0

    @property
    def last_checkpoints(self) -> tuple[str | None, ...]:
        """Names of the logs at which recovery may begin: one for each place where reading may end."""
        checkpoints = _select_checkpoints(self.checkpoints)
        names: list[str | None] = [checkpoints[-1].name if checkpoints else None]
        if self.uncertain_from is not None:
            earlier = [mark.name for mark in checkpoints if mark.offset < self.uncertain_from]
            names += [earlier[-1] if earlier else None]
            names += [mark.name for mark in checkpoints if mark.offset >= self.uncertain_from]
        return tuple(dict.fromkeys(names))


_MAX_NAME_BYTES = 511
"""`FN_REFLEN` without the NUL: MariaDB ignores a BINLOG_CHECKPOINT with a longer name."""


def _select_checkpoints(checkpoints: Sequence[FileReference]) -> list[FileReference]:
    """Return the BINLOG_CHECKPOINT events whose names recovery uses."""
    return [one for one in checkpoints if len(os.fsencode(one.name)) <= _MAX_NAME_BYTES]


class RecoveryEvent(NamedTuple):
    """Event that the server reads, without its checksum."""

    offset: int
    end: int
    code: int
    server_id: int
    body: bytes


EventVisitor = Callable[[RecoveryEvent, FormatDescription], None]


def read_newest_log_for_recovery(
    log: ReplayedLog, read_range: RangeReader | None, on_event_after_damage: EventVisitor | None = None
) -> RecoveryExtent:
    """Read the newest log as recovery does.

    Args:
        read_range: the bytes of its file; None if it cannot be read.
        on_event_after_damage: is called with each event from the first damage on.
    """
    checkpoints = () if log.facts is None else log.facts.checkpoints
    errors = _list_error_offsets(log.file)
    first = min([*errors, *(one.offset for one in log.damages[:1])], default=None)
    if first is None:
        return RecoveryExtent(log.file.size, None, checkpoints)
    description = _get_format_description(log)
    if description is None and read_range is not None:
        description = _read_damaged_description(read_range)
    if read_range is None or description is None or log.file.layout is None or log.file.layout.decrypt is not None:
        return RecoveryExtent(first, first, checkpoints, first)
    if not log.damages or log.damages[0].offset > first:
        first = len(MAGIC) + description.size  # the offset of such an error may be that of a part of an event
    description_end = len(MAGIC) + description.size
    event = read_range(len(MAGIC), description.size)
    with suppress(MalformedError):
        description = parse_format_description(event)  # that of the layout has no list of event types
    walk = _RecoveryReader(
        log, read_range, description, [mark for mark in checkpoints if mark.offset < first], on_event_after_damage
    )
    if first < description_end:
        first = description_end
        is_known = description.is_mariadb and description.checksum_alg in _CHECKSUM_ALGORITHMS
        is_intact = has_valid_checksum(clear_in_use_flag(event))
        if not is_known and not is_intact and walk.has_event_header(description_end):
            walk.uncertain_from = description_end
        return msgspec.structs.replace(walk.read_from(first), first_event_at=first)
    return walk.read_from(first)


def _list_error_offsets(file: ExaminedFile) -> frozenset[int]:
    """Return the offsets of errors in a file."""
    errors = (one for one in file.findings if one.severity is Severity.ERROR)
    return frozenset(one.offset for one in errors if one.offset is not None)


def _get_format_description(log: ReplayedLog) -> FormatDescription | None:
    """Return the FORMAT_DESCRIPTION of a log; None if it could not be read."""
    context = None if log.file.layout is None else log.file.layout.context
    description = getattr(context, "description", None)
    return description if isinstance(description, FormatDescription) and description.size else None


def _read_damaged_description(read_range: RangeReader) -> FormatDescription | None:
    """Return the FORMAT_DESCRIPTION of a log whatever version it has, as the servers do; None if it is unreadable."""
    header = read_range(len(MAGIC), HEADER_SIZE)
    event = bytearray(read_range(len(MAGIC), read_event_size(header)) if len(header) == HEADER_SIZE else b"")
    event[HEADER_SIZE : HEADER_SIZE + 2] = b"\x04\0"
    try:
        return parse_format_description(bytes(event))
    except MalformedError:
        return None


def find_recovery_fault(log: ReplayedLog, read_range: RangeReader) -> tuple[int, str] | None:
    """Return (offset, message) of the event at which MySQL's recovery stops, in a log that no validator can read.

    None if there is no such event, or if the server may end its reading before.
    """
    marks = LogSanitizer()

    def visit(event: RecoveryEvent, description: FormatDescription) -> None:
        body = _try_decode(event, description) if event.code in _MARK_TYPES else None
        if body is not None:
            name = EventType(event.code).name.removesuffix("_COMPRESSED")
            marks.add_mark(TransactionEndEvent(event.offset, name, body))

    read_newest_log_for_recovery(log, read_range, visit)
    return marks.first_fault


class _RecoveryReader:
    """One pass over the events after the first damage."""

    def __init__(
        self,
        log: ReplayedLog,
        read: RangeReader,
        described: FormatDescription,
        marks: list[FileReference],
        visit: EventVisitor | None,
    ) -> None:
        self._read_range, self._description, self._checkpoints, self._visit = read, described, marks, visit
        self._size = log.file.size
        self._damaged_offsets = frozenset(damage.offset for damage in log.damages) | _list_error_offsets(log.file)
        self.uncertain_from: int | None = None

    def read_from(self, at: int) -> RecoveryExtent:
        """Read from an offset to the end."""
        damaged_from = at
        for _ in range(MAX_EVENTS):
            event = self._read_event(at)
            reaction = _ReaderReaction.END if event is None else self._predict_reader_reaction(at, event)
            if event is None or reaction is _ReaderReaction.END:
                break
            if reaction is _ReaderReaction.UNCERTAIN and self.uncertain_from is None:
                self.uncertain_from = at
            if event[TYPE_AT] == _T.BINLOG_CHECKPOINT and reaction is _ReaderReaction.READ:
                self._checkpoints.append(FileReference(_read_checkpoint_name(self._get_body(event)), at))
            if self._visit is not None:
                server_id = int.from_bytes(event[SERVER_ID_AT : SERVER_ID_AT + 4], "little")
                fields = RecoveryEvent(at, at + len(event), event[TYPE_AT], server_id, self._get_body(event))
                self._visit(fields, self._description)
            at += len(event)
        else:
            self.uncertain_from = at if self.uncertain_from is None else self.uncertain_from
        return RecoveryExtent(at, self.uncertain_from, tuple(self._checkpoints), damaged_from)

    def has_event_header(self, at: int) -> bool:
        """Return whether the size and the type at an offset may be those of an event."""
        event = self._read_event(at)
        return event is not None and event[TYPE_AT] <= len(self._description.post_header_len)

    def _read_event(self, at: int) -> bytes | None:
        """Return the event at an offset; None if its length is impossible."""
        header = self._read_range(at, HEADER_SIZE)
        size = read_event_size(header) if len(header) == HEADER_SIZE else 0
        if not HEADER_SIZE <= size <= min(self._size - at, MAX_EVENT_SIZE):
            return None
        return self._read_range(at, size)

    def _get_body(self, event: bytes) -> bytes:
        """Return the body of an event."""
        return event[HEADER_SIZE : -CHECKSUM_SIZE if self._description.has_checksums else None]

    def _predict_reader_reaction(self, at: int, event: bytes) -> _ReaderReaction:
        """Return how the reader reacts to an event."""
        flags = int.from_bytes(event[FLAGS_AT:HEADER_SIZE], "little")
        if event[TYPE_AT] > len(self._description.post_header_len):
            return _ReaderReaction.END
        if self._description.is_mariadb and event[TYPE_AT] in _IGNORED_BY_MARIADB:
            return _ReaderReaction.READ
        if not _is_known_type(event[TYPE_AT], self._description):
            return _ReaderReaction.READ if flags & EventFlag.IGNORABLE else _ReaderReaction.END
        if event[TYPE_AT] == _T.GTID_LOG and not _has_decodable_gtid_number(event):
            return _ReaderReaction.END
        if (
            event[TYPE_AT] == _T.QUERY
            and not self._description.is_mariadb
            and _is_query_without_text(self._get_body(event))
        ):
            return _ReaderReaction.END
        if self._description.is_mariadb:
            has_usual_size = is_fixed_size_accepted(event[TYPE_AT], self._get_body(event), self._description)
            if not has_usual_size:
                return _REACTIONS[has_usual_size]
        is_intact = has_valid_checksum(event) if self._description.has_checksums else True
        if is_intact and at not in self._damaged_offsets:
            return _ReaderReaction.READ
        return self._predict_reaction_to_damage(event)

    def _predict_reaction_to_damage(self, event: bytes) -> _ReaderReaction:
        """Return how the reader reacts to a damaged event of a known type."""
        code = event[TYPE_AT]
        if code in _UNCERTAIN_TYPES or (code in _ROWS_V1_TYPES and not self._description.is_mariadb):
            return _ReaderReaction.UNCERTAIN
        body = self._get_body(event)
        if self._description.is_mariadb:
            return _REACTIONS[is_event_accepted(code, body, self._description)]
        if code == _T.PREVIOUS_GTIDS:
            return _ReaderReaction.READ  # its set is decoded later
        try:
            _require_decodable_by_mysql(code, body, self._description)
        except (DecompressionError, MalformedError):
            return _ReaderReaction.UNCERTAIN
        return _ReaderReaction.READ


def _is_query_without_text(query_body: bytes) -> bool:
    """Return whether a QUERY has no byte of text, as its lengths say: MySQL does not decode it."""
    size = (
        _QUERY_FIXED_SIZE + int.from_bytes(query_body[11:13], "little") + query_body[8] + 1
        if len(query_body) > 8
        else 1
    )
    return size >= len(query_body)


def _is_known_type(type_code: int, description: FormatDescription) -> bool:
    """Return whether a server of this kind knows an event type; it skips unknown types that are ignorable."""
    is_foreign = (
        is_unknown_to_mariadb(type_code, description) if description.is_mariadb else type_code >= _FIRST_MARIADB_TYPE
    )
    return not is_foreign and type_code != _T.UNKNOWN and type_code in _T.__members__.values()


def _require_decodable_by_mysql(type_code: int, body: bytes, description: FormatDescription) -> None:
    """Decode the parts of an event that MySQL's reader decodes.

    It keeps the optional metadata of a TABLE_MAP as bytes (`Table_map_event`), and ignores the last bytes of GTID_LOG
    if they are fewer than a commit_group_ticket (`Gtid_event`).

    Raises:
        MalformedError: the server may not decode the event.
    """
    if type_code == _T.TABLE_MAP:
        validate_required_table_map_fields(body, description.table_id_size)
        return
    try:
        decode_body(type_code, body, description)
    except MalformedError:
        if type_code != _T.GTID_LOG or "commit_group_ticket" not in decode_body(
            type_code, body + bytes(_TICKET_SIZE), description
        ):
            raise


def is_decoded_by_mysql(log: ReplayedLog, event: bytes) -> bool:
    """Return whether MySQL's reader, which ends at any other event, decodes an event of a log."""
    description = _get_format_description(log)
    if description is None:
        return True
    body = event[HEADER_SIZE : -CHECKSUM_SIZE if description.has_checksums else None]
    if event[TYPE_AT] == _T.GTID_LOG and not _has_decodable_gtid_number(event):
        return False
    if event[TYPE_AT] == _T.QUERY and _is_query_without_text(body):
        return False
    try:
        _require_decodable_by_mysql(event[TYPE_AT], body, description)
    except (DecompressionError, MalformedError):
        return False
    return True


_QUERY_FIXED_SIZE = 13
"""Size of the fixed part of a QUERY, which ends with the length of the status variables, in bytes."""
_TICKET_SIZE = 8
"""Size of commit_group_ticket in bytes."""


def _read_checkpoint_name(body: bytes) -> str:
    """Return the file name in a BINLOG_CHECKPOINT as MariaDB copies it: up to the first NUL."""
    text = body[4 : 4 + int.from_bytes(body[:4], "little")].partition(b"\0")[0]
    return text.decode("utf-8", "surrogateescape")


# --- Prediction of crash recovery ---

MAX_LISTED_XIDS = 100
"""Maximum number of XIDs that are listed."""

_GTID_EVENTS = ("GTID", "GTID_LOG", "GTID_TAGGED_LOG")
_GTID_LIST_EVENTS = ("PREVIOUS_GTIDS", "GTID_LIST")
_COMMIT_MARK_EVENTS = ("XID", "XA_PREPARE", "QUERY", "QUERY_COMPRESSED")
_MARK_TYPES = frozenset({EventType[name] for name in _COMMIT_MARK_EVENTS})
_GTID_TYPES = frozenset({EventType[name] for name in _GTID_EVENTS} | {EventType.ANONYMOUS_GTID})
_SESSION_TYPES = frozenset({EventType.INTVAR, EventType.RAND, EventType.USER_VAR})
_PREFIX_TYPES = _GTID_TYPES | _SESSION_TYPES
"""Events after which MySQL does not truncate, because they belong to the next one."""
_GROUP_TYPES = _PREFIX_TYPES | {EventType.TABLE_MAP, EventType.ANNOTATE_ROWS}
"""Events after which MariaDB expects more of a statement (`Log_event::is_part_of_group`)."""
_GNO_AT, _GNO_END = get_fixed_field_offset(GTID_LOG, "gno"), (1 << 63) - 1
"""Offset of the number in the body of MySQL's GTID_LOG event, and the first number that MySQL does not decode."""


class CrashRecoveryPrediction:
    """Prediction of crash recovery, made from the records of the files that recovery reads.

    From the first damage of the newest file on, its events are read again as the server reads them.

    `logs`: all files of one log, in order; the last one is the newest. `read_sibling`: opens one of them by name; None
    if they cannot be read again. `extent`: how far recovery reads the newest file.
    """

    def __init__(
        self,
        logs: Sequence[ReplayedLog],
        read_sibling: Callable[[str], RangeReader | None] | None = None,
        extent: RecoveryExtent | None = None,
    ) -> None:
        files = [one.file for one in logs]
        self._logs, self._read_sibling, self._extent = logs, read_sibling, extent
        self.newest = files[-1] if files else None
        self.newest_facts = _get_facts(self.newest)
        self.is_needed = self.newest_facts is not None and self.newest_facts.in_use and not self.newest_facts.is_relay
        self.executed = ExecutedGtids()
        self._read_ends = _find_files_read_by_recovery(files, self._list_checkpoints()) if self.is_needed else {}
        self._xid_count = 0
        self._last_xids: deque[int] = deque(maxlen=MAX_LISTED_XIDS)
        self._prepared: dict[XaId, None] = {}
        self._open_gtids: list[str] = []
        self._pending_gtid: str | None = None
        self._group_at = 0
        self._first_older_gtid: object = None
        self._is_standalone = False
        self._marks = LogSanitizer()
        self._damaged_from = None if extent is None else extent.damaged_from
        self._first_event_at = 0 if extent is None else extent.first_event_at
        self._valid_end = (
            self._get_newest_log_end()
            if self._damaged_from is None
            else min(self._get_newest_log_end(), self._damaged_from)
        )
        self._is_read = self._damaged_from is None
        self._is_fed = False

    def track_commit_marks(self, name: str, records: DecodedRecords) -> None:
        """Record the commit marks of a file, in file order; files that recovery does not read are ignored."""
        read_end = self._read_ends.get(name)
        if read_end is None or self.newest is None or not len(records):
            return
        is_newest, offsets = name == self.newest.name, records.offset
        self._is_fed = self._is_fed or is_newest
        for i, type_name in enumerate(records.envelope.type):
            if is_newest and self._damaged_from is not None and offsets[i] >= self._damaged_from:
                return
            if is_newest and len(MAGIC) < offsets[i] < self._first_event_at:
                continue
            gtid = records.envelope.txn[i] if is_newest and type_name in _GTID_EVENTS else None
            if is_newest and not self._is_mariadb and _is_undecodable_by_mysql(type_name, gtid, records.bodies[i]):
                self._end_log_before_undecodable(offsets[i])
                return
            if isinstance(gtid, str):
                self._count_pending_gtid()
                self._group_at = offsets[i]
            is_mark = type_name in _COMMIT_MARK_EVENTS
            if is_newest and is_mark and not self._is_mariadb:
                self._marks.add_mark(
                    TransactionEndEvent(offsets[i], type_name.removesuffix("_COMPRESSED"), records.bodies[i] or {})
                )
                if not self._marks.in_transaction:
                    self._count_pending_gtid()
            if type_name == "XID" and not is_newest and self._first_older_gtid is None:
                self._first_older_gtid = records.envelope.txn[i]
            if is_mark and (is_newest or offsets[i] < read_end):
                self._record_commit_mark(type_name, records.bodies[i] or {})
            elif is_newest and type_name in _GTID_EVENTS and isinstance(records.envelope.txn[i], str):
                flags = (records.bodies[i] or {}).get("flags2", 0)
                self._record_gtid(records.envelope.txn[i], flags, is_complete=offsets[i] < read_end)  # type: ignore[arg-type]
            elif is_newest and type_name in _GTID_LIST_EVENTS:
                self._record_listed(records.bodies[i])

    def _end_log_before_undecodable(self, at: int) -> None:
        """End the log before an event that MySQL does not decode, and the transaction that it is in."""
        self._damaged_from = at
        self._valid_end = min(self._valid_end, at if self._pending_gtid is None else self._group_at)
        self._pending_gtid = None

    def _count_pending_gtid(self) -> None:
        """Count the GTID of the last transaction that was read."""
        if self._pending_gtid is not None:
            self.executed.add_gtid(self._pending_gtid)
            self._pending_gtid = None

    def _record_listed(self, body: Any) -> None:
        """Record the GTIDs of earlier files.

        MySQL adds each set to what it has read (`read_gtids_from_binlog`); MariaDB begins again with the list
        (`rpl_binlog_state::load`).
        """
        if self._is_mariadb:
            self.executed, self._pending_gtid = ExecutedGtids(), None
        self.executed.add_all(read_listed_gtids(body))

    def _record_gtid(self, gtid: str, flags: int, *, is_complete: bool) -> None:
        """Record the GTID of a transaction of the newest file. `flags`: those of MariaDB's GTID event."""
        if is_complete:
            self._pending_gtid = gtid
            return
        if self._is_mariadb:
            self._open_gtids.clear()
            self._is_standalone = bool(flags & STANDALONE)
        self._open_gtids.append(gtid)

    def _read_rest_after_damage(self) -> None:
        """Read the events from the first damage on, once, after all records."""
        if not self._is_read and self._read_sibling is not None and self.newest is not None:
            self._is_read = True
            self._count_pending_gtid()
            read_newest_log_for_recovery(
                self._logs[-1], self._read_sibling(self.newest.name), self._track_event_after_damage
            )

    def _track_event_after_damage(self, event: RecoveryEvent, description: FormatDescription) -> None:
        """Record an event as the server reads it."""
        code = event.code
        if self._marks.first_fault is not None:
            return
        if not _is_known_type(code, description):
            pass
        elif code in _GTID_TYPES:
            self._track_gtid(event, description)
        elif code in (EventType.PREVIOUS_GTIDS, EventType.GTID_LIST):
            listed = _try_decode(event, description)
            if listed is not None:
                self._record_listed(listed)
        elif code == EventType.TRANSACTION_PAYLOAD and not description.is_mariadb:
            self._track_payload_commit_marks(event, description)
        elif code in _MARK_TYPES:
            self._track_commit_mark(event, description)
        is_end = self._is_standalone and code not in _GROUP_TYPES
        if not description.is_mariadb:
            is_end = not self._marks.in_transaction and self._marks.first_fault is None and code not in _PREFIX_TYPES
        if is_end:
            self._count_gtids_of_group(event.end)

    def _track_gtid(self, event: RecoveryEvent, description: FormatDescription) -> None:
        """Record a GTID: MySQL counts all up to the end of its log, MariaDB the last one before the end of a group."""
        try:
            gtid = read_gtid_text(event.code, event.server_id, event.body)
        except MalformedError:
            return
        if description.is_mariadb:
            self._open_gtids.clear()
            self._is_standalone = bool(event.body[FLAGS2] & STANDALONE)
        self._open_gtids += [] if gtid is None else [gtid]

    def _track_commit_mark(self, event: RecoveryEvent, description: FormatDescription) -> None:
        """Record a commit mark as the server reads it."""
        body = _try_decode(event, description)
        if body is None:
            return
        name = EventType(event.code).name.removesuffix("_COMPRESSED")
        if not description.is_mariadb:
            self._marks.add_mark(TransactionEndEvent(event.offset, name, body))
        elif name != "QUERY" or decode_body_text(body.get("sql")) in ("COMMIT", "ROLLBACK"):
            self._count_gtids_of_group(event.end)
        if self._marks.first_fault is None:
            self._record_commit_mark(name, body)

    def _track_payload_commit_marks(self, event: RecoveryEvent, description: FormatDescription) -> None:
        """Record the commit marks inside a compressed transaction."""
        try:
            data = bytes(unpack_transaction_payload(event.body, Limits()))
        except DecompressionError:
            return
        at = 0
        while at + HEADER_SIZE <= len(data) and (size := read_event_size(data, at)) >= HEADER_SIZE:
            if data[at + TYPE_AT] in _MARK_TYPES:
                body = data[at + HEADER_SIZE : at + size]
                self._track_commit_mark(event._replace(code=data[at + TYPE_AT], body=body), description)
            at += size

    def _count_gtids_of_group(self, end: int) -> None:
        """Count the GTIDs so far: the log is complete up to an offset."""
        for gtid in self._open_gtids:
            self.executed.add_gtid(gtid)
        self._open_gtids.clear()
        self._valid_end, self._is_standalone = end, False

    def _record_commit_mark(self, type_name: str, body: Any) -> None:
        """Record a commit mark in the part of the log that recovery reads."""
        if type_name == "XID":
            self._record_xid(body.get("xid"))
        elif type_name == "XA_PREPARE":
            xa_id = get_xa_id(body)
            if not body.get("one_phase") and len(self._prepared) < MAX_LISTED_XIDS:
                self._prepared[xa_id] = None
        else:
            status = body.get("status_vars") or {}
            self._record_xid(status.get("xid", status.get("ddl_logged_with_xid")))
            sql = decode_body_text(body.get("sql"))
            if sql[:12].upper().startswith(XA_FINISH):
                self._prepared = {name: None for name in self._prepared if name.text not in sql}

    def _record_xid(self, number: Any) -> None:
        """Record an XID."""
        if isinstance(number, int) and number:
            self._xid_count += 1
            self._last_xids.append(number)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _list_checkpoints(self) -> Sequence[FileReference]:
        """Return the BINLOG_CHECKPOINT events of the newest file that recovery reads."""
        if self._extent is not None:
            return self._extent.checkpoints
        return () if self.newest_facts is None else self.newest_facts.checkpoints

    @property
    def _is_mariadb(self) -> bool:
        return self.newest_facts is None or self.newest_facts.is_mariadb

    def predict_start(self) -> bool | None:
        """Return whether the server starts; None if it was shut down cleanly, so that no recovery is needed."""
        return None if not self.is_needed else self._find_recovery_refusal() is None

    def explain_uncertainty(self) -> str | None:
        """Return why it is not certain how MySQL reads the newest file; None if it is."""
        if self.newest is None or self._is_mariadb:
            return None
        self._read_rest_after_damage()
        offset = None if self._extent is None else self._extent.uncertain_from
        fault = self._marks.first_fault
        if offset is None or fault is None or fault[0] < offset:
            return None
        name = get_base_name(self.newest.name)
        return (
            f"not checked: MySQL may or may not decode the event at {offset:#x} of {name}, and continue "
            f"reading after it"
        )

    def _find_recovery_refusal(self) -> tuple[int | None, str] | None:
        """Return (offset, reason) if MySQL refuses to recover; faults after the first unreadable event are ignored."""
        if self.newest is None or self._is_mariadb:
            return None
        self._read_rest_after_damage()
        return self._marks.first_fault

    def make_details(self) -> dict[str, Any]:
        """Return the prediction for the report."""
        file, facts = self.newest, self.newest_facts
        if file is None or facts is None:
            return {"needed": False}
        details: dict[str, Any] = {
            "file": get_base_name(file.name),
            "server": facts.server_version,
            "needed": self.is_needed,
        }
        if not self.is_needed:
            return details
        refusal = self._find_recovery_refusal()
        details["starts"] = refusal is None
        if refusal is not None:
            return details | {"why": refusal[1], "at": refusal[0]}
        self._read_rest_after_damage()
        end = self._valid_end
        details |= {"cut_at": None if facts.is_mariadb else end, "torn_bytes": file.size - end}
        name = parse_log_name(file.name)
        details["goes_on_in"] = name.make_sibling(name.number + 1) if name is not None else None
        details |= {
            "gtid": self._predict_restored_gtids(),
            "xids": self._xid_count,
            "last_xids": list(self._last_xids),
        }
        details["xa_prepared"] = [one.text for one in self._prepared]
        rolled_back = self._open_gtids[-1] if self._open_gtids else None
        return details | {"rolled_back": rolled_back, "verifies_checksums": self._depends_on_checksums()}

    def _predict_restored_gtids(self) -> str | None:
        """Return the GTIDs that the server restores; None if they cannot be determined.

        If MariaDB's newest file ends inside a transaction, the first XID of the older files that it reads then ends
        it, and the GTID before that XID counts as the last one. If it ends inside a statement without a transaction,
        the first event of the older files ends it, and its own GTID counts (both observed on 10.11 and 11.8).
        """
        if self._extent is not None and self._extent.uncertain_from is not None:
            return None
        if not self._is_fed and self._damaged_from is None:
            return None  # no file is replayed
        self._count_pending_gtid()
        if not (self._is_mariadb and self._open_gtids and len(self._read_ends) > 1):
            return self.executed.gtid_set_text
        last = self._open_gtids[-1] if self._is_standalone else self._first_older_gtid
        if not isinstance(last, str):
            return None
        executed = self.executed.copy()
        executed.add_gtid(last)
        return executed.gtid_set_text

    def _depends_on_checksums(self) -> bool | None:
        """Return whether recovery stops only if it verifies checksums (off by default); None without damage."""
        tail = self.newest.tail if self.newest is not None else None
        if self.newest is None or tail is None or tail.first_damage is None:
            return None
        return any(one.id == "checksum-mismatch" and one.offset == tail.first_damage for one in self.newest.findings)

    def _get_newest_log_end(self) -> int:
        """Return the end offset of the part that recovery reads as the log."""
        return _get_durable_end(self.newest) if self.newest is not None else 0

    def iter_silent_loss_findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield findings about silent losses."""
        if (
            not self.is_needed
            or self.newest is None
            or self.newest_facts is None
            or self._find_recovery_refusal() is not None
        ):
            return
        end = self._get_newest_log_end() if self._extent is None else self._extent.end
        uncertain_from = None if self._extent is None else self._extent.uncertain_from
        event_ends = [
            one.offset + one.length for one in self.newest.findings if one.id == "valid-after-damage" and one.offset
        ]
        provable_end = max(event_ends, default=0)  # end of the last provable event after damage
        loss_start = end if provable_end > end else uncertain_from
        if loss_start is None or provable_end <= loss_start:
            return
        rolls_back = self.newest_facts.is_mariadb
        action = "keeps the bytes, but rolls back the prepared transactions of" if rolls_back else "cuts off"
        message = (
            f"at its next start the server {action} all events from {loss_start:#x} on, also the "
            f"complete events after the damage"
        )
        if provable_end <= end:
            message = f"if the server cannot decode the damaged event at {loss_start:#x}, {message}"
        severity = Severity.ERROR if provable_end > end else Severity.WARNING
        size = self.newest.size - loss_start
        result = make_finding(
            "silent-loss", loss_start, size, message, severity=severity, situation="crash-recovery", lost_bytes=size
        )
        yield self.newest.name, result


def _is_undecodable_by_mysql(type_name: str, gtid: object, body: Any) -> bool:
    """Return whether MySQL does not decode an intact event: an impossible GTID, or a QUERY without text."""
    if isinstance(gtid, str):
        return not _is_decodable_gtid(gtid)
    return type_name == "QUERY" and not decode_body_text((body or {}).get("sql", " "))


def _has_decodable_gtid_number(event: bytes) -> bool:
    """Return whether the number in a GTID_LOG event is one that MySQL decodes."""
    at = HEADER_SIZE + _GNO_AT
    return 0 < int.from_bytes(event[at : at + 8], "little", signed=True) < _GNO_END


def _is_decodable_gtid(gtid: str) -> bool:
    """Return whether MySQL decodes a GTID: its number is positive and less than `GNO_END`."""
    number = gtid.rpartition(":")[2]
    return number.isdecimal() and 0 < int(number) < _GNO_END


def _try_decode(event: RecoveryEvent, description: FormatDescription) -> dict[str, Any] | None:
    """Return the body of an event; None if it cannot be decoded."""
    try:
        return decode_body(event.code, event.body, description, event.server_id)
    except (MalformedError, DecompressionError):
        return None


def _get_facts(file: ExaminedFile | None) -> BinlogFacts | None:
    """Return the validator's facts about a file; None if it was not read."""
    facts = file.verdict.facts if file is not None and file.verdict is not None else None
    return facts if isinstance(facts, BinlogFacts) else None


def _get_durable_end(file: ExaminedFile) -> int:
    """Return the durable end of a file."""
    durable_end = file.verdict.durable_end if file.verdict is not None else None
    return file.size if durable_end is None else min(durable_end, file.size)


def _find_files_read_by_recovery(files: Sequence[ExaminedFile], marks: Sequence[FileReference]) -> dict[str, int]:
    """Return the files that recovery reads, each with the offset at which reading ends.

    MariaDB begins with the file that the last BINLOG_CHECKPOINT names. `marks`: those that it reads in the newest file.
    """
    newest = files[-1]
    read = {newest.name: _get_durable_end(newest)}
    checkpoints = _select_checkpoints(marks)
    checkpoint_name = parse_log_name(checkpoints[-1].name) if checkpoints else None
    for file in files[:-1] if checkpoint_name is not None else ():
        name = parse_log_name(file.name)
        if isinstance(name, LogName) and checkpoint_name is not None and name.number >= checkpoint_name.number:
            read[file.name] = _get_durable_end(file)
    return read
