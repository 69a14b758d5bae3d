"""Bodies of the frequent events that have no rows, as kernels: what `decode.decoded` makes of the same bytes.

PHRASES are the constant texts between the values; `texts[4]` is the place of their table.
"""

from __future__ import annotations

from typing import Any

from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_null, put_signed, put_unsigned
from binlogtool.formats.jsontext import text_table
from binlogtool.formats.mysql_binlog.number_kernels import load_little
from binlogtool.formats.mysql_binlog.row_kernels import put_rows_event
from binlogtool.formats.mysql_binlog.status import VARIABLES
from binlogtool.formats.mysql_binlog.value_kernels import copy_text, put_any_text, word_at

_PHRASES = (
    '{"sql":', '{"xid":', "}",
    '{"gtid":"', "-", '","seq_no":', ',"domain_id":', ',"flags2":', ',"commit_id":', ',"flags_extra":',
    ',"extra_engines":', ',"start_alter_seq":', ',"thread_id":',
    ":", '","flags":', '{"gtid":null,"flags":', ',"sid":"', '","gno":', ',"lt_type":', ',"last_committed":',
    ',"sequence_number":', ',"immediate_commit_timestamp":', ',"original_commit_timestamp":', ',"transaction_length":',
    ',"immediate_server_version":', ',"original_server_version":', ',"commit_group_ticket":',
    '{"thread_id":', ',"exec_time":', ',"error_code":', ',"status_vars":{', '},"db":', ',"sql":',
    '{"type":"LAST_INSERT_ID","value":', '{"type":"INSERT_ID","value":',
    '{"increment":', ',"offset":', '{"client":', ',"connection":', ',"server":',
)  # fmt: skip
_VARIABLES = 64
"""Number of the phrase for status variable 0."""
PHRASES = text_table(
    {i: text.encode() for i, text in enumerate(_PHRASES)}
    | {_VARIABLES + code: f'"{name}":'.encode() for code, (name, _) in VARIABLES.items()}
)
(
    SQL, XID, END,
    GTID, DASH, SEQ_NO, DOMAIN_ID, FLAGS2, COMMIT_ID, FLAGS_EXTRA,
    EXTRA_ENGINES, START_ALTER_SEQ, THREAD_ID,
    COLON, FLAGS, ANONYMOUS, SID, GNO, LT_TYPE, LAST_COMMITTED,
    SEQUENCE_NUMBER, IMMEDIATE_TIME, ORIGINAL_TIME, LENGTH,
    IMMEDIATE_VERSION, ORIGINAL_VERSION, TICKET,
    QUERY, EXEC_TIME, ERROR_CODE, STATUS_VARS, DB, QUERY_SQL,
    LAST_INSERT_ID, INSERT_ID,
    INCREMENT, OFFSET, CLIENT, CONNECTION, SERVER,
) = range(len(_PHRASES))  # fmt: skip

ROOM = 64
"""Free bytes behind a phrase: enough for any number."""


@kernel(copy_text, word_at)
def put_phrase(texts: Any, number: int, out: Any, o: int, z: int) -> int:
    """A phrase; `ROOM` bytes stay free behind it. Passes on why there is nothing before it."""
    if o < 0:
        return o
    base = word_at(texts, 4)
    if number >= word_at(texts, base):
        return -2
    start = word_at(texts, base + 4 + 4 * number)
    size = word_at(texts, base + 8 + 4 * number) - start
    if z - o < size + 64:
        return -1
    return copy_text(texts, base + start, size, out, o)


@kernel(load_little, put_phrase, put_unsigned)
def put_member(buf: Any, p: int, size: int, texts: Any, number: int, out: Any, o: int, z: int) -> int:
    """A phrase and the unsigned number of `size` bytes at `buf[p]`."""
    o = put_phrase(texts, number, out, o, z)
    return o if o < 0 else put_unsigned(load_little(buf, p, size), out, o, z)


@kernel(load_little, put_phrase, put_signed)
def put_signed_member(buf: Any, p: int, texts: Any, number: int, out: Any, o: int, z: int) -> int:
    """A phrase and the signed number of 8 bytes at `buf[p]`."""
    o = put_phrase(texts, number, out, o, z)
    return o if o < 0 else put_signed(load_little(buf, p, 8), out, o, z)


# -- texts and numbers -------------------------------------------------------------------------------------------------


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


# -- GTIDs -------------------------------------------------------------------------------------------------------------


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


# -- QUERY -------------------------------------------------------------------------------------------------------------


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


# -- any body ----------------------------------------------------------------------------------------------------------


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
