"""Schema of the InnoDB redo log for the annotated view.

Source: MariaDB `storage/innobase/include/log0log.h`, `mtr0types.h`, `log/log0log.cc` (`log_t::header_write`),
`buf/buf0flu.cc` (`log_t::write_checkpoint`). See docs/spec/mariadb_innodb_binlog.md#innodb-redo-log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from construct import Bytes, Construct, Enum, Int8ub, Int32ub, Int64ub, Struct, Tell, stream_read, stream_write, this

from binlogtool.format_api.field_types import CrcCheck, Magic, MalformedError, ScalarKernel, TracePart
from binlogtool.format_api.layout import CRC32C
from binlogtool.formats.mariadb_innodb_binlog.redo.records import (
    CHECKPOINT_OFFSETS,
    CHECKPOINT_SIZE,
    FILE_TYPES,
    HEADER_SIZE,
    MTR_SIZE_MAX,
    NONCE_SIZE,
    START_OFFSET,
    RedoLogFormat,
    RedoRecord,
    RedoRecordType,
    decode_redo_records,
    find_record_end,
    find_records_end,
    read_varint,
)
from binlogtool.limits import Limits

# --- Redo log records in the annotated view ---

_RANGE_TYPES = (RedoRecordType.WRITE, RedoRecordType.MEMSET, RedoRecordType.MEMMOVE)


def trace_redo_records(data: bytes, start: int, end: int, encrypted: bool) -> Iterator[TracePart]:
    """Trace the records of the mini-transaction at `data[start:end]`.

    Raises:
        MalformedError: after the good parts of a record whose content or length is wrong.
    """
    body = data[start:end]
    if encrypted:
        yield from _trace_encrypted_records(body, start)
        return
    offset = 0
    for index, record in enumerate(decode_redo_records(body, 0)):
        yield TracePart(f"[{index}]", 1, start + offset, None, meaning=record.type.name)
        yield from _trace_record(f"[{index}]", body, record, start)
        if record.problem:
            raise MalformedError(record.problem, f"[{index}]")
        offset = record.lsn + record.size
    if offset < len(body) and body[offset] > 1:
        raise MalformedError("a record with an impossible length", "", "length-out-of-bounds")


def _trace_record(path: str, body: bytes, record: RedoRecord, base: int) -> Iterator[TracePart]:
    offset, end = record.lsn, record.lsn + record.size
    number_names, last_name = _field_names(record)
    yield TracePart(f"{path}.type", 2, base + offset, base + offset + 1, body[offset], record.type.name)
    offset += 1
    if not body[record.lsn] & 15:
        number_names.insert(0, "length_above_15")
    for name in number_names:
        value, number_end = read_varint(body, offset, end)
        if number_end < 0:
            break
        yield TracePart(f"{path}.{name}", 2, base + offset, base + number_end, value, _describe_number(name, record))
        offset = number_end
    if record.subtype is not None and offset < end:
        yield TracePart(
            f"{path}.subtype", 2, base + offset, base + offset + 1, record.subtype, record.subtype_name or ""
        )
        offset += 1
    if offset < end:
        yield _trace_rest(f"{path}.{last_name}", body, base, offset, end, record)


def _field_names(record: RedoRecord) -> tuple[list[str], str]:
    """Return the names of the varints after the type, and of the remaining bytes."""
    if record.space_id is None or record.page_no is None:
        return [], "data"
    number_names = [] if record.same_page and record.type < RedoRecordType.FILE_CREATE else ["space_id", "page_no"]
    if record.type in _RANGE_TYPES and record.offset is not None:
        number_names += ["offset"] if record.type is RedoRecordType.WRITE else ["offset", "len"]
        number_names += ["source"] if record.type is RedoRecordType.MEMMOVE else []
    last_names = {RedoRecordType.FILE_CHECKPOINT: "checkpoint_lsn", RedoRecordType.MEMSET: "pattern"}
    return number_names, "name" if record.type in FILE_TYPES else last_names.get(record.type, "data")


def _describe_number(name: str, record: RedoRecord) -> str:
    if name == "offset" and record.same_page:
        return f"{record.offset} in the page"
    return f"{record.source} in the page" if name == "source" else ""


def _trace_rest(path: str, body: bytes, base: int, offset: int, end: int, record: RedoRecord) -> TracePart:
    value: object = body[offset:end]
    if record.checkpoint_lsn is not None:
        value = record.checkpoint_lsn
    elif record.file_names:
        value = " -> ".join(record.file_names)
    return TracePart(path, 2, base + offset, base + end, value)


def _trace_encrypted_records(body: bytes, base: int) -> Iterator[TracePart]:
    """Trace the records of an encrypted log: type and length, and the encrypted rest."""
    offset = index = 0
    while offset < len(body) and body[offset] > 1:
        end = find_record_end(body, offset, len(body))
        if end < 0:
            raise MalformedError("a record with an impossible length", f"[{index}]", "length-out-of-bounds")
        clear_end = offset + 1 if body[offset] & 15 else read_varint(body, offset + 1, end)[1]
        yield TracePart(f"[{index}]", 1, base + offset, None, meaning="encrypted")
        yield TracePart(
            f"[{index}].type",
            2,
            base + offset,
            base + offset + 1,
            body[offset],
            RedoRecordType(body[offset] & 0x70).name,
        )
        if clear_end > offset + 1:
            length_above = read_varint(body, offset + 1, end)[0]
            yield TracePart(f"[{index}].length_above_15", 2, base + offset + 1, base + clear_end, length_above)
        if clear_end < end:
            yield TracePart(f"[{index}].encrypted", 2, base + clear_end, base + end, body[clear_end:end])
        offset, index = end, index + 1


# --- Field type of the records of a mini-transaction ---


class MtrRecords(Construct):  # type: ignore[misc]
    """Construct of all records of one mini-transaction, up to its end byte, as their bytes; their parts can be traced.

    Args:
        encrypted: only the type and the length of a record are readable.
    """

    kernel = ScalarKernel(find_records_end)

    def __init__(self, encrypted: bool = False) -> None:
        super().__init__()
        self.encrypted = encrypted

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        start = stream.tell()
        data = stream.read(MTR_SIZE_MAX + 1)
        _, end = find_records_end(data, 0, len(data))
        stream.seek(start)
        if end < 0:
            problem = "a record with an impossible length" if end == -2 else "no end byte of the mini-transaction"
            raise MalformedError(problem, path, "payload-undecodable" if end == -2 else "length-out-of-bounds")
        return bytes(stream_read(stream, end, path))

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> bytes:
        stream_write(stream, obj, len(obj), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Trace the records by index, each with its parts."""
        return trace_redo_records(data, start, end, self.encrypted)


# --- The InnoDB redo log on disk, MariaDB 10.8 and later ---

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
"""File header (docs/spec/mariadb_innodb_binlog.md#redo-file-header). Its rules are checked by the reader, so that a
wrong header can still be shown.
"""

CHECKPOINT = Struct(
    "start" / Tell,
    "checkpoint_lsn" / Int64ub,
    "end_lsn" / Int64ub,
    "zero" / Bytes(44),
    "covered_end" / Tell,
    "crc32c" / Int32ub,
    "checksum" / CrcCheck(CRC32C, this.crc32c, this.start, this.covered_end),
)
"""Checkpoint block (docs/spec/mariadb_innodb_binlog.md#checkpoint-blocks)."""

HEAD = Struct(
    "header" / HEADER,
    "unused_0" / Bytes(CHECKPOINT_OFFSETS[0] - HEADER_SIZE),
    "checkpoint_1" / CHECKPOINT,
    "unused_1" / Bytes(CHECKPOINT_OFFSETS[1] - CHECKPOINT_OFFSETS[0] - CHECKPOINT_SIZE),
    "checkpoint_2" / CHECKPOINT,
    "unused_2" / Bytes(START_OFFSET - CHECKPOINT_OFFSETS[1] - CHECKPOINT_SIZE),
)
"""Everything before the ring: `[0, START_OFFSET)`."""

MTR = Struct(
    "start" / Tell,
    "records" / MtrRecords(),
    "covered_end" / Tell,
    "sequence_bit" / Magic(Int8ub, even_round=1, odd_round=0),
    "crc32c" / Int32ub,
    "checksum" / CrcCheck(CRC32C, this.crc32c, this.start, this.covered_end),
)
"""A mini-transaction (docs/spec/mariadb_innodb_binlog.md#mini-transactions). Bytes of one that wraps at the end of the
file must be joined first.
"""

MTR_ENCRYPTED = Struct(
    "records" / MtrRecords(encrypted=True),
    "sequence_bit" / Magic(Int8ub, even_round=1, odd_round=0),
    "nonce" / Bytes(NONCE_SIZE),
    "crc32c" / Int32ub,
)
"""A mini-transaction of an encrypted log.

Its CRC covers records and nonce without the byte between: the reader checks it.
"""
