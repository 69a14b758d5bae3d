"""Decode events: envelope columns and bodies from scanner columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.codes import HEADER_SIZE, ROWS, ROWS_WITH_EXTRA, TYPES, EventType
from binlogtool.formats.binlog_events.events.decoding import decoded
from binlogtool.formats.binlog_events.events.schema import SEALED_TYPE
from binlogtool.formats.binlog_events.rows.rows import RowsHead, decode_rows, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import UNTOLD, TableMap
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.stream.long_texts import with_long_text
from binlogtool.formats.columns import integers
from binlogtool.formats.described import Described, Noted
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, CodecError
from binlogtool.formats.longvalues import Parted
from binlogtool.limits import Limits

_NO_EXTRA = b"\x02\0"
"""Length of extra data that is none: it counts itself."""

_HEADER = ("timestamp", "type_code", "server_id", "event_size", "end_log_pos", "flags")


class _TypeNames(dict[int, str]):
    """Names of event types; unknown ones get their number."""

    def __missing__(self, code: int) -> str:
        return f"TYPE_{code}"


_TYPE_NAMES = _TypeNames(TYPES)
_SEALED_NAMES = _TypeNames({**TYPES, SEALED_TYPE: "ENCRYPTED"})


def type_name(code: int, *, sealed: bool = False) -> str:
    """Return the name of an event type, also of an unknown one.

    Args:
        encrypted_without_key: the log is encrypted and no key was given.
    """
    return _SEALED_NAMES[code] if sealed else _TYPE_NAMES[code]


def describe(context: FileContext, batch: Batch, start: int, stop: int) -> Described:
    """Return the envelopes of events; also records table maps and transactions for later events."""
    table, notes = batch.frames, context.tracker.notes(batch)
    times = integers(table["timestamp"], start, stop)
    names = _SEALED_NAMES if context.sealed else _TYPE_NAMES
    owners = notes.owners[start:stop]
    return Described(
        type=[names[code] for code in integers(table["type_code"], start, stop)],
        seq=[owner.seq for owner in owners],
        time=[second * 1_000_000 if second else None for second in times],
        object=[None if known is None else known.qualified_name for known in notes.maps[start:stop]],
        origin=list(integers(table["server_id"], start, stop)),
        txn=[owner.gtid for owner in owners],
    )


def bodies(context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode the body of each event with the field names of the specification; a `Finding` if it cannot be decoded."""
    table, maps = batch.frames, context.tracker.notes(batch).maps[start:stop]
    columns = (integers(table[name], start, stop) for name in ("type_code", "server_id", "body_start", "body_end"))
    result: list[Any] = []
    for i, (code, server, low, high, known) in enumerate(zip(*columns, maps, strict=True), start):
        try:
            body = _body(context, code, server, batch.window[low:high], known, limits)
            uncertain = "" if known is None or code in ROWS else known.uncertain
            result.append(Noted(body, (_note(batch, i, uncertain),)) if uncertain else body)
        except (MalformedError, CodecError) as error:
            found = undecodable(batch, i, error)
            if code in ROWS and known is not None and known.untold:
                told = replace(found, severity=Severity.WARNING, message=f"{UNTOLD}: {error.args[0]}")
                result.append(Noted(rows_body(context, code, batch.window[low:high], None, limits), (told,)))
            else:
                result.append(found)
    return result


def _body(
    context: FileContext, code: int, server: int, body: memoryview, known: TableMap | None, limits: Limits
) -> dict[str, Any] | Parted:
    if context.sealed and code == SEALED_TYPE:
        return {"event_size": HEADER_SIZE + len(body)}
    if code in ROWS:
        return rows_body(context, code, body, known, limits)
    if code == EventType.TABLE_MAP and known is not None:
        return known.as_body()
    shown = with_long_text(code, body, context.description, limits)
    return decoded(code, bytes(body), context.description, server, limits) if shown is None else shown


def rows_body(
    context: FileContext, code: int, body: memoryview, known: TableMap | None, limits: Limits
) -> dict[str, Any]:
    """Decode a row event: its head, and its rows if the table map is known (else the images as bytes)."""
    if known is None:
        head = parse_rows_head(code, body, context.description.table_id_size)
        return _rows_head(head) | {"n_cols": head.n_cols, "images": bytes(body[head.images_at :])}
    size = known.table_id_size
    if len(body) < size + 2 or (code in ROWS_WITH_EXTRA and body[size + 2 : size + 4] != _NO_EXTRA):
        shown = _rows_head(parse_rows_head(code, body, size))
    else:
        shown = {"table_id": known.table_id, "flags": body[size] | body[size + 1] << 8}
    return {**shown, "table": known.qualified_name, "rows": decode_rows(code, body, known, limits)}


def _rows_head(head: RowsHead) -> dict[str, Any]:
    shown: dict[str, Any] = {"table_id": head.table_id, "flags": head.flags}
    return {**shown, "extra": head.extra} if head.extra else shown


def undecodable(batch: Batch, index: int, error: MalformedError | CodecError) -> Finding:
    """Create the finding about an event whose body does not match its type."""
    offset, size, record = batch.place_of(index)
    name = type_name(int(batch.frames["type_code"][index]))
    return finding(error.finding_id, offset, size, f"{name}: {error.args[0]}", record=record)


def _note(batch: Batch, index: int, text: str) -> Finding:
    offset, size, record = batch.place_of(index)
    return finding("meta-mismatch", offset, size, text, record=record, severity=Severity.WARNING)


def extras(context: FileContext, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
    """Return {"header": …} of each event: the stored common header."""
    columns = [integers(batch.frames[name], start, stop) for name in _HEADER]
    return [{"header": dict(zip(_HEADER, values, strict=True))} for values in zip(*columns, strict=True)]


def flags(context: FileContext, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None] | None:
    """Return only the flags of the common headers, if any are set (`ReplayRules.decode_extras`)."""
    values = integers(batch.frames["flags"], start, stop)
    return [{"header": {"flags": value}} if value else None for value in values] if any(values) else None
