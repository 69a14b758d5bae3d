"""Moments and durations as people write them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from binlogtool.errors import UsageError

_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = r"(\d+(?:\.\d+)?)(ms|min|s|m|h|d|w|)"


def parse_duration(text: str) -> float:
    """Seconds meant by `90`, `1.5s`, `1m30s` or `2h`.

    Raises:
        UsageError: the text is no duration.
    """
    compact = text.strip().lower().replace(" ", "")
    if not re.fullmatch(f"(?:{_PART})+", compact):
        raise UsageError(f"{text!r} is not a duration; write 90, 1.5s, 1m30s or 2h")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, compact))


def parse_time(text: str, *, local: bool = False, now: float | None = None) -> int:
    """Microseconds since 1970-01-01 UTC meant by an RFC 3339 time, epoch seconds, or `-2h` (before now).

    A time without a zone is UTC, or local time if `local`.

    Raises:
        UsageError: the text is no time.
    """
    stripped = text.strip()
    if re.fullmatch(r"\d{1,12}(?:\.\d+)?", stripped):
        seconds, _, fraction = stripped.partition(".")
        return int(seconds) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
    if stripped[:1] in ("-", "+") and len(stripped) > 1:
        shift = parse_duration(stripped[1:]) * (-1 if stripped[0] == "-" else 1)
        return round(((time.time() if now is None else now) + shift) * 1_000_000)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise UsageError(f"{text!r} is not a time; write 2026-01-31T12:00:00Z, epoch seconds, or -2h") from None
    if moment.tzinfo is None:
        moment = moment.astimezone() if local else moment.replace(tzinfo=UTC)
    whole = moment.replace(microsecond=0)
    return int(whole.timestamp()) * 1_000_000 + moment.microsecond
