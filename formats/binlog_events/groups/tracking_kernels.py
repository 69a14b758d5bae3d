"""What `tracking.Tracker.follow` does, for the events that are frequent, as a kernel over the columns of a batch.

The kernel stops at each event that it does not know enough of; nothing has happened for that event then.
"""

from __future__ import annotations

from typing import Any

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.ddl.kernels import may_declare
from binlogtool.formats.binlog_events.events.places import DB_LEN, HEAD, STATUS_LEN
from binlogtool.formats.binlog_events.gtid.places import COMMIT_ID, DOMAIN_ID, FLAGS2, GNO, LT_TYPE, SEQ_NO, SID
from binlogtool.formats.fields import kernel
from binlogtool.formats.loads import load_little

# State: an array of 64-bit integers.
OPEN, BEGUN, STANDALONE = 0, 1, 2
"""As in `groups.Groups`."""
SOURCE, NUMBER = 3, 4
"""The owner: number of its source's text (-1 = nobody), and the number in its GTID."""
LAST_CODE, LAST_A, LAST_B, LAST_SOURCE = 5, 6, 7, 8
"""The source of the GTID event before: type, the 128 bits that tell it, number of its text."""
ID_SIZE = 9
MASK = 10
"""Places in the table of ids, less one."""
STATE_SIZE = 11

ANONYMOUS_GTID, MARIADB_GTID = EventType.ANONYMOUS_GTID.value, EventType.GTID.value

# Traits of an event type.
IS_GTID, IS_OUTSIDE, IS_QUERY, IS_ENDING, IS_PREFIX, IS_ROWS, IS_MAP, ASKS = 1, 2, 4, 8, 16, 32, 64, 128
"""ASKS: the kernel never takes it."""


@kernel()
def place_of(table_id: int, ids: Any, mask: int) -> int:
    """Where a table id stands in the table of ids (pairs of id + 1 and the number of its map), or could stand."""
    at = (table_id ^ table_id >> 13 ^ table_id >> 27) & mask
    while ids[2 * at] != 0 and ids[2 * at] != table_id + 1:
        at = (at + 1) & mask
    return at


@kernel()
def is_word(words: Any, at: int, size: int, buf: Any, p: int, n: int) -> bool:
    """Does `buf[p:n]` begin with this word, in whichever case, and does the word end there?"""
    if n - p < size:
        return False
    for i in range(size):
        c = buf[p + i] + 0
        if c >= 97 and c <= 122:
            c -= 32
        if c != words[at + i]:
            return False
    if n - p == size:
        return True
    c = buf[p + size] + 0
    return not ((c >= 48 and c <= 57) or (c >= 65 and c <= 90) or (c >= 97 and c <= 122))


@kernel(is_word)
def kind_of_query(words: Any, buf: Any, p: int, n: int) -> int:
    """`groups.query_kind` of a QUERY with the body `buf[p:n]`. words: size, kind and letters of each word, then 0."""
    if n - p < HEAD:
        return 0
    start = p + HEAD + 1 + buf[p + DB_LEN] + (buf[p + STATUS_LEN] | buf[p + STATUS_LEN + 1] << 8)
    if start >= n:
        return 0
    n = min(n, start + 64)
    at = 0
    while words[at] != 0:
        if is_word(words, at + 2, words[at] + 0, buf, start, n):
            return words[at + 1] + 0  # type: ignore[no-any-return]
        at += 2 + words[at]
    return 0


@kernel()
def close_group(state: Any) -> int:
    """`Groups.close`"""
    state[OPEN] = 0
    state[BEGUN] = 0
    state[STANDALONE] = 0
    return 3


@kernel(close_group)
def query_step(state: Any, kind: int) -> int:
    """`Groups._query`"""
    opened = state[OPEN]
    if kind == 1 or kind == 5:
        state[OPEN] = 1
        state[BEGUN] = 1
        state[STANDALONE] = 0
        return 2 if opened else 1
    if kind == 4 or kind == 6:
        return 2 if opened else 4
    if not opened:
        return 4
    if kind == 0 and state[BEGUN]:
        return 2
    return close_group(state)


@kernel(close_group, kind_of_query, query_step)
def group_step(state: Any, code: int, trait: int, words: Any, buf: Any, p: int, n: int) -> int:
    """`Groups.take`: 0 outside, 1 opens, 2 inside, 3 ends, 4 alone."""
    if trait & IS_GTID:
        maria = code == MARIADB_GTID
        state[OPEN] = 1
        state[STANDALONE] = 1 if maria and n - p > FLAGS2 and buf[p + FLAGS2] & 1 else 0
        state[BEGUN] = 1 if maria and not state[STANDALONE] else 0
        return 1
    if trait & IS_OUTSIDE:
        return 0
    if trait & IS_QUERY:
        return query_step(state, kind_of_query(words, buf, p, n))
    if trait & IS_ENDING:
        return close_group(state) if state[OPEN] else 4
    if not state[OPEN]:
        return 0 if trait & (IS_PREFIX | IS_ROWS) else 4
    ends = not trait & IS_ROWS or (n - p >= 8 and buf[p + 6] & 1)
    return close_group(state) if state[STANDALONE] and ends and not trait & IS_PREFIX else 2


@kernel(load_little)
def is_known(known: Any, at: int, buf: Any, p: int, n: int) -> bool:
    """Is `buf[p:n]` what stands at `known[at]`, eight bytes in a number, filled up with zeros?"""
    while p < n:
        if load_little(buf, p, min(n - p, 8)) != known[at]:
            return False
        p += 8
        at += 1
    return True


@kernel(is_known, load_little, place_of)
def map_of(
    trait: int, buf: Any, p: int, n: int, state: Any, ids: Any, known: Any, known_places: Any,
) -> int:  # fmt: skip
    """The number of the map that belongs to a TABLE_MAP or row event, -1 = there is none, -2 = not known."""
    if n - p < 8:
        return -2
    found = ids[2 * place_of(load_little(buf, p, state[ID_SIZE]), ids, state[MASK]) + 1]
    if not trait & IS_MAP:
        return found  # type: ignore[no-any-return]
    if found < 0 or n - p != known_places[2 * found + 1]:
        return -2
    return found if is_known(known, known_places[2 * found], buf, p, n) else -2


@kernel(load_little)
def take_gtid(code: int, server: int, buf: Any, p: int, n: int, state: Any) -> bool:
    """Makes the GTID of this event the owner; False if its source is not that of the GTID before."""
    if code == ANONYMOUS_GTID:
        state[SOURCE] = -1
        return True
    if code != state[LAST_CODE]:
        return False
    if code == MARIADB_GTID:
        if n - p < COMMIT_ID:
            return False
        number, a, b = load_little(buf, p + SEQ_NO, 8), load_little(buf, p + DOMAIN_ID, 4), server
    else:
        if n - p < LT_TYPE:
            return False
        number = load_little(buf, p + GNO, 8)
        a, b = load_little(buf, p + SID, 8), load_little(buf, p + SID + 8, 8)
    if a != state[LAST_A] or b != state[LAST_B] or number < 0:
        return False
    state[SOURCE] = state[LAST_SOURCE]
    state[NUMBER] = number
    return True


@kernel(group_step, map_of, may_declare, take_gtid)
def follow(
    i: int, stop: int, codes: Any, servers: Any, starts: Any, ends: Any, buf: Any, state: Any, traits: Any, words: Any,
    ids: Any, known: Any, known_places: Any, sources: Any, numbers: Any, maps: Any,
) -> int:  # fmt: skip
    """Fills `sources`, `numbers` and `maps` for the events from `i` on; returns where it stopped.

    traits: by type. ids: see `place_of`. known, known_places: the bodies of the maps (`is_known`), and for each where
    it starts and its size in bytes.
    """
    while i < stop:
        code = codes[i]
        trait = traits[code]
        p = starts[i]
        n = ends[i]
        found = -1
        if trait & (IS_ROWS | IS_MAP):
            found = map_of(trait, buf, p, n, state, ids, known, known_places)
        if trait & ASKS or found == -2 or (trait & IS_QUERY and may_declare(buf, p, n)):
            return i
        if trait & IS_GTID and not take_gtid(code, servers[i], buf, p, n, state):
            return i
        step = group_step(state, code, trait, words, buf, p, n)
        if step == 1 and not trait & IS_GTID:
            state[SOURCE] = -1
        sources[i] = -1 if step == 0 else state[SOURCE]
        numbers[i] = state[NUMBER]
        maps[i] = found
        if step == 3:
            state[SOURCE] = -1
        i += 1
    return stop
