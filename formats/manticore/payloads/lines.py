"""The JSON line of a transaction in compiled code."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from construct import Construct, Enum, Int8ul, Struct, Terminated

from binlogtool.formats.bodies import BodySchema, HiddenField
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonline import JsonBodies, JsonLine, JsonMember
from binlogtool.formats.jsonnumbers import put_null, put_time, put_unsigned
from binlogtool.formats.jsontext import put_name, put_null_member, put_text_member
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, MutableUInt8s, UInt8s
from binlogtool.formats.layouts import Batch, Column, Kernel
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import VERIFIED_VERSIONS, ManticoreLogContext
from binlogtool.formats.manticore.meaning import MEMORY_FACTOR, learn_table_names
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOW_VERSION
from binlogtool.formats.manticore.payloads.zint import read_zint
from binlogtool.formats.manticore.schema import NEW_FRAME_VERSION, OldOp, Op, PayloadOp, create_old_body_schema

_SIGN_BIT = 1 << 63
_MAX_DEPTH = 10
ADD_CACHE_KIND, ADD_INDEX_KIND, PAYLOAD_KIND = -2, -1, 16
"""Kinds of transactions, beside the other operations of old versions. Of an ADD_TXN it is IN_TXN with the first byte of
its payload. The negative ones have no number."""


@kernel(put_null, put_time)
def put_time_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, kind: int, time: int
) -> int:
    """Write when a transaction was written, in the versions that store it."""
    return put_null(out, o, z) if kind == ADD_CACHE_KIND else put_time(time, out, o, z)


@kernel(put_name, put_null)
def put_table_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, kind: int, number: int
) -> int:
    """Write the name of the table with this id, if it is known."""
    if kind == ADD_CACHE_KIND:
        return put_null(out, o, z)
    name_end = put_name(texts, number, out, o, z)
    return put_null(out, o, z) if name_end == -2 else name_end


@kernel()
def reject_body_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: UInt8s, o: int, z: int, kind: int, p: int, n: int
) -> int:
    """Leave a body of an unknown kind to the general writer."""
    return -2


@kernel(put_null, put_unsigned)
def put_tid_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, kind: int, tid: int
) -> int:
    """Write the TID of a transaction."""
    return put_null(out, o, z) if kind < 0 else put_unsigned(tid, out, o, z)


@kernel(read_zint)
def classify_transactions(
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
            out[i] = ADD_INDEX_KIND
        elif ops[i] == cache:
            out[i] = ADD_CACHE_KIND
        elif ops[i] == add_txn:
            _id, p = read_zint(buf, starts[i] + 1, ends[i])
            _tid, p = read_zint(buf, p, ends[i])
            out[i] = PAYLOAD_KIND + buf[p + 4] if p + 4 < ends[i] else PAYLOAD_KIND - 1
    return count


class TableNames(Mapping[int, str]):
    """Names of a file's tables by their ids as columns hold them; a live view that grows."""

    def __init__(self, names: Mapping[int, bytes]) -> None:
        self._names = names

    def __getitem__(self, number: int) -> str:
        return self._names[number % (2 * _SIGN_BIT)].decode("utf-8", "backslashreplace")

    def __iter__(self) -> Iterator[int]:
        return ((number ^ _SIGN_BIT) - _SIGN_BIT for number in self._names)

    def __len__(self) -> int:
        return len(self._names)


def _create_body(*fields: Construct) -> BodySchema:
    """Create the schema of a body from the operation up to the checksum."""
    return BodySchema(Struct("op" / HiddenField(Int8ul), *fields, Terminated))


def _create_new_bodies() -> Iterator[tuple[int, BodySchema]]:
    operation = "payload_op" / Enum(Int8ul, PayloadOp)
    for op, payload in (
        (PayloadOp.COMMIT, schema.create_commit_schema), (PayloadOp.UPDATE_ATTRS, schema.create_update_schema),
        (PayloadOp.PQ_ADD_DELETE, schema.create_pq_add_delete_schema),
    ):  # fmt: skip
        yield (
            PAYLOAD_KIND + op.value,
            _create_body(*schema.ADD_TXN.subcons[:-1], operation, "payload" / payload(NEW_FRAME_VERSION)),
        )
    yield ADD_INDEX_KIND, _create_body(*schema.ADD_INDEX.subcons)
    yield ADD_CACHE_KIND, _create_body(*schema.CACHE.subcons)


def _create_old_bodies(version: int) -> Iterator[tuple[int, BodySchema]]:
    ops = [op for op in OldOp if op not in (OldOp.ADD_INDEX, OldOp.ADD_CACHE, OldOp.RECONFIGURE)]
    for op in ops:
        yield (
            op.value,
            _create_body(
                *create_old_body_schema(version, op).subcons[:-1],
                "payload" / schema.create_old_payload_schema(version, op),
            ),
        )
    yield ADD_INDEX_KIND, _create_body(*create_old_body_schema(version, OldOp.ADD_INDEX).subcons)
    yield ADD_CACHE_KIND, _create_body(*schema.create_old_cache_schema(version).subcons)


@cache
def _create_json_bodies(version: int) -> JsonBodies:
    bodies = _create_new_bodies() if version >= NEW_FRAME_VERSION else _create_old_bodies(version)
    return JsonBodies(tuple(bodies), code="kind", start="covered_start", end="covered_end")


class TransactionClassifier:
    """Derives the kinds of the transactions of a batch; None for a batch with one too large to be decoded."""

    def __init__(self, context: ManticoreLogContext) -> None:
        self._context, self._max_size = context, context.max_memory // MEMORY_FACTOR
        self._out = array("q")

    def __call__(self, batch: Batch, compile_: Callable[[Kernel], Kernel]) -> Mapping[str, Column] | None:
        """See `JsonLine.derive`."""
        count, ops = batch.frames.count, self._context.ops
        arguments = [batch.frames[name] for name in ("op", "covered_start", "covered_end")]
        if len(batch.window) > self._max_size:
            starts, ends = (to_int_list(column, 0, count) for column in arguments[1:])
            if any(end - start > self._max_size for start, end in zip(starts, ends, strict=True)):
                return None
        learn_table_names(self._context, batch, count)
        if len(self._out) < count:
            self._out = array("q", bytes(8 * count))
        add_txn = Op.ADD_TXN.value if self._context.has_new_frames else -1
        compile_(classify_transactions)(
            batch.window, count, *arguments, add_txn, ops.ADD_INDEX.value, ops.ADD_CACHE.value, self._out
        )
        return {"kind": self._out}


def create_json_line(context: object) -> JsonLine | None:
    """Return the members of the line of a transaction, for verified versions; else None."""
    if (
        not isinstance(context, ManticoreLogContext)
        or context.version not in VERIFIED_VERSIONS
        or context.id_size != schema.ID64_SIZE
    ):
        return None
    if context.version <= LAST_LOW_VERSION:
        return None
    bodies = _create_json_bodies(min(context.version, NEW_FRAME_VERSION))
    null = JsonMember(put_null_member)
    return JsonLine(
        type=JsonMember(put_text_member, ("op",), texts={op.value: op.name for op in context.ops}),
        seq=JsonMember(put_tid_member, ("kind", "body.tid")),
        time=null if context.has_new_frames else JsonMember(put_time_member, ("kind", "body.time")),
        object=JsonMember(put_table_member, ("kind", "body.id"), names=TableNames(context.names)),
        origin=null,
        txn=null,
        body=JsonMember(reject_body_member, ("kind", "covered_start", "covered_end"), bodies=bodies),
        depth=_MAX_DEPTH,
        derive=TransactionClassifier(context),
    )
