"""Read the InnoDB redo log from its checkpoint to the last durable mini-transaction.

The log sequence number (LSN) counts bytes of the log since the server was set up; the file holds the newest `capacity`
bytes as a ring. Apart from the records themselves there are no lengths or blocks: the end of the log is the first
position without a valid mini-transaction of the right round. See docs/spec/mariadb_innodb_binlog.md#innodb-redo-log.

Older formats and encrypted logs are recognized by their header, see `RedoLog.findings`.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from construct import Bytes, Enum, Int32ub, Int64ub, Struct, Tell, this

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.layout import CRC32C, locate_bit_flip
from binlogtool.format_api.schema_fields import ChecksumResult, CrcCheck
from binlogtool.formats.innodb.redo_records import (
    BINLOG_SPACES,
    CHECKPOINT_OFFSETS,
    CHECKPOINT_RECORD_SIZE,
    CHECKPOINT_SIZE,
    CRC_SIZE,
    FILE_TYPES,
    FORMAT_ENCRYPTED,
    FORMAT_RELEASES,
    HEADER_SIZE,
    MTR_SIZE_MAX,
    NONCE_SIZE,
    START_OFFSET,
    RedoLogFormat,
    RedoRecord,
    RedoRecordType,
    decode_redo_records,
    encode_varint,
    find_end_byte_after_records,
)

# --- Head of a redo log ---

HEADER = Struct(
    "start" / Tell,
    "format" / Enum(Int32ub, RedoLogFormat),
    "zero" / Int32ub,
    "first_lsn" / Int64ub,
    "creator" / Bytes(32),
    "encryption" / Bytes(460),
    "covered_end" / Tell,
    "crc32c" / Int32ub,
    "checksum" / CrcCheck(CRC32C, this.crc32c, this.start, this.covered_end),
)
"""File header (docs/spec/mariadb_innodb_binlog.md#redo-file-header), as `log_t::header_write` writes it."""

CHECKPOINT = Struct(
    "start" / Tell,
    "checkpoint_lsn" / Int64ub,
    "end_lsn" / Int64ub,
    "zero" / Bytes(44),
    "covered_end" / Tell,
    "crc32c" / Int32ub,
    "checksum" / CrcCheck(CRC32C, this.crc32c, this.start, this.covered_end),
)
"""Checkpoint block (docs/spec/mariadb_innodb_binlog.md#checkpoint-blocks), as `log_t::write_checkpoint` writes it."""

_HEADER_FIELDS = ((0, "format"), (4, "zero"), (8, "first_lsn"), (16, "creator"), (48, "encryption"))
_CHECKPOINT_FIELDS = ((0, "checkpoint_lsn"), (8, "end_lsn"), (16, "zero"))
_BLOCK = 4096


class RedoHeader(msgspec.Struct, frozen=True):
    """File header of a redo log.

    `format`: see `RedoLogFormat`. `creator`: as text, without its NUL bytes. `crc_ok`: its CRC is right.
    """

    format: int
    first_lsn: int
    creator: str
    encrypted: bool
    crc_ok: bool

    @property
    def format_name(self) -> str:
        """Name of the format, or its number."""
        is_known = self.format in RedoLogFormat.__members__.values()
        return RedoLogFormat(self.format).name if is_known else f"{self.format:#010x}"


class RedoCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint block.

    `offset`: its offset in the file. `problem`: why the server does not use it; "" = valid.
    """

    offset: int
    checkpoint_lsn: int
    end_lsn: int
    problem: str = ""

    @property
    def is_valid(self) -> bool:
        """True if recovery may start from it."""
        return not self.problem


class RedoHead(msgspec.Struct, frozen=True):
    """Content of the first 12 KiB; `checkpoint`: the checkpoint to use; None if the log cannot be walked."""

    header: RedoHeader | None
    checkpoints: tuple[RedoCheckpoint, ...]
    checkpoint: RedoCheckpoint | None
    findings: tuple[Finding, ...]


def parse_header_and_checkpoints(first_bytes: bytes, file_size: int) -> RedoHead:
    """Read header and checkpoints from the first `START_OFFSET` bytes of a file of `file_size` bytes."""
    if len(first_bytes) < HEADER_SIZE:
        return RedoHead(None, (), None, (_report_too_small(file_size),))
    fields = HEADER.parse(first_bytes[:HEADER_SIZE])
    number = int(fields.format)
    creator = fields.creator.rstrip(b"\0").decode("utf-8", "backslashreplace")
    encrypted = number == RedoLogFormat.FORMAT_ENC_11 or any(fields.encryption[:4])
    header = RedoHeader(number, fields.first_lsn, creator, encrypted, bool(fields.checksum.ok))
    rejection = _find_header_rejection(header, fields)
    if rejection is not None:
        return RedoHead(header, (), None, (rejection,))
    if len(first_bytes) < START_OFFSET or file_size < START_OFFSET + CHECKPOINT_RECORD_SIZE:
        return RedoHead(header, (), None, (_report_too_small(file_size),))
    findings = [_report_encrypted(header)] if header.encrypted else []
    if file_size % _BLOCK:
        findings.append(_report_odd_size(file_size))
    blocks = [CHECKPOINT.parse(first_bytes[at : at + CHECKPOINT_SIZE]) for at in CHECKPOINT_OFFSETS]
    checkpoints = tuple(
        _make_checkpoint(block, at, header) for block, at in zip(blocks, CHECKPOINT_OFFSETS, strict=True)
    )
    usable = [one for one in checkpoints if one.is_valid]
    chosen = max(usable, key=_checkpoint_order) if usable else None
    for block, checkpoint in zip(blocks, checkpoints, strict=True):
        findings.extend(_check_checkpoint(block, checkpoint, chosen))
    if chosen is None:
        text = f"no valid checkpoint was found; the redo log was created with {header.creator}"
        offset, diagnosis = CHECKPOINT_OFFSETS[0], "redo-no-checkpoint"
        findings.append(make_finding("bad-header", offset, CHECKPOINT_SIZE, text, diagnosis=diagnosis))
    return RedoHead(header, checkpoints, chosen, tuple(findings))


def _checkpoint_order(checkpoint: RedoCheckpoint) -> tuple[int, int]:
    """Return the sort key of a checkpoint: the higher LSN is preferred, on a tie the second block."""
    return checkpoint.checkpoint_lsn, checkpoint.offset


def _find_header_rejection(header: RedoHeader, fields: Any) -> Finding | None:
    """Return the finding about a header after which nothing can be read; None if the header is usable."""
    number = header.format
    if number == RedoLogFormat.FORMAT_3_23:
        return _report_older_format(header)
    if not header.crc_ok:
        return _report_wrong_crc(
            fields.checksum, _HEADER_FIELDS, 0, "the redo log's header", "redo-header-damaged", Severity.ERROR
        )
    if number & ~FORMAT_ENCRYPTED in FORMAT_RELEASES:
        return _report_older_format(header)
    if number not in (RedoLogFormat.FORMAT_10_8, RedoLogFormat.FORMAT_ENC_11):
        text = f"redo log format {number:#010x} is unknown; the log was created with {header.creator}"
        return make_finding("unsupported-version", 0, 4, text, format=number)
    if fields.zero or header.first_lsn < START_OFFSET:
        text = f"invalid header: zero is {fields.zero}, first_lsn is {header.first_lsn} (at least {START_OFFSET})"
        return make_finding("bad-header", 4, 12, text, diagnosis="redo-header-damaged")
    return None


def _report_older_format(header: RedoHeader) -> Finding:
    number = header.format & ~FORMAT_ENCRYPTED
    text = (
        f"redo log format {header.format} of {FORMAT_RELEASES[RedoLogFormat(number)]}: too old to hold "
        f"binlog records; it is not "
        "read. Start and shut down that server cleanly before an upgrade"
    )
    return make_finding("unsupported-version", 0, 4, text, format=header.format, diagnosis="redo-older-format")


def _report_encrypted(header: RedoHeader) -> Finding:
    text = (
        f"the redo log is encrypted ({header.format_name}, created with {header.creator}): the last durable LSN can be "
        "found, but the binlog writes cannot be read"
    )
    return make_finding(
        "payload-undecodable", 0, HEADER_SIZE, text, severity=Severity.WARNING, diagnosis="redo-encrypted"
    )


def _report_too_small(size: int) -> Finding:
    text = f"{size} bytes are too few for a redo log; header and checkpoints alone take {START_OFFSET}"
    return make_finding("bad-header", 0, size, text, diagnosis="redo-too-small")


def _report_odd_size(size: int) -> Finding:
    text = (
        f"the size of the file, {size}, is not a multiple of {_BLOCK}; it was truncated, and LSNs may be "
        f"at other offsets"
    )
    offset = size - size % _BLOCK
    return make_finding("torn-tail", offset, size - offset, text, severity=Severity.WARNING, diagnosis="redo-odd-size")


def _make_checkpoint(block: Any, offset: int, header: RedoHeader) -> RedoCheckpoint:
    lsn, end = block.checkpoint_lsn, block.end_lsn
    problem = ""
    if not block.checksum.ok:
        problem = "wrong checksum"
    elif any(block.zero):
        problem = "bytes 16 to 59 are not zero"
    elif not header.first_lsn <= lsn <= end:
        problem = f"{header.first_lsn} <= {lsn} <= {end} does not hold"
    return RedoCheckpoint(offset, lsn, end, problem)


def _check_checkpoint(block: Any, checkpoint: RedoCheckpoint, chosen: RedoCheckpoint | None) -> Iterator[Finding]:
    never_written = not (checkpoint.checkpoint_lsn or checkpoint.end_lsn or any(block.zero) or block.crc32c)
    if checkpoint.is_valid or (never_written and chosen is not None):
        return
    label = f"the checkpoint block at {checkpoint.offset}"
    fallback_text = f"; the block at {chosen.offset} is used" if chosen else ""
    severity = Severity.WARNING if chosen else Severity.ERROR
    if not block.checksum.ok:
        yield _report_wrong_crc(
            block.checksum,
            _CHECKPOINT_FIELDS,
            checkpoint.offset,
            label,
            "redo-checkpoint-damaged",
            severity,
            fallback_text,
        )
        return
    text = f"{label} is not valid: {checkpoint.problem}{fallback_text}"
    yield make_finding(
        "bad-header", checkpoint.offset, CHECKPOINT_SIZE, text, severity=severity, diagnosis="redo-checkpoint-damaged"
    )


def _report_wrong_crc(
    checksum: ChecksumResult,
    fields: Any,
    base: int,
    label: str,
    diagnosis: str,
    severity: Severity,
    extra_text: str = "",
) -> Finding:
    """Report a wrong CRC, including the field with the flipped bit if a single flip explains it."""
    length = checksum.end - checksum.start
    facts: dict[str, Any] = {"diagnosis": diagnosis, "stored": checksum.stored, "computed": checksum.computed}
    text = f"{label} has a wrong checksum: {checksum.stored:08x} is stored, {checksum.computed:08x} computed"
    flip = locate_bit_flip(CRC32C, checksum.stored, checksum.computed, length)
    if flip is not None:
        flipped_at = flip.byte if flip.where == "data" else length + 3 - flip.byte
        field = (
            next((name for start, name in reversed(fields) if flipped_at >= start), "")
            if flipped_at < length
            else "crc32c"
        )
        facts |= {"flipped_field": field, "flipped_byte": base + flipped_at, "flipped_bit": flip.bit}
        text += f"; one flipped bit explains it: bit {flip.bit} of byte {base + flipped_at}, in {field}"
    return make_finding("checksum-mismatch", base, length + 4, text + extra_text, severity=severity, **facts)


# --- Walk over the ring ---

Read = Callable[[int, int], bytes]
"""Function `read(offset, size)` that returns the bytes `[offset, offset + size)` of a file, fewer at its end."""

MAX_MTR_BYTES = MTR_SIZE_MAX + 1 + NONCE_SIZE + CRC_SIZE
"""Maximum size of a mini-transaction."""

_WINDOW_BYTES = 4 * MTR_SIZE_MAX
"""Number of bytes of the log that are held in memory."""


class RedoRing(msgspec.Struct, frozen=True):
    """Maps LSNs to offsets in the file.

    `first_lsn`: the LSN at START_OFFSET in round 0. `size`: size of the file, > START_OFFSET.
    """

    read: Read
    first_lsn: int
    size: int

    @property
    def capacity(self) -> int:
        """Number of bytes in one round of the ring."""
        return self.size - START_OFFSET

    def offset_of_lsn(self, lsn: int) -> int:
        """Return the offset of an LSN in the file."""
        return START_OFFSET + (lsn - self.first_lsn) % self.capacity

    def sequence_bit(self, lsn: int) -> int:
        """Return the valid value of a mini-transaction's end byte that is at `lsn`."""
        return 1 - (lsn - self.first_lsn) // self.capacity % 2

    def read_at_lsn(self, lsn: int, size: int) -> bytes:
        """Read at most one round from `lsn` on, continuing at the start of the ring; fewer bytes if unreadable."""
        size = min(size, self.capacity)
        offset = self.offset_of_lsn(lsn)
        head = self.read(offset, min(size, self.size - offset))
        if len(head) == size or len(head) < self.size - offset:
            return head
        return head + self.read(START_OFFSET, size - len(head))


class RedoEndReason(enum.StrEnum):
    """Reason why the walk ended. All but the last three are normal ends of a sound log."""

    EMPTY = "there is no record"
    OLD_ROUND = "the sequence bit belongs to an older round of the file"
    CHECKSUM = "the CRC-32C is wrong"
    LENGTH = "a record has an impossible length"
    TOO_LONG = "the records do not end within 1 MiB"
    ROUND = "the mini-transaction would overlap the bytes where reading started"
    SHORT = "the file cannot be read further"


class Mtr(NamedTuple):
    """One valid mini-transaction; `body`: its records, without the end byte and the bytes after it."""

    start_lsn: int
    end_lsn: int
    body: bytes

    def decode_records(self) -> Iterator[RedoRecord]:
        """Decode the records of a mini-transaction (not in an encrypted log)."""
        return decode_redo_records(self.body, self.start_lsn)


class RedoLogEnd(msgspec.Struct, frozen=True):
    """End of the walk over the redo log.

    `lsn`: the last durable LSN. `mtrs`: number of valid mini-transactions before it. `next_valid`: LSN of a valid
    mini-transaction directly after one with a wrong CRC (a sign of damage inside the log rather than its end), else
    None. `wraps`: the rejected mini-transaction continues at the start of the ring, as far as its lengths can be
    trusted; in a truncated file, that is not where it was.
    """

    lsn: int
    reason: RedoEndReason
    mtrs: int
    next_valid: int | None = None
    wraps: bool = False


class MtrWalk:
    """One pass over the mini-transactions from an LSN on; at most one round of the ring.

    `end`: set when the pass is over.
    """

    def __init__(self, ring: RedoRing, lsn: int, encrypted: bool) -> None:
        self.end: RedoLogEnd | None = None
        self._ring = ring
        self._lsn = lsn
        self._limit = lsn + ring.capacity
        self._nonce = NONCE_SIZE if encrypted else 0
        self._window = b""
        self._base = lsn

    def __iter__(self) -> Iterator[Mtr]:
        lsn = self._lsn
        count = 0
        while isinstance(result := self._read_mtr_or_end_reason(lsn), Mtr):
            count += 1
            yield result
            lsn = result.end_lsn
        reason, rejected_end = result
        next_valid = (
            rejected_end
            if reason is RedoEndReason.CHECKSUM and isinstance(self._read_mtr_or_end_reason(rejected_end), Mtr)
            else None
        )
        self.end = RedoLogEnd(
            lsn, reason, count, next_valid, reason is not RedoEndReason.EMPTY and self._reaches_file_end(lsn)
        )

    def _read_mtr_or_end_reason(self, lsn: int) -> Mtr | tuple[RedoEndReason, int]:
        """Return the mini-transaction at `lsn`; else (the reason why there is none, the LSN where it would end)."""
        window_at = lsn - self._base
        end = find_end_byte_after_records(self._window, window_at, len(self._window))
        if end < 0 or end + 1 + self._nonce + CRC_SIZE > len(self._window):
            bytes_left = self._base + len(self._window) - lsn
            window_size = min(_WINDOW_BYTES, self._limit - lsn)
            if bytes_left < window_size:
                self._window = self._ring.read_at_lsn(lsn, window_size)
                self._base = lsn
            window_at = lsn - self._base
            end = find_end_byte_after_records(self._window, window_at, len(self._window))
        if end < 0 or end + 1 + self._nonce + CRC_SIZE > len(self._window):
            return self._find_reason_without_end_byte(window_at, end), lsn
        window, stored_at = self._window, end + 1 + self._nonce
        end_lsn = self._base + stored_at + CRC_SIZE
        if window[end] != self._ring.sequence_bit(self._base + end):
            return RedoEndReason.OLD_ROUND, end_lsn
        body = window[window_at:end]
        stored = int.from_bytes(window[stored_at : stored_at + CRC_SIZE], "big")
        if CRC32C(body + window[end + 1 : stored_at] if self._nonce else body) != stored:
            return RedoEndReason.CHECKSUM, end_lsn
        return Mtr(lsn, end_lsn, body)

    def _find_reason_without_end_byte(self, window_at: int, end: int) -> RedoEndReason:
        """Return why no end byte was found from `window_at` on, in a window of the maximum size."""
        bytes_left = len(self._window) - window_at
        if bytes_left and self._window[window_at] <= 1:
            return RedoEndReason.EMPTY
        if end == -2:
            return RedoEndReason.LENGTH if bytes_left < MAX_MTR_BYTES else RedoEndReason.TOO_LONG
        expected = min(MAX_MTR_BYTES, self._limit - self._base - window_at)
        return RedoEndReason.SHORT if bytes_left < expected else RedoEndReason.ROUND

    def _reaches_file_end(self, lsn: int) -> bool:
        """Return whether the mini-transaction at `lsn` reaches the end of the file before it ends."""
        bytes_left = self._ring.size - self._ring.offset_of_lsn(lsn)
        if bytes_left > MAX_MTR_BYTES:
            return False
        data = self._ring.read_at_lsn(lsn, bytes_left)
        end = find_end_byte_after_records(data, 0, len(data))
        return end == -1 or end + 1 + self._nonce + CRC_SIZE > bytes_left


# --- Redo log `ib_logfile0` of MariaDB 10.8 and later ---

_MAX_FILES = 10_000
"""Maximum number of file names in a summary."""

_MAX_PROBLEMS = 100
"""Maximum number of corrupted records that a summary describes."""


class RedoLog:
    """Redo log file. Reads the first 12 KiB at once, the ring only in `walk_mtrs`; holds at most a few MiB of it.

    `header`: None if the file is shorter than a header. `checkpoints`: both blocks. `checkpoint`: the one at which
    recovery starts; None if neither is valid. `findings`: about header and checkpoints. `is_readable`:
    mini-transactions can be walked.
    """

    def __init__(self, read: Read, size: int) -> None:
        head = parse_header_and_checkpoints(read(0, START_OFFSET), size)
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
        """Return a walk from the checkpoint to the last durable mini-transaction; iterate over it only once.

        Raises:
            ValueError: the log is not readable.
        """
        if self._ring is None or self.checkpoint is None:
            raise ValueError("this redo log cannot be read record by record")
        return MtrWalk(self._ring, self.checkpoint.checkpoint_lsn, self.is_encrypted)

    def offset_of_lsn(self, lsn: int) -> int | None:
        """Return the offset of an LSN in the file; None if the log is not readable."""
        return None if self._ring is None else self._ring.offset_of_lsn(lsn)


class RedoDataFile(msgspec.Struct, frozen=True):
    """Data file that file records name.

    `type`: type of the first file record. `names`: one name, or two for FILE_RENAME (old, new).
    """

    space_id: int
    type: RedoRecordType
    names: tuple[str, ...]
    lsn: int


class RedoSummary(msgspec.Struct, frozen=True):
    """Content of a redo log from its checkpoint on.

    `checkpoint_lsn`, `end_lsn`, `reason`: None if the log cannot be walked; end_lsn is the last durable LSN. `mtrs`:
    number of valid mini-transactions. `records`: number of records by type. `file_checkpoints`: (LSN of the
    mini-transaction, checkpoint LSN that it names), in order. `file_checkpoint_lsn`: LSN of the first FILE_CHECKPOINT
    of the chosen checkpoint; None = it is missing. `wraps`: the walk passes the end of the file. `files`: at most
    10,000, each name once. `binlog_writes`: number of WRITE records of the binlog's tablespaces.
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
        """True if only its own FILE_CHECKPOINT follows the checkpoint; always False for an encrypted log."""
        return self.mtrs == 1 and dict(self.records) == {"FILE_CHECKPOINT": 1}

    @property
    def is_acceptable(self) -> bool:
        """True if the server would accept the log: it contains the FILE_CHECKPOINT of the checkpoint."""
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
    """Collector of the facts that `summarize_redo_log` reports."""

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
        """Check that the FILE_CHECKPOINT of the chosen checkpoint is where the checkpoint block says.

        See docs/spec/mariadb_innodb_binlog.md#checkpoint-blocks.
        """
        start, expected = self.checkpoint.checkpoint_lsn, self.checkpoint.end_lsn
        if expected in self.checkpoint_lsns or (self.log.is_encrypted and end.lsn > expected):
            return
        facts: dict[str, Any] = {"checkpoint_lsn": start, "file_checkpoint_lsn": expected, "durable_lsn": end.lsn}
        if self.checkpoint_lsns:
            text = f"FILE_CHECKPOINT({start}) is at LSN {self.checkpoint_lsns[0]}, the checkpoint block says {expected}"
            yield make_finding("meta-mismatch", self.checkpoint.offset, 64, text, severity=Severity.WARNING, **facts)
            return
        text = (
            f"the redo log ends at LSN {end.lsn} ({end.reason}), without FILE_CHECKPOINT({start}), which was expected "
            f"at LSN {expected}; the server does not start with this log, and it proves nothing about the binlog"
        )
        diagnosis = "redo-damaged-before-file-checkpoint"
        yield make_finding("dangling-reference", self.offset_of_lsn(end.lsn), 0, text, diagnosis=diagnosis, **facts)

    def check_end(self, end: RedoLogEnd) -> Iterator[Finding]:
        """Report doubts that this is really the end of the log."""
        if end.next_valid is not None:
            text = (
                f"the mini-transaction at LSN {end.lsn} has a wrong checksum, but a valid one follows at LSN "
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
                f"the mini-transaction at LSN {end.lsn} reaches the end of the file and does not continue at "
                f"the start of "
                "the ring; the server crashed while writing it, or the file was truncated"
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
    """Redo record about a page of a selected tablespace, with the mini-transaction that makes it durable.

    `record`: its type is WRITE for all sound binlog records. `start_lsn`, `end_lsn`: range `[start, end)` of the
    mini-transaction.
    """

    record: RedoRecord
    start_lsn: int
    end_lsn: int


def iter_page_writes(log: RedoLog, spaces: Collection[int] = BINLOG_SPACES) -> Iterator[PageWrite]:
    """Yield the page records of these tablespaces from the checkpoint to the last durable LSN, in log order.

    Yields nothing for a log that cannot be walked or is encrypted. A corrupted record that names no page is not
    included (`summarize_redo_log` reports it).
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
