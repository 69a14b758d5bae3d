"""Validate what only the end of a file reveals: its size, its GTID states, how it was closed.

See docs/spec/mariadb_innodb_binlog.md#validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.judging import FileTail
from binlogtool.formats.mariadb_innodb_binlog.codes import CRC_SIZE

if TYPE_CHECKING:
    from binlogtool.formats.mariadb_innodb_binlog.judge.judge import IbbFileValidator

_MAX_CLOSED_REST = CRC_SIZE + 3
"""A page is used to its end if at most the filler and the CRC are left."""


def validate_file_end(validator: IbbFileValidator, tail: FileTail) -> Iterator[Finding]:
    """Validate a file as a whole."""
    if validator.context.starts_with_zeros and not validator.type_counts:
        return
    yield from _check_size(validator, tail)
    yield from _check_states(validator, tail)


def _check_size(validator: IbbFileValidator, tail: FileTail) -> Iterator[Finding]:
    """Check V-SIZE: as many whole pages as the header says; fewer only after FLUSH BINARY LOGS, which closes a file."""
    context, seen, size = validator.context, validator.context.scan_summary, validator.context.page_size
    pages, rest = divmod(tail.size, size)
    declared_pages = None if context.header is None else context.header.page_count
    if rest or (declared_pages is not None and pages < declared_pages):
        is_closed = (
            not rest and not seen.open_type and not seen.ends_with_zeros and seen.end >= tail.size - _MAX_CLOSED_REST
        )
        if is_closed:
            return
        pages_text = (
            f"of {declared_pages:,} pages there are {pages:,}" if declared_pages is not None else f"{pages:,} pages"
        )
        text = f"truncated-file: {pages_text}{f' and {rest:,} bytes' if rest else ''}, and the last one is not closed"
        is_unused = seen.data_end is not None or (
            seen.ends_with_zeros and not rest and all("zero" in one.id or "preall" in one.id for one in tail.findings)
        )
        severity = Severity.WARNING if is_unused else None
        yield make_finding(
            "gap-in-sequence",
            tail.size,
            0,
            text,
            severity=severity,
            diagnosis="truncated-file",
            pages=pages,
            page_count=declared_pages,
        )
    elif declared_pages is not None and pages > declared_pages:
        extra = pages - declared_pages
        if extra == 1 and seen.ends_with_zeros and seen.end <= declared_pages * size:
            text = "flush-exact-end: one page of zeros behind the last one, as FLUSH BINARY LOGS adds it to a full file"
            yield make_finding("zero-tail", declared_pages * size, size, text, diagnosis="flush-exact-end")
            return
        text = f"the header says {declared_pages:,} pages, the file has {pages:,}"
        yield make_finding("meta-mismatch", 24, 8, text, severity=Severity.WARNING, diagnosis="bad-size")


def _check_states(validator: IbbFileValidator, tail: FileTail) -> Iterator[Finding]:
    """Check V-STATE: a GTID state at the start of page 1 and of each multiple of the interval, up to the data end."""
    context = validator.context
    header, size = context.header, context.page_size
    if header is None or validator.last_stop <= size:
        return
    used_pages = -(-validator.last_stop // size)
    expected_pages = {1}
    interval = header.diff_state_interval
    if interval and not interval & (interval - 1):
        expected_pages |= set(range(interval, min(used_pages, header.page_count - 1), interval))
    missing_pages = [
        page
        for page in sorted(expected_pages - validator.state_pages)
        if not _is_damaged_range(validator, page * size, (page + 1) * size)
    ]
    for page in missing_pages[:100]:
        severity = Severity.ERROR if page == 1 else Severity.WARNING
        text = f"state-missing: no GTID_STATE record at the start of page {page}"
        yield make_finding("meta-mismatch", page * size, 0, text, severity=severity, diagnosis="state-missing")


def _is_damaged_range(validator: IbbFileValidator, start: int, end: int) -> bool:
    return any(low < end and start < high for low, high in validator.damaged_ranges)
