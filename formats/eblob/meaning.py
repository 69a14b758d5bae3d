"""Decode records: kind, key, target, group, and body.

See docs/spec/eblob-binlog.md#4-record-dialect-b-the-final-one-since-2012-12-22-commit-4616601.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from binlogtool.formats.columns import integers
from binlogtool.formats.derived import unpacker_of
from binlogtool.formats.described import Described
from binlogtool.formats.eblob.groups.grouping import Kind, Record, preceding, records, remember
from binlogtool.formats.eblob.layout.dialects import Dialect
from binlogtool.formats.eblob.layout.layout import Log
from binlogtool.formats.eblob.schema import (
    CONTROL,
    HASH_SIZE,
    RECORD,
    RECORD_A0,
    RECORD_HEADER,
    RECORD_P,
    TARGET,
    TARGET_BE,
    TARGET_SIZE,
    WRITE_CONTROL,
    WRITE_CONTROL_SIZE,
    ControlFlag,
)
from binlogtool.formats.layouts import Batch
from binlogtool.limits import Limits

OTHER_TYPES = ("UPDATE", "REMOVE_ALL", "RAW_INDEX", "RAW_DATA")
"""Names that only the dialects before the final one have."""

TYPES: Mapping[int, str] = MappingProxyType(
    {kind.value: kind.name for kind in Kind} | dict(enumerate(OTHER_TYPES, len(Kind) + 1))
)
"""Names of record kinds. The file stores no such codes: see help.md."""

RAW_DATA = 1
"""The one type of the final dialect."""

_control = unpacker_of(CONTROL, "key", "flags", "data_size", "disk_size", "position")
_wide = unpacker_of(RECORD, "key")
_packed = unpacker_of(RECORD_P, "key")
_origin = unpacker_of(RECORD_A0, "origin")
_targets = {"little": unpacker_of(TARGET, "target_offset"), "big": unpacker_of(TARGET_BE, "target_offset")}


def described(context: Log, batch: Batch, start: int, stop: int) -> list[Record]:
    """List the records `[start, stop)` of a batch of a grouped dialect; remembers what the next batch needs."""
    order = context.dialect.byte_order
    remember(batch, context.tails, order)
    return list(records(batch, start, stop, preceding(batch, start, context.tails, order), order))


def describe(context: Log, batch: Batch, start: int, stop: int) -> Described:
    """Return the envelope columns: seq is the record's number, object its key, txn its group's first record."""
    none: list[Any] = [None] * (stop - start)
    numbers: list[int | None] = list(range(batch.first_record + start, batch.first_record + stop))
    if context.dialect.grouped:
        found = described(context, batch, start, stop)
        groups: list[str | int | None] = [record.group for record in found]
        keys: list[str | None] = [record.key.hex() for record in found]
        return Described([record.kind.name for record in found], numbers, none, keys, none, groups)
    names = type_names(context.dialect)
    types = [names[kind] for kind in integers(batch.frames["type"], start, stop)]
    key = _key_reader(context.dialect)
    offsets = integers(batch.frames["offset"], start, stop)
    return Described(types, numbers, none, [key(batch.window, at) for at in offsets], none, none)


def type_names(dialect: Dialect) -> Mapping[int, str]:
    """Return the shown names of type numbers, for dialects that store a type.

    The numbers of dialect p changed their meaning, so they are all shown as RECORD.
    """
    stored = dialect.types
    return {number: Kind.RECORD.name if name.startswith("TYPE_") else name for number, name in stored.items()}


def _key_reader(dialect: Dialect) -> Callable[[memoryview, int], str]:
    return _wide_key if dialect.head == RECORD_HEADER else _offset_key


def _wide_key(window: memoryview, at: int) -> str:
    key: bytes = _wide(window, at)[0]
    return key.hex()


def _offset_key(window: memoryview, at: int) -> str:
    return str(_packed(window, at)[0])


def bodies(context: Log, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode one body per record: sizes, target offset, and the data, decoded if the kind is known."""
    columns = [integers(batch.frames[name], start, stop) for name in ("offset", "end", "meta_size")]
    if context.dialect.grouped:
        types, grouped = [RAW_DATA] * (stop - start), [*described(context, batch, start, stop)]
        rows = zip(types, *columns, grouped, strict=True)
    else:
        rows = zip(integers(batch.frames["type"], start, stop), *columns, [None] * (stop - start), strict=True)
    return [
        _body(context.dialect, kind, batch.window[at:end], meta_size, record)
        for kind, at, end, meta_size, record in rows
    ]


def _body(dialect: Dialect, kind: int, raw: memoryview, meta_size: int, record: Record | None) -> dict[str, Any]:
    split = dialect.head + meta_size
    data = bytes(raw[split:])
    body: dict[str, Any] = {"type": kind, "meta_size": meta_size, "data_size": len(data)}
    body |= _metadata(dialect, bytes(raw[dialect.head : split]))
    if dialect.name == "a0":
        body["origin"] = _origin(raw)[0]
    if record is not None and record.kind is Kind.FOOTER:
        relative = record.target - record.record_start
        hash_ = data[:HASH_SIZE].hex()
        return body | {"relative_offset": relative, "sha512": hash_, "record_start": record.record_start}
    if record is not None and record.kind is Kind.CONTROL:
        return body | {"relative_offset": 0} | control(data)
    if record is not None and record.kind is Kind.REMOVE:
        return body | {"flags": flag_names(ControlFlag.REMOVE)}
    return body | {"data": data}


def _metadata(dialect: Dialect, raw: bytes) -> dict[str, Any]:
    if not raw:
        return {}
    if len(raw) == TARGET_SIZE:
        return {"target_offset": _targets[dialect.byte_order](raw)[0]}
    if len(raw) == WRITE_CONTROL_SIZE and dialect.name == "a":
        parsed = WRITE_CONTROL.parse(raw)
        return {"write_control": {name: v for name, v in parsed.items() if name not in ("_io", "padding")}}
    return {"metadata": raw}


def control(data: bytes) -> dict[str, Any]:
    """Decode the members of an eblob_disk_control."""
    key, flags, data_size, disk_size, position = _control(data)
    return {
        "control": {
            "key": key.hex(),
            "flags": flag_names(flags),
            "data_size": data_size,
            "disk_size": disk_size,
            "position": position,
        }
    }


def flag_names(flags: int) -> list[str]:
    """List the names of the flags that are set; unknown ones as one number."""
    known = [flag for flag in ControlFlag if flags & flag]
    rest = flags & ~sum(flag.value for flag in known)
    return [str(flag.name) for flag in known] + ([hex(rest)] if rest else [])
