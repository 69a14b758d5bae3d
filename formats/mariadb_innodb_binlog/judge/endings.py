"""Validate what only the end of a file reveals: its size, its GTID states, how it was closed.

See docs/spec/mariadb-innodb-binlog.md#15-invariants-for-verify-and-diagnoses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.judging import Tail
from binlogtool.formats.mariadb_innodb_binlog.codes import CRC_SIZE

if TYPE_CHECKING:
    from binlogtool.formats.mariadb_innodb_binlog.judge.judge import FileJudge

_CLOSED = CRC_SIZE + 3
"""A page is used to its end if at most the filler and the CRC are left."""


def ending(judge: FileJudge, tail: Tail) -> Iterator[Finding]:
    """Validate a file as a whole."""
    if judge.context.empty and not judge.types:
        return
    yield from _size(judge, tail)
    yield from _states(judge, tail)


def _size(judge: FileJudge, tail: Tail) -> Iterator[Finding]:
    """Check V-SIZE: as many whole pages as the header says; fewer only after FLUSH BINARY LOGS, which closes a file."""
    context, seen, size = judge.context, judge.context.seen, judge.context.page_size
    pages, rest = divmod(tail.size, size)
    said = None if context.header is None else context.header.page_count
    if rest or (said is not None and pages < said):
        closed = not rest and not seen.open and not seen.zeros and seen.end >= tail.size - _CLOSED
        if closed:
            return
        whole = f"of {said:,} pages there are {pages:,}" if said is not None else f"{pages:,} pages"
        text = f"truncated-file: {whole}{f' and {rest:,} bytes' if rest else ''}, and the last one is not closed"
        empty = seen.data_end is not None or (
            seen.zeros and not rest and all("zero" in one.id or "preall" in one.id for one in tail.findings)
        )
        lost = Severity.WARNING if empty else None
        yield finding(
            "gap-in-sequence",
            tail.size,
            0,
            text,
            severity=lost,
            diagnosis="truncated-file",
            pages=pages,
            page_count=said,
        )
    elif said is not None and pages > said:
        extra = pages - said
        if extra == 1 and seen.zeros and seen.end <= said * size:
            text = "flush-exact-end: one page of zeros behind the last one, as FLUSH BINARY LOGS adds it to a full file"
            yield finding("zero-tail", said * size, size, text, diagnosis="flush-exact-end")
            return
        text = f"the header says {said:,} pages, the file has {pages:,}"
        yield finding("meta-mismatch", 24, 8, text, severity=Severity.WARNING, diagnosis="bad-size")


def _states(judge: FileJudge, tail: Tail) -> Iterator[Finding]:
    """Check V-STATE: a GTID state at the start of page 1 and of each multiple of the interval, up to the data end."""
    context = judge.context
    header, size = context.header, context.page_size
    if header is None or judge.stop <= size:
        return
    used = -(-judge.stop // size)
    wanted = {1}
    interval = header.diff_state_interval
    if interval and not interval & (interval - 1):
        wanted |= set(range(interval, min(used, header.page_count - 1), interval))
    missing = [page for page in sorted(wanted - judge.states) if not _damaged(judge, page * size, (page + 1) * size)]
    for page in missing[:100]:
        severity = Severity.ERROR if page == 1 else Severity.WARNING
        text = f"state-missing: no GTID_STATE record at the start of page {page}"
        yield finding("meta-mismatch", page * size, 0, text, severity=severity, diagnosis="state-missing")


def _damaged(judge: FileJudge, start: int, end: int) -> bool:
    return any(low < end and start < high for low, high in judge.damages)
