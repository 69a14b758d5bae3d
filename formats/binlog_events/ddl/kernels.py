"""Prefilter of QUERY events that may be DDL, as a kernel over their first bytes."""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.places import DB_LEN_AT, QUERY_HEAD_SIZE, STATUS_LEN_AT
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import UInt8s


@kernel()
def is_possible_ddl(buf: UInt8s, p: int, n: int) -> bool:
    """Return whether the QUERY body `buf[p:n]` may create, change or drop a table, by its first letters.

    These are the letters of CREATE, DROP, TRUNCATE, ALTER, RENAME, SET (STATEMENT), or of a comment.
    """
    if n - p < QUERY_HEAD_SIZE + 3:
        return False
    at = p + QUERY_HEAD_SIZE + 1 + buf[p + DB_LEN_AT] + (buf[p + STATUS_LEN_AT] | buf[p + STATUS_LEN_AT + 1] << 8)
    while at < n - 2 and (buf[at] == 32 or (buf[at] >= 9 and buf[at] <= 13)):
        at += 1
    if at >= n - 2:
        return False
    first, second, third = buf[at] + 0, buf[at + 1] & 223, buf[at + 2] & 223
    if first == 47 or first == 35 or first == 45 or first == 40:
        return True
    first &= 223
    if first == 82:
        return bool(second == 69 and third == 78)
    if first == 83:
        return bool(second == 69 and third == 84)
    if first == 65:
        return bool(second == 76)
    return bool((first == 67 or first == 68 or first == 84) and second == 82)
