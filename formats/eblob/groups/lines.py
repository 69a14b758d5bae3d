"""Kernels that write the JSON lines of records of the final dialect; a record's kind depends on the one before it.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from construct import Bytes, Computed, GreedyBytes, If, Int64ul, Struct, this

from binlogtool.formats.bodies import Called, Leaf, Shown, Told, Unshown
from binlogtool.formats.derived import place_of
from binlogtool.formats.eblob.groups.grouping import (
    DATA,
    FOOT,
    HEAD,
    OTHER,
    REMOVAL,
    Kind,
    PreviousRecord,
    Record,
    kind_of,
    preceding,
    records,
    remember,
)
from binlogtool.formats.eblob.layout.dialects import B
from binlogtool.formats.eblob.layout.layout import Log
from binlogtool.formats.eblob.schema import (
    CONTROL,
    CONTROL_SIZE,
    FOOTER,
    FOOTER_SIZE,
    HASH_SIZE,
    RECORD,
    RECORD_HEADER,
    REMOVE_SIZE,
    TARGET,
    TARGET_SIZE,
    ControlFlag,
)
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonline import JsonBodies, JsonLine, JsonMember
from binlogtool.formats.jsonnumbers import put_null, put_signed, put_unsigned
from binlogtool.formats.jsontext import null_member, put_text, text_member, text_table, unsigned_member
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, MutableUInt8s, UInt8s
from binlogtool.formats.later import Later
from binlogtool.formats.layouts import Batch, Column, Kernel
from binlogtool.formats.loads import word64

COLUMNS = ("kind", "number", "target", "group", "points")
"""Of a record: what it is, its number in the file, and `Record.target`, `group` and `record_start`; -1 = none."""

KEY, KEY_SIZE = place_of(RECORD, "key"), 64
RECORD_START, POSITION = place_of(FOOTER, "record_start"), place_of(CONTROL, "position")
REMOVED = int(ControlFlag.REMOVE)
MOST = 1 << 62
"""No file is that large: a batch with such an offset is left to the general writer."""

# -- what each record is (`grouping`) ----------------------------------------------------------------------------------


@kernel()
def same(buf: UInt8s, a: int, b: int) -> bool:
    """Compare two keys."""
    i = 0
    while i < KEY_SIZE and buf[a + i] == buf[b + i]:
        i += 1
    return i == KEY_SIZE


@kernel(kind_of, same, word64)
def survey(
    buf: UInt8s, count: int, number: int, lows: Int64s, ends: Int64s, metas: Int64s, sizes: Int64s, out: MutableInt64s
) -> int:
    """Write the columns of the records after the first one of a batch.

    Returns:
        Number of records; fewer than `count` = the general writer must take over.
    """
    for i in range(1, count):
        p = lows[i]
        out[i] = OTHER
        out[i + count] = number + i
        for column in range(2, 5):
            out[i + column * count] = -1
        if metas[i] != TARGET_SIZE:
            continue
        target = word64(buf, p + RECORD_HEADER)
        if target < 0 or target >= MOST:
            return i
        j = i - 1
        last = number + j if ends[j] == p else -1
        data = p + RECORD_HEADER + TARGET_SIZE
        size = sizes[i]
        removes = size == REMOVE_SIZE and word64(buf, data) == REMOVED
        own = -1
        hashed = False
        if size == FOOTER_SIZE:
            own = word64(buf, data + RECORD_START)
        elif size == CONTROL_SIZE:
            own = word64(buf, data + POSITION)
            hashed = same(buf, data, p + KEY)
        own = own if own < MOST else -1
        alike = own >= 0 and last >= 0 and same(buf, lows[j] + KEY, p + KEY)
        kind, group = kind_of(
            size,
            removes,
            own,
            target,
            number + i,
            PreviousRecord(last, out[j], out[j + 2 * count], out[j + 4 * count], sizes[j], out[j + 3 * count], alike),
            hashed,
        )
        out[i] = kind
        out[i + 2 * count] = target
        out[i + 3 * count] = group
        out[i + 4 * count] = -1 if kind == DATA else own
    return count


# -- members -----------------------------------------------------------------------------------------------------------


@kernel()
def put_hex(buf: UInt8s, p: int, n: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write bytes as hexadecimal digits, without quotes."""
    if z - o < 2 * (n - p):
        return -1
    while p < n:
        high = buf[p] >> 4
        low = buf[p] & 15
        out[o] = 48 + high + (39 if high > 9 else 0)
        out[o + 1] = 48 + low + (39 if low > 9 else 0)
        o += 2
        p += 1
    return o


@kernel(put_hex)
def key_member(buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, p: int) -> int:
    """Write the key of the record at `record_at`."""
    if z - o < 2 * KEY_SIZE + 2:
        return -1
    out[o] = 34
    o = put_hex(buf, p + KEY, p + KEY + KEY_SIZE, out, o + 1, z)
    out[o] = 34
    return o + 1


@kernel(put_null, put_unsigned)
def group_member(buf: UInt8s, texts: UInt8s, notes: Int64s, out: MutableUInt8s, o: int, z: int, group: int) -> int:
    """Write the number of the first record of the group; null for -1."""
    return put_null(out, o, z) if group < 0 else put_unsigned(group, out, o, z)


@kernel()
def other_member(
    buf: UInt8s, texts: UInt8s, notes: Int64s, out: UInt8s, o: int, z: int, kind: int, p: int, n: int
) -> int:
    """Leave a record to the general writer; not used, because all kinds have bodies."""
    return -2


FLAGS = [*ControlFlag]
RELATIVE, HASH, START = range(len(FLAGS), len(FLAGS) + 3)
words = text_table(
    {i: f'"{flag.name}",'.encode() for i, flag in enumerate(FLAGS)}
    | {RELATIVE: b'"relative_offset":', HASH: b',"sha512":"', START: b'","record_start":'}
)
"""The texts of the kernels below; those of the flags in the order of their bits."""

KNOWN = len(FLAGS)


@kernel(put_text, word64)
def put_flags(buf: UInt8s, p: int, n: int, texts: UInt8s, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the names of flags; unknown flags are left to the general writer."""
    flags = word64(buf, p)
    if flags < 0 or flags >= 1 << KNOWN:
        return -2
    if z - o < 256:
        return -1
    out[o] = 91
    o += 1
    for i in range(KNOWN):
        if flags >> i & 1 != 0:
            o = put_text(texts, i, out, o, z)
    if flags != 0:
        o -= 1
    out[o] = 93
    return o + 1


@kernel(put_hex, put_signed, put_text, put_unsigned, word64)
def put_footer(buf: UInt8s, p: int, n: int, texts: UInt8s, target: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the members of a footer: its offset relative to its record, the hash, and where its record starts."""
    if z - o < 256:
        return -1
    start = word64(buf, p + RECORD_START)
    o = put_signed(target - start, out, put_text(texts, RELATIVE, out, o, z), z)
    o = put_hex(buf, p, p + HASH_SIZE, out, put_text(texts, HASH, out, o, z), z)
    return put_unsigned(start, out, put_text(texts, START, out, o, z), z)


_WORDS = Later("eblob.groups.lines:words")
_KEY = Leaf(None, Later("eblob.groups.lines:put_hex"), bare=True)
_FLAGS = Leaf(None, Later("eblob.groups.lines:put_flags"), table=_WORDS)
_FOOTER = Leaf(None, Later("eblob.groups.lines:put_footer"), table=_WORDS, given=("target_offset",), members=True)
_SHOWN = ("type", "meta_size", "data_size")


def _bodies() -> Iterator[tuple[int, Shown]]:
    """Iterate over (kind, schema of the record from its start on, in the order of the output)."""
    head = [
        one if not one.name or one.name in _SHOWN else one.name / Unshown(one) for one in RECORD.subcons
        if one.name not in ("metadata", "data")
    ]  # fmt: skip
    aimed = [*head, *TARGET.subcons]
    leaves = {"key": _KEY, "flags": _FLAGS}
    control = [one.name / Told(one, leaves[one.name]) if one.name in leaves else one for one in CONTROL.subcons]
    yield DATA, Shown(Struct(*aimed, "data" / GreedyBytes))
    yield FOOT, Shown(Struct(*aimed, "footer" / Told(FOOTER, _FOOTER)))
    yield HEAD, Shown(Struct(*aimed, "relative_offset" / Computed(0), "control" / Struct(*control)))
    yield REMOVAL, Shown(Struct(*aimed, "removed" / Called("flags", Told(Int64ul, _FLAGS))))
    metadata = If(this.meta_size != 0, Bytes(this.meta_size))
    yield OTHER, Shown(Struct(*head, "metadata" / metadata, "data" / GreedyBytes))


@cache
def _json_bodies() -> JsonBodies:
    return JsonBodies(tuple(_bodies()), code="kind", start="offset", end="end")


class Survey:
    """Computes the derived columns of batches."""

    def __init__(self, context: Log) -> None:
        self._context = context
        self._out = memoryview(array("q"))

    def __call__(self, batch: Batch, compile_: Callable[[Kernel], Kernel]) -> Mapping[str, Column] | None:
        """See `JsonLine.derive`."""
        count, order, tails = batch.frames.count, B.byte_order, self._context.tails
        remember(batch, tails, order)
        if not count:
            return None
        first = next(records(batch, 0, 1, preceding(batch, 0, tails, order), order))
        if max(first.target, first.record_start) >= MOST:
            return None
        if len(self._out) < len(COLUMNS) * count:
            self._out = memoryview(array("q", bytes(8 * len(COLUMNS) * count)))
        out = self._out[: len(COLUMNS) * count]
        out[::count] = _numbers(first)
        given = [batch.frames[name] for name in ("offset", "end", "meta_size", "data_size")]
        if compile_(survey)(batch.window, count, batch.first_record, *given, out) < count:
            return None
        return {name: out[k * count : (k + 1) * count] for k, name in enumerate(COLUMNS)}


def _numbers(one: Record) -> array[int]:
    group = -1 if one.group is None else one.group
    return array("q", [one.kind, one.number, one.target, group, one.record_start])


def json_line(context: Log) -> JsonLine | None:
    """Return the JSON line of a record of the final dialect; None for other dialects."""
    if context.dialect is not B:
        return None
    null = JsonMember(null_member)
    return JsonLine(
        type=JsonMember(text_member, ("kind",), texts={kind.value: kind.name for kind in Kind}),
        seq=JsonMember(unsigned_member, ("number",)),
        time=null,
        object=JsonMember(key_member, ("offset",)),
        origin=null,
        txn=JsonMember(group_member, ("group",)),
        body=JsonMember(other_member, ("kind", "offset", "end"), bodies=_json_bodies()),
        depth=4,
        derive=Survey(context),
    )
