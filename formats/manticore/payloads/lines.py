"""The JSON line of a transaction in compiled code."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from construct import Construct, Enum, Int8ul, Struct, Terminated

from binlogtool.formats.bodies import Shown, Unshown
from binlogtool.formats.columns import integers
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonline import JsonBodies, JsonLine, JsonMember
from binlogtool.formats.jsonnumbers import put_null, put_time, put_unsigned
from binlogtool.formats.jsontext import null_member, put_name, text_member
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, MutableUInt8s, UInt8s
from binlogtool.formats.layouts import Batch, Column, Kernel
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import PROVEN_BY_DATA, LogContext
from binlogtool.formats.manticore.meaning import MEMORY, learn_names
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOWEST_FIRST
from binlogtool.formats.manticore.payloads.zint import read_zint
from binlogtool.formats.manticore.schema import NEW_FRAME, OldOp, Op, PayloadOp, old_body

_SIGN = 1 << 63
_DEPTH = 10
ADD_CACHE, ADD_INDEX, IN_TXN = -2, -1, 16
"""Kinds of transactions, beside the other operations of old versions. Of an ADD_TXN it is IN_TXN with the first byte of
its payload. The negative ones have no number."""


@kernel(put_null, put_time)
def time_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, kind: int, time: int
) -> int:
    """Write when a transaction was written, in the versions that store it."""
    return put_null(out, o, z) if kind == ADD_CACHE else put_time(time, out, o, z)


@kernel(put_name, put_null)
def object_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, kind: int, number: int
) -> int:
    """Write the name of the table with this id, if it is known."""
    if kind == ADD_CACHE:
        return put_null(out, o, z)
    reached = put_name(texts, number, out, o, z)
    return put_null(out, o, z) if reached == -2 else reached


@kernel()
def other_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: UInt8s, o: int, z: int, kind: int, p: int, n: int
) -> int:
    """Leave a body of an unknown kind to the general writer."""
    return -2


@kernel(put_null, put_unsigned)
def seq_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, kind: int, tid: int
) -> int:
    """Write the TID of a transaction."""
    return put_null(out, o, z) if kind < 0 else put_unsigned(tid, out, o, z)


@kernel(read_zint)
def survey(
    buf: UInt8s,
    count: int,
    ops: Int64s,
    starts: Int64s,
    ends: Int64s,
    add_txn: int,
    index: int,
    cache: int,
    out: MutableInt64s,
) -> int:
    """Classify transactions by kind.

    Args:
        add_txn, index, cache: operations of the version.
    """
    for i in range(count):
        out[i] = ops[i]
        if ops[i] == index:
            out[i] = ADD_INDEX
        elif ops[i] == cache:
            out[i] = ADD_CACHE
        elif ops[i] == add_txn:
            _id, p = read_zint(buf, starts[i] + 1, ends[i])
            _tid, p = read_zint(buf, p, ends[i])
            out[i] = IN_TXN + buf[p + 4] if p + 4 < ends[i] else IN_TXN - 1
    return count


class Names(Mapping[int, str]):
    """Names of a file's tables by their ids as columns hold them; a live view that grows."""

    def __init__(self, names: Mapping[int, bytes]) -> None:
        self._names = names

    def __getitem__(self, number: int) -> str:
        return self._names[number % (2 * _SIGN)].decode("utf-8", "backslashreplace")

    def __iter__(self) -> Iterator[int]:
        return ((number ^ _SIGN) - _SIGN for number in self._names)

    def __len__(self) -> int:
        return len(self._names)


def _whole(*fields: Construct) -> Shown:
    """Create the schema of a body from the operation up to the checksum."""
    return Shown(Struct("op" / Unshown(Int8ul), *fields, Terminated))


def _new_bodies() -> Iterator[tuple[int, Shown]]:
    operation = "payload_op" / Enum(Int8ul, PayloadOp)
    for op, payload in (
        (PayloadOp.COMMIT, schema.commit), (PayloadOp.UPDATE_ATTRS, schema.update),
        (PayloadOp.PQ_ADD_DELETE, schema.pq_add_delete),
    ):  # fmt: skip
        yield IN_TXN + op.value, _whole(*schema.ADD_TXN.subcons[:-1], operation, "payload" / payload(NEW_FRAME))
    yield ADD_INDEX, _whole(*schema.ADD_INDEX.subcons)
    yield ADD_CACHE, _whole(*schema.CACHE.subcons)


def _old_bodies(version: int) -> Iterator[tuple[int, Shown]]:
    ops = [op for op in OldOp if op not in (OldOp.ADD_INDEX, OldOp.ADD_CACHE, OldOp.RECONFIGURE)]
    for op in ops:
        yield op.value, _whole(*old_body(version, op).subcons[:-1], "payload" / schema.old_payload(version, op))
    yield ADD_INDEX, _whole(*old_body(version, OldOp.ADD_INDEX).subcons)
    yield ADD_CACHE, _whole(*schema.old_cache(version).subcons)


@cache
def _bodies(version: int) -> JsonBodies:
    found = _new_bodies() if version >= NEW_FRAME else _old_bodies(version)
    return JsonBodies(tuple(found), code="kind", start="covered_start", end="covered_end")


class Survey:
    """Derives the kinds of the transactions of a batch; None for a batch with one too large to be decoded."""

    def __init__(self, context: LogContext) -> None:
        self._context, self._most = context, context.max_memory // MEMORY
        self._out = array("q")

    def __call__(self, batch: Batch, compile_: Callable[[Kernel], Kernel]) -> Mapping[str, Column] | None:
        """See `JsonLine.derive`."""
        count, ops = batch.frames.count, self._context.ops
        given = [batch.frames[name] for name in ("op", "covered_start", "covered_end")]
        if len(batch.window) > self._most:
            starts, ends = (integers(column, 0, count) for column in given[1:])
            if any(end - start > self._most for start, end in zip(starts, ends, strict=True)):
                return None
        learn_names(self._context, batch, count)
        if len(self._out) < count:
            self._out = array("q", bytes(8 * count))
        add_txn = Op.ADD_TXN.value if self._context.new else -1
        compile_(survey)(batch.window, count, *given, add_txn, ops.ADD_INDEX.value, ops.ADD_CACHE.value, self._out)
        return {"kind": self._out}


def json_line(context: object) -> JsonLine | None:
    """Return the members of the line of a transaction, for verified versions; else None."""
    if not isinstance(context, LogContext) or context.version not in PROVEN_BY_DATA or context.ids != schema.ID64:
        return None
    if context.version <= LAST_LOWEST_FIRST:
        return None
    bodies = _bodies(min(context.version, NEW_FRAME))
    null = JsonMember(null_member)
    return JsonLine(
        type=JsonMember(text_member, ("op",), texts={op.value: op.name for op in context.ops}),
        seq=JsonMember(seq_member, ("kind", "body.tid")),
        time=null if context.new else JsonMember(time_member, ("kind", "body.time")),
        object=JsonMember(object_member, ("kind", "body.id"), names=Names(context.names)),
        origin=null,
        txn=null,
        body=JsonMember(other_member, ("kind", "covered_start", "covered_end"), bodies=bodies),
        depth=_DEPTH,
        derive=Survey(context),
    )
