"""Row events as INSERT, UPDATE and DELETE, as kernels over the templates of `sql.plans`.

The text is that of `sql.rows`. An event that contains an unsupported value is left to the general writer as
a whole.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.type_codes import DELETED, INSERTED, UPDATED
from binlogtool.formats.binlog_events.rows.image_kernels import bounds_of
from binlogtool.formats.binlog_events.rows.kernels import put_mark
from binlogtool.formats.binlog_events.rows.row_memory import RowMemory
from binlogtool.formats.binlog_events.sql.kernels.frequent import PIECES_AT
from binlogtool.formats.binlog_events.sql.kernels.values import put_fixed_literal, put_hex, put_sized_literal
from binlogtool.formats.binlog_events.sql.kernels.walk import (
    CAST,
    COLUMN_SIZE,
    GENERATED,
    HEAD_SIZE,
    HEX,
    KEY,
    NO_CONDITION,
    NUMBER,
    STAMPED,
    skip_image,
)
from binlogtool.formats.binlog_events.values.kernels import copy_text, word_at
from binlogtool.formats.binlog_events.values.kind_codes import FIRST_SIZED, UNSIGNED
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s

LONGEST = 256 << 10
"""Bytes of one INSERT; further rows go into another one."""

_PIECES = (
    b"INSERT INTO ", b"UPDATE ", b"DELETE FROM ", b" SET ", b" WHERE ", b" LIMIT 1", b" VALUES\n", b"\n/*!*/;\n",
    b" AS BINARY)", b" <=> ", b" IS NULL", b" AND ", b"CAST(",
)  # fmt: skip
PIECES = b"".join(_PIECES)
"""What stands behind the texts of `sql.kernels.frequent`, and before the table of plans."""
_STARTS = [PIECES_AT + sum(len(piece) for piece in _PIECES[:i]) for i in range(len(_PIECES))]
(
    _INSERT, _UPDATE, _DELETE, _SET, _WHERE, _LIMIT, _VALUES, _END, _BINARY, _EQUAL, _IS_NULL, _AND, _CAST,
) = _STARTS  # fmt: skip
(
    _INSERT_S, _UPDATE_S, _DELETE_S, _SET_S, _WHERE_S, _LIMIT_S, _VALUES_S, _END_S, _BINARY_S, _EQUAL_S,
    _IS_NULL_S, _AND_S, _CAST_S,
) = map(len, _PIECES)  # fmt: skip
PLANS_AT = PIECES_AT + len(PIECES)
"""Where the table of plans starts in the texts of `write_statements`."""

BRACKET, COMMA = b"(,"
_ROOM = 1024
"""No value but text and bytes, which take two bytes for each of theirs, needs more than that."""


@kernel(word_at)
def keys_present(buf: UInt8s, bitmap: int, texts: UInt8s, r: int) -> int:
    """Return 1 if the table has a key and all its columns are in an image with this bitmap, else 0."""
    count = 0
    c = r + HEAD_SIZE
    for i in range(word_at(texts, r)):
        if word_at(texts, c + 32) & KEY and buf[bitmap + (i >> 3)] >> (i & 7) & 1:
            count += 1
        c += COLUMN_SIZE
    return 1 if count > 0 and count == word_at(texts, r + 12) else 0


@kernel(copy_text, word_at)
def put_names(buf: UInt8s, bitmap: int, texts: UInt8s, r: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the names of an image's columns that statements may set, in parentheses."""
    mark = BRACKET
    out[o] = BRACKET
    c = r + HEAD_SIZE
    for i in range(word_at(texts, r)):
        if buf[bitmap + (i >> 3)] >> (i & 7) & 1 and not word_at(texts, c + 32) & GENERATED:
            size = word_at(texts, c + 20)
            if z - o < size + _ROOM:
                return -1
            out[o] = mark
            o = copy_text(texts, r + word_at(texts, c + 16), size, out, o + 1)
            mark = COMMA
        c += COLUMN_SIZE
    if mark == BRACKET:
        o += 1
    out[o] = 41
    return o + 1


@kernel(copy_text, word_at)
def put_left(
    count: int, way: int, null: int, cast: int, texts: UInt8s, r: int, c: int, out: MutableUInt8s, o: int
) -> int:
    """Write what precedes a value, or the whole condition for NULL.

    Args:
        count: number of values before it.
        clause: 0 = VALUES, 1 = SET, 2 = WHERE.
    """
    if count > 0:
        if way == 2:
            o = copy_text(texts, _AND, _AND_S, out, o)
        else:
            out[o] = 44
            out[o + 1] = 32
            o += 1 + way
    if way == 0:
        return o
    if cast > 0:
        o = copy_text(texts, _CAST, _CAST_S, out, o)
    o = copy_text(texts, r + word_at(texts, c + 16), word_at(texts, c + 20), out, o)
    if way == 1:
        out[o] = 61
        return o + 1
    at = _EQUAL
    size = _EQUAL_S
    if null > 0:
        at = _IS_NULL
        size = _IS_NULL_S
    elif cast > 0:
        at = _BINARY
        size = _BINARY_S + _EQUAL_S
    return copy_text(texts, at, size, out, o)


@kernel(put_fixed_literal, put_hex, put_sized_literal, word_at)
def put_value(memory: RowMemory, p: int, way: int, cast: int, c: int, o: int) -> int:
    """Write a value that is not NULL, of the column whose template entry is at `texts[c]`."""
    kind = word_at(memory.texts, c)
    flags = word_at(memory.texts, c + 32)
    if kind < FIRST_SIZED:
        base = word_at(memory.texts, c + 24)
        base = base + memory.r if base > 0 and (way < 2 or flags & NUMBER == 0) else -1
        if way == 2 and flags & NUMBER:
            kind = UNSIGNED
        return put_fixed_literal(
            memory.buf, p, memory.n - p, kind, word_at(memory.texts, c + 4), memory.texts, base, memory.out, o, memory.z
        )
    if way == 2 and flags & NO_CONDITION:
        return -2
    intro = memory.r + word_at(memory.texts, c + 24)
    behind = put_sized_literal(
        memory.buf,
        p,
        memory.n,
        kind,
        word_at(memory.texts, c + 4),
        memory.texts,
        intro,
        word_at(memory.texts, c + 28),
        memory.out,
        o,
    )
    if behind >= 0 and cast > 0 and flags & HEX:
        return put_hex(memory.buf, p, memory.n, 0, memory.out, o)
    return behind


@kernel(bounds_of, put_left, put_mark, put_value, word_at)
def put_values(memory: RowMemory, p: int, bitmap: int, present: int, way: int, keyed: int, o: int) -> tuple[int, int]:
    """Write the image at `buf[p]`; return (offset after it, end of the output).

    Args:
        clause: 0 = VALUES, 2 = WHERE.
        is_keyed: whether conditions are on the key only.
    """
    nulls = p
    p += (present + 7) >> 3
    if p > memory.n:
        return p, -2
    c = memory.r + HEAD_SIZE
    place = 0
    count = 0
    for i in range(word_at(memory.texts, memory.r)):
        if memory.buf[bitmap + (i >> 3)] >> (i & 7) & 1:
            null = memory.buf[nulls + (place >> 3)] >> (place & 7) & 1
            end = p
            if null == 0:
                p, end = bounds_of(memory.buf, p, memory.n, word_at(memory.texts, c + 8), word_at(memory.texts, c + 12))
                if end < 0:
                    return p, -2
            flags = word_at(memory.texts, c + 32)
            if (way == 2 and keyed > 0 and flags & KEY) or ((way < 2 or keyed == 0) and not flags & GENERATED):
                if memory.z - o < 2 * (end - p) + word_at(memory.texts, c + 20) + word_at(memory.texts, c + 28) + _ROOM:
                    return p, -1
                cast = 1 if way == 2 and keyed == 0 and null == 0 and flags & CAST else 0
                o = put_left(count, way, null, cast, memory.texts, memory.r, c, memory.out, o)
                if null == 0:
                    o = put_value(
                        RowMemory(memory.buf, end, memory.texts, memory.r, memory.out, memory.z), p, way, cast, c, o
                    )
                    if o < 0:
                        return p, o
                elif way < 2:
                    o = put_mark(0x4C4C554E, 4, memory.out, o)
                count += 1
            p = end
            place += 1
        c += COLUMN_SIZE
    return p, -2 if count == 0 and way > 0 else o


@kernel()
def is_same(buf: UInt8s, p: int, q: int, size: int) -> bool:
    """Return whether `size` bytes at `buf[p]` and `buf[q]` are equal."""
    for i in range(size):  # noqa: SIM110 -- a kernel
        if buf[p + i] != buf[q + i]:
            return False
    return True


@kernel(bounds_of, copy_text, is_same, put_left, put_mark, put_value, word_at)
def put_changes(
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
    c = memory.r + HEAD_SIZE
    old_place = 0
    place = 0
    count = 0
    changes = 0
    for i in range(word_at(memory.texts, memory.r)):
        flags = word_at(memory.texts, c + 32)
        start = q
        old_null = -1
        if memory.buf[before + (i >> 3)] >> (i & 7) & 1:
            old_null = memory.buf[old_nulls + (old_place >> 3)] >> (old_place & 7) & 1
            if old_null == 0:
                start, q = bounds_of(
                    memory.buf, q, memory.n, word_at(memory.texts, c + 8), word_at(memory.texts, c + 12)
                )
                if q < 0:
                    return p, -2
            old_place += 1
        changed = 0
        null = 0
        end = p
        if memory.buf[after + (i >> 3)] >> (i & 7) & 1:
            null = memory.buf[nulls + (place >> 3)] >> (place & 7) & 1
            if null == 0:
                p, end = bounds_of(memory.buf, p, memory.n, word_at(memory.texts, c + 8), word_at(memory.texts, c + 12))
                if end < 0:
                    return p, -2
            place += 1
            changed = 1
            if null == old_null and end - p == q - start and is_same(memory.buf, p, start, end - p):
                changed = 0
        if not flags & GENERATED and (changed > 0 or flags & STAMPED):
            if memory.z - o < 2 * (end - p) + 2 * word_at(memory.texts, c + 20) + word_at(memory.texts, c + 28) + _ROOM:
                return p, -1
            o = put_left(count, 1, null, 0, memory.texts, memory.r, c, memory.out, o)
            if changed == 0:
                o = copy_text(
                    memory.texts, memory.r + word_at(memory.texts, c + 16), word_at(memory.texts, c + 20), memory.out, o
                )
            elif null > 0:
                o = put_mark(0x4C4C554E, 4, memory.out, o)
            else:
                o = put_value(RowMemory(memory.buf, end, memory.texts, memory.r, memory.out, memory.z), p, 1, 0, c, o)
                if o < 0:
                    return p, o
            count += 1
            changes += changed
        p = end
        c += COLUMN_SIZE
    return p, -2 if changes == 0 else o


@kernel(copy_text, put_changes, put_values, skip_image)
def put_row(
    memory: RowMemory, p: int, kind: int, before: int, befores: int, after: int, afters: int, keyed: int, o: int
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
    behind = p
    for way in range(kind, 1 if kind == INSERTED else 3):
        if memory.z - o < _ROOM:
            return p, -1
        at = _WHERE if way == 2 else _SET
        o = copy_text(memory.texts, at, 0 if way == 0 else _WHERE_S if way == 2 else _SET_S, memory.out, o)
        bitmap = before if way == 2 else after
        present = befores if way == 2 else afters
        if way == 1:
            end, o = put_changes(memory, p, middle, before, befores, after, afters, o)
        else:
            end, o = put_values(memory, p, bitmap, present, way, keyed, o)
        if o < 0:
            return p, o
        behind = max(behind, end)
    return behind, o


@kernel(copy_text, put_names, word_at)
def put_verb(kind: int, buf: UInt8s, bitmap: int, texts: UInt8s, r: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the beginning of a statement, up to its first value or assignment."""
    target = word_at(texts, r + 8)
    if z - o < target + _ROOM:
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
    o = copy_text(texts, r + word_at(texts, r + 4), target, out, o)
    if kind > 0:
        return o
    out[o] = 32
    o = put_names(buf, bitmap, texts, r, out, o + 1, z)
    return o if o < 0 else copy_text(texts, _VALUES, _VALUES_S, out, o)


@kernel(copy_text, put_row, put_verb)
def put_statements(
    memory: RowMemory, p: int, kind: int, before: int, befores: int, after: int, afters: int, keyed: int, o: int
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
            o = put_verb(kind, memory.buf, after, memory.texts, memory.r, memory.out, o, memory.z)
            if o < 0:
                return o
        text = o
        if kind == INSERTED:
            memory.out[o] = 40
            o += 1
        p, o = put_row(memory, p, kind, before, befores, after, afters, keyed, o)
        if o < 0:
            return o
        if p == start:
            return -2
        if memory.z - o < _ROOM:
            return -1
        if kind == INSERTED:
            memory.out[o] = 41
            o += 1
            length += o - text
        else:
            o = copy_text(memory.texts, _LIMIT, _LIMIT_S, memory.out, o)
        if kind > 0 or length >= LONGEST or p >= memory.n:
            o = copy_text(memory.texts, _END, _END_S, memory.out, o)
            length = 0
    return o
