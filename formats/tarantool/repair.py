"""Repair rules of journal files: `docs/spec/tarantool-xlog.md#13-end-marker`,
`#63-truncate-to-durable-byte-by-byte`.
"""

from __future__ import annotations

from binlogtool.formats.later import Later
from binlogtool.formats.layouts import Layout
from binlogtool.formats.repair_rules import EngineLock, Repair
from binlogtool.formats.tarantool.codes import END_MARK, FileKind
from binlogtool.formats.tarantool.layout.layout import FileContext


def close_mark(layout: Layout) -> bytes | None:
    """Return the end mark for a write-ahead log, None for other files: a snapshot without one must not look
    complete.
    """
    context = layout.context
    return END_MARK if isinstance(context, FileContext) and context.kind is FileKind.XLOG else None


_NO_HOLES = {
    FileKind.SNAP: "a server does not start from a snapshot without some of its rows, or starts without them",
    FileKind.VYLOG: "the records of a metadata log refer to each other",
    FileKind.RUN: "the index of the run has the place of each page",
    FileKind.INDEX: "an index without some of its pages is not that of its run",
}


def no_salvage(layout: Layout) -> str | None:
    """Explain why a file cannot be salvaged; None for write-ahead logs, the only files that may lack rows."""
    kind = layout.context.kind if isinstance(layout.context, FileContext) else None
    return None if kind is None else _NO_HOLES.get(kind)


REPAIR = Repair(
    locks=(EngineLock("", "flock"),),  # the server locks its directory of logs
    close_mark=close_mark,
    gaps="rows may be missing in the middle: the server then starts, with force_recovery and without, and says nothing "
    "of it; replicas that ask for the missing rows cannot be served",
    numbered=True,
    salvage=no_salvage,
    mend_frames=Later("tarantool.damage.mending:mend"),
)
