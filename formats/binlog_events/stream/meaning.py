"""Decode events: envelope columns and bodies from scanner columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.binlog_events.codes import (
    EVENT_TYPE_NAMES,
    HEADER_SIZE,
    ROW_EVENTS,
    ROW_EVENTS_WITH_EXTRA_DATA,
    EventType,
)
from binlogtool.formats.binlog_events.events.decoding import decode_body
from binlogtool.formats.binlog_events.events.schema import ENCRYPTED_TYPE
from binlogtool.formats.binlog_events.rows.rows import RowsHead, decode_rows, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import UNKNOWN_FRACTIONS, TableMap
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.binlog_events.stream.long_texts import decode_long_statement
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.described import BodyWithFindings, EnvelopeColumns
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, DecompressionError
from binlogtool.formats.longvalues import BodyWithLongValues
from binlogtool.limits import Limits

_NO_EXTRA = b"\x02\0"
"""Length of extra data that is none: it counts itself."""

_HEADER_COLUMNS = ("timestamp", "type_code", "server_id", "event_size", "end_log_pos", "flags")


class _TypeNames(dict[int, str]):
    """Names of event types; unknown ones get their number."""

    def __missing__(self, code: int) -> str:
        return f"TYPE_{code}"


_TYPE_NAMES = _TypeNames(EVENT_TYPE_NAMES)
_ENCRYPTED_TYPE_NAMES = _TypeNames({**EVENT_TYPE_NAMES, ENCRYPTED_TYPE: "ENCRYPTED"})


def type_name(code: int, *, encrypted_without_key: bool = False) -> str:
    """Return the name of an event type, also of an unknown one.

    Args:
        encrypted_without_key: the log is encrypted and no key was given.
    """
    return _ENCRYPTED_TYPE_NAMES[code] if encrypted_without_key else _TYPE_NAMES[code]


def describe_events(context: BinlogFileContext, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
    """Return the envelopes of events; also records table maps and transactions for later events."""
    table, notes = batch.frames, context.tracker.track_batch(batch)
    times = to_int_list(table["timestamp"], start, stop)
    names = _ENCRYPTED_TYPE_NAMES if context.encrypted_without_key else _TYPE_NAMES
    owners = notes.owners[start:stop]
    return EnvelopeColumns(
        type=[names[code] for code in to_int_list(table["type_code"], start, stop)],
        seq=[owner.seq for owner in owners],
        time=[second * 1_000_000 if second else None for second in times],
        object=[None if known is None else known.qualified_name for known in notes.maps[start:stop]],
        origin=list(to_int_list(table["server_id"], start, stop)),
        txn=[owner.gtid for owner in owners],
    )


def decode_bodies(context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode the body of each event with the field names of the specification; a `Finding` if it cannot be decoded."""
    table, maps = batch.frames, context.tracker.track_batch(batch).maps[start:stop]
    columns = (to_int_list(table[name], start, stop) for name in ("type_code", "server_id", "body_start", "body_end"))
    result: list[Any] = []
    for i, (code, server, body_start, body_end, table_map) in enumerate(zip(*columns, maps, strict=True), start):
        try:
            body = _decode_event_body(context, code, server, batch.window[body_start:body_end], table_map, limits)
            uncertain = "" if table_map is None or code in ROW_EVENTS else table_map.uncertain
            result.append(
                BodyWithFindings(body, (_report_uncertain_names(batch, i, uncertain),)) if uncertain else body
            )
        except (MalformedError, DecompressionError) as error:
            problem = report_undecodable(batch, i, error)
            if code in ROW_EVENTS and table_map is not None and table_map.has_unknown_fractions:
                warning = replace(problem, severity=Severity.WARNING, message=f"{UNKNOWN_FRACTIONS}: {error.args[0]}")
                result.append(
                    BodyWithFindings(
                        decode_rows_body(context, code, batch.window[body_start:body_end], None, limits), (warning,)
                    )
                )
            else:
                result.append(problem)
    return result


def _decode_event_body(
    context: BinlogFileContext, code: int, server: int, body: memoryview, table_map: TableMap | None, limits: Limits
) -> dict[str, Any] | BodyWithLongValues:
    if context.encrypted_without_key and code == ENCRYPTED_TYPE:
        return {"event_size": HEADER_SIZE + len(body)}
    if code in ROW_EVENTS:
        return decode_rows_body(context, code, body, table_map, limits)
    if code == EventType.TABLE_MAP and table_map is not None:
        return table_map.as_body()
    long_statement = decode_long_statement(code, body, context.description, limits)
    return (
        decode_body(code, bytes(body), context.description, server, limits)
        if long_statement is None
        else long_statement
    )


def decode_rows_body(
    context: BinlogFileContext, code: int, body: memoryview, table_map: TableMap | None, limits: Limits
) -> dict[str, Any]:
    """Decode a row event: its head, and its rows if the table map is known (else the images as bytes)."""
    if table_map is None:
        head = parse_rows_head(code, body, context.description.table_id_size)
        return _rows_head_as_json(head) | {"n_cols": head.n_cols, "images": bytes(body[head.images_at :])}
    size = table_map.table_id_size
    if len(body) < size + 2 or (code in ROW_EVENTS_WITH_EXTRA_DATA and body[size + 2 : size + 4] != _NO_EXTRA):
        fields = _rows_head_as_json(parse_rows_head(code, body, size))
    else:
        fields = {"table_id": table_map.table_id, "flags": body[size] | body[size + 1] << 8}
    return {**fields, "table": table_map.qualified_name, "rows": decode_rows(code, body, table_map, limits)}


def _rows_head_as_json(head: RowsHead) -> dict[str, Any]:
    fields: dict[str, Any] = {"table_id": head.table_id, "flags": head.flags}
    return {**fields, "extra": head.extra} if head.extra else fields


def report_undecodable(batch: Batch, index: int, error: MalformedError | DecompressionError) -> Finding:
    """Create the finding about an event whose body does not match its type."""
    offset, size, record = batch.container_position(index)
    name = type_name(int(batch.frames["type_code"][index]))
    return make_finding(error.finding_id, offset, size, f"{name}: {error.args[0]}", record=record)


def _report_uncertain_names(batch: Batch, index: int, text: str) -> Finding:
    offset, size, record = batch.container_position(index)
    return make_finding("meta-mismatch", offset, size, text, record=record, severity=Severity.WARNING)


def header_extras(context: BinlogFileContext, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
    """Return {"header": …} of each event: the stored common header."""
    columns = [to_int_list(batch.frames[name], start, stop) for name in _HEADER_COLUMNS]
    return [{"header": dict(zip(_HEADER_COLUMNS, values, strict=True))} for values in zip(*columns, strict=True)]


def flag_extras(
    context: BinlogFileContext, batch: Batch, start: int, stop: int
) -> list[Mapping[str, Any] | None] | None:
    """Return only the flags of the common headers, if any are set (`ReplayRules.decode_extras`)."""
    values = to_int_list(batch.frames["flags"], start, stop)
    return [{"header": {"flags": value}} if value else None for value in values] if any(values) else None
