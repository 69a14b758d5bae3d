"""Constructs of the servers' text files: the index, GTID state and replication positions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from construct import Construct, Struct

from binlogtool.formats.fields import Part
from binlogtool.formats.mysql_binlog.members.names import log_name, printable
from binlogtool.limits import KIB, Limits

LONGEST_LINE = 4 * KIB
"""No path is longer (the servers' FN_REFLEN is 512)."""

SHOWN_LINES = 1 << 16
"""Lines that the annotated hexdump shows one by one."""

GTID = re.compile(rb"(\d{1,10})-(\d{1,10})-(\d{1,20})")


class Lines(Construct):  # type: ignore[misc]
    """Construct of all lines to the end of the file.

    Args:
        labels: names of the first lines; the others have numbers.
        explain: returns what a line says.
    """

    fills_stream = True

    def __init__(self, labels: Sequence[str] = (), meaning: Callable[[bytes], str] | None = None) -> None:
        super().__init__()
        self.labels, self.meaning = labels, meaning

    def _parse(self, stream: Any, context: Any, path: str) -> list[bytes]:
        return [line for line in stream.read().split(b"\n") if line]

    def _build(self, obj: list[bytes], stream: Any, context: Any, path: str) -> Any:
        stream.write(b"".join(line + b"\n" for line in obj))
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Yield one part for each line with its line feed; what follows the first 65,536 lines is one part."""
        at = start
        for number in range(SHOWN_LINES):
            if at >= end:
                return
            feed = data.find(b"\n", at, end)
            stop = end if feed < 0 else feed + 1
            name = f".{self.labels[number]}" if number < len(self.labels) else f"[{number}]"
            text = data[at : stop - (feed >= 0)]
            meaning = self.meaning(text) if self.meaning is not None and len(text) <= LONGEST_LINE else ""
            yield Part(name, 1, at, stop, printable(text), meaning)
            at = stop
        if at < end:
            yield Part(".more", 1, at, end, None, f"{data.count(bytes((10,)), at, end):,} more lines")


def _names_log(line: bytes) -> str:
    """Return the number of the log that a line names."""
    known = log_name(line)
    return "" if known is None else f"log {known.number}"


def _gtid_words(line: bytes) -> str:
    """Return domain and server of a GTID line."""
    matched = GTID.fullmatch(line)
    return f"domain {int(matched[1])}, server {int(matched[2])}" if matched else ""


INFO_LINES = ("lines", "relay_log_file", "relay_log_pos", "source_log_file", "source_log_pos", "delay")
"""The first lines of relay-log.info. Servers before MySQL 5.6 and MariaDB 10.0 do not write the number of lines."""

INDEX_FILE = Struct("path" / Lines(meaning=_names_log))
STATE_FILE = Struct("gtid" / Lines(meaning=_gtid_words))
INFO_FILE = Struct("info" / Lines(INFO_LINES))
OLD_INFO_FILE = Struct("info" / Lines(INFO_LINES[1:]))
