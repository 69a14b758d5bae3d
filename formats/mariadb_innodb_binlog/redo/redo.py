"""Read what the InnoDB redo log `ib_logfile0` of MariaDB 10.8 and later proves about the binlog.

    log = RedoLog(read, size)
    summary = summarize_redo_log(log)
    for write in iter_page_writes(log): ...

See docs/spec/mariadb-innodb-binlog.md#11-innodb-redo-log-format-of-108-and-later-for-the-offline-parser. Older
formats
and encrypted logs are recognized by their header; see `RedoLog.findings`.
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
    """A redo log file. Reads the first 12 KiB at once, the ring only in `iter_mtrs`; holds at most a few MiB of it.

    Attributes:
        header: None if the file is shorter than one.
        checkpoints: both blocks.
        checkpoint: the one that recovery starts from; None if there is none.
        findings: about header and checkpoints.
        is_readable: mini-transactions can be walked.
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
        """True if page ids and data of its records are unreadable without the server's key."""
        return self.header is not None and self.header.encrypted

    def mtrs(self) -> MtrWalk:
        """Return a walk over the mini-transactions from the checkpoint to the last durable one; iterate over it once.

        Raises:
            ValueError: the log is not readable.
        """
        if self._ring is None or self.checkpoint is None:
            raise ValueError("this redo log cannot be walked")
        return MtrWalk(self._ring, self.checkpoint.checkpoint_lsn, self.encrypted)

    def offset(self, lsn: int) -> int | None:
        """Return the offset of an LSN in the file; None if the log is not readable."""
        return None if self._ring is None else self._ring.offset(lsn)


class RedoFile(msgspec.Struct, frozen=True):
    """A data file named by file records.

    Attributes:
        type: of the first of them.
        names: one, two for FILE_RENAME (old, new).
    """

    space_id: int
    type: RecordType
    names: tuple[str, ...]
    lsn: int


class RedoSummary(msgspec.Struct, frozen=True):
    """Content of a redo log from its checkpoint on.

    Attributes:
        checkpoint_lsn, end_lsn, reason: None if the log cannot be walked; end_lsn is the last durable LSN.
        mtrs: number of valid mini-transactions.
        records: number of records by type.
        file_checkpoints: (LSN of the mini-transaction, checkpoint LSN that it names), in order.
        file_checkpoint_lsn: where the FILE_CHECKPOINT of the chosen checkpoint is first; None = not at all.
        wraps: the walk passes the end of the file.
        files: at most 10,000, each name once.
        binlog_writes: number of WRITE records of the binlog's tablespaces.
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
        """True if nothing follows the checkpoint but its own FILE_CHECKPOINT; always False for an encrypted log."""
        return self.mtrs == 1 and dict(self.records) == {"FILE_CHECKPOINT": 1}

    @property
    def durable(self) -> bool:
        """True if the server would accept the log: the FILE_CHECKPOINT of the checkpoint was reached."""
        return self.end_lsn is not None and not any(one.severity is Severity.ERROR for one in self.findings)


def redo_summary(log: RedoLog) -> RedoSummary:
    """Walk the log once and decode every record."""
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
    """Collects what `summarize_redo_log` reports."""

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
        """Check that FILE_CHECKPOINT of the chosen checkpoint is where the block says.

        See docs/spec/mariadb-innodb-binlog.md#112-checkpoint-blocks-at-4096-and-8192.
        """
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
        """Report doubts that this is the end of the log."""
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
    """One record about a page of a selected tablespace, with the mini-transaction that makes it durable.

    Attributes:
        record: its type is WRITE for all sound binlog records.
        start_lsn, end_lsn: of the mini-transaction, `[start, end)`.
    """

    record: RedoRecord
    start_lsn: int
    end_lsn: int


def page_writes(log: RedoLog, spaces: Collection[int] = BINLOG_SPACES) -> Iterator[PageWrite]:
    """Iterate over the page records of these tablespaces from the checkpoint to the last durable LSN, in log order.

    Nothing for a log that cannot be walked or is encrypted. A corrupted record that names no page is not included
    (`summarize_redo_log` reports it).
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
