"""The newest log as crash recovery reads it: event by event, without verifying checksums.

MariaDB (`TC_LOG_BINLOG::recover`) and MySQL (`binlog::Binlog_recovery`) verify checksums only with
master_verify_checksum or source_verify_checksum, which are off by default. So a damaged event counts as
long as its length and body can be read.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Sequence

import msgspec

from binlogtool.formats.binlog_events.codes import (
    CHECKSUM_SIZE,
    HEADER_SIZE,
    MAGIC,
    MAX_EVENT_SIZE,
    EventFlag,
    EventType,
)
from binlogtool.formats.binlog_events.events.decoding import decode_body
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import DecompressionError, RangeReader
from binlogtool.formats.mysql_binlog.judge.facts import CheckpointEvent
from binlogtool.formats.mysql_binlog.replay.replayed_logs import ReplayedLog

MAX_EVENTS = 100_000
"""Events from the first damage on that are read one by one."""

_T = EventType
_FIRST_MARIADB_TYPE = 160
_MYSQL_ONLY = frozenset(range(_T.GTID_LOG, _T.XA_PREPARE)) | frozenset(range(_T.PARTIAL_UPDATE_ROWS, 160))
_MYSQL_ONLY |= {_T.IGNORABLE, _T.ROWS_QUERY}
_UNCERTAIN_TYPES = frozenset(
    {
        _T.START_V3, _T.LOAD, _T.SLAVE, _T.CREATE_FILE, _T.APPEND_BLOCK, _T.EXEC_LOAD, _T.DELETE_FILE, _T.NEW_LOAD,
        _T.PRE_GA_WRITE_ROWS, _T.PRE_GA_UPDATE_ROWS, _T.PRE_GA_DELETE_ROWS, _T.HEARTBEAT, _T.HEARTBEAT_V2,
        _T.TRANSACTION_CONTEXT, _T.VIEW_CHANGE, _T.START_ENCRYPTION, _T.PARTIAL_ROW_DATA,
    }
)  # fmt: skip
"""Types that only some versions of a server know, or that make it do more than read."""

_HEADER_LENGTHS_AT = HEADER_SIZE + 57
_AFTER_HEADER_LENGTHS = CHECKSUM_SIZE + 1


class _ReaderReaction(enum.Enum):
    """Reaction of a reader that verifies no checksums to a damaged event."""

    READ = 1
    END = 2
    UNCERTAIN = 3


class RecoveryExtent(msgspec.Struct, frozen=True):
    """Extent of the newest log that recovery reads.

    `end`: offset after its last event. `uncertain_from`: offset of the first damaged event that may also end
    the reading. `checkpoints`: the BINLOG_CHECKPOINT events before the end, in order.
    """

    end: int
    uncertain_from: int | None = None
    checkpoints: tuple[CheckpointEvent, ...] = ()

    @property
    def last_checkpoints(self) -> tuple[str | None, ...]:
        """The names that recovery may begin with: one, or one for each place where reading may end."""
        names: list[str | None] = [self.checkpoints[-1].name if self.checkpoints else None]
        if self.uncertain_from is not None:
            earlier = [mark.name for mark in self.checkpoints if mark.offset < self.uncertain_from]
            names += [earlier[-1] if earlier else None]
            names += [mark.name for mark in self.checkpoints if mark.offset >= self.uncertain_from]
        return tuple(dict.fromkeys(names))


def read_for_recovery(
    log: ReplayedLog, read_range: RangeReader | None, peers: Sequence[ReplayedLog] = ()
) -> RecoveryExtent:
    """Read the newest log as recovery does.

    Args:
        read_range: the bytes of its file; None if it cannot be read.
        peers: other logs of the server, whose FORMAT_DESCRIPTION is compared with a damaged one.
    """
    checkpoints = () if log.facts is None else log.facts.checkpoints
    if not log.damages:
        return RecoveryExtent(log.file.size, None, checkpoints)
    first = log.damages[0].offset
    description = _get_description(log)
    if read_range is None or description is None or log.file.layout is None or log.file.layout.decrypt is not None:
        return RecoveryExtent(first, first, checkpoints)
    description_end = len(MAGIC) + description.size
    walk = _RecoveryWalk(log, read_range, description, [mark for mark in checkpoints if mark.offset < first])
    if first < description_end:
        first = description_end
        if not _matches_peers(read_range(len(MAGIC), description.size), peers):
            walk.uncertain_from = description_end
    return walk.read_from(first)


def _get_description(log: ReplayedLog) -> FormatDescription | None:
    """Return the FORMAT_DESCRIPTION of a log; None if it could not be read."""
    context = None if log.file.layout is None else log.file.layout.context
    description = getattr(context, "description", None)
    return description if isinstance(description, FormatDescription) and description.size else None


def _matches_peers(event: bytes, peers: Sequence[ReplayedLog]) -> bool:
    """Return whether a FORMAT_DESCRIPTION has the header lengths of another one of this server."""
    lengths = event[_HEADER_LENGTHS_AT:-_AFTER_HEADER_LENGTHS]
    return any(found is not None and bytes(found.post_header_len) == lengths for found in map(_get_description, peers))


class _RecoveryWalk:
    """One pass over the events from the first damage on."""

    def __init__(
        self, log: ReplayedLog, read: RangeReader, described: FormatDescription, marks: list[CheckpointEvent]
    ) -> None:
        self._read_range, self._description, self._checkpoints = read, described, marks
        self._size = log.file.size
        self._damaged_offsets = frozenset(damage.offset for damage in log.damages)
        self.uncertain_from: int | None = None

    def read_from(self, at: int) -> RecoveryExtent:
        """Read from an offset up to the end."""
        for _ in range(MAX_EVENTS):
            event = self._read_event(at)
            reaction = _ReaderReaction.END if event is None else self._react(at, event)
            if event is None or reaction is _ReaderReaction.END:
                break
            if reaction is _ReaderReaction.UNCERTAIN and self.uncertain_from is None:
                self.uncertain_from = at
            if event[4] == _T.BINLOG_CHECKPOINT and reaction is _ReaderReaction.READ:
                self._checkpoints.append(CheckpointEvent(_read_checkpoint_name(self._get_body(event)), at))
            at += len(event)
        else:
            self.uncertain_from = at if self.uncertain_from is None else self.uncertain_from
        return RecoveryExtent(at, self.uncertain_from, tuple(self._checkpoints))

    def _read_event(self, at: int) -> bytes | None:
        """Return the event at an offset; None if its length is impossible."""
        header = self._read_range(at, HEADER_SIZE)
        size = int.from_bytes(header[9:13], "little") if len(header) == HEADER_SIZE else 0
        if not HEADER_SIZE <= size <= min(self._size - at, MAX_EVENT_SIZE):
            return None
        return self._read_range(at, size)

    def _get_body(self, event: bytes) -> bytes:
        """Return the body of an event."""
        return event[HEADER_SIZE : -CHECKSUM_SIZE if self._description.has_checksums else None]

    def _react(self, at: int, event: bytes) -> _ReaderReaction:
        """Return the reader's reaction to an event."""
        if self._description.has_checksums:
            if zlib.crc32(event[:-CHECKSUM_SIZE]) == int.from_bytes(event[-CHECKSUM_SIZE:], "little"):
                return _ReaderReaction.READ
        elif at not in self._damaged_offsets:
            return _ReaderReaction.READ
        return self._react_to_damage(event)

    def _react_to_damage(self, event: bytes) -> _ReaderReaction:
        """Return the reader's reaction to a damaged event."""
        code, flags = event[4], int.from_bytes(event[17:19], "little")
        is_foreign = code in _MYSQL_ONLY if self._description.is_mariadb else code >= _FIRST_MARIADB_TYPE
        if code not in _T.__members__.values() or code == _T.UNKNOWN or is_foreign:
            return _ReaderReaction.READ if flags & EventFlag.IGNORABLE else _ReaderReaction.END
        if code in _UNCERTAIN_TYPES:
            return _ReaderReaction.UNCERTAIN
        body = self._get_body(event)
        if code == _T.BINLOG_CHECKPOINT:
            is_complete = len(body) >= 4 and 4 + int.from_bytes(body[:4], "little") <= len(body)
            return _ReaderReaction.READ if is_complete else _ReaderReaction.END
        try:
            decode_body(code, body, self._description)
        except (MalformedError, DecompressionError):
            return _ReaderReaction.UNCERTAIN
        return _ReaderReaction.READ


def _read_checkpoint_name(body: bytes) -> str:
    """Return the name in a BINLOG_CHECKPOINT as MariaDB copies it: up to the first NUL."""
    text = body[4 : 4 + int.from_bytes(body[:4], "little")].partition(b"\0")[0]
    return text.decode("utf-8", "surrogateescape")
