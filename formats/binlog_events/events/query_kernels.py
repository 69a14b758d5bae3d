"""QUERY as JSON, as kernels: what `events.decoding.decoded` makes of the same bytes."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.binlog_events.values.numbers import load_little
from binlogtool.formats.binlog_events.values.phrases import (
    CLIENT,
    CONNECTION,
    DB,
    END,
    ERROR_CODE,
    EXEC_TIME,
    INCREMENT,
    OFFSET,
    QUERY,
    QUERY_SQL,
    SERVER,
    STATUS_VARS,
    put_member,
    put_phrase,
)
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_null, put_unsigned
from binlogtool.formats.jsontext import put_any_text


@kernel()
def number_size(code: int) -> int:
    """Bytes of the status variables that are one number; 0 for the others."""
    if code == 0 or code == 10:
        return 4
    if code == 1 or code == 9 or code == 17 or code == 129:
        return 8
    if code == 7 or code == 8 or code == 18:
        return 2
    if code == 13 or code == 128:
        return 3
    if code == 16 or code == 19 or code == 20 or code == 21:
        return 1
    return 0


@kernel(put_any_text, put_null)
def put_databases(buf: Any, p: int, n: int, out: Any, o: int, z: int) -> tuple[int, int]:
    """UPDATED_DB_NAMES: (place behind it, place behind what was written)."""
    if p >= n or z - o < 64:
        return p, -2 if p >= n else -1
    count = buf[p] + 0
    p += 1
    if count == 254:
        return p, put_null(out, o, z)
    out[o] = 91
    o += 1
    for i in range(count):
        end = p
        while end < n and buf[end] != 0:
            end += 1
        if end == n:
            return p, -2
        if i > 0:
            out[o] = 44
            o += 1
        o = put_any_text(buf, p, end, out, o, z)
        if o < 0:
            return p, o
        if z - o < 64:
            return p, -1
        p = end + 1
    out[o] = 93
    return p, o + 1


@kernel(put_member, put_unsigned, load_little)
def put_collations(buf: Any, p: int, n: int, out: Any, o: int, z: int) -> tuple[int, int]:
    """CHARACTER_SET_COLLATIONS: (place behind it, place behind what was written)."""
    if p >= n or buf[p] * 4 > n - p - 1:
        return p, -2
    count = buf[p] + 0
    p += 1
    if z - o < 64 * (count + 1):
        return p, -1
    out[o] = 91
    o += 1
    for i in range(count):
        if i > 0:
            out[o] = 44
            o += 1
        out[o] = 91
        o = put_unsigned(load_little(buf, p, 2), out, o + 1, z)
        out[o] = 44
        o = put_unsigned(load_little(buf, p + 2, 2), out, o + 1, z)
        out[o] = 93
        o += 1
        p += 4
    out[o] = 93
    return p, o + 1


@kernel(number_size, put_any_text, put_collations, put_databases, put_member, put_phrase, put_unsigned, load_little)
def put_variable(buf: Any, p: int, n: int, code: int, texts: Any, out: Any, o: int, z: int) -> tuple[int, int]:
    """The value of a status variable: (place behind it, place behind what was written)."""
    size = number_size(code)
    if size > 0:
        if n - p < size:
            return p, -2
        return p + size, put_unsigned(load_little(buf, p, size), out, o, z)
    if code == 3:
        if n - p < 4:
            return p, -2
        o = put_member(buf, p, 2, texts, INCREMENT, out, o, z)
        o = put_member(buf, p + 2, 2, texts, OFFSET, out, o, z)
        return p + 4, put_phrase(texts, END, out, o, z)
    if code == 4:
        if n - p < 6:
            return p, -2
        o = put_member(buf, p, 2, texts, CLIENT, out, o, z)
        o = put_member(buf, p + 2, 2, texts, CONNECTION, out, o, z)
        o = put_member(buf, p + 4, 2, texts, SERVER, out, o, z)
        return p + 6, put_phrase(texts, END, out, o, z)
    if code == 5 or code == 6:
        if n - p < 1 or n - p - 1 < buf[p]:
            return p, -2
        end = p + 1 + buf[p]
        return end, put_any_text(buf, p + 1, end, out, o, z)
    if code == 12:
        return put_databases(buf, p, n, out, o, z)
    if code == 131:
        return put_collations(buf, p, n, out, o, z)
    return p, -2


@kernel(put_phrase, put_variable)
def put_variables(buf: Any, p: int, n: int, texts: Any, out: Any, o: int, z: int) -> int:
    """The status variables between commas; unknown ones, and those that stand there twice, are not ours."""
    seen = 0
    while p < n:
        code = buf[p] + 0
        bit = 1 << (code & 31) << (code >> 7) * 32
        if (code > 31 and code < 128) or code > 131 or seen & bit:
            return -2
        if seen != 0:
            if z - o < 1:
                return -1
            out[o] = 44
            o += 1
        seen |= bit
        o = put_phrase(texts, 64 + code, out, o, z)
        if o < 0:
            return o
        p, o = put_variable(buf, p + 1, n, code, texts, out, o, z)
        if o < 0:
            return o
    return o


@kernel(load_little, put_any_text, put_member, put_phrase, put_variables)
def put_query(buf: Any, p: int, n: int, texts: Any, out: Any, o: int, z: int) -> int:
    """QUERY"""
    if n - p < 13:
        return -2
    names = p + 13 + load_little(buf, p + 11, 2)
    end = names + buf[p + 8]
    if end >= n:
        return -2
    o = put_member(buf, p, 4, texts, QUERY, out, o, z)
    o = put_member(buf, p + 4, 4, texts, EXEC_TIME, out, o, z)
    o = put_member(buf, p + 9, 2, texts, ERROR_CODE, out, o, z)
    o = put_phrase(texts, STATUS_VARS, out, o, z)
    if o >= 0:
        o = put_variables(buf, p + 13, names, texts, out, o, z)
    o = put_phrase(texts, DB, out, o, z)
    if o >= 0:
        o = put_any_text(buf, names, end, out, o, z)
    o = put_phrase(texts, QUERY_SQL, out, o, z)
    if o >= 0:
        o = put_any_text(buf, end + 1, n, out, o, z)
    return put_phrase(texts, END, out, o, z)
