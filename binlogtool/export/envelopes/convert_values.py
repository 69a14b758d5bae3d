"""Convert column values to numbers and texts; shared by several envelopes."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from binlogtool.format_api.row_output_interfaces import ChangeEvent

ChangeMessage = tuple[dict[str, Any] | bytes, ChangeEvent | None]
"""(message as members or as encoded JSON, its change or the first of them); encoded messages have no change."""

_TIME_TEXT = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?\Z")
_DATETIME_TEXT = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\Z")
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_TIME_MEMBERS = ("$date", "$time", "$datetime", "$timestamp")


def date_to_days(text: Any) -> int | None:
    """Convert a DATE to days since 1970; None if the date is invalid."""
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL
    except (TypeError, ValueError):
        return None


def datetime_to_micros(text: Any) -> int | None:
    """Convert a DATETIME, taken as UTC, to microseconds since 1970; None if it is invalid."""
    match = _DATETIME_TEXT.match(text) if isinstance(text, str) else None
    if match is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=UTC)
    except ValueError:
        return None
    seconds = (moment.toordinal() - _EPOCH_ORDINAL) * 86400 + moment.hour * 3600 + moment.minute * 60 + moment.second
    return seconds * 1_000_000 + int((match[3] or "0").ljust(6, "0"))


def time_to_micros(text: Any) -> int | None:
    """Convert a TIME to microseconds; None if it is invalid."""
    match = _TIME_TEXT.match(text) if isinstance(text, str) else None
    if match is None:
        return None
    seconds = int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4])
    micros = seconds * 1_000_000 + int((match[5] or "0").ljust(6, "0"))
    return -micros if match[1] else micros


def document_to_json(value: Any) -> str:
    """Return the document of a JSON column as text."""
    return msgspec.json.encode(unwrap_typed_json_document(value)).decode()


def document_to_spaced_json(value: Any) -> str:
    """Return the document of a JSON column as text, with the spaces that MySQL writes."""
    return _format_json_with_spaces(unwrap_typed_json_document(value))


def _format_json_with_spaces(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_format_json_with_spaces, value))}]"
    if hasattr(value, "items"):
        members = (
            f"{_format_json_with_spaces(name)}: {_format_json_with_spaces(held)}" for name, held in value.items()
        )
        return f"{{{', '.join(members)}}}"
    return msgspec.json.encode(value).decode()


def format_java_double(value: float) -> str:
    """Format a number like Java's Double.toString: at least one decimal, exponents below 0.001 and from 10 million."""
    if not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    sign, numerals, power = Decimal(repr(value)).normalize().as_tuple()
    digits, point = "".join(map(str, numerals)), len(numerals) + int(power)
    minus = "-" if sign else ""
    if not value or -2 <= point <= 7:
        whole, rest = (
            (digits[:point].ljust(point, "0") or "0", digits[point:]) if point > 0 else ("0", "0" * -point + digits)
        )
        return f"{minus}{whole}.{rest.rstrip('0') or '0'}"
    return f"{minus}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def unwrap_typed_json_document(value: Any) -> Any:
    """Return the document of a JSON column; values without a JSON type become texts, and bytes become base64."""
    if isinstance(value, list):
        return [unwrap_typed_json_document(one) for one in value]
    if not hasattr(value, "items"):
        return value
    if len(value) == 1:
        name, content = next(iter(value.items()))
        if name == "$json":
            return None
        if name == "$decimal":
            return msgspec.Raw(str(content).encode())
        if name in _TIME_MEMBERS:
            return content
        if name == "$map":
            return {str(key): unwrap_typed_json_document(one) for key, one in content}
    return {key: unwrap_typed_json_document(one) for key, one in value.items()}


def quote_name(name: str) -> str:
    """Quote an identifier for an SQL statement."""
    return "`" + name.replace("`", "``") + "`"


def to_json_safe_text(text: str) -> str:
    """Return text that JSON can hold; bytes that are invalid in their character set become backslash escapes."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
