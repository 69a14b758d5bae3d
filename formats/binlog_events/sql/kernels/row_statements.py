"""Row events as statements one after the other, as kernels: what `kernels.rows` makes of each, and what is around."""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.type_codes import (
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    INTVAR,
    NEXT_VERSION,
    QUERY,
    RAND,
    TABLE_MAP,
    UPDATED,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
)
from binlogtool.formats.binlog_events.rows.kernels import present_count
from binlogtool.formats.binlog_events.sql.kernels.events import put_own
from binlogtool.formats.binlog_events.sql.kernels.frequent import (
    NAMES_AT,
    put_around,
    put_change,
    put_place,
)
from binlogtool.formats.binlog_events.sql.kernels.rows import keys_present, put_statements
from binlogtool.formats.binlog_events.sql.kernels.session import cell_of, put_rows_session, rows_wish
from binlogtool.formats.binlog_events.sql.kernels.slots import (
    CHECKS,
    FULL,
    HOLDER,
    ID_SIZE,
    INSIDE,
    LAST_GTID,
    MOVED,
    NEXT_SESSION,
    OPEN,
    PLANS,
    SESSION,
    TAIL,
    TIME,
    WRITTEN,
)
from binlogtool.formats.binlog_events.sql.kernels.texts import unit_end
from binlogtool.formats.binlog_events.sql.kernels.walk import (
    images_at,
    plan_of,
)
from binlogtool.formats.binlog_events.values.kernels import copy_text, word_at
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_little


@kernel(
    cell_of, images_at, keys_present, load_little, present_count, put_rows_session, put_statements, rows_wish, word_at,
)  # fmt: skip
def put_event(
    buf: UInt8s,
    p: int,
    n: int,
    code: int,
    time: int,
    texts: UInt8s,
    r: int,
    out: MutableUInt8s,
    o: int,
    z: int,
    moves: UInt8s,
    state: MutableInt64s,
) -> int:
    """The body of a row event, not a compressed one, whose plan is at `texts[r]`."""
    columns = word_at(texts, r)
    p += state[ID_SIZE]
    before, at = images_at(buf, p, n, code, columns)
    if at < 0:
        return -2
    cell = cell_of(state[SESSION] + 0, rows_wish(load_little(buf, p, 2) & state[CHECKS], moves), moves)
    if cell < 0:
        return -2
    p = at
    kind = (code - WRITE_ROWS_V1) % NEXT_VERSION
    after = before + ((columns + 7) >> 3) if kind == UPDATED else before
    o = put_rows_session(cell, 1000000 * time, moves, texts, out, o, z, state)
    state[NEXT_SESSION] = word_at(moves, cell) - 1
    befores = present_count(buf, before, columns)
    afters = present_count(buf, after, columns)
    keyed = keys_present(buf, before, texts, r) if kind > 0 else 0
    return put_statements(buf, p, n, kind, before, befores, after, afters, keyed, texts, r, out, o, z)


@kernel(copy_text, plan_of, put_event, put_own, put_place, word_at)
def put_said(
    i: int, type_: int, place: int, codes: Int64s, times: Int64s, starts: Int64s, ends: Int64s, offsets: Int64s,
    stops: Int64s, maps: Int64s, buf: UInt8s, texts: UInt8s, out: MutableUInt8s, o: int, z: int, moves: UInt8s,
    state: MutableInt64s,
) -> int:  # fmt: skip
    """A row event as statements, or as BINLOG where there are none, behind its comment."""
    r = plan_of(texts, state[PLANS] + 0, maps[i])
    if state[OPEN] != INSIDE or r == 0:
        return -2
    code = codes[i] + 0
    time = times[i] + 0
    o = put_place(place, texts, out, o, z, state)
    name = NAMES_AT + 32 * type_
    o = copy_text(texts, name + 1, texts[name] + 0, out, o)
    if word_at(texts, r + 20) > 0:
        whole = stops[i] - ends[i] == state[TAIL]
        return put_own(offsets[i], starts[i], stops[i], code, buf, texts, r, out, o, z, state) if whole else -2
    o = put_event(buf, starts[i], ends[i], code, time, texts, r, out, o, z, moves, state)
    if o >= 0:
        state[SESSION] = state[NEXT_SESSION] + 0
        state[MOVED] = 1
        if time > 0:
            state[TIME] = 1000000 * time
    return o


@kernel(put_around, put_change, put_said, unit_end)
def write_statements(
    i: int, stop: int, codes: Int64s, times: Int64s, servers: Int64s, flags: Int64s, starts: Int64s, ends: Int64s,
    offsets: Int64s, stops: Int64s, maps: Int64s, types: Int64s, places: Int64s, holders: Int64s, buf: UInt8s,
    texts: UInt8s, out: MutableUInt8s, z: int, moves: UInt8s, state: MutableInt64s,
) -> int:  # fmt: skip
    """`sql.kernels.frequent.write`, for scripts whose rows are statements."""
    done = 0
    state[LAST_GTID] = -1
    state[FULL] = 0
    state[MOVED] = 0
    while i < stop:
        code = codes[i]
        last = i
        place = places[i] + 0
        state[HOLDER] = holders[i] + 0
        if z - done < 4096:
            state[FULL] = 1
            break
        if code == TABLE_MAP:
            o = done if state[OPEN] == INSIDE and maps[i] >= 0 else -2
        elif (code >= WRITE_ROWS_V1 and code <= DELETE_ROWS_V1) or (code >= WRITE_ROWS_V2 and code <= DELETE_ROWS_V2):
            o = put_said(
                i, types[i] + 0, place, codes, times, starts, ends, offsets, stops, maps, buf, texts, out, done, z,
                moves, state,
            )  # fmt: skip
            if o == -1:
                state[FULL] = 1 if done > 0 else 0
                break
        elif state[OPEN] == INSIDE and (code == QUERY or code == INTVAR or code == RAND):  # noqa: SIM109
            last = unit_end(i, stop, codes, starts, ends, holders, buf)
            place = places[last] + 0 if last >= 0 else 0
            o = put_change(
                i, last, place, codes, times, flags, starts, ends, offsets, stops, buf, texts, out, done, z, moves,
                state,
            )  # fmt: skip
            if o == -1:
                state[FULL] = 1 if done > 0 else 0
        else:
            o = put_around(i, times, servers, flags, starts, ends, code, place, buf, texts, out, done, z, moves, state)
        if o < 0:
            break
        done = o
        i = last + 1
    state[WRITTEN] = done
    return i
