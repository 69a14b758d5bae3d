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

from binlogtool.formats.fields import Verified
from binlogtool.schema.annotation import HexInt

LONGEST = 300
"""Characters of an error text: some of construct's texts quote the whole input."""

PLAIN = frozenset({int, bytes, str, float, bool, type(None), HexInt})

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

_SHORT = re.compile(r"stream read less than specified amount, expected (\d+), found (\d+)")
_LARGE = re.compile(r"stream\.read\(\) failed, requested (-?\d+) bytes")
_CONST = re.compile(r"parsing expected (.*) but parsed (.*)", re.DOTALL)
_NAME = re.compile(r"this((?:\[(?:'\w+'|\d+)\])+)")
_PART = re.compile(r"'(\w+)'")


class Named(HexInt):
    """A magic number with the name that the schema gives it.

    Attributes:
        shown: The number to show.
    """

    label: str
    shown: int


def shown(value: Any, flags: tuple[int, dict[str, int]] | None) -> tuple[Any, str]:
    """Return the value to show and its meaning.

    Args:
        flags: The integer and the flag names of the last parsed `FlagsEnum`.
    """
    if isinstance(value, EnumIntegerString):
        return int(value), str(value)
    if isinstance(value, EnumInteger):
        return int(value), "unknown"
    if isinstance(value, Named):
        return value.shown, value.label
    if isinstance(value, HexDisplayedInteger):
        return HexInt(value), ""
    if isinstance(value, enum.Enum):
        return value.value, value.name
    if flags is not None and isinstance(value, dict) and value.get("_flagsenum"):
        return flags[0], flag_names(*flags)
    return value, ""


def flag_names(raw: int, flags: dict[str, int]) -> str:
    """Format flags as `commit|wait_sync|0x40`: the names of the bits that are set, then the rest as a number."""
    names = [name for name, mask in flags.items() if mask and raw & mask == mask]
    rest = raw
    for name in names:
        rest &= ~flags[name]
    return "|".join([*names, hex(rest)] if rest else names)


def checksum_words(verified: Verified, base: int) -> str:
    """Describe the verdict on a stored checksum; the covered range is absolute."""
    span = f"{verified.algorithm} of {base + verified.start:#x}..{base + verified.end:#x}"
    if verified.ok is None:
        return f"not computed ({span})"
    return f"ok ({span})" if verified.ok else f"WRONG, computed {HexInt(verified.computed)!r} ({span})"


def why(error: BaseException) -> tuple[str, str]:
    """Return the text and the finding id of an exception that a parse ended with.

    Raises:
        MemoryError: the exception is one; a lack of memory says nothing about the bytes.
    """
    if isinstance(error, MemoryError):
        raise error
    finding_id = getattr(error, "finding_id", None) or next(
        (name for kind, name in _FINDING_IDS if isinstance(error, kind)), "payload-undecodable"
    )
    return _text(error), finding_id


def _text(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error).split("\n", 1)[-1] if str(error).startswith("Error in path") else str(error)
    if short := _SHORT.search(text):
        return needs(int(short[1]), int(short[2]))
    if large := _LARGE.search(text):
        return f"needs {large[1]} bytes"
    if const := _CONST.search(text):
        text = f"expected {const[1]}, found {const[2]}"
    if isinstance(error, KeyError | AttributeError):
        text = f"refers to {text}, which this record does not have"
    return (text or type(error).__name__)[:LONGEST]


def needs(size: int, left: int) -> str:
    """Return the text for a field that the data is too short for."""
    return f"needs {size:,} {'byte' if size == 1 else 'bytes'}, {left:,} {'is' if left == 1 else 'are'} left"


def names_in(expression: Any) -> list[list[str]]:
    """Return the fields that a `this` expression mentions, in order, as lists of names."""
    return [_PART.findall(match) for match in _NAME.findall(repr(expression))]


def condition(expression: Any) -> str:
    """Format a `this` expression for a reader: `length <= 2147483647`."""
    text = _NAME.sub(_dotted, repr(expression))
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _dotted(match: re.Match[str]) -> str:
    return ".".join(_PART.findall(match[0]))
