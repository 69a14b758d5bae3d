"""Context of the file, or of the group of events, that events are read from."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.formats.binlog_events.codes import MAGIC
from binlogtool.formats.binlog_events.groups.tracking import EventTracker
from binlogtool.formats.binlog_events.stream.proofs import PriorEvents
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.detecting import Hints
from binlogtool.formats.layouts import LogFileLayout


class BinlogFileContext(msgspec.Struct):
    """What the format knows about one file.

    Attributes:
        description: the current FORMAT_DESCRIPTION; in a relay log it changes on the way.
        is_relay_log: a relay log.
        events_at: offset of the first event.
        encrypted_without_key: encrypted, and no key was given.
        prior_events: times and servers of the events so far.
    """

    description: FormatDescription
    tracker: EventTracker
    is_relay_log: bool = False
    events_at: int = len(MAGIC)
    encrypted_without_key: bool = False
    name: str = ""
    hints: Hints = Hints()
    prior_events: PriorEvents = msgspec.field(default_factory=PriorEvents)


class BinlogFileSummary(msgspec.Struct, frozen=True):
    """What is kept of a file after reading, without the bytes and the time of its FORMAT_DESCRIPTION."""

    description: FormatDescription
    is_relay_log: bool
    events_at: int
    encrypted_without_key: bool


def summarize_layout(layout: LogFileLayout) -> LogFileLayout:
    """Drop what only the file's records needed."""
    context = layout.context
    if not isinstance(context, BinlogFileContext):
        return layout
    description = replace(context.description, event=b"", post_header_len=b"", create_timestamp=0)
    summary = replace(
        layout,
        context=BinlogFileSummary(description, context.is_relay_log, context.events_at, context.encrypted_without_key),
    )
    return summary if summary.findings or summary.decrypt is not None else _share_layout(summary)


@lru_cache(maxsize=64)
def _share_layout(layout: LogFileLayout) -> LogFileLayout:
    """Return one shared layout for equal files of a server; layouts with findings or keys are not shared."""
    return layout


def fork_context(context: Any) -> Any:
    """Return an independent copy of a context."""
    return replace(context, tracker=context.tracker.copy()) if isinstance(context, BinlogFileContext) else context
