"""Kernels of the validator: they skip transactions that are in order and stop at the first one that is not."""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.manticore.payloads.vectors import read_vector, skip_vector, skip_zints
from binlogtool.formats.manticore.payloads.walk import skip_payload
from binlogtool.formats.manticore.payloads.zint import read_zint

# State of `skip_ordered_transactions`: an array of 64-bit integers.
MAX_KERNEL_TABLES = 1024
"""Tables that the fold follows, by id; the judge follows the others itself."""
NEXT_TIDS = 0
"""[0, 1024): the TID that must come next; 0 = the judge has to look at it."""
TRANSACTION_COUNTS = 1024
"""[1024, 2048): transactions that the fold has taken."""
MAX_TIMES = 2048
"""[2048, 3072): the greatest time."""
PAYLOAD_COUNTS = 3072
"""[3072, 3075): transactions by payload op, version 15 on."""
STATE_SIZE = 3075


@kernel()
def skip_canonical_zints(buf: UInt8s, p: int, count: int) -> int:
    """Return the end of `count` zints that are known to be complete; -1 if one starts with 80, which no writer
    makes.
    """
    for _ in range(count):
        if buf[p] == 128:
            return -1
        while buf[p] >= 128:
            p += 1
        p += 1
    return p


@kernel(read_zint, read_vector, skip_vector, skip_zints)
def find_commit_fault(buf: UInt8s, p: int, n: int, version: int) -> int:
    """Return the contradiction in a commit that is known to parse: 1 rows, 2 docstore, 3 checkpoints; 0 = none."""
    rows, p = read_zint(buf, p, n)
    if rows == 0:
        return 0
    if version >= 13:
        p = skip_zints(buf, p, n, 1)
    size, p = read_vector(buf, p, n, 1)
    count, p = read_zint(buf, p, n)
    for _ in range(count):
        offset, p = read_zint(buf, p, n)
        if offset < 0 or offset >= size:
            return 3
        p = skip_zints(buf, p, n, 1)
    p = skip_vector(buf, p, n, 1)
    p = skip_vector(buf, p, n, 1)
    words, p = read_vector(buf, p, n, 4)
    if rows < 0 or words % rows != 0:
        return 1
    p = skip_vector(buf, p, n, 1)
    if version >= 3 and version < 8:
        p = skip_vector(buf, p, n, 4)
    if version >= 4:
        p = skip_vector(buf, p, n, 1)
    if version >= 9 and buf[p] != 0:
        count, p = read_zint(buf, p + 1, n)
        if count != rows:
            return 2
    return 0


@kernel(skip_canonical_zints, skip_payload, find_commit_fault)
def skip_ordered_transactions(
    start: int, stop: int, ops: Int64s, ids: Int64s, tids: Int64s, covered: Int64s, ends: Int64s, buf: UInt8s,
    state: MutableInt64s,
) -> int:  # fmt: skip
    """Skip ADD_TXN of version 15 on that are in order.

    In order: a known table, the next TID, canonical numbers, a payload that ends where uSize says.

    Returns:
        Index of the first transaction that is not, or `stop`.
    """
    for i in range(start, stop):
        table = ids[i]
        if ops[i] != 2 or table < 0 or table >= 1024 or state[table] == 0 or tids[i] != state[table]:
            return i
        p = skip_canonical_zints(buf, covered[i] + 1, 2)
        if p < 0 or skip_payload(buf, p + 4, ends[i]) != ends[i]:
            return i
        if buf[p + 4] == 1 and find_commit_fault(buf, p + 5, ends[i], 15) != 0:
            return i
        state[table] += 1
        state[1024 + table] += 1
        state[3072 + buf[p + 4]] += 1
    return stop


class OldTransactions(NamedTuple):
    """One entry for each transaction of versions 2 to 14."""

    ops: Int64s
    ids: Int64s
    tids: Int64s
    times: Int64s
    covered: Int64s
    ends: Int64s


@kernel(skip_canonical_zints, find_commit_fault)
def skip_ordered_old_transactions(
    start: int, stop: int, version: int, transactions: OldTransactions, buf: UInt8s, state: MutableInt64s
) -> int:
    """Skip transactions of versions 2 to 14 that are in order; here times must not fall, either.

    Their payload was parsed already to find its end.

    Returns:
        Index of the first transaction that is not, or `stop`.
    """
    for i in range(start, stop):
        table = transactions.ids[i]
        if transactions.ops[i] == 3 or transactions.ops[i] == 4 or table < 0 or table >= 1024:
            return i
        if state[table] == 0 or transactions.tids[i] != state[table] or transactions.times[i] < state[2048 + table]:
            return i
        if version > 4:  # before, numbers begin with their lowest bits: any first byte may be 0
            p = skip_canonical_zints(buf, transactions.covered[i] + 1, 3)
            if p < 0 or (transactions.ops[i] == 1 and find_commit_fault(buf, p, transactions.ends[i], version) != 0):
                return i
        state[table] += 1
        state[1024 + table] += 1
        state[2048 + table] = transactions.times[i]
    return stop
