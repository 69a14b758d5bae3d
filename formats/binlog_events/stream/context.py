"""Context of the file, or of the group of events, that events are read from."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.formats.binlog_events.codes import MAGIC
from binlogtool.formats.binlog_events.groups.tracking import Tracker
from binlogtool.formats.binlog_events.stream.proofs import Witness
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.detecting import Hints
from binlogtool.formats.layouts import Layout


class FileContext(msgspec.Struct):
    """What the format knows about one file.

    Attributes:
        description: the current FORMAT_DESCRIPTION; in a relay log it changes on the way.
        is_relay_log: a relay log.
        events_at: offset of the first event.
        encrypted_without_key: encrypted, and no key was given.
        prior_events: times and servers of the events so far.
    """

    description: FormatDescription
    tracker: Tracker
    relay: bool = False
    start: int = len(MAGIC)
    sealed: bool = False
    name: str = ""
    hints: Hints = Hints()
    witness: Witness = msgspec.field(default_factory=Witness)


class Settled(msgspec.Struct, frozen=True):
    """What is kept of a file after reading, without the bytes and the time of its FORMAT_DESCRIPTION."""

    description: FormatDescription
    relay: bool
    start: int
    sealed: bool


def settled(layout: Layout) -> Layout:
    """Drop what only the file's records needed."""
    context = layout.context
    if not isinstance(context, FileContext):
        return layout
    described = replace(context.description, event=b"", post_header_len=b"", create_timestamp=0)
    known = replace(layout, context=Settled(described, context.relay, context.start, context.sealed))
    return known if known.findings or known.unveil is not None else _one(known)


@lru_cache(maxsize=64)
def _one(known: Layout) -> Layout:
    """Return one shared layout for equal files of a server; layouts with findings or keys are not shared."""
    return known


def apart(context: Any) -> Any:
    """Return an independent copy of a context."""
    return replace(context, tracker=context.tracker.apart()) if isinstance(context, FileContext) else context
