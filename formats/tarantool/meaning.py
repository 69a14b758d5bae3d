"""Decode rows: envelope columns, bodies and headers (pure functions over scanner columns)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, TypeVar

from binlogtool.findings import Finding, finding
from binlogtool.formats.columns import integers
from binlogtool.formats.described import Described
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import U64, Batch, Table
from binlogtool.formats.tarantool.codes import BodyKey, FileKind, Flag, HeaderKey, RowType
from binlogtool.formats.tarantool.layout.layout import FileContext
from binlogtool.formats.tarantool.msgpack.kernels import ODD_SEEN
from binlogtool.formats.tarantool.msgpack.messages import Kind, Mp, bounded, decode
from binlogtool.formats.tarantool.msgpack.values import NotPlain, checked, fast_decoder, plain
from binlogtool.formats.tarantool.rows.names import (
    HEADER_NAMES,
    TYPE_NAMES,
    VYLOG_KEYS,
    VYLOG_TYPES,
    SpaceNames,
    body_key_name,
)
from binlogtool.formats.tarantool.rows.rows import DUPLICATE_KEY, UNKNOWN_KEY
from binlogtool.limits import Limits

SPACE = 280
"""Space `_space`, whose rows name the others: [id, owner, name, …]."""

HAS_TIME = 1 << HeaderKey.TIMESTAMP
HAS_TSN = 1 << HeaderKey.TSN
TUPLE_ONLY = 1 << BodyKey.SPACE_ID | 1 << BodyKey.TUPLE
LAST_SECOND = 253402300800
"""9999-12-31T24:00:00Z: later (or earlier than year 1) is no time that can be shown."""

_FIRST_SECOND = -62135596800

_YEAR_2004, _YEAR_2038 = 0x41D << 52, 0x41E << 52
"""Bit patterns of 2**30 and 2**31 seconds: all doubles between have the same exponent."""

T = TypeVar("T")
_KEPT, _SHORT = 256, 1024
"""How many bodies are remembered, and of how many bytes at most: a snapshot of a new server has a hundred of them."""

_FRACTION = (1 << 52) - 1
_IMPLIED = 15625 << 52


def doubles(bits: list[int]) -> list[float]:
    """Convert 64-bit patterns to the doubles that they encode."""
    return array("d", array("q", bits).tobytes()).tolist()


def microseconds(seconds: float) -> int | None:
    """Convert seconds to the nearest microsecond, ties to even, without loss; None if out of range."""
    if not _FIRST_SECOND <= seconds < LAST_SECOND:
        return None
    whole = int(seconds)
    return whole * 1_000_000 + round((seconds - whole) * 1_000_000)


# -- describe ----------------------------------------------------------------------------------------------------------


def describe(context: FileContext, batch: Batch, start: int, stop: int) -> Described:
    """Describe rows `[start, stop)` of a batch as envelope columns. Learns space names from the `_space` rows among
    them.
    """
    table = batch.records
    lsn, replica = integers(table["lsn"], start, stop), integers(table["replica_id"], start, stop)
    return Described(
        type=[TYPE_NAMES[t] for t in integers(table["type"], start, stop)],
        seq=unsigned(lsn),
        time=_times(table, start, stop),
        object=_objects(context, batch, start, stop),
        origin=unsigned(replica),
        txn=_transactions(context, table, start, stop, lsn, replica),
    )


def unsigned(values: list[int]) -> list[Any]:
    """Convert signed 64-bit patterns to unsigned numbers."""
    return [value & U64 for value in values] if values and min(values) < 0 else values


def _times(table: Table, start: int, stop: int) -> list[int | None]:
    """Decode the timestamps of rows `[start, stop)` to microseconds; None for a row without one."""
    bits = integers(table["timestamp"], start, stop)
    masks = set(keys := integers(table["header_keys"], start, stop))
    if min(bits) >= _YEAR_2004 and max(bits) < _YEAR_2038 and all(mask & HAS_TIME for mask in masks):
        # value = (2**52 + fraction) * 2**-22 seconds, and 10**6 = 15625 * 2**6: integers throughout
        return [(exact := (b & _FRACTION) * 15625 + _IMPLIED) + 0x7FFF + (exact >> 16 & 1) >> 16 for b in bits]
    known = {b: microseconds(seconds) for b, seconds in zip(bits, doubles(bits), strict=True)}
    return [known[b] if key & HAS_TIME else None for b, key in zip(bits, keys, strict=True)]


def _transactions(
    context: FileContext, table: Table, start: int, stop: int, lsn: list[int], replica: list[int]
) -> list[str | int | None]:
    """Format the transaction id "replica:tsn" of each row; None for rows of files other than logs."""
    if context.kind is not FileKind.XLOG:
        return [None] * (stop - start)
    difference = integers(table["tsn"], start, stop)
    tsn = [n - d & U64 for n, d in zip(lsn, difference, strict=True)] if any(difference) else unsigned(lsn)
    replicas = set(replica)
    if len(replicas) > 1:
        return [f"{r & U64}:{t}" for r, t in zip(replica, tsn, strict=True)]
    prefix = "".join(f"{r & U64}:" for r in replicas)
    names = {t: prefix + str(t) for t in set(tsn)}
    return [names[t] for t in tsn]


def _objects(context: FileContext, batch: Batch, start: int, stop: int) -> list[str | None]:
    """Name the space of each row; learn names from the `_space` rows on the way."""
    spaces = integers(batch.records["space_id"], start, stop)
    names = context.spaces
    distinct = set(spaces)
    if SPACE not in distinct:
        known = {space: names[space] for space in distinct}
        return [known[space] for space in spaces]
    result = []
    for index, space in enumerate(spaces, start):
        if space == SPACE:
            learn_space(names, batch, index)
        result.append(names[space])
    return result


def learn_space(names: SpaceNames, batch: Batch, index: int) -> int | None:
    """Take the id and name of a space from a row of `_space`; return the id, or None if the row has no name."""
    body = body_bytes(batch, index)
    known = None if body is None else _named(body, int(batch.records["type"][index]))
    if known is None:
        return None
    space, name = known
    names[space] = name
    return space


def told_once(function: Callable[..., T]) -> Callable[..., T]:
    """Decorate a function of a body so that its results for short bodies are cached (snapshots of one server repeat
    them).
    """
    kept = lru_cache(_KEPT)(function)

    def told(body: bytes, *more: int) -> T:
        return kept(body, *more) if len(body) <= _SHORT else function(body, *more)

    return told


@told_once
def _named(data: bytes, row_type: int) -> tuple[int, str] | None:
    """Decode the id and name of a space from the body of a row of `_space`; None if it does not set a name."""
    body = tree_of(data)
    if body is None:
        return None
    key, values = body.get(BodyKey.KEY), body.get(BodyKey.TUPLE)
    if row_type in (RowType.INSERT, RowType.REPLACE) and values is not None and len(values.value) > 2:
        return _space_name(plain(values.value[0]), plain(values.value[2]))
    if row_type == RowType.UPDATE and key is not None and values is not None and len(key.value) == 1:
        base = body.get(BodyKey.INDEX_BASE)
        wanted = (2 + (base.value if base else 0), "name")
        for operation in map(plain, values.value):
            if isinstance(operation, list) and len(operation) == 3 and operation[0] == "=" and operation[1] in wanted:
                return _space_name(plain(key.value[0]), operation[2])
    return None


def _space_name(space: Any, name: Any) -> tuple[int, str] | None:
    """Return id and name if they have the right types, else None."""
    return (space, name) if type(space) is int and type(name) is str else None


def body_bytes(batch: Batch, index: int) -> bytes | None:
    """Read the stored bytes of a row's body; None for a row without one."""
    start, end = int(batch.records["body"][index]), int(batch.records["end"][index])
    return bytes(batch.arena[start:end]) if start >= 0 else None


def body_tree(batch: Batch, index: int) -> Mp | None:
    """Decode the body of a row to a tree; None for a row without one, or nested too deep."""
    data = body_bytes(batch, index)
    return None if data is None else tree_of(data)


def tree_of(data: bytes) -> Mp | None:
    """Decode a body to a tree; None if it is malformed or nested deeper than 64 levels."""
    try:
        return decode(data, 0, len(data), 64)
    except MalformedError:
        return None


# -- bodies ------------------------------------------------------------------------------------------------------------


def bodies(context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """Decode the body of each row, with the names of its keys.

    Returns:
        One entry per row: {} for a row without a body, a `Finding` for a body that cannot be shown.
    """
    table = batch.records
    depth = bounded(limits)
    keys, shapes = integers(table["body_keys"], start, stop), integers(table["shape"], start, stop)
    result = None
    if set(keys) == {TUPLE_ONLY} and max(shapes) < depth << 8 and not any(map(ODD_SEEN.__and__, set(shapes))):
        result = _tuples(batch, start, stop)
    if result is None:
        result = _mixed(batch, start, stop, keys, shapes, depth)
    return [_vylog(body) for body in result] if context.kind is FileKind.VYLOG else result


def _tuples(batch: Batch, start: int, stop: int) -> list[Any] | None:
    """Decode bodies that are all {space_id, tuple} of plain values; None if one of them is not."""
    table, fast = batch.records, fast_decoder()
    spaces, tuples = unsigned(integers(table["space_id"], start, stop)), integers(table["tuple"], start, stop)
    ends = integers(table["end"], start, stop)
    first = min(tuples)
    if first < 0:
        return None
    data = bytes(batch.arena[first : max(ends)])
    try:
        return [
            {"space_id": space, "tuple": fast(data[at - first : end - first])}
            for space, at, end in zip(spaces, tuples, ends, strict=True)
        ]
    except Exception:
        return None


def _mixed(batch: Batch, start: int, stop: int, keys: list[int], shapes: list[int], depth: int) -> list[Any]:
    """Decode bodies one by one: with msgspec where its result is exact, else as a tree."""
    table, arena, fast = batch.records, batch.arena, fast_decoder()
    body_at, ends = integers(table["body"], start, stop), integers(table["end"], start, stop)
    result: list[Any] = []
    for i, (at, end, row_type, shape) in enumerate(
        zip(body_at, ends, integers(table["type"], start, stop), shapes, strict=True)
    ):
        try:
            if shape & ODD_SEEN or at < 0 or keys[i] & (DUPLICATE_KEY | UNKNOWN_KEY):
                raise NotPlain
            body = fast(arena[at:end])
            names = _key_names(row_type)
            named = {names[key]: value for key, value in body.items()}
            if shape >= depth << 8:
                named = checked(named, (shape >> 32) + len(body), depth + 1)
            result.append(named)
        except Exception:
            result.append(_slow(batch, start + i, depth))
    return result


def too_deep_rows(batch: Batch, depth: int) -> Iterator[Finding]:
    """Report rows whose bodies `decode_bodies` does not show because they are nested too deep."""
    table = batch.records
    shapes = table["shape"][: table.count]
    if not table.count or max(shapes) < depth << _CONTAINERS_AT:
        return
    for i, shape in enumerate(shapes):
        if (shape >> _CONTAINERS_AT & _MOST_CONTAINERS) >= depth:
            (body,) = _mixed(batch, i, i + 1, [int(table["body_keys"][i])], [shape], depth)
            if isinstance(body, Finding) and body.id == "nesting-too-deep":
                yield body


_CONTAINERS_AT, _MOST_CONTAINERS = 8, (1 << 24) - 1
"""Where the number of arrays and maps stands in the column `shape`."""


def _slow(batch: Batch, index: int, depth: int) -> Any:
    """Decode one body as a tree; return a `Finding` that says what is wrong if it is malformed."""
    table = batch.records
    start, end = int(table["body"][index]), int(table["end"][index])
    if start < 0:
        return {}
    try:
        body = decode(bytes(batch.arena[start:end]), 0, end - start, depth + 1)
    except MalformedError as error:
        frame = batch.frame_of(index)
        offset = batch.base + int(batch.frames["offset"][frame])
        size = int(batch.frames["end"][frame] - batch.frames["offset"][frame])
        record = batch.first_record + index
        return finding(error.finding_id, offset, size, f"body of the row: {error.args[0]}", record=record)
    return named_body(int(table["type"][index]), body)


def named_body(row_type: int, body: Mp) -> dict[str, Any]:
    """Convert a body map to a dict with named keys; a repeated key gets `#2`, `#3` … after its name."""
    result: dict[str, Any] = {}
    for key, value in body.value:
        name = unique = body_key_name(row_type, key.value if key.kind is Kind.UINT else plain(key))
        times = 1
        while unique in result:
            times += 1
            unique = f"{name}#{times}"
        result[unique] = plain(value)
    return result


class _KeyNames(dict[int, str]):
    """Names of the body keys of one row type; unknown keys get a name from their number, which is not stored."""

    def __init__(self, row_type: int) -> None:
        super().__init__((key, body_key_name(row_type, key)) for key in range(0x60))

    def __missing__(self, key: int) -> str:
        return f"key_0x{key:02x}"


@cache
def _own_key_names(row_type: int) -> _KeyNames:
    return _KeyNames(row_type)


def _key_names(row_type: int) -> _KeyNames:
    return _own_key_names(row_type if row_type in TYPE_NAMES else 0)


_VYLOG_KEY_TEXTS = {str(key): name for key, name in VYLOG_KEYS.items()}


def _vylog(body: Any) -> Any:
    """Add the names of type and keys to a record of the vinyl metadata log, beside the stored tuple."""
    if isinstance(body, Finding):
        return body
    record = body.get("tuple")
    if not isinstance(record, list) or not record or type(record[0]) is not int:
        return body
    keys = record[1] if len(record) > 1 and isinstance(record[1], dict) else {}
    named = {_VYLOG_KEY_TEXTS.get(key, key): value for key, value in keys.items()}
    return {**body, "record": VYLOG_TYPES.get(record[0], str(record[0])), "fields": named}


# -- headers -----------------------------------------------------------------------------------------------------------

_SHOWN = (HeaderKey.TYPE, HeaderKey.REPLICA_ID, HeaderKey.LSN, HeaderKey.TIMESTAMP, HeaderKey.TSN, HeaderKey.FLAGS)
_SINGLE = 0b0000011101
"""type, replica_id, lsn, timestamp: a row that is a transaction of its own."""
_INNER = _SINGLE | HAS_TSN
_LAST = _INNER | 1 << HeaderKey.FLAGS


def extras(context: FileContext, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
    """Decode row headers to {"header": …}: the stored keys with their exact values.

    `tsn` is computed from the stored difference.
    """
    table = batch.records
    columns = {key: unsigned(integers(table[HEADER_NAMES[key]], start, stop)) for key in _SHOWN}
    columns[HeaderKey.TIMESTAMP] = doubles(integers(table["timestamp"], start, stop))
    lsns = columns[HeaderKey.LSN]
    columns[HeaderKey.TSN] = [n - d & U64 for n, d in zip(lsns, columns[HeaderKey.TSN], strict=True)]
    masks = integers(table["header_keys"], start, stop)
    rows = zip(masks, *(columns[key] for key in _SHOWN), strict=True)
    result: list[Any] = [
        {"header": {"type": kind, "replica_id": replica, "lsn": lsn, "timestamp": time}}
        if mask == _SINGLE
        else {"header": {"type": kind, "replica_id": replica, "lsn": lsn, "timestamp": time, "tsn": tsn}}
        if mask == _INNER
        else {
            "header": {"type": kind, "replica_id": replica, "lsn": lsn, "timestamp": time, "tsn": tsn, "flags": flags}
        }
        if mask == _LAST
        else mask
        for mask, kind, replica, lsn, time, tsn, flags in rows
    ]
    if not {_SINGLE, _INNER, _LAST}.issuperset(masks):
        columns[HeaderKey.GROUP_ID] = unsigned(integers(table["group_id"], start, stop))
        for i, mask in enumerate(result):
            if type(mask) is int:
                stored = [key for key in sorted(columns) if mask >> key & 1]
                result[i] = {"header": {HEADER_NAMES[key]: columns[key][i] for key in stored}}
    return result


_IN_TRANSACTION = HAS_TSN | 1 << HeaderKey.FLAGS | 1 << HeaderKey.GROUP_ID
_LOCAL_GROUP = 1


def transaction_marks(
    _context: FileContext, batch: Batch, start: int, stop: int
) -> list[Mapping[str, Any] | None] | None:
    """Read the place of each row in its transaction: {commit, flags, local} (`Replay.extras`).

    Returns:
        None if every row is a transaction by itself; else one entry per row, None for such a row. commit: the row
        ends
        its transaction (a row without a transaction number always does). local: the row is of the local group.
    """
    table = batch.records
    masks = integers(table["header_keys"], start, stop)
    if not any(mask & _IN_TRANSACTION for mask in masks):
        return None
    columns = [integers(table[name], start, stop) for name in ("flags", "group_id")]
    return [
        {
            "commit": not mask & HAS_TSN or bool(flags & Flag.COMMIT),
            "flags": flags if mask >> HeaderKey.FLAGS & 1 else 0,
            "local": bool(mask >> HeaderKey.GROUP_ID & 1 and group == _LOCAL_GROUP),
        }
        if mask & _IN_TRANSACTION
        else None
        for mask, flags, group in zip(masks, *columns, strict=True)
    ]
