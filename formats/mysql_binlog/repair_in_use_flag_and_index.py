"""Repair rules of a binary log.

Source: docs/spec/mysql_binlog.md#transactions-and-truncation.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Sequence

from binlogtool.format_api.format import ByteEdit, FileFix, RepairRules
from binlogtool.format_api.layout import LogFileLayout, RangeReader
from binlogtool.formats.binlog_events.decode import BinlogFileContext
from binlogtool.formats.binlog_events.wire_format import FLAGS_AT, MAGIC, EventFlag
from binlogtool.formats.mysql_binlog.index_and_state_files import INDEX_NAME, parse_log_name, split_joined_names

MAX_INDEX_BYTES = 1 << 20
MAX_EMPTY_LOG_BYTES = 1024
"""Maximum size in bytes of a log without a complete FORMAT_DESCRIPTION; servers write fewer than 300 bytes for it."""


def make_in_use_flag_edit(layout: LogFileLayout, read_raw: RangeReader) -> Sequence[ByteEdit]:
    """Clear the in-use flag, as the server does after its own recovery.

    This also works in a file encrypted by MySQL: flipping a bit of the counter-mode ciphertext flips the same bit of
    the plain text.
    """
    context = layout.context
    if not isinstance(context, BinlogFileContext) or context.is_relay_log or context.encrypted_without_key:
        return ()
    if not context.description.flags & EventFlag.BINLOG_IN_USE:
        return ()
    flags_at = context.events_at + FLAGS_AT
    old_byte = read_raw(flags_at, 1)
    return (ByteEdit(flags_at, old_byte, bytes([old_byte[0] ^ EventFlag.BINLOG_IN_USE])),)


def fix_index_files(names: Sequence[str], read: Callable[[str], RangeReader]) -> Iterator[FileFix]:
    """Rewrite index files so that servers can read them.

    Joined lines are split, line ends are corrected, and the lines of missing logs are removed. If the newest log is
    still empty, its line and the file itself are removed. An index is left unchanged if a log between two others is
    missing: without its line the server would silently skip its transactions, although the preceding ROTATE still names
    it.
    """
    logs = [name for name in names if parse_log_name(posixpath.basename(name)) is not None]
    existing = {posixpath.basename(name) for name in names}
    for name in names:
        if not INDEX_NAME.fullmatch(posixpath.basename(name)):
            continue
        data = read(name)(0, MAX_INDEX_BYTES + 1)
        if len(data) > MAX_INDEX_BYTES:
            continue
        lines, changes = _parse_index_lines(data)
        missing = _add_unlisted_logs(name, lines, logs)
        if missing:
            changes.append(f"with {_count_files(missing)} {'was' if missing == 1 else 'were'} not listed")
        missing_flags = [_is_missing_log_line(line, existing) for line in lines]
        if not lines or all(missing_flags) or _has_missing_log_between(missing_flags):
            continue
        if gone := sum(missing_flags):
            changes.append(f"without {_count_files(gone)} {'does' if gone == 1 else 'do'} not exist")
        lines = [line for line, out in zip(lines, missing_flags, strict=True) if not out]
        empty = _find_empty_newest_log(lines, logs, read)
        if empty is not None:
            changes.append(f"without {posixpath.basename(empty)}, which is still empty")
            lines.pop()
        content = b"".join(line + b"\n" for line in lines)
        if content == data:
            continue
        yield FileFix(name, content, "; ".join(changes))
        if empty is not None:
            yield FileFix(empty, None, "the file is still empty, and the server fails to start with it")


def _count_files(count: int) -> str:
    return f"{count} {'file' if count == 1 else 'files'} that"


def _parse_index_lines(index_bytes: bytes) -> tuple[list[bytes], list[str]]:
    """Return the names in an index, each once, and descriptions of what was wrong with its lines."""
    raw_lines, unfinished = index_bytes.split(b"\n"), bool(index_bytes) and not index_bytes.endswith(b"\n")
    lines: dict[bytes, None] = {}
    joined_count = cr_count = blank_count = duplicate_count = 0
    for line in raw_lines if unfinished else raw_lines[:-1]:
        text = line.strip(b"\0")
        cr_count += text.endswith(b"\r")
        parts = split_joined_names(text.removesuffix(b"\r"))
        joined_count += len(parts) > 1
        blank_count += parts == [b""]
        for part in parts:
            duplicate_count += part in lines
            lines |= {part: None} if part else {}
    if unfinished and lines and parse_log_name(next(reversed(lines))) is None:
        lines.popitem()
    descriptions = (
        (joined_count, "joined lines split"),
        (cr_count, "CR LF replaced by LF"),
        (blank_count, "without empty lines"),
        (duplicate_count, "without repeated lines"),
        (unfinished, "the last line terminated"),
    )
    return list(lines), [text for count, text in descriptions if count]


def _add_unlisted_logs(index_name: str, lines: list[bytes], logs: Sequence[str]) -> int:
    """Add to an index the unlisted logs after its first one (all logs to an empty index); return their number.

    After a crash the server reads the newest log first, and replicas miss the transactions of unlisted logs. Nothing is
    added if the numbers of these logs have gaps.
    """
    base = posixpath.basename(index_name).removesuffix(".index")
    listed = [parsed.number for line in lines if (parsed := parse_log_name(line)) is not None and parsed.base == base]
    named = (parse_log_name(posixpath.basename(name)) for name in logs)
    existing = sorted(known.number for known in named if known is not None and known.base == base)
    if not existing or (lines and (len(listed) < len(lines) or listed != sorted(listed))):
        return 0
    unlisted = [number for number in existing if not listed or (number > listed[0] and number not in listed)]
    if existing[-1] - (listed[0] if listed else existing[0]) >= len(unlisted) + len(listed):
        return 0
    folder = lines[-1][: lines[-1].rfind(b"/") + 1] if lines else b"./"
    for number in unlisted:
        place = sum(one < number for one in listed)
        listed.insert(place, number)
        lines.insert(place, folder + os.fsencode(f"{base}.{number:06d}"))
    return len(unlisted)


def _find_empty_newest_log(
    lines: Sequence[bytes], logs: Sequence[str], read: Callable[[str], RangeReader]
) -> str | None:
    """Return the name of the newest log if it is empty and makes the server fail at startup; None otherwise.

    A log is empty if it has no magic number or only zeros. If the preceding log is MariaDB's, a log without a complete
    FORMAT_DESCRIPTION is empty too.
    """
    if len(lines) < 2:
        return None
    by_name = {posixpath.basename(name): name for name in logs}
    last, before = (by_name.get(posixpath.basename(os.fsdecode(line))) for line in (lines[-1], lines[-2]))
    if last is None or before is None:
        return None
    head = read(last)(0, MAX_INDEX_BYTES + 1)
    if len(head) < len(MAGIC) or (len(head) <= MAX_INDEX_BYTES and not any(head)):
        return last
    if len(head) > MAX_EMPTY_LOG_BYTES:
        return None
    description_end = len(MAGIC) + int.from_bytes(head[13:17], "little") if len(head) >= 17 else MAX_EMPTY_LOG_BYTES
    is_mariadb = b"MariaDB" in read(before)(0, MAX_EMPTY_LOG_BYTES)
    return (
        last
        if is_mariadb and head.startswith(MAGIC) and len(head) < min(description_end, MAX_EMPTY_LOG_BYTES)
        else None
    )


def _is_missing_log_line(line: bytes, existing: set[str]) -> bool:
    """Return whether the line names a log of this directory, and this log does not exist."""
    base = posixpath.basename(line.decode("utf-8", "surrogateescape"))
    return parse_log_name(base) is not None and base not in existing


def _has_missing_log_between(missing_flags: Sequence[bool]) -> bool:
    """Return whether a line between two lines that stay would be removed."""
    kept_indexes = [number for number, out in enumerate(missing_flags) if not out]
    return kept_indexes[-1] - kept_indexes[0] >= len(kept_indexes)


REPAIR = RepairRules(
    head_edits=make_in_use_flag_edit,
    edits_note="the in-use flag is cleared: after a crash the server will not search this file for prepared "
    "transactions when it starts, and rolls them back or stops; without --fix-meta it searches for them",
    fix_files=fix_index_files,
    salvage_obstacle="positions inside events and the set of transactions would no longer be right; "
    "truncate the log at the damage, and recover the events after it with dump --on-damage salvage, or convert",
)
