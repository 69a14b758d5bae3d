"""What a repair of a binary log needs to know (specification section 8)."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence

from binlogtool.formats.binlog_events.codes import EventFlag
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.layouts import Layout, Read
from binlogtool.formats.mysql_binlog.members.names import INDEX, log_name
from binlogtool.formats.repair_rules import Edit, Mended, Repair

FLAGS_AT = 17
"""Where the flags stand in an event; those of FORMAT_DESCRIPTION are left out of its checksum."""

MAX_INDEX = 1 << 20


def head_edits(layout: Layout, raw: Read) -> Sequence[Edit]:
    """Clears the flag that says that a server writes to the file, as the server does behind its own recovery.

    In a file that MySQL encrypted, a bit of the counter-mode stream is changed: that changes the same bit below it.
    """
    context = layout.context
    if not isinstance(context, FileContext) or context.relay or context.sealed:
        return ()
    if not context.description.flags & EventFlag.BINLOG_IN_USE:
        return ()
    place = context.start + FLAGS_AT
    old = raw(place, 1)
    return (Edit(place, old, bytes([old[0] ^ EventFlag.BINLOG_IN_USE])),)


def mend(names: Sequence[str], read: Callable[[str], Read]) -> Iterator[Mended]:
    """Index files: without logs that are not there.

    Not where one is missing between others: without its line the server would skip its transactions without a word, and
    the ROTATE in front of them would still name it.
    """
    there = {posixpath.basename(name) for name in names}
    for name in names:
        if not INDEX.fullmatch(posixpath.basename(name)):
            continue
        data = read(name)(0, MAX_INDEX + 1)
        lines = data.splitlines(keepends=True)
        gone = [_gone(line, there) for line in lines]
        if len(data) > MAX_INDEX or not any(gone) or all(gone) or _hole(gone):
            continue
        content = b"".join(line for line, out in zip(lines, gone, strict=True) if not out)
        yield Mended(name, content, f"without {sum(gone)} listed files that are not there")


def _gone(line: bytes, there: set[str]) -> bool:
    """Does the line name a log of this directory that does not exist?"""
    path = line.rstrip(b"\n").decode("utf-8", "surrogateescape")
    base = posixpath.basename(path)
    return log_name(base) is not None and base not in there


def _hole(gone: Sequence[bool]) -> bool:
    """Would a line go that stands between others that stay?"""
    kept = [number for number, out in enumerate(gone) if not out]
    return kept[-1] - kept[0] >= len(kept)


REPAIR = Repair(
    head_edits=head_edits,
    edits_note="the in-use flag is cleared: a server that crashed will not look into this file for prepared "
    "transactions when it starts; without --fix-meta it does",
    mend=mend,
    salvage="positions inside events and the set of transactions would not be true any more; cut the log at the damage "
    "and take what follows with dump --on-damage salvage, or convert",
)
