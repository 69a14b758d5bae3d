"""Constructs of the servers' text files: the index, GTID state and replication positions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from construct import Construct, Struct

from binlogtool.formats.fields import TracePart
from binlogtool.formats.mysql_binlog.members.names import parse_log_name, to_printable
from binlogtool.limits import KIB, Limits

MAX_LINE_SIZE = 4 * KIB
"""No path is longer (the servers' FN_REFLEN is 512)."""

MAX_ANNOTATED_LINES = 1 << 16
"""Lines that the annotated hexdump shows one by one."""

GTID_LINE = re.compile(rb"(\d{1,10})-(\d{1,10})-(\d{1,20})")


class TextLines(Construct):  # type: ignore[misc]
    """Construct of all lines to the end of the file.

    Args:
        labels: names of the first lines; the others have numbers.
        explain: returns what a line says.
    """

    fills_stream = True

    def __init__(self, labels: Sequence[str] = (), explain: Callable[[bytes], str] | None = None) -> None:
        super().__init__()
        self.labels, self.explain = labels, explain

    def _parse(self, stream: Any, context: Any, path: str) -> list[bytes]:
        return [line for line in stream.read().split(b"\n") if line]

    def _build(self, obj: list[bytes], stream: Any, context: Any, path: str) -> Any:
        stream.write(b"".join(line + b"\n" for line in obj))
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield one part for each line with its line feed; what follows the first 65,536 lines is one part."""
        at = start
        for number in range(MAX_ANNOTATED_LINES):
            if at >= end:
                return
            line_feed = data.find(b"\n", at, end)
            stop = end if line_feed < 0 else line_feed + 1
            name = f".{self.labels[number]}" if number < len(self.labels) else f"[{number}]"
            text = data[at : stop - (line_feed >= 0)]
            explanation = self.explain(text) if self.explain is not None and len(text) <= MAX_LINE_SIZE else ""
            yield TracePart(name, 1, at, stop, to_printable(text), explanation)
            at = stop
        if at < end:
            yield TracePart(".more", 1, at, end, None, f"{data.count(bytes((10,)), at, end):,} more lines")


def _explain_log_line(line: bytes) -> str:
    """Return the number of the log that a line names."""
    parsed = parse_log_name(line)
    return "" if parsed is None else f"log {parsed.number}"


def _explain_gtid_line(line: bytes) -> str:
    """Return domain and server of a GTID line."""
    matched = GTID_LINE.fullmatch(line)
    return f"domain {int(matched[1])}, server {int(matched[2])}" if matched else ""


INFO_LINE_NAMES = ("lines", "relay_log_file", "relay_log_pos", "source_log_file", "source_log_pos", "delay")
"""The first lines of relay-log.info. Servers before MySQL 5.6 and MariaDB 10.0 do not write the number of lines."""

INDEX_FILE = Struct("path" / TextLines(explain=_explain_log_line))
STATE_FILE = Struct("gtid" / TextLines(explain=_explain_gtid_line))
INFO_FILE = Struct("info" / TextLines(INFO_LINE_NAMES))
OLD_INFO_FILE = Struct("info" / TextLines(INFO_LINE_NAMES[1:]))
