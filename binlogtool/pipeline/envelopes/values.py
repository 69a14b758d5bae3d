"""Conversions of column values to numbers and texts that several envelopes share."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from binlogtool.formats.changes import Change

Line = tuple[bytes, Change | None]
"""A message without its line end, and its change (the first of several); None if changes are not kept."""

_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?\Z")
_DATETIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\Z")
_EPOCH = date(1970, 1, 1).toordinal()
_MARKS = ("$date", "$time", "$datetime", "$timestamp")


def days(text: Any) -> int | None:
    """Return a DATE as days since 1970; None if the date is invalid."""
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH
    except (TypeError, ValueError):
        return None


def micros_of_datetime(text: Any) -> int | None:
    """Return a DATETIME as microseconds since 1970, taken as UTC; None if it is invalid."""
    found = _DATETIME.match(text) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        whole = datetime.fromisoformat(f"{found[1]}T{found[2]}").replace(tzinfo=UTC)
    except ValueError:
        return None
    seconds = (whole.toordinal() - _EPOCH) * 86400 + whole.hour * 3600 + whole.minute * 60 + whole.second
    return seconds * 1_000_000 + int((found[3] or "0").ljust(6, "0"))


def micros_of_time(text: Any) -> int | None:
    """Return a TIME as microseconds; None if it is invalid."""
    found = _TIME.match(text) if isinstance(text, str) else None
    if found is None:
        return None
    seconds = int(found[2]) * 3600 + int(found[3]) * 60 + int(found[4])
    micros = seconds * 1_000_000 + int((found[5] or "0").ljust(6, "0"))
    return -micros if found[1] else micros


def json_text(value: Any) -> str:
    """Return the document of a JSON column as text."""
    return msgspec.json.encode(document(value)).decode()


def spaced(value: Any) -> str:
    """Return the document of a JSON column as text, with the spaces that MySQL writes."""
    return _spaced(document(value))


def _spaced(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_spaced, value))}]"
    if hasattr(value, "items"):
        return f"{{{', '.join(f'{_spaced(name)}: {_spaced(held)}' for name, held in value.items())}}}"
    return msgspec.json.encode(value).decode()


def java_number(value: float) -> str:
    """Return a number as Java's Double.toString: at least one decimal place, exponents below 0.001 and from 10
    million.
    """
    if not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    sign, numerals, power = Decimal(repr(value)).normalize().as_tuple()
    digits, at = "".join(map(str, numerals)), len(numerals) + int(power)
    minus = "-" if sign else ""
    if not value or -2 <= at <= 7:
        whole, rest = (digits[:at].ljust(at, "0") or "0", digits[at:]) if at > 0 else ("0", "0" * -at + digits)
        return f"{minus}{whole}.{rest.rstrip('0') or '0'}"
    return f"{minus}{digits[0]}.{digits[1:] or '0'}E{at - 1}"


def document(value: Any) -> Any:
    """Return the document of a JSON column; values without a JSON type become texts, bytes base64."""
    if isinstance(value, list):
        return [document(one) for one in value]
    if not hasattr(value, "items"):
        return value
    if len(value) == 1:
        name, held = next(iter(value.items()))
        if name == "$json":
            return None
        if name == "$decimal":
            return msgspec.Raw(str(held).encode())
        if name in _MARKS:
            return held
        if name == "$map":
            return {str(key): document(one) for key, one in held}
    return {key: document(one) for key, one in value.items()}


def quoted(name: str) -> str:
    """Return an identifier quoted for a statement."""
    return "`" + name.replace("`", "``") + "`"


def plain(text: str) -> str:
    """Return text that JSON can hold: bytes that are invalid in their character set as backslash escapes."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
