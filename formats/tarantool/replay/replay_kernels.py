"""Replay most rows by compiled code.

Implements `format_api.replay_rules.CompiledReplay`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from binlogtool.findings import Finding
from binlogtool.format_api.json_text_kernels import is_utf8
from binlogtool.format_api.layout import Batch, Kernel, to_int_list
from binlogtool.format_api.replay_rules import APPLIED, BatchOutcome, ObjectCount, StateChange
from binlogtool.format_api.row_store_kernels import (
    HEAD_END,
    HEAD_FREE,
    NO_SPACE,
    ROW_CONTENT,
    ROW_IMAGE_SIZE,
    ROW_STATE,
    RowStoreMemory,
    StoreMemory,
    append_row_replacing_old,
    copy_bytes,
    count_integers,
    has_space,
    look_up_key_after_last_row,
    set_image_of_key_after_last_row,
)
from binlogtool.format_api.schema_fields import Int64s, MutableInt64s, MutableUInt8s, UInt8s, kernel
from binlogtool.formats.tarantool.codes import TYPE_NAMES, FileKind
from binlogtool.formats.tarantool.decode import TarantoolContext, decode_bodies
from binlogtool.formats.tarantool.msgpack.parse import (
    get_max_nesting_depth,
    load_mp_integer,
    read_length,
    read_uint,
    skip_value_and_count,
)
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.tarantool.replay.replayer import TarantoolReplayer
    from binlogtool.formats.tarantool.replay.row_effects import TarantoolEffectReader


# --- MessagePack in canonical form ---


@kernel(read_length)
def read_shortest_head(buf: UInt8s, pos: int, limit: int, code: int) -> tuple[int, int]:
    """Read the head of a str, bin, array or map in shortest form: (size, position after the head); else (-1, p)."""
    if code >= 0xA0 and code <= 0xBF:
        return code - 0xA0, pos + 1
    if code >= 0x80 and code <= 0x9F:
        return code & 15, pos + 1
    if code < 0xC4 or (code > 0xC6 and code < 0xD9) or code > 0xDF:
        return -1, pos
    size, after = read_length(buf, pos + 1, limit, code)
    least = 65536 if after - pos == 5 else 256
    if code == 0xC4:
        least = 0
    elif code == 0xD9:
        least = 32
    elif code == 0xDC or code == 0xDE:
        least = 16
    return (size, after) if after >= 0 and size >= least else (-1, pos)


@kernel(load_mp_integer)
def find_number_end(buf: UInt8s, pos: int, limit: int, code: int) -> int:
    """Return the end of the number 0xcb..0xd3 at `buf[pos]`; UNSUPPORTED if it is not shortest form or not finite."""
    size = 1 << (code & 3)
    if code < 0xCB or code > 0xD3 or limit - pos <= size:
        return -2
    if code == 0xCB:
        return pos + 9 if buf[pos + 1] & 0x7F != 0x7F or buf[pos + 2] < 0xF0 else -2
    value = load_mp_integer(buf, pos, code)
    if code >= 0xD0:
        short = value >= (-32 if size == 1 else -(1 << (4 * size - 1)))
    else:
        short = value >= 0 and value < (0x80 if size == 1 else 1 << (4 * size))
    return -2 if short else pos + 1 + size


@kernel()
def is_text_before(buf: UInt8s, pos: int, limit: int, other_pos: int, other_limit: int) -> bool:
    """Return whether the text `buf[pos:limit]` sorts before `buf[q:z]`."""
    while pos < limit and other_pos < other_limit:
        if buf[pos] != buf[other_pos]:
            return bool(buf[pos] < buf[other_pos])
        pos += 1
        other_pos += 1
    return pos == limit and other_pos < other_limit


@kernel(read_shortest_head, is_text_before, is_utf8, find_number_end)
def find_canonical_end(buf: UInt8s, pos: int, limit: int, allowed_levels: int) -> int:
    """Return the end of the value at `buf[pos]`; UNSUPPORTED if it is not in canonical form.

    Args:
        allowed_levels: nesting levels that are still allowed inside the value.
    """
    if pos >= limit:
        return -2
    code = buf[pos] + 0
    if code < 0x80 or code >= 0xE0 or code == 0xC0 or code == 0xC2 or code == 0xC3:
        return pos + 1
    size, at = read_shortest_head(buf, pos, limit, code)
    if size < 0:
        return find_number_end(buf, pos, limit, code)
    if size > limit - at:
        return -2
    if code >= 0xC4 and code <= 0xC6:
        return at + size
    if (code >= 0xA0 and code <= 0xBF) or (code >= 0xD9 and code <= 0xDB):
        return at + size if is_utf8(buf, at, at + size) else -2
    if allowed_levels == 0:
        return -2
    before = 0
    before_end = -1
    for _ in range(size):
        if code < 0x90 or code >= 0xDE:
            key_size, key = read_shortest_head(buf, at, limit, buf[at] + 0) if at < limit else (-1, at)
            if key_size < 0 or buf[at] < 0xA0 or (buf[at] > 0xBF and buf[at] < 0xD9) or buf[at] > 0xDB:
                return -2
            if key_size > limit - key or (key_size > 0 and buf[key] == 0x24) or not is_utf8(buf, key, key + key_size):
                return -2
            if before_end >= 0 and not is_text_before(buf, before, before_end, key, key + key_size):
                return -2
            before = key
            before_end = key + key_size
            at = before_end
        at = find_canonical_end(buf, at, limit, allowed_levels - 1)
        if at < 0:
            return at
    return at


@kernel(load_mp_integer)
def read_addable_integer(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Return (value, position after it) of the canonical integer at `buf[pos]`.

    The position is UNSUPPORTED for other values, and for integers so large that an addition could overflow.
    """
    if pos >= limit:
        return 0, -2
    code = buf[pos] + 0
    if code < 0x80:
        return code, pos + 1
    if code >= 0xE0:
        return code - 256, pos + 1
    size = 1 << (code & 3)
    if code < 0xCC or code > 0xD3 or limit - pos <= size:
        return 0, -2
    value = load_mp_integer(buf, pos, code)
    if (code == 0xCF and value < 0) or value > 0x3FFFFFFFFFFFFFFF or value < -0x3FFFFFFFFFFFFFFF:
        return 0, -2
    return value, pos + 1 + size


@kernel()
def write_integer(value: int, texts: UInt8s, out: MutableUInt8s, out_pos: int) -> int:
    """Write an integer in canonical form, at most 9 bytes; return the end.

    `texts` is unused; it tells the compiler that `out` is an array of bytes.
    """
    if value >= -32 and value < 0x80:
        out[out_pos] = value & 255
        return out_pos + 1
    code = 0xCC if value >= 0 else 0xD0
    size = 8
    if value >= -0x80 and value < 0x100:
        size = 1
    elif value >= -0x8000 and value < 0x10000:
        size = 2
        code += 1
    elif value >= -0x80000000 and value < 0x100000000:
        size = 4
        code += 2
    else:
        code += 3
    out[out_pos] = code
    for i in range(size):
        out[out_pos + 1 + i] = (value >> 8 * (size - 1 - i)) & 255
    return out_pos + 1 + size


# --- Kernels for the common rows of logs and snapshots ---

SPACE, OBJECT, EPOCH, PARTS, FIRST_PART, SPACE_ENTRY_SIZE = 0, 1, 2, 3, 4, 12
"""Entry in the kernels' table of spaces: id, object, epoch of the object, number of key fields, key fields; its size.
"""

MAX_PARTS = SPACE_ENTRY_SIZE - FIRST_PART
COUNTS_PER_SPACE = 3
"""Number of integers that `find_plain_run_end` writes for each space: rows, first and last LSN."""

_INSERT, _REPLACE, _UPDATE, _DELETE, _UPSERT = 2, 3, 4, 5, 9
_SPACE_ID, _INDEX_BASE, _KEY, _TUPLE = 0x10, 0x15, 0x20, 0x21
_PUT_KEYS = 1 << _SPACE_ID | 1 << _TUPLE
_DELETE_KEYS = 1 << _SPACE_ID | 1 << _KEY
_UPDATE_KEYS = _DELETE_KEYS | 1 << _TUPLE
_UPDATE_WITH_BASE_KEYS = _UPDATE_KEYS | 1 << _INDEX_BASE
_DUPLICATE_KEY = 1 << 59
_SYNC_FLAGS = 6
_TSN_KEY, _GROUP_KEY = 1 << 8, 1 << 7
"""Bits of header keys: the number of a transaction, the group of a row."""
MAX_CANONICAL_DEPTH = 12
_INEXACT_MARKS = 0xFF & ~1
"""All marks of `skip_value_and_count` except that of a bin."""
_MAX_ROW_BYTES = 1 << 24
"""Maximum size of a row for the kernels; longer rows are left to the general code."""


class ReplayColumns(NamedTuple):
    """Columns with one entry per row of a batch: the values that decide whether a row is applied."""

    types: Int64s
    replicas: Int64s
    lsns: Int64s
    flags: Int64s
    spaces: Int64s
    keys: Int64s
    tsns: Int64s
    header_keys: Int64s


class BodyColumns(NamedTuple):
    """Columns with one entry per row of a batch: the body. bodies, tuples, ends: positions in the bytes."""

    types: Int64s
    spaces: Int64s
    keys: Int64s
    shapes: Int64s
    bodies: Int64s
    tuples: Int64s
    ends: Int64s


@kernel()
def find_space_index(space_table: Int64s, space_count: int, space_id: int, last_index: int) -> int:
    """Return the index of a space in the table, which is sorted by id; -1 if the space is not in the table.

    Args:
        last_index: index of the space found by the previous call (tried first).
    """
    if last_index >= 0 and space_table[SPACE_ENTRY_SIZE * last_index] == space_id:
        return last_index
    low = 0
    high = space_count
    while low < high:
        middle = (low + high) >> 1
        if space_table[SPACE_ENTRY_SIZE * middle] < space_id:
            low = middle + 1
        else:
            high = middle
    return low if low < space_count and space_table[SPACE_ENTRY_SIZE * low] == space_id else -1


@kernel()
def get_open_tsn_after_row(tsn: int, commit: int, lsn: int, open_tsn: int) -> int:
    """Return the number of the transaction that is open after a row; 0 = none, -1 = the row does not continue it."""
    if open_tsn == 0:
        if tsn != lsn or tsn <= 0:
            return -1
    elif tsn != open_tsn:
        return -1
    return 0 if commit != 0 else tsn


@kernel(find_space_index, get_open_tsn_after_row)
def find_plain_run_end(
    columns: ReplayColumns,
    start: int,
    stop: int,
    replica: int,
    first_lsn: int,
    transactional: int,
    space_table: Int64s,
    space_count: int,
    counts_by_space: MutableInt64s,
) -> int:
    """Return the end of the run of rows that can be applied without a check.

    All are of one replica with consecutive LSNs, and none concerns definitions or synchronous transactions.

    Args:
        first_lsn: LSN of the first row; -1 = rows of a snapshot.
        transactional: 1 = whole transactions only.
        counts_by_space: receives rows, first and last LSN for each space of the table.
    """
    last = -1
    open_tsn = 0
    end = start
    for i in range(start, stop):
        kind = columns.types[i] + 0
        lsn = columns.lsns[i] + 0
        if first_lsn < 0:
            if kind != _INSERT or lsn < 0:
                break
        elif (
            lsn != first_lsn + i - start
            or columns.replicas[i] != replica
            or kind < _INSERT
            or (kind > _DELETE and kind != _UPSERT)
        ):
            break
        if columns.flags[i] & _SYNC_FLAGS != 0 or columns.keys[i] & _DUPLICATE_KEY != 0:
            break
        last = find_space_index(space_table, space_count, columns.spaces[i], last)
        if last < 0:
            break
        if transactional != 0 and first_lsn >= 0:
            if columns.header_keys[i] & _GROUP_KEY != 0:
                break
            numbered = columns.header_keys[i] & _TSN_KEY
            commit = 1 if numbered == 0 else columns.flags[i] & 1
            open_tsn = get_open_tsn_after_row(lsn if numbered == 0 else lsn - columns.tsns[i], commit, lsn, open_tsn)
            if open_tsn < 0:
                break
        if open_tsn == 0:
            end = i + 1
    last = -1
    for i in range(start, end):
        last = find_space_index(space_table, space_count, columns.spaces[i], last)
        lsn = columns.lsns[i] + 0
        if counts_by_space[COUNTS_PER_SPACE * last] == 0:
            counts_by_space[COUNTS_PER_SPACE * last + 1] = lsn
        counts_by_space[COUNTS_PER_SPACE * last] = counts_by_space[COUNTS_PER_SPACE * last] + 1
        counts_by_space[COUNTS_PER_SPACE * last + 2] = lsn
    return end


@kernel(read_uint, skip_value_and_count)
def find_body_value_offset(buf: UInt8s, pos: int, limit: int, key_code: int) -> int:
    """Return the position of a key's value in the body at `buf[pos]` (a map of at most 15 pairs), or UNSUPPORTED."""
    if pos >= limit or buf[pos] < 0x80 or buf[pos] > 0x8F:
        return -2
    count = buf[pos] & 15
    pos += 1
    for _ in range(count):
        key, pos = read_uint(buf, pos, limit)
        if pos < 0 or key == key_code:
            return pos
        pos = skip_value_and_count(buf, pos, limit)[0]
        if pos < 0:
            return -2
    return -2


@kernel(find_canonical_end, copy_bytes, read_shortest_head)
def write_row_key(
    buf: UInt8s,
    pos: int,
    limit: int,
    space_table: Int64s,
    space_entry: int,
    texts: UInt8s,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> tuple[int, int]:
    """Write the key of the row at `buf[pos]` to `out[out_pos:out_limit]`, its parts in the order of fields.

    Returns:
        (end of the key, or NO_SPACE, or UNSUPPORTED; end of the row).
    """
    size, q = read_shortest_head(buf, pos, limit, buf[pos] + 0) if pos < limit else (-1, pos)
    if size < 0 or buf[pos] < 0x90 or (buf[pos] > 0x9F and buf[pos] != 0xDC and buf[pos] != 0xDD):
        return -2, 0
    parts = space_table[space_entry + PARTS] + 0
    if out_limit - out_pos < 1:
        return -1, 0
    out[out_pos] = 0x90 + parts
    out_pos += 1
    part = 0
    for field in range(size):
        after = find_canonical_end(buf, q, limit, MAX_CANONICAL_DEPTH)
        if after < 0:
            return -2, 0
        if part < parts and space_table[space_entry + FIRST_PART + part] == field:
            if out_limit - out_pos < after - q:
                return -1, 0
            out_pos = copy_bytes(buf, q, after, out, out_pos)
            part += 1
        q = after
    return (out_pos, q) if part == parts else (-2, 0)


@kernel(find_canonical_end, copy_bytes, read_shortest_head)
def write_request_key(
    buf: UInt8s, pos: int, limit: int, part_count: int, out: MutableUInt8s, out_pos: int, out_limit: int, texts: UInt8s
) -> int:
    """Write the key at `buf[pos]` of a DELETE or UPDATE to `out`; return its end, or NO_SPACE, or UNSUPPORTED."""
    if pos < 0 or pos >= limit or buf[pos] != 0x90 + part_count:
        return -2
    after = find_canonical_end(buf, pos, limit, MAX_CANONICAL_DEPTH)
    if after < 0:
        return -2
    return copy_bytes(buf, pos, after, out, out_pos) if out_limit - out_pos >= after - pos else -1


@kernel(read_shortest_head, skip_value_and_count)
def find_row_field_bounds(row_bytes: UInt8s, pos: int, limit: int, field: int) -> tuple[int, int]:
    """Return start and end of a field of the row at `texts[pos]`; (-2, -2) if the row has fewer fields."""
    size, q = read_shortest_head(row_bytes, pos, limit, row_bytes[pos] + 0)
    if field >= size:
        return -2, -2
    for _ in range(field):
        q = skip_value_and_count(row_bytes, q, limit)[0]
    return q, skip_value_and_count(row_bytes, q, limit)[0]


@kernel(find_canonical_end, read_uint)
def read_operation(buf: UInt8s, pos: int, limit: int) -> tuple[int, int, int, int]:
    """Read the operation `[name, field, argument]` at `buf[pos]`.

    Returns:
        (its character, field number, start and end of the argument); the end is UNSUPPORTED for other forms.
    """
    if limit - pos < 4 or buf[pos] != 0x93 or buf[pos + 1] != 0xA1:
        return 0, 0, 0, -2
    field, q = read_uint(buf, pos + 3, limit)
    if q < 0 or field < 0:
        return 0, 0, 0, -2
    return buf[pos + 2] + 0, field, q, find_canonical_end(buf, q, limit, MAX_CANONICAL_DEPTH)


@kernel(copy_bytes, find_row_field_bounds, read_addable_integer, read_operation, write_integer)
def apply_operation(
    buf: UInt8s,
    pos: int,
    limit: int,
    index_base: int,
    store_bytes: UInt8s,
    image_start: int,
    image_end: int,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> tuple[int, int, int]:
    """Apply the operation at `buf[pos]` to the row image `texts[image:end]`; write it to `out[out_pos:out_limit]`.

    Returns:
        (end of the new image, or NO_SPACE, or UNSUPPORTED; end of the operation; 0).
    """
    name, field, argument, argument_end = read_operation(buf, pos, limit)
    if argument_end < 0 or field < index_base or (name != 0x3D and name != 0x2B and name != 0x2D):
        return -2, 0, 0
    start, after = find_row_field_bounds(store_bytes, image_start, image_end, field - index_base)
    if start < 0 or after < 0:
        return -2, 0, 0
    if out_limit - out_pos < image_end - image_start + argument_end - argument + 9:
        return -1, 0, 0
    out_pos = copy_bytes(store_bytes, image_start, start, out, out_pos)
    if name == 0x3D:
        out_pos = copy_bytes(buf, argument, argument_end, out, out_pos)
    else:
        old, q = read_addable_integer(store_bytes, start, after)
        operand, r = read_addable_integer(buf, argument, argument_end)
        if q < 0 or r < 0:
            return -2, 0, 0
        out_pos = write_integer(old + operand if name == 0x2B else old - operand, store_bytes, out, out_pos)
    return copy_bytes(store_bytes, after, image_end, out, out_pos), argument_end, 0


@kernel(
    apply_operation,
    copy_bytes,
    read_shortest_head,
    count_integers,
    look_up_key_after_last_row,
    append_row_replacing_old,
)
def update_last_keyed_row(
    buf: UInt8s, pos: int, limit: int, index_base: int, memory: StoreMemory, owner: int, row_state: int
) -> int:
    """Apply the operations at `buf[pos]` to the row whose key was written last.

    Returns:
        The position of the row in the store, or NO_SPACE, or UNSUPPORTED.
    """
    slot, at, code = look_up_key_after_last_row(memory.texts, memory.rows, memory.slots, memory.head, owner)
    if at < 0 or memory.rows[at + ROW_STATE] != row_state or pos >= limit or buf[pos] < 0x90 or buf[pos] > 0x9F:
        return -2
    place = ROW_CONTENT + count_integers(owner & 0x7FFFFFFF)
    image = 8 * (at + place)
    end = image + (memory.rows[at + ROW_IMAGE_SIZE] & 0x7FFFFFFF)
    target = 8 * (memory.head[HEAD_FREE] + place)
    count = buf[pos] & 15
    pos += 1
    o = target
    for _ in range(count):
        reached, pos, _ = apply_operation(
            buf, pos, limit, index_base, memory.texts, image, end, memory.out, o, 8 * memory.head[HEAD_END]
        )
        if reached < 0:
            return reached
        image = o
        end = reached
        o = reached
    size = end - image
    if size <= memory.rows[at + ROW_IMAGE_SIZE] >> 32:
        copy_bytes(memory.texts, image, end, memory.out, 8 * (at + place))
        memory.rows[at + ROW_IMAGE_SIZE] = ((memory.rows[at + ROW_IMAGE_SIZE] >> 32) << 32) + size
        return at
    if 8 * memory.head[HEAD_END] - target < size + 8:
        return -1
    copy_bytes(memory.texts, image, end, memory.out, target)
    return append_row_replacing_old(memory.rows, memory.slots, memory.head, slot, at, code, owner, row_state, size)


@kernel(
    has_space,
    write_request_key,
    write_row_key,
    set_image_of_key_after_last_row,
    read_uint,
    update_last_keyed_row,
    find_body_value_offset,
)
def store_row_change(
    buf: UInt8s,
    body_start: int,
    tuple_start: int,
    row_end: int,
    row_type: int,
    body_keys: int,
    space_table: Int64s,
    space_entry: int,
    memory: StoreMemory,
) -> int:
    """Apply one row to the row store.

    Args:
        space_entry: position of the row's space in the table.

    Returns:
        The position of the row in the store, or NO_SPACE, or UNSUPPORTED.
    """
    if has_space(memory.head, 1, 0) == 0:
        return -1
    start = 8 * (memory.head[HEAD_FREE] + ROW_CONTENT)
    room = 8 * memory.head[HEAD_END]
    state = space_table[space_entry + EPOCH] << 8
    if row_type < _UPDATE:
        if body_keys != _PUT_KEYS or tuple_start < 0:
            return -2
        end, after = write_row_key(
            buf, tuple_start, row_end, space_table, space_entry, memory.texts, memory.out, start, room
        )
        if end < 0:
            return end
        if has_space(memory.head, end - start, after - tuple_start) == 0:
            return -1
        owner = (space_table[space_entry + OBJECT] << 32) + end - start
        return set_image_of_key_after_last_row(buf, tuple_start, after, memory, owner, state + 1)
    if body_keys != _DELETE_KEYS and body_keys != _UPDATE_KEYS and body_keys != _UPDATE_WITH_BASE_KEYS:
        return -2
    end = write_request_key(
        buf,
        find_body_value_offset(buf, body_start, row_end, _KEY),
        row_end,
        space_table[space_entry + PARTS] + 0,
        memory.out,
        start,
        room,
        memory.texts,
    )
    if end < 0:
        return end
    if has_space(memory.head, end - start, 0) == 0:
        return -1
    owner = (space_table[space_entry + OBJECT] << 32) + end - start
    if row_type == _DELETE:
        return set_image_of_key_after_last_row(buf, 0, 0, memory, owner, state) if body_keys == _DELETE_KEYS else -2
    if row_type != _UPDATE or body_keys == _DELETE_KEYS:
        return -2
    base = 0
    if body_keys == _UPDATE_WITH_BASE_KEYS:
        base, end = read_uint(buf, find_body_value_offset(buf, body_start, row_end, _INDEX_BASE), row_end)
        if end < 0 or base < 0:
            return -2
    tuple_start = find_body_value_offset(buf, body_start, row_end, _TUPLE)
    if tuple_start < 0:
        return -2
    return update_last_keyed_row(buf, tuple_start, row_end, base, memory, owner, state + 1)


@kernel(store_row_change, find_space_index)
def store_row_changes(
    buf: UInt8s,
    columns: BodyColumns,
    start: int,
    stop: int,
    space_table: Int64s,
    space_count: int,
    max_depth: int,
    memory: StoreMemory,
) -> tuple[int, int]:
    """Apply the rows `[start, stop)` to the row store.

    Args:
        space_table: table of spaces with their keys.
        max_depth: nesting from which bodies are not decoded.

    Returns:
        (first row that was not applied, NO_SPACE or UNSUPPORTED); (`stop`, 0) if all were applied.
    """
    last = -1
    for i in range(start, stop):
        last = find_space_index(space_table, space_count, columns.spaces[i], last)
        if (
            last < 0
            or columns.bodies[i] < 0
            or columns.shapes[i] & _INEXACT_MARKS != 0
            or (columns.shapes[i] >> 8) & 0xFFFFFF >= max_depth
        ):
            return i, -2
        if columns.ends[i] - columns.bodies[i] > _MAX_ROW_BYTES or space_table[SPACE_ENTRY_SIZE * last + PARTS] == 0:
            return i, -2
        space_position = SPACE_ENTRY_SIZE * last
        body, row = columns.bodies[i] + 0, columns.tuples[i] + 0
        end, kind, mask = columns.ends[i] + 0, columns.types[i] + 0, columns.keys[i] + 0
        status = store_row_change(buf, body, row, end, kind, mask, space_table, space_position, memory)
        if status < 0:
            return i, status
    return stop, 0


# --- Fast path of a replay ---

_RULING_COLUMNS = ("type", "replica_id", "lsn", "flags", "space_id", "body_keys", "tsn", "header_keys")
_STORE_COLUMNS = ("type", "space_id", "body_keys", "shape", "body", "tuple", "end")
_MAX_SPACES = 1 << 12
"""Maximum number of spaces that are passed to a kernel at once."""


class TarantoolFastPath:
    """Fast path of one replay: outcomes and row changes."""

    def __init__(self, replayer: TarantoolReplayer, effects: TarantoolEffectReader | None, limits: Limits) -> None:
        self._replayer, self._effects = replayer, effects
        self._limits, self._depth = limits, get_max_nesting_depth(limits)
        self._space_table: tuple[set[int], list[int], array[int]] = set(), [], array("q")
        self._key_table: tuple[int, dict[int, tuple[str, tuple[int, ...]]], int, array[int]] = -1, {}, 0, array("q")

    def decide_batch(
        self, name: str, context: Any, batch: Batch, start: int, stop: int, compile_kernel: Callable[[Kernel], Kernel]
    ) -> BatchOutcome | None:
        """Rule on records of a batch from `start` on, at most to `stop`; None: the first one needs its own outcome."""
        expected = self._replayer.get_unchecked_rows(name, batch, start)
        if expected is None:
            return None
        spaces, space_table = self._list_simple_spaces()
        counts = array("q", bytes(8 * COUNTS_PER_SPACE * len(spaces)))
        columns = ReplayColumns._make(batch.records[column] for column in _RULING_COLUMNS)
        transactional = int(self._replayer.version.is_transactional)
        reached = compile_kernel(find_plain_run_end)(
            columns, start, stop, expected.replica, expected.first_lsn, transactional, space_table, len(spaces), counts
        )
        if reached == start:
            return None
        self._replayer.advance_vclock_over_rows(expected, reached - start)
        objects = []
        for i, space in enumerate(spaces):
            rows, first, last = counts[3 * i : 3 * i + 3]
            if rows:
                objects.append(ObjectCount(context.spaces[space], rows, first, last))
        return BatchOutcome(reached, APPLIED, expected.reason, objects)

    def store_changes_until_unsupported(self, row_store: RowStoreMemory, batch: Batch, start: int, stop: int) -> int:
        """Store the changes of the applied records `[start, stop)` of a batch; return the first unsupported one."""
        assert self._effects is not None
        plain = self._effects.plain_keys
        if self._key_table[:2] != (row_store.version, plain):
            self._key_table = row_store.version, dict(plain), *_build_key_table(row_store, plain)
        _, _, count, key_table = self._key_table
        columns = BodyColumns._make(batch.records[column] for column in _STORE_COLUMNS)
        store = row_store.compile_kernel(store_row_changes)
        while True:
            start, status = store(batch.arena, columns, start, stop, key_table, count, self._depth, row_store.memory)
            if status != NO_SPACE:
                return int(start)
            row_store.make_room()

    def decode_changes(self, context: TarantoolContext, batch: Batch, start: int, stop: int) -> Iterator[StateChange]:
        """Yield the changes of the records `[start, stop)` of a batch, as `EffectReader.read_changes` does."""
        assert self._effects is not None
        types = to_int_list(batch.records["type"], start, stop)
        decoded_bodies = decode_bodies(context, batch, start, stop, self._limits)
        for row_type, body in zip(types, decoded_bodies, strict=True):
            if not isinstance(body, Finding):
                snapshot = context.kind is not FileKind.XLOG
                yield from self._effects.decode_row_changes(TYPE_NAMES[row_type], body, is_from_snapshot=snapshot)

    def _list_simple_spaces(self) -> tuple[list[int], array[int]]:
        """Return the ids of the spaces on whose rows nothing else depends, and the kernels' table of them."""
        simple = self._replayer.simple_spaces
        if self._space_table[0] != simple:
            spaces = sorted(simple)[:_MAX_SPACES]
            table = array("q")
            for space in spaces:
                table.extend((space, *[0] * (SPACE_ENTRY_SIZE - 1)))
            self._space_table = set(simple), spaces, table
        return self._space_table[1], self._space_table[2]


def _build_key_table(
    row_store: RowStoreMemory, plain_keys: Mapping[int, tuple[str, tuple[int, ...]]]
) -> tuple[int, array[int]]:
    """Build the table of `store_rows`: spaces with key fields in ascending order. Return (number, table)."""
    spaces = [
        (space, name, fields)
        for space, (name, fields) in sorted(plain_keys.items())
        if 0 < len(fields) <= MAX_PARTS and list(fields) == sorted(set(fields))
    ][:_MAX_SPACES]
    table = array("q")
    for space, name, fields in spaces:
        table.extend(
            (
                space,
                *row_store.get_object_number_and_epoch(name),
                len(fields),
                *fields,
                *[0] * (MAX_PARTS - len(fields)),
            )
        )
    return len(spaces), table
