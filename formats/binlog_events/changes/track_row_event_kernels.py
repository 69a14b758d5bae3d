"""Track the row events of a batch, their transactions and times, in compiled code.

`select_row_events_until_unsupported` stops before each event that it lacks information about, and records nothing for
this event.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.format_api.schema_fields import Int64s, MutableInt64s, UInt8s, kernel
from binlogtool.formats.binlog_events.event_schemas import find_query_text
from binlogtool.formats.binlog_events.gtid.gtid_events import load_commit_time
from binlogtool.formats.binlog_events.transactions.boundaries import (
    ENDS,
    GROUP_BITS,
    IS_GTID,
    IS_MAP,
    IS_QUERY,
    IS_ROWS,
    NEEDS_TRACKER,
    OPENS,
    STATEMENT,
    STEP_AT,
    STEP_BITS,
    compute_packed_group_step,
    get_event_mark,
    is_possible_ddl,
    is_transaction_begin_step,
)
from binlogtool.formats.binlog_events.transactions.transaction_kernels import is_equal_to_packed_words
from binlogtool.formats.binlog_events.wire_format import GTID, TRANSACTION_PAYLOAD

# State: an array of 64-bit integers.
GROUP_STATE, TIME, COUNT, CLOSED_BY, TRANSACTION_OPEN, GROUP_COUNT, STATE_SIZE = range(7)
"""GROUP_STATE: the open group, as in `transactions.boundaries`. TIME: commit time of the open transaction in
microseconds; 0 = unknown. COUNT: number of row events found. CLOSED_BY: how the transaction open at the start was
closed before any row event: by its end, or by the next one. TRANSACTION_OPEN: the transaction of the last row event has
not ended. GROUP_COUNT: number of transactions that began or ended in these events."""
CLOSED_BY_END, CLOSED_BY_NEXT = 1, 2

UNKNOWN, UNWANTED, WANTED = range(3)
"""States of a table map: not resolved yet; its rows are not selected; its rows are selected."""


class RowEventColumns(NamedTuple):
    """Columns with one entry per event of a batch.

    sources, numbers, maps: see `transaction_kernels.track_events_until_unsupported`.
    """

    codes: Int64s
    servers: Int64s
    stamps: Int64s
    offsets: Int64s
    starts: Int64s
    ends: Int64s
    sources: Int64s
    numbers: Int64s
    maps: Int64s


class TableMapStates(NamedTuple):
    """State of the table maps read so far, for kernels.

    known: two words per map: UNKNOWN, UNWANTED or WANTED, and the position of its first head in `heads` (0 = none).
    head_at: number of bytes in a body before the head.
    """

    known: Int64s
    heads: Int64s
    head_at: int


class SelectedRowEvents(NamedTuple):
    """Output columns with one entry per selected row event.

    which, places: its index and its position. layouts, tables: the numbers of its head and of its map. times: -1 =
    none. origins: its server. owners, serials: source and number of its transaction. commits: 1 if its transaction ends
    after it. groups: number of its transaction within these events.
    """

    which: MutableInt64s
    places: MutableInt64s
    layouts: MutableInt64s
    tables: MutableInt64s
    times: MutableInt64s
    origins: MutableInt64s
    owners: MutableInt64s
    serials: MutableInt64s
    commits: MutableInt64s
    groups: MutableInt64s


@kernel(is_equal_to_packed_words)
def find_rows_header_number(
    type_code: int, buf: UInt8s, pos: int, limit: int, known_headers: Int64s, first_header_at: int
) -> int:
    """Return the number of the known head at `buf[pos]`; -1 if it is unknown.

    Args:
        first_header_at: position in `known_headers` of the first head of the event's map; 0 = none.
    """
    while first_header_at > 0:
        size = known_headers[first_header_at + 2]
        if (
            known_headers[first_header_at + 1] == type_code
            and size <= limit - pos
            and is_equal_to_packed_words(known_headers, first_header_at + 4, buf, pos, pos + size)
        ):
            return known_headers[first_header_at + 3] + 0
        first_header_at = known_headers[first_header_at]
    return -1


@kernel()
def append_to_selected_row_events(
    event_index: int,
    header_number: int,
    source_columns: RowEventColumns,
    state: MutableInt64s,
    selected_rows: SelectedRowEvents,
) -> int:
    """Append a row event with this head to `selected_rows`."""
    count = state[COUNT]
    selected_rows.which[count] = event_index
    selected_rows.places[count] = source_columns.offsets[event_index]
    selected_rows.layouts[count] = header_number
    selected_rows.tables[count] = source_columns.maps[event_index]
    selected_rows.origins[count] = source_columns.servers[event_index]
    selected_rows.times[count] = (
        state[TIME]
        if state[TIME]
        else (source_columns.stamps[event_index] * 1000000 if source_columns.stamps[event_index] else -1)
    )
    selected_rows.owners[count] = source_columns.sources[event_index] + 0
    selected_rows.serials[count] = source_columns.numbers[event_index] + 0
    selected_rows.commits[count] = 0
    selected_rows.groups[count] = state[GROUP_COUNT]
    state[COUNT] = count + 1
    state[TRANSACTION_OPEN] = 1
    return 0


@kernel(
    append_to_selected_row_events,
    is_transaction_begin_step,
    load_commit_time,
    find_rows_header_number,
    find_query_text,
    get_event_mark,
    is_possible_ddl,
    compute_packed_group_step,
)
def select_row_events_until_unsupported(
    event: int,
    stop: int,
    selected_flags: UInt8s,
    events: RowEventColumns,
    buf: UInt8s,
    traits: Int64s,
    words: Int64s,
    state: MutableInt64s,
    known_maps: TableMapStates,
    selected_rows: SelectedRowEvents,
) -> int:
    """Track the events `[event, stop)`; return the index of the event where the kernel stopped.

    Args:
        selected_flags: one byte per event, 0 for events to be skipped.
        selected_rows: output.
    """
    while event < stop:
        code = events.codes[event]
        if selected_flags[event] == 0 or code == TRANSACTION_PAYLOAD:
            event += 1
            continue
        trait = traits[code]
        pos = events.starts[event]
        limit = events.ends[event]
        head = -1
        if trait & NEEDS_TRACKER or (
            trait & IS_QUERY and (is_possible_ddl(buf, pos, limit) or find_query_text(buf, pos, limit)[1] < 0)
        ):
            return event
        if trait & (IS_ROWS | IS_MAP):
            map_number = events.maps[event]
            if map_number < 0 and trait & IS_ROWS:
                return event
            map_state = known_maps.known[2 * map_number] + 0 if map_number >= 0 else UNWANTED
            if map_state == UNKNOWN:
                return event
            if map_state == WANTED and trait & IS_ROWS:
                head = find_rows_header_number(
                    code,
                    buf,
                    pos + known_maps.head_at,
                    limit,
                    known_maps.heads,
                    known_maps.known[2 * map_number + 1] + 0,
                )
                if head < 0:
                    return event
        mark = get_event_mark(trait, words, buf, pos, limit)
        if mark == STATEMENT:
            return event
        if trait & IS_GTID:
            time = 0
            if code != GTID:
                time, _ticket, end = load_commit_time(buf, pos, limit)
                if end < 0:
                    return event
            state[TIME] = time
        step_result = compute_packed_group_step(state[GROUP_STATE], mark)
        state[GROUP_STATE] = step_result & GROUP_BITS
        outcome = step_result >> STEP_AT & STEP_BITS
        if is_transaction_begin_step(step_result):
            state[TRANSACTION_OPEN] = 0
            state[GROUP_COUNT] += 1
            if state[COUNT] == 0 and state[CLOSED_BY] == 0:
                state[CLOSED_BY] = CLOSED_BY_NEXT
        if outcome == OPENS and not trait & IS_GTID:
            state[TIME] = 0
        if head >= 0:
            append_to_selected_row_events(event, head, events, state, selected_rows)
        if outcome == ENDS:
            if state[TRANSACTION_OPEN]:
                selected_rows.commits[state[COUNT] - 1] = 1
                state[TRANSACTION_OPEN] = 0
            elif state[COUNT] == 0 and state[CLOSED_BY] == 0:
                state[CLOSED_BY] = CLOSED_BY_END
            state[GROUP_COUNT] += 1
        event += 1
    return stop
