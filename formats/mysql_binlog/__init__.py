"""Binary log of MySQL and MariaDB: a numbered series of files with version 4 events. Covers relay logs too."""

_SIX_DIGITS = "[0-9]" * 6

LOG_PATTERNS = (f"*.{_SIX_DIGITS}", f"*.{_SIX_DIGITS}[0-9]")

TEXT_FILE_PATTERNS = ("*[!0-9]*.index", "*.index_crash_safe", "*.~rec~", "*.state", "relay-log*.info")

FILE_PATTERNS = (*LOG_PATTERNS, *TEXT_FILE_PATTERNS, f"*.{_SIX_DIGITS}.idx", f"*.{_SIX_DIGITS}[0-9].idx")
"""Patterns of all files that may belong to a log."""


__all__ = ["FILE_PATTERNS"]
