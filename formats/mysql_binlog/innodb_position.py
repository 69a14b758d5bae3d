"""Read the binary log position of InnoDB's last commit from its rollback segment headers.

MariaDB writes name and offset of the binary log into the header page of the rollback segment with each commit
(storage/innobase/trx/trx0rseg.cc: trx_rseg_update_binlog_offset); at start it takes the greatest one. MySQL 8 and later
store no position there. Pages on disk may be older than the redo log, whose records are applied. Where it cannot be
read, the position is a lower bound.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.replay_rules import ExaminedFile
from binlogtool.formats.innodb.pages_after_redo import UnknownPageError
from binlogtool.formats.innodb.prepared_transactions import read_rollback_segments
from binlogtool.formats.innodb.tablespace_pages import (
    NO_PAGE,
    TRANSACTION_SYSTEM,
    TRX_SYS_PAGE,
    TYPE_SYS,
    TYPE_TRX_SYS,
    OpenSibling,
    make_rollback_segment,
    open_system_tablespaces,
)
from binlogtool.formats.mysql_binlog.index_and_state_files import LogName, parse_log_name

_MAX_REDO_BYTES = 4 << 20
"""Maximum size of the redo records that are applied: a few seconds of work."""


class InnodbPosition(NamedTuple):
    """Position in the binary log at which InnoDB has committed at least."""

    log: LogName
    offset: int
    is_lower_bound: bool = True

    @property
    def text(self) -> str:
        """The position as FILE:OFFSET."""
        return f"{self.log.name}:{self.offset}"


def read_innodb_position(open_sibling: OpenSibling, redo_size: int = 0) -> InnodbPosition | None:
    """Return the greatest position in the rollback segment headers of `ibdata1` and its undo tablespaces.

    Args:
        open_sibling: name -> reader of a file in the data directory; None = it does not exist.
        redo_size: size of `ib_logfile0` in bytes; 0 = it is not applied.
    """
    with suppress(UnknownPageError):
        headers = read_rollback_segments(open_sibling, redo_size, _MAX_REDO_BYTES) if redo_size else []
        found = [position for header in headers if (position := _parse_rollback_segment_position(header)) is not None]
        if found:
            return max(found, key=lambda one: (one.log.number, one.offset))._replace(is_lower_bound=False)
    spaces = open_system_tablespaces(open_sibling)
    page = spaces[0].read_page(TRX_SYS_PAGE, 0, TYPE_TRX_SYS) if spaces else None
    if page is None:
        return None
    positions = []
    for slot in TRANSACTION_SYSTEM.parse(page).slots:
        space = None if slot.page_number == NO_PAGE else spaces.get(slot.space_id)
        header = None if space is None else space.read_page(slot.page_number, slot.space_id, TYPE_SYS)
        segment = None if space is None or header is None else make_rollback_segment(space.page_size).parse(header)
        position = None if segment is None else _parse_rollback_segment_position(segment)
        positions += [] if position is None else [position]
    return max(positions, key=lambda one: (one.log.number, one.offset), default=None)


def _parse_rollback_segment_position(header: Any) -> InnodbPosition | None:
    """Return the position in the header of a rollback segment; None if it has none, or is older than 10.3."""
    name = header.binlog_name.partition(b"\0")[0]
    log = parse_log_name(name) if name and name.isascii() else None
    return InnodbPosition(log, header.binlog_offset) if log is not None and header.format == 0 else None


# --- Comparison with the binary log ---

_TORN_IDS = ("torn-tail", "zero-tail", "garbage-tail")


class InnodbComparison(msgspec.Struct, frozen=True):
    """Position of InnoDB and what the binary log has of it.

    Attributes:
        missing: Name of the log that is needed and does not exist; None if it exists.
        missing_bytes: Number of bytes between the end of the log and the position; 0 if it reaches the position.
        is_certain: The logs were not started anew: the first one has another number than 1.
    """

    position: InnodbPosition
    missing: str | None = None
    missing_bytes: int = 0
    is_certain: bool = False

    def as_details(self) -> dict[str, object]:
        """Return the JSON value."""
        return {"committed_to": self.position.text, "missing": self.missing, "missing_bytes": self.missing_bytes,
                "text": self.describe_loss()}  # fmt: skip

    def describe_loss(self) -> str:
        """Return one sentence about it."""
        text = f"InnoDB has committed up to {self.position.text}"
        if self.position.is_lower_bound:
            text = (
                f"InnoDB has committed at least up to {self.position.text} (its pages may be older than its redo log)"
            )
        if self.missing is None and not self.missing_bytes:
            return text
        what = (
            f"the log ends {self.missing_bytes:,} bytes before that position"
            if self.missing is None
            else f"{self.missing} is missing"
        )
        loss = "the transactions there are lost for replicas and point-in-time recovery, although InnoDB has them"
        doubt = "" if self.is_certain else "no loss if the logs were reset (RESET MASTER) since; else "
        return f"{text}; {what}: {doubt}{loss}"

    def make_loss_finding(self) -> Finding | None:
        """Return the finding about a certain loss, else None."""
        if not self.is_certain or not (self.missing or self.missing_bytes):
            return None
        return make_finding("silent-loss", None, 0, self.describe_loss(), situation="apply")


def compare_with_innodb(
    files: Sequence[ExaminedFile], open_sibling: OpenSibling, *, after_crash: bool
) -> InnodbComparison | None:
    """Compare the logs of a data directory with the position of InnoDB; None if it stores none for these logs."""
    position = read_innodb_position(open_sibling, _find_redo_size(files) if after_crash else 0)
    logs = {name: file for file in files if (name := parse_log_name(file.name)) is not None}
    if position is None or not any(name.base == position.log.base for name in logs):
        return None
    numbers = [name.number for name in logs if name.base == position.log.base]
    is_certain = min(numbers) > 1
    log_file = next((file for name, file in logs.items() if name == position.log), None)
    if log_file is None:
        is_purged = position.log.number < min(numbers)
        return InnodbComparison(position, None if is_purged else position.log.name, 0, is_certain)
    end = min((one.offset for one in log_file.findings if one.id in _TORN_IDS and one.offset is not None),
              default=log_file.size)  # fmt: skip
    return InnodbComparison(position, None, max(0, position.offset - min(end, log_file.size)), is_certain)


def _find_redo_size(files: Sequence[ExaminedFile]) -> int:
    """Return the size of the redo log beside the logs; 0 = there is none."""
    try:
        return os.path.getsize(os.path.join(os.path.dirname(files[-1].path), "ib_logfile0"))
    except (OSError, IndexError):
        return 0
