"""Trace the parts of redo log records for the annotated view: type, length, page id, offset, data."""

from __future__ import annotations

from collections.abc import Iterator

from binlogtool.formats.fields import MalformedError, Part
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import RecordType
from binlogtool.formats.mariadb_innodb_binlog.redo.records import FILE_TYPES, RedoRecord, decode_records, next_record
from binlogtool.formats.mariadb_innodb_binlog.redo.varint import read_varint

_RANGED = (RecordType.WRITE, RecordType.MEMSET, RecordType.MEMMOVE)


def record_parts(data: bytes, start: int, end: int, encrypted: bool) -> Iterator[Part]:
    """Trace the records of the mini-transaction at `data[start:end]`.

    Raises:
        MalformedError: after the good parts of a record whose content or length is wrong.
    """
    body = data[start:end]
    if encrypted:
        yield from _sealed(body, start)
        return
    at = 0
    for index, record in enumerate(decode_records(body, 0)):
        yield Part(f"[{index}]", 1, start + at, None, meaning=record.type.name)
        yield from _parts(f"[{index}]", body, record, start)
        if record.problem:
            raise MalformedError(record.problem, f"[{index}]")
        at = record.lsn + record.size
    if at < len(body) and body[at] > 1:
        raise MalformedError("a record without a possible length", "", "length-out-of-bounds")


def _parts(path: str, body: bytes, record: RedoRecord, base: int) -> Iterator[Part]:
    at, end = record.lsn, record.lsn + record.size
    numbers, last = _fields(record)
    yield Part(f"{path}.type", 2, base + at, base + at + 1, body[at], record.type.name)
    at += 1
    if not body[record.lsn] & 15:
        numbers.insert(0, "length_above_15")
    for name in numbers:
        value, after = read_varint(body, at, end)
        if after < 0:
            break
        yield Part(f"{path}.{name}", 2, base + at, base + after, value, _meaning(name, record))
        at = after
    if record.subtype is not None and at < end:
        yield Part(f"{path}.subtype", 2, base + at, base + at + 1, record.subtype, record.subtype_name or "")
        at += 1
    if at < end:
        yield _rest(f"{path}.{last}", body, base, at, end, record)


def _fields(record: RedoRecord) -> tuple[list[str], str]:
    """Return the names of the varints after the type, and of the remaining bytes."""
    if record.space_id is None or record.page_no is None:
        return [], "data"
    ids = [] if record.same_page and record.type < RecordType.FILE_CREATE else ["space_id", "page_no"]
    if record.type in _RANGED and record.offset is not None:
        ids += ["offset"] if record.type is RecordType.WRITE else ["offset", "len"]
        ids += ["source"] if record.type is RecordType.MEMMOVE else []
    last = {RecordType.FILE_CHECKPOINT: "checkpoint_lsn", RecordType.MEMSET: "pattern"}
    return ids, "name" if record.type in FILE_TYPES else last.get(record.type, "data")


def _meaning(name: str, record: RedoRecord) -> str:
    if name == "offset" and record.same_page:
        return f"{record.offset} in the page"
    return f"{record.source} in the page" if name == "source" else ""


def _rest(path: str, body: bytes, base: int, at: int, end: int, record: RedoRecord) -> Part:
    value: object = body[at:end]
    if record.checkpoint_lsn is not None:
        value = record.checkpoint_lsn
    elif record.names:
        value = " -> ".join(record.names)
    return Part(path, 2, base + at, base + end, value)


def _sealed(body: bytes, base: int) -> Iterator[Part]:
    """Trace the records of an encrypted log: type and length, and the encrypted rest."""
    at = index = 0
    while at < len(body) and body[at] > 1:
        end = next_record(body, at, len(body))
        if end < 0:
            raise MalformedError("a record without a possible length", f"[{index}]", "length-out-of-bounds")
        clear = at + 1 if body[at] & 15 else read_varint(body, at + 1, end)[1]
        yield Part(f"[{index}]", 1, base + at, None, meaning="encrypted")
        yield Part(f"[{index}].type", 2, base + at, base + at + 1, body[at], RecordType(body[at] & 0x70).name)
        if clear > at + 1:
            above = read_varint(body, at + 1, end)[0]
            yield Part(f"[{index}].length_above_15", 2, base + at + 1, base + clear, above)
        if clear < end:
            yield Part(f"[{index}].encrypted", 2, base + clear, base + end, body[clear:end])
        at, index = end, index + 1
