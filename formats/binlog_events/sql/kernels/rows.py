"""Row events as INSERT, UPDATE and DELETE, as kernels over the templates of `sql.plans`.

The text is that of `sql.rows`. An event that contains an unsupported value is left to the general writer as
a whole.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.type_codes import DELETED, INSERTED, UPDATED
from binlogtool.formats.binlog_events.rows.image_kernels import find_value_bounds
from binlogtool.formats.binlog_events.rows.kernels import put_short_text
from binlogtool.formats.binlog_events.rows.row_memory import RowMemory
from binlogtool.formats.binlog_events.sql.kernels.frequent import TEXTS_END
from binlogtool.formats.binlog_events.sql.kernels.values import put_fixed_literal, put_hex, put_sized_literal
from binlogtool.formats.binlog_events.sql.kernels.walk import (
    CAST,
    EVENT_RECORD_COLUMN_SIZE,
    EVENT_RECORD_HEAD_SIZE,
    GENERATED,
    HEX,
    KEY,
    NO_CONDITION,
    NUMBER,
    STAMPED,
    skip_image,
)
from binlogtool.formats.binlog_events.values.kernels import copy_text, load_word
from binlogtool.formats.binlog_events.values.kind_codes import FIRST_SIZED, UNSIGNED
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s

MAX_INSERT_BYTES = 256 << 10
"""Bytes of one INSERT; further rows go into another one."""

_PIECES = (
    b"INSERT INTO ", b"UPDATE ", b"DELETE FROM ", b" SET ", b" WHERE ", b" LIMIT 1", b" VALUES\n", b"\n/*!*/;\n",
    b" AS BINARY)", b" <=> ", b" IS NULL", b" AND ", b"CAST(",
)  # fmt: skip
PIECES = b"".join(_PIECES)
"""What stands behind the texts of `sql.kernels.frequent`, and before the table of plans."""
_PIECE_OFFSETS = [TEXTS_END + sum(len(piece) for piece in _PIECES[:i]) for i in range(len(_PIECES))]
(
    _INSERT, _UPDATE, _DELETE, _SET, _WHERE, _LIMIT, _VALUES, _END, _BINARY, _EQUAL, _IS_NULL, _AND, _CAST,
) = _PIECE_OFFSETS  # fmt: skip
(
    _INSERT_S, _UPDATE_S, _DELETE_S, _SET_S, _WHERE_S, _LIMIT_S, _VALUES_S, _END_S, _BINARY_S, _EQUAL_S,
    _IS_NULL_S, _AND_S, _CAST_S,
) = map(len, _PIECES)  # fmt: skip
TEMPLATES_AT = TEXTS_END + len(PIECES)
"""Where the table of plans starts in the texts of `write_statements`."""

OPENING_BRACKET, COMMA = b"(,"
_MAX_FIXED_VALUE = 1024
"""No value but text and bytes, which take two bytes for each of theirs, needs more than that."""


@kernel(load_word)
def has_key_columns(buf: UInt8s, bitmap: int, texts: UInt8s, template: int) -> int:
    """Return 1 if the table has a key and all its columns are in an image with this bitmap, else 0."""
    count = 0
    entry = template + EVENT_RECORD_HEAD_SIZE
    for i in range(load_word(texts, template)):
        if load_word(texts, entry + 32) & KEY and buf[bitmap + (i >> 3)] >> (i & 7) & 1:
            count += 1
        entry += EVENT_RECORD_COLUMN_SIZE
    return 1 if count > 0 and count == load_word(texts, template + 12) else 0


@kernel(copy_text, load_word)
def put_column_names(buf: UInt8s, bitmap: int, texts: UInt8s, template: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the names of an image's columns that statements may set, in parentheses."""
    separator = OPENING_BRACKET
    out[o] = OPENING_BRACKET
    entry = template + EVENT_RECORD_HEAD_SIZE
    for i in range(load_word(texts, template)):
        if buf[bitmap + (i >> 3)] >> (i & 7) & 1 and not load_word(texts, entry + 32) & GENERATED:
            size = load_word(texts, entry + 20)
            if z - o < size + _MAX_FIXED_VALUE:
                return -1
            out[o] = separator
            o = copy_text(texts, template + load_word(texts, entry + 16), size, out, o + 1)
            separator = COMMA
        entry += EVENT_RECORD_COLUMN_SIZE
    if separator == OPENING_BRACKET:
        o += 1
    out[o] = 41
    return o + 1


@kernel(copy_text, load_word)
def put_value_prefix(
    count: int,
    clause: int,
    is_null: int,
    cast: int,
    texts: UInt8s,
    template: int,
    entry: int,
    out: MutableUInt8s,
    o: int,
) -> int:
    """Write what precedes a value, or the whole condition for NULL.

    Args:
        count: number of values before it.
        clause: 0 = VALUES, 1 = SET, 2 = WHERE.
    """
    if count > 0:
        if clause == 2:
            o = copy_text(texts, _AND, _AND_S, out, o)
        else:
            out[o] = 44
            out[o + 1] = 32
            o += 1 + clause
    if clause == 0:
        return o
    if cast > 0:
        o = copy_text(texts, _CAST, _CAST_S, out, o)
    o = copy_text(texts, template + load_word(texts, entry + 16), load_word(texts, entry + 20), out, o)
    if clause == 1:
        out[o] = 61
        return o + 1
    at = _EQUAL
    size = _EQUAL_S
    if is_null > 0:
        at = _IS_NULL
        size = _IS_NULL_S
    elif cast > 0:
        at = _BINARY
        size = _BINARY_S + _EQUAL_S
    return copy_text(texts, at, size, out, o)


@kernel(put_fixed_literal, put_hex, put_sized_literal, load_word)
def put_column_value(memory: RowMemory, p: int, clause: int, cast: int, entry: int, o: int) -> int:
    """Write a value that is not NULL, of the column whose template entry is at `texts[c]`."""
    kind = load_word(memory.texts, entry)
    flags = load_word(memory.texts, entry + 32)
    if kind < FIRST_SIZED:
        base = load_word(memory.texts, entry + 24)
        base = base + memory.r if base > 0 and (clause < 2 or flags & NUMBER == 0) else -1
        if clause == 2 and flags & NUMBER:
            kind = UNSIGNED
        return put_fixed_literal(
            memory.buf,
            p,
            memory.n - p,
            kind,
            load_word(memory.texts, entry + 4),
            memory.texts,
            base,
            memory.out,
            o,
            memory.z,
        )
    if clause == 2 and flags & NO_CONDITION:
        return -2
    intro = memory.r + load_word(memory.texts, entry + 24)
    end = put_sized_literal(
        memory.buf,
        p,
        memory.n,
        kind,
        load_word(memory.texts, entry + 4),
        memory.texts,
        intro,
        load_word(memory.texts, entry + 28),
        memory.out,
        o,
    )
    if end >= 0 and cast > 0 and flags & HEX:
        return put_hex(memory.buf, p, memory.n, 0, memory.out, o)
    return end


@kernel(find_value_bounds, put_value_prefix, put_short_text, put_column_value, load_word)
def put_image(
    memory: RowMemory, p: int, bitmap: int, present: int, clause: int, is_keyed: int, o: int
) -> tuple[int, int]:
    """Write the image at `buf[p]`; return (offset after it, end of the output).

    Args:
        clause: 0 = VALUES, 2 = WHERE.
        is_keyed: whether conditions are on the key only.
    """
    nulls = p
    p += (present + 7) >> 3
    if p > memory.n:
        return p, -2
    entry = memory.r + EVENT_RECORD_HEAD_SIZE
    place = 0
    count = 0
    for i in range(load_word(memory.texts, memory.r)):
        if memory.buf[bitmap + (i >> 3)] >> (i & 7) & 1:
            is_null = memory.buf[nulls + (place >> 3)] >> (place & 7) & 1
            end = p
            if is_null == 0:
                p, end = find_value_bounds(
                    memory.buf, p, memory.n, load_word(memory.texts, entry + 8), load_word(memory.texts, entry + 12)
                )
                if end < 0:
                    return p, -2
            flags = load_word(memory.texts, entry + 32)
            if (clause == 2 and is_keyed > 0 and flags & KEY) or (
                (clause < 2 or is_keyed == 0) and not flags & GENERATED
            ):
                if (
                    memory.z - o
                    < 2 * (end - p)
                    + load_word(memory.texts, entry + 20)
                    + load_word(memory.texts, entry + 28)
                    + _MAX_FIXED_VALUE
                ):
                    return p, -1
                cast = 1 if clause == 2 and is_keyed == 0 and is_null == 0 and flags & CAST else 0
                o = put_value_prefix(count, clause, is_null, cast, memory.texts, memory.r, entry, memory.out, o)
                if is_null == 0:
                    o = put_column_value(
                        RowMemory(memory.buf, end, memory.texts, memory.r, memory.out, memory.z),
                        p,
                        clause,
                        cast,
                        entry,
                        o,
                    )
                    if o < 0:
                        return p, o
                elif clause < 2:
                    o = put_short_text(0x4C4C554E, 4, memory.out, o)
                count += 1
            p = end
            place += 1
        entry += EVENT_RECORD_COLUMN_SIZE
    return p, -2 if count == 0 and clause > 0 else o


@kernel()
def is_equal(buf: UInt8s, p: int, q: int, size: int) -> bool:
    """Return whether `size` bytes at `buf[p]` and `buf[q]` are equal."""
    for i in range(size):  # noqa: SIM110 -- a kernel
        if buf[p + i] != buf[q + i]:
            return False
    return True


@kernel(find_value_bounds, copy_text, is_equal, put_value_prefix, put_short_text, put_column_value, load_word)
def put_assignments(
    memory: RowMemory, q: int, p: int, before: int, befores: int, after: int, afters: int, o: int
) -> tuple[int, int]:
    """Write the assignments of an update whose images are at `buf[q]` and `buf[p]`.

    Only changed columns are assigned; columns that a server could set by itself are assigned their own value.

    Returns:
        (offset after the second image, end of the output).
    """
    old_nulls = q
    nulls = p
    q += (befores + 7) >> 3
    p += (afters + 7) >> 3
    if p > memory.n:
        return p, -2
    entry = memory.r + EVENT_RECORD_HEAD_SIZE
    old_place = 0
    place = 0
    count = 0
    changes = 0
    for i in range(load_word(memory.texts, memory.r)):
        flags = load_word(memory.texts, entry + 32)
        start = q
        old_null = -1
        if memory.buf[before + (i >> 3)] >> (i & 7) & 1:
            old_null = memory.buf[old_nulls + (old_place >> 3)] >> (old_place & 7) & 1
            if old_null == 0:
                start, q = find_value_bounds(
                    memory.buf, q, memory.n, load_word(memory.texts, entry + 8), load_word(memory.texts, entry + 12)
                )
                if q < 0:
                    return p, -2
            old_place += 1
        changed = 0
        is_null = 0
        end = p
        if memory.buf[after + (i >> 3)] >> (i & 7) & 1:
            is_null = memory.buf[nulls + (place >> 3)] >> (place & 7) & 1
            if is_null == 0:
                p, end = find_value_bounds(
                    memory.buf, p, memory.n, load_word(memory.texts, entry + 8), load_word(memory.texts, entry + 12)
                )
                if end < 0:
                    return p, -2
            place += 1
            changed = 1
            if is_null == old_null and end - p == q - start and is_equal(memory.buf, p, start, end - p):
                changed = 0
        if not flags & GENERATED and (changed > 0 or flags & STAMPED):
            if (
                memory.z - o
                < 2 * (end - p)
                + 2 * load_word(memory.texts, entry + 20)
                + load_word(memory.texts, entry + 28)
                + _MAX_FIXED_VALUE
            ):
                return p, -1
            o = put_value_prefix(count, 1, is_null, 0, memory.texts, memory.r, entry, memory.out, o)
            if changed == 0:
                o = copy_text(
                    memory.texts,
                    memory.r + load_word(memory.texts, entry + 16),
                    load_word(memory.texts, entry + 20),
                    memory.out,
                    o,
                )
            elif is_null > 0:
                o = put_short_text(0x4C4C554E, 4, memory.out, o)
            else:
                o = put_column_value(
                    RowMemory(memory.buf, end, memory.texts, memory.r, memory.out, memory.z), p, 1, 0, entry, o
                )
                if o < 0:
                    return p, o
            count += 1
            changes += changed
        p = end
        entry += EVENT_RECORD_COLUMN_SIZE
    return p, -2 if changes == 0 else o


@kernel(copy_text, put_assignments, put_image, skip_image)
def put_row(
    memory: RowMemory, p: int, kind: int, before: int, befores: int, after: int, afters: int, is_keyed: int, o: int
) -> tuple[int, int]:
    """Write one row; return (offset after its images, end of the output).

    Args:
        kind: INSERTED, UPDATED or DELETED.
    """
    middle = p
    if kind == UPDATED:
        middle = skip_image(memory.buf, p, memory.n, before, befores, memory.texts, memory.r)
        if middle < 0:
            return p, -2
    images_end = p
    for clause in range(kind, 1 if kind == INSERTED else 3):
        if memory.z - o < _MAX_FIXED_VALUE:
            return p, -1
        at = _WHERE if clause == 2 else _SET
        o = copy_text(memory.texts, at, 0 if clause == 0 else _WHERE_S if clause == 2 else _SET_S, memory.out, o)
        bitmap = before if clause == 2 else after
        present = befores if clause == 2 else afters
        if clause == 1:
            end, o = put_assignments(memory, p, middle, before, befores, after, afters, o)
        else:
            end, o = put_image(memory, p, bitmap, present, clause, is_keyed, o)
        if o < 0:
            return p, o
        images_end = max(images_end, end)
    return images_end, o


@kernel(copy_text, put_column_names, load_word)
def put_statement_start(
    kind: int, buf: UInt8s, bitmap: int, texts: UInt8s, template: int, out: MutableUInt8s, o: int, z: int
) -> int:
    """Write the beginning of a statement, up to its first value or assignment."""
    target = load_word(texts, template + 8)
    if z - o < target + _MAX_FIXED_VALUE:
        return -1
    at = _INSERT
    size = _INSERT_S
    if kind == UPDATED:
        at = _UPDATE
        size = _UPDATE_S
    elif kind == DELETED:
        at = _DELETE
        size = _DELETE_S
    o = copy_text(texts, at, size, out, o)
    o = copy_text(texts, template + load_word(texts, template + 4), target, out, o)
    if kind > 0:
        return o
    out[o] = 32
    o = put_column_names(buf, bitmap, texts, template, out, o + 1, z)
    return o if o < 0 else copy_text(texts, _VALUES, _VALUES_S, out, o)


@kernel(copy_text, put_row, put_statement_start)
def put_statements(
    memory: RowMemory, p: int, kind: int, before: int, befores: int, after: int, afters: int, is_keyed: int, o: int
) -> int:
    """Write the statements of all rows up to the end of the event; several rows form one INSERT."""
    length = 0
    while p < memory.n:
        start = p
        if length > 0:
            memory.out[o] = 44
            memory.out[o + 1] = 10
            o += 2
        else:
            o = put_statement_start(kind, memory.buf, after, memory.texts, memory.r, memory.out, o, memory.z)
            if o < 0:
                return o
        text = o
        if kind == INSERTED:
            memory.out[o] = 40
            o += 1
        p, o = put_row(memory, p, kind, before, befores, after, afters, is_keyed, o)
        if o < 0:
            return o
        if p == start:
            return -2
        if memory.z - o < _MAX_FIXED_VALUE:
            return -1
        if kind == INSERTED:
            memory.out[o] = 41
            o += 1
            length += o - text
        else:
            o = copy_text(memory.texts, _LIMIT, _LIMIT_S, memory.out, o)
        if kind > 0 or length >= MAX_INSERT_BYTES or p >= memory.n:
            o = copy_text(memory.texts, _END, _END_S, memory.out, o)
            length = 0
    return o
