"""Row events as one statement after the other, as kernels: the statements of `kernels.rows` and their
surroundings.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.type_codes import (
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    INTVAR,
    QUERY,
    RAND,
    TABLE_MAP,
    UPDATED,
    VERSION_OFFSET,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
)
from binlogtool.formats.binlog_events.rows.kernels import count_present_columns
from binlogtool.formats.binlog_events.rows.row_memory import RowMemory
from binlogtool.formats.binlog_events.sql.kernels.columns import EventColumns, ScriptMemory
from binlogtool.formats.binlog_events.sql.kernels.events import put_rows_with_map
from binlogtool.formats.binlog_events.sql.kernels.frequent import (
    TYPE_NAMES_AT,
    put_change_statement,
    put_position_comment,
    put_transaction_event,
)
from binlogtool.formats.binlog_events.sql.kernels.rows import has_key_columns, put_statements
from binlogtool.formats.binlog_events.sql.kernels.session import find_rows_request, find_transition, put_rows_session
from binlogtool.formats.binlog_events.sql.kernels.slots import (
    BYTES_WRITTEN,
    CHECKSUM_BYTES,
    CONTAINER_OFFSET,
    IN_TRANSACTION,
    LAST_GTID_INDEX,
    NEXT_SESSION_NUMBER,
    OUTPUT_FULL,
    ROW_FLAG_MASK,
    SESSION_CHANGED,
    SESSION_NUMBER,
    TABLE_ID_SIZE,
    TEMPLATES,
    TIMESTAMP_US,
    TRANSACTION_STATE,
)
from binlogtool.formats.binlog_events.sql.kernels.texts import find_statement
from binlogtool.formats.binlog_events.sql.kernels.walk import (
    find_images,
    find_template,
)
from binlogtool.formats.binlog_events.values.kernels import copy_text, load_word
from binlogtool.formats.fields import kernel
from binlogtool.formats.loads import load_little_endian


@kernel(
    find_transition, find_images, has_key_columns, load_little_endian, count_present_columns, put_rows_session,
    put_statements, find_rows_request, load_word,
)  # fmt: skip
def put_event_statements(memory: ScriptMemory, p: int, n: int, code: int, time: int, template: int, o: int) -> int:
    """Write the body of an uncompressed row event whose template is at `texts[r]`."""
    columns = load_word(memory.texts, template)
    p += memory.state[TABLE_ID_SIZE]
    before, at = find_images(memory.buf, p, n, code, columns)
    if at < 0:
        return -2
    cell = find_transition(
        memory.state[SESSION_NUMBER] + 0,
        find_rows_request(load_little_endian(memory.buf, p, 2) & memory.state[ROW_FLAG_MASK], memory.moves),
        memory.moves,
    )
    if cell < 0:
        return -2
    p = at
    kind = (code - WRITE_ROWS_V1) % VERSION_OFFSET
    after = before + ((columns + 7) >> 3) if kind == UPDATED else before
    o = put_rows_session(cell, 1000000 * time, memory.moves, memory.texts, memory.out, o, memory.z, memory.state)
    memory.state[NEXT_SESSION_NUMBER] = load_word(memory.moves, cell) - 1
    befores = count_present_columns(memory.buf, before, columns)
    afters = count_present_columns(memory.buf, after, columns)
    keyed = has_key_columns(memory.buf, before, memory.texts, template) if kind > 0 else 0
    return put_statements(
        RowMemory(memory.buf, n, memory.texts, template, memory.out, memory.z),
        p,
        kind,
        before,
        befores,
        after,
        afters,
        keyed,
        o,
    )


@kernel(copy_text, find_template, put_event_statements, put_rows_with_map, put_position_comment, load_word)
def put_commented_rows(i: int, type_: int, log_offset: int, events: EventColumns, memory: ScriptMemory, o: int) -> int:
    """Write a row event after its comment, as statements, or as BINLOG where there are none."""
    template = find_template(memory.texts, memory.state[TEMPLATES] + 0, events.maps[i])
    if memory.state[TRANSACTION_STATE] != IN_TRANSACTION or template == 0:
        return -2
    code = events.codes[i] + 0
    time = events.times[i] + 0
    o = put_position_comment(log_offset, memory.texts, memory.out, o, memory.z, memory.state)
    name = TYPE_NAMES_AT + 32 * type_
    o = copy_text(memory.texts, name + 1, memory.texts[name] + 0, memory.out, o)
    if load_word(memory.texts, template + 20) > 0:
        whole = events.stops[i] - events.ends[i] == memory.state[CHECKSUM_BYTES]
        return (
            put_rows_with_map(events.offsets[i], events.starts[i], events.stops[i], code, memory, template, o)
            if whole
            else -2
        )
    o = put_event_statements(memory, events.starts[i], events.ends[i], code, time, template, o)
    if o >= 0:
        memory.state[SESSION_NUMBER] = memory.state[NEXT_SESSION_NUMBER] + 0
        memory.state[SESSION_CHANGED] = 1
        if time > 0:
            memory.state[TIMESTAMP_US] = 1000000 * time
    return o


@kernel(put_transaction_event, put_change_statement, put_commented_rows, find_statement)
def write_statements(i: int, stop: int, events: EventColumns, memory: ScriptMemory) -> int:
    """Write events like `sql.kernels.frequent.write_events`, with rows as statements."""
    done = 0
    memory.state[LAST_GTID_INDEX] = -1
    memory.state[OUTPUT_FULL] = 0
    memory.state[SESSION_CHANGED] = 0
    while i < stop:
        code = events.codes[i]
        last = i
        place = events.places[i] + 0
        memory.state[CONTAINER_OFFSET] = events.holders[i] + 0
        if memory.z - done < 4096:
            memory.state[OUTPUT_FULL] = 1
            break
        if code == TABLE_MAP:
            o = done if memory.state[TRANSACTION_STATE] == IN_TRANSACTION and events.maps[i] >= 0 else -2
        elif (code >= WRITE_ROWS_V1 and code <= DELETE_ROWS_V1) or (code >= WRITE_ROWS_V2 and code <= DELETE_ROWS_V2):
            o = put_commented_rows(i, events.types[i] + 0, place, events, memory, done)  # fmt: skip
            if o == -1:
                memory.state[OUTPUT_FULL] = 1 if done > 0 else 0
                break
        elif memory.state[TRANSACTION_STATE] == IN_TRANSACTION and (code == QUERY or code == INTVAR or code == RAND):  # noqa: SIM109
            last = find_statement(i, stop, events.codes, events.starts, events.ends, events.holders, memory.buf)
            place = events.places[last] + 0 if last >= 0 else 0
            o = put_change_statement(i, last, place, events, memory, done)  # fmt: skip
            if o == -1:
                memory.state[OUTPUT_FULL] = 1 if done > 0 else 0
        else:
            o = put_transaction_event(i, events, code, place, memory, done)
        if o < 0:
            break
        done = o
        i = last + 1
    memory.state[BYTES_WRITTEN] = done
    return i
