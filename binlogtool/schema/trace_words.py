"""Describe values and errors of construct in words."""

from __future__ import annotations

import enum
import re
from typing import Any

from construct import (
    CheckError,
    ConstError,
    EnumInteger,
    EnumIntegerString,
    HexDisplayedInteger,
    RangeError,
    StreamError,
    StringError,
    TerminatedError,
)

from binlogtool.formats.fields import ChecksumResult
from binlogtool.schema.annotation import HexInt

MAX_ERROR_LENGTH = 300
"""Characters of an error text: some of construct's texts quote the whole input."""

PLAIN_TYPES = frozenset({int, bytes, str, float, bool, type(None), HexInt})

_FINDING_IDS: tuple[tuple[type[BaseException], str], ...] = (
    (RecursionError, "nesting-too-deep"),
    (StreamError, "length-out-of-bounds"),
    (OverflowError, "length-out-of-bounds"),
    (CheckError, "length-out-of-bounds"),
    (RangeError, "count-out-of-bounds"),
    (ConstError, "bad-magic"),
    (TerminatedError, "unmapped-bytes"),
    (StringError, "text-undecodable"),
)

_SHORT_READ = re.compile(r"stream read less than specified amount, expected (\d+), found (\d+)")
_LARGE_READ = re.compile(r"stream\.read\(\) failed, requested (-?\d+) bytes")
_WRONG_CONSTANT = re.compile(r"parsing expected (.*) but parsed (.*)", re.DOTALL)
_THIS_PATH = re.compile(r"this((?:\[(?:'\w+'|\d+)\])+)")
_PATH_NAME = re.compile(r"'(\w+)'")


class NamedNumber(HexInt):
    """A magic number with the name that the schema gives it.

    Attributes:
        shown: The number to show.
    """

    label: str
    shown: int


def describe_value(value: Any, flags: tuple[int, dict[str, int]] | None) -> tuple[Any, str]:
    """Return the value to show and its meaning.

    Args:
        flags: The integer and the flag names of the last parsed `FlagsEnum`.
    """
    if isinstance(value, EnumIntegerString):
        return int(value), str(value)
    if isinstance(value, EnumInteger):
        return int(value), "unknown"
    if isinstance(value, NamedNumber):
        return value.shown, value.label
    if isinstance(value, HexDisplayedInteger):
        return HexInt(value), ""
    if isinstance(value, enum.Enum):
        return value.value, value.name
    if flags is not None and isinstance(value, dict) and value.get("_flagsenum"):
        return flags[0], format_flags(*flags)
    return value, ""


def format_flags(raw: int, flags: dict[str, int]) -> str:
    """Format flags as `commit|wait_sync|0x40`: the names of the bits that are set, then the rest as a number."""
    names = [name for name, mask in flags.items() if mask and raw & mask == mask]
    unnamed_bits = raw
    for name in names:
        unnamed_bits &= ~flags[name]
    return "|".join([*names, hex(unnamed_bits)] if unnamed_bits else names)


def describe_checksum(verified: ChecksumResult, base: int) -> str:
    """Describe the verdict on a stored checksum; the covered range is absolute."""
    span = f"{verified.algorithm} of {base + verified.start:#x}..{base + verified.end:#x}"
    if verified.ok is None:
        return f"not computed ({span})"
    return f"ok ({span})" if verified.ok else f"WRONG, computed {HexInt(verified.computed)!r} ({span})"


def describe_error(error: BaseException) -> tuple[str, str]:
    """Return the text and the finding id of an exception that a parse ended with.

    Raises:
        MemoryError: the exception is one; a lack of memory says nothing about the bytes.
    """
    if isinstance(error, MemoryError):
        raise error
    finding_id = getattr(error, "finding_id", None) or next(
        (name for kind, name in _FINDING_IDS if isinstance(error, kind)), "payload-undecodable"
    )
    return _format_error(error), finding_id


def _format_error(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error).split("\n", 1)[-1] if str(error).startswith("Error in path") else str(error)
    if short_read := _SHORT_READ.search(text):
        return format_missing_bytes(int(short_read[1]), int(short_read[2]))
    if large_read := _LARGE_READ.search(text):
        return f"needs {large_read[1]} bytes"
    if wrong_constant := _WRONG_CONSTANT.search(text):
        text = f"expected {wrong_constant[1]}, found {wrong_constant[2]}"
    if isinstance(error, KeyError | AttributeError):
        text = f"refers to {text}, which this record does not have"
    return (text or type(error).__name__)[:MAX_ERROR_LENGTH]


def format_missing_bytes(size: int, left: int) -> str:
    """Return the text for a field that the data is too short for."""
    return f"needs {size:,} {'byte' if size == 1 else 'bytes'}, {left:,} {'is' if left == 1 else 'are'} left"


def find_field_paths(expression: Any) -> list[list[str]]:
    """Return the fields that a `this` expression mentions, in order, as lists of names."""
    return [_PATH_NAME.findall(match) for match in _THIS_PATH.findall(repr(expression))]


def format_condition(expression: Any) -> str:
    """Format a `this` expression for a reader: `length <= 2147483647`."""
    text = _THIS_PATH.sub(_format_path, repr(expression))
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _format_path(match: re.Match[str]) -> str:
    return ".".join(_PATH_NAME.findall(match[0]))
