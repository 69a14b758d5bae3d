"""Dispatch by file kind of a log: detection, layout, validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from binlogtool.findings import Finding
from binlogtool.formats.binlog_events.codes import ENCRYPTED_MAGIC, MAGIC
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.detecting import Head, Match
from binlogtool.formats.judging import Judge, Tail, Verdict
from binlogtool.formats.layouts import Batch, Kernel, Layout
from binlogtool.formats.mysql_binlog.layout.layout import detect as detect_log
from binlogtool.formats.mysql_binlog.layout.layout import layout as log_layout
from binlogtool.formats.mysql_binlog.members.gtid_index import detect_gtid_index, gtid_index_layout, is_gtid_index
from binlogtool.formats.mysql_binlog.members.index import detect_text, text_kind, text_layout
from binlogtool.limits import Limits


def detect(head: Head) -> Match:
    """Detect a log, its GTID index, or one of the text files next to it."""
    return max(detect_log(head), detect_gtid_index(head), detect_text(head), key=_score)


def _score(match: Match) -> int:
    """Return the score of a match."""
    return match.score


def layout(head: Head, limits: Limits) -> Layout:
    """Return the layout of a log, its GTID index, or a text file.

    Raises:
        KeyFileError: the keys that the user named do not decrypt this log.
    """
    kind = text_kind(head.name.rpartition("/")[2])
    if head.data.startswith((MAGIC, ENCRYPTED_MAGIC)):
        return log_layout(head, limits)
    if is_gtid_index(head):
        return gtid_index_layout(head)
    return log_layout(head, limits) if kind is None else text_layout(head, kind)


class _NoRecords:
    """Validator of a file without records: its layout has all findings."""

    def feed(self, batch: Batch) -> Sequence[Finding]:
        return ()

    def damage(self, start: int, end: int) -> None:
        return None

    def finish(self, tail: Tail) -> Verdict:
        return Verdict(0, {})


def judge(layout: Layout, compile: Callable[[Kernel], Kernel], limits: Limits) -> Judge:
    """Create the validator for one file of any kind."""
    if not isinstance(layout.context, FileContext):
        return _NoRecords()
    from binlogtool.formats.mysql_binlog.judge import judge as judging

    return judging.judge(layout, compile, limits)
