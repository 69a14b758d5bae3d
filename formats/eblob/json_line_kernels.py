"""Kernels that write JSON lines for records of the final dialect; a record's kind depends on the previous record.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from construct import Bytes, Computed, GreedyBytes, If, Int64ul, Struct, this

from binlogtool.format_api.format import JsonBodies, JsonLine, JsonMember
from binlogtool.format_api.json_text_kernels import (
    build_text_table,
    write_json_null,
    write_json_signed,
    write_json_unsigned,
    write_null_member,
    write_text_member,
    write_text_of_table,
    write_unsigned_member,
)
from binlogtool.format_api.layout import Batch, Column, Kernel
from binlogtool.format_api.lazy_import import LazyRef
from binlogtool.format_api.schema_fields import (
    BodySchema,
    HiddenField,
    Int64s,
    LeafFormat,
    MutableInt64s,
    MutableUInt8s,
    OpaqueLeaf,
    RenamedField,
    UInt8s,
    are_bytes_equal,
    get_fixed_field_offset,
    kernel,
    load_int64,
    write_hex_digits,
)
from binlogtool.formats.eblob.classify_overwrites_and_removals import (
    CONTROL_KIND,
    DATA_KIND,
    FOOTER_KIND,
    RECORD_KIND,
    REMOVE_KIND,
    EblobRecord,
    EblobRecordKind,
    PreviousRecord,
    classify_record_and_group,
    find_preceding_records,
    iter_classified_records,
    remember_last_records,
)
from binlogtool.formats.eblob.decode import DIALECT_B, EblobFileContext
from binlogtool.formats.eblob.schema import (
    CONTROL,
    CONTROL_SIZE,
    FOOTER,
    FOOTER_SIZE,
    HASH_SIZE,
    RECORD,
    RECORD_HEADER_SIZE,
    REMOVE_SIZE,
    TARGET,
    TARGET_SIZE,
    ControlFlag,
)

DERIVED_COLUMNS = ("kind", "number", "target", "group", "points")
"""Columns that are derived for each record; -1 = none.

They are the kind, the number in the file, and `target`, `group` and `record_start` of `EblobRecord`.
"""

KEY_AT, KEY_SIZE = get_fixed_field_offset(RECORD, "key"), 64
RECORD_START_AT, POSITION_AT = (
    get_fixed_field_offset(FOOTER, "record_start"),
    get_fixed_field_offset(CONTROL, "position"),
)
REMOVE_FLAG = int(ControlFlag.REMOVE)
MAX_OFFSET = 1 << 62
"""Maximum offset that is supported, beyond any file; batches with larger offsets are left to the general writer."""

# -- kinds of records --------------------------------------------------------------------------------------------------


@kernel(are_bytes_equal, classify_record_and_group, load_int64)
def write_record_columns(
    buf: UInt8s,
    count: int,
    first_number: int,
    lows: Int64s,
    ends: Int64s,
    metas: Int64s,
    sizes: Int64s,
    out: MutableInt64s,
) -> int:
    """Write the derived columns of all records of a batch except the first one.

    Returns:
        Number of records; fewer than `count` = the general writer must take over.
    """
    for i in range(1, count):
        record_at = lows[i]
        out[i] = RECORD_KIND
        out[i + count] = first_number + i
        for column in range(2, 5):
            out[i + column * count] = -1
        if metas[i] != TARGET_SIZE:
            continue
        target = load_int64(buf, record_at + RECORD_HEADER_SIZE)
        if target < 0 or target >= MAX_OFFSET:
            return i
        previous = i - 1
        last_number = first_number + previous if ends[previous] == record_at else -1
        data = record_at + RECORD_HEADER_SIZE + TARGET_SIZE
        size = sizes[i]
        is_removal = size == REMOVE_SIZE and load_int64(buf, data) == REMOVE_FLAG
        record_start = -1
        starts_with_key = False
        if size == FOOTER_SIZE:
            record_start = load_int64(buf, data + RECORD_START_AT)
        elif size == CONTROL_SIZE:
            record_start = load_int64(buf, data + POSITION_AT)
            starts_with_key = are_bytes_equal(buf, data, buf, record_at + KEY_AT, KEY_SIZE) != 0
        record_start = record_start if record_start < MAX_OFFSET else -1
        same_key = (
            record_start >= 0
            and last_number >= 0
            and are_bytes_equal(buf, lows[previous] + KEY_AT, buf, record_at + KEY_AT, KEY_SIZE) != 0
        )
        kind, group = classify_record_and_group(
            size,
            is_removal,
            record_start,
            target,
            first_number + i,
            PreviousRecord(
                last_number,
                out[previous],
                out[previous + 2 * count],
                out[previous + 4 * count],
                sizes[previous],
                out[previous + 3 * count],
                same_key,
            ),
            starts_with_key,
        )
        out[i] = kind
        out[i + 2 * count] = target
        out[i + 3 * count] = group
        out[i + 4 * count] = -1 if kind == DATA_KIND else record_start
    return count


# -- members -----------------------------------------------------------------------------------------------------------


@kernel(write_hex_digits)
def write_hex_text(buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write bytes as hexadecimal digits, without quotes."""
    if out_limit - out_pos < 2 * (limit - pos):
        return -1
    return write_hex_digits(buf, pos, limit, out, out_pos)


@kernel(write_hex_text)
def write_key_member(
    buf: UInt8s, text_table: UInt8s, scratch: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int, record_at: int
) -> int:
    """Write the key of the record at `record_at`."""
    if out_limit - out_pos < 2 * KEY_SIZE + 2:
        return -1
    out[out_pos] = 34
    out_pos = write_hex_text(buf, record_at + KEY_AT, record_at + KEY_AT + KEY_SIZE, out, out_pos + 1, out_limit)
    out[out_pos] = 34
    return out_pos + 1


@kernel(write_json_null, write_json_unsigned)
def write_group_member(
    buf: UInt8s, text_table: UInt8s, scratch: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int, group: int
) -> int:
    """Write the number of the first record of the group; null for -1."""
    return (
        write_json_null(out, out_pos, out_limit) if group < 0 else write_json_unsigned(group, out, out_pos, out_limit)
    )


FLAGS = [*ControlFlag]
RELATIVE_TEXT, HASH_TEXT, START_TEXT = range(len(FLAGS), len(FLAGS) + 3)
text_pool = build_text_table(
    {i: f'"{flag.name}",'.encode() for i, flag in enumerate(FLAGS)}
    | {RELATIVE_TEXT: b'"relative_offset":', HASH_TEXT: b',"sha512":"', START_TEXT: b'","record_start":'}
)
"""Texts for the kernels below; flag names are in the order of their bits."""

FLAG_COUNT = len(FLAGS)


@kernel(write_text_of_table, load_int64)
def write_json_control_flags(
    buf: UInt8s, pos: int, limit: int, text_table: UInt8s, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write the names of flags; unknown flags are left to the general writer."""
    flags = load_int64(buf, pos)
    if flags < 0 or flags >= 1 << FLAG_COUNT:
        return -2
    if out_limit - out_pos < 256:
        return -1
    out[out_pos] = 91
    out_pos += 1
    for i in range(FLAG_COUNT):
        if flags >> i & 1 != 0:
            out_pos = write_text_of_table(text_table, i, out, out_pos, out_limit)
    if flags != 0:
        out_pos -= 1
    out[out_pos] = 93
    return out_pos + 1


@kernel(write_hex_text, write_json_signed, write_text_of_table, write_json_unsigned, load_int64)
def write_footer_members(
    buf: UInt8s,
    pos: int,
    limit: int,
    text_table: UInt8s,
    target_offset: int,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> int:
    """Write the members of a footer: its offset relative to its record, the hash, and the start of its record."""
    if out_limit - out_pos < 256:
        return -1
    start = load_int64(buf, pos + RECORD_START_AT)
    out_pos = write_json_signed(
        target_offset - start, out, write_text_of_table(text_table, RELATIVE_TEXT, out, out_pos, out_limit), out_limit
    )
    out_pos = write_hex_text(
        buf, pos, pos + HASH_SIZE, out, write_text_of_table(text_table, HASH_TEXT, out, out_pos, out_limit), out_limit
    )
    return write_json_unsigned(
        start, out, write_text_of_table(text_table, START_TEXT, out, out_pos, out_limit), out_limit
    )


_TEXT_POOL = LazyRef("eblob.json_line_kernels:text_pool")
_KEY_LEAF = LeafFormat(None, LazyRef("eblob.json_line_kernels:write_hex_text"), unquoted=True)
_FLAGS_LEAF = LeafFormat(None, LazyRef("eblob.json_line_kernels:write_json_control_flags"), text_table=_TEXT_POOL)
_FOOTER_LEAF = LeafFormat(
    None,
    LazyRef("eblob.json_line_kernels:write_footer_members"),
    text_table=_TEXT_POOL,
    context_fields=("target_offset",),
    writes_members=True,
)
_SHOWN_FIELDS = ("type", "meta_size", "data_size")


def _iter_body_schemas() -> Iterator[tuple[int, BodySchema]]:
    """Yield (kind, schema of the record from its start on, in the order of the output)."""
    header_fields = [
        one if not one.name or one.name in _SHOWN_FIELDS else one.name / HiddenField(one) for one in RECORD.subcons
        if one.name not in ("metadata", "data")
    ]  # fmt: skip
    targeted = [*header_fields, *TARGET.subcons]
    leaves = {"key": _KEY_LEAF, "flags": _FLAGS_LEAF}
    control = [one.name / OpaqueLeaf(one, leaves[one.name]) if one.name in leaves else one for one in CONTROL.subcons]
    yield DATA_KIND, BodySchema(Struct(*targeted, "data" / GreedyBytes))
    yield FOOTER_KIND, BodySchema(Struct(*targeted, "footer" / OpaqueLeaf(FOOTER, _FOOTER_LEAF)))
    yield CONTROL_KIND, BodySchema(Struct(*targeted, "relative_offset" / Computed(0), "control" / Struct(*control)))
    yield (
        REMOVE_KIND,
        BodySchema(Struct(*targeted, "removed" / RenamedField("flags", OpaqueLeaf(Int64ul, _FLAGS_LEAF)))),
    )
    metadata = If(this.meta_size != 0, Bytes(this.meta_size))
    yield RECORD_KIND, BodySchema(Struct(*header_fields, "metadata" / metadata, "data" / GreedyBytes))


@cache
def _make_json_bodies() -> JsonBodies:
    return JsonBodies(tuple(_iter_body_schemas()), code="kind", start="offset", end="end")


class RecordColumnDeriver:
    """Computes the derived columns of batches."""

    def __init__(self, context: EblobFileContext) -> None:
        self._context = context
        self._out = memoryview(array("q"))

    def __call__(self, batch: Batch, compile_kernel: Callable[[Kernel], Kernel]) -> Mapping[str, Column] | None:
        """Return the derived columns of a batch (`JsonLine.derive`)."""
        count, byte_order, tails = batch.frames.count, DIALECT_B.byte_order, self._context.last_records
        remember_last_records(batch, tails, byte_order)
        if not count:
            return None
        first = next(
            iter_classified_records(batch, 0, 1, find_preceding_records(batch, 0, tails, byte_order), byte_order)
        )
        if max(first.target, first.record_start) >= MAX_OFFSET:
            return None
        if len(self._out) < len(DERIVED_COLUMNS) * count:
            self._out = memoryview(array("q", bytes(8 * len(DERIVED_COLUMNS) * count)))
        out = self._out[: len(DERIVED_COLUMNS) * count]
        out[::count] = _record_numbers(first)
        record_columns = [batch.frames[name] for name in ("offset", "end", "meta_size", "data_size")]
        if compile_kernel(write_record_columns)(batch.window, count, batch.first_record, *record_columns, out) < count:
            return None
        return {name: out[k * count : (k + 1) * count] for k, name in enumerate(DERIVED_COLUMNS)}


def _record_numbers(record: EblobRecord) -> array[int]:
    group = -1 if record.group is None else record.group
    return array("q", [record.kind, record.number, record.target, group, record.record_start])


def create_json_line(context: EblobFileContext) -> JsonLine | None:
    """Return the writer of JSON lines for records of the final dialect; None for other dialects."""
    if context.dialect is not DIALECT_B:
        return None
    null = JsonMember(write_null_member)
    return JsonLine(
        type=JsonMember(write_text_member, ("kind",), texts={kind.value: kind.name for kind in EblobRecordKind}),
        seq=JsonMember(write_unsigned_member, ("number",)),
        time=null,
        object=JsonMember(write_key_member, ("offset",)),
        origin=null,
        txn=JsonMember(write_group_member, ("group",)),
        body=JsonMember(None, ("kind", "offset", "end"), bodies=_make_json_bodies()),
        depth=4,
        derive=RecordColumnDeriver(context),
    )
