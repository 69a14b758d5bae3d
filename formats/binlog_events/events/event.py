"""One event of a batch as plain values, and what a rule says about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from binlogtool.findings import Severity
from binlogtool.formats.columns import integers
from binlogtool.formats.layouts import Batch


class Event(NamedTuple):
    """An event. start, end: offsets in the file (of the frame that holds it, for one inside a payload).

    record: its number in the file. position: end_log_pos. place: its number in the batch.
    """

    code: int
    time: int
    server: int
    position: int
    flags: int
    start: int
    end: int
    record: int
    body: memoryview
    place: int = 0


class Fault(NamedTuple):
    """What is wrong with an event. diagnosis: the rule in few words, for machines."""

    id: str
    text: str
    diagnosis: str
    severity: Severity | None = None
    facts: dict[str, Any] = {}


def event_at(batch: Batch, index: int) -> Event:
    """Event `index` of a batch; one inside a payload is where its holder is."""
    table = batch.frames
    start, size, record = batch.place_of(index)
    return Event(
        int(table["type_code"][index]), int(table["timestamp"][index]), int(table["server_id"][index]),
        int(table["end_log_pos"][index]), int(table["flags"][index]), start, start + size, record,
        batch.window[int(table["body_start"][index]) : int(table["body_end"][index])], index,
    )  # fmt: skip


def events_of(batch: Batch, start: int, stop: int) -> Iterator[Event]:
    """The events `[start, stop)` of a batch: as `event_at`, for many."""
    table, window = batch.frames, batch.window
    names = ("type_code", "timestamp", "server_id", "end_log_pos", "flags", "body_start", "body_end")
    codes, times, servers, positions, flags, firsts, lasts = (integers(table[name], start, stop) for name in names)
    records = batch.numbers(start, stop)
    if batch.is_inside:
        places = [batch.place_of(i) for i in range(start, stop)]
        starts, ends = [one.offset for one in places], [one.offset + one.size for one in places]
    else:
        starts = [batch.base + place for place in integers(table["offset"], start, stop)]
        ends = [batch.base + place for place in integers(table["end"], start, stop)]
    bodies = [window[first:last] for first, last in zip(firsts, lasts, strict=True)]
    columns = (codes, times, servers, positions, flags, starts, ends, records, bodies, range(start, stop))
    yield from map(Event, *columns)
