"""Names of the files of a log.

Source: docs/spec/mysql_binlog.md#file-kinds, #transactions-and-truncation and
#mariadb-gtid-index.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

_LOG_NAME = re.compile(r"(?P<base>.+)\.(?P<number>\d{6,18})", re.DOTALL)
INDEX_NAME = re.compile(r"(?!\d+\.index\Z).+\.index", re.DOTALL)
"""Any base name but one of digits only: such an index is another format's."""
STATE_NAME = re.compile(r".+\.state", re.DOTALL)
INFO_NAME = re.compile(r"relay-log.*\.info", re.DOTALL)
LEFTOVER_NAME = re.compile(r".+\.(?:index_crash_safe|~rec~)", re.DOTALL)
GTID_INDEX_NAME = re.compile(r"(?P<log>.+\.\d{6,18})\.idx", re.DOTALL)

_SIX_DIGITS = "[0-9]" * 6
LOG_PATTERNS = (f"*.{_SIX_DIGITS}", f"*.{_SIX_DIGITS}[0-9]")
TEXT_FILE_PATTERNS = ("*[!0-9]*.index", "*.index_crash_safe", "*.~rec~", "*.state", "relay-log*.info")
TEMPORARY_PATTERNS = ("*.index_crash_safe", "*.~rec~")
"""A rotation or a purge makes them, and removes them at once."""

FILE_PATTERNS = (*LOG_PATTERNS, *TEXT_FILE_PATTERNS, f"*.{_SIX_DIGITS}.idx", f"*.{_SIX_DIGITS}[0-9].idx")
"""Patterns of all files that may belong to a log."""


class LogName(NamedTuple):
    """Name of a log file without its folder: `base.000042`."""

    name: str
    base: str
    number: int

    def make_sibling(self, number: int) -> str:
        """Return the name of another file of the same log."""
        return f"{self.base}.{number:06d}"


def parse_log_name(path: bytes | str) -> LogName | None:
    """Return the log file that a path names, on Unix or Windows; None if it is not a log file's name."""
    text = path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")
    name = re.split(r"[/\\]", text)[-1]
    match = _LOG_NAME.fullmatch(name)
    return LogName(name, sys.intern(match["base"]), int(match["number"])) if match else None


def get_stem(name: str) -> str | None:
    """Return what the logs of a server, their index and related files have in common."""
    base = re.fullmatch(r"(.+)\.(?:\d{6,18}(?:\.idx)?|index|state|index_crash_safe|~rec~)", name, re.DOTALL)
    return base[1] if base else None


def is_next_file(previous: str, name: str) -> bool:
    """Return whether the second name is the next file of the same log."""
    first, second = parse_log_name(previous), parse_log_name(name)
    return first is not None and second is not None and (first.base, first.number + 1) == (second.base, second.number)


def get_folder(path: bytes) -> bytes:
    """Return the folder of a path, without the last separator."""
    at = max(path.rfind(b"/"), path.rfind(b"\\"))
    return path[:at].rstrip(b"/\\") or path[:1] if at >= 0 else b""


def to_printable(name: bytes | str) -> str:
    """Return at most 200 characters of a name as text that is safe to write anywhere."""
    data = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
    text = data[:200].decode("utf-8", "backslashreplace")
    return text + "…" if len(data) > 200 else text


def sort_names(names: Sequence[str]) -> list[str]:
    """Return the names sorted: per base the files about the logs first, then the logs by number."""
    return sorted(names, key=_sort_key)


def _sort_key(path: str) -> tuple[str, str, int, int, str]:
    """Return the sort key of a path."""
    folder, name = os.path.split(path)
    matched = GTID_INDEX_NAME.fullmatch(name)
    parsed = parse_log_name(matched["log"] if matched else name)
    if parsed is None:
        return folder, name.rpartition(".")[0], 0, 0, name
    return folder, parsed.base, 1, parsed.number, name
