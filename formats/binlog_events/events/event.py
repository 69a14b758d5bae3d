"""One event of a batch as plain values, and a rule violation found in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from binlogtool.findings import Severity
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.layouts import Batch


class Event(NamedTuple):
    """One event.

    Attributes:
        start, end: offsets in the file (of the outer frame, for an event inside a payload).
        record: its number in the file.
        batch_index: its index in the batch.
    """

    code: int
    time: int
    server_id: int
    end_log_pos: int
    flags: int
    start: int
    end: int
    record: int
    body: memoryview
    batch_index: int = 0


class EventFault(NamedTuple):
    """A rule that an event violates.

    Attributes:
        id: id of the finding.
        diagnosis: the rule as a short, machine-readable phrase.
        severity: None = that of the finding's id.
    """

    id: str
    text: str
    diagnosis: str
    severity: Severity | None = None
    facts: dict[str, Any] = {}


def get_event(batch: Batch, index: int) -> Event:
    """Return event `index` of a batch; an event inside a payload has the offsets of its outer frame."""
    table = batch.frames
    start, size, record = batch.container_position(index)
    return Event(
        int(table["type_code"][index]), int(table["timestamp"][index]), int(table["server_id"][index]),
        int(table["end_log_pos"][index]), int(table["flags"][index]), start, start + size, record,
        batch.window[int(table["body_start"][index]) : int(table["body_end"][index])], index,
    )  # fmt: skip


def iter_events(batch: Batch, start: int, stop: int) -> Iterator[Event]:
    """Iterate over the events `[start, stop)` of a batch; faster than `get_event` for many."""
    table, window = batch.frames, batch.window
    names = ("type_code", "timestamp", "server_id", "end_log_pos", "flags", "body_start", "body_end")
    codes, times, servers, positions, flags, body_starts, body_ends = (
        to_int_list(table[name], start, stop) for name in names
    )
    records = batch.record_numbers(start, stop)
    if batch.is_inside:
        places = [batch.container_position(i) for i in range(start, stop)]
        starts, ends = [one.offset for one in places], [one.offset + one.size for one in places]
    else:
        starts = [batch.base + place for place in to_int_list(table["offset"], start, stop)]
        ends = [batch.base + place for place in to_int_list(table["end"], start, stop)]
    bodies = [window[first:last] for first, last in zip(body_starts, body_ends, strict=True)]
    columns = (codes, times, servers, positions, flags, starts, ends, records, bodies, range(start, stop))
    yield from map(Event, *columns)
