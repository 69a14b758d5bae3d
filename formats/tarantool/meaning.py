"""What rows mean: envelope columns, bodies and headers (pure functions over scanner columns)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from binlogtool.findings import Finding, finding
from binlogtool.formats.base import U64, Batch, Column, Described, Table
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.tarantool.layout import FileContext
from binlogtool.formats.tarantool.msgpack import ODD_SEEN, Mp, bounded, decode
from binlogtool.formats.tarantool.names import (
    HEADER_NAMES,
    TYPE_NAMES,
    VYLOG_KEYS,
    VYLOG_TYPES,
    SpaceNames,
    body_key_name,
)
from binlogtool.formats.tarantool.rows import DUPLICATE_KEY
from binlogtool.formats.tarantool.schema import BodyKey, FileKind, HeaderKey, RowType
from binlogtool.formats.tarantool.values import NotPlain, checked, fast_decoder, plain
from binlogtool.limits import Limits

SPACE = 280
"""Space `_space`, whose rows name the others: [id, owner, name, …]."""

HAS_TIME = 1 << HeaderKey.TIMESTAMP
HAS_TSN = 1 << HeaderKey.TSN
TUPLE_ONLY = 1 << BodyKey.SPACE_ID | 1 << BodyKey.TUPLE
LAST_SECOND = 253402300800
"""9999-12-31T24:00:00Z: later (or earlier than year 1) is no time that can be shown."""

_FIRST_SECOND = -62135596800


def ints(column: Column, start: int, stop: int) -> list[int]:
    """A part of a column as a list of Python integers, whatever the scanner's kind of column is."""
    part = column[start:stop]
    to_list: Callable[[], list[int]] | None = getattr(part, "tolist", None)
    return to_list() if to_list else list(part)


def doubles(bits: list[int]) -> list[float]:
    """Bit patterns as the doubles that they are."""
    return array("d", array("q", bits).tobytes()).tolist()


def microseconds(seconds: float) -> int | None:
    """To the nearest microsecond, ties to even, computed without loss."""
    if not _FIRST_SECOND <= seconds < LAST_SECOND:
        return None
    whole = int(seconds)
    return whole * 1_000_000 + round((seconds - whole) * 1_000_000)


# -- describe ----------------------------------------------------------------------------------------------------------


def describe(context: FileContext, batch: Batch, start: int, stop: int) -> Described:
    """The envelope of rows `[start, stop)` of a batch. Learns names of spaces from the `_space` rows among them."""
    table = batch.records
    lsn, replica = ints(table["lsn"], start, stop), ints(table["replica_id"], start, stop)
    return Described(
        type=[TYPE_NAMES[t] for t in ints(table["type"], start, stop)],
        seq=unsigned(lsn),
        time=_times(table, start, stop),
        object=_objects(context, batch, start, stop),
        origin=unsigned(replica),
        txn=_transactions(context, table, start, stop, lsn, replica),
    )


def unsigned(values: list[int]) -> list[Any]:
    """Bit patterns as unsigned numbers."""
    return [value & U64 for value in values] if values and min(values) < 0 else values


def _times(table: Table, start: int, stop: int) -> list[int | None]:
    bits = ints(table["timestamp"], start, stop)
    keys = ints(table["header_keys"], start, stop)
    distinct = list(set(bits))
    known = dict(zip(distinct, map(microseconds, doubles(distinct)), strict=True))
    if all(key & HAS_TIME for key in set(keys)):
        return [known[b] for b in bits]
    return [known[b] if key & HAS_TIME else None for b, key in zip(bits, keys, strict=True)]


def _transactions(
    context: FileContext, table: Table, start: int, stop: int, lsn: list[int], replica: list[int]
) -> list[str | int | None]:
    """"replica:tsn"; rows of other files than logs belong to no transaction."""
    if context.kind is not FileKind.XLOG:
        return [None] * (stop - start)
    difference = ints(table["tsn"], start, stop)
    if not any(difference):
        return [f"{r}:{n}" for r, n in zip(unsigned(replica), unsigned(lsn), strict=True)]
    return [f"{r & U64}:{n - d & U64}" for r, n, d in zip(replica, lsn, difference, strict=True)]


def _objects(context: FileContext, batch: Batch, start: int, stop: int) -> list[str | None]:
    spaces = ints(batch.records["space_id"], start, stop)
    names = context.spaces
    if SPACE not in spaces:
        return [names[space] for space in spaces]
    result = []
    for index, space in enumerate(spaces, start):
        if space == SPACE:
            learn_space(names, batch, index)
        result.append(names[space])
    return result


def learn_space(names: SpaceNames, batch: Batch, index: int) -> int | None:
    """Takes the id and name of a space from a row of `_space`; returns the id."""
    body = body_tree(batch, index)
    if body is None:
        return None
    key, values = body.get(BodyKey.KEY), body.get(BodyKey.TUPLE)
    row_type = int(batch.records["type"][index])
    if row_type in (RowType.INSERT, RowType.REPLACE) and values is not None and len(values.value) > 2:
        return _name_space(names, plain(values.value[0]), plain(values.value[2]))
    if row_type == RowType.UPDATE and key is not None and values is not None and len(key.value) == 1:
        base = body.get(BodyKey.INDEX_BASE)
        wanted = (2 + (base.value if base else 0), "name")
        for operation in map(plain, values.value):
            if isinstance(operation, list) and len(operation) == 3 and operation[0] == "=" and operation[1] in wanted:
                return _name_space(names, plain(key.value[0]), operation[2])
    return None


def _name_space(names: SpaceNames, space: Any, name: Any) -> int | None:
    if type(space) is not int or type(name) is not str:
        return None
    names[space] = name
    return space


def body_tree(batch: Batch, index: int) -> Mp | None:
    """The body of a row as a tree, or None where it has none or is nested too deep to be looked at."""
    start, end = int(batch.records["body"][index]), int(batch.records["end"][index])
    if start < 0:
        return None
    try:
        return decode(bytes(batch.arena[start:end]), 0, end - start, 64)
    except MalformedError:
        return None


# -- bodies ------------------------------------------------------------------------------------------------------------


def bodies(context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
    """The body of each row with the names of its keys; {} where a row has none; a `Finding` where it cannot be shown."""
    table, arena = batch.records, batch.arena
    depth = bounded(limits)
    keys = ints(table["body_keys"], start, stop)
    body_at, ends = ints(table["body"], start, stop), ints(table["end"], start, stop)
    shapes, types = ints(table["shape"], start, stop), ints(table["type"], start, stop)
    spaces, tuples = ints(table["space_id"], start, stop), ints(table["tuple"], start, stop)
    fast = fast_decoder()
    result: list[Any] = []
    put = result.append
    for i in range(stop - start):
        try:
            shape = shapes[i]
            if shape & ODD_SEEN or body_at[i] < 0 or keys[i] & DUPLICATE_KEY:
                raise NotPlain
            if shape >> 32 or shape >> 8 >= depth:
                put(_careful(fast, arena[body_at[i] : ends[i]], types[i], shape >> 32, depth))
            elif keys[i] == TUPLE_ONLY:
                put({"space_id": spaces[i], "tuple": fast(arena[tuples[i] : ends[i]])})
            else:
                names = _key_names(types[i])
                put({names[key]: value for key, value in fast(arena[body_at[i] : ends[i]]).items()})
        except Exception:
            put(_slow(batch, start + i, depth))
    if context.kind is FileKind.VYLOG:
        return [_vylog(body) for body in result]
    return result


def _careful(fast: Any, data: memoryview, row_type: int, pairs: int, depth: int) -> Any:
    body = fast(data)
    names = _key_names(row_type)
    named = {names[key]: value for key, value in body.items()}
    return checked(named, pairs + len(body), depth + 1)


def _slow(batch: Batch, index: int, depth: int) -> Any:
    """One body by the tree: exact, and the one that says what is wrong."""
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
    """A body map with the names of its keys; a key that stands twice gets `#2` behind its name."""
    result: dict[str, Any] = {}
    for key, value in body.value:
        name = unique = body_key_name(row_type, key.value)
        times = 1
        while unique in result:
            times += 1
            unique = f"{name}#{times}"
        result[unique] = plain(value)
    return result


class _KeyNames(dict[int, str]):
    """Body keys of one row type; unknown ones are made up on demand and kept within reason."""

    def __init__(self, row_type: int) -> None:
        super().__init__((key, body_key_name(row_type, key)) for key in range(0x60))

    def __missing__(self, key: int) -> str:
        return f"key_0x{key:02x}"


@cache
def _own_key_names(row_type: int) -> _KeyNames:
    return _KeyNames(row_type)


def _key_names(row_type: int) -> _KeyNames:
    return _own_key_names(row_type if row_type in TYPE_NAMES else 0)


def _vylog(body: Any) -> Any:
    """A record of the vinyl metadata log: beside the stored tuple, the names of its type and keys."""
    if isinstance(body, Finding):
        return body
    record = body.get("tuple")
    if not isinstance(record, list) or not record or type(record[0]) is not int:
        return body
    keys = record[1] if len(record) > 1 and isinstance(record[1], dict) else {}
    named = {VYLOG_KEYS.get(int(key), key) if key.isdigit() else key: value for key, value in keys.items()}
    return {**body, "record": VYLOG_TYPES.get(record[0], str(record[0])), "fields": named}


# -- headers -----------------------------------------------------------------------------------------------------------

_SHOWN = (HeaderKey.TYPE, HeaderKey.REPLICA_ID, HeaderKey.LSN, HeaderKey.TIMESTAMP, HeaderKey.GROUP_ID, HeaderKey.FLAGS)


def extras(context: FileContext, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
    """{"header": …}: the stored keys with their exact values; `tsn` is computed from the stored difference."""
    table = batch.records
    keys = ints(table["header_keys"], start, stop)
    columns: dict[int, Sequence[Any]] = {key: unsigned(ints(table[HEADER_NAMES[key]], start, stop)) for key in _SHOWN}
    columns[HeaderKey.TIMESTAMP] = doubles(ints(table["timestamp"], start, stop))
    stored = zip(ints(table["lsn"], start, stop), ints(table["tsn"], start, stop), strict=True)
    columns[HeaderKey.TSN] = [lsn - difference & U64 for lsn, difference in stored]
    plans = {mask: [(HEADER_NAMES[k], columns[k]) for k in sorted(columns) if mask >> k & 1] for mask in set(keys)}
    return [{"header": {name: column[i] for name, column in plans[mask]}} for i, mask in enumerate(keys)]

