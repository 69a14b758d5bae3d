"""Read what the InnoDB redo log `ib_logfile0` of MariaDB 10.8 and later proves about the binlog.

    log = RedoLog(read, size)
    summary = summarize_redo_log(log)
    for write in iter_page_writes(log): ...

See docs/spec/mariadb_innodb_binlog.md#innodb-redo-log. Older
formats
and encrypted logs are recognized by their header; see `RedoLog.findings`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import BINLOG_SPACES, START_OFFSET, RedoRecordType
from binlogtool.formats.mariadb_innodb_binlog.redo.head import RedoCheckpoint, RedoHeader, read_redo_head
from binlogtool.formats.mariadb_innodb_binlog.redo.records import FILE_TYPES, RedoRecord
from binlogtool.formats.mariadb_innodb_binlog.redo.varint import encode_varint
from binlogtool.formats.mariadb_innodb_binlog.redo.walk import Mtr, MtrWalk, Read, RedoEndReason, RedoLogEnd, RedoRing

__all__ = [
    "Mtr",
    "PageWrite",
    "Read",
    "RedoDataFile",
    "RedoLog",
    "RedoSummary",
    "iter_page_writes",
    "summarize_redo_log",
]

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
        head = read_redo_head(read(0, START_OFFSET), size)
        self.size = size
        self.header: RedoHeader | None = head.header
        self.checkpoints: tuple[RedoCheckpoint, ...] = head.checkpoints
        self.checkpoint: RedoCheckpoint | None = head.checkpoint
        self.findings: tuple[Finding, ...] = head.findings
        self.is_readable = head.header is not None and head.checkpoint is not None
        self._ring = RedoRing(read, head.header.first_lsn, size) if self.is_readable and head.header else None

    @property
    def is_encrypted(self) -> bool:
        """True if page ids and data of its records are unreadable without the server's key."""
        return self.header is not None and self.header.encrypted

    def walk_mtrs(self) -> MtrWalk:
        """Return a walk over the mini-transactions from the checkpoint to the last durable one; iterate over it once.

        Raises:
            ValueError: the log is not readable.
        """
        if self._ring is None or self.checkpoint is None:
            raise ValueError("this redo log cannot be walked")
        return MtrWalk(self._ring, self.checkpoint.checkpoint_lsn, self.is_encrypted)

    def offset_of_lsn(self, lsn: int) -> int | None:
        """Return the offset of an LSN in the file; None if the log is not readable."""
        return None if self._ring is None else self._ring.offset_of_lsn(lsn)


class RedoDataFile(msgspec.Struct, frozen=True):
    """A data file named by file records.

    Attributes:
        type: of the first of them.
        names: one, two for FILE_RENAME (old, new).
    """

    space_id: int
    type: RedoRecordType
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
    checkpoints: tuple[RedoCheckpoint, ...]
    checkpoint_lsn: int | None
    end_lsn: int | None = None
    reason: RedoEndReason | None = None
    mtrs: int = 0
    records: Mapping[str, int] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    file_checkpoints: tuple[tuple[int, int], ...] = ()
    file_checkpoint_lsn: int | None = None
    wraps: bool = False
    files: tuple[RedoDataFile, ...] = ()
    binlog_writes: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def is_clean_shutdown(self) -> bool:
        """True if nothing follows the checkpoint but its own FILE_CHECKPOINT; always False for an encrypted log."""
        return self.mtrs == 1 and dict(self.records) == {"FILE_CHECKPOINT": 1}

    @property
    def is_acceptable(self) -> bool:
        """True if the server would accept the log: the FILE_CHECKPOINT of the checkpoint was reached."""
        return self.end_lsn is not None and not any(one.severity is Severity.ERROR for one in self.findings)


def summarize_redo_log(log: RedoLog) -> RedoSummary:
    """Walk the log once and decode every record."""
    checkpoint = log.checkpoint
    if not log.is_readable or checkpoint is None:
        return RedoSummary(log.header, log.checkpoints, None, findings=log.findings)
    collector, walk = _SummaryCollector(log, checkpoint), log.walk_mtrs()
    for mtr in walk:
        collector.add_mtr(mtr)
    assert walk.end is not None
    end = walk.end
    return RedoSummary(
        log.header,
        log.checkpoints,
        checkpoint.checkpoint_lsn,
        end.lsn,
        end.reason,
        end.mtrs,
        MappingProxyType({name: collector.records[name] for name in sorted(collector.records)}),
        tuple(collector.file_checkpoints),
        collector.checkpoint_lsns[0] if collector.checkpoint_lsns else None,
        end.lsn > checkpoint.checkpoint_lsn
        and collector.offset_of_lsn(end.lsn - 1) < collector.offset_of_lsn(checkpoint.checkpoint_lsn),
        tuple(collector.files.values()),
        collector.binlog_writes,
        (*log.findings, *collector.problems, *collector.check_file_checkpoint(end), *collector.check_end(end)),
    )


class _SummaryCollector:
    """Collects what `summarize_redo_log` reports."""

    def __init__(self, log: RedoLog, checkpoint: RedoCheckpoint) -> None:
        self.log, self.checkpoint = log, checkpoint
        self.records: Counter[str] = Counter()
        self.file_checkpoints: list[tuple[int, int]] = []
        self.checkpoint_lsns: list[int] = []
        self.files: dict[tuple[int, tuple[str, ...]], RedoDataFile] = {}
        self.problems: list[Finding] = []
        self.binlog_writes = 0

    def offset_of_lsn(self, lsn: int) -> int:
        return self.log.offset_of_lsn(lsn) or 0

    def add_mtr(self, mtr: Mtr) -> None:
        if self.log.is_encrypted:
            return
        for record in mtr.decode_records():
            self.records[record.type.name] += 1
            if record.type is RedoRecordType.FILE_CHECKPOINT and record.checkpoint_lsn:
                self._add_file_checkpoint(mtr.start_lsn, record.checkpoint_lsn)
            elif record.type in FILE_TYPES and record.space_id is not None and len(self.files) < _MAX_FILES:
                data_file = RedoDataFile(record.space_id, record.type, record.file_names, record.lsn)
                self.files.setdefault((data_file.space_id, data_file.names), data_file)
            elif record.space_id in BINLOG_SPACES and record.type is RedoRecordType.WRITE:
                self.binlog_writes += 1
            if record.problem and len(self.problems) < _MAX_PROBLEMS:
                self.problems.append(self._report_record(record))

    def _add_file_checkpoint(self, lsn: int, named_lsn: int) -> None:
        if len(self.file_checkpoints) < _MAX_FILES:
            self.file_checkpoints.append((lsn, named_lsn))
        if named_lsn == self.checkpoint.checkpoint_lsn and len(self.checkpoint_lsns) < _MAX_FILES:
            self.checkpoint_lsns.append(lsn)

    def _report_record(self, record: RedoRecord) -> Finding:
        text = f"redo record at LSN {record.lsn} is corrupted although its checksum is right: {record.problem}"
        return make_finding(
            "payload-undecodable", self.offset_of_lsn(record.lsn), 0, text, diagnosis="redo-record", lsn=record.lsn
        )

    def check_file_checkpoint(self, end: RedoLogEnd) -> Iterator[Finding]:
        """Check that FILE_CHECKPOINT of the chosen checkpoint is where the block says.

        See docs/spec/mariadb_innodb_binlog.md#checkpoint-blocks.
        """
        start, expected = self.checkpoint.checkpoint_lsn, self.checkpoint.end_lsn
        if expected in self.checkpoint_lsns or (self.log.is_encrypted and end.lsn > expected):
            return
        facts: dict[str, Any] = {"checkpoint_lsn": start, "file_checkpoint_lsn": expected, "durable_lsn": end.lsn}
        if self.checkpoint_lsns:
            text = (
                f"FILE_CHECKPOINT({start}) stands at LSN {self.checkpoint_lsns[0]}, the checkpoint block "
                f"says {expected}"
            )
            yield make_finding("meta-mismatch", self.checkpoint.offset, 64, text, severity=Severity.WARNING, **facts)
            return
        text = (
            f"the redo log ends at LSN {end.lsn} ({end.reason}), without FILE_CHECKPOINT({start}), which is expected "
            f"at LSN {expected}: the server does not start with this log, and it proves nothing about the binlog"
        )
        diagnosis = "redo-damaged-before-file-checkpoint"
        yield make_finding("dangling-reference", self.offset_of_lsn(end.lsn), 0, text, diagnosis=diagnosis, **facts)

    def check_end(self, end: RedoLogEnd) -> Iterator[Finding]:
        """Report doubts that this is the end of the log."""
        if end.next_valid is not None:
            text = (
                f"the mini-transaction at LSN {end.lsn} has a wrong checksum, and a valid one follows it at LSN "
                f"{end.next_valid}: everything from LSN {end.lsn} on is lost to the server"
            )
            offset, length = self.offset_of_lsn(end.lsn), end.next_valid - end.lsn
            facts: dict[str, Any] = {
                "diagnosis": "redo-damaged",
                "durable_lsn": end.lsn,
                "next_valid_lsn": end.next_valid,
            }
            length = min(length, self.log.size - offset)
            yield make_finding("valid-after-damage", offset, length, text, severity=Severity.WARNING, **facts)
        elif end.wraps and end.reason is not RedoEndReason.SHORT:
            text = (
                f"the mini-transaction at LSN {end.lsn} reaches the end of the file and does not go on at the start of "
                "the ring: a crash while it was written, or the file was cut"
            )
            offset = self.offset_of_lsn(end.lsn)
            yield make_finding(
                "torn-tail", offset, self.log.size - offset, text, severity=Severity.WARNING, diagnosis="redo-cut"
            )
        elif end.reason in (RedoEndReason.ROUND, RedoEndReason.SHORT):
            text = f"the redo log has no end: at LSN {end.lsn}, {end.reason}"
            yield make_finding(
                "length-out-of-bounds", self.offset_of_lsn(end.lsn), 0, text, diagnosis="redo-no-end", lsn=end.lsn
            )


class PageWrite(msgspec.Struct, frozen=True):
    """One record about a page of a selected tablespace, with the mini-transaction that makes it durable.

    Attributes:
        record: its type is WRITE for all sound binlog records.
        start_lsn, end_lsn: of the mini-transaction, `[start, end)`.
    """

    record: RedoRecord
    start_lsn: int
    end_lsn: int


def iter_page_writes(log: RedoLog, spaces: Collection[int] = BINLOG_SPACES) -> Iterator[PageWrite]:
    """Iterate over the page records of these tablespaces from the checkpoint to the last durable LSN, in log order.

    Nothing for a log that cannot be walked or is encrypted. A corrupted record that names no page is not included
    (`summarize_redo_log` reports it).
    """
    if not log.is_readable or log.is_encrypted:
        return
    encoded_spaces = [encode_varint(space) for space in spaces]
    for mtr in log.walk_mtrs():
        if not any(encoded in mtr.body for encoded in encoded_spaces):
            continue
        for record in mtr.decode_records():
            if record.space_id in spaces and record.type < RedoRecordType.FILE_CREATE:
                yield PageWrite(record, mtr.start_lsn, mtr.end_lsn)
