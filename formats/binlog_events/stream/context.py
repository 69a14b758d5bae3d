"""What is known of the file, or of the group of events, that events stand in."""

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

    description: the FORMAT_DESCRIPTION that holds; of a relay log it changes on the way. relay: a relay log. start:
    where the events begin. sealed: encrypted, and no key was given. witness: what the events so far say of others.
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
    """What stays known of a file that was read; of its FORMAT_DESCRIPTION no bytes and no time."""

    description: FormatDescription
    relay: bool
    start: int
    sealed: bool


def settled(layout: Layout) -> Layout:
    """Without what only its records needed."""
    context = layout.context
    if not isinstance(context, FileContext):
        return layout
    described = replace(context.description, event=b"", post_header_len=b"", create_timestamp=0)
    known = replace(layout, context=Settled(described, context.relay, context.start, context.sealed))
    return known if known.findings or known.unveil is not None else _one(known)


@lru_cache(maxsize=64)
def _one(known: Layout) -> Layout:
    """The files of one server share it; what is found in one, and what opens an encrypted one, is its own."""
    return known


def apart(context: Any) -> Any:
    """One that knows the same; what it learns is its own."""
    return replace(context, tracker=context.tracker.apart()) if isinstance(context, FileContext) else context
