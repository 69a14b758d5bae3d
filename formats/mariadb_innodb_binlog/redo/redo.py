"""The InnoDB redo log `ib_logfile0` of MariaDB 10.8 and later: what it proves about the binlog (section 11).

    log = RedoLog(read, size)
    summary = redo_summary(log)
    for write in page_writes(log): ...

Older formats and encrypted logs are told apart by their header; see `RedoLog.findings`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import BINLOG_SPACES, START_OFFSET, RecordType
from binlogtool.formats.mariadb_innodb_binlog.redo.head import Checkpoint, RedoHeader, read_head
from binlogtool.formats.mariadb_innodb_binlog.redo.records import FILE_TYPES, RedoRecord
from binlogtool.formats.mariadb_innodb_binlog.redo.varint import build_varint
from binlogtool.formats.mariadb_innodb_binlog.redo.walk import EndReason, LogEnd, Mtr, MtrWalk, Read, Ring

__all__ = ["Mtr", "PageWrite", "Read", "RedoFile", "RedoLog", "RedoSummary", "page_writes", "redo_summary"]

_MAX_FILES = 10_000
"""File names that a summary keeps."""

_MAX_PROBLEMS = 100
"""Corrupted records that a summary describes one by one."""


class RedoLog:
    """A redo log file. Reads the first 12 KiB at once, the ring only in `mtrs`; holds at most a few MiB of it.

    header: None if the file is shorter than one. checkpoints: both blocks. checkpoint: the one that recovery starts
    from, None if there is none. findings: about header and checkpoints. readable: can mini-transactions be walked?
    """

    def __init__(self, read: Read, size: int) -> None:
        head = read_head(read(0, START_OFFSET), size)
        self.size = size
        self.header: RedoHeader | None = head.header
        self.checkpoints: tuple[Checkpoint, ...] = head.checkpoints
        self.checkpoint: Checkpoint | None = head.checkpoint
        self.findings: tuple[Finding, ...] = head.findings
        self.readable = head.header is not None and head.checkpoint is not None
        self._ring = Ring(read, head.header.first_lsn, size) if self.readable and head.header else None

    @property
    def encrypted(self) -> bool:
        """Are page ids and data of its records unreadable without the server's key?"""
        return self.header is not None and self.header.encrypted

    def mtrs(self) -> MtrWalk:
        """The mini-transactions from the checkpoint to the last durable one: one pass, to be iterated once.

        Raises:
            ValueError: the log is not `readable`.
        """
        if self._ring is None or self.checkpoint is None:
            raise ValueError("this redo log cannot be walked")
        return MtrWalk(self._ring, self.checkpoint.checkpoint_lsn, self.encrypted)

    def offset(self, lsn: int) -> int | None:
        """Place of an LSN in the file; None if the log is not `readable`."""
        return None if self._ring is None else self._ring.offset(lsn)


class RedoFile(msgspec.Struct, frozen=True):
    """A data file that file records name. type: of the first of them. names: two for FILE_RENAME (old, new)."""

    space_id: int
    type: RecordType
    names: tuple[str, ...]
    lsn: int


class RedoSummary(msgspec.Struct, frozen=True):
    """What a redo log holds from its checkpoint on.

    checkpoint_lsn, end_lsn, reason: None if the log cannot be walked. end_lsn: the last durable LSN.
    mtrs: valid mini-transactions; records: by type. wraps: does the walk pass the end of the file?
    file_checkpoints: (LSN of the mini-transaction, checkpoint LSN that it names), in order.
    file_checkpoint_lsn: where the FILE_CHECKPOINT of the chosen checkpoint was first met; None = not at all.
    files: at most 10,000, each name once. binlog_writes: WRITE records of the binlog's tablespaces.
    """

    header: RedoHeader | None
    checkpoints: tuple[Checkpoint, ...]
    checkpoint_lsn: int | None
    end_lsn: int | None = None
    reason: EndReason | None = None
    mtrs: int = 0
    records: Mapping[str, int] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    file_checkpoints: tuple[tuple[int, int], ...] = ()
    file_checkpoint_lsn: int | None = None
    wraps: bool = False
    files: tuple[RedoFile, ...] = ()
    binlog_writes: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def clean_shutdown(self) -> bool:
        """Is there nothing behind the checkpoint but its own FILE_CHECKPOINT? Not known of an encrypted log: False."""
        return self.mtrs == 1 and dict(self.records) == {"FILE_CHECKPOINT": 1}

    @property
    def durable(self) -> bool:
        """Would the server accept the log: was the FILE_CHECKPOINT of the checkpoint reached?"""
        return self.end_lsn is not None and not any(one.severity is Severity.ERROR for one in self.findings)


def redo_summary(log: RedoLog) -> RedoSummary:
    """Walks the log once and decodes every record."""
    chosen = log.checkpoint
    if not log.readable or chosen is None:
        return RedoSummary(log.header, log.checkpoints, None, findings=log.findings)
    fold, walk = _Fold(log, chosen), log.mtrs()
    for mtr in walk:
        fold.mtr(mtr)
    assert walk.end is not None
    end = walk.end
    return RedoSummary(
        log.header,
        log.checkpoints,
        chosen.checkpoint_lsn,
        end.lsn,
        end.reason,
        end.mtrs,
        MappingProxyType({name: fold.records[name] for name in sorted(fold.records)}),
        tuple(fold.file_checkpoints),
        fold.reached[0] if fold.reached else None,
        end.lsn > chosen.checkpoint_lsn and fold.offset(end.lsn - 1) < fold.offset(chosen.checkpoint_lsn),
        tuple(fold.files.values()),
        fold.binlog_writes,
        (*log.findings, *fold.problems, *fold.about_checkpoint(end), *fold.about_end(end)),
    )


class _Fold:
    """Collects what `redo_summary` reports."""

    def __init__(self, log: RedoLog, checkpoint: Checkpoint) -> None:
        self.log, self.checkpoint = log, checkpoint
        self.records: Counter[str] = Counter()
        self.file_checkpoints: list[tuple[int, int]] = []
        self.reached: list[int] = []
        self.files: dict[tuple[int, tuple[str, ...]], RedoFile] = {}
        self.problems: list[Finding] = []
        self.binlog_writes = 0

    def offset(self, lsn: int) -> int:
        return self.log.offset(lsn) or 0

    def mtr(self, mtr: Mtr) -> None:
        if self.log.encrypted:
            return
        for record in mtr.records():
            self.records[record.type.name] += 1
            if record.type is RecordType.FILE_CHECKPOINT and record.checkpoint_lsn:
                self._checkpoint(mtr.start_lsn, record.checkpoint_lsn)
            elif record.type in FILE_TYPES and record.space_id is not None and len(self.files) < _MAX_FILES:
                made = RedoFile(record.space_id, record.type, record.names, record.lsn)
                self.files.setdefault((made.space_id, made.names), made)
            elif record.space_id in BINLOG_SPACES and record.type is RecordType.WRITE:
                self.binlog_writes += 1
            if record.problem and len(self.problems) < _MAX_PROBLEMS:
                self.problems.append(self._problem(record))

    def _checkpoint(self, lsn: int, named: int) -> None:
        if len(self.file_checkpoints) < _MAX_FILES:
            self.file_checkpoints.append((lsn, named))
        if named == self.checkpoint.checkpoint_lsn and len(self.reached) < _MAX_FILES:
            self.reached.append(lsn)

    def _problem(self, record: RedoRecord) -> Finding:
        text = f"redo record at LSN {record.lsn} is corrupted although its checksum is right: {record.problem}"
        return finding("payload-undecodable", self.offset(record.lsn), 0, text, diagnosis="redo-record", lsn=record.lsn)

    def about_checkpoint(self, end: LogEnd) -> Iterator[Finding]:
        """Was FILE_CHECKPOINT of the chosen checkpoint found where the block says (sections 11.2 and 13)?"""
        start, wanted = self.checkpoint.checkpoint_lsn, self.checkpoint.end_lsn
        if wanted in self.reached or (self.log.encrypted and end.lsn > wanted):
            return
        facts: dict[str, Any] = {"checkpoint_lsn": start, "file_checkpoint_lsn": wanted, "durable_lsn": end.lsn}
        if self.reached:
            text = f"FILE_CHECKPOINT({start}) stands at LSN {self.reached[0]}, the checkpoint block says {wanted}"
            yield finding("meta-mismatch", self.checkpoint.offset, 64, text, severity=Severity.WARNING, **facts)
            return
        text = (
            f"the redo log ends at LSN {end.lsn} ({end.reason}), without FILE_CHECKPOINT({start}), which is expected "
            f"at LSN {wanted}: the server does not start with this log, and it proves nothing about the binlog"
        )
        diagnosis = "redo-damaged-before-file-checkpoint"
        yield finding("dangling-reference", self.offset(end.lsn), 0, text, diagnosis=diagnosis, **facts)

    def about_end(self, end: LogEnd) -> Iterator[Finding]:
        """What can be said against this being the end of the log."""
        if end.next_valid is not None:
            text = (
                f"the mini-transaction at LSN {end.lsn} has a wrong checksum, and a valid one follows it at LSN "
                f"{end.next_valid}: everything from LSN {end.lsn} on is lost to the server"
            )
            at, length = self.offset(end.lsn), end.next_valid - end.lsn
            facts: dict[str, Any] = {
                "diagnosis": "redo-damaged",
                "durable_lsn": end.lsn,
                "next_valid_lsn": end.next_valid,
            }
            length = min(length, self.log.size - at)
            yield finding("valid-after-damage", at, length, text, severity=Severity.WARNING, **facts)
        elif end.wraps and end.reason is not EndReason.SHORT:
            text = (
                f"the mini-transaction at LSN {end.lsn} reaches the end of the file and does not go on at the start of "
                "the ring: a crash while it was written, or the file was cut"
            )
            at = self.offset(end.lsn)
            yield finding("torn-tail", at, self.log.size - at, text, severity=Severity.WARNING, diagnosis="redo-cut")
        elif end.reason in (EndReason.ROUND, EndReason.SHORT):
            text = f"the redo log has no end: at LSN {end.lsn}, {end.reason}"
            yield finding("length-out-of-bounds", self.offset(end.lsn), 0, text, diagnosis="redo-no-end", lsn=end.lsn)


class PageWrite(msgspec.Struct, frozen=True):
    """One record about a page of a wanted tablespace, with the mini-transaction that makes it durable.

    start_lsn, end_lsn: of the mini-transaction, `[start, end)`. record.type is WRITE for all sound binlog records.
    """

    record: RedoRecord
    start_lsn: int
    end_lsn: int


def page_writes(log: RedoLog, spaces: Collection[int] = BINLOG_SPACES) -> Iterator[PageWrite]:
    """The page records of these tablespaces from the checkpoint to the last durable LSN, in the order of the log.

    Nothing for a log that cannot be walked or is encrypted. A corrupted record that names no page is not among them
    (`redo_summary` reports it).
    """
    if not log.readable or log.encrypted:
        return
    wanted = [build_varint(space) for space in spaces]
    for mtr in log.mtrs():
        if not any(encoded in mtr.body for encoded in wanted):
            continue
        for record in mtr.records():
            if record.space_id in spaces and record.type < RecordType.FILE_CREATE:
                yield PageWrite(record, mtr.start_lsn, mtr.end_lsn)
