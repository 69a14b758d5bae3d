"""Decode records: kind, key, target, group, body; split points between them.

See docs/spec/eblob.md#records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.findings import Finding
from binlogtool.format_api.format import BodyWithFindings, EnvelopeColumns, RecordText, RowChanges, select_members
from binlogtool.format_api.layout import (
    Batch,
    EveryFrameSplitFinder,
    KernelCompiler,
    LogFileLayout,
    SplitFinder,
    SplitPoint,
    make_split_point,
    to_int_list,
)
from binlogtool.format_api.schema_fields import make_unpacker
from binlogtool.format_api.tables_and_changes import (
    RecordTableRows,
    TableColumn,
    TableReader,
    TableRow,
    TableSchema,
)
from binlogtool.formats.eblob.overwrite_groups import (
    EblobRecord,
    EblobRecordKind,
    find_preceding_records,
    iter_records,
    remember_last_records,
)
from binlogtool.formats.eblob.schema import (
    CONTROL,
    HASH_SIZE,
    RECORD,
    RECORD_A0,
    RECORD_HEADER_SIZE,
    RECORD_P,
    TARGET,
    TARGET_BE,
    TARGET_SIZE,
    WRITE_CONTROL,
    WRITE_CONTROL_SIZE,
    ControlFlag,
)

if TYPE_CHECKING:
    from binlogtool.formats.eblob.detect_layout import EblobDialect, EblobFileContext
    from binlogtool.limits import Limits

# --- Decoded records ---

OTHER_DIALECT_TYPES = ("UPDATE", "REMOVE_ALL", "RAW_INDEX", "RAW_DATA")
"""Type names that only the dialects before the final one have."""

KIND_NAMES: Mapping[int, str] = MappingProxyType(
    {kind.value: kind.name for kind in EblobRecordKind} | dict(enumerate(OTHER_DIALECT_TYPES, len(EblobRecordKind) + 1))
)
"""Names of record kinds. The file does not store these codes: see help.md."""

RAW_DATA_TYPE = 1
"""The only type of the final dialect."""

_unpack_control = make_unpacker(CONTROL, "key", "flags", "data_size", "disk_size", "position")
_unpack_wide_key = make_unpacker(RECORD, "key")
_unpack_packed_key = make_unpacker(RECORD_P, "key")
_unpack_origin = make_unpacker(RECORD_A0, "origin")
_unpack_target = {"little": make_unpacker(TARGET, "target_offset"), "big": make_unpacker(TARGET_BE, "target_offset")}


def list_records(context: EblobFileContext, batch: Batch, start: int, stop: int) -> list[EblobRecord]:
    """Return the records `[start, stop)` of a batch of a grouped dialect; keeps what the next batch needs."""
    byte_order = context.dialect.byte_order
    remember_last_records(batch, context.last_records, byte_order)
    return list(
        iter_records(
            batch, start, stop, find_preceding_records(batch, start, context.last_records, byte_order), byte_order
        )
    )


def describe_records(context: EblobFileContext, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
    """Return the envelope columns: seq = number of the record, object = its key, txn = first record of its group."""
    no_values: list[Any] = [None] * (stop - start)
    numbers: list[int | None] = list(range(batch.first_record + start, batch.first_record + stop))
    if context.dialect.is_grouped:
        batch_records = list_records(context, batch, start, stop)
        groups: list[str | int | None] = [record.group for record in batch_records]
        keys: list[str | None] = [record.key.hex() for record in batch_records]
        return EnvelopeColumns(
            [record.kind.name for record in batch_records], numbers, no_values, keys, no_values, groups
        )
    names = type_names(context.dialect)
    types = [names[kind] for kind in to_int_list(batch.frames["type"], start, stop)]
    key = _choose_key_reader(context.dialect)
    offsets = to_int_list(batch.frames["offset"], start, stop)
    return EnvelopeColumns(types, numbers, no_values, [key(batch.window, at) for at in offsets], no_values, no_values)


def type_names(dialect: EblobDialect) -> Mapping[int, str]:
    """Return the names of type numbers as shown, for dialects that store a type.

    In dialect p a number had several meanings over time, so all are shown as RECORD.
    """
    dialect_types = dialect.types
    return {
        number: EblobRecordKind.RECORD.name if name.startswith("TYPE_") else name
        for number, name in dialect_types.items()
    }


def _choose_key_reader(dialect: EblobDialect) -> Callable[[memoryview, int], str]:
    return _read_wide_key if dialect.record_header_size == RECORD_HEADER_SIZE else _read_packed_key


def _read_wide_key(window: memoryview, record_at: int) -> str:
    key: bytes = _unpack_wide_key(window, record_at)[0]
    return key.hex()


def _read_packed_key(window: memoryview, record_at: int) -> str:
    return str(_unpack_packed_key(window, record_at)[0])


def decode_bodies(context: EblobFileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode one body per record: sizes, target offset, and the data (decoded if the kind is known)."""
    columns = [to_int_list(batch.frames[name], start, stop) for name in ("offset", "end", "meta_size")]
    if context.dialect.is_grouped:
        types, batch_records = [RAW_DATA_TYPE] * (stop - start), [*list_records(context, batch, start, stop)]
        rows = zip(types, *columns, batch_records, strict=True)
    else:
        rows = zip(to_int_list(batch.frames["type"], start, stop), *columns, [None] * (stop - start), strict=True)
    return [
        _decode_body(context.dialect, kind, batch.window[at:end], meta_size, record)
        for kind, at, end, meta_size, record in rows
    ]


def _decode_body(
    dialect: EblobDialect, record_type: int, raw: memoryview, meta_size: int, record: EblobRecord | None
) -> dict[str, Any]:
    data_at = dialect.record_header_size + meta_size
    data = bytes(raw[data_at:])
    body: dict[str, Any] = {"type": record_type, "meta_size": meta_size, "data_size": len(data)}
    body |= _decode_metadata(dialect, bytes(raw[dialect.record_header_size : data_at]))
    if dialect.name == "a0":
        body["origin"] = _unpack_origin(raw)[0]
    if record is not None and record.kind is EblobRecordKind.FOOTER:
        relative_offset = record.target - record.record_start
        hash_ = data[:HASH_SIZE].hex()
        return body | {"relative_offset": relative_offset, "sha512": hash_, "record_start": record.record_start}
    if record is not None and record.kind is EblobRecordKind.CONTROL:
        return body | {"relative_offset": 0} | decode_control(data)
    if record is not None and record.kind is EblobRecordKind.REMOVE:
        return body | {"flags": list_flag_names(ControlFlag.REMOVE)}
    return body | {"data": data}


def _decode_metadata(dialect: EblobDialect, raw: bytes) -> dict[str, Any]:
    if not raw:
        return {}
    if len(raw) == TARGET_SIZE:
        return {"target_offset": _unpack_target[dialect.byte_order](raw)[0]}
    if len(raw) == WRITE_CONTROL_SIZE and dialect.name == "a":
        parsed = WRITE_CONTROL.parse(raw)
        return {"write_control": {name: v for name, v in parsed.items() if name not in ("_io", "padding")}}
    return {"metadata": raw}


def decode_control(data: bytes) -> dict[str, Any]:
    """Decode the members of an eblob_disk_control."""
    key, flags, data_size, disk_size, position = _unpack_control(data)
    return {
        "control": {
            "key": key.hex(),
            "flags": list_flag_names(flags),
            "data_size": data_size,
            "disk_size": disk_size,
            "position": position,
        }
    }


def list_flag_names(flags: int) -> list[str]:
    """Return the names of the flags that are set; unknown flags as one number."""
    known_flags = [flag for flag in ControlFlag if flags & flag]
    rest = flags & ~sum(flag.value for flag in known_flags)
    return [str(flag.name) for flag in known_flags] + ([hex(rest)] if rest else [])


# --- Split points ---


def make_split_point_finder(layout: LogFileLayout) -> SplitFinder | None:
    """Create the finder of split points; None if the file has no readable records."""
    if not layout.readable:
        return None
    return EblobSplitPoints(layout) if layout.context.dialect.is_grouped else EveryFrameSplitFinder(layout)


class EblobSplitPoints(EveryFrameSplitFinder):
    """Finds split points of grouped dialects; see `SplitFinder`."""

    _last_records: tuple[EblobRecord, ...] = ()

    def find_split_point(self, batch: Batch, compile_kernel: KernelCompiler) -> SplitPoint | None:
        """Return the end of all records so far, even inside a group."""
        context = self.layout.context
        remember_last_records(batch, context.last_records, context.dialect.byte_order)
        self._last_records = context.last_records.get(batch.first_record + batch.frames.count, ())
        return make_split_point(batch, batch.frames.count)

    def export_state(self) -> list[list[Any]]:
        """Return the last records for JSON, with the key as hexadecimal text."""
        return [[*record._replace(key=record.key.hex())] for record in self._last_records]  # type: ignore[arg-type]

    def resume(self, state: Any, record: int) -> None:
        """Restore the records before record `record`."""
        self.layout.context.last_records[record] = tuple(map(_restore_record, state))


def _restore_record(values: list[Any]) -> EblobRecord:
    restored = EblobRecord(*values)
    return restored._replace(
        kind=EblobRecordKind(restored.kind), key=bytes.fromhex(values[EblobRecord._fields.index("key")])
    )


# --- Text for people ---

_HIDDEN = frozenset({"type", "meta_size", "data_size", "data", "control", "write_control", "sha512"})
_CONTROL_MEMBERS = ("size", "offset", "data_offset", "flags", "disk_size", "position")


def make_record_text(_type_name: str, body: Mapping[str, Any], everything: bool) -> RecordText:
    """Return the content of a record as `dump` shows it to people."""
    members = select_members(body, frozenset({"data"}) if everything else _HIDDEN)
    control = body.get("write_control", body.get("control"))
    if isinstance(control, Mapping) and not everything:
        members |= {name: control[name] for name in _CONTROL_MEMBERS if control.get(name)}
    data = body.get("data")
    return RecordText(members, changes=(RowChanges(({"after": {"data": data}},)),) if data else ())


# --- Table rows ---

RECORDS_TABLE = TableSchema(
    "records",
    (
        TableColumn("key", "string"),
        TableColumn("action", "string"),
        TableColumn("target_offset", "bigint"),
        TableColumn("data", "binary"),
    ),
)
"""key: hexadecimal. action: kind of the record. target_offset: byte offset of the data in the unsorted blob."""


class EblobRecordTables(msgspec.Struct, TableReader):
    """Table reader in which each record is a row. is_selected: rows are selected."""

    is_selected: bool = True

    def read_records(
        self, context: EblobFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; to be consumed in order."""
        if not self.is_selected:
            yield from repeat(RecordTableRows(described=(RECORDS_TABLE,)), stop - start)
            return
        envelope = describe_records(context, batch, start, stop)
        decoded_bodies = decode_bodies(context, batch, start, stop, limits)
        for kind, key, body in zip(envelope.type, envelope.object, decoded_bodies, strict=True):
            if isinstance(body, Finding):
                yield RecordTableRows(findings=(body,))
                continue
            body, findings = body if isinstance(body, BodyWithFindings) else (body, ())
            image = {"key": key, "action": kind, "target_offset": body.get("target_offset"), "data": body.get("data")}
            yield RecordTableRows((TableRow(RECORDS_TABLE, kind, None, image),), findings, (RECORDS_TABLE,))

    def limit_to(self, is_selected: Callable[[TableSchema], bool]) -> None:
        """Allow the reader to leave out the rows of other tables; their descriptions are still reported."""
        self.is_selected = is_selected(RECORDS_TABLE)
