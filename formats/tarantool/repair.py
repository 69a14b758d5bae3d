"""Repair rules of journal files: `docs/spec/tarantool.md#end-marker`, `#truncation`."""

from __future__ import annotations

from binlogtool.format_api.format import EngineLock, RepairRules
from binlogtool.format_api.layout import LogFileLayout
from binlogtool.format_api.lazy_import import LazyRef
from binlogtool.formats.tarantool.codes import END_MARK, FileKind
from binlogtool.formats.tarantool.layout import TarantoolContext


def get_close_mark(layout: LogFileLayout) -> bytes | None:
    """Return the end mark for a write-ahead log, None for other files: a torn snapshot must not look complete."""
    context = layout.context
    return END_MARK if isinstance(context, TarantoolContext) and context.kind is FileKind.XLOG else None


_SALVAGE_REFUSALS = {
    FileKind.SNAP: "a server does not start from a snapshot without some of its rows, or starts without them",
    FileKind.VYLOG: "the records of a metadata log refer to each other",
    FileKind.RUN: "the index of the run holds the offset of each page",
    FileKind.INDEX: "an index that lacks pages does not match its run",
}


def explain_no_salvage(layout: LogFileLayout) -> str | None:
    """Explain why a file cannot be salvaged; None for write-ahead logs, the only files that may lack rows."""
    kind = layout.context.kind if isinstance(layout.context, TarantoolContext) else None
    return None if kind is None else _SALVAGE_REFUSALS.get(kind)


REPAIR = RepairRules(
    locks=(EngineLock("", "flock"),),  # the server locks its directory of logs
    close_mark=get_close_mark,
    gaps="rows may be missing in the middle: the server then starts, with or without force_recovery, and "
    "reports nothing"
    "; replicas that request the missing rows cannot be served",
    numbered=True,
    salvage_obstacle=explain_no_salvage,
    fix_frames=LazyRef("tarantool.damage:rebuild_block_headers"),
)
