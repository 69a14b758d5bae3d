"""GTID events as JSON, as kernels: what `events.decoding.decoded` makes of the same bytes."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.binlog_events.values.numbers import load_little
from binlogtool.formats.binlog_events.values.phrases import (
    ANONYMOUS,
    COLON,
    COMMIT_ID,
    DASH,
    DOMAIN_ID,
    END,
    EXTRA_ENGINES,
    FLAGS,
    FLAGS2,
    FLAGS_EXTRA,
    GNO,
    GTID,
    IMMEDIATE_TIME,
    IMMEDIATE_VERSION,
    LAST_COMMITTED,
    LENGTH,
    LT_TYPE,
    ORIGINAL_TIME,
    ORIGINAL_VERSION,
    SEQ_NO,
    SEQUENCE_NUMBER,
    SID,
    START_ALTER_SEQ,
    THREAD_ID,
    TICKET,
    put_member,
    put_phrase,
    put_signed_member,
)
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_unsigned


@kernel(load_little, put_member, put_phrase, put_unsigned)
def put_mariadb_gtid(buf: Any, p: int, n: int, server: int, texts: Any, out: Any, o: int, z: int) -> int:
    """GTID without an XA identifier"""
    if n - p < 13 or buf[p + 12] & 192:
        return -2
    flags = buf[p + 12] + 0
    o = put_member(buf, p + 8, 4, texts, GTID, out, o, z)
    o = put_phrase(texts, DASH, out, o, z)
    if o < 0:
        return o
    o = put_unsigned(server, out, o, z)
    o = put_member(buf, p, 8, texts, DASH, out, o, z)
    o = put_member(buf, p, 8, texts, SEQ_NO, out, o, z)
    o = put_member(buf, p + 8, 4, texts, DOMAIN_ID, out, o, z)
    o = put_member(buf, p + 12, 1, texts, FLAGS2, out, o, z)
    p += 13
    if flags & 2:
        if n - p < 8:
            return -2
        o = put_member(buf, p, 8, texts, COMMIT_ID, out, o, z)
        p += 8
    if p < n and buf[p] != 0:
        flags = buf[p] + 0
        if n - p < 1 + (flags & 1) + (8 if flags & 12 else 0) + (4 if flags & 16 else 0):
            return -2
        o = put_member(buf, p, 1, texts, FLAGS_EXTRA, out, o, z)
        p += 1
        if flags & 1:
            o = put_member(buf, p, 1, texts, EXTRA_ENGINES, out, o, z)
            p += 1
        if flags & 12:
            o = put_member(buf, p, 8, texts, START_ALTER_SEQ, out, o, z)
            p += 8
        if flags & 16:
            o = put_member(buf, p, 4, texts, THREAD_ID, out, o, z)
    return put_phrase(texts, END, out, o, z)


@kernel()
def put_uuid(buf: Any, p: int, out: Any, o: int) -> int:
    """16 bytes as a UUID"""
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            out[o] = 45
            o += 1
        high = buf[p + i] >> 4
        low = buf[p + i] & 15
        out[o] = 48 + high + (39 if high > 9 else 0)
        out[o + 1] = 48 + low + (39 if low > 9 else 0)
        o += 2
    return o


@kernel(load_little, put_member, put_phrase, put_unsigned)
def put_commit_times(buf: Any, p: int, n: int, texts: Any, out: Any, o: int, z: int) -> tuple[int, int]:
    """Both commit timestamps: (place behind them, place behind what was written)."""
    if n - p < 7:
        return p, -2
    time = load_little(buf, p, 7)
    p += 7
    o = put_phrase(texts, IMMEDIATE_TIME, out, o, z)
    if o < 0:
        return p, o
    o = put_unsigned(time & 0x7FFFFFFFFFFFFF, out, o, z)
    if time < 0x80000000000000:
        o = put_phrase(texts, ORIGINAL_TIME, out, o, z)
        return p, o if o < 0 else put_unsigned(time, out, o, z)
    if n - p < 7:
        return p, -2
    return p + 7, put_member(buf, p, 7, texts, ORIGINAL_TIME, out, o, z)


@kernel(load_little, put_phrase, put_unsigned)
def put_versions(buf: Any, p: int, n: int, texts: Any, out: Any, o: int, z: int) -> tuple[int, int]:
    """Both server versions: (place behind them, place behind what was written)."""
    if n - p < 4:
        return p, -2
    version = load_little(buf, p, 4)
    original = version
    p += 4
    if version >= 0x80000000:
        version &= 0x7FFFFFFF
        if n - p < 4:
            return p, -2
        original = load_little(buf, p, 4)
        p += 4
    o = put_phrase(texts, IMMEDIATE_VERSION, out, o, z)
    if o < 0:
        return p, o
    o = put_phrase(texts, ORIGINAL_VERSION, out, put_unsigned(version, out, o, z), z)
    return p, o if o < 0 else put_unsigned(original, out, o, z)


@kernel(put_commit_times, put_member, put_phrase, put_versions)
def put_gtid_tail(buf: Any, p: int, n: int, texts: Any, out: Any, o: int, z: int) -> int:
    """What MySQL 8 writes behind the logical timestamps; each field may be the last one."""
    if p < n:
        p, o = put_commit_times(buf, p, n, texts, out, o, z)
        if o < 0:
            return o
    if p < n:
        first = buf[p] + 0
        size = 1
        if first > 0xFA:
            size = 0
            p += 1
            if first == 0xFC:
                size = 2
            elif first == 0xFD:
                size = 3
            elif first == 0xFE:
                size = 8
        if size == 0 or n - p < size:
            return -2
        o = put_member(buf, p, size, texts, LENGTH, out, o, z)
        p += size
    if p < n:
        p, o = put_versions(buf, p, n, texts, out, o, z)
        if o < 0:
            return o
    if p < n:
        if n - p < 8:
            return -2
        o = put_member(buf, p, 8, texts, TICKET, out, o, z)
    return put_phrase(texts, END, out, o, z)


@kernel(put_gtid_tail, put_member, put_phrase, put_signed_member, put_uuid)
def put_mysql_gtid(buf: Any, p: int, n: int, code: int, texts: Any, out: Any, o: int, z: int) -> int:
    """GTID_LOG, ANONYMOUS_GTID"""
    if n - p < 42 and n - p != 25:
        return -2
    if code == 34:
        o = put_member(buf, p, 1, texts, ANONYMOUS, out, o, z)
    else:
        o = put_phrase(texts, GTID, out, o, z)
        if o < 0:
            return o
        o = put_uuid(buf, p + 1, out, o)
        o = put_signed_member(buf, p + 17, texts, COLON, out, o, z)
        o = put_member(buf, p, 1, texts, FLAGS, out, o, z)
    o = put_phrase(texts, SID, out, o, z)
    if o < 0:
        return o
    o = put_uuid(buf, p + 1, out, o)
    o = put_signed_member(buf, p + 17, texts, GNO, out, o, z)
    p += 25
    if p == n:
        return put_phrase(texts, END, out, o, z)
    o = put_member(buf, p, 1, texts, LT_TYPE, out, o, z)
    o = put_signed_member(buf, p + 1, texts, LAST_COMMITTED, out, o, z)
    o = put_signed_member(buf, p + 9, texts, SEQUENCE_NUMBER, out, o, z)
    return o if o < 0 else put_gtid_tail(buf, p + 17, n, texts, out, o, z)
