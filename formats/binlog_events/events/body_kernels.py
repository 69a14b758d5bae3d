"""Bodies of the frequent events as JSON, as kernels: what `meaning.bodies` makes of the same bytes, or NOT_MINE."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.binlog_events.events.query_kernels import put_query
from binlogtool.formats.binlog_events.gtid.kernels import put_mariadb_gtid, put_mysql_gtid
from binlogtool.formats.binlog_events.rows.kernels import put_rows_event
from binlogtool.formats.binlog_events.values.kernels import copy_text, word_at
from binlogtool.formats.binlog_events.values.phrases import END, LAST_INSERT_ID, SQL, XID, put_member, put_phrase
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsontext import put_any_text


@kernel(put_any_text, put_phrase)
def put_sql(buf: Any, p: int, n: int, texts: Any, out: Any, o: int, z: int) -> int:
    """ANNOTATE_ROWS, ROWS_QUERY"""
    if p > n:
        return -2
    o = put_phrase(texts, SQL, out, o, z)
    if o >= 0:
        o = put_any_text(buf, p, n, out, o, z)
    return put_phrase(texts, END, out, o, z)


@kernel(put_member, put_phrase)
def put_xid(buf: Any, p: int, n: int, texts: Any, out: Any, o: int, z: int) -> int:
    """XID"""
    if n - p < 8:
        return -2
    o = put_member(buf, p, 8, texts, XID, out, o, z)
    return put_phrase(texts, END, out, o, z)


@kernel(put_member, put_phrase)
def put_intvar(buf: Any, p: int, n: int, texts: Any, out: Any, o: int, z: int) -> int:
    """INTVAR"""
    if n - p < 9 or buf[p] < 1 or buf[p] > 2:
        return -2
    o = put_member(buf, p + 1, 8, texts, LAST_INSERT_ID - 1 + buf[p], out, o, z)
    return put_phrase(texts, END, out, o, z)


@kernel(copy_text, word_at)
def put_map_body(texts: Any, record: int, out: Any, o: int, z: int) -> int:
    """TABLE_MAP: the text in the record of its map."""
    size = word_at(texts, record + 20)
    if size == 0:
        return -2
    if z - o < size + 8:
        return -1
    return copy_text(texts, record + word_at(texts, record + 16), size, out, o)


@kernel(word_at)
def record_of(texts: Any, number: int) -> int:
    """Where the record of a map is; 0 = not ours."""
    return word_at(texts, 8 + 4 * number) if number >= 0 else 0


@kernel(
    put_intvar, put_map_body, put_mariadb_gtid, put_mysql_gtid, put_query, put_rows_event, put_sql, put_xid, record_of,
)  # fmt: skip
def body_member(
    buf: Any, texts: Any, notes: Any, out: Any, o: int, z: int, code: int, server: int, p: int, n: int, number: int
) -> int:
    """The body of an event. number: of the map that belongs to it."""
    if code == 19 or (code >= 23 and code <= 25) or (code >= 30 and code <= 32):
        record = record_of(texts, number)
        if record == 0:
            return -2
        if code == 19:
            return put_map_body(texts, record, out, o, z)
        return put_rows_event(buf, p, n, code, texts, record, out, o, z)
    if code == 16:
        return put_xid(buf, p, n, texts, out, o, z)
    if code == 162:
        return put_mariadb_gtid(buf, p, n, server, texts, out, o, z)
    if code == 33 or code == 34:
        return put_mysql_gtid(buf, p, n, code, texts, out, o, z)
    if code == 2:
        return put_query(buf, p, n, texts, out, o, z)
    if code == 5:
        return put_intvar(buf, p, n, texts, out, o, z)
    if code == 160:
        return put_sql(buf, p, n, texts, out, o, z)
    if code == 29:
        return put_sql(buf, p + 1, n, texts, out, o, z)
    return -2
