"""The constant texts between the values of a body: one table, and kernels that write a phrase and what follows it.

`texts[4]` is the place of the table in the one of `rows.table_map_bytes`.
"""

from __future__ import annotations

from typing import Any

from binlogtool.formats.binlog_events.values.kernels import copy_text, word_at
from binlogtool.formats.binlog_events.values.numbers import load_little
from binlogtool.formats.binlog_events.wire.status import VARIABLES
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_signed, put_unsigned
from binlogtool.formats.jsontext import text_table

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
