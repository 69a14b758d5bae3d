"""Trace the parts of redo log records for the annotated view: type, length, page id, offset, data."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.fields import MalformedError, TracePart
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import RedoRecordType
from binlogtool.formats.mariadb_innodb_binlog.redo.records import (
    FILE_TYPES,
    RedoRecord,
    decode_redo_records,
    find_record_end,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.varint import read_varint

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
        raise MalformedError("a record without a possible length", "", "length-out-of-bounds")


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
            raise MalformedError("a record without a possible length", f"[{index}]", "length-out-of-bounds")
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
