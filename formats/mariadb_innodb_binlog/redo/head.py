"""Read the first 12 KiB of a redo log: its format, and where recovery starts.

See docs/spec/mariadb_innodb_binlog.md#redo-file-header and
docs/spec/mariadb_innodb_binlog.md#checkpoint-blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.fields import ChecksumResult
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import (
    CHECKPOINT_OFFSETS,
    CHECKPOINT_RECORD_SIZE,
    CHECKPOINT_SIZE,
    FORMAT_ENCRYPTED,
    FORMAT_RELEASES,
    HEADER_SIZE,
    START_OFFSET,
    RedoLogFormat,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.schema import CHECKPOINT, HEADER
from binlogtool.formats.syndrome import locate_flip

_HEADER_FIELDS = ((0, "format"), (4, "zero"), (8, "first_lsn"), (16, "creator"), (48, "encryption"))
_CHECKPOINT_FIELDS = ((0, "checkpoint_lsn"), (8, "end_lsn"), (16, "zero"))
_BLOCK = 4096


class RedoHeader(msgspec.Struct, frozen=True):
    """The file header.

    Attributes:
        format: see `RedoLogFormat`.
        creator: as text, without its NUL bytes.
        crc_ok: its CRC is right.
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

    Attributes:
        offset: in the file.
        problem: why the server does not use it; "" = valid.
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
    """Content of the first 12 KiB.

    Attributes:
        checkpoint: the one to use; None if the log cannot be walked.
    """

    header: RedoHeader | None
    checkpoints: tuple[RedoCheckpoint, ...]
    checkpoint: RedoCheckpoint | None
    findings: tuple[Finding, ...]


def read_redo_head(data: bytes, size: int) -> RedoHead:
    """Read header and checkpoints from the first `START_OFFSET` bytes of a file of `size` bytes."""
    if len(data) < HEADER_SIZE:
        return RedoHead(None, (), None, (_report_too_small(size),))
    fields = HEADER.parse(data[:HEADER_SIZE])
    header = _make_header(fields)
    rejection = _check_format(header, fields, size)
    if rejection is not None:
        return RedoHead(header, (), None, (rejection,))
    if len(data) < START_OFFSET or size < START_OFFSET + CHECKPOINT_RECORD_SIZE:
        return RedoHead(header, (), None, (_report_too_small(size),))
    findings = [_report_encrypted(header)] if header.encrypted else []
    if size % _BLOCK:
        findings.append(_report_odd_size(size))
    blocks = [CHECKPOINT.parse(data[at : at + CHECKPOINT_SIZE]) for at in CHECKPOINT_OFFSETS]
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
    """Sort key of checkpoints: the greater LSN is preferred, on a tie the second block."""
    return checkpoint.checkpoint_lsn, checkpoint.offset


def _make_header(fields: Any) -> RedoHeader:
    number = int(fields.format)
    creator = fields.creator.rstrip(b"\0").decode("utf-8", "backslashreplace")
    encrypted = number == RedoLogFormat.FORMAT_ENC_11 or any(fields.encryption[:4])
    return RedoHeader(number, fields.first_lsn, creator, encrypted, bool(fields.checksum.ok))


def _check_format(header: RedoHeader, fields: Any, size: int) -> Finding | None:
    """Return the finding about a header after which nothing can be read; None if it is usable."""
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
        text = f"redo log format {number:#010x} is not known; the log was created with {header.creator}"
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
        "found, the binlog writes cannot be read"
    )
    return make_finding(
        "payload-undecodable", 0, HEADER_SIZE, text, severity=Severity.WARNING, diagnosis="redo-encrypted"
    )


def _report_too_small(size: int) -> Finding:
    text = f"{size} bytes are no redo log: header and checkpoints alone take {START_OFFSET}"
    return make_finding("bad-header", 0, size, text, diagnosis="redo-too-small")


def _report_odd_size(size: int) -> Finding:
    text = f"the size of the file, {size}, is no multiple of {_BLOCK}: it was cut, and LSNs may lie elsewhere"
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
    """Report a wrong CRC, with the field that holds the flipped bit if one flipped bit explains it."""
    length = checksum.end - checksum.start
    facts: dict[str, Any] = {"diagnosis": diagnosis, "stored": checksum.stored, "computed": checksum.computed}
    text = f"{label} has a wrong checksum: {checksum.stored:08x} is stored, {checksum.computed:08x} computed"
    flip = locate_flip(CRC32C, checksum.stored, checksum.computed, length)
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
