"""Colours for lines of text that is already escaped."""

from __future__ import annotations

from collections.abc import Callable

_CODES = {"good": "32", "warning": "33", "error": "31;1", "note": "36", "dim": "2"}


def make_painter(colour: bool) -> Callable[[str, str], str]:
    """Return a function (text, style name) -> text with colour, or unchanged."""
    return _paint if colour else _leave_plain


def _paint(text: str, style: str) -> str:
    code = _CODES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def _leave_plain(text: str, _style: str) -> str:
    return text
