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
    MAX_EVENT,
    EventFlag,
    EventType,
)
from binlogtool.formats.binlog_events.events.decoding import decoded
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import CodecError, Read
from binlogtool.formats.mysql_binlog.judge.facts import Checkpoint
from binlogtool.formats.mysql_binlog.replay.replayed_logs import Binlog

MOST_EVENTS = 100_000
"""Events from the first damage on that are read one by one."""

_T = EventType
_FIRST_OF_MARIADB = 160
_MYSQL_ONLY = frozenset(range(_T.GTID_LOG, _T.XA_PREPARE)) | frozenset(range(_T.PARTIAL_UPDATE_ROWS, 160))
_MYSQL_ONLY |= {_T.IGNORABLE, _T.ROWS_QUERY}
_UNSURE = frozenset(
    {
        _T.START_V3, _T.LOAD, _T.SLAVE, _T.CREATE_FILE, _T.APPEND_BLOCK, _T.EXEC_LOAD, _T.DELETE_FILE, _T.NEW_LOAD,
        _T.PRE_GA_WRITE_ROWS, _T.PRE_GA_UPDATE_ROWS, _T.PRE_GA_DELETE_ROWS, _T.HEARTBEAT, _T.HEARTBEAT_V2,
        _T.TRANSACTION_CONTEXT, _T.VIEW_CHANGE, _T.START_ENCRYPTION, _T.PARTIAL_ROW_DATA,
    }
)  # fmt: skip
"""Types that only some versions of a server know, or that make it do more than read."""

_HEAD_FIXED = HEADER_SIZE + 57
_HEAD_REST = CHECKSUM_SIZE + 1


class _Reaction(enum.Enum):
    """Reaction of a reader that verifies no checksums to a damaged event."""

    READ = 1
    END = 2
    DOUBT = 3


class RecoveryRead(msgspec.Struct, frozen=True):
    """Extent of the newest log that recovery reads.

    `end`: offset after its last event. `uncertain_from`: offset of the first damaged event that may also end
    the reading. `checkpoints`: the BINLOG_CHECKPOINT events before the end, in order.
    """

    end: int
    doubt: int | None = None
    checkpoints: tuple[Checkpoint, ...] = ()

    @property
    def last_checkpoints(self) -> tuple[str | None, ...]:
        """The names that recovery may begin with: one, or one for each place where reading may end."""
        names: list[str | None] = [self.checkpoints[-1].name if self.checkpoints else None]
        if self.doubt is not None:
            before = [mark.name for mark in self.checkpoints if mark.offset < self.doubt]
            names += [before[-1] if before else None]
            names += [mark.name for mark in self.checkpoints if mark.offset >= self.doubt]
        return tuple(dict.fromkeys(names))


def recovery_read(log: Binlog, read: Read | None, peers: Sequence[Binlog] = ()) -> RecoveryRead:
    """Read the newest log as recovery does.

    Args:
        read_range: the bytes of its file; None if it cannot be read.
        peers: other logs of the server, whose FORMAT_DESCRIPTION is compared with a damaged one.
    """
    marks = () if log.facts is None else log.facts.checkpoints
    if not log.damages:
        return RecoveryRead(log.file.size, None, marks)
    first = log.damages[0].offset
    described = _description(log)
    if read is None or described is None or log.file.layout is None or log.file.layout.unveil is not None:
        return RecoveryRead(first, first, marks)
    head_end = len(MAGIC) + described.size
    walk = _Walk(log, read, described, [mark for mark in marks if mark.offset < first])
    if first < head_end:
        first = head_end
        if not _is_like(read(len(MAGIC), described.size), peers):
            walk.doubt = head_end
    return walk.read_from(first)


def _description(log: Binlog) -> FormatDescription | None:
    """Return the FORMAT_DESCRIPTION of a log; None if it could not be read."""
    context = None if log.file.layout is None else log.file.layout.context
    described = getattr(context, "description", None)
    return described if isinstance(described, FormatDescription) and described.size else None


def _is_like(event: bytes, peers: Sequence[Binlog]) -> bool:
    """Return whether a FORMAT_DESCRIPTION has the header lengths of another one of this server."""
    lengths = event[_HEAD_FIXED:-_HEAD_REST]
    return any(found is not None and bytes(found.post_header_len) == lengths for found in map(_description, peers))


class _Walk:
    """One pass over the events from the first damage on."""

    def __init__(self, log: Binlog, read: Read, described: FormatDescription, marks: list[Checkpoint]) -> None:
        self._read, self._described, self._marks = read, described, marks
        self._size = log.file.size
        self._damaged = frozenset(damage.offset for damage in log.damages)
        self.doubt: int | None = None

    def read_from(self, at: int) -> RecoveryRead:
        """Read from an offset up to the end."""
        for _ in range(MOST_EVENTS):
            event = self._event(at)
            reaction = _Reaction.END if event is None else self._reaction(at, event)
            if event is None or reaction is _Reaction.END:
                break
            if reaction is _Reaction.DOUBT and self.doubt is None:
                self.doubt = at
            if event[4] == _T.BINLOG_CHECKPOINT and reaction is _Reaction.READ:
                self._marks.append(Checkpoint(_name(self._body(event)), at))
            at += len(event)
        else:
            self.doubt = at if self.doubt is None else self.doubt
        return RecoveryRead(at, self.doubt, tuple(self._marks))

    def _event(self, at: int) -> bytes | None:
        """Return the event at an offset; None if its length is impossible."""
        head = self._read(at, HEADER_SIZE)
        size = int.from_bytes(head[9:13], "little") if len(head) == HEADER_SIZE else 0
        if not HEADER_SIZE <= size <= min(self._size - at, MAX_EVENT):
            return None
        return self._read(at, size)

    def _body(self, event: bytes) -> bytes:
        """Return the body of an event."""
        return event[HEADER_SIZE : -CHECKSUM_SIZE if self._described.has_checksums else None]

    def _reaction(self, at: int, event: bytes) -> _Reaction:
        """Return the reader's reaction to an event."""
        if self._described.has_checksums:
            if zlib.crc32(event[:-CHECKSUM_SIZE]) == int.from_bytes(event[-CHECKSUM_SIZE:], "little"):
                return _Reaction.READ
        elif at not in self._damaged:
            return _Reaction.READ
        return self._reaction_to_damage(event)

    def _reaction_to_damage(self, event: bytes) -> _Reaction:
        """Return the reader's reaction to a damaged event."""
        code, flags = event[4], int.from_bytes(event[17:19], "little")
        foreign = code in _MYSQL_ONLY if self._described.is_mariadb else code >= _FIRST_OF_MARIADB
        if code not in _T.__members__.values() or code == _T.UNKNOWN or foreign:
            return _Reaction.READ if flags & EventFlag.IGNORABLE else _Reaction.END
        if code in _UNSURE:
            return _Reaction.DOUBT
        body = self._body(event)
        if code == _T.BINLOG_CHECKPOINT:
            whole = len(body) >= 4 and 4 + int.from_bytes(body[:4], "little") <= len(body)
            return _Reaction.READ if whole else _Reaction.END
        try:
            decoded(code, body, self._described)
        except (MalformedError, CodecError):
            return _Reaction.DOUBT
        return _Reaction.READ


def _name(body: bytes) -> str:
    """Return the name in a BINLOG_CHECKPOINT as MariaDB copies it: up to the first NUL."""
    text = body[4 : 4 + int.from_bytes(body[:4], "little")].partition(b"\0")[0]
    return text.decode("utf-8", "surrogateescape")
