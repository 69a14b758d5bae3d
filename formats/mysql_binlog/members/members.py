"""Dispatch by file kind of a log: detection, layout, validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from binlogtool.findings import Finding
from binlogtool.formats.binlog_events.codes import ENCRYPTED_MAGIC, MAGIC
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.detecting import FileHead, FormatMatch
from binlogtool.formats.judging import FileTail, ValidationResult, Validator
from binlogtool.formats.layouts import Batch, Kernel, LogFileLayout
from binlogtool.formats.mysql_binlog.layout.layout import create_layout as log_layout
from binlogtool.formats.mysql_binlog.layout.layout import detect_log as detect_log
from binlogtool.formats.mysql_binlog.members.gtid_index import (
    create_gtid_index_layout,
    detect_gtid_index,
    is_gtid_index,
)
from binlogtool.formats.mysql_binlog.members.index import create_text_layout, detect_text_file, get_text_kind
from binlogtool.limits import Limits


def detect_member(head: FileHead) -> FormatMatch:
    """Detect a log, its GTID index, or one of the text files next to it."""
    return max(detect_log(head), detect_gtid_index(head), detect_text_file(head), key=_get_score)


def _get_score(match: FormatMatch) -> int:
    """Return the score of a match."""
    return match.score


def create_layout(head: FileHead, limits: Limits) -> LogFileLayout:
    """Return the layout of a log, its GTID index, or a text file.

    Raises:
        KeyFileError: the keys that the user named do not decrypt this log.
    """
    kind = get_text_kind(head.name.rpartition("/")[2])
    if head.data.startswith((MAGIC, ENCRYPTED_MAGIC)):
        return log_layout(head, limits)
    if is_gtid_index(head):
        return create_gtid_index_layout(head)
    return log_layout(head, limits) if kind is None else create_text_layout(head, kind)


class _NoRecordsValidator:
    """Validator of a file without records: its layout has all findings."""

    def feed(self, batch: Batch) -> Sequence[Finding]:
        return ()

    def skip_damage(self, start: int, end: int) -> None:
        return None

    def finish(self, tail: FileTail) -> ValidationResult:
        return ValidationResult(0, {})


def create_validator(layout: LogFileLayout, compile: Callable[[Kernel], Kernel], limits: Limits) -> Validator:
    """Create the validator for one file of any kind."""
    if not isinstance(layout.context, BinlogFileContext):
        return _NoRecordsValidator()
    from binlogtool.formats.mysql_binlog.judge import judge as judging

    return judging.create_validator(layout, compile, limits)
