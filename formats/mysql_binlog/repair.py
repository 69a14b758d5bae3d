"""Repair rules of a binary log.

Source: docs/spec/mysql-mariadb-binlog.md#8-transactions-durability-truncation.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Sequence

from binlogtool.formats.binlog_events.codes import MAGIC, EventFlag
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.layouts import Layout, Read
from binlogtool.formats.mysql_binlog.members.names import INDEX, log_name
from binlogtool.formats.mysql_binlog.members.server_list import split_joined
from binlogtool.formats.repair_rules import Edit, Mended, Repair

FLAGS_AT = 17
"""Where the flags stand in an event; those of FORMAT_DESCRIPTION are left out of its checksum."""

MAX_INDEX = 1 << 20
MAX_HEAD = 1024
"""Bytes of a log without a whole FORMAT_DESCRIPTION; servers write fewer than 300 for it."""


def head_edits(layout: Layout, raw: Read) -> Sequence[Edit]:
    """Clear the flag that says that a server writes to the file, as the server does after its own recovery.

    In a file that MySQL encrypted, changing a bit of the counter-mode ciphertext changes the same bit of the
    plain text.
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
    """Rewrite index files so that servers can read them.

    Joined lines are split, line ends are corrected, and lines of logs that do not exist are removed, as well as
    a newest log that is still empty; that file is removed too. An index is left unchanged if a log between
    others is missing: without its line the server would silently skip its transactions, while the ROTATE before
    them would still name it.
    """
    logs = [name for name in names if log_name(posixpath.basename(name)) is not None]
    there = {posixpath.basename(name) for name in names}
    for name in names:
        if not INDEX.fullmatch(posixpath.basename(name)):
            continue
        data = read(name)(0, MAX_INDEX + 1)
        if len(data) > MAX_INDEX:
            continue
        lines, done = _clean_lines(data)
        missing = _add_unlisted(name, lines, logs)
        done += [f"with {missing} files that it does not list"] if missing else []
        gone = [_gone(line, there) for line in lines]
        if not lines or all(gone) or _hole(gone):
            continue
        done += [f"without {sum(gone)} listed files that are not there"] if any(gone) else []
        lines = [line for line, out in zip(lines, gone, strict=True) if not out]
        empty = _empty_newest(lines, logs, read)
        if empty is not None:
            done.append(f"without {posixpath.basename(empty)}, in which nothing is written yet")
            lines.pop()
        content = b"".join(line + b"\n" for line in lines)
        if content == data:
            continue
        yield Mended(name, content, "; ".join(done))
        if empty is not None:
            yield Mended(empty, None, "nothing is written in it yet, and the server stops at it")


def _clean_lines(data: bytes) -> tuple[list[bytes], list[str]]:
    """Return the names in an index, each once, and descriptions of what was wrong with its lines."""
    raw, unfinished = data.split(b"\n"), bool(data) and not data.endswith(b"\n")
    lines: dict[bytes, None] = {}
    joined = returns = blank = double = 0
    for line in raw if unfinished else raw[:-1]:
        text = line.strip(b"\0")
        returns += text.endswith(b"\r")
        parts = split_joined(text.removesuffix(b"\r"))
        joined += len(parts) > 1
        blank += parts == [b""]
        for part in parts:
            double += part in lines
            lines |= {part: None} if part else {}
    if unfinished and lines and log_name(next(reversed(lines))) is None:
        lines.popitem()
    said = (
        (joined, "joined lines split"),
        (returns, "CR LF replaced by LF"),
        (blank, "without empty lines"),
        (double, "without repeated lines"),
        (unfinished, "the last line ended"),
    )
    return list(lines), [text for count, text in said if count]


def _add_unlisted(index: str, lines: list[bytes], logs: Sequence[str]) -> int:
    """Add logs that an index lacks after its first one; return their number.

    After a crash the server reads the newest one first, and replicas miss what is not listed. Nothing is added
    if files are missing among them.
    """
    base = posixpath.basename(index).removesuffix(".index")
    listed = [known.number for line in lines if (known := log_name(line)) is not None and known.base == base]
    named = (log_name(posixpath.basename(name)) for name in logs)
    own = sorted(known.number for known in named if known is not None and known.base == base)
    if not own or (lines and (len(listed) < len(lines) or listed != sorted(listed))):
        return 0
    new = [number for number in own if not listed or (number > listed[0] and number not in listed)]
    if own[-1] - (listed[0] if listed else own[0]) >= len(new) + len(listed):
        return 0
    folder = lines[-1][: lines[-1].rfind(b"/") + 1] if lines else b"./"
    for number in new:
        place = sum(one < number for one in listed)
        listed.insert(place, number)
        lines.insert(place, folder + os.fsencode(f"{base}.{number:06d}"))
    return len(new)


def _empty_newest(lines: Sequence[bytes], logs: Sequence[str], read: Callable[[str], Read]) -> str | None:
    """Return the newest log if it is empty and the server fails at it; None otherwise.

    It is empty if it has no magic number or only zeros; for MariaDB (by the preceding log) also without a
    complete FORMAT_DESCRIPTION.
    """
    if len(lines) < 2:
        return None
    by_name = {posixpath.basename(name): name for name in logs}
    last, before = (by_name.get(posixpath.basename(os.fsdecode(line))) for line in (lines[-1], lines[-2]))
    if last is None or before is None:
        return None
    head = read(last)(0, MAX_INDEX + 1)
    if len(head) < len(MAGIC) or (len(head) <= MAX_INDEX and not any(head)):
        return last
    if len(head) > MAX_HEAD:
        return None
    whole = len(MAGIC) + int.from_bytes(head[13:17], "little") if len(head) >= 17 else MAX_HEAD
    maria = b"MariaDB" in read(before)(0, MAX_HEAD)
    return last if maria and head.startswith(MAGIC) and len(head) < min(whole, MAX_HEAD) else None


def _gone(line: bytes, there: set[str]) -> bool:
    """Return whether the line names a log of this directory that does not exist."""
    base = posixpath.basename(line.decode("utf-8", "surrogateescape"))
    return log_name(base) is not None and base not in there


def _hole(gone: Sequence[bool]) -> bool:
    """Return whether a line between others would be removed."""
    kept = [number for number, out in enumerate(gone) if not out]
    return kept[-1] - kept[0] >= len(kept)


REPAIR = Repair(
    head_edits=head_edits,
    edits_note="the in-use flag is cleared: a server that crashed will not look into this file for prepared "
    "transactions when it starts, and rolls them back or stops; without --fix-meta it looks for them",
    mend=mend,
    salvage="positions inside events and the set of transactions would not be true any more; cut the log at the damage "
    "and take what follows with dump --on-damage salvage, or convert",
)
