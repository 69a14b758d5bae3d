"""Row events as one statement after the other, as kernels: the statements of `kernels.rows` and their
surroundings.
"""

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
from binlogtool.formats.binlog_events.rows.row_memory import RowMemory
from binlogtool.formats.binlog_events.sql.kernels.columns import EventColumns, ScriptMemory
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
from binlogtool.formats.loads import load_little


@kernel(
    cell_of, images_at, keys_present, load_little, present_count, put_rows_session, put_statements, rows_wish, word_at,
)  # fmt: skip
def put_event(memory: ScriptMemory, p: int, n: int, code: int, time: int, r: int, o: int) -> int:
    """Write the body of an uncompressed row event whose template is at `texts[r]`."""
    columns = word_at(memory.texts, r)
    p += memory.state[ID_SIZE]
    before, at = images_at(memory.buf, p, n, code, columns)
    if at < 0:
        return -2
    cell = cell_of(
        memory.state[SESSION] + 0,
        rows_wish(load_little(memory.buf, p, 2) & memory.state[CHECKS], memory.moves),
        memory.moves,
    )
    if cell < 0:
        return -2
    p = at
    kind = (code - WRITE_ROWS_V1) % NEXT_VERSION
    after = before + ((columns + 7) >> 3) if kind == UPDATED else before
    o = put_rows_session(cell, 1000000 * time, memory.moves, memory.texts, memory.out, o, memory.z, memory.state)
    memory.state[NEXT_SESSION] = word_at(memory.moves, cell) - 1
    befores = present_count(memory.buf, before, columns)
    afters = present_count(memory.buf, after, columns)
    keyed = keys_present(memory.buf, before, memory.texts, r) if kind > 0 else 0
    return put_statements(
        RowMemory(memory.buf, n, memory.texts, r, memory.out, memory.z),
        p,
        kind,
        before,
        befores,
        after,
        afters,
        keyed,
        o,
    )


@kernel(copy_text, plan_of, put_event, put_own, put_place, word_at)
def put_said(i: int, type_: int, place: int, events: EventColumns, memory: ScriptMemory, o: int) -> int:
    """Write a row event after its comment, as statements, or as BINLOG where there are none."""
    r = plan_of(memory.texts, memory.state[PLANS] + 0, events.maps[i])
    if memory.state[OPEN] != INSIDE or r == 0:
        return -2
    code = events.codes[i] + 0
    time = events.times[i] + 0
    o = put_place(place, memory.texts, memory.out, o, memory.z, memory.state)
    name = NAMES_AT + 32 * type_
    o = copy_text(memory.texts, name + 1, memory.texts[name] + 0, memory.out, o)
    if word_at(memory.texts, r + 20) > 0:
        whole = events.stops[i] - events.ends[i] == memory.state[TAIL]
        return put_own(events.offsets[i], events.starts[i], events.stops[i], code, memory, r, o) if whole else -2
    o = put_event(memory, events.starts[i], events.ends[i], code, time, r, o)
    if o >= 0:
        memory.state[SESSION] = memory.state[NEXT_SESSION] + 0
        memory.state[MOVED] = 1
        if time > 0:
            memory.state[TIME] = 1000000 * time
    return o


@kernel(put_around, put_change, put_said, unit_end)
def write_statements(i: int, stop: int, events: EventColumns, memory: ScriptMemory) -> int:
    """Write events like `sql.kernels.frequent.write_events`, with rows as statements."""
    done = 0
    memory.state[LAST_GTID] = -1
    memory.state[FULL] = 0
    memory.state[MOVED] = 0
    while i < stop:
        code = events.codes[i]
        last = i
        place = events.places[i] + 0
        memory.state[HOLDER] = events.holders[i] + 0
        if memory.z - done < 4096:
            memory.state[FULL] = 1
            break
        if code == TABLE_MAP:
            o = done if memory.state[OPEN] == INSIDE and events.maps[i] >= 0 else -2
        elif (code >= WRITE_ROWS_V1 and code <= DELETE_ROWS_V1) or (code >= WRITE_ROWS_V2 and code <= DELETE_ROWS_V2):
            o = put_said(i, events.types[i] + 0, place, events, memory, done)  # fmt: skip
            if o == -1:
                memory.state[FULL] = 1 if done > 0 else 0
                break
        elif memory.state[OPEN] == INSIDE and (code == QUERY or code == INTVAR or code == RAND):  # noqa: SIM109
            last = unit_end(i, stop, events.codes, events.starts, events.ends, events.holders, memory.buf)
            place = events.places[last] + 0 if last >= 0 else 0
            o = put_change(i, last, place, events, memory, done)  # fmt: skip
            if o == -1:
                memory.state[FULL] = 1 if done > 0 else 0
        else:
            o = put_around(i, events, code, place, memory, done)
        if o < 0:
            break
        done = o
        i = last + 1
    memory.state[WRITTEN] = done
    return i
