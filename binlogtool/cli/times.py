"""Parse times and durations of the command line."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from binlogtool.errors import UsageError
from binlogtool.limits import shorten

_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_MAX_DURATION_S = 1000 * 366 * 86400.0
_DURATION_PART = r"(\d+(?:\.\d+)?)(ms|min|s|m|h|d|w|)"


def parse_duration(text: str) -> float:
    """Parse `90`, `1.5s`, `1m30s` or `2h` into seconds.

    Raises:
        UsageError: the text is not a duration.
    """
    compact = text.strip().lower().replace(" ", "")
    if not re.fullmatch(f"(?:{_DURATION_PART})+", compact):
        raise UsageError(f"{shorten(text)!r} is not a duration; write 90, 1.5s, 1m30s or 2h")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_DURATION_PART, compact))
    if seconds > _MAX_DURATION_S:
        raise UsageError(f"{shorten(text)!r} is too long a duration; the most is 1000 years")
    return seconds


def parse_time(text: str, *, local: bool = False, now: float | None = None) -> int:
    """Parse an RFC 3339 time, epoch seconds, or `-2h` (before now) into microseconds since 1970-01-01 UTC.

    Eight digits that form a date, such as 20260131, are a date. A time without a zone is UTC, or local time if
    `local`.

    Raises:
        UsageError: the text is not a time.
    """
    stripped = text.strip()
    if re.fullmatch(r"\d{1,11}(?:\.\d+)?", stripped) and not _is_compact_date(stripped):
        seconds, _, fraction = stripped.partition(".")
        return int(seconds) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
    if stripped[:1] in ("-", "+") and len(stripped) > 1:
        shift = parse_duration(stripped[1:]) * (-1 if stripped[0] == "-" else 1)
        return round(((time.time() if now is None else now) + shift) * 1_000_000)
    try:
        moment = datetime.fromisoformat(stripped)
        if moment.tzinfo is None:
            moment = moment.astimezone() if local else moment.replace(tzinfo=UTC)
        whole = int(moment.replace(microsecond=0).timestamp())
    except (ValueError, OverflowError, OSError):
        form = "2026-01-31T12:00:00Z, epoch seconds, or -2h"
        raise UsageError(f"{shorten(text)!r} is not a time; write {form}") from None
    return whole * 1_000_000 + moment.microsecond


def _is_compact_date(text: str) -> bool:
    if re.fullmatch(r"\d{8}", text) is None or int(text) < 19000101:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
