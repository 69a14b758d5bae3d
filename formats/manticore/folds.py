"""The judge's inner loop as a kernel: it runs through what is in order and stops where something is not."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.fields import kernel
from binlogtool.formats.manticore.walk import skip_payload

# State of `fold`: an array of 64-bit integers.
TABLES = 1024
"""Tables that the fold follows, by id; the judge follows the others itself."""
NEXT = 0
"""[0, 1024): the TID that must come next; 0 = the judge has to look at it."""
COUNT = 1024
"""[1024, 2048): transactions that the fold has taken."""
TIME = 2048
"""[2048, 3072): the greatest time."""
PAYLOADS = 3072
"""[3072, 3075): transactions by payload op, version 15 on."""
SIZE = 3075


@kernel()
def pass_zints(buf: Any, p: int, count: int) -> int:
    """The end of so many zints, known to be whole; -1 if one of them starts with 80, which no writer makes."""
    for _ in range(count):
        if buf[p] == 128:
            return -1
        while buf[p] >= 128:
            p += 1
        p += 1
    return p


@kernel(pass_zints, skip_payload)
def fold(
    start: int, stop: int, ops: Any, ids: Any, tids: Any, covered: Any, ends: Any, buf: Any, state: Any,
) -> int:  # fmt: skip
    """ADD_TXN of version 15 on: a known table, the next TID, canonical numbers, a payload that ends where uSize says.

    Returns the first transaction that is not in order, or `stop`.
    """
    for i in range(start, stop):
        table = ids[i]
        if ops[i] != 2 or table < 0 or table >= 1024 or state[table] == 0 or tids[i] != state[table]:
            return i
        p = pass_zints(buf, covered[i] + 1, 2)
        if p < 0 or skip_payload(buf, p + 4, ends[i]) != ends[i]:
            return i
        state[table] += 1
        state[1024 + table] += 1
        state[3072 + buf[p + 4]] += 1
    return stop


@kernel(pass_zints)
def fold_old(
    start: int, stop: int, ops: Any, ids: Any, tids: Any, times: Any, covered: Any, buf: Any, state: Any
) -> int:
    """The same for versions 2 to 14, where a frame's payload was parsed to find its end: times do not fall."""
    for i in range(start, stop):
        table = ids[i]
        if ops[i] == 3 or ops[i] == 4 or table < 0 or table >= 1024:
            return i
        if state[table] == 0 or tids[i] != state[table] or times[i] < state[2048 + table]:
            return i
        if pass_zints(buf, covered[i] + 1, 3) < 0:
            return i
        state[table] += 1
        state[1024 + table] += 1
        state[2048 + table] = times[i]
    return stop
